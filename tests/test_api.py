"""The public names stay what they are, whatever is imported in between."""

from __future__ import annotations

import cosmic
from cosmic import evaluation


def test_evaluate_is_the_function_however_often_it_is_asked_for() -> None:
    assert cosmic.evaluate is evaluation.evaluate
    assert cosmic.evaluate is evaluation.evaluate  # a module of that name would have taken its place by now
    outcome = cosmic.evaluate(cosmic.load_design("gpt3-175b@cosmic-1024"))
    assert isinstance(outcome, cosmic.Metrics)


def test_a_batch_is_evaluated_at_once() -> None:
    import numpy as np  # noqa: PLC0415  as a user would

    space = cosmic.load_space("cosmic-1024-full-stack")
    columns = space.columns(space.sample(100, np.random.default_rng(0)))
    outcome = cosmic.evaluate_batch(cosmic.Batch(space.base, columns))
    assert 0 < outcome.feasible.sum() < 100
    assert outcome.columns["step_s"].shape == (100,)
