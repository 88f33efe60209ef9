"""How other software runs a design, and which design other software runs.

    launch            `Launch`: a design as arguments, environment and files of a target; read this first
    targets           a module for each target: Megatron-LM, TorchTitan, DeepSpeed, NCCL, ASTRA-sim, and the engines
                      vLLM, SGLang, TensorRT-LLM and Dynamo; found by the registry, so that others can add theirs
    served_launch     what serving targets need to know of a design, the checkpoint that they load, where its instances run
    launch_readers    the way back: what somebody's script or configuration says, as the layers of a design file
    megatron_files    the readers of Megatron-LM, NeMo and Megatron-Bridge; targets have those of their own formats
    shell_*           what a shell script would run, as far as its text says

Nothing that is read is ever run. What a target or a design cannot express is a warning, never dropped silently.
"""
