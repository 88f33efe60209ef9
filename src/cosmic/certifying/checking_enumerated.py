"""Checks a certificate of designs that were all evaluated: again, or some blocks of them."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.certifying.checking_parts import refuse_unless
from cosmic.evaluation import BETTER
from cosmic.exploration.problem import Problem

BLOCK = 2**17
"""Designs of a block, as certificates have them."""
ALL = 24
"""Blocks up to which all are evaluated again."""
SOME = 12


def check_blocks(found: Mapping[str, Any], problem: Problem) -> list[str]:
    """Return what was checked of the blocks."""
    objectives, valid = len(problem.objectives), problem.space.valid
    blocks, whole = found["blocks"], -(-valid // BLOCK)
    shaped = all(isinstance(each, list) and len(each) == 1 + objectives and isinstance(each[0], str) for each in blocks)
    refuse_unless(
        shaped and all(type(v) in (int, float, type(None)) for each in blocks for v in each[1:]), "a block is malformed"
    )
    refuse_unless(len(blocks) == whole or not found["proven"], "it has not as many blocks as the space")
    refuse_unless(0 < len(blocks) <= whole, "it has not as many blocks as the space")
    least = np.array([[np.inf if each is None else each for each in block[1:]] for block in blocks], dtype=np.float64)
    best = np.array([each["losses"] for each in found["front"]], dtype=np.float64).reshape(-1, objectives)
    lowest = best.min(axis=0) if len(best) else np.full(objectives, np.inf)
    refuse_unless(
        bool((least.min(axis=0) == lowest).all()), "its blocks have something better than its best, or nothing as good"
    )
    chosen = _chosen(least, len(blocks))
    counts = {}
    for number in chosen:
        losses = _losses(problem, number)
        refuse_unless(_digest(losses) == blocks[number][0], "a block of designs achieves something else")
        refuse_unless(bool((losses.min(axis=0) == least[number]).all()), "a block has another least loss")
        covered = np.isinf(losses).any(axis=1)
        for each in best:
            covered |= (losses >= each).all(axis=1)
        refuse_unless(bool(covered.all()), "a design that was tried is better than the best")
        counts[number] = losses[:, 0]
    said = [f"{len(chosen)} of {len(blocks)} blocks of designs were evaluated again, to the bit"]
    if objectives == 1:
        _check_gap(found, best)
    if found["within"] is not None and found["within"].get("count") is not None and found["front"]:
        said.append(_check_count(found, problem, least[:, 0], best))
    return said


def _check_gap(found: Mapping[str, Any], best: npt.NDArray[np.float64]) -> None:
    if found["proven"] and len(best):
        refuse_unless(
            found["lower"] == float(best[0, 0]) and found["gap"] == 0, "its gap does not follow from its blocks"
        )


def _check_count(found: Mapping[str, Any], problem: Problem, least: Any, best: Any) -> str:
    share = found["within"].get("share")
    refuse_unless(type(share) is float and 0 <= share < 1, "its share is no share")
    less = BETTER[problem.objectives[0]] == "less"
    most = float(best[0, 0]) * (1 + share) if less else float(best[0, 0]) / (1 - share)
    near = np.flatnonzero(least <= most).tolist()
    total = sum(int(np.count_nonzero(_losses(problem, number)[:, 0] <= most)) for number in near)
    refuse_unless(total == found["within"]["count"], f"{total:,} designs are within {100 * share:g} % of the best")
    return f"{total:,} designs are within {100 * share:g} % of the best"


def _chosen(least: npt.NDArray[np.float64], count: int) -> list[int]:
    """Return the blocks that are evaluated again: all of few, else the best ones and some others."""
    if count <= ALL:
        return list(range(count))
    others = np.random.default_rng(5).choice(count, SOME, replace=False).tolist()
    return sorted({*others, *least.argsort(axis=0)[:SOME].reshape(-1).tolist()})


def _losses(problem: Problem, number: int) -> npt.NDArray[np.float64]:
    start = number * BLOCK
    results = problem.evaluate(problem.space.listed(start, min(BLOCK, problem.space.valid - start)))
    with np.errstate(all="ignore"):
        columns = [
            results.columns[name] if BETTER[name] == "less" else 1 / results.columns[name]
            for name in problem.objectives
        ]
    found = np.stack(columns, axis=1)
    found[~results.feasible | np.isnan(found).any(axis=1)] = np.inf
    return found


def _digest(losses: npt.NDArray[np.float64]) -> str:
    return sha256(np.ascontiguousarray(losses, dtype="<f8").tobytes()).hexdigest()[:16]
