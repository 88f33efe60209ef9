"""Published training runs: the design of each row, with its predicted and measured step.

A row states sizes, a machine and a mapping. What it does not state is

    of the software    the practice of its framework at its date (`training_software`)
    of the mapping     searched, or read anew where it does not fit (below)
    of the model       that of the catalog with the row's name (`training_software.model_of_row`)
    of the network     the rate of the accelerator's usual system

and the verdict notes it. The measured step is ``iter_time_s``; if empty, it follows from a rate, by the convention in
which operations are counted. The column flops_kind says of that, in words (`calibration/read_words.py` reads prose):

    model, hardware       hardware counts what is recomputed, too: a forward pass (full), or attention's (selective)
    causal, full, none    pairs of query and key that count: those under the mask, all of them, or none
    peak=989              of the utilisation, in TFLOP/s, where it is not that of the accelerator

    f  = g + a            operations of a token: GEMMs g, and attention a, which doubles where all pairs count
    t  = f T / (R n)      T tokens of the step, n accelerators, R operations a second of each: MFU × peak, or stated

Where it says nothing of attention, the framework's own counter does.

Of the axes of a mapping, a row that states some means the rest to be 1, or what the accelerators leave; one that states none leaves
them open, unless its framework shards data parallelism alone.

What is open takes the fastest choice that fits in memory, and the near-best choices say how far the step may spread.
Where a row leaves axes, microbatch or virtual stages open, they are searched with the switches of its framework. Where
a mapping does not fit as it is read, by more than the error of the memory model, the run cannot have been that. It is
read as the fastest of these that fits, and skipped if none does:

    fully sharded weights, if there is no pipeline: some sources do not tell them from sharded optimizer states
    activations offloaded, where a CPU shares the accelerator's package or the framework does it, without a pipeline
    recomputation, selective or full, if the row says nothing of it; of other modules, if it says selective
    other microbatches and virtual stages, in a pipeline
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, prod
from typing import Any

import numpy as np

from cosmic.accuracy.measured_rows import GIB, Fields, MemoryFigure, Row, Verdict, compare_row
from cosmic.accuracy.rows.training_software import (
    NO,
    YES,
    Software,
    last_stage,
    model_of_row,
    recipe_of,
    recompute_of,
    sequence_of,
    settings_of,
    shared_out,
    software_of,
)
from cosmic.base.errors import SpecError, require
from cosmic.design.compute_layer import Compute
from cosmic.design.design_batch import Batch, batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.measured_hardware import MeasuredMachine, build_machine, find_accelerator
from cosmic.design.memory_layer import MemoryTier
from cosmic.design.model_layer import Transformer, count_active_parameters
from cosmic.design.workload_layer import Recompute, RecomputeModule, Workload
from cosmic.evaluation import evaluate_batch
from cosmic.search.mapping.design_completion import shared_batch
from cosmic.search.mapping.mapping_search import Mapped, build_grid, runs_and_share, search_mapping, step_seconds
from cosmic.simulate.step_evaluation import expected_step_error
from cosmic.step.device_memory import COMPONENTS, TENSORS, footprint
from cosmic.step.operator_work import model_flop_per_token
from cosmic.step.process_memory import CACHED, FRAGMENTATION, used_range
from cosmic.workload.mapping_rules import invalid_reasons

TERA = 1e12
PERCENT = 100.0
FORWARD = 1 / 3
"""Share of the operations of a training step that a forward pass has."""
RATES = {"fp8": "fp8_flop_per_s", "fp4": "fp4_flop_per_s", "fp32": "fp32_flop_per_s"}
"""The peak that utilisation refers to, where it is not that of 16 bits."""
SUPERCHIPS = ("gb200", "gb300")
"""Accelerators that share one Grace CPU and its NVLink-C2C by twos: 480 GB and 450 GB/s each way."""


PAIRS = ("causal", "full", "none")
"""Pairs of query and key that may count: those under the mask, all of them, or none."""


@dataclass(frozen=True, slots=True)
class Convention:
    """How operations are counted."""

    hardware: bool = False
    """Whether what is recomputed counts."""
    attention: str = "full"
    """Pairs that count: causal, full (all) or none."""


def convention_of(text: str, usual: str = "full", *, hardware: bool = False) -> Convention:
    """Return the convention of a column flops_kind; of attention, the *usual* one where it does not say.

    >>> convention_of("model causal"), convention_of("hardware")
    (Convention(hardware=False, attention='causal'), Convention(hardware=True, attention='full'))
    """
    words = text.lower().split()
    known = ("model", "hardware", *PAIRS)
    unknown = [word for word in words if word not in known and not word.startswith("peak=")]
    require(not unknown, "flops_kind", text, f"must be of {', '.join(known)} and peak=TFLOP/s")
    return Convention(hardware or "hardware" in words, next((word for word in words if word in PAIRS), usual))


def flop_per_token(point: DesignPoint, convention: Convention) -> float:
    """Return the operations of a token by a convention."""
    model, workload = point.model, point.workload
    causal = float(model_flop_per_token(model, workload.sequence, training=True, decoding=False))
    gemms = float(model_flop_per_token(model, 1, training=True, decoding=False))
    attention = {"causal": 1.0, "full": 2.0, "none": 0.0}[convention.attention] * (causal - gemms)
    total = (6.0 * count_active_parameters(model) if convention.attention == "none" else gemms) + attention
    if not convention.hardware:
        return total
    recomputed_flop = {"full": total, "alternate": total / 2, "selective": attention}.get(workload.recompute, 0.0)
    return total + FORWARD * recomputed_flop


def measured_s(fields: Fields, point: DesignPoint, usual: str = "full") -> float:
    """Return the seconds of a row's step; *usual* is how its framework counts attention."""
    if (seconds := fields.number("iter_time_s")) is not None:
        return seconds
    count, tokens = point.network.npus, point.workload.global_batch * point.workload.sequence
    if (rate := fields.number("tokens_per_s_per_accel")) is not None:
        fields.assumed.append("measured_s: from tokens_per_s_per_accel")
        return tokens / (rate * count)
    column, achieved = _achieved_rate(fields, point)
    convention = convention_of(fields.text("flops_kind"), usual, hardware=column == "hfu")
    convention_text = f"{'hardware' if convention.hardware else 'model'} operations, {convention.attention} attention"
    fields.assumed.append(f"measured_s: from {column}, {convention_text}")
    return flop_per_token(point, convention) * tokens / (achieved * count)


