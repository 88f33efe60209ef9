"""What differs between two designs, and what it is worth."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations
from statistics import fmean
from typing import Any

import pytest

from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate
from cosmic.search.compare.design_differences import (
    MAX_EXACT_GROUPS,
    Contrast,
    DesignsBetween,
    Group,
    attribute_worth,
    compare_designs,
    compute_shapley,
    couple_groups,
    differing_fields,
    fine_group_of,
    state_verdict,
)
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Metrics

DESIGN = "llama3-70b@dgx-h100:512"
GROUPS: list[Group] = [("a",), ("b",), ("c",), ("d",)]


STATED = {f"workload.{key}": value for key, value in {"tp": 8, "cp": 1, "pp": 1, "weight_sharding": "zero1"}.items()}
"""The mapping of `DESIGN` here: what differs is said by each test."""
ROOMY = {"memory.capacity": "1 TiB"}
"""Memory in which all of them fit."""


def plain_design(source: str, overrides: dict[str, Any] | None = None) -> DesignPoint:
    stated = STATED if source.startswith("llama3-70b@") else {}
    return load_design(source, {**ROOMY, **stated, **(overrides or {})}, plain=True)


def contrast(overrides: dict[str, Any], other: str = DESIGN, base: str = DESIGN) -> Contrast:
    return compare_designs(plain_design(base), plain_design(other, overrides))


def product(groups: Iterable[Group]) -> float:
    """Return a value in which all groups interact: each speeds up what the others left, by its own factor."""
    left = 100.0
    for group in set(groups):
        left *= 1 - 0.1 * (ord(group[0][0]) - ord("a") + 1)
    return left


def test_worth_is_the_mean_over_all_orders() -> None:
    by_hand: dict[Group, list[float]] = {group: [] for group in GROUPS}
    for order in permutations(GROUPS):
        for place, group in enumerate(order):
            by_hand[group].append(product(order[: place + 1]) - product(order[:place]))
    worth = compute_shapley(GROUPS, product)
    assert worth is not None
    assert worth == pytest.approx({group: fmean(added) for group, added in by_hand.items()})
    assert sum(worth.values()) == pytest.approx(product(GROUPS) - product([]))


def test_many_groups_are_sampled_add_up_and_come_near_the_exact_worth() -> None:
    many: list[Group] = [(letter,) for letter in "aaabbbcccd"]
    many = [(f"{group[0]}{place}",) for place, group in enumerate(many)]
    assert len(many) > MAX_EXACT_GROUPS
    method, worth = attribute_worth(many, product)
    exact = compute_shapley(many, product)
    assert method == "sampled"
    assert exact is not None
    known = {group: part for group, part in worth.items() if part is not None}
    assert sum(known.values()) == pytest.approx(product(many) - product([]))
    assert known == pytest.approx(exact, rel=0.25)
    assert attribute_worth(many, product) == (method, worth)


def test_without_some_value_changes_are_made_first_and_last() -> None:
    def value(groups: Iterable[Group]) -> float | None:
        some = set(groups)
        return None if some == {("a",), ("b",)} else product(some)

    method, worth = attribute_worth(GROUPS, value)
    first = product([("a",)]) - product([])
    last = product(GROUPS) - product(GROUPS[1:])
    assert method == "one_at_a_time"
    assert worth[("a",)] == pytest.approx((first + last) / 2)


def test_what_has_no_value_first_or_last_has_no_worth() -> None:
    def value(groups: Iterable[Group]) -> float | None:
        return product(groups) if len(set(groups)) in (0, 4) else None

    assert attribute_worth(GROUPS, value) == ("one_at_a_time", dict.fromkeys(GROUPS))


def test_groups_that_fit_only_as_three_are_joined() -> None:
    def fits(groups: Iterable[Group]) -> bool:
        names = {name for group in groups for name in group}
        return len(names & {"a", "c", "d"}) in (0, 3)

    assert couple_groups(GROUPS, fits) == [("b",), ("a", "c", "d")]


def test_equal_designs_do_not_differ() -> None:
    found = contrast({})
    assert (found.differences, found.method) == ((), "none")
    assert state_verdict(found) == "A and B are the same design"


def test_fields_that_belong_together_are_one_group() -> None:
    changes = {"workload.tp": 4, "workload.recompute": "full", "memory.bandwidth": "6 TB/s", "collective.chunks": 2}
    found = differing_fields(plain_design(DESIGN), plain_design(DESIGN, changes))
    assert list(found) == ["mapping", "workload.recompute", "collective", "accelerator"]
    assert found["mapping"]["workload.tp"] == (8, 4)
    assert found["accelerator"] == {"memory.bandwidth": ("3.35 TB/s", "6 TB/s")}


def test_a_field_that_one_design_lacks_differs() -> None:
    found = differing_fields(plain_design(DESIGN), plain_design("llama3-70b@tpu-v5p:512"))
    assert found["network"]["network.dims.2.npus"][0] is None
    assert found["collective"]["collective.algorithms"][0] == ["auto", "auto"]


@pytest.mark.parametrize("other", ["llama3-70b@dgx-b200:512", "llama3-70b@tpu-v5p:512", "llama3-70b@dgx-h100:1024"])
def test_what_differences_are_worth_adds_up(other: str) -> None:
    found = contrast({"workload.recompute": "full"}, other)
    a, b = evaluate(found.a.point), evaluate(found.b.point)
    assert isinstance(a, Metrics)
    assert isinstance(b, Metrics)
    assert found.method == "exact"
    assert found.invalid == 0
    assert sum(each.worth_s or 0.0 for each in found.differences) == pytest.approx(b.step_s - a.step_s)
    assert sum(each.worth_share or 0.0 for each in found.differences) == pytest.approx(1)
    assert found.a.metrics["tokens_per_s"] == pytest.approx(a.tokens_per_s)
    assert sum(found.b.breakdown.values()) == pytest.approx(b.step_s)


def test_there_and_back_is_worth_the_same() -> None:
    a, b = plain_design(DESIGN), plain_design(DESIGN, {"workload.tp": 4, "workload.recompute": "full"})
    there, back = compare_designs(a, b), compare_designs(b, a)
    worth = {each.group: each.worth_s for each in there.differences}
    assert worth == pytest.approx({each.group: -(each.worth_s or 0.0) for each in back.differences})


def test_alone_is_the_change_of_a_when_only_that_is_changed() -> None:
    found = contrast({"workload.recompute": "full", "memory.bandwidth": "6 TB/s", "workload.tp": 8, "workload.pp": 2})
    alone = {each.group: each.alone_s for each in found.differences}
    only = evaluate(plain_design(DESIGN, {"memory.bandwidth": "6 TB/s"}))
    assert isinstance(only, Metrics)
    assert alone["accelerator"] == pytest.approx(only.step_s - (found.a.metrics["step_s"] or 0.0))


def test_a_mesh_and_a_network_of_another_size_change_together() -> None:
    found = contrast({}, "llama3-70b@dgx-h100:1024")
    assert [each.group for each in found.differences] == ["mapping + network"]
    assert "all of that is data parallelism 64 → 128 with network.dims.1.npus 64 → 128" in state_verdict(found)


def test_networks_of_other_dimensions_change_with_their_algorithms() -> None:
    groups = [each.group for each in contrast({}, "llama3-70b@tpu-v5p:512").differences]
    assert "collective + network" in groups


def test_designs_that_need_too_much_memory_still_have_a_time() -> None:
    mapping = {"workload.tp": 8, "workload.pp": 1, "workload.cp": 1, "workload.weight_sharding": "zero1"}
    found = contrast({**mapping, "memory.capacity": "8 GiB", "workload.recompute": "full"})
    assert [each.group for each in found.differences] == ["workload.recompute", "accelerator"]
    assert found.b.reasons[0].startswith("needs ")
    assert found.over_memory == 2
    assert state_verdict(found).startswith("A is ")


def test_a_design_that_does_not_fit_together_has_no_time() -> None:
    found = contrast({"workload.dp": 1})
    assert found.method == "none"
    assert found.b.metrics == {}
    assert {each.worth_s for each in found.differences} == {None}
    assert state_verdict(found).startswith("B has an invalid mapping, so its step has no time: dp 1")


def test_the_verdict_names_the_accelerator_not_its_fields() -> None:
    said = state_verdict(contrast({}, "llama3-70b@dgx-b200:512"))
    assert said.startswith("B is ")
    assert said.endswith("accelerator h100-sxm-80gb → b200-sxm-180gb")


def test_the_verdict_says_what_saves_and_what_adds_where_changes_oppose() -> None:
    said = state_verdict(contrast({"workload.tp": 4, "workload.recompute": "full"}))
    assert " saves " in said
    assert said.rpartition(", and ")[2].startswith("recompute none → full adds ")


def test_a_step_of_other_work_is_not_called_faster() -> None:
    said = state_verdict(contrast({"workload.global_batch": 2048}))
    assert said.startswith("a step of B takes ")
    assert said.endswith("all of that is global_batch 512 → 2048")


def test_changes_without_effect_leave_steps_equally_long() -> None:
    assert state_verdict(contrast({"model.name": "mine"})) == "A and B take equally long for a step"


def test_models_of_another_kind_are_compared() -> None:
    found = contrast({}, "dlrm-criteo@dgx-h100:8", "llama3-8b@dgx-h100:8")
    assert found.b.metrics
    assert sum(each.worth_share or 0.0 for each in found.differences) + found.together_s == pytest.approx(1)


def test_finer_groups_hold_the_same_fields() -> None:
    a = plain_design("gpt3-175b@cosmic-1024")
    b = plain_design(
        "gpt3-175b@cosmic-1024",
        {
            "network.dims.0.bandwidth": "50 GB/s",
            "network.dims.0.topology": "fully_connected",
            "collective.chunks": 16,
            "collective.algorithms": ["direct", "direct", "ring", "ring"],
        },
    )
    coarse, fine = differing_fields(a, b), differing_fields(a, b, fine_group_of)
    assert set(fine) == {
        "network bandwidth",
        "network shape",
        "collective algorithms",
        "collective chunks and order",
    }
    assert set(coarse) == {"network", "collective"}
    paths = [{path for group in some.values() for path in group} for some in (coarse, fine)]
    assert paths[0] == paths[1]


def test_any_metric_can_be_attributed_and_groups_of_one_layer_change_apart() -> None:
    a = plain_design("gpt3-175b@cosmic-1024")
    changes = {"network.dims.0.bandwidth": "50 GB/s", "network.dims.3.topology": "ring"}
    b = plain_design("gpt3-175b@cosmic-1024", changes)
    between = DesignsBetween(a, b, differing_fields(a, b, fine_group_of), lambda metrics: metrics["network_usd"])
    for group, (path, value) in zip(("network bandwidth", "network shape"), changes.items(), strict=True):
        alone = evaluate(plain_design("gpt3-175b@cosmic-1024", {path: value}))
        assert isinstance(alone, Metrics)
        assert between.value([(group,)]) == pytest.approx(alone.network_usd)
    both = evaluate(b)
    assert isinstance(both, Metrics)
    assert between.value([("network bandwidth",), ("network shape",)]) == pytest.approx(both.network_usd)


def test_a_pool_that_one_deployment_lacks_changes_with_the_mapping() -> None:
    load = {"serving.load.isl": 1000, "serving.load.osl": 200}
    one = load_design("llama3-8b@dgx-h100:8", {"tp": 2, "dp": 4, "pp": 1, **load, "serving.load.concurrency": 16})
    pools = {"serving.prefill.replicas": 1, "serving.prefill.tp": 2}
    two = load_design(
        "llama3-8b@dgx-h100:8", {"tp": 2, "dp": 3, "pp": 1, **load, "serving.load.concurrency": 64, **pools}
    )
    fields = differing_fields(one, two, fine_group_of)
    between = DesignsBetween(one, two, fields, lambda metrics: metrics["tokens_per_s"])
    groups = couple_groups([(name,) for name in fields], between.fits)
    assert sorted(sorted(each) for each in groups) == [["load"], ["mapping", "prefill pool"]]
    assert between.value(()) == pytest.approx(evaluated(one).tokens_per_s)
    assert between.value(groups) == pytest.approx(evaluated(two).tokens_per_s)
    found = compare_designs(one, two)
    assert found.a.metrics["tokens_per_s"] == pytest.approx(evaluated(one).tokens_per_s)


def evaluated(point: DesignPoint) -> Metrics:
    outcome = evaluate(point)
    assert isinstance(outcome, Metrics)
    return outcome


def test_places_of_dimensions_that_a_machine_does_not_have_do_not_differ() -> None:
    """Designs of a search over machines have as many places as the machine with most dimensions."""
    point = plain_design("llama3-8b@dgx-h100:16", {"tp": 1})
    assert differing_fields(point, point.padded(4)) == {}
