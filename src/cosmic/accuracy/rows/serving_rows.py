"""Measured serving: TTFT and TPOT of engines, as aiconfigurator publishes them.

A row names engine, model, system, precision, mapping, ISL, OSL and concurrency, and gives two times: its verdicts are
``id:ttft`` and ``id:tpot``. Most rows are SemiAnalysis' InferenceMAX (now InferenceX): lengths are drawn from 0.8 to 1
times the stated ISL and OSL (the column spread), and ten requests are sent for each one in flight. The others state
exact lengths.

    tp, dp, ep          of one pool: the mapping of an instance, dp being ranks of attention data parallelism
    prefill, decode     of two pools: their instances, as 4 tp8 or 1 dp32, and the slots of a rank that decodes
    clients             requests in flight of one instance, or of both pools
    chunk_tokens …      how the engine was set (`EngineSettings`); what is empty is as usual

`calibration/read_serving.py` writes these columns from those of aiconfigurator. Rows of one pool are predicted in
batches, rows of two pools one by one with what their pools take priced at once. The package carries the middle one of
every five rows, in the order of their ids.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from math import sqrt
from typing import Any

import numpy as np

from cosmic.accuracy.measured_rows import Fields, Row, Verdict
from cosmic.accuracy.rows.training_software import catalog_name
from cosmic.base import units
from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.design import catalog_entries, schema
from cosmic.design.design_batch import Batch
from cosmic.design.design_point import DesignPoint
from cosmic.design.loading import read_model
from cosmic.design.measured_hardware import AICONFIGURATOR, build_machine, find_system_with
from cosmic.design.model_layer import Transformer, is_moe
from cosmic.design.serving_engine import load_engine
from cosmic.design.systems import system_dimensions
from cosmic.design.workload_layer import Workload
from cosmic.serving.continuous_batching import RankLoad, estimate_closed_loop
from cosmic.serving.disaggregated_serving import (
    POINTS,
    DecodeStepTable,
    Handover,
    PoolPair,
    PoolPairTimes,
    PrefillTimes,
    handover_of,
    price_prefill_pool,
    solve_pools_closed_loop,
    transfer_s,
)
from cosmic.serving.step_price import StepPrice, with_collectives
from cosmic.workload.mapping_rules import invalid_reasons

FILE = "serving_recipes.yaml"
POOL_ROUNDS = 10
"""Requests that each client sends, one after the other."""
UNIFORM = sqrt(12)
"""Width of a uniform distribution over its standard deviation."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows that are predicted in one batch, and their places among all."""

    places: list[int]
    members: list[ServedPool]
    price: StepPrice
    load: RankLoad


def predict_pool(served: Sequence[ServedPool]) -> list[tuple[float, float]]:
    """Return the predicted TTFT and TPOT of each row."""
    times_by_row: dict[int, tuple[float, float]] = {}
    for group in group_rows(served):
        times_seen = estimate_closed_loop(group.price, group.load)
        cold = stack_column([member.recipe for member in group.members], "cold_s") / POOL_ROUNDS
        times = np.stack(np.broadcast_arrays(times_seen.mean_ttft_s + cold, times_seen.tpot_s), axis=1)
        times_by_row |= {
            row: (float(first), float(further)) for row, (first, further) in zip(group.places, times, strict=True)
        }
    return [times_by_row[index] for index in range(len(served))]


def group_rows(served: Sequence[ServedPool]) -> list[RowGroup]:
    """Return rows in groups that share engine, model, precision and machine."""
    rows_by_setting: dict[tuple[Any, ...], list[int]] = {}
    for index, pool in enumerate(served):
        rows_by_setting.setdefault(pool.key, []).append(index)
    return [_group(indices, [served[index] for index in indices]) for indices in rows_by_setting.values()]


def _group(indices: list[int], members: list[ServedPool]) -> RowGroup:
    first = members[0]
    usual = load_engine(first.engine)
    share = np.array([member.recipe.memory_fraction or usual.memory_fraction for member in members])
    engine = replace(usual, memory_fraction=share, cuda_graphs=not first.recipe.eager)  # type: ignore[arg-type]  # arrays
    design = first.design
    if first.recipe.kv_bits:
        design = design.changed({"workload.cache_dtype": "bf16" if first.recipe.kv_bits > 8 else "fp8"})
    degrees = {
        f"workload.{name}": np.array([getattr(member.design.workload, name) for member in members])
        for name in ("tp", "dp", "ep")
    }
    price = StepPrice(Batch(with_collectives(design, engine), degrees), engine, first.recipe.drafts)
    return RowGroup(indices, members, price, _load(members, usual.max_num_batched_tokens))


