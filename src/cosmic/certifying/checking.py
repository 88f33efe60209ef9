"""Checks a certificate with code of its own: the closed form is shared, bounding and branching are not.

What is checked, of a certificate that designs were bounded:

    the same space, model, objectives and limits, and designs that achieve what it says
    every design is in exactly one leaf, stands behind an option that dominates its own, or cannot run
    an option that stands for another has no more links, traffic, dollars and watts, in any collective that a step has
    no leaf has a bound below what is claimed; a bound is put together from two evaluations, of its fastest design and
    of its cheapest
    monotone    in every skeleton, designs along random ladders of worsening networks are never faster
    trials      random designs, those inside leaves, and all neighbours of the best are not better

The first four are proofs, given that steps are monotone; the last two try to falsify it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.certifying.certificate import check_form, content_of, model_digest, read_certificate
from cosmic.certifying.checking_enumerated import check_blocks
from cosmic.certifying.checking_leaves import Leaves
from cosmic.certifying.checking_options import check_options
from cosmic.certifying.checking_parts import Refused, is_whole, refuse_unless
from cosmic.errors import CosmicError, SpecError
from cosmic.exploration.objectives import losses as losses_of
from cosmic.exploration.pareto import front
from cosmic.exploration.problem import Problem, make_problem
from cosmic.psa.files import load_space
from cosmic.psa.space import ParameterSet

Floats = npt.NDArray[np.float64]
TRIALS = 200_000
"""Random designs that are tried."""
EQUAL = 1e-12
"""Share by which rounding may move a number that is put together in another way."""


def check_certificate(given: str | Path | Mapping[str, Any], space: ParameterSet | None = None) -> list[str]:
    """Return what was checked of a certificate, a sentence each; raise `Refused` if something does not hold.

    *space* is needed only for a set that no file describes.
    """
    found = check_form(dict(given)) if isinstance(given, Mapping) else read_certificate(given)
    problem = _problem(found, space)
    said = [_check_front(found, problem)]
    if found["method"] == "enumerated":
        return [*said, *check_blocks(found, problem)]
    leaves = Leaves(found, problem)
    said.append(leaves.check_able())
    said.append(check_options(leaves))
    said.append(leaves.check_coverage())
    said.append(leaves.check_bounds())
    said.append(leaves.check_ladders())
    said.append(leaves.check_trials(TRIALS))
    if found["within"] is not None:
        said.append(leaves.check_count())
    return said


def _problem(found: Mapping[str, Any], space: ParameterSet | None) -> Problem:
    """Return the problem that a certificate is about, if it is what it says and the model is ours."""
    stated = found["space"]
    refuse_unless(found["model"] == model_digest(), "it was made with another version of the model")
    if space is None:
        refuse_unless(isinstance(stated.get("source"), dict), "it does not say what its space is: state the space")
        try:
            space = load_space(stated["source"])
        except CosmicError as error:
            raise Refused(f"its space cannot be read: {error}") from None
    ours = content_of(space)
    for key in ("identity", "designs", "parameters", "derived", "constraints"):
        refuse_unless(stated.get(key) == ours[key], f"its space differs from the one it names in its {key}")
    try:
        extra = [text for text in found["limits"] if text not in space.limits]
        problem = make_problem(space, found["objectives"], extra)
    except (CosmicError, TypeError) as error:
        raise Refused(f"its objectives or limits make no sense: {error}") from None
    refuse_unless([each.text for each in problem.limits] == found["limits"], "its limits are not those of its space")
    return problem


def _check_front(found: Mapping[str, Any], problem: Problem) -> str:
    """Check that the designs of the certificate achieve what it says, and that none is better than another."""
    count, width = len(problem.objectives), len(problem.space.parameters)
    shaped = all(
        isinstance(each, dict)
        and isinstance(each.get("row"), list)
        and isinstance(each.get("losses"), list)
        and len(each["row"]) == width
        and len(each["losses"]) == count
        and is_whole(each["row"])
        and all(type(value) in (int, float) for value in each["losses"])
        for each in found["front"]
    )
    refuse_unless(shaped, "its designs are malformed")
    refuse_unless(type(found["slack"]) is float and 1e-9 <= found["slack"] < 1, "its slack is no share")
    if not found["front"]:
        refuse_unless(found["lower"] is None and found["gap"] is None, "it states a bound without a design")
        return "it says that no design can run"
    rows = np.array([each["row"] for each in found["front"]], dtype=np.intp)
    stated = np.array([each["losses"] for each in found["front"]], dtype=np.float64)
    refuse_unless(bool(problem.space.contains(rows).all()), "its best design is not in the space")
    results = problem.evaluate(rows)
    refuse_unless(bool(results.feasible.all()), "its best design cannot run")
    refuse_unless(
        bool((losses_of(problem.objectives, results.columns) == stated).all()),
        "its best design achieves something else",
    )
    refuse_unless(
        bool(front(stated).all()) and len(np.unique(stated, axis=0)) == len(stated),
        "one of its designs is better than another",
    )
    said = "1 design achieves" if len(rows) == 1 else f"{len(rows)} designs achieve"
    return f"{said} what is claimed, to the bit"


__all__ = ["Refused", "SpecError", "check_certificate"]
