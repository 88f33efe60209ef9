"""The difference of two launches: what goes, what comes, what changes, in the target's own syntax."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cosmic.base.errors import UnknownName
from cosmic.design.design_point import DesignPoint
from cosmic.frameworks.launch import LaunchChange, compare_launches, targets
from tests.frameworks.launching.launched_designs import design


def changed(**workload: Any) -> tuple[DesignPoint, DesignPoint]:
    base = design("gpt3-175b")
    return base, replace(base, workload=replace(base.workload, **workload))


def lines(target: str, **workload: Any) -> list[str]:
    return [str(change) for change in compare_launches(*changed(**workload), target)]


def test_arguments_are_added_removed_and_changed_as_a_command_line_has_them() -> None:
    assert lines("megatron", tp=4, dp=64, sequence_parallel=False, recompute="full") == [
        "~ --tensor-model-parallel-size 8 → --tensor-model-parallel-size 4",
        "+ --recompute-granularity full",
        "+ --recompute-method uniform",
        "+ --recompute-num-layers 1",
        "- --sequence-parallel",
    ]


def test_keys_of_toml_and_json_are_named_by_their_path() -> None:
    assert "~ training.compile = true → training.compile = false" in lines("torchtitan", execution="eager")
    assert "~ zero_optimization.stage = 1 → zero_optimization.stage = 3" in [
        str(change) for change in compare_launches(*_sharded(), "deepspeed")
    ]


def _sharded() -> tuple[DesignPoint, DesignPoint]:
    base, other = changed(weight_sharding="zero3")
    return replace(base, workload=replace(base.workload, weight_sharding="zero1")), other


def test_the_environment_and_the_launcher_count() -> None:
    found = compare_launches(*changed(weight_sharding="zero3"), "megatron")
    assert (
        LaunchChange(
            "environment",
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "export CUDA_DEVICE_MAX_CONNECTIONS=1",
            "export CUDA_DEVICE_MAX_CONNECTIONS=8",
        )
        in found
    )
    other = design("llama3-8b-zero3")
    assert any(each.kind == "launcher" for each in compare_launches(design("gpt3-175b"), other, "megatron"))


@pytest.mark.parametrize("target", ["megatron", "torchtitan", "deepspeed", "nccl"])
def test_a_design_differs_in_nothing_from_itself(target: str) -> None:
    base = design("gpt3-175b")
    assert compare_launches(base, base, target) == []


def test_applied_to_the_first_launch_it_gives_the_second() -> None:
    base, other = changed(tp=4, dp=64, micro_batch=2, weight_sharding="zero3", precision="fp8")
    first, second = (targets["megatron"](each).arguments for each in (base, other))
    found = {each.name: each for each in compare_launches(base, other, "megatron") if each.kind == "argument"}
    patched = {name for name in first if name not in found or found[name].after is not None}
    assert patched | {name for name, each in found.items() if each.before is None} == set(second)


def test_an_unknown_target_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="did you mean 'megatron'"):
        compare_launches(*changed(tp=4), "megatorn")
