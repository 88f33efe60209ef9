"""Proves the optimum of a parameter set: the one composition of this package. Read this first.

space ──▶ bounded: skeletons, dominance, boxes      where corners are shown to bound boxes
      └─▶ enumerated: every design                  elsewhere, if there are few enough

Enumerated designs are evaluated in blocks; of each block the certificate keeps the least losses and a digest of all of
them, so that any block can be checked by itself. A proof is about the closed form alone: `simulate_best` says what the
event engine gives for the designs that the closed form calls best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import Any

import numpy as np

from cosmic.base.caching import digest
from cosmic.base.errors import CosmicError, SpecError, require
from cosmic.evaluation import evaluate
from cosmic.search.certify import certificate as files
from cosmic.search.certify.branch_and_bound import (
    Best,
    BranchingProgress,
    Judging,
    Outcome,
    Tree,
    count_within,
    prove_boxes,
    root_boxes,
)
from cosmic.search.certify.interval_arithmetic import Floats
from cosmic.search.certify.skeletons import NotProvable
from cosmic.search.objectives import losses as losses_of
from cosmic.search.problem import Problem, Results, make_problem
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.search.worker_pools import Evaluate, check_workers, open_evaluator
from cosmic.simulate.metrics import BETTER, Metrics

# --------------------------------------------------------------------------------------
# Goes through every design of a set: what is proven is what was seen
# --------------------------------------------------------------------------------------

BLOCK = 2**17
"""Designs of a block."""
MOST_ENUMERATED = 200_000_000
"""Designs that are gone through, at most."""


@dataclass(frozen=True)
class DesignBlock:
    """Consecutive designs, in the order of the set."""

    least: tuple[float, ...]
    """The least of each loss; infinite where none can run."""
    digest: str


def compute_block_losses(problem: Problem, evaluate: Evaluate, number: int) -> tuple[Indices, Floats]:
    """Return the rows of a block, and their losses: infinite for a design that cannot run."""
    start = number * BLOCK
    rows = problem.space.listed(start, min(BLOCK, problem.space.valid - start))
    results = evaluate(rows)
    found = losses_of(problem.objectives, results.columns)
    found[~results.feasible | np.isnan(found).any(axis=1)] = np.inf
    return rows, found


def summarise_block(losses: Floats) -> DesignBlock:
    """Return what is kept of a block's losses."""
    return DesignBlock(tuple(losses.min(axis=0).tolist()), digest(losses.astype("<f8").tobytes())[:16])


