"""What collectives cost, on any network, and what no schedule could beat.

A network is dimensions, each with a topology, a bandwidth and a latency. `collective_costs` says how long a collective
among ranks takes, given where they lie (`mesh_spans`), from the terms of algorithms (`collective_algorithms`,
`algorithm_terms`) on topologies (`topologies`), the tiers of switches (`switch_tiers`), single links where these are
listed or faulty (`dimension_wiring`, `link_shares`) and what a communication library adds (`transport_protocols`).

A network is also a graph of links (`link_graph`, `network_graphs`, read by `network_files`). On it `synthesis` makes
schedules of collectives and bounds them from below; `schedules` checks, replays, reads and writes schedules.
Read `collective_costs` first for costs, `link_graph` and `schedules.collective_schedule` for schedules.
"""
