"""What a process holds beside tensors, and how sure the sum is, by hand; and the copies of weights in 8 and 4 bits.

The tiny design (`tests.step.tiny`) has 1224 weights, 1024 of which GEMMs multiply: four projections of 8 x 8 and two
matrices of 8 x 16 in each of two layers. Training holds 18 bytes for each weight, 64 bytes of tokens, 64 MiB of
workspace, and at the loss 2 x 832 + 144 of activations and 320 of logits.
"""

from __future__ import annotations

from dataclasses import replace
from math import erf, exp, log, sqrt
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design.design_batch import Batch, batch_of, batch_of_changes
from cosmic.design.memory_layer import Memory
from cosmic.design.model_layer import Experts
from cosmic.design.workload_layer import Workload
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.step.device_memory import COMPONENTS, TENSORS, Footprint, memory_of
from cosmic.step.gemm import kept_copies
from cosmic.step.process_memory import (
    CACHED,
    COMMUNICATORS,
    CONSTANTS,
    CONTEXT,
    FRAGMENTATION,
    PROCESS,
    communicators,
    fit_probability,
    has_process,
    left_bytes,
    needed_bytes,
    needed_per_byte,
    quantile_factor,
    spread_of,
    used_range,
)
from tests.step import tiny

SPREADS = CONSTANTS.spreads
WORKSPACE = 64 * 2**20
TRANSIENT = 2 * 832 + 144 + 320
TENSOR_BYTES = 18 * 1224 + 64 + WORKSPACE + TRANSIENT
STATED = 2e8
"""A context of 200 MB."""
Z95 = 1.6448536269514722
"""The 95th percentile of a standard normal."""
Z75 = 0.6744897501960817
ROOM = 1e12


def process(context: float | None = STATED, capacity: float = ROOM, fits: float = 0.95, **given: Any) -> Batch:
    """Return the tiny design in a framework's process, with room for it."""
    memory = {"context_bytes": context, "capacity_bytes": capacity, "fits": fits, **given.pop("memory", {})}
    return tiny.batch(memory=memory, **given)


def normal(z: float) -> float:
    """Return the share of a standard normal below z."""
    return (1 + erf(z / sqrt(2))) / 2


def components(batch: Batch) -> dict[str, float]:
    return {name: float(size) for name, size in memory_of(batch).parts.items()}


# ---- sizes


def test_a_process_holds_gaps_cached_blocks_and_its_context_beside_tensors() -> None:
    found = components(process())
    assert tuple(found) == COMPONENTS == (*TENSORS, *PROCESS)
    assert sum(found[name] for name in TENSORS) == TENSOR_BYTES
    assert found[FRAGMENTATION] == pytest.approx(CONSTANTS.fragmentation * TENSOR_BYTES)
    assert found[CACHED] == pytest.approx(CONSTANTS.cached * TENSOR_BYTES)
    assert (found[CONTEXT], found[COMMUNICATORS]) == (STATED, 0)


def test_a_context_that_nobody_states_is_the_usual_one() -> None:
    assert components(process(None))[CONTEXT] == CONSTANTS.context_bytes > 0


def test_peak_needed_and_total_have_ever_more_components() -> None:
    found = memory_of(process(fits=0.5))
    gaps, cached = CONSTANTS.fragmentation * TENSOR_BYTES, CONSTANTS.cached * TENSOR_BYTES
    assert found.peak == TENSOR_BYTES
    assert found.must_fit == pytest.approx(TENSOR_BYTES + gaps + STATED)
    assert found.total == pytest.approx(TENSOR_BYTES + gaps + STATED + cached)
    one_each = Footprint(dict.fromkeys(COMPONENTS, 1.0))
    assert (one_each.peak, one_each.total) == (9, 13)


