"""Proves the optimum of a parameter set: the one composition of this package. Read this first.

space ──▶ bounded: skeletons, dominance, boxes      where corners are shown to bound boxes
      └─▶ enumerated: every design                  elsewhere, if there are few enough
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import Any

import numpy as np

from cosmic.certifying import certificate as files
from cosmic.certifying.branching import Best, Outcome, Progress, Tree, branch, roots
from cosmic.certifying.counting import count_within
from cosmic.certifying.enumerating import BLOCK, MOST, Block, count_blocks, enumerate_all
from cosmic.certifying.intervals import Floats
from cosmic.certifying.judging import Judging
from cosmic.certifying.programs import NotProvable
from cosmic.errors import SpecError, require
from cosmic.evaluation import BETTER
from cosmic.exploration.problem import Problem, Results, make_problem
from cosmic.exploration.workers import check_workers, evaluator
from cosmic.psa.diagram import Indices
from cosmic.psa.files import load_space
from cosmic.psa.space import ParameterSet

LIMIT_S = 600.0
Told = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Certified:
    """What was proven of a parameter set. It is a statement about the closed form, not about a machine."""

    problem: Problem
    method: str
    """``bounded``, or ``enumerated`` where every design was evaluated."""
    why: str
    """Why designs were enumerated; empty where they were not."""
    proven: bool
    """Whether nothing is better by more than the gap that was asked for."""
    rows: Indices
    """The best design, or the front of several objectives: a row each, none if no design can run."""
    losses: Floats
    gap: float | None
    """By what share something may be better than the best; None with several objectives that are not proven."""
    within: tuple[float, int | None] | None
    """A share, and how many designs are within it of the best; None for a count that time ran out for."""
    good: Indices
    """The best designs that were met, a row each, the best first: the front, if there are several objectives."""
    judged: int
    """Boxes and designs that were evaluated."""
    seconds: float
    certificate: dict[str, Any]

    @cached_property
    def results(self) -> Results:
        """The metrics of the best designs."""
        return self.problem.evaluate(self.rows)

    @property
    def feasible(self) -> bool:
        """Whether any design can run."""
        return len(self.rows) > 0


def certify(  # noqa: PLR0913  one option each
    space: str | ParameterSet,
    objectives: Sequence[str] = (),
    constraints: Sequence[str] = (),
    *,
    gap: float = 0.0,
    within: float | None = None,
    limit_s: float = LIMIT_S,
    workers: int = 1,
    told: Told = lambda _: None,
) -> Certified:
    """Return the proven best design of *space*, or the proven front of several objectives, with a certificate.

    *gap* is the share by which something better may be missed (1e-9 in any case), *within* asks for the number of
    designs that are within a share of the best, *limit_s* ends the search with what is proven by then.
    """
    require(0 <= gap < 1, "gap", gap, "is a share: 0 or more, below 1")
    require(within is None or 0 <= within < 1, "within", within, "is a share: 0 or more, below 1")
    require(0 < limit_s < 1e9, "limit", limit_s, "must be a number of seconds above 0")
    check_workers(workers)
    problem = make_problem(space if isinstance(space, ParameterSet) else load_space(space), objectives, constraints)
    rule = "its bandwidth is provisioned, which is searched and not proven: go through it with cosmic search"
    require(problem.space.provisioner is None, "space", problem.space.name, rule)
    require(within is None or len(problem.objectives) == 1, "within", within, "is asked of one objective")
    started = monotonic()
    run = _Run(problem, gap, within, started, started + limit_s, workers, told)
    try:
        judging = Judging(problem)
        told("showing that corners bound boxes")
        judging.prove()
    except NotProvable as reason:
        return run.enumerated(str(reason))
    return run.bounded(judging)


@dataclass(frozen=True)
class _Run:
    problem: Problem
    gap: float
    within: float | None
    started: float
    until: float
    workers: int
    told: Told

    def _best(self) -> Best:
        return Best.none(len(self.problem.objectives), len(self.problem.space.parameters), self.gap)

    # ------------------------------------------------------------------------------------------- bounded

    def bounded(self, judging: Judging) -> Certified:
        """Return what branch and bound proves."""
        start = roots(judging.division, judging.dominances)
        best = self._best()
        with judging.workers(self.workers):
            found = branch(judging.division, start, judging.judge, best, self.until, self._tell)
            counted = None
            if self.within is not None and len(found.best.losses):
                self.told(f"counting designs within {100 * self.within:g} %")
                most = threshold(self.problem, float(found.best.losses[0, 0]), self.within)
                late = self.until if found.done else 0.0
                counted = count_within(start, judging.dominances, judging.judge, judging.worst, most, late)
        proof = {
            "ranges": [{"column": each.column, "indices": each.indices.tolist()} for each in judging.division.ranges],
            "choices": [
                {"columns": list(each.columns), "options": each.options.tolist()} for each in judging.division.choices
            ],
            "able": files.pack_bits(_able(judging)),
            "dominance": _dominance(judging),
            "tree": files.pack_bits(np.concatenate([*found.tree.splits, np.zeros(0, dtype=bool)])),
        }
        lower = None if len(self.problem.objectives) > 1 else found.lower
        return self._certified("bounded", "", found, lower, counted, proof)

    def _tell(self, progress: Progress) -> None:
        known = progress.best.losses
        said = f"round {progress.rounds + 1}: {progress.judged:,} boxes judged, {progress.open:,} open"
        self.told(f"{said}, best {_value(self.problem, known[0]) if len(known) else 'none'}")

    # ---------------------------------------------------------------------------------------- enumerated

    def enumerated(self, why: str) -> Certified:
        """Return what going through all designs proves."""
        space = self.problem.space
        if space.valid > MOST:
            raise SpecError(
                "space",
                space.name,
                f"has {space.valid:.3g} designs, too many to go through, and cannot be bounded: {why}",
            )
        best = self._best()

        def tell(done: int, best: Best) -> None:
            said = f"{done:,} of {space.valid:,} designs"
            self.told(f"{said}, best {_value(self.problem, best.losses[0]) if len(best.losses) else 'none'}")

        with evaluator(self.problem, self.workers) as evaluate:
            blocks = enumerate_all(self.problem, evaluate, best, self.until, tell)
            whole = len(blocks) * BLOCK >= space.valid
            counted = None
            if self.within is not None and len(best.losses) and whole:
                counted = count_blocks(
                    self.problem, evaluate, blocks, threshold(self.problem, float(best.losses[0, 0]), self.within)
                )
        one = len(self.problem.objectives) == 1
        lower = (float(best.losses[0, 0]) if whole else 0.0) if one and len(best.losses) else None
        found = Outcome(best, Tree(), lower or 0.0, min(len(blocks) * BLOCK, space.valid), whole)
        return self._certified("enumerated", why, found, lower, counted, {"blocks": [_row(each) for each in blocks]})

    # ----------------------------------------------------------------------------------------- the result

    def _certified(
        self, method: str, why: str, found: Outcome, lower: float | None, counted: int | None, proof: dict[str, Any]
    ) -> Certified:
        best, problem = found.best, self.problem
        gap = _gap(best, lower, found.done)
        asked = None if self.within is None else (self.within, counted)
        content = {
            "kind": files.KIND,
            "format": files.FORMAT,
            "method": method,
            "space": files.content_of(problem.space),
            "model": files.model_digest(),
            "objectives": list(problem.objectives),
            "limits": [each.text for each in problem.limits],
            "front": [
                {"row": row.tolist(), "losses": losses.tolist()}
                for row, losses in zip(best.rows, best.losses, strict=True)
            ],
            "lower": lower if lower is not None and np.isfinite(lower) else None,
            "gap": gap,
            "slack": best.gap,
            "proven": found.done,
            "within": None if asked is None else {"share": asked[0], "count": asked[1]},
            **proof,
        }
        seconds = monotonic() - self.started
        good = best.rows if best.met is None else best.met[1]
        return Certified(
            problem, method, why, found.done, best.rows, best.losses, gap, asked, good, found.judged, seconds, content
        )


def proven_loss(problem: Problem, limit_s: float = LIMIT_S) -> float | None:
    """Return the least loss of a problem of one objective; None where it cannot be proven in that time."""
    if len(problem.objectives) > 1 or problem.engine != "analytic":
        return None
    limits = [each.text for each in problem.limits if each.text not in problem.space.limits]
    try:
        found = certify(problem.space, problem.objectives, limits, limit_s=limit_s)
    except SpecError:
        return None
    return float(found.losses[0, 0]) if found.proven and found.feasible else None


def threshold(problem: Problem, best: float, share: float) -> float:
    """Return the loss of a design that is a share worse than the best: of a time so much more, of a rate so much less.

    >>> from types import SimpleNamespace as Any
    >>> threshold(Any(objectives=("step_s",)), 2.0, 0.5), threshold(Any(objectives=("mfu",)), 2.0, 0.5)
    (3.0, 4.0)
    """
    return best * (1 + share) if BETTER[problem.objectives[0]] == "less" else best / (1 - share)


def _gap(best: Best, lower: float | None, done: bool) -> float | None:
    """Return by what share something may be better than the best."""
    if not len(best.losses):
        return None
    if lower is None:
        return best.gap if done else None
    return max(0.0, 1 - lower / float(best.losses[0, 0])) if best.losses[0, 0] else 0.0


def _value(problem: Problem, losses: Floats) -> str:
    names = zip(problem.objectives, losses.tolist(), strict=True)
    return ", ".join(f"{name} {each if BETTER[name] == 'less' else 1 / each:.6g}" for name, each in names)


def _row(block: Block) -> list[Any]:
    return [block.digest, *(None if not np.isfinite(each) else each for each in block.least)]


def _able(judging: Judging) -> Any:
    able = np.zeros(judging.division.count, dtype=bool)
    for each in judging.boundings:
        able[each.group.skeletons] = True
    return able


def _dominance(judging: Judging) -> list[dict[str, Any]]:
    """Return for each choice the tables of which option stands for which, and the table of each able skeleton."""
    numbers = np.cumsum(_able(judging)) - 1
    found = []
    for choice in range(len(judging.division.choices)):
        which = np.zeros(int(numbers[-1]) + 1, dtype=np.intp)
        known: dict[tuple[int, ...], int] = {}
        for skeletons, each in judging.dominances:
            rows = [known.setdefault(tuple(row), len(known)) for row in each[choice].stands.tolist()]
            which[numbers[skeletons]] = np.array(rows, dtype=np.intp)[each[choice].which] if len(skeletons) else 0
        found.append({"tables": [list(each) for each in known], "which": files.pack_bytes(which)})
    return found
