"""The event loop of a simulation: arrivals, their routing, steps that end, and what moves between two pools.

At each time steps end first, then requests arrive, then idle instances begin: what arrives when a step ends is in the
next one, whatever the order of instances.

A request is routed to a rank of an instance (`Router`) by one of these policies:

least_loaded   the rank with the fewest requests, waiting ones too
round_robin    one rank after the other
prefix_aware   the rank with the fewest tokens to compute: those of the request that its cache does not have, and
               those of the requests that it has already
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

from cosmic.base.errors import UnknownName
from cosmic.base.event_clock import EventClock, without_garbage_collection
from cosmic.serving.engine_instances import EngineInstance, RankSteps, StepTally
from cosmic.serving.engine_scheduling import AttentionRank, RequestBook, StepLimits
from cosmic.serving.serving_requests import BLOCK_TOKENS, Requests

# ---- Where a request goes: to which rank of which instance, and what the prefix cache there has of it

RoutingPolicy = Literal["least_loaded", "round_robin", "prefix_aware"]
ROUTING_POLICIES: tuple[str, ...] = get_args(RoutingPolicy)


class PrefixCache:
    """Blocks of inputs that a rank has seen; the least recently used leave it first.

    >>> cache = PrefixCache(2)
    >>> cache.use((1, 2)), cache.use((1, 3)), cache.use((1, 2))
    (0, 1, 1)
    """

    __slots__ = ("blocks", "most")

    def __init__(self, capacity: int) -> None:
        self.most = capacity
        self.blocks: OrderedDict[int, None] = OrderedDict()

    def has(self, blocks: tuple[int, ...]) -> int:
        """Return how many of the first *blocks* are there."""
        cached = self.blocks
        for index, block in enumerate(blocks):
            if block not in cached:
                return index
        return len(blocks)

    def use(self, blocks: tuple[int, ...]) -> int:
        """Return how many of the first *blocks* are there, and keep them all."""
        hits, cached = self.has(blocks), self.blocks
        for block in reversed(blocks):  # a prefix outlives what follows it
            cached[block] = None
            cached.move_to_end(block)
        while len(cached) > self.most:
            cached.popitem(last=False)
        return hits


class Router:
    """Chooses ranks for requests, and knows their prefix caches where requests have blocks."""

    def __init__(self, policy: str, requests: Requests, loads: list[int], kv_tokens: float) -> None:
        if policy not in ROUTING_POLICIES:
            raise UnknownName.among("router", policy, "router", ROUTING_POLICIES)
        self.loads = loads
        self.blocks = requests.blocks
        self.inputs = requests.input_tokens.tolist()
        self.cached: list[int] = requests.cached_tokens.tolist()
        self.caches = [PrefixCache(int(kv_tokens // BLOCK_TOKENS)) for _ in loads] if self.blocks else []
        self.queued = [0] * len(loads)
        """Tokens of the requests at each rank that were to be computed."""
        self.turn = -1
        self.choose: Callable[[int], int] = getattr(self, f"_{policy}")

    def route(self, request: int) -> int:
        """Return the place of the rank that *request* goes to; what its cache has is noted in `cached`."""
        rank = self.choose(request) if len(self.loads) > 1 else 0
        if self.blocks:
            hit_tokens = self.caches[rank].use(self.blocks[request]) * BLOCK_TOKENS
            self.cached[request] = min(max(hit_tokens, self.cached[request]), self.inputs[request] - 1)
        self.queued[rank] += self.inputs[request] - self.cached[request]
        return rank

    def release(self, request: int, rank: int) -> None:
        """Note that a rank has completed a request."""
        self.queued[rank] -= self.inputs[request] - self.cached[request]

    def _least_loaded(self, _request: int) -> int:
        return self.loads.index(min(self.loads))

    def _round_robin(self, _request: int) -> int:
        self.turn = (self.turn + 1) % len(self.loads)
        return self.turn

    def _prefix_aware(self, request: int) -> int:
        if not self.blocks:
            return self._least_loaded(request)
        blocks = self.blocks[request]
        costs = [
            (queued - cache.has(blocks) * BLOCK_TOKENS, load)
            for queued, cache, load in zip(self.queued, self.caches, self.loads, strict=True)
        ]
        return costs.index(min(costs))


# ---- The clock of a simulation: arrivals, steps that end, and what moves between two pools

Delay = Callable[[int], float]
ENDS, ARRIVALS, MOVES, BEGINNINGS = range(4)
"""The order of events at one time: steps end, requests are sent, requests reach a pool, idle instances begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolModel:
    """A pool as the simulation sees it: equal instances, whose steps have a price."""

    instances: int
    ranks: int
    """Ranks of attention of an instance."""
    limits: StepLimits
    """Of a rank."""
    steps: RankSteps
    late_steps: float = 0.0
    """Steps that pass before an engine that is busy looks at a request, beside the rest of the one that runs."""


