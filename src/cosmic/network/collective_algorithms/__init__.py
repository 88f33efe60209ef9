"""Collective algorithms, one file each; `cosmic.design.collective_layer.algorithms` finds them here."""
