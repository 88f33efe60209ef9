"""Serving step by step and request by request: slow, and obvious."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf, nan
from typing import Any

import numpy as np

from cosmic.serving.engine_scheduling import StepLimits
from cosmic.serving.event_loop import PoolModel
from cosmic.serving.serving_requests import Requests


@dataclass
class Asked:
    """A request."""

    place: int
    prompt: int
    left: int
    cached: int
    gained: float = 0.0
    """Tokens since its last prefill, without the first."""
    todo: int = 0
    state: str = "waits"
    first: float = nan
    done: float = nan
    preempted: int = 0

    @property
    def context(self) -> float:
        """Tokens in the KV cache once the next step has written."""
        return self.prompt + (1 + self.gained if self.state == "decodes" else 0)

    def wanted(self, reserve: float) -> float:
        """Tokens, with what admission keeps free."""
        return self.context + reserve * (self.left - (self.gained if self.state == "decodes" else 0))


@dataclass
class Line:
    """A rank."""

    limits: StepLimits
    queue: list[Asked] = field(default_factory=list)
    runs: list[Asked] = field(default_factory=list)
    """As they were admitted."""
    step: list[tuple[Asked, int, int]] = field(default_factory=list)
    """Chunks of the step: request, past and tokens."""
    decodes: list[Asked] = field(default_factory=list)

    def plan(self) -> None:
        """Decide what the next step does."""
        limit = self.limits
        waste = limit.page_waste
        self.step, calm = [], True
        while sum(each.context for each in self.runs) + waste * len(self.runs) > limit.kv_tokens and len(self.runs) > 1:
            latest, calm = self.runs.pop(), False
            if latest.state == "decodes":
                latest.prompt, latest.left = latest.prompt + 1 + int(latest.gained), latest.left - int(latest.gained)
            latest.state, latest.gained, latest.preempted = "waits", 0.0, latest.preempted + 1
            self.queue.insert(0, latest)
        decoding = [each for each in self.runs if each.state == "decodes"]
        budget = limit.tokens - (0 if limit.prefill_first else len(decoding) * (1 + limit.draft_tokens))
        for each in self.runs:
            if each.state == "prefills":
                budget -= self.prefill(each, min(each.todo, max(budget, 0)))
        while self.queue and calm and len(self.runs) < limit.requests:
            if any(each.state == "prefills" and each.todo for each in self.runs):
                break
            new = self.queue[0]
            held = sum(each.wanted(limit.reserve) for each in self.runs) + new.wanted(limit.reserve)
            todo = new.prompt - new.cached
            chunk = todo if todo <= budget else max(budget, 0) if limit.chunked else 0
            if not limit.chunked and todo > limit.tokens and not self.step:
                chunk = todo
            if held + waste * (len(self.runs) + 1) > limit.kv_tokens or not chunk:
                break
            self.runs.append(self.queue.pop(0))
            new.state, new.todo = "prefills", todo
            budget -= self.prefill(new, chunk)
        self.decodes = [] if limit.prefill_first and self.step else decoding

    def prefill(self, each: Asked, chunk: int) -> int:
        """Take a chunk of a prompt into the step."""
        if chunk:
            self.step.append((each, each.prompt - each.todo, chunk))
            each.todo -= chunk
        return chunk

    @property
    def tokens(self) -> int:
        """Tokens and requests of the step."""
        return sum(tokens for _, _, tokens in self.step) + len(self.decodes)

    def seconds(self, steps: Any, mean: int) -> float:
        """Return what the step takes."""
        read = sum(each.context for each in self.decodes)
        if self.step:
            chunks = [(past, tokens) for _, past, tokens in self.step]
            return float(steps.mixed(sum(tokens for _, tokens in chunks), chunks, len(self.decodes), read, mean))
        return float(steps.decode(len(self.decodes), read)[0]) if self.decodes else -1.0

    def finish(self, now: float) -> int:
        """Return how many requests are complete."""
        before = len(self.runs)
        for each in self.decodes:
            each.gained += self.limits.tokens_per_step
            if each.gained >= each.left:
                each.done = now
        for each, _, _ in self.step:
            if not each.todo:
                each.first = now if np.isnan(each.first) else each.first
                each.left -= 1
                each.state = "decodes"
                each.done = nan if each.left else now
        self.runs = [each for each in self.runs if np.isnan(each.done)]
        return before - len(self.runs)


def serve(requests: Requests, pool: PoolModel, front_s: float = 0.0) -> dict[str, Any]:
    """Return when each request had its first token and its last, and how often it was preempted."""
    columns = (each.tolist() for each in (requests.input_tokens, requests.output_tokens, requests.cached_tokens))
    asked = [Asked(place, *each) for place, each in enumerate(zip(*columns, strict=True))]
    lines = [[Line(pool.limits) for _ in range(pool.ranks)] for _ in range(pool.instances)]
    flat = [lines[place % pool.instances][place // pool.instances] for place in range(pool.instances * pool.ranks)]
    ends = [inf] * pool.instances
    open_loop = requests.concurrency is None
    known = requests.count if open_loop else min(requests.count, requests.concurrency or 0)
    coming = [(float(requests.arrival_s[place]) + front_s, asked[place]) for place in range(known)]
    while any(np.isnan(each.done) for each in asked):
        now = min(*ends, coming[0][0] if coming else inf)
        complete = 0
        for place, end in enumerate(ends):
            if end == now:
                complete += sum(line.finish(now) for line in lines[place])
                ends[place] = inf
        if not open_loop:
            coming += [(now + front_s, each) for each in asked[known : known + complete]]
            known = min(known + complete, requests.count)
        while coming and coming[0][0] <= now:
            least = min(flat, key=lambda line: len(line.queue) + len(line.runs))
            least.queue.append(coming.pop(0)[1])
        for place, mine in enumerate(lines):
            if ends[place] == inf and any(line.queue or line.runs for line in mine):
                for line in mine:
                    line.plan()
                mean = ceil(sum(line.tokens for line in mine) / len(mine))
                ends[place] = now + max(line.seconds(pool.steps, mean) for line in mine)
    return {name: np.array([getattr(each, name) for each in asked]) for name in ("first", "done", "preempted")}
