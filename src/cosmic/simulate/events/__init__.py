"""The event engine: simulates execution traces on a cluster, node by node and message by message.

Begin with `trace_simulation`. `compiled_core` does in C what `simulation_world` and `chunk_streams` do in
Python, event by event.
"""
