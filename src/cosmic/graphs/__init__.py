"""Networks as graphs: accelerators and switches joined by directed links, each with a bandwidth and a latency."""
