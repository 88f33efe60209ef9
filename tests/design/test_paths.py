"""Short names of fields, and keys of earlier releases."""

from __future__ import annotations

import pytest

from cosmic.base.errors import RENAMED, SpecError, UnknownName
from cosmic.design.design_point import field_patterns, full_path
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.space_files import load_space

DESIGN = "llama3-8b@dgx-h100:16"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("tp", "workload.tp"),
        ("workload.tp", "workload.tp"),
        ("micro_batch", "workload.micro_batch"),
        ("placement", "workload.placement"),
        ("algorithms.1", "collective.algorithms.1"),
        ("dims.0.bandwidth", "network.dims.0.bandwidth"),
        ("dims.*.bandwidth", "network.dims.*.bandwidth"),
        ("transport.efficiency", None),
        ("memory.bandwidth", "memory.bandwidth"),
        ("mla.kv_lora_rank", "model.mla.kv_lora_rank"),
        ("{dp,tp,pp}", "workload.{dp,tp,pp}"),
        ("sms", "compute.sms"),
    ],
)
def test_the_end_of_just_one_path_stands_for_it(name: str, path: str | None) -> None:
    if path is None:
        with pytest.raises(SpecError, match="write it in full"):
            full_path(name)
    else:
        assert full_path(name) == path


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("bandwidth", "could be network.dims.*.bandwidth or memory.bandwidth or memory.tiers.*.bandwidth"),
        ("topology", "could be network.dims.*.topology: write it in full"),
        ("{dp,layers}", "names fields of several layers: model, workload"),
        ("tpp", "no such field; did you mean 'tp'?"),
    ],
)
def test_a_name_that_ends_several_paths_or_none_is_refused(name: str, rule: str) -> None:
    with pytest.raises(SpecError) as caught:
        full_path(name)
    assert caught.value.rule.startswith(rule)


def test_short_names_work_in_overrides_and_in_parameter_sets() -> None:
    assert load_design(DESIGN, {"tp": 4, "recompute": "full"}).workload.tp == 4
    space = load_space({"base": DESIGN, "parameters": {"{dp,tp,pp}": {"split": "npus"}, "micro_batch": [1, 2]}})
    assert {parameter.name for parameter in space.parameters} == {"workload.{dp,tp,pp}", "workload.micro_batch"}
    derived = {"base": DESIGN, "parameters": {"tp": [1, 2]}, "derived": {"dp": "16 // tp"}}
    assert "workload.dp" in load_space(derived).derived


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"sp": 2}, "sp = 2: no such field; it is called 'cp' now"),
        ({"workload.sp": 2}, "workload.sp = 2: no such key; it is called 'cp' now"),
        ({"collective.hidden": 0.5}, "collective.hidden = 0.5: no such key; it is called 'overlap_efficiency' now"),
        ({"compute.units": 132}, "compute.units = 132: no such key; it is called 'sms' now"),
        ({"model.latent": {}}, "model.latent = {}: no such key; it is called 'mla' now"),
    ],
)
def test_an_old_key_is_answered_with_its_new_name(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(UnknownName) as caught:
        load_design(DESIGN, settings)
    assert str(caught.value) == sentence


def test_an_old_name_in_an_expression_is_answered_too() -> None:
    with pytest.raises(SpecError, match="it is called 'cp' now"):
        load_space({"base": DESIGN, "parameters": {"tp": [1, 2]}, "constraints": ["sp * tp <= 8"]}).valid  # noqa: B018


def test_every_new_name_is_there() -> None:
    keys = {part for pattern in field_patterns() for part in pattern.split(".")}
    parts = {"edp", "gemm", "launch"}  # a mesh axis, and parts of the breakdown
    assert set(RENAMED.values()) - parts <= keys
    assert not keys & (set(RENAMED) - {"hidden"})  # the model's hidden width
