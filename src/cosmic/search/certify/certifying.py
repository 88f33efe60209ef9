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
    BoxEvaluator,
    BranchingProgress,
    Outcome,
    Tree,
    branch_boxes,
    count_within,
    root_boxes,
)
from cosmic.search.certify.monotonicity import Floats
from cosmic.search.certify.skeletons import NotProvable
from cosmic.search.objectives import losses as losses_of
from cosmic.search.problem import Problem, Results, make_problem
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.search.worker_pools import Evaluate, check_workers, open_evaluator
from cosmic.simulate.metrics import BETTER, Metrics

# ---- Goes through every design of a set: what is proven is what was seen

BLOCK_DESIGNS = 2**17
"""Designs of a block."""
MAX_ENUMERATED = 200_000_000
"""Designs that are gone through, at most."""


@dataclass(frozen=True)
class DesignBlock:
    """Consecutive designs, in the order of the set."""

    least: tuple[float, ...]
    """The least of each loss; infinite where none can run."""
    digest: str


def compute_block_losses(problem: Problem, evaluate: Evaluate, number: int) -> tuple[Indices, Floats]:
    """Return the rows of a block, and their losses: infinite for a design that cannot run."""
    start = number * BLOCK_DESIGNS
    rows = problem.space.listed(start, min(BLOCK_DESIGNS, problem.space.valid - start))
    results = evaluate(rows)
    block_losses = losses_of(problem.objectives, results.columns)
    block_losses[~results.feasible | np.isnan(block_losses).any(axis=1)] = np.inf
    return rows, block_losses


def summarise_block(losses: Floats) -> DesignBlock:
    """Return what is kept of a block's losses."""
    return DesignBlock(tuple(losses.min(axis=0).tolist()), digest(losses.astype("<f8").tobytes())[:16])


