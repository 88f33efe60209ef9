"""Topologies, one file each; `cosmic.design.network.topologies` finds them here."""
