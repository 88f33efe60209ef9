"""Topologies, one file each; `cosmic.design.network_layer.topologies` finds them here."""
