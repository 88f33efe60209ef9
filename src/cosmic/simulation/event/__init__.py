"""Traces played on a simulated cluster, node by node and message by message."""