def test_cached_blocks_take_what_is_left_at_most() -> None:
    """They are given back when memory runs short."""
    needed = (1 + CONSTANTS.fragmentation) * TENSOR_BYTES + STATED
    for left in (0.0, 1000.0, 1e6):
        assert components(process(capacity=needed + left))[CACHED] == pytest.approx(left, abs=1e-3)
        half = process(capacity=2 * (needed + left), memory={"usable": 0.5})
        assert components(half)[CACHED] == pytest.approx(left, abs=1e-3)
    assert components(process(capacity=needed / 2))[CACHED] == 0


def test_no_process_has_gaps_of_what_comes_and_goes_alone() -> None:
    found = components(process(0.0))
    assert not has_process(process(0.0).base)
    assert found[FRAGMENTATION] == pytest.approx(CONSTANTS.bare_fragmentation * TRANSIENT)
    assert [found[name] for name in (CACHED, CONTEXT, COMMUNICATORS)] == [0, 0, 0]
    assert components(process(0.0, dp=2, tp=2))[COMMUNICATORS] == 0


@pytest.mark.parametrize("task", ["prefill", "decode"])
def test_an_engine_that_serves_keeps_no_freed_blocks(task: str) -> None:
    """Its weights and cache are allocated once; gaps are of what comes and goes, which is less than half a kilobyte."""
    served = process(task=task)
    found = components(served)
    transient = sum(found[name] for name in ("activations", "loss", "buffers"))
    assert 0 < transient < 1000
    assert found[FRAGMENTATION] == pytest.approx(CONSTANTS.bare_fragmentation * transient)
    assert (found[CACHED], found[CONTEXT]) == (0, STATED)


@pytest.mark.parametrize(
    ("mesh", "groups"),
    [
        ({}, 0),
        ({"tp": 2}, 1),
        ({"cp": 2}, 1),
        ({"pp": 2}, 1),
        ({"dp": 2}, 1),
        ({"dp": 4}, 1),  # however many members it has
        ({"tp": 2, "pp": 2}, 2),
        ({"tp": 2, "cp": 2, "pp": 2}, 3),
    ],
)
def test_each_group_of_several_members_has_a_communicator(mesh: dict[str, int], groups: int) -> None:
    batch = process(**mesh)
    assert float(communicators(batch)) == groups
    assert components(batch)[COMMUNICATORS] == groups * CONSTANTS.communicator_bytes


@pytest.mark.parametrize(
    ("mesh", "groups"),
    [
        ({"dp": 2, "ep": 2}, 2),  # dp and ep: of each expert there is one
        ({"dp": 4, "ep": 2}, 3),  # dp, ep, and two replicas of experts
        ({"dp": 4, "ep": 2, "pp": 2}, 4),
    ],
)
def test_experts_have_groups_of_their_own(mesh: dict[str, int], groups: int) -> None:
    batch = process(model={"experts": Experts(count=4, active=1, ffn=16)}, **mesh)
    assert float(communicators(batch)) == groups


def test_designs_of_a_batch_have_their_own_groups() -> None:
    base = process(global_batch=4).base
    changes = [{"workload.dp": 1}, {"workload.pp": 2, "workload.dp": 1}, {"workload.pp": 2, "workload.tp": 2}]
    found = np.asarray(memory_of(batch_of_changes(base, changes)).parts[COMMUNICATORS])
    assert (found / CONSTANTS.communicator_bytes).tolist() == [0, 1, 2]


# ---- how sure they are


def test_each_component_has_its_spread() -> None:
    point = process().base
    static = ("weights", "gradients", "optimizer", "inputs", "workspace", "kv_cache")
    assert {name: spread_of(point, name) for name in COMPONENTS} == {
        **dict.fromkeys(static, SPREADS.static),
        **dict.fromkeys(("activations", "loss", "buffers"), SPREADS.transient),
        FRAGMENTATION: SPREADS.fragmentation,
        CACHED: SPREADS.cached,
        CONTEXT: SPREADS.context,
        COMMUNICATORS: SPREADS.communicators,
    }
    assert spread_of(process(None).base, CONTEXT) == SPREADS.unknown_context > SPREADS.context
    assert {spread_of(process(0.0).base, name) for name in COMPONENTS} == {0.0}


