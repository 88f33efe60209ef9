"""Files of traces: Chakra's protobuf and JSON files, ASTRA-sim's text workloads, and collective schedules as traces.

`trace_reader` and `trace_writer` are the entries; `wire_format` states the schema.
"""
