"""What is to be evaluated: one frozen dataclass per layer of the stack, and the design point that composes them.

    design_point      `DesignPoint`: one complete system, nothing left to default; read this first
    *_layer           its layers: model, workload, collective, network, compute, memory, facility, run, serving
    schema            one reader and one writer for every value of a design, driven by the dataclasses
    design_batch      many designs at once: one base, and an array for each field in which they differ
    loading           from what a user writes to an open design: all of a system but its mapping, which
                      `cosmic.search.mapping.design_completion` fills in (`load_design`)
    catalog_entries   what there is: YAML files with their sources, under ``catalog/``; `systems`, `catalog_parts`,
                      `serving_engine`, `run_layer` and `prediction_accuracy` read kinds of them
    huggingface       models read from a ``config.json``

A design says what is, never what it takes: costs are in the rooms above.
"""
