"""Checks a certificate with code of its own: the closed form is shared, bounding and branching are not.

What is checked, of a certificate that designs were bounded:

    the same space, model, objectives and limits, and designs that achieve what it says
    every design is in exactly one leaf, stands behind an option that dominates its own, or cannot run
    an option that stands for another has no more links, traffic, dollars and watts, in any collective that a step has
    no leaf has a bound below what is claimed; a bound is put together from two evaluations, of its fastest design and
    of its cheapest
    monotone    in every skeleton, designs along random ladders of worsening networks are never faster
    trials      random designs, those inside leaves, and all neighbours of the best are not better

The first four are proofs, given that steps are monotone; the last two try to falsify it. Of a certificate of designs
that were all evaluated, all blocks are evaluated again, or some of them (`check_blocks`).

This module imports nothing of the prover, only the format of the file (`certificate`). It takes the space apart anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import CosmicError
from cosmic.cluster.cluster_cost import block_terms, dimension_tiers
from cosmic.design.design_batch import Batch
from cosmic.network.collective_costs import collective_terms, point_to_point_terms
from cosmic.network.switch_tiers import Tiers, message_terms, tier_terms
from cosmic.search.certify.certificate import (
    check_form,
    content_of,
    model_digest,
    read_certificate,
    unpack_bits,
    unpack_bytes,
)
from cosmic.search.objectives import losses as losses_of
from cosmic.search.pareto import pareto_front
from cosmic.search.problem import Problem, make_problem
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.simulate.metrics import BETTER
from cosmic.step.step_profile import profile_step
from cosmic.workload.mesh_sizes import structural_paths

# --------------------------------------------------------------------------------------
# What the parts of the checker share: refusals, and the space taken apart anew
# --------------------------------------------------------------------------------------

Whole = npt.NDArray[np.intp]


class Refused(CosmicError):  # noqa: N818  a certificate is refused
    """Why a certificate proves nothing: one sentence."""


def refuse_unless(holds: bool, why: str) -> None:
    """Raise `Refused` unless *holds*."""
    if not holds:
        raise Refused(f"the certificate is refused: {why}")


def is_whole(values: Any) -> bool:
    """Return whether *values* is a list of numbers that can be indices."""
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**31 for value in values)


class SpaceParts:
    """The ranges, choices and skeletons that a certificate speaks of, read from the space."""

    def __init__(self, found: Mapping[str, Any], space: ParameterSet) -> None:
        self.space = space
        alone = {component.columns[0]: component for component in space.components if len(component.columns) == 1}
        free = {column: each for column, each in alone.items() if column not in space.following}
        self.range_columns: list[int] = []
        self.range_indices: list[Whole] = []
        for each in found["ranges"]:
            column, indices = self._range(each, free)
            self.range_columns.append(column)
            self.range_indices.append(indices)
        self.choice_columns: list[list[int]] = []
        self.options: list[Whole] = []
        self.dimensions: list[int] = []
        for each in found["choices"]:
            self._choice(each, free)
        taken = [*self.range_columns, *(column for columns in self.choice_columns for column in columns)]
        refuse_unless(len(set(taken)) == len(taken), "a parameter is there twice")
        self.others = [component for component in space.components if component.columns[0] not in taken]
        self.count = prod(other.diagram.count for other in self.others)
        refuse_unless(self.count <= 4_000_000, "it has more skeletons than can be listed")
        self.widths = [len(range_index) for range_index in self.range_indices]
        self.skeletons = self._listed()

    @staticmethod
    def _fields(stated: Any, *names: str) -> list[Any]:
        return [stated.get(name) if isinstance(stated, dict) else None for name in names]

    def _values(self, component: Any) -> list[int]:
        found: list[int] = component.diagram.nth(np.arange(component.diagram.count))[:, 0].tolist()
        return found

    def _range(self, stated: Any, free: Mapping[int, Any]) -> tuple[int, Whole]:
        column, indices = self._fields(stated, "column", "indices")
        refuse_unless(type(column) is int and column in free and is_whole(indices), "a range is malformed")
        parameter = self.space.parameters[column]
        ends = {path.rpartition(".")[2] for path in parameter.paths}
        named = all(path.startswith("network.dims.") for path in parameter.paths)
        refuse_unless(named and ends in ({"bandwidth"}, {"latency"}), "a range is of something other than speed")
        refuse_unless(sorted(indices) == sorted(self._values(free[column])), "a range leaves out values, or has others")
        values = np.array([parameter.values[index] for index in indices], dtype=np.float64)
        steps = np.diff(values, axis=0) * (1 if ends == {"bandwidth"} else -1)
        refuse_unless(bool((steps >= 0).all()), "a range does not go from slow to fast")
        return column, np.array(indices, dtype=np.intp)

    def _choice(self, stated: Any, free: Mapping[int, Any]) -> None:
        columns, options = self._fields(stated, "columns", "options")
        shaped = is_whole(columns) and len(columns) > 0 and all(each in free for each in columns)
        refuse_unless(shaped and isinstance(options, list) and all(map(is_whole, options)), "a choice is malformed")
        dimensions = set()
        for column in columns:
            paths = self.space.parameters[column].paths
            words = paths[0].split(".")
            named = words[:2] == ["collective", "algorithms"] or (words[:2], words[3:]) == (
                ["network", "dims"],
                ["topology"],
            )
            refuse_unless(len(paths) == 1 and named, "a choice is of something else than topology and algorithm")
            dimensions.add(int(words[2]))
        refuse_unless(len(dimensions) == 1, "a choice is of several dimensions")
        wanted = sorted(product(*(self._values(free[column]) for column in columns)))
        refuse_unless(wanted == sorted(map(tuple, options)), "a choice leaves out options, or has others")
        self.choice_columns.append(columns)
        self.options.append(np.array(options, dtype=np.intp))
        self.dimensions.append(dimensions.pop())

    def _listed(self) -> Whole:
        """Return all skeletons, components in the order of the space, the last one changing fastest."""
        rows = np.zeros((self.count, len(self.space.parameters)), dtype=np.intp)
        for columns, options in zip(self.choice_columns, self.options, strict=True):
            rows[:, columns] = options[0]
        for column, indices in zip(self.range_columns, self.range_indices, strict=True):
            rows[:, column] = indices[0]
        counts = [each.diagram.count for each in self.others]
        places = np.unravel_index(np.arange(self.count), counts) if counts else ()
        for other, place in zip(self.others, places, strict=True):
            rows[:, other.columns] = other.diagram.nth(np.arange(other.diagram.count))[place]
        return rows

    def rows(self, skeletons: Whole, options: Whole, places: Whole) -> Whole:
        """Return the rows of designs."""
        found = self.skeletons[skeletons]
        for number, columns in enumerate(self.choice_columns):
            found[:, columns] = self.options[number][options[:, number]]
        for number, column in enumerate(self.range_columns):
            found[:, column] = self.range_indices[number][places[:, number]]
        return found

    @property
    def spread(self) -> int:
        """How many designs share a skeleton."""
        return prod(len(option) for option in self.options) * prod(self.widths)


# --------------------------------------------------------------------------------------
# Checks a certificate of designs that were all evaluated: again, or some blocks of them
# --------------------------------------------------------------------------------------

BLOCK = 2**17
"""Designs of a block, as certificates have them."""
ALL_BLOCKS = 24
"""Blocks up to which all are evaluated again."""
SOME_BLOCKS = 12


def check_blocks(found: Mapping[str, Any], problem: Problem) -> list[str]:
    """Return what was checked of the blocks."""
    objectives, valid = len(problem.objectives), problem.space.valid
    blocks, whole = found["blocks"], -(-valid // BLOCK)
    shaped = all(isinstance(each, list) and len(each) == 1 + objectives and isinstance(each[0], str) for each in blocks)
    refuse_unless(
        shaped and all(type(v) in (int, float, type(None)) for each in blocks for v in each[1:]), "a block is malformed"
    )
    refuse_unless(len(blocks) == whole or not found["proven"], "it has not as many blocks as the space")
    refuse_unless(0 < len(blocks) <= whole, "it has not as many blocks as the space")
    least = np.array([[np.inf if each is None else each for each in block[1:]] for block in blocks], dtype=np.float64)
    best = np.array([each["losses"] for each in found["front"]], dtype=np.float64).reshape(-1, objectives)
    lowest = best.min(axis=0) if len(best) else np.full(objectives, np.inf)
    refuse_unless(
        bool((least.min(axis=0) == lowest).all()), "its blocks have something better than its best, or nothing as good"
    )
    chosen = _chosen_blocks(least, len(blocks))
    counts = {}
    for number in chosen:
        losses = _block_losses(problem, number)
        refuse_unless(_digest_losses(losses) == blocks[number][0], "a block of designs achieves something else")
        refuse_unless(bool((losses.min(axis=0) == least[number]).all()), "a block has another least loss")
        covered = np.isinf(losses).any(axis=1)
        for each in best:
            covered |= (losses >= each).all(axis=1)
        refuse_unless(bool(covered.all()), "a design that was tried is better than the best")
        counts[number] = losses[:, 0]
    said = [f"{len(chosen)} of {len(blocks)} blocks of designs were evaluated again, to the bit"]
    if objectives == 1:
        _check_gap(found, best)
    if found["within"] is not None and found["within"].get("count") is not None and found["front"]:
        said.append(_check_count(found, problem, least[:, 0], best))
    return said


def _check_gap(found: Mapping[str, Any], best: npt.NDArray[np.float64]) -> None:
    if found["proven"] and len(best):
        refuse_unless(
            found["lower"] == float(best[0, 0]) and found["gap"] == 0, "its gap does not follow from its blocks"
        )


def _check_count(found: Mapping[str, Any], problem: Problem, least: Any, best: Any) -> str:
    share = found["within"].get("share")
    refuse_unless(type(share) is float and 0 <= share < 1, "its share is no share")
    less = BETTER[problem.objectives[0]] == "less"
    most = float(best[0, 0]) * (1 + share) if less else float(best[0, 0]) / (1 - share)
    near = np.flatnonzero(least <= most).tolist()
    total = sum(int(np.count_nonzero(_block_losses(problem, number)[:, 0] <= most)) for number in near)
    refuse_unless(total == found["within"]["count"], f"{total:,} designs are within {100 * share:g} % of the best")
    return f"{total:,} designs are within {100 * share:g} % of the best"


def _chosen_blocks(least: npt.NDArray[np.float64], count: int) -> list[int]:
    """Return the blocks that are evaluated again: all of few, else the best ones and some others."""
    if count <= ALL_BLOCKS:
        return list(range(count))
    others = np.random.default_rng(5).choice(count, SOME_BLOCKS, replace=False).tolist()
    return sorted({*others, *least.argsort(axis=0)[:SOME_BLOCKS].reshape(-1).tolist()})


def _block_losses(problem: Problem, number: int) -> npt.NDArray[np.float64]:
    start = number * BLOCK
    results = problem.evaluate(problem.space.listed(start, min(BLOCK, problem.space.valid - start)))
    with np.errstate(all="ignore"):
        columns = [
            results.columns[name] if BETTER[name] == "less" else 1 / results.columns[name]
            for name in problem.objectives
        ]
    found = np.stack(columns, axis=1)
    found[~results.feasible | np.isnan(found).any(axis=1)] = np.inf
    return found


def _digest_losses(losses: npt.NDArray[np.float64]) -> str:
    return sha256(np.ascontiguousarray(losses, dtype="<f8").tobytes()).hexdigest()[:16]


# --------------------------------------------------------------------------------------
# Checks the leaves of a certificate: that they cover all designs, and that none can hold anything better
# --------------------------------------------------------------------------------------

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
        self.parts = SpaceParts(found, problem.space)
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
        limited = (limit.metric for limit in self.problem.limits)
        return tuple(dict.fromkeys(("step_s", *self.problem.objectives, *limited)))

    def losses(self, values: Mapping[str, Floats], *, bound: bool) -> Floats:
        """Return losses; infinite beyond a limit, of a bound only beyond those that worse designs break too."""
        with np.errstate(all="ignore"):
            columns = [values[name] if BETTER[name] == "less" else 1 / values[name] for name in self.problem.objectives]
        found = np.stack(columns, axis=1)
        missing = np.isnan(found).any(axis=1)
        found[missing] = 0.0 if bound else np.inf
        for limit in self.problem.limits:
            if not bound or limit.most == (BETTER[limit.metric] == "less"):
                value = values[limit.metric]
                found[(value > limit.bound if limit.most else value < limit.bound) & ~missing] = np.inf
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
        many = [len(option) for option in self.parts.options]
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
            boxes = _halve_boxes(split, width)
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
            heap.append((told, _halve_boxes(rest, rest.high - rest.low)))
        return total


def _halve_boxes(boxes: Leaf, width: Whole) -> Leaf:
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


# --------------------------------------------------------------------------------------
# Checks that options stand for others only where they have no more of anything: from the listed step itself
# --------------------------------------------------------------------------------------

PRICES = {
    "network_usd": ("price",),
    "cost_usd": ("price",),
    "perf_per_network_cost": ("price",),
    "cost_usd_per_token": ("price", "power"),
    "cost_usd_per_sample": ("price", "power"),
    "power_w": ("power",),
    "energy_j": ("power",),
    "train_usd": ("price", "power"),
    "train_energy_j": ("power",),
    "train_co2_kg": ("power",),
}
ALIKE = 1e-12


def check_options(leaves: Leaves) -> str:
    """Check every option that stands for another, in every kind of skeleton."""
    parts, checked = leaves.parts, 0
    metrics = {*leaves.problem.objectives, *(limit.metric for limit in leaves.problem.limits)}
    quantities = {each for metric in metrics for each in PRICES.get(metric, ())}
    able = np.flatnonzero(leaves.able)
    whole = Batch(parts.space.base, parts.space.columns(parts.skeletons[able]))
    for rows, part in whole.groups(structural_paths(whole)):
        for number, dimension in enumerate(parts.dimensions):
            tables = leaves.which[number][rows]
            for use in _uses(part, dimension):
                checked += _check_use(leaves, number, tables, use)
            npus = part[f"network.dims.{dimension}.npus"]
            for quantity in sorted(quantities):
                checked += _check_price(leaves, number, tables, quantity, npus)
    return f"{checked:,} options that stand for others have no more of anything"


class _Use(NamedTuple):
    """A kind of communication that crosses a dimension; numbers for each skeleton."""

    kind: str
    npus: Any
    members: Any
    step: Any
    tiers: Tiers | None

    @property
    def columns(self) -> tuple[Any, ...]:
        sizes = (self.npus, self.members, self.step)
        if self.tiers is None:
            return sizes
        build, *numbers = self.tiers.columns
        return *sizes, 0 if isinstance(build, str) else build.codes, *numbers  # type: ignore[union-attr]  # a name

    def tiers_of(self, row: list[float]) -> tuple[Any, ...]:
        """Return what costs of tiers take, from the part of a row behind the sizes."""
        build: Any = None if self.tiers is None else self.tiers.build
        return (build if isinstance(build, str) else build.names[int(row[0])], *row[1:]) if row else ()


def _uses(part: Batch, dimension: int) -> Iterator[_Use]:
    """Yield every kind of communication that crosses a dimension."""
    listed = profile_step(part)
    network = listed.network
    seen = {(each.kind, each.axes) for each in listed.traffic}
    for kind, axes in sorted(seen):
        for each in network.group(axes):
            if each.dimension is network.dims[dimension]:
                yield _Use(kind, each.dimension.npus, each.span.members, each.span.step, each.dimension.tiers)


def _option_names(leaves: Leaves, number: int) -> list[tuple[str, str]]:
    """Return topology and algorithm of each option."""
    parts, dimension = leaves.parts, leaves.parts.dimensions[number]
    base = parts.space.base
    found = []
    for option in parts.options[number].tolist():
        topology, algorithm = base.network.dims[dimension].topology, base.collective.algorithms[dimension]
        for column, index in zip(parts.choice_columns[number], option, strict=True):
            parameter = parts.space.parameters[column]
            if parameter.paths[0].startswith("collective."):
                algorithm = parameter.values[index][0]
            else:
                topology = parameter.values[index][0]
        found.append((topology, algorithm))
    return found


def _distinct_tables(tables: Whole, *columns: Any) -> list[list[float]]:
    joined = np.stack(np.broadcast_arrays(tables.astype(np.float64), *columns), axis=1)
    found: list[list[float]] = np.unique(joined, axis=0).tolist()
    return found


def _check_use(leaves: Leaves, number: int, tables: Whole, use: _Use) -> int:
    names, checked = _option_names(leaves, number), 0
    for table, size, many, apart, *rest in _distinct_tables(tables, *use.columns):
        if many <= 1:
            continue
        costs = np.array([_option_costs(use.kind, name, (size, many, apart), use.tiers_of(rest)) for name in names])
        checked += _check_stands(leaves.tables[number][int(table)], costs, f"a {use.kind}")
    return checked


def _option_costs(kind: Any, names: tuple[str, str], sizes: tuple[float, ...], tiers: tuple[Any, ...]) -> list[float]:
    """Return what an option must have no more of: links, traffic, and both where tiers of switches are crossed."""
    message = kind in ("send", "collective_permute")
    hops, traffic = point_to_point_terms(*names, *sizes) if message else collective_terms(kind, *names, *sizes)
    found = [hops, 1 / traffic if message else traffic]
    if tiers:
        crossed = message_terms(*names, *sizes, *tiers) if message else tier_terms(kind, *names, *sizes, *tiers)
        found += [1 / crossed[0], crossed[1]]
    return found


def _check_price(leaves: Leaves, number: int, tables: Whole, quantity: Any, npus: Any) -> int:
    tier = dimension_tiers(len(leaves.parts.space.base.network.dims))[leaves.parts.dimensions[number]]
    names, checked = _option_names(leaves, number), 0
    for table, size in _distinct_tables(tables, npus):
        blocks = [block_terms(quantity, tier, topology, size) for topology, _ in names]
        costs = np.array([(block / links,) for block, links in blocks])
        checked += _check_stands(leaves.tables[number][int(table)], costs, f"the {quantity}")
    return checked


def _check_stands(stands: Whole, costs: Any, what: str) -> int:
    better = (costs[stands] <= costs * (1 + ALIKE)).all(axis=1)
    refuse_unless(bool(better.all()), f"an option stands for another that takes less of {what}")
    return int(np.count_nonzero(stands != np.arange(len(stands))))


# --------------------------------------------------------------------------------------
# Checks a certificate with code of its own: the closed form is shared, bounding and branching are not
# --------------------------------------------------------------------------------------

TRIALS = 200_000
"""Random designs that are tried."""


def check_certificate(given: str | Path | Mapping[str, Any], space: ParameterSet | None = None) -> list[str]:
    """Return what was checked of a certificate, a sentence each; raise `Refused` if something does not hold.

    *space* is needed only for a set that no file describes.
    """
    found = check_form(dict(given)) if isinstance(given, Mapping) else read_certificate(given)
    problem = _problem(found, space)
    said = [_check_front(found, problem)]
    if found["method"] == "enumerated":
        return [*said, *check_blocks(found, problem)]
    leaves = Leaves(found, problem)
    said.append(leaves.check_able())
    said.append(check_options(leaves))
    said.append(leaves.check_coverage())
    said.append(leaves.check_bounds())
    said.append(leaves.check_ladders())
    said.append(leaves.check_trials(TRIALS))
    if found["within"] is not None:
        said.append(leaves.check_count())
    return said


def _problem(found: Mapping[str, Any], space: ParameterSet | None) -> Problem:
    """Return the problem that a certificate is about, if it is what it says and the model is ours."""
    stated = found["space"]
    refuse_unless(found["model"] == model_digest(), "it was made with another version of the model")
    if space is None:
        refuse_unless(isinstance(stated.get("source"), dict), "it does not say what its space is: state the space")
        try:
            space = load_space(stated["source"])
        except CosmicError as error:
            raise Refused(f"its space cannot be read: {error}") from None
    ours = content_of(space)
    for key in ("identity", "designs", "parameters", "derived", "constraints"):
        refuse_unless(stated.get(key) == ours[key], f"its space differs from the one it names in its {key}")
    try:
        extra = [text for text in found["limits"] if text not in space.limits]
        problem = make_problem(space, found["objectives"], extra)
    except (CosmicError, TypeError) as error:
        raise Refused(f"its objectives or limits make no sense: {error}") from None
    refuse_unless([limit.text for limit in problem.limits] == found["limits"], "its limits are not those of its space")
    return problem


def _check_front(found: Mapping[str, Any], problem: Problem) -> str:
    """Check that the designs of the certificate achieve what it says, and that none is better than another."""
    count, width = len(problem.objectives), len(problem.space.parameters)
    shaped = all(
        isinstance(each, dict)
        and isinstance(each.get("row"), list)
        and isinstance(each.get("losses"), list)
        and len(each["row"]) == width
        and len(each["losses"]) == count
        and is_whole(each["row"])
        and all(type(value) in (int, float) for value in each["losses"])
        for each in found["front"]
    )
    refuse_unless(shaped, "its designs are malformed")
    refuse_unless(type(found["slack"]) is float and 1e-9 <= found["slack"] < 1, "its slack is no share")
    if not found["front"]:
        refuse_unless(found["lower"] is None and found["gap"] is None, "it states a bound without a design")
        return "it says that no design can run"
    rows = np.array([each["row"] for each in found["front"]], dtype=np.intp)
    stated = np.array([each["losses"] for each in found["front"]], dtype=np.float64)
    refuse_unless(bool(problem.space.contains(rows).all()), "its best design is not in the space")
    results = problem.evaluate(rows)
    refuse_unless(bool(results.feasible.all()), "its best design cannot run")
    refuse_unless(
        bool((losses_of(problem.objectives, results.columns) == stated).all()),
        "its best design achieves something else",
    )
    refuse_unless(
        bool(pareto_front(stated).all()) and len(np.unique(stated, axis=0)) == len(stated),
        "one of its designs is better than another",
    )
    said = "1 design achieves" if len(rows) == 1 else f"{len(rows)} designs achieve"
    return f"{said} what is claimed, to the bit"
