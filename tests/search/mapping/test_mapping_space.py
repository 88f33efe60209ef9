"""The parameter set of a design's mapping: what is in it exists, what a framework launches, and what users hold."""

from __future__ import annotations

from itertools import product
from math import gcd
from pathlib import Path

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.design.design_batch import Batch
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate
from cosmic.frameworks.launch import targets
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.mapping.mapping_choices import FRAMEWORKS
from cosmic.search.mapping.mapping_space import launchable_frameworks
from cosmic.search.space.space_files import load_space, mapping_space
from cosmic.simulate.metrics import Infeasible, Metrics, Outcome
from cosmic.workload.mapping_rules import rules_met_by_design

DESIGNS = [
    ("llama3-70b@dgx-h100:64", {}),
    ("mixtral-8x7b@dgx-h200:32", {"sequence": 4096}),
    ("deepseek-v3@dgx-h800:256", {}),
    ("gpt3-175b@cosmic-1024", {}),
    ("t5-11b@dgx-a100:32", {}),
    ("vit-huge@dgx-h100:8", {}),
    ("bert-large@mi300x:16", {}),
    ("dlrm-criteo@dgx-a100:16", {}),
    ("qwen3-30b-a3b@gb200-nvl72:72", {}),
    ("llama3-8b@tpu-v5p:64", {}),
    ("llama3-70b@dgx-h200:8", {"task": "decode"}),
    ("deepseek-v3@dgx-h200:32", {"task": "prefill"}),
]
LEFT_TO_USERS = (
    "write train.py yourself",
    "the script",
    "has no flavor of this model",
    "fuses only what torch.compile fuses",
    "NPUs, more than a host",
    "one by one, not as a grouped GEMM",
    "recomputes layers to their end",
    "want 1: it is 8",
    "experts are evenly loaded",
    "two chunks per stage",
)
"""What exporters say of every design: not that the mapping is another one."""


@pytest.mark.long
@pytest.mark.parametrize(("name", "settings"), DESIGNS)
def test_no_mapping_of_the_set_breaks_a_rule(name: str, settings: dict[str, object]) -> None:
    """What cannot exist is never drawn: only memory rules mappings out."""
    space = mapping_space(name, settings)
    rows = space.sample(500, np.random.default_rng(1))
    met = rules_met_by_design(Batch(space.base, space.columns(rows)))
    assert [name for name, holds in met.items() if not holds.all()] == []


@pytest.mark.long
@pytest.mark.parametrize(("name", "settings"), DESIGNS)
def test_the_design_itself_is_in_the_set(name: str, settings: dict[str, object]) -> None:
    space = mapping_space(name, settings)
    assert space.row_of(space.base) is not None


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "deepspeed"])
@pytest.mark.parametrize("name", ["llama3-70b@dgx-h100:64", "mixtral-8x7b@dgx-h100:64", "deepseek-v3@dgx-h100:256"])
def test_a_framework_launches_what_its_set_holds(framework: str, name: str) -> None:
    """Exported as it is: no warning says that the framework does something else."""
    space = mapping_space(name, framework=framework)
    for row in space.sample(15, np.random.default_rng(2)):
        point = space.point(row)
        warnings = [each for each in targets[framework](point).warnings if not any(w in each for w in LEFT_TO_USERS)]
        assert not warnings, (warnings, space.labels(row))
        assert framework in launchable_frameworks(point)


