"""Synthesize schedules of collectives for any network, kind, size and groups.

All-gather, all-to-all and broadcast are chunks that spread from where they begin (`Spread`).

The other collectives are these with links and time turned round.

`Search` finds the shortest of several schedules of one spread: ways of growing trees and of ordering transfers,
and numbers of chunks.

What is tried depends on sizes alone, never on a clock: equal inputs give equal schedules.

`settle_transfers` makes transfers as early as they can be, so that nothing waits for what it does not need.

Schedules have gaps that nobody needs: a link that first left a transfer to another, and took it on after all; and the
first transfers of an all-gather, which wait for the end of the whole reduce-scatter. Every link keeps the order of its
transfers. Each begins when the one before it has ended, and all that had come of its chunk is there; of what a switch
passes on, the message.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cosmic.base.errors import require
from cosmic.network.link_graph import Floats, Ints, LinkGraph
from cosmic.network.schedules.collective_schedule import Kind, Schedule, chunk_bytes, chunk_count
from cosmic.network.synthesis.graph_symmetry import OrbitSchedule, Symmetry, symmetry_of
from cosmic.network.synthesis.lower_bounds import collective_bounds, ingress_s
from cosmic.network.synthesis.max_flow import Groups, check_chunks, checked_groups, member_distances, net_of
from cosmic.network.synthesis.synthesis_loops import (
    Growing,
    Playing,
    SpreadProblem,
    SwitchRoutes,
    Transfers,
    plan_trees,
    play_transfers,
    routes_of,
)

# ---- Chunks that spread from where they begin: what all-gather, all-to-all and broadcast are

MOST_ROUTES = 2_000_000
"""The most routes through switches; where there would be more, accelerators send to fewer others."""


@dataclass(frozen=True, eq=False)
class Spread:
    """One collective to be synthesised: its chunks begin somewhere, and are to reach some or all members."""

    graph: LinkGraph
    kind: Kind
    """All-gather, all-to-all or broadcast."""
    size_bytes: float
    groups: Groups
    root: int
    hubs: tuple[int, ...] = ()
    """Switches at which the sums of an all-reduce are complete: chunks begin there in turn, and reach all members."""

    def from_hubs(self, hubs: tuple[int, ...]) -> Spread:
        """Return the same with chunks that begin at switches."""
        return replace(self, hubs=hubs)

    @cached_property
    def symmetry(self) -> Symmetry | None:
        """The translations of the network, where the collective has them too."""
        covers_all = self.groups == (tuple(range(self.graph.npus)),)
        return symmetry_of(self.graph) if covers_all and self.kind != "broadcast" and not self.hubs else None

    @cached_property
    def routes(self) -> SwitchRoutes:
        """Ways between nodes that keep data."""
        return routes_of(self.graph, MOST_ROUTES)

    @cached_property
    def relays(self) -> bool:
        """Whether chunks may have to pass nodes that do not need them."""
        members = sum(len(group) for group in self.groups)
        return self.kind == "all_to_all" or len(self.groups) > 1 or members < len(self.routes.keepers)

    def chunks(self, per_npu: int) -> int:
        """Return the number of chunks that are synthesised: with symmetry, those of accelerator 0."""
        if self.symmetry is not None:
            return per_npu * (self.graph.npus - 1 if self.kind == "all_to_all" else 1)
        return sum(chunk_count(self.kind, len(group), per_npu) for group in self.groups)

    def work(self, per_npu: int) -> int:
        """Return how many pairs of a chunk and a route there are: what a synthesis takes grows with them."""
        return self.chunks(per_npu) * self.routes.count

    def seconds(self, per_npu: int) -> Floats:
        """Return group by link what a chunk takes."""
        graph = self.graph
        sizes = [chunk_bytes(self.kind, self.size_bytes, len(group), per_npu) for group in self.groups]
        return np.array([graph.latency_s + size / graph.bandwidth_bytes_per_s for size in sizes])

    def problem(self, per_npu: int, release_s: Floats | None = None) -> tuple[SpreadProblem, Ints]:
        """Return the problem with *per_npu* chunks of each member, and the numbers of its chunks."""
        nodes = len(self.routes.keepers)
        parts = [self._part(index, per_npu, nodes) for index in range(len(self.groups))]
        numbers, origin, need = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        size = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
        machine = np.arange(self.graph.links) if self.symmetry is None else self.symmetry.link_class
        release = np.zeros(len(numbers)) if release_s is None else release_s[numbers]
        return SpreadProblem(self.routes, machine, self.seconds(per_npu), size, origin, need, release), numbers

    def _part(self, index: int, per_npu: int, nodes: int) -> tuple[Ints, Ints, np.ndarray]:
        """Return the numbers, origins and needs of one group's chunks."""
        members = np.array(self.groups[index])
        count = len(members)
        before = sum(chunk_count(self.kind, len(group), per_npu) for group in self.groups[:index])
        chunk = np.arange(chunk_count(self.kind, count, per_npu))
        if self.symmetry is not None:
            # With symmetry the chunks of accelerator 0 stand for all.
            chunk = chunk[chunk % count == 0]
        if self.kind == "all_to_all":
            # What a member has for itself is not sent.
            chunk = chunk[chunk % count != chunk // count % count]
        elif self.kind == "broadcast" and count == 1:
            chunk = chunk[:0]
        need = np.zeros((len(chunk), nodes), np.uint8)
        rows = np.arange(len(chunk))
        origin = members[chunk % count] if self.kind != "broadcast" else np.full(len(chunk), members[self.root])
        if self.hubs:
            hub_rows = np.searchsorted(self.routes.keepers, np.array(self.hubs))
            origin = hub_rows[chunk % len(hub_rows)]
        if self.kind == "all_to_all":
            need[rows, members[chunk // count % count]] = 1
        else:
            need[:, members] = 1
            need[rows, origin] = 0
        return before + chunk, origin, need

    def complete(self, problem: SpreadProblem, transfers: Transfers) -> bool:
        """Return whether transfers bring all chunks where they are needed; no chunk is brought anywhere twice."""
        keeps = np.zeros(self.graph.nodes, bool)
        keeps[self.routes.keepers] = True
        return int(np.count_nonzero(keeps[self.graph.targets[transfers.link]])) == int(np.count_nonzero(problem.need))


# ---- The shortest of several schedules of one spread: ways of growing and playing, and numbers of chunks

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


class SearchWork:
    """How much has been done, for whoever watches."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._done, self._parts = progress, 0.0, 0

    def advance(self, share: float) -> None:
        """Note that a *share* of one search is done; how many will follow is not known, so the rest is halved."""
        self._done += (1.0 - self._done) / 2 * min(share, 1.0)
        self._progress(self._done)

    def finish(self) -> None:
        """Note that all is done."""
        self._progress(1.0)


@dataclass(frozen=True, eq=False)
class SpreadSchedule:
    """Transfers that carry out a spread, and the number of chunks of each member."""

    transfers: Transfers
    chunks_per_npu: int
    orbit: bool
    """Whether they are those of accelerator 0's chunks only, which stand for all."""


class Search:
    """The schedules of one spread, tried one after the other."""

    def __init__(self, spread: Spread, seed: int, work: SearchWork) -> None:
        self.spread, self.seed, self.work = spread, seed, work

    @cached_property
    def fluid_s(self) -> float:
        """Seconds that no number of chunks gets below."""
        spread = self.spread
        kind = "broadcast" if spread.hubs else spread.kind
        covers_all = spread.groups == (tuple(range(spread.graph.npus)),)
        groups = None if covers_all else spread.groups
        return collective_bounds(spread.graph, kind, spread.size_bytes, groups=groups, root=spread.root).seconds

    def feasible(self) -> bool:
        """Return whether chunks reach all members from where they begin."""
        problem, _ = self.spread.problem(1)
        return plan_trees(problem, Growing(1.0, 1.0))

    def best(self, chunks: int | None, release_s: Floats | None = None) -> SpreadSchedule:
        """Return the shortest schedule found, with *chunks* chunks of each member or with the best number."""
        if all(len(group) == 1 for group in self.spread.groups):
            nothing = Transfers(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
            return SpreadSchedule(nothing, chunks or 1, orbit=False)
        if chunks is not None:
            self._check(chunks)
            return self._search_count(chunks, BUDGET, SEEDS, release_s)[0]
        rooted = self.spread.kind == "broadcast"
        counts = self._promising_counts() if rooted else list(COUNTS)
        self._check(counts[0])
        best = self._try_counts(counts, BUDGET / 2 if rooted else BUDGET, release_s)
        if rooted and self.spread.routes.count <= MOST_REPEATING:
            return min([best, *self._repeat_trees()], key=lambda schedule: schedule.transfers.time_s)
        return best

    def _try_counts(self, counts: list[int], budget: float, release_s: Floats | None) -> SpreadSchedule:
        """Return the shortest schedule with one of the numbers of chunks; the first is tried in any case."""
        best, used = self._search_count(counts[0], budget, self._seeds(counts[0]), release_s)
        worse = 0
        for per_npu in counts[1:]:
            budget, used = budget - used, 0.0
            # More chunks pipeline better and have more latency: the time has one minimum, but for noise.
            if worse >= PATIENCE or best.transfers.time_s <= NEAR * self.fluid_s:
                break
            if not self._affordable(per_npu, budget):
                continue
            if self._least_s(per_npu) >= best.transfers.time_s:
                worse += 1
                continue
            schedule, used = self._search_count(per_npu, budget, self._seeds(per_npu), release_s)
            better = schedule.transfers.time_s < best.transfers.time_s
            best, worse = (schedule, 0) if better else (best, worse + 1)
        return best

    def _seeds(self, per_npu: int) -> int:
        return SEEDS if self.spread.work(per_npu) <= SMALL else 1

    def _affordable(self, per_npu: int, budget: float) -> bool:
        return self.spread.work(per_npu) <= budget and self._fits(per_npu)

    def _promising_counts(self) -> list[int]:
        """Return numbers of chunks from a root, the best first by what they take at least, one after the other."""
        spread = self.spread
        net, lengths = spread.graph, {count: spread.seconds(count).max(axis=0) for count in (*COUNTS, *MORE_COUNTS)}
        roots = {group[spread.root]: np.array(group) for group in spread.groups}

        def estimate_s(count: int) -> float:
            far = net_of(net, lengths[count])
            ways = [float(member_distances(far, group, np.array([root])).largest[0]) for root, group in roots.items()]
            return self._least_s(count) + max(ways)

        fitting = [count for count in lengths if count == 1 or self._affordable(count, BUDGET / 2)]
        return sorted(fitting, key=lambda count: (estimate_s(count), count))[:PROMISING]

    def _repeat_trees(self) -> Iterator[SpreadSchedule]:
        """Yield schedules in which chunks follow few trees in turn: what all links carry then repeats itself.

        A root that sends all chunks needs many, which keep every link busy evenly only if trees alternate.
        """
        plans: list[tuple[float, int, int, SpreadProblem]] = []
        for trees in (
            count for count in COUNTS if self.spread.work(count) * ROUNDS <= BUDGET / 8 and count <= MOST_TREES
        ):
            for mu in (0.1, 0.01, 0.001):
                problem, _ = self.spread.problem(trees)
                if plan_trees(problem, Growing(self.fluid_s, mu, rounds=ROUNDS, seed=self.seed)):
                    plans.append((_busiest_s(problem), trees, len(plans), problem))
        for _, trees, _, problem in sorted(plans)[:KEPT_PLANS]:
            for in_turn in (False, True):
                yield from self._repeat_longer(problem, trees, Playing(steal=False, in_turn=in_turn, seed=self.seed))

    def _repeat_longer(self, problem: SpreadProblem, trees: int, playing: Playing) -> Iterator[SpreadSchedule]:
        """Yield schedules of more and more chunks along the same trees, as long as they become shorter."""
        groups, least_s = range(len(self.spread.groups)), np.inf
        for times in (1 << power for power in range(14)):
            if trees * times > MOST_REPEATED or self.spread.work(trees * times) > BUDGET / 2:
                return
            repeated, numbers = self.spread.problem(trees * times)
            rows = np.concatenate([np.tile(np.flatnonzero(problem.size == group), times) for group in groups])
            repeated.plan[:], repeated.need[:] = problem.plan[rows], problem.need[rows]
            transfers = self._play_problem(repeated, playing, numbers)
            if transfers is None or transfers.time_s >= least_s:
                return
            least_s = transfers.time_s
            self.work.advance(0.01)
            yield SpreadSchedule(transfers, trees * times, orbit=False)

    def _fits(self, per_npu: int) -> bool:
        return self.spread.chunks(per_npu) * len(self.spread.routes.keepers) <= MOST_CELLS

    def _check(self, per_npu: int) -> None:
        rule = f"times nodes, at most {MOST_CELLS:,} can be planned for; symmetric networks plan for one NPU's alone"
        require(self._fits(per_npu), "chunks", self.spread.chunks(per_npu), rule)

    def _least_s(self, per_npu: int) -> float:
        spread = self.spread
        return ingress_s(spread.graph, spread.kind, spread.size_bytes, per_npu, spread.groups)

    def _search_count(
        self, per_npu: int, budget: float, seeds: int, release_s: Floats | None
    ) -> tuple[SpreadSchedule, float]:
        """Return the shortest schedule with a number of chunks, and the work that went into it."""
        spread, used, best = self.spread, 0.0, None
        least_s = max(self.fluid_s, 0.0 if spread.hubs else self._least_s(per_npu))
        own = float(spread.work(per_npu))
        for share, transfers in self._attempts(per_npu, least_s, seeds, release_s):
            used += share * own
            self.work.advance(share * own / BUDGET)
            if transfers is not None and (best is None or transfers.time_s < best.time_s):
                best = transfers
            if best is not None and (used + own > budget or best.time_s <= NEAR * least_s):
                break
        if best is None:
            rule = "not all members are reached from where chunks begin"
            require(False, "network", f"{spread.graph.npus} NPUs", rule)
            raise AssertionError
        return SpreadSchedule(best, per_npu, spread.symmetry is not None), used

    def _attempts(
        self, per_npu: int, target_s: float, seeds: int, release_s: Floats | None
    ) -> Iterator[tuple[float, Transfers | None]]:
        """Yield schedules with the work that each took; None for those that do not reach all members."""
        spread = self.spread
        paths = spread.kind == "all_to_all"
        problem, numbers = spread.problem(per_npu, release_s)
        for seed in range(self.seed, self.seed + seeds):
            if not spread.relays:
                yield 1.0, self._play_problem(problem, Playing(seed=seed), numbers)
            for mu in PATH_MUS if paths else MUS:
                rounds = ROUNDS if spread.work(per_npu) <= LARGE else FEW_ROUNDS if paths else 1
                if not plan_trees(problem, Growing(target_s, mu, paths, rounds, seed)):
                    yield 0.2 * rounds, None
                    continue
                in_turn = bool(spread.hubs)  # sums are to be complete early, one after the other
                playing = Playing(steal=False, in_turn=in_turn, seed=seed)
                yield 0.2 * rounds + 0.5, self._play_problem(problem, playing, numbers)
                if spread.work(per_npu) <= LARGE and not in_turn:
                    yield 0.5, self._play_problem(problem, replace(playing, in_turn=True), numbers)
                if not spread.relays:
                    yield 1.0, self._play_problem(problem, Playing(lenient=False, seed=seed), numbers)
                if not spread.relays and spread.work(per_npu) <= SMALL:
                    yield 1.0, self._play_problem(problem, Playing(seed=seed), numbers)
            problem, numbers = spread.problem(per_npu, release_s)

    def _play_problem(self, problem: SpreadProblem, playing: Playing, numbers: Ints) -> Transfers | None:
        transfers = play_transfers(problem, playing)
        if not self.spread.complete(problem, transfers):
            return None
        return Transfers(transfers.link, numbers[transfers.chunk], transfers.start_s, transfers.end_s)


def _busiest_s(problem: SpreadProblem) -> float:
    """Return how long the busiest link is busy by the plan."""
    load_s = np.zeros(problem.machines)
    for chunk, size in enumerate(problem.size.tolist()):
        routes = problem.plan[chunk]
        for route in routes[routes >= 0].tolist():
            hops = problem.routes.hops[problem.routes.hop_first[route] : problem.routes.hop_first[route + 1]]
            np.add.at(load_s, problem.machine[hops], problem.seconds[size, hops])
    return float(load_s.max())


# ---- Make the transfers of a schedule as early as they can be, so that nothing waits for what it does not need

MOST_SETTLED = 300_000
"""Transfers that are looked at one by one; more stay as they are."""
MOST_PASSES = 8
"""Times that transfers of a network with switches are looked at."""
NO_GAP = 1e-12
"""Share of a time that is no gap, but rounding."""


def settle_transfers(graph: LinkGraph, transfers: Transfers) -> Transfers:
    """Return transfers, in the order of their starts, as early as possible; equal ones where there is no gap.

    >>> from cosmic.network.link_graph import graph_of
    >>> pair = graph_of(2, [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)])
    >>> late = Transfers(np.array([0, 1]), np.array([0, 1]), np.array([0.0, 2.0]), np.array([1.0, 3.0]))
    >>> settle_transfers(pair, late).time_s
    1.0
    """
    if len(transfers.link) > MOST_SETTLED:
        return transfers
    for _ in range(MOST_PASSES if graph.switches else 1):  # who is first at a switch may change
        before, transfers = transfers, _move_earlier(graph, transfers)
        if transfers is before:
            break
    return transfers


def _move_earlier(graph: LinkGraph, transfers: Transfers) -> Transfers:
    """Return transfers as early as their links and chunks allow, by who was first at switches so far."""
    old_start, old_end = transfers.start_s.tolist(), transfers.end_s.tolist()
    key = transfers.chunk * graph.nodes
    wanted, filled = key + graph.sources[transfers.link], key + graph.targets[transfers.link]
    first = _first_come(graph, transfers, wanted, filled)
    start, end = old_start[:], old_end[:]
    free, come = [0.0] * graph.links, dict.fromkeys(wanted.tolist(), 0.0)
    rows = zip(transfers.link.tolist(), wanted.tolist(), filled.tolist(), strict=True)
    for row, (link, needs, fills) in enumerate(rows):
        available = end[first[row]] if row in first else come[needs]
        begin = free[link] if free[link] > available else available
        if begin < old_start[row] - NO_GAP * old_end[row]:
            start[row], end[row] = begin, begin + (old_end[row] - old_start[row])
        free[link] = end[row]
        if come.get(fills, end[row]) < end[row]:
            come[fills] = end[row]
    if start == old_start:
        return transfers
    order = np.argsort(np.array(start), kind="stable")
    columns = np.array(start)[order], np.array(end)[order]
    return Transfers(transfers.link[order], transfers.chunk[order], *columns)


def _first_come(graph: LinkGraph, transfers: Transfers, wanted: Ints, filled: Ints) -> dict[int, int]:
    """Return of what switches pass on the transfer that brought it: they send first what came first of a chunk."""
    passes = np.arange(graph.nodes) >= graph.npus
    passes[list(graph.reducing)] = False
    into = np.flatnonzero(passes[graph.targets[transfers.link]])
    waiting: dict[int, deque[int]] = defaultdict(deque)
    for row in into[np.argsort(transfers.end_s[into], kind="stable")].tolist():
        waiting[int(filled[row])].append(row)
    out = np.flatnonzero(passes[graph.sources[transfers.link]]).tolist()
    return {row: waiting[int(wanted[row])].popleft() for row in out}


# ---- Schedules made to measure: for any network, kind, size and groups

WRITTEN_OUT = 2_000_000
"""Schedules of at most as many transfers are written out at once, symmetric or not."""
TURNED: dict[Kind, Kind] = {"reduce_scatter": "all_gather", "reduce": "broadcast"}
"""Collectives that are others with links and time turned round."""


def synthesize(
    graph: LinkGraph,
    kind: Kind,
    size_bytes: float,
    *,
    chunks: int | None = None,
    groups: Sequence[Sequence[int]] | None = None,
    root: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Schedule:
    """Return a schedule of a collective of *size_bytes* per NPU that comes near its bound.

    Transfers hold their links alone, nodes send what has arrived in whole, and every chunk gets where it must. With
    *chunks* None, the number of chunks is chosen. Equal inputs and *seed* give equal schedules. *progress* is called
    with the share that is done.

    >>> from cosmic.network.link_graph import graph_of
    >>> ring = graph_of(4, [(i, (i + j) % 4, 1e9, 0.0) for i in range(4) for j in (1, 3)])
    >>> synthesize(ring, "all_gather", 4e9).time_s
    1.5
    """
    check_chunks(chunks)
    members = checked_groups(graph, kind, size_bytes, groups, root)
    work = SearchWork(progress or (lambda _: None))
    if kind == "all_reduce":
        best = _all_reduce(Spread(graph, "all_gather", size_bytes, members, root), chunks, seed, work)
    elif kind in TURNED:
        spread = Spread(graph.transposed(), TURNED[kind], size_bytes, members, root)
        best = _turn_time(Search(spread, seed, work).best(chunks))
    else:
        best = Search(Spread(graph, kind, size_bytes, members, root), seed, work).best(chunks)
    work.finish()
    if not best.orbit:
        transfers = settle_transfers(graph, best.transfers)
        return Schedule(
            graph,
            kind,
            size_bytes,
            best.chunks_per_npu,
            members,
            transfers.link,
            transfers.chunk,
            transfers.start_s,
            transfers.end_s,
            root,
        )
    return _write_out(graph, kind, size_bytes, best)


def _write_out(graph: LinkGraph, kind: Kind, size_bytes: float, best: SpreadSchedule) -> Schedule:
    """Return a schedule of the orbit that was found, with its transfers one by one if they are few enough."""
    symmetry = symmetry_of(graph)
    assert symmetry is not None  # noqa: S101  an orbit was found with it
    schedule = OrbitSchedule(graph, kind, size_bytes, best.chunks_per_npu, best.transfers, symmetry)
    if schedule.transfers > WRITTEN_OUT:
        return schedule
    early = settle_transfers(graph, Transfers(schedule.link, schedule.chunk, schedule.start_s, schedule.end_s))
    columns = early.link, early.chunk, early.start_s, early.end_s
    return Schedule(graph, kind, size_bytes, best.chunks_per_npu, schedule.groups, *columns)


def _turn_time(schedule: SpreadSchedule) -> SpreadSchedule:
    """Return what was found with time turned round."""
    transfers, time_s = schedule.transfers, schedule.transfers.time_s
    start_s, end_s = time_s - transfers.end_s, time_s - transfers.start_s
    order = np.argsort(start_s, kind="stable")
    turned = Transfers(transfers.link[order], transfers.chunk[order], start_s[order], end_s[order])
    return SpreadSchedule(turned, schedule.chunks_per_npu, schedule.orbit)


def _all_reduce(gather: Spread, chunks: int | None, seed: int, work: SearchWork) -> SpreadSchedule:
    """Return a reduce-scatter and the all-gather after it; or sums in switches where that is faster."""
    scatter = Spread(gather.graph.transposed(), "all_gather", gather.size_bytes, gather.groups, gather.root)
    scatters, gathers = Search(scatter, seed, work), Search(gather, seed, work)
    left, right = scatters.best(chunks), gathers.best(chunks)
    pairs = [(left, right)]
    if left.chunks_per_npu != right.chunks_per_npu:
        # An all-reduce has one number of chunks: that of either half is tried for the other.
        pairs = [(scatters.best(right.chunks_per_npu), right), (left, gathers.best(left.chunks_per_npu))]
    choices = [_join_schedules(_turn_time(back), forth) for back, forth in pairs]
    if gather.graph.reducing:
        choices += _sums_in_switches(gather, scatter, chunks, seed, work)
    return min(choices, key=lambda choice: choice.transfers.time_s)


def _join_schedules(first: SpreadSchedule, then: SpreadSchedule, *, after: bool = True) -> SpreadSchedule:
    """Return two findings as one: the second when the first has ended, or at its own times."""
    offset = first.transfers.time_s if after else 0.0
    left, right = first.transfers, then.transfers
    start_s = np.concatenate([left.start_s, right.start_s + offset])
    end_s = np.concatenate([left.end_s, right.end_s + offset])
    link, chunk = np.concatenate([left.link, right.link]), np.concatenate([left.chunk, right.chunk])
    order = np.argsort(start_s, kind="stable")
    return SpreadSchedule(
        Transfers(link[order], chunk[order], start_s[order], end_s[order]), first.chunks_per_npu, first.orbit
    )


def _sums_in_switches(
    gather: Spread, scatter: Spread, chunks: int | None, seed: int, work: SearchWork
) -> list[SpreadSchedule]:
    """Return all-reduces whose sums are complete in switches that add up, and spread from there at once."""
    hubs = tuple(sorted(gather.graph.reducing))
    back = Search(scatter.from_hubs(hubs), seed, work)
    if not back.feasible():
        return []
    first = back.best(chunks)
    choices = []
    for per_npu in {first.chunks_per_npu, 4 * first.chunks_per_npu} if chunks is None else {chunks}:
        sums = _turn_time(first if per_npu == first.chunks_per_npu else back.best(per_npu))
        total = sum(chunk_count("all_gather", len(group), per_npu) for group in gather.groups)
        ready_s = np.zeros(total)
        np.maximum.at(ready_s, sums.transfers.chunk, sums.transfers.end_s)
        spread = Search(gather.from_hubs(hubs), seed, work).best(per_npu, ready_s)
        apart = not np.isin(spread.transfers.link, sums.transfers.link).any()
        if apart:
            choices.append(_join_schedules(sums, spread, after=False))
    return choices
