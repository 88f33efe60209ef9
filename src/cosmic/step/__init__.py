"""What one step of a design is made of: operators, collectives and memory, with the seconds that each takes.

Read `step_profile` first. It collects the operators (`operator_work`), their seconds on the accelerator
(`kernel_costs`), the collectives and their seconds (`communication`) and the memory of the fullest
device (`device_memory`). Every number of a step that COSMIC prints is a sum over that value.

Cost models of kernels: `accelerator_rates` (roofline, power cap), `gemm` (with casts), `attention`, `scan`,
`streaming`, `kernel_launches`. Memory: `block_memory`, `stage_memory`; outer tiers: `state_placement`, `tier_traffic`.
Time: `stage_time` says what overlaps with what on a pipeline stage. `bottleneck` reads a profile. `cuts` are plugins.
Nothing here knows when things happen: that is the simulation's.
"""
