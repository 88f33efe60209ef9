"""How an engine puts requests into steps: what one rank of attention admits, prefills, decodes and preempts.

    mixed           running requests decode a token each, and chunks of prompts fill the step up to its tokens
    prefill first   while prompts wait and fit, steps only prefill; then all running requests decode
    whole prompts   as mixed, but a prompt is not cut

Admission needs KV cache for the prompt and for a stated share of what is still to come (none: vLLM; all: TensorRT-LLM,
which then never preempts). Where the cache is full, the request that was admitted last is preempted: it waits at the
head of the queue, and computes its prompt and what it had generated again.

A step changes few numbers, whatever the number of requests: a rank counts steps, knows at which count each request
ends, and the sum of the contexts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, inf, nan

from cosmic.serving.serving_requests import Requests

NO_REQUEST = -1
"""No request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """What bounds the steps of one rank, and how it admits."""

    requests: int
    """Most requests that run at once."""
    tokens: int
    """Most tokens of one step; with stages, of the steps that are in all of them at once."""
    kv_tokens: float
    """Tokens that the KV cache holds."""
    page_tokens: int = 1
    reserve: float = 0.0
    """Share of the output still to come for which admission keeps KV cache free."""
    chunked: bool = True
    prefill_first: bool = False
    tokens_per_step: float = 1.0
    """Tokens that a request gains a step: more than one with speculative decoding."""
    draft_tokens: int = 0
    """Tokens that are verified beside one, for each request and step."""
    stages: int = 1
    """Stages of a pipeline: prompts follow each other through them."""

    @property
    def stage_tokens(self) -> int:
        """Most tokens that one stage takes at once."""
        return max(self.tokens // self.stages, 1)

    @property
    def page_waste(self) -> float:
        """Tokens that a request leaves free in its last page, on average."""
        return (self.page_tokens - 1) / 2


@dataclass(slots=True, eq=False)
class RequestBook:
    """What is known of each request while it is served; lists by its number."""

    context: list[int]
    """Tokens of the prompt; after a preemption also those that were generated."""
    left: list[int]
    """Tokens still to generate: when it joins the decoding requests, without the first."""
    cached: list[int]
    admitted: list[float]
    """When a rank first took it from its queue."""
    first: list[float]
    done: list[float]
    preempted: list[int]
    ready: list[bool]
    """Whether another pool has prefilled it."""
    alive: list[bool]
    """Whether a rank runs it."""
    joined: list[int]
    """The rank's count of steps when it joined the decoding requests."""
    until: list[int]
    """The rank's count of steps at which it ends."""
    place: list[int]
    """The instance that decodes it."""

    @classmethod
    def of_requests(cls, requests: Requests) -> RequestBook:
        """Return what is known before any is served."""
        columns = (requests.input_tokens, requests.output_tokens, requests.cached_tokens)
        unknown = (nan, nan, nan, 0, False, False, 0, NO_REQUEST, NO_REQUEST)
        return cls(*(column.tolist() for column in columns), *([value] * requests.count for value in unknown))


@dataclass(slots=True, eq=False)
class AttentionRank:
    """One rank of attention of an engine instance: its queue, its running requests and its KV cache."""

    limits: StepLimits
    book: RequestBook
    loads: list[int]
    """Requests that are at each rank of the pool, waiting ones too."""
    index: int
    """Where this rank is among them."""
    handed: list[int] | None = None
    """Requests that were prefilled here and go on to another pool; None where this pool decodes them."""
    growth: float = field(init=False)
    hold: float = field(init=False)
    free: float = field(init=False)
    waiting: deque[int] = field(default_factory=deque)
    ending: list[tuple[int, int]] = field(default_factory=list)
    """Heap of the counts at which requests end; preempted ones stay in it."""
    order: list[int] = field(default_factory=list)
    """Requests as they were admitted; those that are done stay in it."""
    arrived: list[int] = field(default_factory=list)
    """Prefilled requests that came while a step ran, and have their KV cache already."""
    firsts: list[int] = field(default_factory=list)
    """Those that decode, and have their first token with the next step."""
    running: int = 0
    decoding: int = 0
    count: int = 0
    cached_tokens: float = 0
    """Tokens of KV cache once the next step has written its own."""
    read: float = 0
    """Those of requests that decode: what their attention reads."""
    committed: float = 0
    """The same with what admission keeps free."""
    partial: int = NO_REQUEST
    """The prompt that is cut."""
    partial_left: int = 0
    """Its tokens still to prefill."""
    tokens: int = 0
    """Prompt tokens of the step."""
    decodes: int = 0
    """Decoding requests of the step."""
    chunks: list[tuple[int, int]] = field(default_factory=list)
    """For each prompt of the step, the tokens that its KV cache has, and how many are prefilled."""
    finishing: list[int] = field(default_factory=list)
    """Requests whose prompt the step completes."""
    drain: float = 0.0
    """For how long the prompts of the step are still in later stages when the next step begins."""
    drain_before: float = 0.0
    draining: list[tuple[float, int]] = field(default_factory=list)
    """Requests whose prompt is in later stages, and until when."""
    completed: list[int] = field(default_factory=list)
    lag: float = 0.0
    """Seconds for which decoding requests have waited for prefills."""

    def __post_init__(self) -> None:
        self.growth = self.limits.tokens_per_step
        self.hold, self.free = self.limits.reserve, 1 - self.limits.reserve

    # -------------------------------------------------------------------------------------------- planning a step

    def plan(self, now: float) -> None:
        """Decide what the next step does."""
        limits = self.limits
        if self.tokens:
            self.tokens, self.chunks, self.finishing = 0, [], []
        if self.arrived:
            self._join_arrived()
        preempted = False
        while self.cached_tokens + limits.page_waste * self.running > limits.kv_tokens and self.running > 1:
            self._preempt()
            preempted = True
        budget = limits.tokens
        if not limits.prefill_first:
            budget -= self.decoding * (1 + limits.draft_tokens)
        if self.partial != NO_REQUEST:
            budget = self._continue(budget)
        if self.waiting and self.partial == NO_REQUEST and not preempted:
            self._admit(now, budget)
        self.decodes = 0 if limits.prefill_first and self.tokens else self.decoding

    def _continue(self, budget: int) -> int:
        """Prefill more of the prompt that was cut; return how many tokens the step has left."""
        chunk = min(self.partial_left, max(budget, 0))
        if chunk:
            context = self.book.context[self.partial]
            self._prefill(context - self.partial_left, chunk)
            self.partial_left -= chunk
            if not self.partial_left:
                self.finishing.append(self.partial)
                self.partial = NO_REQUEST
        return budget - chunk

    def _admit(self, now: float, budget: int) -> None:
        """Admit requests in the order of the queue, until one does not fit."""
        book, waiting, limits = self.book, self.waiting, self.limits
        while waiting and self.running < limits.requests:
            request = waiting[0]
            if not self.fits(request):
                return
            if book.ready[request]:
                waiting.popleft()
                self._start_request(request, now)
                self._join_ready(request)
                continue
            todo = book.context[request] - book.cached[request]
            chunk = self._chunk(todo, budget)
            if not chunk:
                return
            waiting.popleft()
            self._start_request(request, now)
            self._prefill(book.cached[request], chunk)
            budget -= chunk
            if chunk < todo:
                self.partial, self.partial_left = request, todo - chunk
                return
            self.finishing.append(request)

    def _chunk(self, todo: int, budget: int) -> int:
        """Return how many of *todo* tokens of a prompt the step takes; 0 if the prompt must wait."""
        if todo <= budget:
            return todo
        if self.limits.chunked:
            return max(budget, 0)
        return 0 if self.tokens else todo  # a step takes one, however much decodes beside it

    def _prefill(self, past: int, chunk: int) -> None:
        self.tokens += chunk
        self.chunks.append((past, chunk))

    def fits(self, request: int) -> bool:
        """Return whether the KV cache has room for a request, and for what admission keeps free."""
        limits, book = self.limits, self.book
        needed_tokens = book.context[request] + self.hold * book.left[request]
        return self.committed + needed_tokens + limits.page_waste * (self.running + 1) <= limits.kv_tokens

    def _start_request(self, request: int, now: float) -> None:
        book = self.book
        if book.admitted[request] != book.admitted[request]:
            book.admitted[request] = now
        context = book.context[request]
        self.cached_tokens += context
        self.committed += context + self.hold * book.left[request]
        self.running += 1
        self.order.append(request)
        book.alive[request] = True

    # -------------------------------------------------------------------------------------------- after a step

    def finish(self, now: float, steps: int, first_end: float) -> None:
        """Account for *steps* of the same requests, of which the last ends *now* and the first did at *first_end*."""
        if self.decodes:
            if self.firsts:
                self._give_first(first_end)
            grown = self.growth * self.decodes * steps
            self.cached_tokens += grown
            self.read += grown
            self.committed += self.free * grown
            self.count = count = self.count + steps
            ending, until = self.ending, self.book.until
            while ending and ending[0][0] <= count:
                due, request = heappop(ending)
                if until[request] == due:
                    self._leave(request)
                    self._complete(request, now)
        if self.drain:
            self.draining += [(now + self.drain, request) for request in self.finishing]
            self.drain_before = (
                0.0 if self.partial == NO_REQUEST else self.drain
            )  # its further chunks cannot overtake these
            self.drain = 0.0
        else:
            for request in self.finishing:
                self._first(request, now)
        if self.draining:
            self._drained(now)

    def _drained(self, now: float) -> None:
        """Give requests their first token whose prompt has left the last stage."""
        out = [draining_request for draining_request in self.draining if draining_request[0] <= now]
        self.draining = [draining_request for draining_request in self.draining if draining_request[0] > now]
        for ready, request in sorted(out):
            self._first(request, ready)

    def _give_first(self, now: float) -> None:
        """Give requests that another pool prefilled their first token, unless they were preempted."""
        book = self.book
        for request in self.firsts:
            if book.until[request] != NO_REQUEST and book.first[request] != book.first[request]:
                book.first[request] = now
        self.firsts = []

    def _first(self, request: int, now: float) -> None:
        """Give a prefilled request its first token."""
        book = self.book
        if self.handed is not None and book.left[request] > 1:
            self._drop(request)
            self.loads[self.index] -= 1
            self.handed.append(request)
            return
        if book.first[request] != book.first[request]:  # NaN: after a preemption it has had one
            book.first[request] = now
        if book.left[request] == 1:
            self._drop(request)
            self._complete(request, now)
        else:
            self._join(request)

    def _join(self, request: int) -> None:
        """Let a request with its first token decode from the next step on."""
        book = self.book
        book.left[request] -= 1
        self.decoding += 1
        self.cached_tokens += 1
        self.read += book.context[request] + 1
        self.committed += self.free
        book.joined[request] = self.count
        book.until[request] = due = self.count + ceil(book.left[request] / self.growth)
        heappush(self.ending, (due, request))

    def _leave(self, request: int) -> None:
        """Release what a decoding request holds."""
        book = self.book
        grown = 1 + self.growth * (self.count - book.joined[request])
        context = book.context[request]
        self.cached_tokens -= context + grown
        self.read -= context + grown
        self.committed -= context + self.hold * (book.left[request] + 1) + self.free * grown
        self.decoding -= 1
        self._gone(request)

    def _drop(self, request: int) -> None:
        """Release what a request holds that does not decode."""
        context = self.book.context[request]
        self.cached_tokens -= context
        self.committed -= context + self.hold * self.book.left[request]
        self._gone(request)

    def _gone(self, request: int) -> None:
        self.running -= 1
        self.book.alive[request] = False
        self.book.until[request] = NO_REQUEST
        if not self.running:  # no rounding is carried on
            self.cached_tokens = self.committed = self.read = 0

    def _complete(self, request: int, now: float) -> None:
        self.book.done[request] = now
        self.loads[self.index] -= 1
        self.completed.append(request)

    def _preempt(self) -> None:
        """Preempt the request that was admitted last: it computes its prompt, and what it generated, again."""
        book = self.book
        request = self.order.pop()
        while not book.alive[request]:
            request = self.order.pop()
        stays = [draining_request for draining_request in self.draining if draining_request[1] != request]
        if request == self.partial or len(stays) < len(self.draining):
            self.partial, self.draining = NO_REQUEST if request == self.partial else self.partial, stays
            self._drop(request)
        else:
            gained = int(self.growth * (self.count - book.joined[request]))
            self._leave(request)
            book.context[request] += 1 + gained
            book.left[request] -= gained
        book.ready[request] = False
        book.preempted[request] += 1
        self.waiting.appendleft(request)

    # -------------------------------------------------------------------------------------------- arrivals, and ahead

    def arrive(self, request: int, now: float, steps: int) -> bool:
        """Queue a request; return whether the next step may do something about it.

        *steps* of a running step are still to be accounted for. A request that was prefilled elsewhere gets its KV
        cache at once if there is room.
        """
        blocked = bool(self.waiting)
        if self.book.ready[request] and not blocked and self.running < self.limits.requests:
            grown = self.growth * self.decodes * steps
            self.committed += grown
            room = self.fits(request)
            self.committed -= grown
            if room:
                self._start_request(request, now)
                self.arrived.append(request)
                return True
        self.waiting.append(request)
        return not blocked

    def _join_arrived(self) -> None:
        for request in self.arrived:
            self._join_ready(request)
        self.arrived = []

    def _join_ready(self, request: int) -> None:
        """Let a request that another pool prefilled decode: it computes the last token of its prompt again."""
        self._join(request)
        self.firsts.append(request)

    def steps_ahead(self) -> float:
        """Return how many steps decode the same requests: until the first ends, or the KV cache is full."""
        ending, until = self.ending, self.book.until
        while ending and until[ending[0][1]] != ending[0][0]:
            heappop(ending)
        first = ending[0][0] - self.count if ending else inf
        limits = self.limits
        room = limits.kv_tokens - limits.page_waste * self.running - self.cached_tokens
        return max(1, min(first, room // (self.growth * self.decodes) + 1))
