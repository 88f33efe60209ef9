"""Where a request goes: to which rank of which instance, and what the prefix cache there has of it.

least_loaded   the rank with the fewest requests, waiting ones too
round_robin    one rank after the other
prefix_aware   the rank with the fewest tokens to compute: those of the request that its cache does not have, and
               those of the requests that it has already
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, get_args

from cosmic.errors import UnknownName
from cosmic.serving.requests import BLOCK_TOKENS, Requests

Policy = Literal["least_loaded", "round_robin", "prefix_aware"]
POLICIES: tuple[str, ...] = get_args(Policy)


class PrefixCache:
    """Blocks of inputs that a rank has seen; the least recently used leave it first.

    >>> cache = PrefixCache(2)
    >>> cache.use((1, 2)), cache.use((1, 3)), cache.use((1, 2))
    (0, 1, 1)
    """

    __slots__ = ("blocks", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.blocks: OrderedDict[int, None] = OrderedDict()

    def has(self, blocks: tuple[int, ...]) -> int:
        """Return how many of the first *blocks* are there."""
        known = self.blocks
        for place, block in enumerate(blocks):
            if block not in known:
                return place
        return len(blocks)

    def use(self, blocks: tuple[int, ...]) -> int:
        """Return how many of the first *blocks* are there, and keep them all."""
        found, known = self.has(blocks), self.blocks
        for block in reversed(blocks):  # a prefix outlives what follows it
            known[block] = None
            known.move_to_end(block)
        while len(known) > self.most:
            known.popitem(last=False)
        return found


class Router:
    """Chooses ranks for requests, and knows their prefix caches where requests have blocks."""

    def __init__(self, policy: str, requests: Requests, loads: list[int], kv_tokens: float) -> None:
        if policy not in POLICIES:
            raise UnknownName.among("router", policy, "router", POLICIES)
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
        place = self.choose(request) if len(self.loads) > 1 else 0
        if self.blocks:
            found = self.caches[place].use(self.blocks[request]) * BLOCK_TOKENS
            self.cached[request] = min(max(found, self.cached[request]), self.inputs[request] - 1)
        self.queued[place] += self.inputs[request] - self.cached[request]
        return place

    def gone(self, request: int, place: int) -> None:
        """Note that a rank has completed a request."""
        self.queued[place] -= self.inputs[request] - self.cached[request]

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
