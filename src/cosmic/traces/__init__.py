"""Chakra execution traces: read, checked, written, and generated from a design."""
