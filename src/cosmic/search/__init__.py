"""Search: which design is best, how sure that is, and what would help a design that is given.

A parameter set (`space`) says what may vary around a base design, and which combinations are valid. A problem adds
objectives and limits, and evaluates points. An agent (`agents`, `learning`) proposes points; the search loop evaluates
them and writes every trial to a study (`study`), which can be resumed, replayed, repaired and exported. `mapping`
finds a good mapping of one model on one machine in a dozen evaluations, `advice` what would help a design or a service,
and `compare` what explains the difference between two designs. `certify` proves that no design of a set is better,
`provision` shares out bandwidth under a budget, `sharding` cuts a program over devices, and `cluster_sizing` says what
to buy. README.md lists all modules, and those that other rooms may import.

Other rooms mostly use `mapping.design_completion.load_design`, `search_loop.search`, `study.study.open_study`,
`space.space_files.load_space` and `advice.design_advice`. Read first: `space.parameter_set`, `problem`, `agent`,
`search_loop`.
"""
