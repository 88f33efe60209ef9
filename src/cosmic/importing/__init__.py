"""From launches to designs: scripts and files of Megatron-LM, NeMo, TorchTitan and DeepSpeed, read and never run."""
