"""Relations that some designs contradict, and why. A relation that holds is not listed."""

from __future__ import annotations

KNOWN: dict[str, str] = {}
"""Reasons by the name of a relation."""