def _load(members: Sequence[ServedPool], usual_tokens: int) -> RankLoad:
    effects = fitted_effects()
    ranks = np.array([member.design.workload.dp for member in members], dtype=float)
    settings = [member.recipe for member in members]
    polling, holding = (stack_column(settings, name) for name in ("poll_steps", "hold_steps"))
    spread = stack_column(members, "spread")
    return RankLoad(
        clients=np.maximum(stack_column(members, "concurrency") / ranks, 1.0),
        isl=np.rint(stack_column(members, "isl") * (1 - spread / 2)),
        osl=stack_column(members, "osl") * (1 - spread / 2),
        osl_cv=spread / UNIFORM / (1 - spread / 2),
        tokens_per_step=effects.tokens_of(members[0].recipe.drafts) * np.ones(len(members)),
        max_tokens=np.array([member.recipe.chunk_tokens or usual_tokens for member in members], dtype=float),
        seats=np.maximum(stack_column(members, "seats") / ranks, 1.0),
        ranks=ranks,
        devices=np.array([member.design.workload.tp for member in members], dtype=float),
        mla=np.array([getattr(member.design.model, "mla", None) is not None for member in members], dtype=float),
        poll_steps=polling,
        polled_steps=effects.polled * polling,
        hold_steps=hold_steps(effects, holding, ranks),
        rounds=POOL_ROUNDS,
        in_step=np.array([member.prefill_first for member in members]),
    )


def hold_steps(effects: Fitted, holding: Any, ranks: Any) -> Any:
    """Return the steps for which recipes hold a prompt back: for others as long as they may, for other ranks less."""
    return np.where(ranks > 1, effects.held, 1.0) * holding


def stack_column(members: Sequence[Any], name: str) -> Any:
    """Return one field of all *members*."""
    return np.array([getattr(member, name) for member in members], dtype=float)


HANDOVER_ROUNDS = 10
"""Requests that each client sends."""


def predict_rows(read: Sequence[ServedPool | ServedPools]) -> list[tuple[float, float]]:
    """Return the predicted TTFT and TPOT of each row."""
    of_one = iter(predict_pool([row for row in read if isinstance(row, ServedPool)]))
    of_two = iter(predict_pools([row for row in read if isinstance(row, ServedPools)]))
    return [next(of_one if isinstance(row, ServedPool) else of_two) for row in read]


# ---- two pools


@dataclass(frozen=True, slots=True)
class PricedPools:
    """What the pools of rows take, priced once: arrays over the rows."""

    prefill: PrefillTimes
    """Without what engines take beside the kernels."""
    transfer_s: Any
    """A cache over the network."""
    step_s: DecodeStepTable


def predict_pools(served: Sequence[ServedPools]) -> list[tuple[float, float]]:
    """Return the predicted TTFT and TPOT of each row of two pools."""
    if not served:
        return []
    handovers = [handover_of(row.engine) for row in served]
    handover = Handover(**{field.name: _stack_parts(handovers, field.name) for field in fields(Handover)})
    pool_times = see_pools(served, price_pools(served), handover)
    return [(float(first), float(further)) for first, further in zip(pool_times.ttft_s, pool_times.tpot_s, strict=True)]


def see_pools(served: Sequence[ServedPools], priced: PricedPools, handover: Handover) -> PoolPairTimes:
    """Return what clients of rows of two pools see; *handover* has arrays over the rows."""
    pools = PoolPair(
        prefill=priced.prefill.run_by(handover),
        handover_s=handover.handover_s + priced.transfer_s,
        step_s=priced.step_s,
        slots=stack_column(served, "slots"),
    )
    tokens = np.array([fitted_effects().tokens_of(pools.recipe.drafts) for pools in served])
    osl = stack_column(served, "osl") * (1 - stack_column(served, "spread") / 2)
    return solve_pools_closed_loop(pools, stack_column(served, "concurrency"), osl, tokens, HANDOVER_ROUNDS)


def price_pools(served: Sequence[ServedPools]) -> PricedPools:
    """Return what the pools of rows take; rows that share an instance are priced at once."""
    filled: dict[Any, tuple[PrefillTimes, float]] = {}
    pools: list[PrefillTimes] = []
    sent: list[float] = []
    for row in served:
        key = (row.engine, row.prefill, row.isl, row.spread, row.room)
        if key not in filled:
            filled[key] = _price_prefill(row)
        pool, seconds = filled[key]
        pools.append(replace(pool, instances=row.prefills.count))
        sent.append(seconds)
    return PricedPools(
        PrefillTimes(**{field.name: _stack_parts(pools, field.name) for field in fields(PrefillTimes)}),
        np.array(sent),
        _price_decode(served),
    )


