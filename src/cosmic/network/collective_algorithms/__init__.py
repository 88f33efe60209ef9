"""Collective algorithms, one file each; `cosmic.design.collective.algorithms` finds them here."""
