"""Batches: designs that differ in lists of any length fall into groups that agree."""

from __future__ import annotations

import numpy as np

from cosmic.design.design_batch import Batch, number_values
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.space_files import load_space


def lists(*values: tuple[str, ...]) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def test_lists_of_different_lengths_are_distinct() -> None:
    count, numbers = number_values(lists((), ("a",), ("a", "b"), ("a",)))
    assert count == 3
    assert numbers[1] == numbers[3]
    assert len(set(numbers.tolist())) == 3


def test_a_batch_over_lists_is_worth_what_its_designs_are() -> None:
    base = load_design("llama3-8b@dgx-h100:16", {"workload.tp": 4, "workload.sequence_parallel": False})
    choices = ((), ("gspmd_2d",))
    together = evaluate_batch(Batch(base, {"workload.strategies": lists(*choices)})).columns["step_s"]
    alone = [evaluate(base.changed({"workload.strategies": choice})) for choice in choices]
    assert together.tolist() == [getattr(each, "step_s", None) for each in alone]
    assert together[0] != together[1]


def test_a_batch_over_algorithms_of_one_dimension_can_be_searched() -> None:
    base = {"model": "gpt3-175b", "system": "gb200-nvl72:24", "workload": {"tp": 12, "dp": 2, "sequence": 1536}}
    space = load_space({"base": base, "parameters": {"collective.algorithms.*": ["ring", "direct"]}})
    rows = np.array(list(space.enumerate()))
    steps = evaluate_batch(Batch(space.base, space.columns(rows))).columns["step_s"]
    assert steps.tolist() == [getattr(evaluate(space.point(row)), "step_s", None) for row in rows]
