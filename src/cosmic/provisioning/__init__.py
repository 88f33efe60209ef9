"""Bandwidth that is made to measure: the best split of a budget over the dimensions of a network (LIBRA).

provision ── LIBRA's files ──▶ libra: loads ──▶ solving: one convex program ──▶ certificate: bound and prices
    └─────── designs ────────▶ designs: the step itself ◀── descent, from where the convex model begins
limits: budgets and limits as people write them        ports: whole ports near the optimum
"""

from cosmic.provisioning.provisioning import provision
from cosmic.provisioning.result import Provisioned

__all__ = ["Provisioned", "provision"]