def _price_prefill(row: ServedPools) -> tuple[PrefillTimes, float]:
    """Return what an instance takes that prefills, and a prompt's cache over the network."""
    price = StepPrice.for_design(row.prefill, load_engine(row.engine))
    isl = row.isl * (1 - row.spread / 2)
    seconds = transfer_s(price, isl, network_between(row.prefill.compute.accelerator or ""))
    return price_prefill_pool(price, isl, float(row.room), ranks=row.prefills.dp), float(np.ravel(seconds)[0])


def _price_decode(served: Sequence[ServedPools]) -> DecodeStepTable:
    """Return the decode steps of rows."""
    highest = np.minimum(stack_column(served, "concurrency"), stack_column(served, "slots"))
    lowest = np.minimum(1.0, highest / 2)
    numbers = np.geomspace(lowest, highest, POINTS, axis=1)
    ranks = np.array([row.decodes.count * row.decodes.dp for row in served])
    context = (stack_column(served, "isl") + stack_column(served, "osl") / 2) * (1 - stack_column(served, "spread") / 2)
    steps = np.empty_like(numbers)
    rows_by_design: dict[Any, list[int]] = {}
    for index, row in enumerate(served):
        rows_by_design.setdefault((row.engine, row.decode, row.recipe.drafts), []).append(index)
    for (engine, design, drafts), indices in rows_by_design.items():
        requests = (numbers[indices] / ranks[indices, None]).ravel()
        decode_s = StepPrice.for_design(design, load_engine(engine), drafts).decode_s(
            requests, np.repeat(context[indices], POINTS)
        )
        steps[indices] = np.reshape(decode_s, (len(indices), POINTS))
    return DecodeStepTable(lowest, highest, steps)


def _stack_parts(parts: Sequence[Any], name: str) -> Any:
    """Return one number of all *parts*."""
    return np.array([float(np.ravel(getattr(part, name))[0]) for part in parts])


def network_between(accelerator: str) -> float:
    """Return the bytes a second that a device sends to another node.

    >>> network_between("gb200")
    50000000000.0
    """
    return float(units.parse_quantity(str(system_dimensions(find_system_with(accelerator))[-1]["bandwidth"])).value)


def compare_rows(rows: Sequence[Row]) -> list[Verdict]:
    """Return two verdicts for each row: TTFT and TPOT."""
    verdicts: list[Verdict] = []
    read = [read_serving_row(row) for row in rows]
    times = iter(predict_rows([row for row in read if not isinstance(row, Verdict)]))
    for deployment in read:
        if isinstance(deployment, Verdict):
            verdicts += [
                replace(deployment, id=f"{deployment.id}:{name}", set=f"{deployment.set} {name}")
                for name in ("ttft", "tpot")
            ]
            continue
        ttft_s, tpot_s = next(times)
        verdicts.append(_verdict(deployment, "ttft", deployment.ttft_s, ttft_s))
        verdicts.append(_verdict(deployment, "tpot", deployment.tpot_s, tpot_s))
    return verdicts


def _verdict(pool: ServedPool | ServedPools, name: str, measured_s: float, predicted_s: float) -> Verdict:
    columns = ("backend", "model_path", "system", "isl", "osl", "concurrency")
    return Verdict(
        id=f"{pool.id}:{name}",
        set=f"{pool.set} {name}",
        row=pool.row,
        measured_s=measured_s,
        predicted_s=predicted_s,
        assumed=pool.assumed,
        group=(name, *(pool.row.get(key, "") for key in columns), str(pool.npus)),
        design=pool.shown,
    )


# ---- reading


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How the engine of a row was set; None leaves the engine's default."""

    chunk_tokens: int | None = None
    """Most tokens of a step that prefills."""
    max_running: int | None = None
    """Most requests that run at once, of each rank of attention."""
    kv_bits: int | None = None
    memory_fraction: float | None = None
    """As in `cosmic.design.serving_engine.Engine`."""
    poll_steps: int = 0
    """Steps between two looks for new requests."""
    hold_steps: int = 0
    """Most steps for which a prefill is held back."""
    drafts: int = 0
    """Tokens that are drafted a step."""
    eager: bool = False
    """Whether decode steps launch their kernels one by one."""
    cold_s: float = 0.0
    """For which the first request of each client waits longer, as nothing warmed the server up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Effects of recipes, fitted with the engines."""

    acceptance: float
    """Share of drafted tokens that are accepted, one after the other."""
    polled: float
    """Mean wait for a poll, over the steps between two polls."""
    held: float
    """Mean wait for prompts of other ranks of attention, over the most steps that it may be."""

    def tokens_of(self, drafts: int) -> float:
        """Return the tokens that a request gains a step: 1 + a + a² + … of accepted drafts.

        >>> Fitted(acceptance=0.5, polled=0, held=0).tokens_of(2)
        1.75
        """
        return float(sum(self.acceptance**index for index in range(drafts + 1)))