def test_a_quantile_is_so_many_spreads_from_the_median() -> None:
    point = process().base
    assert quantile_factor(point, "weights", 0.5) == 1
    assert quantile_factor(point, "weights", 0.95) == pytest.approx(exp(SPREADS.static * Z95))
    assert quantile_factor(point, "activations", 0.05) == pytest.approx(exp(-SPREADS.transient * Z95))


PARTS = {"weights": 1000.0, "activations": 200.0, FRAGMENTATION: 50.0, CACHED: 400.0, CONTEXT: 30.0, COMMUNICATORS: 7.0}


def test_what_is_needed_adds_up_quantiles_of_all_but_cached_blocks() -> None:
    """At the median 1000 + 200 + 50 + 30 + 7; further out each component is off by its own spread."""
    point = process().base
    assert needed_bytes(point, PARTS, 0.5) == pytest.approx(1287)

    def at(z: float) -> float:
        return (
            1000 * exp(SPREADS.static * z)
            + 200 * exp(SPREADS.transient * z)
            + 50 * exp(SPREADS.fragmentation * z)
            + 30 * exp(SPREADS.context * z)
            + 7 * exp(SPREADS.communicators * z)
        )

    assert needed_bytes(point, PARTS, 0.95) == pytest.approx(at(Z95))
    assert needed_bytes(point, PARTS, 0.25) == pytest.approx(at(-Z75))
    assert needed_bytes(point, PARTS) == pytest.approx(at(Z95))  # as surely as it must fit
    assert needed_bytes(process(fits=0.75).base, PARTS) == pytest.approx(at(Z75))


def test_without_a_process_there_is_nothing_to_be_unsure_of() -> None:
    point = process(0.0).base
    assert {needed_bytes(point, PARTS, at) for at in (0.01, 0.5, 0.95)} == {1287}
    enough, short = (process(0.0, capacity=size).base for size in (1287.0, 1286.9))
    assert fit_probability(enough, PARTS) == pytest.approx(1)
    assert fit_probability(short, PARTS) == pytest.approx(0)


def test_a_context_that_nobody_states_is_less_sure() -> None:
    known, unknown = process().base, process(None).base
    assert needed_bytes(known, PARTS, 0.5) == needed_bytes(unknown, PARTS, 0.5)
    more = 30 * (exp(SPREADS.unknown_context * Z95) - exp(SPREADS.context * Z95))
    assert needed_bytes(unknown, PARTS) - needed_bytes(known, PARTS) == pytest.approx(more)
    ranges = [used_range(point, PARTS) for point in (known, unknown)]
    assert ranges[1].p05 < ranges[0].p05 < ranges[0].p95 < ranges[1].p95


@pytest.mark.parametrize(
    ("component", "spread"),
    [
        ("weights", SPREADS.static),
        ("loss", SPREADS.transient),
        (FRAGMENTATION, SPREADS.fragmentation),
        (CONTEXT, SPREADS.context),
        (COMMUNICATORS, SPREADS.communicators),
    ],
)
@pytest.mark.parametrize("z", [-1.0, 0.0, 0.5, 2.0])
def test_one_component_fits_with_the_probability_of_its_logarithm(component: str, spread: float, z: float) -> None:
    """1000 bytes into 1000 exp(spread z): what it needs is no more with the probability of z."""
    point = process(capacity=1000 * exp(spread * z)).base
    assert fit_probability(point, {component: 1000.0, CACHED: 1e9}) == pytest.approx(normal(z), abs=1e-9)


def test_what_the_driver_keeps_does_not_count_as_room() -> None:
    batch = process(capacity=2000.0, memory={"usable": 0.6})
    assert float(left_bytes(batch)) == batch.base.memory.left_bytes == 1200
    z = log(1200 / 1100) / SPREADS.static
    assert fit_probability(batch.base, {"weights": 1100.0}) == pytest.approx(normal(z), abs=1e-9)