def enumerate_all(
    problem: Problem,
    evaluate: Evaluate,
    best: Best,
    until: float = np.inf,
    report: Callable[[int, Best], None] = lambda *_: None,
) -> list[DesignBlock]:
    """Return the blocks of all designs; fewer where time runs out. *best* learns what is best among them."""
    blocks: list[DesignBlock] = []
    for number in range(-(-problem.space.valid // BLOCK_DESIGNS)):
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
        report(number * BLOCK_DESIGNS + len(rows), best)
    return blocks


def count_blocks(problem: Problem, evaluate: Evaluate, blocks: list[DesignBlock], most: float) -> int:
    """Return how many designs have a loss of at most *most*; blocks that have none are not looked at again."""
    near = [number for number, block in enumerate(blocks) if block.least[0] <= most]
    return sum(
        int(np.count_nonzero(compute_block_losses(problem, evaluate, number)[1][:, 0] <= most)) for number in near
    )


TIME_LIMIT_S = 600.0
Report = Callable[[str], None]


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


def certify(
    space: str | ParameterSet,
    objectives: Sequence[str] = (),
    constraints: Sequence[str] = (),
    *,
    gap: float = 0.0,
    within: float | None = None,
    limit_s: float = TIME_LIMIT_S,
    workers: int = 1,
    told: Report = lambda _: None,
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
    run = _Proof(problem, gap, within, started, started + limit_s, workers, told)
    try:
        evaluator = BoxEvaluator(problem)
        told("showing that corners bound boxes")
        evaluator.prove()
    except NotProvable as reason:
        return run.enumerated(str(reason))
    return run.bounded(evaluator)


@dataclass(frozen=True)
class _Proof:
    problem: Problem
    gap: float
    within: float | None
    started: float
    until: float
    workers: int
    told: Report

    def _best(self) -> Best:
        return Best.none(len(self.problem.objectives), len(self.problem.space.parameters), self.gap)

    # ------------------------------------------------------------------------------------------- bounded

    def bounded(self, evaluator: BoxEvaluator) -> Certified:
        """Return what branch and bound proves."""
        roots = root_boxes(evaluator.division, evaluator.dominances)
        best = self._best()
        with evaluator.workers(self.workers):
            outcome = branch_boxes(evaluator.division, roots, evaluator.bound_boxes, best, self.until, self._tell)
            counted = None
            if self.within is not None and len(outcome.best.losses):
                self.told(f"counting designs within {100 * self.within:g} %")
                max_loss = loss_threshold(self.problem, float(outcome.best.losses[0, 0]), self.within)
                deadline = self.until if outcome.done else 0.0
                counted = count_within(
                    roots, evaluator.dominances, evaluator.bound_boxes, evaluator.worst, max_loss, deadline
                )
        proof = {
            "ranges": [
                {"column": network_range.column, "indices": network_range.indices.tolist()}
                for network_range in evaluator.division.ranges
            ],
            "choices": [
                {"columns": list(choice.columns), "options": choice.options.tolist()}
                for choice in evaluator.division.choices
            ],
            "able": files.pack_bits(_skeletons_that_run(evaluator)),
            "dominance": _dominance_tables(evaluator),
            "tree": files.pack_bits(np.concatenate([*outcome.tree.splits, np.zeros(0, dtype=bool)])),
        }
        lower = None if len(self.problem.objectives) > 1 else outcome.lower
        return self._certified("bounded", "", outcome, lower, counted, proof)

    def _tell(self, progress: BranchingProgress) -> None:
        losses = progress.best.losses
        status = f"round {progress.rounds + 1}: {progress.judged:,} boxes judged, {progress.open:,} open"
        self.told(f"{status}, best {_metric_value(self.problem, losses[0]) if len(losses) else 'none'}")

    # ---------------------------------------------------------------------------------------- enumerated

    def enumerated(self, why: str) -> Certified:
        """Return what going through all designs proves."""
        space = self.problem.space
        if space.valid > MAX_ENUMERATED:
            raise SpecError(
                "space",
                space.name,
                f"has {space.valid:.3g} designs, too many to go through, and cannot be bounded: {why}",
            )
        best = self._best()

        def tell(done: int, best: Best) -> None:
            status = f"{done:,} of {space.valid:,} designs"
            self.told(f"{status}, best {_metric_value(self.problem, best.losses[0]) if len(best.losses) else 'none'}")

        with open_evaluator(self.problem, self.workers) as evaluate:
            blocks = enumerate_all(self.problem, evaluate, best, self.until, tell)
            complete = len(blocks) * BLOCK_DESIGNS >= space.valid
            counted = None
            if self.within is not None and len(best.losses) and complete:
                counted = count_blocks(
                    self.problem, evaluate, blocks, loss_threshold(self.problem, float(best.losses[0, 0]), self.within)
                )
        single_objective = len(self.problem.objectives) == 1
        lower = (float(best.losses[0, 0]) if complete else 0.0) if single_objective and len(best.losses) else None
        outcome = Outcome(best, Tree(), lower or 0.0, min(len(blocks) * BLOCK_DESIGNS, space.valid), complete)
        return self._certified(
            "enumerated",
            why,
            outcome,
            lower,
            counted,
            {
                "blocks": [
                    [block.digest, *(None if not np.isfinite(value) else value for value in block.least)]
                    for block in blocks
                ]
            },
        )

    # ----------------------------------------------------------------------------------------- the result

    def _certified(
        self, method: str, why: str, outcome: Outcome, lower: float | None, counted: int | None, proof: dict[str, Any]
    ) -> Certified:
        best, problem = outcome.best, self.problem
        gap = _gap(best, lower, outcome.done)
        within = None if self.within is None else (self.within, counted)
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
            "proven": outcome.done,
            "within": None if within is None else {"share": within[0], "count": within[1]},
            **proof,
        }
        seconds = monotonic() - self.started
        good = best.rows if best.met is None else best.met[1]
        return Certified(
            problem,
            method,
            why,
            outcome.done,
            best.rows,
            best.losses,
            gap,
            within,
            good,
            outcome.judged,
            seconds,
            content,
        )


def proven_loss(problem: Problem, limit_s: float = TIME_LIMIT_S) -> float | None:
    """Return the least loss of a problem of one objective; None where it cannot be proven in that time."""
    if len(problem.objectives) > 1 or problem.engine != "analytic":
        return None
    limits = [limit.text for limit in problem.limits if limit.text not in problem.space.limits]
    try:
        certified = certify(problem.space, problem.objectives, limits, limit_s=limit_s)
    except SpecError:
        return None
    return float(certified.losses[0, 0]) if certified.proven and certified.feasible else None


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
    return ", ".join(f"{name} {value if BETTER[name] == 'less' else 1 / value:.6g}" for name, value in names)


def _skeletons_that_run(evaluator: BoxEvaluator) -> Any:
    feasible = np.zeros(evaluator.division.count, dtype=bool)
    for bounding in evaluator.boundings:
        feasible[bounding.group.skeletons] = True
    return feasible


def _dominance_tables(evaluator: BoxEvaluator) -> list[dict[str, Any]]:
    """Return for each choice the tables of which option stands for which, and the table of each able skeleton."""
    numbers = np.cumsum(_skeletons_that_run(evaluator)) - 1
    tables_by_choice = []
    for choice in range(len(evaluator.division.choices)):
        which = np.zeros(int(numbers[-1]) + 1, dtype=np.intp)
        table_numbers: dict[tuple[int, ...], int] = {}
        for skeletons, dominance in evaluator.dominances:
            rows = [
                table_numbers.setdefault(tuple(row), len(table_numbers)) for row in dominance[choice].stands.tolist()
            ]
            which[numbers[skeletons]] = np.array(rows, dtype=np.intp)[dominance[choice].which] if len(skeletons) else 0
        tables_by_choice.append(
            {"tables": [list(dominance) for dominance in table_numbers], "which": files.pack_bytes(which)}
        )
    return tables_by_choice


# ---- What the event engine says of the designs that the closed form calls best: a proof is about the closed form alone

MAX_SIMULATED = 10
"""Designs that are simulated."""


@dataclass(frozen=True, slots=True)
class SimulatedBest:
    """A design's step in closed form, and simulated."""

    row: Indices
    step_s: float
    simulated_s: float


def simulate_best(
    certified: Certified, most: int = MAX_SIMULATED, limit_s: float = 20.0
) -> tuple[list[SimulatedBest], str]:
    """Return both steps of the best designs that were met, and why there are fewer; at least one is simulated."""
    rows = certified.good[:most]
    if len(certified.problem.shares) > 1:
        return [], "designs of several workloads are not simulated"
    simulated: list[SimulatedBest] = []
    started = monotonic()
    for row in rows:
        if simulated and monotonic() - started > limit_s:
            return simulated, f"{len(rows) - len(simulated)} more were not simulated: it would take too long"
        point = certified.problem.space.point(row)
        try:
            closed, event = evaluate(point), evaluate(point, "event")
        except CosmicError as error:
            return simulated, f"the event engine cannot simulate them: {error}"
        if isinstance(closed, Metrics) and isinstance(event, Metrics):
            simulated.append(SimulatedBest(row, closed.step_s, event.step_s))
    return simulated, ""
