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
from cosmic.search.objectives import pareto_front
from cosmic.search.problem import Problem, make_problem
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.simulate.metrics import BETTER
from cosmic.step.step_profile import profile_step
from cosmic.workload.mesh_sizes import structural_paths

# ---- What the parts of the checker share: refusals, and the space taken apart anew

Integers = npt.NDArray[np.intp]


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

    def __init__(self, certificate: Mapping[str, Any], space: ParameterSet) -> None:
        self.space = space
        alone = {component.columns[0]: component for component in space.components if len(component.columns) == 1}
        free = {column: description for column, description in alone.items() if column not in space.following}
        self.range_columns: list[int] = []
        self.range_indices: list[Integers] = []
        for description in certificate["ranges"]:
            column, indices = self._range(description, free)
            self.range_columns.append(column)
            self.range_indices.append(indices)
        self.choice_columns: list[list[int]] = []
        self.options: list[Integers] = []
        self.dimensions: list[int] = []
        for description in certificate["choices"]:
            self._choice(description, free)
        network_columns = [*self.range_columns, *(column for columns in self.choice_columns for column in columns)]
        refuse_unless(len(set(network_columns)) == len(network_columns), "a parameter is there twice")
        self.skeleton_components = [
            component for component in space.components if component.columns[0] not in network_columns
        ]
        self.count = prod(part.diagram.count for part in self.skeleton_components)
        refuse_unless(self.count <= 4_000_000, "it has more skeletons than can be listed")
        self.widths = [len(range_index) for range_index in self.range_indices]
        self.skeletons = self._list_skeletons()

    @staticmethod
    def _fields(description: Any, *names: str) -> list[Any]:
        return [description.get(name) if isinstance(description, dict) else None for name in names]

    def _values(self, component: Any) -> list[int]:
        values: list[int] = component.diagram.nth(np.arange(component.diagram.count))[:, 0].tolist()
        return values

    def _range(self, description: Any, free: Mapping[int, Any]) -> tuple[int, Integers]:
        column, indices = self._fields(description, "column", "indices")
        refuse_unless(type(column) is int and column in free and is_whole(indices), "a range is malformed")
        parameter = self.space.parameters[column]
        ends = {path.rpartition(".")[2] for path in parameter.paths}
        of_network = all(path.startswith("network.dims.") for path in parameter.paths)
        refuse_unless(of_network and ends in ({"bandwidth"}, {"latency"}), "a range is of something other than speed")
        refuse_unless(sorted(indices) == sorted(self._values(free[column])), "a range leaves out values, or has others")
        values = np.array([parameter.values[index] for index in indices], dtype=np.float64)
        steps = np.diff(values, axis=0) * (1 if ends == {"bandwidth"} else -1)
        refuse_unless(bool((steps >= 0).all()), "a range does not go from slow to fast")
        return column, np.array(indices, dtype=np.intp)

    def _choice(self, description: Any, free: Mapping[int, Any]) -> None:
        columns, options = self._fields(description, "columns", "options")
        shaped = is_whole(columns) and len(columns) > 0 and all(choice_column in free for choice_column in columns)
        refuse_unless(shaped and isinstance(options, list) and all(map(is_whole, options)), "a choice is malformed")
        dimensions = set()
        for column in columns:
            paths = self.space.parameters[column].paths
            words = paths[0].split(".")
            of_names = words[:2] == ["collective", "algorithms"] or (words[:2], words[3:]) == (
                ["network", "dims"],
                ["topology"],
            )
            refuse_unless(len(paths) == 1 and of_names, "a choice is of something else than topology and algorithm")
            dimensions.add(int(words[2]))
        refuse_unless(len(dimensions) == 1, "a choice is of several dimensions")
        expected = sorted(product(*(self._values(free[column]) for column in columns)))
        refuse_unless(expected == sorted(map(tuple, options)), "a choice leaves out options, or has others")
        self.choice_columns.append(columns)
        self.options.append(np.array(options, dtype=np.intp))
        self.dimensions.append(dimensions.pop())

    def _list_skeletons(self) -> Integers:
        """Return all skeletons, components in the order of the space, the last one changing fastest."""
        rows = np.zeros((self.count, len(self.space.parameters)), dtype=np.intp)
        for columns, options in zip(self.choice_columns, self.options, strict=True):
            rows[:, columns] = options[0]
        for column, indices in zip(self.range_columns, self.range_indices, strict=True):
            rows[:, column] = indices[0]
        counts = [component.diagram.count for component in self.skeleton_components]
        positions = np.unravel_index(np.arange(self.count), counts) if counts else ()
        for part, position in zip(self.skeleton_components, positions, strict=True):
            rows[:, part.columns] = part.diagram.nth(np.arange(part.diagram.count))[position]
        return rows

    def rows(self, skeletons: Integers, options: Integers, positions: Integers) -> Integers:
        """Return the rows of designs."""
        designs = self.skeletons[skeletons]
        for number, columns in enumerate(self.choice_columns):
            designs[:, columns] = self.options[number][options[:, number]]
        for number, column in enumerate(self.range_columns):
            designs[:, column] = self.range_indices[number][positions[:, number]]
        return designs

    @property
    def spread(self) -> int:
        """How many designs share a skeleton."""
        return prod(len(option) for option in self.options) * prod(self.widths)


