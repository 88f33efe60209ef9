"""The node layer: what is sold around accelerators."""

from __future__ import annotations

from dataclasses import dataclass

from cosmic.design.bounds import check_bounds
from cosmic.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node, or a rack, as it is sold: accelerators with their host, NICs and the links between them."""

    name: str = ""
    """Entry of the catalog; empty: accelerators are bought by themselves, and nothing is known of hosts."""
    accelerator: str = ""
    """What it is sold with; a design with another accelerator is a machine that is not on sale."""
    npus: int = 1
    """Accelerators of one."""
    host_price_usd: float | None = None
    """Price of one without its accelerators: chassis, processors, NICs, the links inside."""
    host_power_w: float | None = None
    """Rated power of one without its accelerators."""
    host_idle_power_w: float | None = None
    """What of that it draws when idle; None: all of it."""

    def __post_init__(self) -> None:
        check_bounds(self)
        require(self.npus >= 1, "npus", self.npus, "a node has at least 1 accelerator")
        for key, value in (
            ("host_price", self.host_price_usd),
            ("host_power", self.host_power_w),
            ("host_idle_power", self.host_idle_power_w),
        ):
            require(value is None or value >= 0, key, value, "must not be negative")
