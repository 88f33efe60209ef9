"""The seconds that a run loses to an interruption: the fields of `cosmic.design.run_layer.Run` brought to a machine's size.

Closed form and simulation both start here, and share nothing else. All functions take numbers or arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cosmic.base.numeric import Condition, Numeric, choose, larger, power, smaller
from cosmic.design import schema
from cosmic.design.catalog_entries import load_constants
from cosmic.design.design_batch import first_known, none_to_nan
from cosmic.design.run_layer import Run, npu_mtbf_s
from cosmic.step.accelerator_rates import FieldLookup

NEVER_S = 1e12
"""Time between checkpoints of a run that takes none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualRun:
    """How runs recover whose design does not say so."""

    failure_domain_npus: int
    detection_s: float
    restart_s: float
    restart_per_npu_s: float
    reconfigure_s: float
    checkpoint_bandwidth_bytes_per_s: float
    local_checkpoint_bandwidth_bytes_per_s: float
    remote_interval_s: float
    shortest_interval_s: float


USUAL_RUN = load_constants("goodput", UsualRun)


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionTerms:
    """Times of one run on one machine, or of each design of a batch."""

    mtbf_s: Numeric
    """M: mean time between interruptions of the run."""
    replicas: Numeric
    """k: parts of the run that fail by themselves; 1 if an interruption stops all of it."""
    detection_s: Numeric
    """D: all stand still until the interruption is noticed."""
    stall_s: Numeric
    """S: and until the others go on without the replica that failed; 0 if none go on."""
    restart_s: Numeric
    """R: time from the detection until what failed is back, a checkpoint loaded; at least S."""
    block_s: Numeric
    """C: time that training stands still for a checkpoint."""
    hidden_s: Numeric
    """H: time from then until the checkpoint is complete, and of use."""
    interval_s: Numeric
    """Time of training between checkpoints as stated; NaN: the optimum."""
    shortest_s: Numeric
    """Shortest time between checkpoints: a new one begins when the last is complete."""
    remote_share: Numeric
    """Share of the interruptions of training that go back to remote storage."""
    remote_interval_s: Numeric
    remote_write_s: Numeric
    """Time between checkpoints in remote storage, and until one is complete."""
    slow_share: Numeric
    """Share of the time that some domain is slow."""
    slow_factor: Numeric
    """Time of a step then, over the usual."""
    domains: Numeric
    """Failure domains in use."""
    spare_domains: Numeric
    repair_s: Numeric | None
    """Mean time until a domain is back; None: there is always a replacement."""
    repair_load: Numeric
    """Mean time of a repair, over the mean time between failures of a domain."""
    elastic: Condition
    """Whether the run goes on with fewer replicas when spares are used up."""


def run_fields(run: Run, accelerator: str = "") -> FieldLookup:
    """Return a lookup of the fields of a run by key; the rate of interruptions may come from the *accelerator*.

    >>> run_fields(Run(), "h100-sxm-80gb")("npu_mtbf") > 1.8e8, run_fields(Run(npu_mtbf_s=9e7))("npu_mtbf")
    (True, 90000000.0)
    """

    def look_up(key: str) -> Any:
        value = schema.get_field(run, key)
        return npu_mtbf_s(accelerator)[0] if key == "npu_mtbf" and value is None and accelerator else value

    return look_up


def run_terms(
    fields: FieldLookup, npus: Numeric, dp: Numeric, state_bytes_per_npu: Numeric, work_s: Numeric | None = None
) -> InterruptionTerms | None:
    """Return what interruptions take of a run; None if the rate of interruptions is not known.

    *fields* looks up fields of a `Run` by their key; *state_bytes_per_npu* is what each accelerator writes of a
    checkpoint, and *work_s* the time that the run would take without interruptions, if it has a length.
    """
    mtbf = fields("npu_mtbf")
    if mtbf is None:
        return None
    by_key = {slot.key: slot.name for slot in schema.slots(UsualRun).values()}

    def usual(key: str) -> Any:
        """Return the field of the design, or the usual number where it states none."""
        return first_known(fields(key), getattr(USUAL_RUN, by_key[key]))

    domain, repair = usual("failure_domain_npus"), fields("repair")
    by_replica = fields("recovery") != "restart"
    replicas = choose(by_replica, dp, 1)
    # to remote storage, and to the host's memory
    write_s, copy_s = (
        state_bytes_per_npu / usual("checkpoint_bandwidth"),
        state_bytes_per_npu / usual("local_checkpoint_bandwidth"),
    )
    kind = fields("checkpoint")
    none, in_memory = kind == "none", kind == "in_memory"
    load_s = choose(in_memory | by_replica, copy_s, choose(none, 0.0, write_s))  # a replica loads from its peers
    restart_s = usual("restart") + usual("restart_per_npu") * (npus / replicas) + load_s
    load = 0.0 if repair is None else domain * first_known(repair, 0.0) / none_to_nan(mtbf)
    length_s = NEVER_S if work_s is None else work_s
    return InterruptionTerms(
        mtbf_s=none_to_nan(mtbf) / npus,
        replicas=replicas,
        detection_s=usual("detection"),
        stall_s=choose(by_replica, smaller(usual("reconfigure"), restart_s), 0.0),
        restart_s=restart_s,
        block_s=choose(none, 0.0, choose(kind == "blocking", write_s, copy_s)),
        hidden_s=choose(in_memory, copy_s, choose(kind == "asynchronous", write_s, 0.0)),
        interval_s=choose(none, length_s, none_to_nan(fields("checkpoint_interval"))),
        # one checkpoint is written to remote storage while the next is not yet due
        shortest_s=larger(USUAL_RUN.shortest_interval_s, choose(kind == "asynchronous", write_s - copy_s, 0.0)),
        remote_share=choose(in_memory, fields("remote_share"), 0.0),
        remote_interval_s=larger(usual("remote_interval"), write_s),
        remote_write_s=write_s,
        slow_share=1 - power(1 - fields("slow_node_share"), npus / domain),
        slow_factor=fields("slow_node_factor"),
        domains=-(-npus // domain),
        spare_domains=fields("spare_npus") // domain,
        repair_s=None if repair is None else first_known(repair, 0.0),
        repair_load=load,
        elastic=fields("recovery") == "elastic",
    )