class PoolState:
    """The instances of a pool while they serve."""

    __slots__ = ("instances", "loads", "marks", "model", "router", "tally")

    def __init__(
        self,
        model: PoolModel,
        requests: Requests,
        book: RequestBook,
        policy: str,
        *,
        only_prefill: bool,
        noting: bool,
    ) -> None:
        self.model, self.tally = model, StepTally()
        self.marks = [self.tally.mark()]
        """The sums when measuring begins, and when it ends."""
        self.loads = [0] * (model.instances * model.ranks)
        self.router = Router(policy, requests, self.loads, model.limits.kv_tokens)
        ranks = [
            AttentionRank(model.limits, book, self.loads, rank_index, handed=[] if only_prefill else None)
            for rank_index in range(len(self.loads))
        ]
        self.instances = [  # neighbours among ranks are of different instances, so that ties spread requests
            EngineInstance(index, ranks[index :: model.instances], model.steps, self.tally, [] if noting else None)
            for index in range(model.instances)
        ]

    def measured(self, *, steady: bool) -> StepTally:
        """Return the sums while it was measured."""
        return self.tally.between(*self.marks) if steady else self.tally

    def rank(self, rank_index: int) -> tuple[EngineInstance, AttentionRank]:
        """Return a rank by its place, and its instance."""
        count = self.model.instances
        instance = self.instances[rank_index % count]
        return instance, instance.ranks[rank_index // count]


class EventLoop:
    """Serves requests in one pool, or in two of which the first only prefills."""

    def __init__(
        self, requests: Requests, pools: list[PoolModel], policy: str, front_s: Delay, transfer_s: Delay, noting: bool
    ) -> None:
        self.requests, self.book = requests, RequestBook.of_requests(requests)
        self.pools = [
            PoolState(pool, requests, self.book, policy, only_prefill=index + 1 < len(pools), noting=noting)
            for index, pool in enumerate(pools)
        ]
        self.front_s, self.transfer_s = front_s, transfer_s
        """What the front end takes, by the requests in flight of an instance; and moving a KV cache, by its tokens."""
        self.sent = [0.0] * requests.count
        """When each request was sent."""
        self.fronts = [0.0] * requests.count
        """What the front end took of each."""
        self.prefilled = [inf] * requests.count
        """When each was prefilled, where another pool decodes it."""
        self.link_free = [0.0] * len(self.pools[0].loads)
        """When each rank that prefills may send again."""
        self.clock: EventClock[float] = EventClock()
        self.instances = [instance for pool in self.pools for instance in pool.instances]
        self.of_first = pools[0].instances
        """How many of them are the first pool's, which are numbered first."""
        self.ends = [0] * len(self.instances)
        """The event in which each instance ends its steps."""
        self.idle: list[int] = []
        """Instances that have ended a step, or have a request, at this time."""
        self.count, self.issued = requests.count, 0
        """Requests, and how many of them were sent."""
        self.arrivals: list[float] = requests.arrival_s[: requests.concurrency].tolist()
        """When those are sent that do not wait for others to complete."""
        self.haste = [1.0] * requests.count if requests.haste is None else requests.haste.tolist()
        self.late: dict[int, int] = {}
        """Requests that a rank has, but has not looked at; and the rank."""
        self.flying = self.served = 0
        self.warm, self.last, self.steady = 0, requests.count - 1, False
        self.begins_s, self.ends_s = 0.0, inf
        """When measuring begins and ends."""
        self.flying_at_last = 0

    def run(self, warm: int, *, steady: bool) -> None:
        """Serve all requests. Measuring begins with request *warm*, and if *steady* ends with the last that is sent."""
        self.warm, self.steady = warm, steady
        self.clock.at(self.arrivals[0], self._take_arrival, 0, ARRIVALS)
        with without_garbage_collection():
            self.clock.run()
        assert self.served == self.count  # noqa: S101  every request fits into the KV cache

    def _take_arrival(self, request: int) -> None:
        """Send a request that does not wait for others to complete, unless it was sent; and schedule the next."""
        following = max(self.issued, request + 1)
        if following < len(self.arrivals):
            self.clock.at(self.arrivals[following], self._take_arrival, following, ARRIVALS)
        if request == self.issued:
            self._send(request, self.clock.now)

    def _send_next(self, _: None) -> None:
        if self.issued < self.count:
            self._send(self.issued, self.clock.now)

    def _await(self, number: int) -> None:
        """Let an instance begin a step once all else has happened that happens now."""
        if self.idle:
            self.idle.append(number)
        elif self.clock.is_last:
            self._begin(number)
        else:
            self.idle.append(number)
            self.clock.at(self.clock.now, self._begin_idle, None, BEGINNINGS)

    def _begin_idle(self, _: None) -> None:
        """Let instances begin that have ended a step, or have a request."""
        idle, self.idle = self.idle, []
        for number in sorted(set(idle)):
            self._begin(number)

    def _begin(self, number: int) -> None:
        instance = self.instances[number]
        if not instance.stepping and instance.start_step(self.clock.now):
            self.ends[number] = self.clock.at(instance.end, self._finish, number, ENDS, number)

    def _finish(self, number: int) -> None:
        """Account for the steps of an instance that end now."""
        instance = self.instances[number]
        instance.finish()
        for rank in instance.ranks:
            if rank.completed:
                self._complete(int(number >= self.of_first), rank, instance.index)
            if rank.handed:
                self._hand_over(rank, self.clock.now)
        self._await(number)

    def _complete(self, pool: int, rank: AttentionRank, index: int) -> None:
        state, book = self.pools[pool], self.book
        for request in rank.completed:
            book.place[request] = index
            state.router.release(request, rank.index)
        self.flying -= len(rank.completed)
        self.served += len(rank.completed)
        if self.requests.concurrency is not None:
            for _ in rank.completed:
                self.clock.at(self.clock.now, self._send_next, None, ARRIVALS)
        rank.completed = []

    def _hand_over(self, rank: AttentionRank, now: float) -> None:
        """Send the KV cache of prefilled requests to the other pool, one after the other."""
        assert rank.handed is not None  # noqa: S101  only such ranks hand over
        for request in rank.handed:
            self.prefilled[request] = now
            self.pools[0].router.release(request, rank.index)
            agreed = self.transfer_s(0)  # caches of others move meanwhile
            sent = max(now, self.link_free[rank.index]) + self.transfer_s(self.book.context[request])
            self.link_free[rank.index] = sent - agreed
            self._make_ready(request)
            self._move(sent, 1, request)
        rank.handed = []

    def _make_ready(self, request: int) -> None:
        """Let the other pool compute the last token of the prompt again, which gives the first of the output."""
        book = self.book
        book.ready[request] = True
        book.context[request] -= 1
        book.left[request] += 1

    def _move(self, time: float, pool: int, request: int) -> None:
        """Let a request reach a pool at a *time*."""
        self.clock.at(time, self._arrive, (pool, request), MOVES, pool * self.count + request)

    def _send(self, request: int, now: float) -> None:
        """Let a client send a request: it passes the front end."""
        self.issued = request + 1
        self.sent[request] = now
        self.flying += 1
        if request == self.warm:
            self.begins_s = now
            for pool in self.pools:
                pool.marks = [pool.tally.mark()]
        if request == self.last and self.steady:
            self.ends_s, self.flying_at_last = now, self.flying
            for pool in self.pools:
                pool.marks.append(pool.tally.mark())
        delay = self.front_s(-(-self.flying // self.of_first)) * self.haste[request]
        self.fronts[request] = delay
        if delay > 0:
            self._move(now + delay, 0, request)
        else:
            self._arrive((0, request))

    def _arrive(self, place: tuple[int, int]) -> None:
        """Route a request, and end with the step that runs where it can be in the next one."""
        pool, request = place
        now, state = self.clock.now, self.pools[pool]
        rank_index = self.late.pop(request, None)
        if rank_index is None:
            rank_index = state.router.route(request)
            state.loads[rank_index] += 1
            if not pool:
                self.book.cached[request] = state.router.cached[request]
            instance, _ = state.rank(rank_index)
            if instance.stepping and state.model.late_steps > 0:
                self.late[request] = rank_index
                self._move(now + state.model.late_steps * self.haste[request] * instance.pace_s(), pool, request)
                return
        instance, rank = state.rank(rank_index)
        matters = rank.arrive(request, now, instance.steps if instance.stepping else 0)
        number = pool * self.of_first + instance.index
        if not instance.stepping:
            self._await(number)
        elif matters and instance.interrupt(now):
            self.clock.cancel(self.ends[number])
            self.ends[number] = self.clock.at(instance.end, self._finish, number, ENDS, number)
