"""The event engine: simulates execution traces on a cluster, node by node and message by message."""
