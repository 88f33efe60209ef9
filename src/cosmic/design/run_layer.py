"""The run layer: how long a training run is, how often it is interrupted, and how it recovers.

Every field is a number or a name, so that each can be a parameter of a search. `cosmic.cluster` has the formulas. Where
a field says *if not given, the usual*, the number and its source are in ``catalog/constants/goodput.yaml``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from cosmic.base import units
from cosmic.base.errors import UnknownName, require
from cosmic.design.catalog_entries import CATALOG_FOLDER, load_mapping, resolve_name
from cosmic.design.schema import check_bounds

Checkpoint = Literal["none", "blocking", "asynchronous", "in_memory"]
Recovery = Literal["restart", "replica", "elastic"]
DURATIONS = ("detection", "restart", "restart_per_npu", "reconfigure", "repair")
"""Keys of the fields that are times and may be 0."""
POSITIVE = (
    "tokens",
    "npu_mtbf_s",
    "failure_domain_npus",
    "checkpoint_bandwidth_bytes_per_s",
    "local_checkpoint_bandwidth_bytes_per_s",
    "checkpoint_interval_s",
    "remote_interval_s",
)
LONGEST_MTBF_S = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A long training run on machines that fail."""

    tokens: float | None = None
    """Tokens to train on, or samples of a model without a sequence; None: no length, and no days to train."""
    npu_mtbf_s: float | None = field(default=None, metadata={"most": LONGEST_MTBF_S})
    """Accelerator-seconds between two interruptions, of all causes: one accelerator with its share of host and network.
    None: not known, and so is the goodput."""
    failure_domain_npus: int | None = None
    """Accelerators that one failure takes away until its repair: a node, a rack, a cube. If not given, the usual."""
    detection_s: float | None = None
    """Time until an interruption is noticed and its cause is found. If not given, the usual."""
    restart_s: float | None = None
    """Time from then until training goes on, besides loading a checkpoint: scheduling, start of processes,
    initialization of communicators. If not given, the usual."""
    restart_per_npu_s: float | None = None
    """What each accelerator that restarts adds to that time. If not given, the usual."""
    checkpoint: Checkpoint = "asynchronous"
    """How the state is kept. blocking: training waits until remote storage has it. asynchronous: it waits for a copy in
    host memory, which is written to remote storage meanwhile. in_memory: the copy in host memory goes to the host of
    another failure domain, and only rarely to remote storage."""
    checkpoint_bandwidth_bytes_per_s: float | None = None
    """Bandwidth of remote storage for each accelerator of the run: that of all together, over the accelerators. Reading
    is as fast as writing. If not given, the usual."""
    local_checkpoint_bandwidth_bytes_per_s: float | None = None
    """Bandwidth of each accelerator to host memory, and of host memory to that of a peer. If not given, the usual."""
    checkpoint_interval_s: float | None = None
    """Time of training from one checkpoint to the next. If not given, the optimum."""
    remote_share: float = 0.0
    """Share of the interruptions of training after which checkpoints in memory are gone, so that the run goes back to
    remote storage. Only of in_memory."""
    remote_interval_s: float | None = None
    """Time from one checkpoint in remote storage to the next. Only of in_memory. If not given, the usual."""
    recovery: Recovery = "restart"
    """What an interruption stops. restart: the whole run. replica: the replica of data parallelism that failed, while
    the others go on after a stall; it needs a spare. elastic: the same, and without a spare the run goes on with fewer
    replicas until the repair."""
    reconfigure_s: float | None = None
    """Time that all replicas stall after the detection until they go on without the one that failed. Only of replica
    and elastic. If not given, the usual."""
    spare_npus: int = 0
    """Accelerators that stand by. They count where `repair` is given."""
    repair_s: float | None = None
    """Mean time until what failed is back, over all interruptions: one that needs no repair counts 0. None: there is
    always a replacement."""
    slow_node_share: float = 0.0
    """Share of the failure domains that are slow at any time."""
    slow_node_factor: float = 1.0
    """Time of a step with a slow failure domain, over that without one."""

    def __post_init__(self) -> None:
        check_bounds(self)
        for name in POSITIVE:
            value = getattr(self, name)
            key = name.removesuffix("_bytes_per_s").removesuffix("_s")
            require(value is None or value > 0, key, value, "must be positive")
        for key in DURATIONS:
            time = getattr(self, f"{key}_s")
            require(time is None or time >= 0, key, time, "must not be negative")
        require(self.spare_npus >= 0, "spare_npus", self.spare_npus, "must not be negative")
        for key in ("remote_share", "slow_node_share"):
            share = getattr(self, key)
            require(0 <= share <= 1, key, share, "must be from 0 to 1")
        require(self.slow_node_factor >= 1, "slow_node_factor", self.slow_node_factor, "must be at least 1")


@cache
def _load_reliability() -> dict[str, Any]:
    return load_mapping(CATALOG_FOLDER / "reliability.yaml")


def observations() -> tuple[str, ...]:
    """Return the names of all observed clusters and runs.

    >>> observations()[0]
    'llama3-405b'
    """
    return tuple(_load_reliability()["observations"])


def _find_observation(name: str) -> dict[str, Any]:
    listed: dict[str, dict[str, Any]] = _load_reliability()["observations"]
    if name not in listed:
        raise UnknownName.among("observation", name, "observation", listed)
    return listed[name]


def observed_mtbf_s(name: str) -> float:
    """Return the seconds between two interruptions of one accelerator: n T / k.

    n  accelerators that were watched    T  for how long    k  interruptions

    >>> round(observed_mtbf_s("llama3-405b") / 3600)  # hours: 16,384 * 54 * 24 / 419
    50677
    """
    # The observed failure rate of one accelerator: failures are taken as independent and as frequent at any time.
    seen = _find_observation(name)
    return float(seen["npus"] * units.read_quantity(seen["span"], units.SECONDS) / seen["interruptions"])


def npu_mtbf_s(accelerator: str) -> tuple[float | None, str]:
    """Return the seconds between two interruptions of an accelerator of the catalog, and the source.

    None where no rate is published, nor one of a near relative. A source that begins with *estimate* is of a relative.

    >>> npu_mtbf_s("h200-sxm-141gb")[1][:38], npu_mtbf_s("mi300x")
    ('estimate: no rate is published; that o', (None, 'no rate is published'))
    """
    rate = _load_reliability()["accelerators"].get(resolve_name("accelerators", accelerator) or accelerator)
    if rate is None:
        return None, "no rate is published"
    source: str = _find_observation(rate["observation"])["source"]
    if "estimate" in rate:
        source = f"estimate: {rate['estimate']}: {source}"
    return observed_mtbf_s(rate["observation"]), source


def failure_causes(name: str) -> dict[str, float]:
    """Return the share of each cause in the interruptions of an observation; empty if they were not counted.

    >>> round(failure_causes("llama3-405b")["HBM3"], 3), failure_causes("rsc-1")  # 72 of 419
    (0.172, {})
    """
    counts: dict[str, int] = _find_observation(name).get("causes", {})
    total = sum(counts.values())
    return {cause: count / total for cause, count in counts.items()}