def test_a_set_is_what_one_counts_by_hand() -> None:
    """A dense model of 32 heads and layers on 8 accelerators: tp × pp × cp, DeepSpeed's shardings and recomputation."""
    space = mapping_space("llama3-8b@dgx-h100:8", {"global_batch": 512, "sequence": 8192}, framework="deepspeed")
    count = 0
    for tp, pp, cp in product((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4)):
        if 8 % (tp * pp * cp):
            continue
        dp = 8 // (tp * pp * cp)
        for sharding in ("zero1", "zero2", "zero3"):
            if dp * cp == 1 and sharding != "zero1":
                continue
            if (pp > 1 and sharding != "zero1") or (tp > 1 and sharding == "zero3"):
                continue
            count += 2 * sum(512 % (dp * size) == 0 and 512 // (dp * size) >= pp for size in (1, 2, 4, 8))
    assert space.valid == count


def test_what_is_set_or_fixed_is_held() -> None:
    space = mapping_space("llama3-8b@dgx-h100:8", {"tp": 2}, fix=["recompute", "workload.pp"])
    searched = {path for each in space.parameters for path in each.paths}
    assert not searched & {"workload.tp", "workload.pp", "workload.recompute"}
    base = space.base.workload
    for row in space.sample(20, np.random.default_rng(0)):
        found = space.point(row).workload
        assert (found.tp, found.pp, found.recompute) == (2, base.pp, base.recompute)
        assert found.ranks == 8


def test_dp_can_be_held() -> None:
    space = mapping_space("llama3-8b@dgx-h100:8", {"dp": 2})
    assert {space.point(row).workload.dp for row in space.sample(30, np.random.default_rng(0))} == {2}


def test_other_fields_and_layers_can_be_opened() -> None:
    space = mapping_space(
        "llama3-8b@dgx-h100:8", stacks=["collective", "network", "compute"], vary={"precision": ["bf16", "fp8"]}
    )
    assert set(space.stacks) == {"workload", "collective", "network", "compute"}
    assert space.values_of("workload.precision") == ("bf16", "fp8")
    assert not space.limits  # memory differs from accelerator to accelerator


def test_mappings_count_that_fit_as_surely_as_the_design_asks() -> None:
    space = mapping_space("llama3-8b@dgx-h100:8")
    assert space.limits == ()  # the design's own `memory.fits` decides
    rows = space.sample(200, np.random.default_rng(0))
    likely = [evaluate(_that_fits(space.point(row), 1e-6)) for row in rows]  # all but what is larger for sure
    probabilities = [(each.fits or 0.0) if isinstance(each, Metrics) else 0.0 for each in likely]
    for asked in (0.95, 0.5):
        runs = [isinstance(evaluate(_that_fits(space.point(row), asked)), Metrics) for row in rows]
        assert runs == [probability >= asked for probability in probabilities]
        assert 0 < sum(runs) < len(runs)
    assert any(0.5 <= probability < 0.95 for probability in probabilities)
    own = mapping_space("llama3-8b@dgx-h100:8", constraints=["memory_bytes <= 60 GB"])
    assert own.limits == ("memory_bytes <= 60 GB",)


def _that_fits(point: DesignPoint, asked: float) -> DesignPoint:
    found: DesignPoint = schema.assign_fields(point, {"memory.fits": asked})
    return found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"framework": "megatrn"}, "did you mean 'megatron'?"),
        ({"stacks": ["netwrk"]}, "did you mean 'network'?"),
        ({"fix": ["tp"], "vary": {"tp": [1, 2]}}, "is held as well"),
        ({"fix": ["tpp"]}, "no such field"),
        ({"vary": {"precision": ["bf17"]}}, "no such choice"),
    ],
)
def test_a_mistake_is_one_sentence(options: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message.replace("?", r"\?")):
        mapping_space("llama3-8b@dgx-h100:8", **options)  # type: ignore[arg-type]  # some of its options


def test_a_design_file_is_a_set_of_mappings(tmp_path: Path) -> None:
    """Its own mapping is the base, and one of the set."""
    path = tmp_path / "mine.yaml"
    path.write_text("model: llama3-8b\nsystem: dgx-h100:8\nworkload: {tp: 4, pp: 1, cp: 1, recompute: full}\n")
    space = load_space(path)
    assert space.name == "mine"
    assert space.base.workload.tp == 4
    assert {1, 2, 4, 8} == set(space.values_of("workload.tp"))


def test_experts_fold_over_all_axes() -> None:
    """Expert parallelism spans tp and cp as well as dp, as in Megatron-LM's parallel folding."""
    space = mapping_space("mixtral-8x7b@dgx-h100:8", {"tp": 8, "cp": 1})
    found = [space.point(row) for row in space.listed(0, space.valid)[:: max(1, space.valid // 200)]]
    assert any(each.workload.ep == 8 and each.workload.dp == 1 for each in found)
    assert all(_shares(each) for each in found)


def _shares(point: DesignPoint) -> bool:
    w = point.workload
    return (w.tp * w.cp * w.dp) % (w.expert_tensor * w.ep) == 0 and gcd(w.tp, w.expert_tensor) == w.expert_tensor


def test_any_framework_is_named() -> None:
    assert set(FRAMEWORKS) == {"megatron", "torchtitan", "deepspeed", "any"}
    assert launchable_frameworks(load_design("llama3-8b@dgx-h100:8", {"task": "decode"})) == []


def test_state_that_fills_hbm_and_flows_on_lets_more_mappings_count() -> None:
    def outcomes(tiers: list[str]) -> list[Outcome]:
        held = {"micro_batch": 1, "offload": [], "memory.placement.optimizer": tiers}
        space = mapping_space("llama3-8b@dgx-h100:8", held)
        assert not space.limits
        return [evaluate(space.point(row)) for row in space.sample(200, np.random.default_rng(0))]

    pairs = list(zip(outcomes(["hbm"]), outcomes(["hbm", "host"]), strict=True))
    spilled = [after for before, after in pairs if isinstance(before, Infeasible) and isinstance(after, Metrics)]
    assert spilled
    for each in spilled:
        assert each.offloaded_bytes > 0
        assert each.fits is not None
        assert each.fits >= 0.95 * (1 - 1e-9)
    for before, after in pairs:
        if isinstance(before, Metrics):
            assert isinstance(after, Metrics)
            assert after.offloaded_bytes == 0