def _achieved_rate(fields: Fields, point: DesignPoint) -> tuple[str, float]:
    """Return the column that gives a rate, and operations a second of an accelerator."""
    if (tera := fields.number("tflops_per_accel")) is not None:
        return "tflops_per_accel", tera * TERA
    for column in ("mfu", "hfu"):
        if (share := fields.number(column)) is not None:
            peak = _peak_of_row(fields) or peak_of(point.compute, point.workload.precision)
            return column, (share / PERCENT if share > 1 else share) * peak
    raise SpecError("iter_time_s", "", "neither a time nor a rate is given")


def _peak_of_row(fields: Fields) -> float | None:
    """Return the peak that a row's utilisation refers to, if its flops_kind says: "model peak=989"."""
    _, named, peak = fields.text("flops_kind").partition("peak=")
    return float(peak) * TERA if named else None


def peak_of(compute: Compute, precision: str) -> float:
    """Return the peak that utilisation refers to: of the format of GEMMs, where the accelerator has it."""
    rate = getattr(compute, RATES[precision]) if precision in RATES else None
    return float(rate or compute.bf16_flop_per_s)


TOKENS_PER_STEP = 2**22
"""In a global batch that a row does not give: about what large language models are trained with."""
GROUP = ("set", "source", "model", "accel", "n_accel", "seq_len", "gbs", "precision")
"""Columns of rows that do the same work on the same machine with the same software."""