def test_several_components_fit_with_the_probability_at_which_they_need_all_there_is() -> None:
    point = process(capacity=1400.0).base
    probability = fit_probability(point, PARTS)
    assert 0.5 < probability < 1
    assert needed_bytes(point, PARTS, probability) == pytest.approx(1400, rel=1e-9)
    assert fit_probability(process(capacity=1287.0).base, PARTS) == pytest.approx(0.5)


def test_the_probability_to_fit_rises_with_capacity_and_the_need_with_the_probability() -> None:
    points = [process(capacity=size).base for size in (1000.0, 1200.0, 1287.0, 1350.0, 1500.0, 3000.0)]
    found = [fit_probability(point, PARTS) for point in points]
    assert found == sorted(found)
    assert len(set(found)) == len(found)
    needs = [needed_bytes(process(fits=at).base, PARTS) for at in (0.01, 0.3, 0.5, 0.8, 0.95, 0.999)]
    assert needs == sorted(needs)
    assert len(set(needs)) == len(needs)


def test_a_device_shows_what_is_needed_and_cached_up_to_what_there_is() -> None:
    """400 bytes cached in the median; of 1500 bytes 213 are left for them; what needs more than all shows that."""
    needs = [needed_bytes(process().base, PARTS, at) for at in (0.05, 0.25, 0.5, 0.75, 0.95)]
    factors = [exp(SPREADS.cached * z) for z in (-Z95, -Z75, 0, Z75, Z95)]

    def shown(capacity: float) -> tuple[float, ...]:
        found = used_range(process(capacity=capacity).base, PARTS)
        return found.p05, found.p25, found.p50, found.p75, found.p95

    assert shown(1e6) == pytest.approx([need + 400 * factor for need, factor in zip(needs, factors, strict=True)])
    assert shown(1500.0)[2:4] == pytest.approx((1500, 1500))
    assert shown(1287.0)[2:] == pytest.approx(needs[2:])


def test_a_byte_needs_room_for_its_gaps_too() -> None:
    gaps = CONSTANTS.fragmentation * exp(SPREADS.fragmentation * Z95)
    assert needed_per_byte(process().base, "weights") == pytest.approx(exp(SPREADS.static * Z95) + gaps)
    assert needed_per_byte(process().base, "activations") == pytest.approx(exp(SPREADS.transient * Z95) + gaps)
    bare = process(0.0).base
    assert needed_per_byte(bare, "weights") == 1
    assert needed_per_byte(bare, "activations") == pytest.approx(1 + CONSTANTS.bare_fragmentation)


# ---- designs


def needed_by_hand(z: float) -> float:
    """Return what the tiny design needs at most, z spreads out."""
    return (
        (TENSOR_BYTES - TRANSIENT) * exp(SPREADS.static * z)
        + TRANSIENT * exp(SPREADS.transient * z)
        + CONSTANTS.fragmentation * TENSOR_BYTES * exp(SPREADS.fragmentation * z)
        + STATED * exp(SPREADS.context * z)
    )


@pytest.mark.parametrize(("fits", "z"), [(0.95, Z95), (0.75, Z75), (0.5, 0.0), (0.05, -Z95)])
def test_a_design_runs_where_it_fits_as_surely_as_it_must(fits: float, z: float) -> None:
    enough = process(capacity=needed_by_hand(z) * (1 + 1e-9), fits=fits)
    found, short = evaluate(enough.base), evaluate(process(capacity=needed_by_hand(z) * (1 - 1e-6), fits=fits).base)
    assert isinstance(found, Metrics)
    assert found.fits == pytest.approx(fits, abs=1e-6)
    assert isinstance(short, Infeasible)
    (reason,) = short.reasons
    assert f"and fits with {100 * fits:.0f} % where {fits:.0%} is asked" in reason
    batch = batch_of_changes(enough.base, [{"memory.capacity": needed_by_hand(z) * (1 + off)} for off in (1e-9, -1e-6)])
    assert evaluate_batch(batch).feasible.tolist() == [True, False]