def enumerate_all(
    problem: Problem,
    evaluate: Evaluate,
    best: Best,
    until: float = np.inf,
    told: Callable[[int, Best], None] = lambda *_: None,
) -> list[DesignBlock]:
    """Return the blocks of all designs; fewer where time runs out. *best* learns what is best among them."""
    blocks: list[DesignBlock] = []
    for number in range(-(-problem.space.valid // BLOCK)):
        if blocks and monotonic() > until:
            break
        try:
            rows, losses = compute_block_losses(problem, evaluate, number)
        except KeyboardInterrupt:
            if not blocks:
                raise
            break
        best.offer(losses, rows.__getitem__)
        blocks.append(summarise_block(losses))
        told(number * BLOCK + len(rows), best)
    return blocks


def count_blocks(problem: Problem, evaluate: Evaluate, blocks: list[DesignBlock], most: float) -> int:
    """Return how many designs have a loss of at most *most*; blocks that have none are not looked at again."""
    near = [number for number, block in enumerate(blocks) if block.least[0] <= most]
    return sum(
        int(np.count_nonzero(compute_block_losses(problem, evaluate, number)[1][:, 0] <= most)) for number in near
    )


# --------------------------------------------------------------------------------------
# Proves the optimum of a parameter set: the one composition of this package. Read this first
# --------------------------------------------------------------------------------------

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
        start = root_boxes(judging.division, judging.dominances)
        best = self._best()
        with judging.workers(self.workers):
            found = prove_boxes(judging.division, start, judging.judge, best, self.until, self._tell)
            counted = None
            if self.within is not None and len(found.best.losses):
                self.told(f"counting designs within {100 * self.within:g} %")
                most = loss_threshold(self.problem, float(found.best.losses[0, 0]), self.within)
                late = self.until if found.done else 0.0
                counted = count_within(start, judging.dominances, judging.judge, judging.worst, most, late)
        proof = {
            "ranges": [{"column": each.column, "indices": each.indices.tolist()} for each in judging.division.ranges],
            "choices": [
                {"columns": list(choice.columns), "options": choice.options.tolist()}
                for choice in judging.division.choices
            ],
            "able": files.pack_bits(_skeletons_that_run(judging)),
            "dominance": _dominance(judging),
            "tree": files.pack_bits(np.concatenate([*found.tree.splits, np.zeros(0, dtype=bool)])),
        }
        lower = None if len(self.problem.objectives) > 1 else found.lower
        return self._certified("bounded", "", found, lower, counted, proof)

    def _tell(self, progress: BranchingProgress) -> None:
        known = progress.best.losses
        said = f"round {progress.rounds + 1}: {progress.judged:,} boxes judged, {progress.open:,} open"
        self.told(f"{said}, best {_metric_value(self.problem, known[0]) if len(known) else 'none'}")

    # ---------------------------------------------------------------------------------------- enumerated

    def enumerated(self, why: str) -> Certified:
        """Return what going through all designs proves."""
        space = self.problem.space
        if space.valid > MOST_ENUMERATED:
            raise SpecError(
                "space",
                space.name,
                f"has {space.valid:.3g} designs, too many to go through, and cannot be bounded: {why}",
            )
        best = self._best()

        def tell(done: int, best: Best) -> None:
            said = f"{done:,} of {space.valid:,} designs"
            self.told(f"{said}, best {_metric_value(self.problem, best.losses[0]) if len(best.losses) else 'none'}")

        with open_evaluator(self.problem, self.workers) as evaluate:
            blocks = enumerate_all(self.problem, evaluate, best, self.until, tell)
            whole = len(blocks) * BLOCK >= space.valid
            counted = None
            if self.within is not None and len(best.losses) and whole:
                counted = count_blocks(
                    self.problem, evaluate, blocks, loss_threshold(self.problem, float(best.losses[0, 0]), self.within)
                )
        one = len(self.problem.objectives) == 1
        lower = (float(best.losses[0, 0]) if whole else 0.0) if one and len(best.losses) else None
        found = Outcome(best, Tree(), lower or 0.0, min(len(blocks) * BLOCK, space.valid), whole)
        return self._certified(
            "enumerated", why, found, lower, counted, {"blocks": [_block_row(block) for block in blocks]}
        )

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
            "limits": [limit.text for limit in problem.limits],
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
    limits = [limit.text for limit in problem.limits if limit.text not in problem.space.limits]
    try:
        found = certify(problem.space, problem.objectives, limits, limit_s=limit_s)
    except SpecError:
        return None
    return float(found.losses[0, 0]) if found.proven and found.feasible else None


def loss_threshold(problem: Problem, best: float, share: float) -> float:
    """Return the loss of a design that is a share worse than the best: of a time so much more, of a rate so much less.

    >>> from types import SimpleNamespace as Any
    >>> loss_threshold(Any(objectives=("step_s",)), 2.0, 0.5), loss_threshold(Any(objectives=("mfu",)), 2.0, 0.5)
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


def _metric_value(problem: Problem, losses: Floats) -> str:
    names = zip(problem.objectives, losses.tolist(), strict=True)
    return ", ".join(f"{name} {each if BETTER[name] == 'less' else 1 / each:.6g}" for name, each in names)


def _block_row(block: DesignBlock) -> list[Any]:
    return [block.digest, *(None if not np.isfinite(each) else each for each in block.least)]


def _skeletons_that_run(judging: Judging) -> Any:
    able = np.zeros(judging.division.count, dtype=bool)
    for bounding in judging.boundings:
        able[bounding.group.skeletons] = True
    return able


def _dominance(judging: Judging) -> list[dict[str, Any]]:
    """Return for each choice the tables of which option stands for which, and the table of each able skeleton."""
    numbers = np.cumsum(_skeletons_that_run(judging)) - 1
    found = []
    for choice in range(len(judging.division.choices)):
        which = np.zeros(int(numbers[-1]) + 1, dtype=np.intp)
        known: dict[tuple[int, ...], int] = {}
        for skeletons, each in judging.dominances:
            rows = [known.setdefault(tuple(row), len(known)) for row in each[choice].stands.tolist()]
            which[numbers[skeletons]] = np.array(rows, dtype=np.intp)[each[choice].which] if len(skeletons) else 0
        found.append({"tables": [list(each) for each in known], "which": files.pack_bytes(which)})
    return found


# --------------------------------------------------------------------------------------
# What the event engine says of the designs that the closed form calls best: a proof is about the closed form alone
# --------------------------------------------------------------------------------------

MOST_SIMULATED = 10
"""Designs that are simulated."""


@dataclass(frozen=True, slots=True)
class SimulatedBest:
    """A design's step in closed form, and simulated."""

    row: Indices
    step_s: float
    simulated_s: float


def simulate_best(
    found: Certified, most: int = MOST_SIMULATED, limit_s: float = 20.0
) -> tuple[list[SimulatedBest], str]:
    """Return both steps of the best designs that were met, and why there are fewer; at least one is simulated."""
    rows = found.good[:most]
    if len(found.problem.shares) > 1:
        return [], "designs of several workloads are not simulated"
    simulated: list[SimulatedBest] = []
    started = monotonic()
    for row in rows:
        if simulated and monotonic() - started > limit_s:
            return simulated, f"{len(rows) - len(simulated)} more were not simulated: it would take too long"
        point = found.problem.space.point(row)
        try:
            closed, event = evaluate(point), evaluate(point, "event")
        except CosmicError as error:
            return simulated, f"the event engine cannot simulate them: {error}"
        if isinstance(closed, Metrics) and isinstance(event, Metrics):
            simulated.append(SimulatedBest(row, closed.step_s, event.step_s))
    return simulated, ""
