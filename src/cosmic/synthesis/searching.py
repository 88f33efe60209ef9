"""The shortest of several schedules of one spread: ways of growing and playing, and numbers of chunks.

What is tried depends on sizes alone, never on a clock: equal inputs give equal schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cosmic.errors import require
from cosmic.graphs.graph import Floats, Ints
from cosmic.synthesis.bounds import bounds, ingress_s
from cosmic.synthesis.engine import Growing, Playing, Problem, Transfers, plan, play
from cosmic.synthesis.spreading import Spread

Progress = Callable[[float], None]
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Numbers of chunks that are tried."""
BUDGET = 24_000_000
"""Work that is put into one search, in pairs of a chunk and a route that are looked at."""
MOST_CELLS = 60_000_000
"""The most pairs of a chunk and a node: what memory allows."""
LARGE = 2_000_000
"""Work from which on trees are grown once only."""
SMALL = 20_000
"""Work up to which more is tried."""
NEAR = 1.003
"""How near the bound is near enough to stop."""
PATIENCE = 3
"""How many numbers of chunks may do no better before larger ones are given up."""
MUS = (0.01, 0.1, 1.0, 0.001)
"""What depth may cost, in the order in which it is tried."""
ROUNDS = 5
SEEDS = 3
"""How often all is tried where there is little work, or the number of chunks is stated."""


MOST_TREES = 128
"""The most trees that chunks follow in turn."""
KEPT_PLANS = 2
"""Of plans of such trees, how many are played."""


class Work:
    """How much has been done, for whoever watches."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._done, self._parts = progress, 0.0, 0

    def did(self, share: float) -> None:
        """Note that a *share* of one search is done; how many will follow is not known, so the rest is halved."""
        self._done += (1.0 - self._done) / 2 * min(share, 1.0)
        self._progress(self._done)

    def finish(self) -> None:
        """Note that all is done."""
        self._progress(1.0)


@dataclass(frozen=True, eq=False)
class Found:
    """Transfers that carry out a spread, and the number of chunks of each member."""

    transfers: Transfers
    chunks_per_npu: int
    orbit: bool
    """Whether they are those of accelerator 0's chunks only, which stand for all."""