def test_metrics_say_tensors_what_a_device_shows_and_how_sure_that_is() -> None:
    found = evaluate(process().base)
    assert isinstance(found, Metrics)
    assert found.memory_range is not None
    used = (1 + CONSTANTS.fragmentation + CONSTANTS.cached) * TENSOR_BYTES + STATED
    assert found.memory_bytes == TENSOR_BYTES
    assert found.memory_used_bytes == pytest.approx(used)
    assert sum(found.memory.values()) == pytest.approx(used)
    assert found.memory_range.p50 == pytest.approx(used)
    assert found.memory_range.p95 == pytest.approx(
        needed_by_hand(Z95) + CONSTANTS.cached * TENSOR_BYTES * exp(SPREADS.cached * Z95)
    )
    assert found.fits == pytest.approx(1)


def test_no_process_says_no_probability() -> None:
    short = evaluate(process(0.0, capacity=TENSOR_BYTES).base)
    assert isinstance(short, Infeasible)
    assert "fits with" not in short.reasons[0]
    room = TENSOR_BYTES + CONSTANTS.bare_fragmentation * TRANSIENT
    found = evaluate(process(0.0, capacity=room * (1 + 1e-12)).base)
    assert isinstance(found, Metrics)
    assert found.memory_range is not None
    assert found.memory_range.p05 == found.memory_range.p95 == pytest.approx(room)


def test_the_fuller_stage_is_the_one_that_needs_more_however_much_both_cache() -> None:
    """The last of two stages has the head as well; where blocks are cached up to all of memory, both show the same."""
    base = process(pp=2, fits=0.5).base
    roomy = memory_of(batch_of(base))
    full = memory_of(batch_of(replace(base, memory=replace(base.memory, capacity_bytes=float(roomy.must_fit) + 1000))))
    assert roomy.stage == full.stage == 1
    assert float(full.must_fit) == float(roomy.must_fit)
    assert float(full.total) == pytest.approx(float(roomy.must_fit) + 1000, abs=1e-3)
    assert full.parts[CACHED] == pytest.approx(1000, abs=1e-3)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("usable", 0.0, "must be above 0, and at most 1"),
        ("usable", 1.01, "must be above 0, and at most 1"),
        ("context_bytes", -1.0, "must not be negative"),
        ("fits", 0.0, "must be between 0 and 1"),
        ("fits", 1.0, "must be between 0 and 1"),
    ],
)
def test_shares_and_sizes_are_possible_ones(field: str, value: float, rule: str) -> None:
    given: Any = {field: value}
    with pytest.raises(SpecError, match=rule):
        Memory(capacity_bytes=1.0, bandwidth_bytes_per_s=1.0, **given)


# ---- copies of weights in 8 and 4 bits

HOPPER: dict[str, Any] = {"fp4": None}
BLACKWELL: dict[str, Any] = {"fp4": 9e15}
MX = 1 + 1 / 32
BLOCKS = 1 + 4 / 128**2
NV = 1 / 2 + 1 / 16


@pytest.mark.parametrize(
    ("recipe", "hopper", "blackwell"),
    [
        ("auto", 2.0, 2 * MX),  # delayed scaling, and MXFP8 where it is in hardware
        ("delayed", 2.0, 1.0),
        ("tensorwise", 2.0, 1.0),
        ("rowwise", 2.0, 2.0),  # scales along rows are none along columns
        ("blockwise", 2 * BLOCKS, 2 * BLOCKS),
        ("mxfp8", 2 * MX, 2 * MX),
    ],
)
def test_a_row_and_a_column_copy_are_kept_where_one_does_not_serve_both(
    recipe: Any, hopper: float, blackwell: float
) -> None:
    workload = Workload(sequence=1, global_batch=1, precision="fp8", fp8_recipe=recipe)
    assert float(kept_copies(workload, HOPPER.get)) == pytest.approx(hopper)
    assert float(kept_copies(workload, BLACKWELL.get)) == pytest.approx(blackwell)


def test_copies_in_4_bits_have_scales_of_their_own() -> None:
    workload = Workload(sequence=1, global_batch=1, precision="fp4")
    assert float(kept_copies(workload, BLACKWELL.get)) == 2 * NV


