"""Checks the leaves of a certificate: that they cover all designs, and that none can hold anything better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cosmic.certifying.certificate import unpack_bits, unpack_bytes
from cosmic.certifying.checking_parts import Parts, Whole, refuse_unless
from cosmic.evaluation import BETTER
from cosmic.exploration.problem import Problem

Floats = npt.NDArray[np.float64]
AT_ONCE = 100_000
EQUAL = 1e-12
"""Share by which rounding may move a number that is put together in another way."""
OF_STEP = (
    *("step_s", "ttft_s", "tpot_s", "tokens_per_s", "samples_per_s"),
    *("mfu", "hfu", "memory_bytes", "offloaded_bytes"),
)
"""Metrics that are best where the network is fastest."""
BOUGHT = ("network_usd", "cost_usd")
"""Metrics that are best where it is cheapest; all others are a price times a step, or over it."""
RUNGS, LADDERS = 4, 3


class Leaf(NamedTuple):
    """Some boxes of designs."""

    skeletons: Whole
    options: Whole
    low: Whole
    high: Whole

    def take(self, rows: Any) -> Leaf:
        """Return some of them."""
        return Leaf(*(each[rows] for each in self))

    @property
    def sizes(self) -> Whole:
        """How many combinations of places each has."""
        return np.asarray((self.high - self.low + 1).prod(axis=1))


class Leaves:
    """What a certificate says of boxes."""

    def __init__(self, found: Mapping[str, Any], problem: Problem) -> None:
        self.found, self.problem = found, problem
        self.free = Problem(problem.space, ("step_s",))
        """The same designs without objectives and limits of their own."""
        self.parts = Parts(found, problem.space)
        self.able = unpack_bits(found["able"], "certificate.able")
        refuse_unless(len(self.able) == self.parts.count, "it has another number of skeletons")
        self.tables: list[Whole] = []
        self.which: list[Whole] = []
        refuse_unless(len(found["dominance"]) == len(self.parts.options), "it lacks a choice")
        for number, each in enumerate(found["dominance"]):
            self._read_tables(number, each)
        self.best = np.array([each["losses"] for each in found["front"]], dtype=np.float64).reshape(
            -1, len(problem.objectives)
        )
        self.slack = float(found["slack"])

    def _read_tables(self, number: int, stated: Any) -> None:
        options, able = len(self.parts.options[number]), int(np.count_nonzero(self.able))
        shaped = isinstance(stated, dict) and isinstance(stated.get("tables"), list) and "which" in stated
        refuse_unless(shaped, "a table of options is malformed")
        tables = stated["tables"]
        fine = all(
            isinstance(row, list)
            and len(row) == options
            and all(type(each) is int and 0 <= each < options for each in row)
            for row in tables
        )
        refuse_unless(fine, "a table of options is malformed")
        which = unpack_bytes(stated["which"], f"certificate.dominance.{number}")
        refuse_unless(
            len(which) == able and int(which.max(initial=-1)) < len(tables), "a skeleton has no table of options"
        )
        stands = np.array(tables, dtype=np.intp).reshape(-1, options)
        twice = np.take_along_axis(stands, stands, axis=1)
        refuse_unless(bool((twice == stands).all()), "an option stands for others and is itself left out")
        self.tables.append(stands)
        self.which.append(which)

    # ------------------------------------------------------------------------------------- evaluation

    def evaluated(self, skeletons: Whole, options: Whole, places: Whole) -> dict[str, Floats]:
        """Return the metrics of designs, without limits."""
        names = self.metrics
        found = {name: np.empty(len(skeletons)) for name in names}
        for start in range(0, len(skeletons), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            rows = self.parts.rows(skeletons[part], options[part], places[part])
            results = self.free.evaluate(rows)
            for name in names:
                found[name][part] = results.columns[name]
        return found

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that matter."""
        limited = (each.metric for each in self.problem.limits)
        return tuple(dict.fromkeys(("step_s", *self.problem.objectives, *limited)))

    def losses(self, values: Mapping[str, Floats], *, bound: bool) -> Floats:
        """Return losses; infinite beyond a limit, of a bound only beyond those that worse designs break too."""
        with np.errstate(all="ignore"):
            columns = [values[name] if BETTER[name] == "less" else 1 / values[name] for name in self.problem.objectives]
        found = np.stack(columns, axis=1)
        missing = np.isnan(found).any(axis=1)
        found[missing] = 0.0 if bound else np.inf
        for each in self.problem.limits:
            if not bound or each.most == (BETTER[each.metric] == "less"):
                value = values[each.metric]
                found[(value > each.bound if each.most else value < each.bound) & ~missing] = np.inf
        return found

    def bounds(self, leaf: Leaf) -> Floats:
        """Return what no design of some boxes can beat: the step of the fastest at the price of the cheapest."""
        return self._cornered(leaf, leaf.high, leaf.low)

    def _cornered(self, leaf: Leaf, fast: Whole, cheap: Whole) -> Floats:
        quick, thrifty = (self.evaluated(leaf.skeletons, leaf.options, places) for places in (fast, cheap))
        with np.errstate(all="ignore"):
            scale = quick["step_s"] / thrifty["step_s"]
            values = {
                name: quick[name]
                if name in OF_STEP
                else thrifty[name]
                if name in BOUGHT
                else thrifty[name] * (scale if BETTER[name] == "less" else 1 / scale)
                for name in self.metrics
            }
        return self.losses(values, bound=True)

    # ----------------------------------------------------------------------------------------- checks

    def check_able(self) -> str:
        """Check that skeletons that are said not to run do not, whatever their network."""
        out = np.flatnonzero(~self.able)
        rng = np.random.default_rng(1)
        for _ in range(2):
            options, places = self._random(rng, len(out))
            step = self.evaluated(out, options, places)["step_s"]
            refuse_unless(bool(np.isnan(step).all()), "a skeleton that is said not to run does")
        return f"{len(out):,} of {self.parts.count:,} skeletons cannot run"

    def _random(self, rng: np.random.Generator, count: int) -> tuple[Whole, Whole]:
        many = [len(each) for each in self.parts.options]
        options = rng.integers(0, np.array(many, dtype=np.intp), (count, len(many)))
        places = rng.integers(0, np.array(self.parts.widths, dtype=np.intp), (count, len(self.parts.widths)))
        return options, places

    def roots(self) -> Leaf:
        """Return every able skeleton with every combination of options that stand for themselves, in order."""
        able = np.flatnonzero(self.able)
        skeletons, options = able, np.zeros((len(able), 0), dtype=np.intp)
        owner = np.arange(len(able))
        for tables, which in zip(self.tables, self.which, strict=True):
            kept = tables[which[owner]] == np.arange(tables.shape[1])
            rows, chosen = np.nonzero(kept)
            owner, skeletons = owner[rows], skeletons[rows]
            options = np.hstack([options[rows], chosen[:, None]])
        low = np.zeros((len(skeletons), len(self.parts.widths)), dtype=np.intp)
        return Leaf(skeletons, options, low, low + np.array(self.parts.widths, dtype=np.intp) - 1)

    def leaves(self) -> Iterator[Leaf]:
        """Yield the leaves of the tree, round by round."""
        bits = unpack_bits(self.found["tree"], "certificate.tree")
        boxes, used = self.roots(), 0
        while len(boxes.skeletons):
            here = bits[used : used + len(boxes.skeletons)]
            refuse_unless(len(here) == len(boxes.skeletons), "its tree has too few bits: a leaf is missing")
            used += len(here)
            yield boxes.take(~here)
            split = boxes.take(here)
            width = split.high - split.low
            refuse_unless(bool((width.max(axis=1, initial=0) > 0).all()), "its tree splits a single design")
            boxes = _halved(split, width)
        refuse_unless(used == len(bits), "its tree has bits that no box belongs to")

    def check_coverage(self) -> str:
        """Check that the leaves, with all that their options stand for, and what cannot run, are all designs."""
        numbers = np.cumsum(self.able) - 1
        total = 0
        for leaf in self.leaves():
            behind = np.ones(len(leaf.skeletons), dtype=np.int64)
            for number, (tables, which) in enumerate(zip(self.tables, self.which, strict=True)):
                mine = tables[which[numbers[leaf.skeletons]]]
                behind *= (mine == leaf.options[:, number][:, None]).sum(axis=1)
            total += int((behind * leaf.sizes).sum())
        total += int(np.count_nonzero(~self.able)) * self.parts.spread
        refuse_unless(total == self.problem.space.valid, "its leaves do not cover the space exactly")
        return f"{total:,} designs are each in one leaf, or cannot run"

    def check_bounds(self) -> str:
        """Check that no leaf has a bound below what is claimed."""
        lower, count = np.inf, 0
        rng = np.random.default_rng(2)
        for leaf in self.leaves():
            if not len(leaf.skeletons):
                continue
            bounds = self.bounds(leaf)
            single = (leaf.low == leaf.high).all(axis=1)
            if single.any():
                alone = leaf.take(single)
                bounds[single] = self.losses(self.evaluated(alone.skeletons, alone.options, alone.high), bound=False)
            count += len(bounds)
            if self.found["proven"]:
                refuse_unless(bool(self.covered(bounds).all()), "a leaf may hold something better than the best")
            lower = min(lower, float(bounds[:, 0].min()))
            self._check_inside(leaf, bounds, rng)
        if len(self.problem.objectives) == 1:
            self._check_gap(lower)
        return f"{count:,} leaves have bounds that are no better than the best"

    def covered(self, bounds: Floats) -> npt.NDArray[np.bool_]:
        """Return which bounds some design of the front is as good as, but for the slack."""
        found = np.asarray(np.isinf(bounds).any(axis=1))
        for each in self.best * (1 - self.slack) * (1 - EQUAL):
            found |= (bounds >= each).all(axis=1)
        return found

    def _is_claimed(self, losses: Floats) -> bool:
        """Return whether designs are no better than is claimed: than the best, or than the bound if a gap is left."""
        if self.found["proven"]:
            return bool(self.covered(losses).all())
        stated = self.found["lower"]
        return type(stated) not in (int, float) or bool((losses[:, 0] >= stated * (1 - EQUAL)).all())

    def _check_gap(self, lower: float) -> None:
        stated, gap = self.found["lower"], self.found["gap"]
        if not len(self.best):
            refuse_unless(bool(np.isinf(lower)), "it has no design, though some may run")
            return
        refuse_unless(type(stated) in (int, float) and type(gap) in (int, float), "it states no bound")
        refuse_unless(stated <= lower * (1 + EQUAL), "its lower bound is above that of a leaf")
        refuse_unless(
            stated >= lower * (1 - 1e-9) or not self.found["proven"], "its lower bound is below that of all leaves"
        )
        left = max(0.0, 1 - stated / float(self.best[0, 0]))
        refuse_unless(abs(gap - left) <= EQUAL, "its gap does not follow from its bound")

    def _check_inside(self, leaf: Leaf, bounds: Floats, rng: np.random.Generator) -> None:
        """Try a random design of each leaf: none may beat its bound."""
        some = np.flatnonzero((leaf.low < leaf.high).any(axis=1))
        some = rng.choice(some, min(len(some), AT_ONCE), replace=False) if len(some) else some
        inside = leaf.take(some)
        places = inside.low + (rng.random(inside.low.shape) * (inside.high - inside.low + 1)).astype(np.intp)
        found = self.losses(self.evaluated(inside.skeletons, inside.options, places), bound=False)
        refuse_unless(bool((found >= bounds[some] * (1 - 1e-9)).all()), "a design inside a leaf beats its bound")

    def check_ladders(self) -> str:
        """Check that in every skeleton worse networks are never faster, and that no option beats the one for it."""
        able = np.flatnonzero(self.able)
        rng = np.random.default_rng(3)
        for _ in range(LADDERS):
            options, _ = self._random(rng, len(able))
            rungs = np.sort(rng.random((RUNGS, len(able), len(self.parts.widths))), axis=0)[::-1]
            rungs[0], rungs[-1] = 1 - 1e-9, 0.0
            before = self.evaluated(able, self._stood(options), self._places(rungs[0]))["step_s"]
            for rung in rungs:
                now = self.evaluated(able, options, self._places(rung))["step_s"]
                refuse_unless(
                    bool((now >= before * (1 - 1e-9)).all()), "a step gets shorter when its network gets slower"
                )
                before = now
        return f"{LADDERS * len(able):,} ladders of worse and worse networks are never faster"

    def _places(self, shares: Floats) -> Whole:
        found: Whole = (shares * np.array(self.parts.widths)).astype(np.intp)
        return found

    def _stood(self, options: Whole) -> Whole:
        """Return the options that stand for those of all able skeletons."""
        found = options.copy()
        for number, (tables, which) in enumerate(zip(self.tables, self.which, strict=True)):
            found[:, number] = tables[which, options[:, number]]
        return found

    def check_trials(self, trials: int) -> str:
        """Check that neither random designs nor neighbours of the best are better."""
        space = self.problem.space
        rows = [space.sample(trials, np.random.default_rng(4))]
        for each in self.found["front"]:
            rows.append(_neighbours(np.array(each["row"], dtype=np.intp), space.sizes))
        tried = np.concatenate(rows)
        tried = tried[space.contains(tried)]
        for start in range(0, len(tried), AT_ONCE):
            results = self.problem.evaluate(tried[start : start + AT_ONCE])
            values = {name: results.columns[name] for name in self.metrics}
            found = self.losses(values, bound=False)
            refuse_unless(self._is_claimed(found), "a design that was tried is better than the best")
        return f"{len(tried):,} designs that were tried are no better"

    # ------------------------------------------------------------------------------------------ counts

    def check_count(self) -> str:
        """Count the designs near the best again."""
        stated = self.found["within"]
        share, count = stated.get("share"), stated.get("count")
        refuse_unless(type(share) is float and 0 <= share < 1, "its share is no share")
        if count is None:
            return "it does not say how many designs are near the best"
        less = BETTER[self.problem.objectives[0]] == "less"
        best = float(self.best[0, 0])
        found = self._counted(best * (1 + share) if less else best / (1 - share))
        refuse_unless(found == count, f"{found:,} designs are within {100 * share:g} % of the best")
        return f"{found:,} designs are within {100 * share:g} % of the best"

    def _counted(self, most: float) -> int:
        numbers = np.cumsum(self.able) - 1
        heap = [(0, self.roots())]
        total = 0
        while heap:
            told, whole = heap.pop()
            if len(whole.skeletons) > AT_ONCE:
                cuts = range(0, len(whole.skeletons), AT_ONCE)
                heap += [(told, whole.take(slice(at, at + AT_ONCE))) for at in cuts]
                continue
            boxes = whole.take(self.bounds(whole)[:, 0] <= most * (1 + 1e-9)) if len(whole.skeletons) else whole
            if not len(boxes.skeletons):
                continue
            single = (boxes.low == boxes.high).all(axis=1)
            reached = self._cornered(boxes, boxes.low, boxes.high)[:, 0]
            inside = (reached <= most * (1 - 1e-9)) & (not self.problem.limits)
            if told < len(self.tables):
                ready = boxes.take(inside | single)
                mine = self.tables[told][self.which[told][numbers[ready.skeletons]]]
                rows, chosen = np.nonzero(mine == ready.options[:, told][:, None])
                apart = ready.take(rows)
                options = apart.options.copy()
                options[:, told] = chosen
                heap.append((told + 1, apart._replace(options=options)))
                rest = boxes.take(~inside & ~single)
            else:
                total += int(boxes.sizes[inside].sum())
                alone = boxes.take(single & ~inside)
                values = self.evaluated(alone.skeletons, alone.options, alone.high)
                total += int(np.count_nonzero(self.losses(values, bound=False)[:, 0] <= most))
                rest = boxes.take(~inside & ~single)
            heap.append((told, _halved(rest, rest.high - rest.low)))
        return total


