"""What a user's own measurements say about the user's system.

    files ──▶ measurements, each predicted on the system ──▶ the most likely parameters ──▶ a system file

`priors.yaml` lists the physical parameters, and how far they are from their usual value on systems that nobody
measured. Measurements move them as far as they disagree with the prediction and as far as it depends on each.
`probing` and `torch_device` need nothing but Python and PyTorch.
"""