@pytest.mark.parametrize(
    "given", [{"execution": "eager"}, {"execution": "compiled"}, {"execution": "eager", "fp8_recipe": "rowwise"}]
)
def test_kernels_that_cast_a_weight_at_every_use_keep_no_copy(given: dict[str, Any]) -> None:
    assert kept_copies(Workload(sequence=1, global_batch=1, precision="fp8", **given), HOPPER.get) == 0


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32", "int4", "bf16_pure"])
def test_wide_gemms_need_no_copy(precision: Any) -> None:
    assert kept_copies(Workload(sequence=1, global_batch=1, precision=precision), BLACKWELL.get) == 0


def fp8_weights(recipe: str = "delayed", fp4: float | None = 9e15, **given: Any) -> float:
    """Return the bytes of weights of two replicas that share states, on an accelerator of block formats."""
    usual = {"precision": "fp8", "fp8_recipe": recipe, "dp": 2, "weight_sharding": "zero1"}
    compute = {"fp8_flop_per_s": 1000.0, "fp4_flop_per_s": fp4}
    return float(memory_of(tiny.batch(compute=compute, **{**usual, **given})).parts["weights"])


WIDE, NARROW = 200, 1024
"""Weights of the tables, the norms and the head, and of the matrices of layers."""


def test_weights_that_are_gathered_in_8_bits_have_no_copy_in_16() -> None:
    assert fp8_weights() == 2 * WIDE + NARROW
    assert fp8_weights(fp4=None) == 2 * WIDE + 2 * NARROW
    assert fp8_weights("mxfp8") == 2 * WIDE + 2 * MX * NARROW
    assert fp8_weights("blockwise", fp4=None) == pytest.approx(2 * WIDE + 2 * BLOCKS * NARROW)


def test_else_8_bits_are_kept_beside_16() -> None:
    apart: dict[str, Any] = {"fp8_param_gather": False}
    assert fp8_weights(**apart) == 2 * (WIDE + NARROW) + NARROW
    assert fp8_weights(fp4=None, **apart) == 2 * (WIDE + NARROW) + 2 * NARROW
    assert fp8_weights("mxfp8", **apart) == 2 * (WIDE + NARROW) + 2 * MX * NARROW
    assert fp8_weights(precision="fp4") == 2 * (WIDE + NARROW) + 2 * NV * NARROW  # 4 bits are never gathered


def test_replicas_that_share_no_states_gather_none_in_8_bits() -> None:
    assert fp8_weights(weight_sharding="none") == 2 * (WIDE + NARROW) + NARROW


def test_eager_kernels_keep_weights_in_16_bits_alone() -> None:
    for recipe in ("tensorwise", "rowwise"):
        assert fp8_weights(recipe, execution="eager") == 2 * (WIDE + NARROW)
        assert fp8_weights(recipe, execution="compiled") == 2 * (WIDE + NARROW)


def test_copies_are_of_the_shards_of_a_stage() -> None:
    """Half of each matrix at tp 2, without its norms; on the last of two stages one layer, the final norm and the head."""
    assert fp8_weights("mxfp8", tp=2) == 2 * (80 + 80) / 2 + 2 * (2 * 16 + 8) + 2 * MX * NARROW / 2
    assert fp8_weights("mxfp8", pp=2) == 2 * (16 + 8 + 80) + 2 * MX * NARROW / 2


def test_shards_of_the_master_copy_have_no_copy_beside_them() -> None:
    assert fp8_weights("mxfp8", weight_sharding="zero3") == 4 * (WIDE + NARROW) / 2


def test_routers_stay_in_16_bits_and_experts_have_copies() -> None:
    """Of four experts 2 x 8 x 16 weights each, and of the router 8 x 4; attention has 4 x 8 x 8."""
    model = {"experts": Experts(count=4, active=1, ffn=16)}
    narrow = 2 * (256 + 4 * 256)
    wide = 80 + 88 + 2 * (16 + 32)
    assert fp8_weights(model=model) == 2 * wide + narrow
