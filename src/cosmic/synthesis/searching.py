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
from cosmic.synthesis.flows import distances, net_of
from cosmic.synthesis.spreading import Spread

Progress = Callable[[float], None]
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Numbers of chunks that are tried."""
MORE_COUNTS = (1536, 2048, 3072, 4096)
"""And of those that a root alone sends."""
PROMISING = 5
"""How many numbers of chunks are tried where they can be told apart beforehand."""
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
PATH_MUS = (1.0, 10.0, 0.1, 0.01, 0.001)
"""The same for chunks that go to one node each: detours cost others' bandwidth."""
ROUNDS, FEW_ROUNDS = 5, 2
SEEDS = 3
"""How often all is tried where there is little work, or the number of chunks is stated."""


MOST_TREES = 128
"""The most trees that chunks follow in turn."""
MOST_REPEATING = 2_000
"""The most routes of networks in which that is tried."""
MOST_REPEATED = 4096
"""The most chunks that do so."""
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
        rooted = self.spread.kind == "broadcast"
        counts = self._promising() if rooted else list(COUNTS)
        self._check(counts[0])
        best = self._tried(counts, BUDGET / 2 if rooted else BUDGET, release_s)
        if rooted and self.spread.routes.count <= MOST_REPEATING:
            return min([best, *self._repeated()], key=lambda found: found.transfers.time_s)
        return best

    def _tried(self, counts: list[int], left: float, release_s: Floats | None) -> Found:
        """Return the shortest schedule with one of the numbers of chunks; the first is tried in any case."""
        best, used = self._with(counts[0], left, self._seeds(counts[0]), release_s)
        worse = 0
        for per_npu in counts[1:]:
            left, used = left - used, 0.0
            if worse >= PATIENCE or best.transfers.time_s <= NEAR * self.fluid_s:
                break
            if not self._affordable(per_npu, left):
                continue
            if self._least_s(per_npu) >= best.transfers.time_s:
                worse += 1
                continue
            found, used = self._with(per_npu, left, self._seeds(per_npu), release_s)
            better = found.transfers.time_s < best.transfers.time_s
            best, worse = (found, 0) if better else (best, worse + 1)
        return best

    def _seeds(self, per_npu: int) -> int:
        return SEEDS if self.spread.work(per_npu) <= SMALL else 1

    def _affordable(self, per_npu: int, left: float) -> bool:
        return self.spread.work(per_npu) <= left and self._fits(per_npu)

    def _promising(self) -> list[int]:
        """Return numbers of chunks from a root, the best first by what they take at least, one after the other."""
        spread = self.spread
        net, lengths = spread.graph, {count: spread.seconds(count).max(axis=0) for count in (*COUNTS, *MORE_COUNTS)}
        roots = {group[spread.root]: np.array(group) for group in spread.groups}

        def estimate_s(count: int) -> float:
            far = net_of(net, lengths[count])
            ways = [float(distances(far, group, np.array([root])).largest[0]) for root, group in roots.items()]
            return self._least_s(count) + max(ways)

        fitting = [count for count in lengths if count == 1 or self._affordable(count, BUDGET / 2)]
        return sorted(fitting, key=lambda count: (estimate_s(count), count))[:PROMISING]

    def _repeated(self) -> Iterator[Found]:
        """Yield schedules in which chunks follow few trees in turn: what all links carry then repeats itself.

        A root that sends all chunks needs many, which keep every link busy evenly only if trees alternate.
        """
        plans: list[tuple[float, int, int, Problem]] = []
        for trees in (
            count for count in COUNTS if self.spread.work(count) * ROUNDS <= BUDGET / 8 and count <= MOST_TREES
        ):
            for mu in (0.1, 0.01, 0.001):
                problem, _ = self.spread.problem(trees)
                if plan(problem, Growing(self.fluid_s, mu, rounds=ROUNDS, seed=self.seed)):
                    plans.append((_busiest_s(problem), trees, len(plans), problem))
        for _, trees, _, problem in sorted(plans)[:KEPT_PLANS]:
            for in_turn in (False, True):
                yield from self._longer(problem, trees, Playing(steal=False, in_turn=in_turn, seed=self.seed))

    def _longer(self, problem: Problem, trees: int, playing: Playing) -> Iterator[Found]:
        """Yield schedules of more and more chunks along the same trees, as long as they become shorter."""
        groups, least_s = range(len(self.spread.groups)), np.inf
        for times in (1 << power for power in range(14)):
            if trees * times > MOST_REPEATED or self.spread.work(trees * times) > BUDGET / 2:
                return
            whole, numbers = self.spread.problem(trees * times)
            rows = np.concatenate([np.tile(np.flatnonzero(problem.size == each), times) for each in groups])
            whole.plan[:], whole.need[:] = problem.plan[rows], problem.need[rows]
            found = self._played(whole, playing, numbers)
            if found is None or found.time_s >= least_s:
                return
            least_s = found.time_s
            self.work.did(0.01)
            yield Found(found, trees * times, orbit=False)

    def _fits(self, per_npu: int) -> bool:
        return self.spread.chunks(per_npu) * len(self.spread.routes.keepers) <= MOST_CELLS

    def _check(self, per_npu: int) -> None:
        rule = f"times nodes, at most {MOST_CELLS:,} can be planned for; symmetric networks plan for one NPU's alone"
        require(self._fits(per_npu), "chunks", self.spread.chunks(per_npu), rule)

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
        paths = spread.kind == "all_to_all"
        problem, numbers = spread.problem(per_npu, release_s)
        for seed in range(self.seed, self.seed + seeds):
            if not spread.relays:
                yield 1.0, self._played(problem, Playing(seed=seed), numbers)
            for mu in PATH_MUS if paths else MUS:
                rounds = ROUNDS if spread.work(per_npu) <= LARGE else FEW_ROUNDS if paths else 1
                if not plan(problem, Growing(target_s, mu, paths, rounds, seed)):
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
