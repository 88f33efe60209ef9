"""PyTorch's profiles: Kineto traces and execution traces, linked, and written as Chakra traces."""
