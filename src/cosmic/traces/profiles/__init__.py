"""PyTorch's profiles: Kineto traces and execution traces, linked, written as Chakra traces, projected and compared.

`profile_conversion` is the entry; `trace_projection` puts a recorded trace on another machine; `trace_contrast`
compares two.
"""