# ---- Checks a certificate of designs that were all evaluated: again, or some blocks of them

BLOCK = 2**17
"""Designs of a block, as certificates have them."""
ALL_BLOCKS = 24
"""Blocks up to which all are evaluated again."""
SOME_BLOCKS = 12


def check_blocks(certificate: Mapping[str, Any], problem: Problem) -> list[str]:
    """Return what was checked of the blocks."""
    objectives, valid = len(problem.objectives), problem.space.valid
    blocks, block_count = certificate["blocks"], -(-valid // BLOCK)
    shaped = all(
        isinstance(entry, list) and len(entry) == 1 + objectives and isinstance(entry[0], str) for entry in blocks
    )
    refuse_unless(
        shaped and all(type(v) in (int, float, type(None)) for entry in blocks for v in entry[1:]),
        "a block is malformed",
    )
    refuse_unless(len(blocks) == block_count or not certificate["proven"], "it has not as many blocks as the space")
    refuse_unless(0 < len(blocks) <= block_count, "it has not as many blocks as the space")
    least = np.array(
        [[np.inf if entry is None else entry for entry in block[1:]] for block in blocks], dtype=np.float64
    )
    best = np.array([entry["losses"] for entry in certificate["front"]], dtype=np.float64).reshape(-1, objectives)
    lowest = best.min(axis=0) if len(best) else np.full(objectives, np.inf)
    refuse_unless(
        bool((least.min(axis=0) == lowest).all()), "its blocks have something better than its best, or nothing as good"
    )
    chosen = _choose_blocks(least, len(blocks))
    counts = {}
    for number in chosen:
        losses = _block_losses(problem, number)
        refuse_unless(
            sha256(np.ascontiguousarray(losses, dtype="<f8").tobytes()).hexdigest()[:16] == blocks[number][0],
            "a block of designs achieves something else",
        )
        refuse_unless(bool((losses.min(axis=0) == least[number]).all()), "a block has another least loss")
        covered = np.isinf(losses).any(axis=1)
        for entry in best:
            covered |= (losses >= entry).all(axis=1)
        refuse_unless(bool(covered.all()), "a design that was tried is better than the best")
        counts[number] = losses[:, 0]
    sentences = [f"{len(chosen)} of {len(blocks)} blocks of designs were evaluated again, to the bit"]
    if objectives == 1 and certificate["proven"] and len(best):
        refuse_unless(
            certificate["lower"] == float(best[0, 0]) and certificate["gap"] == 0,
            "its gap does not follow from its blocks",
        )
    if certificate["within"] is not None and certificate["within"].get("count") is not None and certificate["front"]:
        sentences.append(_check_count(certificate, problem, least[:, 0], best))
    return sentences


def _check_count(certificate: Mapping[str, Any], problem: Problem, least: Any, best: Any) -> str:
    share = _read_share(certificate)
    max_loss = _loss_within(problem, float(best[0, 0]), share)
    near = np.flatnonzero(least <= max_loss).tolist()
    total = sum(int(np.count_nonzero(_block_losses(problem, number)[:, 0] <= max_loss)) for number in near)
    refuse_unless(
        total == certificate["within"]["count"], f"{total:,} designs are within {100 * share:g} % of the best"
    )
    return f"{total:,} designs are within {100 * share:g} % of the best"


def _read_share(certificate: Mapping[str, Any]) -> float:
    """Return the share within which designs were counted."""
    share = certificate["within"].get("share")
    refuse_unless(type(share) is float and 0 <= share < 1, "its share is no share")
    return float(share)


def _loss_within(problem: Problem, best: float, share: float) -> float:
    """Return the loss of a design that is a share worse than the best: of a rate so much less."""
    return best * (1 + share) if BETTER[problem.objectives[0]] == "less" else best / (1 - share)


def _choose_blocks(least: npt.NDArray[np.float64], count: int) -> list[int]:
    """Return the blocks that are evaluated again: all of few, else the best ones and some others."""
    if count <= ALL_BLOCKS:
        return list(range(count))
    random_blocks = np.random.default_rng(5).choice(count, SOME_BLOCKS, replace=False).tolist()
    return sorted({*random_blocks, *least.argsort(axis=0)[:SOME_BLOCKS].reshape(-1).tolist()})


def _block_losses(problem: Problem, number: int) -> npt.NDArray[np.float64]:
    start = number * BLOCK
    results = problem.evaluate(problem.space.listed(start, min(BLOCK, problem.space.valid - start)))
    with np.errstate(all="ignore"):
        columns = [
            results.columns[name] if BETTER[name] == "less" else 1 / results.columns[name]
            for name in problem.objectives
        ]
    block_losses = np.stack(columns, axis=1)
    block_losses[~results.feasible | np.isnan(block_losses).any(axis=1)] = np.inf
    return block_losses


# ---- Checks the leaves of a certificate: that they cover all designs, and that none can hold anything better

Floats = npt.NDArray[np.float64]
DESIGNS_AT_ONCE = 100_000
ROUNDING = 1e-12
"""Share by which rounding may move a number that is put together in another way."""
STEP_METRICS = (
    *("step_s", "ttft_s", "tpot_s", "tokens_per_s", "samples_per_s"),
    *("mfu", "hfu", "memory_bytes", "offloaded_bytes"),
)
"""Metrics that are best where the network is fastest."""
PURCHASE_METRICS = ("network_usd", "cost_usd")
"""Metrics that are best where it is cheapest; all others are a price times a step, or over it."""
RUNGS, LADDERS = 4, 3


class Leaf(NamedTuple):
    """Some boxes of designs."""

    skeletons: Integers
    options: Integers
    low: Integers
    high: Integers

    def select(self, rows: Any) -> Leaf:
        """Return some of them."""
        return Leaf(*(column[rows] for column in self))

    @property
    def sizes(self) -> Integers:
        """How many combinations of places each has."""
        return np.asarray((self.high - self.low + 1).prod(axis=1))


class Leaves:
    """What a certificate says of boxes."""

    def __init__(self, certificate: Mapping[str, Any], problem: Problem) -> None:
        self.certificate, self.problem = certificate, problem
        self.free = Problem(problem.space, ("step_s",))
        """The same designs without objectives and limits of their own."""
        self.parts = SpaceParts(certificate, problem.space)
        self.feasible = unpack_bits(certificate["able"], "certificate.able")
        refuse_unless(len(self.feasible) == self.parts.count, "it has another number of skeletons")
        self.tables: list[Integers] = []
        self.which: list[Integers] = []
        refuse_unless(len(certificate["dominance"]) == len(self.parts.options), "it lacks a choice")
        for number, description in enumerate(certificate["dominance"]):
            self._read_tables(number, description)
        self.best = np.array([description["losses"] for description in certificate["front"]], dtype=np.float64).reshape(
            -1, len(problem.objectives)
        )
        self.slack = float(certificate["slack"])

    def _read_tables(self, number: int, description: Any) -> None:
        options, skeletons = len(self.parts.options[number]), int(np.count_nonzero(self.feasible))
        shaped = (
            isinstance(description, dict) and isinstance(description.get("tables"), list) and "which" in description
        )
        refuse_unless(shaped, "a table of options is malformed")
        tables = description["tables"]
        valid = all(
            isinstance(row, list)
            and len(row) == options
            and all(type(option) is int and 0 <= option < options for option in row)
            for row in tables
        )
        refuse_unless(valid, "a table of options is malformed")
        which = unpack_bytes(description["which"], f"certificate.dominance.{number}")
        refuse_unless(
            len(which) == skeletons and int(which.max(initial=-1)) < len(tables), "a skeleton has no table of options"
        )
        stands = np.array(tables, dtype=np.intp).reshape(-1, options)
        twice = np.take_along_axis(stands, stands, axis=1)
        refuse_unless(bool((twice == stands).all()), "an option stands for others and is itself left out")
        self.tables.append(stands)
        self.which.append(which)

    # ------------------------------------------------------------------------------------- evaluation

    def evaluate_designs(self, skeletons: Integers, options: Integers, positions: Integers) -> dict[str, Floats]:
        """Return the metrics of designs, without limits."""
        names = self.metrics
        values = {name: np.empty(len(skeletons)) for name in names}
        for start in range(0, len(skeletons), DESIGNS_AT_ONCE):
            part = slice(start, start + DESIGNS_AT_ONCE)
            rows = self.parts.rows(skeletons[part], options[part], positions[part])
            results = self.free.evaluate(rows)
            for name in names:
                values[name][part] = results.columns[name]
        return values

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that matter."""
        limited = (limit.metric for limit in self.problem.limits)
        return tuple(dict.fromkeys(("step_s", *self.problem.objectives, *limited)))

    def losses(self, values: Mapping[str, Floats], *, bound: bool) -> Floats:
        """Return losses; infinite beyond a limit, of a bound only beyond those that worse designs break too."""
        with np.errstate(all="ignore"):
            columns = [values[name] if BETTER[name] == "less" else 1 / values[name] for name in self.problem.objectives]
        limited = np.stack(columns, axis=1)
        missing = np.isnan(limited).any(axis=1)
        limited[missing] = 0.0 if bound else np.inf
        for limit in self.problem.limits:
            if not bound or limit.most == (BETTER[limit.metric] == "less"):
                value = values[limit.metric]
                limited[(value > limit.bound if limit.most else value < limit.bound) & ~missing] = np.inf
        return limited

    def bounds(self, leaf: Leaf) -> Floats:
        """Return what no design of some boxes can beat: the step of the fastest at the price of the cheapest."""
        return self._corner_losses(leaf, leaf.high, leaf.low)

    def _corner_losses(self, leaf: Leaf, fast: Integers, cheap: Integers) -> Floats:
        quick, thrifty = (self.evaluate_designs(leaf.skeletons, leaf.options, positions) for positions in (fast, cheap))
        with np.errstate(all="ignore"):
            scale = quick["step_s"] / thrifty["step_s"]
            values = {
                name: quick[name]
                if name in STEP_METRICS
                else thrifty[name]
                if name in PURCHASE_METRICS
                else thrifty[name] * (scale if BETTER[name] == "less" else 1 / scale)
                for name in self.metrics
            }
        return self.losses(values, bound=True)

    # ----------------------------------------------------------------------------------------- checks

    def check_feasibility(self) -> str:
        """Check that skeletons that are said not to run do not, whatever their network."""
        infeasible = np.flatnonzero(~self.feasible)
        rng = np.random.default_rng(1)
        for _ in range(2):
            options, positions = self._random(rng, len(infeasible))
            step = self.evaluate_designs(infeasible, options, positions)["step_s"]
            refuse_unless(bool(np.isnan(step).all()), "a skeleton that is said not to run does")
        return f"{len(infeasible):,} of {self.parts.count:,} skeletons cannot run"

    def _random(self, rng: np.random.Generator, count: int) -> tuple[Integers, Integers]:
        counts = [len(option) for option in self.parts.options]
        options = rng.integers(0, np.array(counts, dtype=np.intp), (count, len(counts)))
        positions = rng.integers(0, np.array(self.parts.widths, dtype=np.intp), (count, len(self.parts.widths)))
        return options, positions

    def roots(self) -> Leaf:
        """Return every able skeleton with every combination of options that stand for themselves, in order."""
        feasible = np.flatnonzero(self.feasible)
        skeletons, options = feasible, np.zeros((len(feasible), 0), dtype=np.intp)
        owner = np.arange(len(feasible))
        for tables, which in zip(self.tables, self.which, strict=True):
            stands_itself = tables[which[owner]] == np.arange(tables.shape[1])
            rows, chosen = np.nonzero(stands_itself)
            owner, skeletons = owner[rows], skeletons[rows]
            options = np.hstack([options[rows], chosen[:, None]])
        low = np.zeros((len(skeletons), len(self.parts.widths)), dtype=np.intp)
        return Leaf(skeletons, options, low, low + np.array(self.parts.widths, dtype=np.intp) - 1)

    def leaves(self) -> Iterator[Leaf]:
        """Yield the leaves of the tree, round by round."""
        bits = unpack_bits(self.certificate["tree"], "certificate.tree")
        boxes, used = self.roots(), 0
        while len(boxes.skeletons):
            split_bits = bits[used : used + len(boxes.skeletons)]
            refuse_unless(len(split_bits) == len(boxes.skeletons), "its tree has too few bits: a leaf is missing")
            used += len(split_bits)
            yield boxes.select(~split_bits)
            split = boxes.select(split_bits)
            width = split.high - split.low
            refuse_unless(bool((width.max(axis=1, initial=0) > 0).all()), "its tree splits a single design")
            boxes = _halve_boxes(split, width)
        refuse_unless(used == len(bits), "its tree has bits that no box belongs to")

    def check_coverage(self) -> str:
        """Check that the leaves, with all that their options stand for, and what cannot run, are all designs."""
        numbers = np.cumsum(self.feasible) - 1
        total = 0
        for leaf in self.leaves():
            behind = np.ones(len(leaf.skeletons), dtype=np.int64)
            for number, (tables, which) in enumerate(zip(self.tables, self.which, strict=True)):
                mine = tables[which[numbers[leaf.skeletons]]]
                behind *= (mine == leaf.options[:, number][:, None]).sum(axis=1)
            total += int((behind * leaf.sizes).sum())
        total += int(np.count_nonzero(~self.feasible)) * self.parts.spread
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
                alone = leaf.select(single)
                bounds[single] = self.losses(
                    self.evaluate_designs(alone.skeletons, alone.options, alone.high), bound=False
                )
            count += len(bounds)
            if self.certificate["proven"]:
                refuse_unless(bool(self.is_covered(bounds).all()), "a leaf may hold something better than the best")
            lower = min(lower, float(bounds[:, 0].min()))
            self._check_inside(leaf, bounds, rng)
        if len(self.problem.objectives) == 1:
            self._check_gap(lower)
        if not self.certificate["proven"]:
            return f"{count:,} leaves have bounds that are no better than the bound that it states"
        return f"{count:,} leaves have bounds that are no better than the best{_slack_text(self.slack)}"

    def is_covered(self, bounds: Floats) -> npt.NDArray[np.bool_]:
        """Return which bounds some design of the front is as good as, but for the slack."""
        is_covered = np.asarray(np.isinf(bounds).any(axis=1))
        for best in self.best * (1 - self.slack) * (1 - ROUNDING):
            is_covered |= (bounds >= best).all(axis=1)
        return is_covered

    def _is_claimed(self, losses: Floats) -> bool:
        """Return whether designs are no better than is claimed: than the best, or than the bound if a gap is left."""
        if self.certificate["proven"]:
            return bool(self.is_covered(losses).all())
        lower = self.certificate["lower"]
        return type(lower) not in (int, float) or bool((losses[:, 0] >= lower * (1 - ROUNDING)).all())

    def _check_gap(self, lower: float) -> None:
        claimed, gap = self.certificate["lower"], self.certificate["gap"]
        if not len(self.best):
            refuse_unless(bool(np.isinf(lower)), "it has no design, though some may run")
            return
        refuse_unless(type(claimed) in (int, float) and type(gap) in (int, float), "it states no bound")
        refuse_unless(claimed <= lower * (1 + ROUNDING), "its lower bound is above that of a leaf")
        refuse_unless(
            claimed >= lower * (1 - 1e-9) or not self.certificate["proven"],
            "its lower bound is below that of all leaves",
        )
        remaining = max(0.0, 1 - claimed / float(self.best[0, 0]))
        refuse_unless(abs(gap - remaining) <= ROUNDING, "its gap does not follow from its bound")
        unbounded = self.certificate["proven"] and gap > self.slack * (1 + ROUNDING)
        refuse_unless(not unbounded, "it claims a proof, and leaves more open than its slack")

    def _check_inside(self, leaf: Leaf, bounds: Floats, rng: np.random.Generator) -> None:
        """Try a random design of each leaf: none may beat its bound."""
        chosen = np.flatnonzero((leaf.low < leaf.high).any(axis=1))
        chosen = rng.choice(chosen, min(len(chosen), DESIGNS_AT_ONCE), replace=False) if len(chosen) else chosen
        inside = leaf.select(chosen)
        positions = inside.low + (rng.random(inside.low.shape) * (inside.high - inside.low + 1)).astype(np.intp)
        inside_losses = self.losses(self.evaluate_designs(inside.skeletons, inside.options, positions), bound=False)
        refuse_unless(
            bool((inside_losses >= bounds[chosen] * (1 - 1e-9)).all()), "a design inside a leaf beats its bound"
        )

    def check_ladders(self) -> str:
        """Check that in every skeleton worse networks are never faster, and that no option beats the one for it."""
        feasible = np.flatnonzero(self.feasible)
        rng = np.random.default_rng(3)
        for _ in range(LADDERS):
            options, _ = self._random(rng, len(feasible))
            rungs = np.sort(rng.random((RUNGS, len(feasible), len(self.parts.widths))), axis=0)[::-1]
            rungs[0], rungs[-1] = 1 - 1e-9, 0.0
            faster_s = self.evaluate_designs(feasible, self._stand_ins(options), self._positions(rungs[0]))["step_s"]
            for rung in rungs:
                step_s = self.evaluate_designs(feasible, options, self._positions(rung))["step_s"]
                refuse_unless(
                    bool((step_s >= faster_s * (1 - 1e-9)).all()), "a step gets shorter when its network gets slower"
                )
                faster_s = step_s
        return f"{LADDERS * len(feasible):,} ladders of worse and worse networks are never faster"

    def _positions(self, shares: Floats) -> Integers:
        positions: Integers = (shares * np.array(self.parts.widths)).astype(np.intp)
        return positions

    def _stand_ins(self, options: Integers) -> Integers:
        """Return the options that stand for those of all able skeletons."""
        stand_ins = options.copy()
        for number, (tables, which) in enumerate(zip(self.tables, self.which, strict=True)):
            stand_ins[:, number] = tables[which, options[:, number]]
        return stand_ins

    def check_trials(self, trials: int) -> str:
        """Check that neither random designs nor neighbours of the best are better."""
        space = self.problem.space
        rows = [space.sample(trials, np.random.default_rng(4))]
        for entry in self.certificate["front"]:
            rows.append(_neighbours(np.array(entry["row"], dtype=np.intp), space.sizes))
        tried = np.concatenate(rows)
        tried = tried[space.contains(tried)]
        for start in range(0, len(tried), DESIGNS_AT_ONCE):
            results = self.problem.evaluate(tried[start : start + DESIGNS_AT_ONCE])
            values = {name: results.columns[name] for name in self.metrics}
            tried_losses = self.losses(values, bound=False)
            refuse_unless(self._is_claimed(tried_losses), "a design that was tried is better than the best")
        return f"{len(tried):,} designs that were tried are no better{_slack_text(self.slack)}"

    # ------------------------------------------------------------------------------------------ counts

    def check_count(self) -> str:
        """Count the designs near the best again."""
        share, count = _read_share(self.certificate), self.certificate["within"].get("count")
        if count is None:
            return "it does not say how many designs are near the best"
        total = self._count_within(_loss_within(self.problem, float(self.best[0, 0]), share))
        refuse_unless(total == count, f"{total:,} designs are within {100 * share:g} % of the best")
        return f"{total:,} designs are within {100 * share:g} % of the best"

    def _count_within(self, max_loss: float) -> int:
        numbers = np.cumsum(self.feasible) - 1
        heap = [(0, self.roots())]
        total = 0
        while heap:
            choice, stack_boxes = heap.pop()
            if len(stack_boxes.skeletons) > DESIGNS_AT_ONCE:
                cuts = range(0, len(stack_boxes.skeletons), DESIGNS_AT_ONCE)
                heap += [(choice, stack_boxes.select(slice(start, start + DESIGNS_AT_ONCE))) for start in cuts]
                continue
            boxes = (
                stack_boxes.select(self.bounds(stack_boxes)[:, 0] <= max_loss * (1 + 1e-9))
                if len(stack_boxes.skeletons)
                else stack_boxes
            )
            if not len(boxes.skeletons):
                continue
            single = (boxes.low == boxes.high).all(axis=1)
            worst = self._corner_losses(boxes, boxes.low, boxes.high)[:, 0]
            inside = (worst <= max_loss * (1 - 1e-9)) & (not self.problem.limits)
            if choice < len(self.tables):
                ready = boxes.select(inside | single)
                mine = self.tables[choice][self.which[choice][numbers[ready.skeletons]]]
                rows, chosen = np.nonzero(mine == ready.options[:, choice][:, None])
                members = ready.select(rows)
                options = members.options.copy()
                options[:, choice] = chosen
                heap.append((choice + 1, members._replace(options=options)))
                undecided = boxes.select(~inside & ~single)
            else:
                total += int(boxes.sizes[inside].sum())
                designs = boxes.select(single & ~inside)
                values = self.evaluate_designs(designs.skeletons, designs.options, designs.high)
                total += int(np.count_nonzero(self.losses(values, bound=False)[:, 0] <= max_loss))
                undecided = boxes.select(~inside & ~single)
            heap.append((choice, _halve_boxes(undecided, undecided.high - undecided.low)))
        return total


def _halve_boxes(boxes: Leaf, width: Integers) -> Leaf:
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


def _neighbours(row: Integers, sizes: tuple[int, ...]) -> Integers:
    """Return all rows that differ from one in a single parameter, or in two that are side by side."""
    rows = []
    for column, size in enumerate(sizes):
        changed = np.tile(row, (size, 1))
        changed[:, column] = np.arange(size)
        rows.append(changed)
    for column in range(len(sizes) - 1):
        pairs = np.stack(np.meshgrid(np.arange(sizes[column]), np.arange(sizes[column + 1])), axis=-1).reshape(-1, 2)
        changed = np.tile(row, (len(pairs), 1))
        changed[:, column : column + 2] = pairs
        rows.append(changed)
    return np.concatenate(rows)


# ---- Checks that options stand for others only where they have no more of anything: from the listed step itself

PRICED_QUANTITIES = {
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
COST_ROUNDING = 1e-12


def check_options(leaves: Leaves) -> str:
    """Check every option that stands for another, in every kind of skeleton."""
    parts, checked = leaves.parts, 0
    metrics = {*leaves.problem.objectives, *(limit.metric for limit in leaves.problem.limits)}
    quantities = {name for metric in metrics for name in PRICED_QUANTITIES.get(metric, ())}
    feasible = np.flatnonzero(leaves.feasible)
    batch = Batch(parts.space.base, parts.space.columns(parts.skeletons[feasible]))
    for rows, part in batch.groups(structural_paths(batch)):
        for number, dimension in enumerate(parts.dimensions):
            tables = leaves.which[number][rows]
            for use in _dimension_uses(part, dimension):
                checked += _check_use(leaves, number, tables, use)
            npus = part[f"network.dims.{dimension}.npus"]
            for quantity in sorted(quantities):
                checked += _check_price(leaves, number, tables, quantity, npus)
    return f"{checked:,} options that stand for others have no more of anything"


class _DimensionUse(NamedTuple):
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


def _dimension_uses(part: Batch, dimension: int) -> Iterator[_DimensionUse]:
    """Yield every kind of communication that crosses a dimension."""
    listed = profile_step(part)
    network = listed.network
    seen = {(collective.kind, collective.axes) for collective in listed.traffic}
    for kind, axes in sorted(seen):
        for collective in network.group(axes):
            if collective.dimension is network.dims[dimension]:
                yield _DimensionUse(
                    kind,
                    collective.dimension.npus,
                    collective.span.members,
                    collective.span.step,
                    collective.dimension.tiers,
                )


def _option_names(leaves: Leaves, number: int) -> list[tuple[str, str]]:
    """Return topology and algorithm of each option."""
    parts, dimension = leaves.parts, leaves.parts.dimensions[number]
    base = parts.space.base
    names = []
    for option in parts.options[number].tolist():
        topology, algorithm = base.network.dims[dimension].topology, base.collective.algorithms[dimension]
        for column, index in zip(parts.choice_columns[number], option, strict=True):
            parameter = parts.space.parameters[column]
            if parameter.paths[0].startswith("collective."):
                algorithm = parameter.values[index][0]
            else:
                topology = parameter.values[index][0]
        names.append((topology, algorithm))
    return names


def _distinct_tables(tables: Integers, *columns: Any) -> list[list[float]]:
    joined = np.stack(np.broadcast_arrays(tables.astype(np.float64), *columns), axis=1)
    distinct: list[list[float]] = np.unique(joined, axis=0).tolist()
    return distinct


def _check_use(leaves: Leaves, number: int, tables: Integers, use: _DimensionUse) -> int:
    names, checked = _option_names(leaves, number), 0
    for table, size, members, step, *tier_columns in _distinct_tables(tables, *use.columns):
        if members <= 1:
            continue
        costs = np.array(
            [_option_costs(use.kind, name, (size, members, step), use.tiers_of(tier_columns)) for name in names]
        )
        checked += _check_stands(leaves.tables[number][int(table)], costs, f"a {use.kind}")
    return checked


def _option_costs(kind: Any, names: tuple[str, str], sizes: tuple[float, ...], tiers: tuple[Any, ...]) -> list[float]:
    """Return what an option must have no more of: links, traffic, and both where tiers of switches are crossed."""
    message = kind in ("send", "collective_permute")
    hops, traffic = point_to_point_terms(*names, *sizes) if message else collective_terms(kind, *names, *sizes)
    costs = [hops, 1 / traffic if message else traffic]
    if tiers:
        crossed = message_terms(*names, *sizes, *tiers) if message else tier_terms(kind, *names, *sizes, *tiers)
        costs += [1 / crossed[0], crossed[1]]
    return costs


def _check_price(leaves: Leaves, number: int, tables: Integers, quantity: Any, npus: Any) -> int:
    tier = dimension_tiers(len(leaves.parts.space.base.network.dims))[leaves.parts.dimensions[number]]
    names, checked = _option_names(leaves, number), 0
    for table, size in _distinct_tables(tables, npus):
        blocks = [block_terms(quantity, tier, topology, size) for topology, _ in names]
        costs = np.array([(block / links,) for block, links in blocks])
        checked += _check_stands(leaves.tables[number][int(table)], costs, f"the {quantity}")
    return checked


def _check_stands(stands: Integers, costs: Any, resource: str) -> int:
    better = (costs[stands] <= costs * (1 + COST_ROUNDING)).all(axis=1)
    refuse_unless(bool(better.all()), f"an option stands for another that takes less of {resource}")
    return int(np.count_nonzero(stands != np.arange(len(stands))))


RANDOM_TRIALS = 200_000
"""Random designs that are tried."""


def check_certificate(source: str | Path | Mapping[str, Any], space: ParameterSet | None = None) -> list[str]:
    """Return what was checked of a certificate, a sentence each; raise `Refused` if something does not hold.

    *space* is needed only for a set that no file describes.
    """
    certificate = check_form(dict(source)) if isinstance(source, Mapping) else read_certificate(source)
    problem = _read_problem(certificate, space)
    achieved = _check_front(certificate, problem)
    sentences = [claim_of(certificate, problem), achieved]
    if certificate["method"] == "enumerated":
        return [*sentences, *check_blocks(certificate, problem)]
    leaves = Leaves(certificate, problem)
    sentences.append(leaves.check_feasibility())
    sentences.append(check_options(leaves))
    sentences.append(leaves.check_coverage())
    sentences.append(leaves.check_bounds())
    sentences.append(leaves.check_ladders())
    sentences.append(leaves.check_trials(RANDOM_TRIALS))
    if certificate["within"] is not None:
        sentences.append(leaves.check_count())
    return sentences


EXACT = 1e-9
"""The slack of a proof that leaves nothing open but rounding."""


def claim_of(certificate: Mapping[str, Any], problem: Problem) -> str:
    """Return in words what a certificate claims: what is checked is no more than that."""
    count, gap = problem.space.valid, certificate["gap"]
    if not certificate["proven"]:
        left = "" if gap is None else f": designs better by up to {100 * gap:.3g} % are not ruled out"
        return f"it claims no proof{left}"
    if not certificate["front"]:
        return f"it claims that none of {count:,} designs can run"
    best = "its best" if len(certificate["front"]) == 1 else f"its {len(certificate['front']):,} designs"
    names = ", ".join(problem.objectives)
    return f"it claims that none of {count:,} designs beats {best} in {names}{_slack_text(certificate['slack'])}"


def _slack_text(slack: float) -> str:
    """Return what a proof leaves open, in words; nothing where that is rounding alone.

    >>> _slack_text(1e-9), _slack_text(0.05)
    ('', ' by more than 5 %')
    """
    return "" if slack <= EXACT else f" by more than {100 * slack:g} %"


def _read_problem(certificate: Mapping[str, Any], space: ParameterSet | None) -> Problem:
    """Return the problem that a certificate is about, if it is what it says and the model is ours."""
    description = certificate["space"]
    refuse_unless(certificate["model"] == model_digest(), "it was made with another version of the model")
    if space is None:
        refuse_unless(isinstance(description.get("source"), dict), "it does not say what its space is: state the space")
        try:
            space = load_space(description["source"])
        except CosmicError as error:
            raise Refused(f"its space cannot be read: {error}") from None
    ours = content_of(space)
    for key in ("identity", "designs", "parameters", "derived", "constraints"):
        refuse_unless(description.get(key) == ours[key], f"its space differs from the one it names in its {key}")
    try:
        extra = [text for text in certificate["limits"] if text not in space.limits]
        problem = make_problem(space, certificate["objectives"], extra)
    except (CosmicError, TypeError) as error:
        raise Refused(f"its objectives or limits make no sense: {error}") from None
    refuse_unless(
        [limit.text for limit in problem.limits] == certificate["limits"], "its limits are not those of its space"
    )
    return problem


def _check_front(certificate: Mapping[str, Any], problem: Problem) -> str:
    """Check that the designs of the certificate achieve what it says, and that none is better than another."""
    count, width = len(problem.objectives), len(problem.space.parameters)
    shaped = all(
        isinstance(entry, dict)
        and isinstance(entry.get("row"), list)
        and isinstance(entry.get("losses"), list)
        and len(entry["row"]) == width
        and len(entry["losses"]) == count
        and is_whole(entry["row"])
        and all(type(value) in (int, float) for value in entry["losses"])
        for entry in certificate["front"]
    )
    refuse_unless(shaped, "its designs are malformed")
    refuse_unless(type(certificate["slack"]) is float and 1e-9 <= certificate["slack"] < 1, "its slack is no share")
    if not certificate["front"]:
        refuse_unless(certificate["lower"] is None and certificate["gap"] is None, "it states a bound without a design")
        return "it says that no design can run"
    rows = np.array([entry["row"] for entry in certificate["front"]], dtype=np.intp)
    claimed = np.array([entry["losses"] for entry in certificate["front"]], dtype=np.float64)
    refuse_unless(bool(problem.space.contains(rows).all()), "its best design is not in the space")
    results = problem.evaluate(rows)
    refuse_unless(bool(results.feasible.all()), "its best design cannot run")
    refuse_unless(
        bool((losses_of(problem.objectives, results.columns) == claimed).all()),
        "its best design achieves something else",
    )
    refuse_unless(
        bool(pareto_front(claimed).all()) and len(np.unique(claimed, axis=0)) == len(claimed),
        "one of its designs is better than another",
    )
    subject = "1 design achieves" if len(rows) == 1 else f"{len(rows)} designs achieve"
    return f"{subject} what is claimed, to the bit"