def _halved(boxes: Leaf, width: Whole) -> Leaf:
    """Return both halves of boxes, slow and fast in turn, at the first of their widest ranges."""
    if not len(boxes.skeletons):
        return boxes
    widest = width.argmax(axis=1)
    rows = np.arange(len(widest))
    middle = boxes.low[rows, widest] + width[rows, widest] // 2
    low, high = np.repeat(boxes.low, 2, axis=0), np.repeat(boxes.high, 2, axis=0)
    high[2 * rows, widest] = middle
    low[2 * rows + 1, widest] = middle + 1
    return Leaf(np.repeat(boxes.skeletons, 2), np.repeat(boxes.options, 2, axis=0), low, high)


def _neighbours(row: Whole, sizes: tuple[int, ...]) -> Whole:
    """Return all rows that differ from one in a single parameter, or in two that are side by side."""
    found = []
    for column, size in enumerate(sizes):
        changed = np.tile(row, (size, 1))
        changed[:, column] = np.arange(size)
        found.append(changed)
    for column in range(len(sizes) - 1):
        pairs = np.stack(np.meshgrid(np.arange(sizes[column]), np.arange(sizes[column + 1])), axis=-1).reshape(-1, 2)
        changed = np.tile(row, (len(pairs), 1))
        changed[:, column : column + 2] = pairs
        found.append(changed)
    return np.concatenate(found)
