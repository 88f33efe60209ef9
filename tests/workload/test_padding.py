"""Tensor parallelism that does not divide a model: what padding it costs."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design.design_batch import Batch
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Experts, Transformer
from cosmic.evaluation import evaluate
from cosmic.frameworks.launch import trained_decoder
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Metrics
from cosmic.simulate.step_evaluation import evaluate_steps
from cosmic.workload.mapping_rules import invalid_reasons
from cosmic.workload.mesh_sizes import pad_dimensions, sizes_of

SMALL = Transformer(layers=2, hidden=60, heads=6, head_dim=10, ffn=90, vocab=100)


def design(model: Transformer, **workload: Any) -> DesignPoint:
    base = load_design("gpt3-1.3b@dgx-a100:8", plain=True)
    given: dict[str, Any] = {"sequence": 64, "global_batch": 8, "dp": 2, "tp": 4, "pp": 1, "cp": 1, "micro_batch": 1}
    given |= {"uneven_tp": "pad", "virtual_stages": 1, "schedule": "1f1b"}
    return replace(base, model=model, workload=replace(base.workload, **(given | workload)))


def metrics(point: DesignPoint, **options: Any) -> Metrics:
    found = evaluate(point, **options)
    assert isinstance(found, Metrics), found
    return found


@pytest.mark.parametrize(
    ("heads", "groups", "tp", "padded", "kept"),
    [
        (160, 160, 64, 192, 192),  # three heads on each of 64 ranks
        (160, 160, 32, 160, 160),
        (40, 8, 16, 48, 16),  # two ranks share a group of 5 queries: 3 each
        (40, 8, 12, 60, 12),  # a group of 5 fits on one rank
        (42, 14, 4, 48, 16),  # 4 groups of 3 queries on each of 4 ranks
        (6, 3, 4, 8, 4),
        (6, 1, 4, 8, 4),
        (8, 2, 8, 8, 2),  # tp divides: as ever, each group on 4 ranks
    ],
)
def test_a_rank_has_the_keys_of_its_queries(heads: int, groups: int, tp: int, padded: int, kept: int) -> None:
    model = Transformer(layers=1, hidden=heads * 4, heads=heads, kv_heads=groups, ffn=64, vocab=10)
    found = pad_dimensions(model, tp, 1)
    assert (found["heads"], found["kv_heads"]) == (padded, kept)


def test_widths_of_ffn_and_experts_are_padded_for_the_ranks_that_split_them() -> None:
    model = replace(SMALL, experts=Experts(count=4, active=2, ffn=25, shared_ffn=30))
    found = pad_dimensions(model, 4, 2)
    assert (found["ffn"], found["shared_ffn"], found["expert_ffn"]) == (92, 32, 26)


def test_padding_is_refused_unless_it_is_asked_for() -> None:
    point = design(SMALL, uneven_tp="refuse")
    assert invalid_reasons(point) == (
        "tp 4 does not divide the 6 heads: choose a divisor, or set uneven_tp to pad",
        "tp 4 does not divide the feed-forward width 90: choose a divisor, or set uneven_tp to pad",
    )
    assert invalid_reasons(design(SMALL)) == ()


def test_executed_flop_has_the_padding_and_those_of_the_model_have_not() -> None:
    """Per token and layer forward, 2 flop each: QKV and out 4 x 60 x 10 x heads, ffn 2 x 60 x ffn; attention; head."""
    found = metrics(design(SMALL, recompute="none"))

    def flop(heads: int, ffn: int) -> float:
        seen = 65 / 2
        layer = 2 * (4 * 60 * 10 * heads + 2 * 60 * ffn) + 2 * seen * heads * 20
        return 2 * layer + 2 * 60 * 100

    assert found.hfu / found.mfu == pytest.approx(flop(8, 92) / flop(6, 90), rel=1e-12)


def test_weights_have_the_padding() -> None:
    """A rank has 2 of 8 heads and 23 of 92 columns, in 2 bytes: and a quarter of the vocabulary's 100 rows."""
    found = metrics(design(SMALL, weight_sharding="none"))
    layer = 4 * 60 * 20 + 2 * 60 * 23 + 2 * 2 * 60
    assert found.memory["weights"] == 2 * (2 * layer + 25 * 60 * 2 + 2 * 60)