class Search:
    """The schedules of one spread, tried one after the other."""

    def __init__(self, spread: Spread, seed: int, work: Work) -> None:
        self.spread, self.seed, self.work = spread, seed, work

    @cached_property
    def fluid_s(self) -> float:
        """Seconds that no number of chunks gets below."""
        spread = self.spread
        kind = "broadcast" if spread.hubs else spread.kind
        whole = spread.groups == (tuple(range(spread.graph.npus)),)
        groups = None if whole else spread.groups
        return bounds(spread.graph, kind, spread.size_bytes, groups=groups, root=spread.root).seconds

    def feasible(self) -> bool:
        """Return whether chunks reach all members from where they begin."""
        problem, _ = self.spread.problem(1)
        return plan(problem, Growing(1.0, 1.0))

    def best(self, chunks: int | None, release_s: Floats | None = None) -> Found:
        """Return the shortest schedule found: with *chunks* of each member, or with as many as is best."""
        if all(len(group) == 1 for group in self.spread.groups):
            nothing = Transfers(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
            return Found(nothing, chunks or 1, orbit=False)
        if chunks is not None:
            self._check(chunks)
            return self._with(chunks, BUDGET, SEEDS, release_s)[0]
        left, best, worse = float(BUDGET), None, 0
        for per_npu in COUNTS:
            if best is None:
                self._check(per_npu)
            elif self.spread.work(per_npu) > left or not self._fits(per_npu) or worse >= PATIENCE:
                break
            elif self._least_s(per_npu) >= best.transfers.time_s:
                worse += 1
                continue
            seeds = SEEDS if self.spread.work(per_npu) <= SMALL else 1
            found, used = self._with(per_npu, left, seeds, release_s)
            left -= used
            better = best is None or found.transfers.time_s < best.transfers.time_s
            best, worse = (found, 0) if best is None or better else (best, worse + 1)
            if best.transfers.time_s <= NEAR * self.fluid_s:
                break
        if best is None:  # COUNTS is not empty
            raise AssertionError
        if self.spread.kind == "broadcast" and release_s is None:
            return min([best, *self._repeated()], key=lambda found: found.transfers.time_s)
        return best

    def _repeated(self) -> Iterator[Found]:
        """Yield schedules in which chunks follow few trees in turn: what all links carry then repeats itself.

        A root that sends all chunks needs many, which keep every link busy evenly only if trees alternate.
        """
        plans: list[tuple[float, int, int, Problem]] = []
        groups = range(len(self.spread.groups))
        for trees in (
            count for count in COUNTS if self.spread.work(count) * ROUNDS <= BUDGET / 40 and count <= MOST_TREES
        ):
            for mu in MUS[:2]:
                problem, _ = self.spread.problem(trees)
                if plan(problem, Growing(self.fluid_s, mu, rounds=ROUNDS, seed=self.seed)):
                    plans.append((_busiest_s(problem), trees, len(plans), problem))
        for _, trees, _, problem in sorted(plans)[:KEPT_PLANS]:
            for times in (1 << power for power in range(12)):
                if trees * times > COUNTS[-1] or self.spread.work(trees * times) > BUDGET / 8:
                    break
                whole, numbers = self.spread.problem(trees * times)
                rows = np.concatenate([np.tile(np.flatnonzero(problem.size == each), times) for each in groups])
                whole.plan[:], whole.need[:] = problem.plan[rows], problem.need[rows]
                for in_turn in (False, True):
                    found = self._played(whole, Playing(steal=False, in_turn=in_turn, seed=self.seed), numbers)
                    if found is not None:
                        yield Found(found, trees * times, orbit=False)

    def _fits(self, per_npu: int) -> bool:
        return self.spread.chunks(per_npu) * len(self.spread.routes.keepers) <= MOST_CELLS

    def _check(self, per_npu: int) -> None:
        rule = f"chunks times nodes, at most {MOST_CELLS:,} where the network is not symmetric"
        cells = self.spread.chunks(per_npu) * len(self.spread.routes.keepers)
        require(self._fits(per_npu), "chunks", cells, rule)

    def _least_s(self, per_npu: int) -> float:
        spread = self.spread
        return ingress_s(spread.graph, spread.kind, spread.size_bytes, per_npu, spread.groups)

    def _with(self, per_npu: int, budget: float, seeds: int, release_s: Floats | None) -> tuple[Found, float]:
        """Return the shortest schedule with a number of chunks, and the work that went into it."""
        spread, used, best = self.spread, 0.0, None
        least_s = max(self.fluid_s, 0.0 if spread.hubs else self._least_s(per_npu))
        own = float(spread.work(per_npu))
        for share, transfers in self._attempts(per_npu, least_s, seeds, release_s):
            used += share * own
            self.work.did(share * own / BUDGET)
            if transfers is not None and (best is None or transfers.time_s < best.time_s):
                best = transfers
            if best is not None and (used + own > budget or best.time_s <= NEAR * least_s):
                break
        if best is None:
            rule = "not all members are reached from where chunks begin"
            require(False, "network", f"{spread.graph.npus} NPUs", rule)
            raise AssertionError
        return Found(best, per_npu, spread.symmetry is not None), used

    def _attempts(
        self, per_npu: int, target_s: float, seeds: int, release_s: Floats | None
    ) -> Iterator[tuple[float, Transfers | None]]:
        """Yield schedules, each with its share of the work of one; None for those that do not reach all."""
        spread = self.spread
        problem, numbers = spread.problem(per_npu, release_s)
        for seed in range(self.seed, self.seed + seeds):
            if not spread.relays:
                yield 1.0, self._played(problem, Playing(seed=seed), numbers)
            for mu in MUS:
                rounds = 1 if spread.work(per_npu) > LARGE else ROUNDS
                if not plan(problem, Growing(target_s, mu, spread.kind == "all_to_all", rounds, seed)):
                    yield 0.2 * rounds, None
                    continue
                in_turn = bool(spread.hubs)  # sums are to be complete early, one after the other
                playing = Playing(steal=False, in_turn=in_turn, seed=seed)
                yield 0.2 * rounds + 0.5, self._played(problem, playing, numbers)
                if spread.work(per_npu) <= LARGE and not in_turn:
                    yield 0.5, self._played(problem, replace(playing, in_turn=True), numbers)
                if not spread.relays:
                    yield 1.0, self._played(problem, Playing(lenient=False, seed=seed), numbers)
                if not spread.relays and spread.work(per_npu) <= SMALL:
                    yield 1.0, self._played(problem, Playing(seed=seed), numbers)
            problem, numbers = spread.problem(per_npu, release_s)

    def _played(self, problem: Problem, playing: Playing, numbers: Ints) -> Transfers | None:
        transfers = play(problem, playing)
        if not self.spread.complete(problem, transfers):
            return None
        return Transfers(transfers.link, numbers[transfers.chunk], transfers.start_s, transfers.end_s)


def _busiest_s(problem: Problem) -> float:
    """Return how long the busiest link is busy by the plan."""
    load_s = np.zeros(problem.machines)
    for chunk, size in enumerate(problem.size.tolist()):
        routes = problem.plan[chunk]
        for route in routes[routes >= 0].tolist():
            hops = problem.routes.hops[problem.routes.hop_first[route] : problem.routes.hop_first[route + 1]]
            np.add.at(load_s, problem.machine[hops], problem.seconds[size, hops])
    return float(load_s.max())