@cache
def fitted_effects() -> Fitted:
    """Return what was fitted of the recipes."""
    entry = catalog_entries.load_mapping(catalog_entries.CATALOG_FOLDER / FILE)
    effects: Fitted = schema.read_value(Fitted, entry["recipes"], f"{FILE} recipes")
    return effects


@dataclass(frozen=True, slots=True)
class Instances:
    """Equal instances of an engine."""

    count: int
    tp: int = 1
    dp: int = 1

    @property
    def npus(self) -> int:
        """GPUs of all of them."""
        return self.count * self.tp * self.dp

    @classmethod
    def read(cls, text: str) -> Instances:
        """Return the instances that a text describes.

        >>> Instances.read("4 tp8"), Instances.read("1 dp32").npus
        (Instances(count=4, tp=8, dp=1), 32)
        """
        match = re.fullmatch(r"(\d+) (tp|dp)(\d+)|(\d+) tp(\d+) dp(\d+)", text)
        require(match is not None, "instances", text, "must be as 4 tp8 or 1 dp32")
        assert match is not None  # noqa: S101  as was required
        if match[4]:
            return cls(*map(int, match.groups()[3:]))
        return cls(int(match[1]), **{match[2]: int(match[3])})

    def __str__(self) -> str:
        if self.tp > 1 and self.dp > 1:
            return f"{self.count} tp{self.tp} dp{self.dp}"
        return f"{self.count} {'dp' if self.dp > 1 else 'tp'}{max(self.dp, self.tp)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What every row has: its engine, load and times."""

    row: Row
    id: str
    set: str
    engine: str
    concurrency: float
    isl: float
    osl: float
    spread: float
    recipe: EngineSettings
    ttft_s: float
    tpot_s: float
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPool(Measured):
    """A row as a deployment of one pool; its concurrency is that of one instance."""

    design: DesignPoint
    prefill_first: bool

    @property
    def seats(self) -> float:
        """Most requests that an instance runs at once."""
        return (self.recipe.max_running or float("inf")) * self.design.workload.dp

    @property
    def key(self) -> tuple[Any, ...]:
        """What rows must share to be predicted in one batch."""
        point, recipe = self.design, self.recipe
        machine = (point.model, point.workload.precision, point.compute, point.network)
        return (self.engine, *machine, self.prefill_first, recipe.kv_bits, recipe.drafts, recipe.eager)

    @property
    def shown(self) -> str:
        """The mapping in words."""
        workload = self.design.workload
        return f"tp {workload.tp} dp {workload.dp} ep {workload.ep} {workload.precision}"

    @property
    def npus(self) -> int:
        """GPUs of one instance."""
        return int(self.design.network.npus)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPools(Measured):
    """A row as a deployment of two pools."""

    prefills: Instances
    decodes: Instances
    prefill: DesignPoint
    """One instance that prefills."""
    decode: DesignPoint
    """One instance that decodes."""

    @property
    def shown(self) -> str:
        """The mapping in words."""
        return " + ".join(f"{part.count} x (tp {part.tp} dp {part.dp})" for part in (self.prefills, self.decodes))

    @property
    def npus(self) -> int:
        """GPUs of both pools."""
        return self.prefills.npus + self.decodes.npus

    @property
    def room(self) -> int:
        """Prompts of a rank that a step of the prefill pool has room for."""
        return max(1, int((self.recipe.chunk_tokens or 0) // self.isl))

    @property
    def slots(self) -> float:
        """Most requests that decode at once; infinite if nothing is known of a limit."""
        ranks = self.decodes.count * self.decodes.dp
        return self.recipe.max_running * ranks if self.recipe.max_running else float("inf")


def read_serving_row(row: Row) -> ServedPool | ServedPools | Verdict:
    """Return a row as a deployment and its load, or a verdict that says why it is skipped."""
    mode = (row.get("mode") or "agg").strip()
    identity = (row.get("id") or "").strip()
    try:
        require(mode in ("agg", "disagg"), "mode", mode, "must be agg or disagg")
        return _read_deployment(Fields(row), identity, mode)
    except SpecError as error:
        return Verdict(id=identity, set=f"serving {mode}", row=row, skipped=str(error))


def _read_deployment(cells: Fields, identity: str, mode: str) -> ServedPool | ServedPools:
    engine, model, system = cells.text("backend"), catalog_name(cells), cells.text("system")
    if engine not in catalog_entries.entry_names("engines"):
        raise UnknownName.among("backend", engine, "engine", catalog_entries.entry_names("engines"))
    if model not in catalog_entries.entry_names("models"):
        raise UnknownName.among("model_path", model, "model", catalog_entries.entry_names("models"))
    precision = cells.text("precision") or cells.assume("precision", "bf16")
    require(precision in ("bf16", "fp8", "fp4", "int4"), "precision", precision, "no such precision")
    recipe = _settings(cells)
    shared_fields: dict[str, Any] = {
        "row": cells.row,
        "id": identity,
        "set": f"serving {mode}",
        "engine": engine,
        "concurrency": cells.number("clients") or cells.whole("concurrency"),
        "isl": cells.whole("isl"),
        "osl": cells.whole("osl"),
        "spread": float(cells.number("spread") or 0.0),
        "ttft_s": cells.seconds("silicon_ttft_ms", 1e-3),
        "tpot_s": cells.seconds("silicon_tpot_ms", 1e-3),
        "recipe": recipe,
        "assumed": (*cells.assumed, *filter(None, cells.text("assumed").split(" | "))),
    }

    def design(tp: int, dp: int, ep: int) -> DesignPoint:
        return _design(model, AICONFIGURATOR.get(system, system), _workload(tp, dp, ep, precision, recipe))

    if cells.text("decode"):
        prefills, decodes = Instances.read(cells.text("prefill")), Instances.read(cells.text("decode"))
        prefill, decode = (design(part.tp, part.dp, part.dp) for part in (prefills, decodes))
        return ServedPools(**shared_fields, prefills=prefills, decodes=decodes, prefill=prefill, decode=decode)
    rule = "says nothing of one instance: give tp, dp and ep, as calibration/read_serving.py writes them"
    require(bool(cells.text("tp")) or not cells.text("tp_size"), "tp_size", cells.text("tp_size"), rule)
    in_step = cells.text("in_step")
    return ServedPool(
        **shared_fields,
        design=design(*(cells.whole(name, 1) for name in ("tp", "dp", "ep"))),
        prefill_first=in_step == "true" if in_step else load_engine(engine).prefill_first,
    )


def _settings(cells: Fields) -> EngineSettings:
    """Return how the engine of a row was set; of two pools, slots are those of a rank that decodes."""
    stated = {field.name: cells.number(field.name) for field in fields(EngineSettings) if field.name != "eager"}
    whole = {
        name: value if name in ("memory_fraction", "cold_s") else int(value) for name, value in stated.items() if value
    }
    slots = {"max_running": cells.whole("slots")} if cells.text("slots") else {}
    return EngineSettings(**whole, **slots, eager=cells.text("eager") == "true")  # type: ignore[arg-type]


def _workload(tp: int, dp: int, ep: int, precision: str, recipe: EngineSettings) -> Workload:
    sizes: dict[str, Any] = {"sequence": 1, "global_batch": dp, "tp": tp, "dp": dp, "ep": ep}
    sizes["cache_dtype"] = {16: "bf16", 8: "fp8", None: "auto"}[recipe.kv_bits]
    return Workload(task="decode", precision=precision, sequence_parallel=False, **sizes)  # type: ignore[arg-type]


@cache
def _design(model: str, accelerator: str, workload: Workload) -> DesignPoint:
    entry = catalog_entries.read_entry("models", model)
    read = read_model(entry, model)
    if not is_moe(read):
        workload = replace(workload, ep=1)
    elif isinstance(read, Transformer) and read.experts and read.experts.count % workload.ep:
        copies = -read.experts.count % workload.ep  # experts that are held twice, to spread them evenly
        read = replace(read, experts=replace(read.experts, count=read.experts.count + copies))
    hardware = build_machine(accelerator, workload.tp * workload.dp)
    point = hardware.design(read, workload)
    if reasons := invalid_reasons(point):
        raise SpecError("mapping", f"tp {workload.tp} dp {workload.dp} ep {workload.ep}", reasons[0])
    return point
