"""What a model does on a mesh: graphs of operators, sharded, and cut into pipeline stages.

A model is a tuple of blocks (`model_blocks`), each a graph of operators over tensors with named dimensions
(`operator_graph`, `operator_kinds`). A strategy states the shardings of a few tensors;
`sharding` propagates them, and `block_plans` holds the partitioned blocks with their backward passes. A plan has no
sizes: `mesh_sizes` gives them for a batch of designs, so that one plan serves every degree of parallelism.

Offers to others: `plan_of`, `sizes_of`, the rules of a valid mapping (`mapping_rules`), pipeline schedules
(`pipeline_schedule`, a file each in `pipeline_schedules`), precision recipes (`precision`), MoE routing
(`expert_routing`), and models that users bring (`user_programs`). Read `model_blocks`, then `block_plans`.
"""
