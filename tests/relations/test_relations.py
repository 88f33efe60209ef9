"""Metamorphic relations over random designs: `benchmarks/metamorphic.py` checks the same on thousands."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cosmic.design import schema
from cosmic.design.design_batch import Batch
from cosmic.design.design_point import DesignPoint
from cosmic.design.loading import parse_overrides
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.analytic_step import StepSeconds, compute_step_seconds
from tests.relations import hardware_relations
from tests.relations.all_relations import RELATIONS
from tests.relations.known import KNOWN
from tests.relations.metamorphic import (
    Finding,
    RelatedAnswer,
    at_least,
    at_most,
    command_of,
    comparison,
    settings_of,
    stays_equal,
    stays_feasible,
)
from tests.relations.random_designs import FAMILIES, TASKS, random_design, tasks_of
from tests.relations.work_relations import more_sequences

EXAMPLES = 15
COSTLY = {"larger model", "padding", "sharded states", "batch", "names", "engines agree"}
"""Relations whose every example takes long: other models and shardings are planned anew, whole steps simulated."""
FEW = 5
POOL = 3
"""Designs of each family and task."""
PHASES = (Phase.explicit, Phase.generate)  # a seed has no simpler one


@cache
def drawn(family: str, task: str, place: int) -> DesignPoint:
    """Return a design, drawn once for all relations: its plan is worked out once."""
    chosen = task if task in tasks_of(family) else "prefill"
    return random_design(Random(f"{family} {task} {place}"), family=family, task=chosen)


designs = st.builds(
    drawn, st.sampled_from(sorted(set(FAMILIES))), st.sampled_from(sorted(set(TASKS))), st.integers(0, POOL - 1)
)


@pytest.mark.long
@pytest.mark.parametrize("name", RELATIONS)
def test_a_relation_holds(name: str) -> None:
    if name in KNOWN:
        pytest.skip(KNOWN[name])
    examples = FEW if name in COSTLY or "simulated" in name else EXAMPLES

    @settings(max_examples=examples, derandomize=True, database=None, phases=PHASES)
    @given(point=designs, seed=st.integers(0, 99))
    def holds(point: DesignPoint, seed: int) -> None:
        assert [str(each) for each in RELATIONS[name].violations(point, Random(seed))] == []

    holds()


def test_only_relations_that_exist_are_known_to_be_contradicted() -> None:
    assert set(KNOWN) <= set(RELATIONS)
    assert all(reason.strip() for reason in KNOWN.values())


# ---- commands


def read(command: str) -> DesignPoint:
    """Return the design that a command evaluates."""
    _, _, source, *options = shlex.split(command)
    return load_design(source, parse_overrides([option for option in options if option != "--set"]), plain=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_a_command_gives_the_design_again(seed: int) -> None:
    point = random_design(Random(seed))
    found = read(command_of(point))
    assert schema.assign_fields(found, {"memory.capacity": point.memory.capacity_bytes}) == point


def test_a_change_is_given_as_options() -> None:
    point = random_design(Random(1), task="training")
    changed = point.changed({"workload.micro_batch": 8, "memory.bandwidth": 1e12})
    options = settings_of(point, changed)
    assert options == "--set micro_batch=8 --set 'memory.bandwidth=1 TB/s'"
    assert schema.assign_fields(read(f"{command_of(point)} {options}"), {"memory.capacity": 1e9}) == changed.changed(
        {"memory.capacity": 1e9}
    )


# ---- relations find what is wrong


def answer(step_s: float, memory_bytes: float = 1.0, excess: float = 0.0) -> RelatedAnswer:
    return RelatedAnswer({"step_s": step_s, "memory_bytes": memory_bytes}, excess)


def texts(findings: Iterable[Finding]) -> list[str]:
    return [each.text for each in findings]


def test_laws_find_what_breaks_them() -> None:
    slower = texts(at_most("step_s")(answer(1.0), answer(1.5)))
    assert slower == ["step_s 1 -> 1.5"]
    assert texts(at_most("step_s")(answer(1.5), answer(1.0))) == []
    assert texts(at_least("step_s")(answer(1.5), answer(1.0))) == ["step_s 1.5 -> 1"]
    assert texts(at_least("step_s")(answer(1.0), answer(1.0))) == []
    assert texts(stays_equal("step_s")(answer(1.0), answer(1.0 + 1e-6))) == ["step_s 1 -> 1"]
    assert texts(stays_equal("step_s")(answer(1.0), answer(1.0))) == []
    assert texts(stays_feasible(answer(1.0), answer(1.0, excess=0.5))) == [
        "fitted, now needs 50 % more memory than there is"
    ]
    assert texts(stays_feasible(answer(1.0, excess=0.5), answer(1.0, excess=0.6))) == []


def test_a_comparison_finds_a_law_that_does_not_hold() -> None:
    """Twice the sequences are slower, so the wrong law is contradicted; the command shows the design."""
    wrong = comparison("wrong", "More work is faster.", more_sequences, at_most("step_s"))
    point = load_design(
        "llama3-8b@dgx-h100:8", {"tp": 1, "cp": 1, "pp": 1, "global_batch": 8, "sequence": 2048}, plain=True
    )
    found = wrong.violations(point, Random(0))
    assert len(found) == 2
    assert found[0].command.startswith("cosmic evaluate llama3-8b@dgx-h100:8 --set task=training --set dp=8 ")
    assert found[0].changed == "--set global_batch=16"
    assert found[0].relation == "wrong"
    assert 0.2 < found[0].finding.size < 0.6
    assert str(found[0]).startswith("wrong: step_s ")


def test_a_design_that_does_not_fit_is_shown_with_room() -> None:
    point = load_design("llama3-70b@dgx-h100:8", {"tp": 1, "cp": 1, "pp": 1, "weight_sharding": "none"}, plain=True)
    assert command_of(point).endswith("--set 'memory.capacity=1e15 B'")


def test_a_step_that_is_shorter_though_collectives_take_longer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if what is exposed were taken from the step instead of added to it."""
    point = load_design("llama3-8b@dgx-h100:8", {"tp": 8, "sequence": 512, "global_batch": 8})
    relation = RELATIONS["longer collectives"]
    assert relation.violations(point, Random(0)) == []
    assert relation.violations(load_design("llama3-8b@dgx-h100:1"), Random(0)) == []  # there are none

    def falls(batch: Batch) -> StepSeconds:
        found = compute_step_seconds(batch)
        return replace(found, seconds=100 - found.seconds)

    monkeypatch.setattr(hardware_relations, "compute_step_seconds", falls)
    found = relation.violations(point, Random(0))
    assert {each.finding.text.split(" where ")[1] for each in found} >= {
        "tp of forward take longer",
        "tp of backward take longer",
        "all of them take longer",
    }
    assert all(each.command == command_of(point) and each.finding.size > 0 for each in found)


def test_links_are_bettered_in_every_dimension_and_in_every_order_of_chunks() -> None:
    point = load_design("gpt3-13b@cosmic-512")
    changes = hardware_relations.in_some_order(point, Random(1))
    assert len(changes) % 2 == 0
    pairs = list(zip(changes[::2], changes[1::2], strict=True))
    assert all(set(before) == {"collective.multi_dim", "collective.chunks"} for before, _ in pairs)
    changed = [next(iter(set(after) - set(before))) for before, after in pairs]
    assert {f"network.dims.{place}.bandwidth" for place in range(len(point.network.dims))} <= set(changed)
    assert {f"network.dims.{place}.latency" for place in range(len(point.network.dims))} <= set(changed)
    assert hardware_relations.in_some_order(load_design("llama3-8b@dgx-h100:1"), Random(1)) == []