def compare_rows(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdict on each published run."""
    return [compare_row(row, row.get("id", ""), row.get("set") or "training", _compare_fields) for row in rows]


def _compare_fields(fields: Fields) -> Verdict:
    run = read_run(fields)
    require_fit(run.point)
    batch = run.batch or batch_of(run.point)
    columns = evaluate_batch(batch).columns
    predicted = float(columns["step_s"][0])
    return Verdict(
        row=fields.row,
        measured_s=run.measured_s,
        predicted_s=predicted,
        low_s=predicted if run.most > 1 else None,
        high_s=predicted * run.most if run.most > 1 else None,
        assumed=tuple(fields.assumed),
        memory=memory_figure(fields, run.point, memory_parts(batch)),
        flop=6 * count_active_parameters(run.point.model) * _tokens(run.point) / run.point.network.npus,
        group=tuple(fields.text(name) for name in GROUP),
        design=repr(run.point.workload),
        expected=expected_step_error(run.point, columns),
    )


FIGURES = {
    "device_gib": ("device", COMPONENTS),
    "reserved_gib": ("reserved", (*TENSORS, FRAGMENTATION, CACHED)),
    "allocated_gib": ("allocated", TENSORS),
    "peak_mem_gib": ("allocated", TENSORS),
}
"""Columns of memory, what each counts, and the components of that: what the device shows of the process (nvidia-smi),
what its allocator holds (torch.cuda.max_memory_reserved), tensors at the peak (max_memory_allocated). A peak of no
stated kind is taken for the last."""


def memory_parts(batch: Batch) -> dict[str, float]:
    """Return the components of the fullest device."""
    return {name: float(np.ravel(size)[0]) for name, size in footprint(batch).parts.items()}


def memory_figure(fields: Fields, point: DesignPoint, parts: Mapping[str, float]) -> MemoryFigure | None:
    """Return the figure of a row that counts most, beside its prediction; None where it has none."""
    for column, (kind, names) in FIGURES.items():
        if (measured := fields.number(column)) is not None:
            return MemoryFigure(kind, measured * GIB, used_range(point, {name: parts[name] for name in names}))
    return None


def require_fit(point: DesignPoint) -> None:
    """Raise a `SpecError` with the reasons if a design's mapping is invalid."""
    if reasons := invalid_reasons(point):
        w = point.workload
        raise SpecError("mapping", f"dp {w.dp} × tp {w.tp} × cp {w.cp} × pp {w.pp}", "; ".join(reasons))


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A published run: its design and its measured step."""

    point: DesignPoint
    measured_s: float
    most: float = 1.0
    """The step of the slowest of all choices as likely as the design's, relative to the design's."""
    batch: Batch | None = None
    """The design as a batch, if something of it was found already."""


def read_run(fields: Fields) -> PublishedRun:
    """Return the run of a row."""
    software, chosen = _read_choice(fields)
    return PublishedRun(chosen.point, measured_s(fields, chosen.point, software.counts), chosen.most, chosen.batch)


def read_design(fields: Fields) -> DesignPoint:
    """Return the design of a row."""
    return _read_choice(fields)[1].point


def _read_choice(fields: Fields) -> tuple[Software, SettledChoice]:
    """Return the software of a row, and the design that it most likely describes."""
    software = software_of(fields, find_accelerator(fields.text("accel")).like)
    count = fields.whole("n_accel")
    mesh = mesh_of(fields, software, count)
    model = model_of_row(fields, mesh.get("tp", 1), next_tokens=software.next_tokens)
    model = shared_out(model, mesh.get("pp", 1), int(fields.number("vpp") or 1))
    workload, mapping, recompute = _workload(fields, software, mesh, model)
    point = _hardware(fields, count, workload).design(model, workload)
    if fields.text("outcome") == "oom" and not mapping.open:
        return software, SettledChoice(point)  # what it needs says nothing of how it is to be read
    recompute_stated = bool(recompute)
    return software, settle_choices(
        fields, point, mapping, recompute_stated=recompute_stated, offloads=software.offloads
    )


def _hardware(fields: Fields, count: int, workload: Workload) -> MeasuredMachine:
    machine = build_machine(
        fields.text("accel"),
        count,
        fields.whole("accel_per_node", 8, "as usual") if fields.text("accel_per_node") else None,
        fields.number("inter_node_gbps_per_accel"),
        fields.text("fabric"),
    )
    fields.assumed.extend(machine.assumed)
    machine = replace(machine, memory=replace(machine.memory, fits=RAN))
    if not workload.offload:
        return machine
    return replace(machine, memory=replace(machine.memory, tiers=(_host_memory(machine.compute.accelerator),)))


def _host_memory(accelerator: str) -> MemoryTier:
    """Return an accelerator's share of its host's memory: of Grace's, else over PCIe 5, of 2 TB for eight.

    >>> _host_memory("gb200").bandwidth_bytes_per_s / _host_memory("h100-sxm-80gb").bandwidth_bytes_per_s
    3.515625
    """
    if accelerator in SUPERCHIPS:
        return MemoryTier(name="host", capacity_bytes=240e9, bandwidth_bytes_per_s=225e9)
    return MemoryTier(name="host", capacity_bytes=256e9, bandwidth_bytes_per_s=64e9)


def _workload(
    fields: Fields, software: Software, mesh: dict[str, int], model: Transformer
) -> tuple[Workload, Any, dict[str, Any]]:
    """Return the workload with all that a row states, its mapping, and what it says of recomputation."""
    sequence = sequence_of(fields)
    batch = _global_batch(fields, sequence, mesh)
    mapping = stated_of(fields, software, model, mesh, batch)
    recompute = recompute_of(fields, software)
    stages = mesh.get("pp", 1)
    recipe = recipe_of(software.recipe, fields, stages, software.date)
    recipe |= last_stage(model, stages) if software.recipe else {}
    if recompute:
        recipe.pop("recompute", None)
    settings: dict[str, Any] = {
        "sequence": sequence,
        "global_batch": batch,
        **settings_of(fields, software),
        **recipe,
        **recompute,
        **mapping.held,
    }
    if model.experts is None:
        settings.pop("etp", None)
    settings["tp_overlap"] &= settings["sequence_parallel"]  # frameworks overlap gathers and scatters alone
    return Workload(**settings), mapping, recompute


def _global_batch(fields: Fields, sequence: int, mesh: dict[str, int]) -> int:
    """Return the sequences of a step: as given, as time and rate tell, or a usual number of tokens."""
    if fields.text("gbs"):
        return fields.whole("gbs")
    count, replicas = fields.whole("n_accel"), mesh.get("dp", 1) * int(fields.number("mbs") or 1)
    rate, seconds = fields.number("tokens_per_s_per_accel"), fields.number("iter_time_s")
    if rate and seconds:
        batch = max(1, round(rate * seconds * count / sequence))
        return int(fields.assume("gbs", batch, "as time and rate tell"))
    batch_size = max(1, TOKENS_PER_STEP // sequence // replicas) * replicas
    return int(fields.assume("gbs", batch_size if mesh else shared_batch(batch_size, count), "as usual"))


def _tokens(point: DesignPoint) -> int:
    return point.workload.global_batch * point.workload.sequence


SHARDING = {"0": "none", "1": "zero1", "2": "zero2", "3": "zero3"}
SCHEDULES = (
    ("dual", "dualpipe"),
    ("zero", "zero_bubble"),
    ("zb", "zero_bubble"),
    ("gpipe", "gpipe"),
    ("afab", "gpipe"),
    ("all-forward", "gpipe"),
)
"""Schedules by the start of their names in rows."""
SPLIT = ("tp", "pp", "cp")


@dataclass(frozen=True, slots=True)
class StatedMapping:
    """The mapping of a row."""

    held: dict[str, Any] = field(default_factory=dict)
    """Fields of the workload that the row states, or that follow."""
    open: frozenset[str] = frozenset()
    """Fields that it leaves open."""


def mesh_of(fields: Fields, software: Software, count: int) -> dict[str, int]:
    """Return the degrees of parallelism that a row states; empty if it leaves them open."""
    degrees = {axis: int(value) for axis in (*SPLIT, "dp") if (value := _whole_number(fields, axis))}
    if not degrees and count > 1 and not _replicates(fields, software, count):
        return {}
    if "dp" in degrees:
        degrees = _complete_axes(degrees, count)
    split = {axis: degrees.get(axis) or fields.whole(axis, 1) for axis in SPLIT}
    model_ranks = prod(split.values())
    require(count % model_ranks == 0, "n_accel", count, f"does not divide by tp × pp × cp = {model_ranks}")
    dp = count // model_ranks
    if degrees.get("dp", dp) != dp:
        fields.assumed.append(f"dp: {dp} for {degrees['dp']}, what the other axes leave of {count}")
    elif "dp" not in degrees:
        fields.assume("dp", dp, "what the other axes leave")
    return {**split, "dp": dp}


def _whole_number(fields: Fields, name: str) -> int | None:
    return fields.whole(name) if fields.text(name) else None


def _complete_axes(degrees: dict[str, int], count: int) -> dict[str, int]:
    """Return axes with the one of tp and pp that is not given, where the others leave it something."""
    missing = [axis for axis in ("tp", "pp") if axis not in degrees]
    remaining, known_ranks = count, prod(degrees.values())
    if len(missing) == 1 and known_ranks and remaining % known_ranks == 0:
        return {**degrees, missing[0]: remaining // known_ranks}
    return degrees


def _replicates(fields: Fields, software: Software, count: int) -> bool:
    """Return whether a run of no stated mapping is data parallel: its framework shards, and its batch is enough."""
    batch = fields.number("gbs")
    sharded = software.sharding == "zero3" or fields.text("zero_stage").startswith("3")
    return (sharded or "fsdp" in fields.text("schedule").lower()) and (batch is None or batch >= count)


def stated_of(
    fields: Fields, software: Software, model: Transformer, mesh: dict[str, int], batch: int
) -> StatedMapping:
    """Return the mapping that a row states; *mesh* is empty where it leaves that open."""
    held_fields: dict[str, Any] = {**mesh, **_experts(fields, model, mesh)}
    free = set() if mesh else {"tp", "pp", "cp"}
    if model.experts is not None and "ep" not in held_fields:
        free.add("ep")
    trips = _whole_number(fields, "accumulated")
    if micro := _whole_number(fields, "mbs"):
        held_fields["micro_batch"] = micro
    elif mesh and trips and batch % (mesh["dp"] * trips) == 0:
        held_fields["micro_batch"] = fields.assume("mbs", batch // (mesh["dp"] * trips), f"as {trips} are accumulated")
    elif mesh and batch == mesh["dp"]:
        held_fields["micro_batch"] = fields.assume("mbs", 1, "one sequence for each replica")
    else:
        free.add("micro_batch")
    if not mesh and trips and batch % trips == 0 and fields.whole("n_accel") % (batch // trips) == 0:
        held_fields |= {
            "dp": batch // trips,
            "micro_batch": 1,
        }  # one sequence a pass, as is usual where tensors are split
        fields.assumed.append(f"dp: {batch // trips}, mbs: 1 assumed, as {trips} are accumulated")
        free.discard("micro_batch")
    stages = _stages(fields, software, model.layers, mesh.get("pp", 0))
    held_fields |= stages
    if "micro_batch" in free and mesh.get("pp", 1) > 1 and software.microbatches:
        parts = mesh["pp"] * stages.get("virtual_stages", 1) if software.microbatches == "stages" else batch
        usual = max(1, batch // mesh["dp"] // parts)
        held_fields["micro_batch"] = fields.assume("mbs", usual, f"as usual with {software.framework}")
        free.discard("micro_batch")
    if "virtual_stages" not in stages:
        free.add("virtual_stages")
    held_fields["weight_sharding"] = _sharding(fields, software, mesh)
    held_fields["sequence_parallel"] = _sequence_parallel(fields, software, mesh.get("tp", 0))
    return StatedMapping(held_fields, frozenset(free))


def _experts(fields: Fields, model: Transformer, mesh: dict[str, int]) -> dict[str, int]:
    """Return the mapping of experts; a row that states more than there are ranks of a stage is mistaken."""
    if model.experts is None:
        return {}
    expert_fields = {"etp": fields.whole("etp")} if fields.text("etp") else {}
    ep = _whole_number(fields, "ep")
    if ep is None or not mesh:
        return expert_fields
    ranks = mesh["tp"] * mesh["cp"] * mesh["dp"]
    nearest = gcd(ep, ranks)
    if nearest != ep:
        fields.assumed.append(f"ep: {nearest} for {ep}, as tp × cp × dp = {ranks}")
    return {**expert_fields, "ep": nearest}


def _stages(fields: Fields, software: Software, layers: int, pp: int) -> dict[str, Any]:
    """Return schedule and virtual stages; only the former if a row leaves the latter open."""
    name = fields.text("schedule").lower()
    special = next((schedule for start, schedule in SCHEDULES if name.startswith(start)), "")
    if pp == 1:
        return {"schedule": special or "1f1b", "virtual_stages": 1}
    if special:
        return {"schedule": special, "virtual_stages": 1}
    vpp = _whole_number(fields, "vpp")
    if vpp is None:
        plain = not re.search("interleav", name) and ("1f1b" in name or not software.interleaves)
        return {"schedule": "1f1b", "virtual_stages": 1} if plain else {"schedule": "interleaved"}
    largest_vpp = max(1, (layers + 2) // pp) if pp else vpp
    if vpp > largest_vpp:
        fields.assumed.append(f"vpp: {largest_vpp} for {vpp}, as there are no more layers")
    virtual = min(vpp, largest_vpp)
    return {"schedule": "interleaved" if virtual > 1 else "1f1b", "virtual_stages": virtual}


def _sharding(fields: Fields, software: Software, mesh: dict[str, int]) -> str:
    """Return the sharding; with pipeline stages, some frameworks keep gathered weights until the step ends."""
    text = fields.text("zero_stage").lower().removesuffix(".0")
    stage = re.sub(r"^(zero|stage|z)[ -]?", "", text)
    name = SHARDING.get(stage, "zero3" if "fsdp" in stage or "hsdp" in stage else "")
    if not stage:
        replicas = mesh["dp"] * mesh["cp"] if mesh else 2
        name = software.sharding if replicas > 1 else "none"
        if mesh.get("pp", 1) > 1 and name == "zero3":
            name = "zero1"  # whole gradients accumulate over the microbatches of a pipeline
        if "fsdp" in fields.text("schedule").lower():
            name = "zero3"
        fields.assume("zero_stage", name, f"as usual with {software.framework}")
    require(bool(name), "zero_stage", stage, "must be 0, 1, 2 or 3")
    return software.staged_zero3 if name == "zero3" and mesh.get("pp", 1) > 1 else name


def _sequence_parallel(fields: Fields, software: Software, tp: int) -> bool:
    text = fields.text("seq_par").lower()
    if text:
        require(text in YES or text in NO, "seq_par", text, "must be 0 or 1")
        return text in YES
    length = fields.number("seq_len") or 0
    usual = bool(software.settings.get("sequence_parallel", True)) and (tp < 1 or length % tp == 0)
    if tp == 1:
        return False
    return bool(fields.assume("seq_par", int(usual), f"as usual with {software.framework}"))


RAN = 0.05
"""The probability to fit below which a mapping is not that of a run, which ran."""
NEAR_BEST = 1.10
"""Choices that take up to this much longer than the fastest are as likely as that."""
MOST_ROWS = 60
"""Choices of the range that are looked at."""
SWITCHES = ("tp_overlap", "ep_overlap", "cp_comm_type", "placement", "etp")
RECOMPUTE_MODES: tuple[tuple[Recompute, tuple[RecomputeModule, ...]], ...] = (
    ("selective", ("core_attn",)),
    ("selective", ("layernorm", "moe_act")),
    ("selective", ("core_attn", "layernorm", "mlp", "moe")),
    ("alternate", ("core_attn",)),
    ("full", ("core_attn",)),
)
"""What may be recomputed where a row does not say, or says no more than that it is selective."""
OFFLOADED_STEPS = 8
"""Parts of its layers in which a model's activations are offloaded."""


@dataclass(frozen=True, slots=True)
class SettledChoice:
    """A design with all choices made, and the spread of its step over what is as likely, relative to its own."""

    point: DesignPoint
    most: float = 1.0
    batch: Batch | None = field(default=None, compare=False, repr=False)
    """The design as a batch, with what was found of its memory."""


def settle_choices(
    fields: Fields, point: DesignPoint, stated_mapping: StatedMapping, *, recompute_stated: bool, offloads: bool = False
) -> SettledChoice:
    """Return the design that a row most likely describes; *point* has every choice that is stated.

    *offloads* says whether its framework may keep activations in the memory of the host.
    """
    held_fields = dict(stated_mapping.held)
    if recompute_stated or point.workload.recompute != "none":
        held_fields |= {"recompute": point.workload.recompute, "recompute_modules": point.workload.recompute_modules}
    freed = {key: value for key, value in held_fields.items() if not key.startswith("recompute")}
    if stated_mapping.open:
        for fixed in (held_fields, freed):  # who states no recomputation may still free what is cheap to make again
            mapping = _search_choices(fields, point, fixed, sorted(stated_mapping.open))
            if mapping is not None:
                return mapping
        require("tp" not in stated_mapping.open, "tp", fields.text("tp"), "the mapping is not published, and none fits")
        point = replace(point, workload=replace(point.workload, micro_batch=1))
    if invalid_reasons(point):
        return SettledChoice(point)
    batch = batch_of(point)
    if _share(batch) <= 1:
        return SettledChoice(point, batch=batch)
    fitting = [
        other_reading
        for other_reading in _alternative_mappings(point, held_fields, recompute_stated, offloads)
        if _runs(other_reading[0])
    ]
    if not fitting and recompute_stated:
        fitting = [
            other_reading
            for other_reading in _alternative_mappings(point, freed, False, offloads)
            if _runs(other_reading[0])
        ]
    if not fitting:
        raise SpecError("memory", _needs(point), "does not fit, however it is read")
    seconds = [float(step_seconds(batch_of(relieved))["seconds"][0]) for relieved, _ in fitting]
    relieved, note = fitting[seconds.index(min(seconds))]
    fields.assumed.append(f"{note} assumed, as it needs {_needs(point)} otherwise")
    return SettledChoice(relieved)


def _runs(point: DesignPoint) -> bool:
    return not invalid_reasons(point) and needed_share(point) <= 1


def needed_share(point: DesignPoint) -> float:
    """Return the share of an accelerator's memory that a design needs."""
    return _share(batch_of(point))


def _share(batch: Batch) -> float:
    return float(np.max(runs_and_share(batch)[1]))


def _needs(point: DesignPoint) -> str:
    capacity_gib = point.memory.capacity_bytes / GIB
    return f"{needed_share(point) * capacity_gib:.4g} of {capacity_gib:.4g} GiB"


# ---- readings


def _alternative_mappings(
    point: DesignPoint, held_fields: dict[str, object], recompute_stated: bool, offloads: bool
) -> Iterator[tuple[DesignPoint, str]]:
    """Yield other ways in which a design that does not fit may be read, with what each assumes."""
    workload = point.workload
    starts = [(point, "")]
    if workload.pp == 1 and workload.dp * workload.cp > 1 and not workload.shards_weights:
        sharded = replace(point, workload=replace(workload, weight_sharding="zero3"))
        starts.append((sharded, "zero_stage: 3, "))
        yield sharded, "zero_stage: 3"
    for start, note in starts:
        if (offloads or point.compute.accelerator in SUPERCHIPS) and workload.pp == 1 and not workload.offload:
            yield from (
                (offloaded_point, f"{note}offload: {layers} layers") for offloaded_point, layers in _offloaded(start)
            )
        if workload.recompute in (("selective",) if recompute_stated else ("none", "selective")):
            for mode, modules in RECOMPUTE_MODES:
                recomputing_workload = replace(start.workload, recompute=mode, recompute_modules=modules)
                kinds = f" {' '.join(modules)}" if mode == "selective" else ""
                yield replace(start, workload=recomputing_workload), f"{note}recompute: {mode}{kinds}"
    if workload.pp > 1 and (regrouped := _regrouped(point, held_fields)):
        changed = regrouped.workload
        yield regrouped, f"mbs: {changed.micro_batch}, vpp: {changed.virtual_stages}, recompute: {changed.recompute}"


def _offloaded(point: DesignPoint) -> Iterator[tuple[DesignPoint, int]]:
    """Yield a design with the activations of as many layers in the memory of its host as it takes to fit."""
    layers = int(getattr(point.model, "layers", 1))
    memory = replace(point.memory, tiers=(_host_memory(point.compute.accelerator),))
    for share in range(1, OFFLOADED_STEPS + 1):
        moved = -(-layers * share // OFFLOADED_STEPS)
        workload = replace(point.workload, offload=("activations",), offload_num_layers=moved)
        relieved = replace(point, workload=workload, memory=memory)
        if _runs(relieved):
            yield relieved, moved
            return


def _regrouped(point: DesignPoint, held_fields: dict[str, object]) -> DesignPoint | None:
    """Return a pipeline with the fastest microbatches and virtual stages that fit, in place of those stated."""
    freed = {key: value for key, value in held_fields.items() if key not in ("micro_batch", "virtual_stages")}
    mapping = search_mapping(point, _with_switches(point, {**freed, "schedule": "interleaved"}))
    return _applied(point, mapping) if mapping is not None and mapping.fits else None


# ---- searching


def _search_choices(
    fields: Fields, point: DesignPoint, held_fields: dict[str, object], free: list[str]
) -> SettledChoice | None:
    """Return the fastest choice that fits of what is *free*; None if there is none."""
    fixed = _with_switches(point, held_fields)
    mapping = search_mapping(point, fixed)
    if mapping is None or not mapping.fits:
        return None
    best = _applied(point, mapping)
    names = [name for name in (*free, "recompute") if name != "recompute" or best.workload.recompute != "none"]
    values = ", ".join(f"{name} {getattr(best.workload, name)}" for name in names)
    fields.assumed.append(f"{values} assumed: the fastest that fits of {mapping.tried} choices")
    return SettledChoice(best, _spread(best, fixed))


def _with_switches(point: DesignPoint, held_fields: dict[str, object]) -> dict[str, object]:
    """Return what a search must keep: what is held, and the switches of the framework."""
    switches = {name: getattr(point.workload, name) for name in SWITCHES}
    return {name: value for name, value in switches.items() if value is not None} | held_fields


def _applied(point: DesignPoint, mapping: Mapped) -> DesignPoint:
    chosen = {key: value for key, value in mapping.best.items() if hasattr(point.workload, key)}
    return replace(point, workload=replace(point.workload, **chosen))


def _spread(best: DesignPoint, fixed: dict[str, object]) -> float:
    """Return the longest step of the near-best choices, relative to the best one."""
    grid = build_grid(best, fixed)
    if grid is None:
        return 1.0
    rows = grid.coarse(MOST_ROWS)
    batch = Batch(best, {f"workload.{name}": column[rows] for name, column in grid.columns.items()})
    runs, share = runs_and_share(batch)
    seconds = step_seconds(batch)["seconds"]
    best_s = float(step_seconds(batch_of(best))["seconds"][0])
    near_best = seconds[runs & (share <= 1) & (seconds <= NEAR_BEST * best_s)]
    return float(near_best.max() / best_s) if len(near_best) else 1.0
