"""What one step of a design is made of: operators, collectives and memory, with the seconds that each takes.

Read `step_profile` first. It collects the operators (`operator_work`), their seconds on the accelerator
(`kernel_costs`), the collectives (`communication`), their seconds (`network_costs`) and the memory of the fullest
device (`device_memory`). Every number of a step that COSMIC prints is a sum over that value.

Cost models of kernels: `accelerator_rates` (roofline, power cap), `gemm`, `attention`, `scan`, `streaming`,
`operand_casts`, `kernel_launches`. Memory: `activations`, `stage_memory`, `kv_cache`, `embedding_tables`; outer tiers:
`state_placement`, `tier_traffic`, `tier_usage`. Time: `stage_time` says what overlaps with what on a pipeline stage,
`host_dispatch` who starts a step. `network_load` and `bottleneck` read a profile. `cuts` are plugins.
Nothing here knows when things happen: that is the simulation's.
"""
