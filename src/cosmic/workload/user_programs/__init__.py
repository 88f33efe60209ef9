"""Programs that users bring as models: graphs of operators from YAML, JAX functions and PyTorch modules."""