KINDS = ("mha", "gqa", "gated", "moe")


def _drawn(kind: str, rng: random.Random) -> tuple[Transformer, dict[str, Any]]:
    groups = rng.randint(1, 6)
    heads = groups * (1 if kind == "mha" else rng.randint(1, 5))
    sizes: dict[str, Any] = {"layers": 2, "hidden": 96, "heads": heads, "kv_heads": groups, "head_dim": 16}
    sizes |= {"ffn": rng.randint(20, 200), "vocab": 64, "gated": kind != "mha"}
    if kind == "moe":
        sizes["experts"] = Experts(count=4, active=2, ffn=rng.randint(5, 60), shared_ffn=rng.choice((0, 17)))
    tp = rng.choice((2, 4, 8))
    return Transformer(**sizes), {"tp": tp, "dp": 8 // tp, "weight_sharding": rng.choice(("none", "zero1", "zero3"))}


def _as_padded(point: DesignPoint) -> DesignPoint:
    """Return a design with a model that is as large as *point* pads its own, which tp divides."""
    model, w = point.model, point.workload
    assert isinstance(model, Transformer)
    padded = pad_dimensions(model, w.tp, w.expert_tensor)
    found: dict[str, Any] = {name: int(size) for name, size in padded.items()}
    inner, shared = found.pop("expert_ffn", 0), found.pop("shared_ffn")
    experts = replace(model.experts, ffn=inner, shared_ffn=shared) if model.experts else None
    larger = replace(model, **found, experts=experts)
    return replace(point, model=larger, workload=replace(w, uneven_tp="refuse"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_padded_model_takes_what_one_of_its_padded_size_takes(kind: str) -> None:
    rng = random.Random(kind)
    for _ in range(6):
        model, mesh = _drawn(kind, rng)
        point = design(model, **mesh)
        found, larger = metrics(point), metrics(_as_padded(point))
        assert (found.step_s, found.memory, found.hfu) == (larger.step_s, larger.memory, larger.hfu)
        assert found.mfu <= larger.mfu


@pytest.mark.parametrize("kind", KINDS)
def test_engines_agree_on_padded_designs(kind: str) -> None:
    model, mesh = _drawn(kind, random.Random(f"{kind} twice"))
    point = design(model, **mesh)
    closed = metrics(point).step_s
    assert metrics(point, engine="event").step_s == pytest.approx(closed, rel=0.05)


def test_the_switch_changes_nothing_where_tp_divides() -> None:
    even = design(replace(SMALL, heads=8, kv_heads=2, ffn=96, head_dim=8), uneven_tp="refuse")
    padded = replace(even, workload=replace(even.workload, uneven_tp="pad"))
    assert metrics(even) == metrics(padded)


def test_a_batch_of_padded_designs_is_its_designs() -> None:
    point = design(SMALL)
    tps = np.array([1, 2, 4, 8])
    batch = Batch(point, {"workload.tp": tps, "workload.dp": 8 // tps})
    assert np.asarray(sizes_of(batch)["heads"]).tolist() == [6, 6, 8, 8]
    found = evaluate_steps(batch).columns
    for row, tp in enumerate(tps.tolist()):
        alone = metrics(design(SMALL, tp=tp, dp=8 // tp))
        assert found["step_s"][row] == alone.step_s
        assert found["hfu"][row] == alone.hfu


def test_frameworks_that_pad_no_heads_get_no_such_design() -> None:
    with pytest.raises(SpecError, match="Megatron-LM pads no 6 heads, no feed-forward width of 90"):
        trained_decoder(design(SMALL), "Megatron-LM")
    assert trained_decoder(design(SMALL, tp=2, dp=4), "Megatron-LM") == SMALL
