"""Anonymize traces: no name, text or id of the original stays, and sizes and times are within a tolerance of it.

What a simulator needs stays: nodes, their types, dependencies and order, which values are equal, who talks to whom.
Ids are numbered anew in their old order, as simulators issue the lowest first. A value becomes the same on all
ranks, so that members of a group still agree, and sends meet their receives. New names of nodes, kernels and groups
keep nothing of the old ones but which were equal. Durations and delays change under noise, and starts move with what
they waited for.

**Noise** hides numbers: it is the same for equal numbers, within a stated tolerance, and unknown without the seed.

A number *v* becomes a whole number between ``v / (1 + t)`` and ``v (1 + t)``, where *t* is the tolerance. Numbers
too small for another whole number in that range stay as they are, as does 0.

Most of the noise is one factor for all numbers of a trace, the rest is each number's own: everything gets slower or
faster together. With noise that was all each number's own, simulated times of some designs with sharded weights
changed by ten times the tolerance on single networks (docs/how-to/share-traces.md).

Sizes also keep their common divisor with a highly composite number. Simulators cut a buffer into chunks, and one
that does not divide gets another chunk: ASTRA-sim sends 25 % more where four chunks become five.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.json_types import Count, PositiveCount, Share, one_of
from cosmic.step.kernel_prices import ELEMENT_BYTES, SIZES, WALKS
from cosmic.traces.dependencies import Dependencies, dependencies_of, topological_order
from cosmic.traces.trace import (
    ABSENT,
    ALL_RANKS,
    CollectiveType,
    Ints,
    NodeType,
    RankTrace,
    Template,
    TraceSet,
    ranks_by_template,
    stated_groups,
)
from cosmic.traces.trace_views import enum_name

Floats = npt.NDArray[np.float64]

MODES = ("perturb", "bucket", "keep")
TRIES, TRIES_AGAIN = 64, 8
"""How often noise is drawn at most, and how often because it gave a number of the original."""
FACTORS = (2, 2, 2, 2, 3, 2, 2, 2, 2, 5, 7, 2, 2, 2, 2)
"""Divisors that sizes keep, or still lack, in this order, as far as the tolerance leaves `FEWEST` choices."""
FEWEST = 16
LEAST_MODULUS = 16
"""Divisors of this stay, however few choices are left: 52 bytes in four chunks would else be 54 in five."""
COMMON = 0.75
"""Share of the noise that is common to all numbers."""
LEAST_COMMON = 1 / 3
"""The common noise is at least this share of what it may be: so small numbers change, too."""
_MOST = 2.0**63 - 2**11
"""No number becomes larger: columns hold 64 bits."""


@dataclass(frozen=True, slots=True)
class Noise:
    """A source of random numbers that only the seed tells: a cryptographic hash of it."""

    seed: int

    def shares(self, label: str, count: int) -> Floats:
        """Return *count* numbers in [0, 1), others for each *label*.

        >>> Noise(1).shares("a", 2).tolist() == Noise(1).shares("a", 3)[:2].tolist()
        True
        """
        digest = hashlib.shake_256(f"{self.seed} {label}".encode()).digest(8 * count)
        shares: Floats = (np.frombuffer(digest, "<u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return shares

    def order(self, label: str, count: int) -> Ints:
        """Return the numbers from 0 to *count* - 1, shuffled."""
        return np.argsort(self.shares(label, count), kind="stable")


@dataclass(frozen=True, slots=True, eq=False)
class NoiseTable:
    """Numbers, ascending and distinct, and what becomes of each."""

    old: Ints
    new: Ints

    def apply(self, column: Ints) -> Ints:
        """Return *column* with its numbers replaced; those that are not in the table stay.

        >>> NoiseTable(np.array([5, 9]), np.array([6, 8])).apply(np.array([9, 0, -1, 5])).tolist()
        [8, 0, -1, 6]
        """
        if not len(self.old):
            return column
        index = np.minimum(np.searchsorted(self.old, column), len(self.old) - 1)
        return np.where(self.old[index] == column, self.new[index], column)

    @property
    def kept(self) -> int:
        """How many numbers stay as they are."""
        return int((self.old == self.new).sum())

    @property
    def largest_change(self) -> float:
        """The largest relative change: *t* where a number was multiplied, or divided, by 1 + *t*.

        >>> NoiseTable(np.array([100, 200]), np.array([104, 160])).largest_change
        0.25
        """
        if not len(self.old):
            return 0.0
        ratio = self.new / self.old
        return float(np.maximum(ratio, 1 / ratio).max() - 1)


def distinct_values(values: Ints) -> Ints:
    """Return the distinct *values*, ascending: as `numpy.unique`, which is ten times slower where most are distinct.

    >>> distinct_values(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def contains_values(ordered: Ints, values: Ints) -> npt.NDArray[np.bool_]:
    """Return whether each of *values* is among the ascending *ordered*."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    present: npt.NDArray[np.bool_] = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return present


def positive_values(columns: Iterable[Ints]) -> Ints:
    """Return the distinct numbers above 0 in *columns*, ascending."""
    distinct = distinct_values(np.concatenate([np.empty(0, np.int64), *columns]))
    return distinct[distinct > 0]


def noise_table(
    old: Ints, mode: str, tolerance: float, source: tuple[Noise, str], *, divided: bool = False
) -> NoiseTable:
    """Return the replacements of the numbers *old*, which are ascending, distinct and above 0, by one of `MODES`.

    *source* is where noise comes from, and its label there; with *divided*, divisors stay.
    """
    if mode == "keep" or not len(old):
        return NoiseTable(old, old)
    low, high = tolerance_limits(old, tolerance)
    modulus = divisor_moduli(high - low + 1) if divided else np.ones_like(old)
    range_ = _NoiseRange(old, low, high, modulus, np.gcd(old, modulus))
    return NoiseTable(old, (_perturb_numbers if mode == "perturb" else _bucket_numbers)(range_, tolerance, *source))


def tolerance_limits(old: Ints, tolerance: float) -> tuple[Ints, Ints]:
    """Return the least and the largest whole number within *tolerance* of each of *old*.

    >>> [each.tolist() for each in tolerance_limits(np.array([1, 19, 20, 100]), 0.05)]
    [[1, 19, 20, 96], [1, 19, 21, 105]]
    """
    low, high = np.ceil(old / (1 + tolerance)), np.floor(np.minimum(old * (1 + tolerance), _MOST))
    # Rounding of floats must not move a bound past the number itself.
    return np.minimum(low.astype(np.int64), old), np.maximum(high.astype(np.int64), old)


def divisor_moduli(choices: Ints) -> Ints:
    """Return the product of the first `FACTORS` that leaves at least `FEWEST` of as many *choices*; 16 at least.

    >>> divisor_moduli(np.array([1, 33 * 16, 48 * 16, 10**9])).tolist()
    [16, 16, 48, 430080]
    """
    products = np.cumprod([1, *FACTORS])
    moduli = products[np.searchsorted(products * FEWEST, np.maximum(choices, FEWEST), "right") - 1]
    return np.maximum(moduli, LEAST_MODULUS)


@dataclass(frozen=True, slots=True, eq=False)
class _NoiseRange:
    """What each of *old* may become: numbers from *low* to *high* whose common divisor with *modulus* is *divisor*."""

    old: Ints
    low: Ints
    high: Ints
    modulus: Ints
    divisor: Ints

    def nearest(self, wanted: Floats, rows: Ints) -> Ints:
        """Return the multiple of the divisor that is nearest to each of *wanted*, for the numbers at *rows*."""
        divisor = self.divisor[rows]
        return divisor * np.rint(np.minimum(wanted, _MOST) / divisor).astype(np.int64)

    def allows(self, new: Ints, rows: Ints) -> npt.NDArray[np.bool_]:
        """Return whether the numbers at *rows* may become *new*."""
        within = (new >= self.low[rows]) & (new <= self.high[rows])
        same: npt.NDArray[np.bool_] = np.gcd(new, self.modulus[rows]) == self.divisor[rows]
        return within & same


def _perturb_numbers(range_: _NoiseRange, tolerance: float, noise: Noise, label: str) -> Ints:
    """Return each number times a log-uniform factor; no old number comes out again where that can be avoided."""
    old, common = range_.old, _common_noise(noise)
    new = old.copy()
    pending = np.flatnonzero(range_.high > range_.low)
    for attempt in range(TRIES):
        if not len(pending):
            break
        own = 2 * noise.shares(f"{label} {attempt}", len(pending)) - 1
        # Log-uniform within the tolerance; as most of the noise is common to all numbers, their ratios change
        # less.
        factor = np.exp((COMMON * common + (1 - COMMON) * own) * np.log1p(tolerance))
        drawn = range_.nearest(old[pending] * factor, pending)
        good = range_.allows(drawn, pending) & (drawn != old[pending])
        new[pending[good]] = drawn[good]
        settled = ~contains_values(old, drawn) if attempt < TRIES_AGAIN else good
        pending = pending[~(good & settled)]
    return new


def _common_noise(noise: Noise) -> float:
    """Return the common noise, between -1 and 1, and not near 0.

    >>> 1 / 3 <= abs(_common_noise(Noise(7))) < 1
    True
    """
    sign, share = noise.shares("common", 2).tolist()
    return float((LEAST_COMMON + (1 - LEAST_COMMON) * share) * (1 if sign < 1 / 2 else -1))


def _bucket_numbers(range_: _NoiseRange, tolerance: float, noise: Noise, label: str) -> Ints:
    """Return each number rounded to a geometric grid that starts at a random place: neighbours become equal."""
    # Points are a factor (1 + tolerance)^2 apart, so that rounding moves no number by more than the tolerance.
    step = 2 * np.log1p(tolerance)
    phase = noise.shares(label, 1)[0]
    grid = np.exp((np.rint(np.log(range_.old) / step - phase) + phase) * step)
    new = range_.old.copy()
    pending = np.arange(len(new))
    for index in range(2 * FEWEST):  # 0, 1, -1, 2, -2 ... divisors from the point of the grid
        offset = (index + 1) // 2 * (1 if index % 2 else -1)
        tried = range_.nearest(np.clip(grid[pending], range_.low[pending], range_.high[pending]), pending)
        tried += offset * range_.divisor[pending]
        good = range_.allows(tried, pending)
        new[pending[good]] = tried[good]
        pending = pending[~good]
    return new


KERNEL_WORDS = frozenset((*SIZES, *WALKS, *ELEMENT_BYTES))
"""Words of kernels that are kept: kinds, walks and number formats. All others may be somebody's own."""
GEMM_SIZES = 3
"""Each size of a kernel gets this root of the tolerance, so that the operations of a GEMM stay within it."""
_COLLECTIVE = 100


class NodeNames:
    """New names of nodes: their type or collective, and a number for each distinct old name of that."""

    def __init__(self, drop: bool) -> None:
        self._drop = drop
        self._new: dict[tuple[str, str], str] = {}
        self._count: dict[str, int] = {}

    def rename_nodes(self, template: Template) -> list[str]:
        """Return the new names of a template's nodes; a node without a name stays without."""
        if self._drop:
            self._new |= {("", name): "" for name in template.names}
            return [""] * template.nodes
        typed = (template.type == NodeType.COMM_COLL) & (template.comm_type != ABSENT)
        kinds = np.where(typed, _COLLECTIVE + template.comm_type, template.type)
        labels = {kind: _name_prefix(kind) for kind in np.unique(kinds).tolist()}
        new = self._new
        names = []
        for kind, name in zip(kinds.tolist(), template.names, strict=True):
            key = labels[kind], name
            if key not in new:
                new[key] = self._next(key[0]) if name else ""
            names.append(new[key])
        return names

    def _next(self, label: str) -> str:
        number = self._count[label] = self._count.get(label, 0) + 1
        return f"{label}_{number}"

    @property
    def distinct(self) -> int:
        """How many distinct names there were."""
        return len({name for _, name in self._new if name})

    def mapping(self) -> dict[str, str]:
        """Return the old name of each new one."""
        return {new: old for (_, old), new in self._new.items() if new}


def _name_prefix(kind: int) -> str:
    """Return the prefix of a new name.

    >>> _name_prefix(NodeType.COMP), _name_prefix(NodeType.COMM_SEND), _name_prefix(_COLLECTIVE + CollectiveType.ALL_TO_ALL), _name_prefix(44)
    ('COMP', 'SEND', 'ALL_TO_ALL', 'NODE')
    """
    if kind - _COLLECTIVE in CollectiveType._value2member_map_:
        return CollectiveType(kind - _COLLECTIVE).name
    return NodeType(kind).name.removeprefix("COMM_") if kind in NodeType._value2member_map_ else "NODE"


class KernelTexts:
    """New texts for what kernels compute: known words, and sizes by *sizes*, the table of each; or no sizes."""

    def __init__(self, way: str, templates: Sequence[Template], sizes: KernelSizes) -> None:
        self._way = way
        self.sizes = sizes
        self.words: dict[str, str] = {}
        """Words that are not kept, and their numbers."""
        texts = dict.fromkeys(text for template in templates for text in _used_texts(template))
        self._new = {text: "" if way == "drop" else self._text(text) for text in texts}

    def _text(self, text: str) -> str:
        words = [self._word(word) for word in text.split() if self._way == "sizes" or not _is_number(word)]
        return " ".join(words)

    def _word(self, word: str) -> str:
        if _is_number(word):
            return str(self.sizes.new_size(int(word)))
        if word in KERNEL_WORDS:
            return word
        return self.words.setdefault(word, f"kernel_{len(self.words) + 1}")

    @property
    def distinct(self) -> int:
        """How many distinct texts there were."""
        return len(self._new)

    @property
    def kept(self) -> int:
        """How many of them are as they were."""
        return sum(old == new for old, new in self._new.items())

    def new_texts(self, template: Template) -> list[str]:
        """Return the distinct new texts of a template."""
        return list(dict.fromkeys(self._new[text] for text in _used_texts(template) if self._new[text]))

    def column(self, template: Template) -> Ints:
        """Return the index of each node's text among the new texts."""
        index = {text: position for position, text in enumerate(self.new_texts(template))}
        new = [index.get(self._new.get(text, ""), ABSENT) for text in template.kernels]
        return np.array([*new, ABSENT], np.int64)[template.kernel]

    def mapping(self) -> dict[str, list[str]]:
        """Return the old texts of each new one."""
        old_texts: dict[str, list[str]] = {}
        for old, new in self._new.items():
            old_texts.setdefault(new, []).append(old)
        return old_texts


class KernelSizes:
    """What becomes of the sizes in kernels' texts: the same for equal ones."""

    def __init__(self, templates: Sequence[Template], mode: str, tolerance: float, noise: Noise) -> None:
        texts = {text for template in templates for text in _used_texts(template)}
        sizes = {int(word) for text in texts for word in text.split() if _is_number(word)}
        size_tolerance = (1 + tolerance) ** (1 / GEMM_SIZES) - 1
        # Divisors stay, as sizes that are no multiples of 8 would run on slower paths.
        old = np.array(sorted(sizes - {0}), np.int64)
        self.table = noise_table(old, mode, size_tolerance, (noise, "sizes of kernels"), divided=True)

    def new_size(self, size: int) -> int:
        """Return the replacement of one size."""
        return int(self.table.apply(np.array([size], np.int64))[0])


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 18


def _used_texts(template: Template) -> list[str]:
    """Return the texts that nodes of a template refer to."""
    kernels = np.unique(template.kernel[template.kernel != ABSENT])
    return [template.kernels[kernel] for kernel in kernels.tolist()]


class GroupNames:
    """New names of groups: numbers from 1 on, in the order of first use. Groups that no node names are left out."""

    def __init__(self, traces: TraceSet, groups: Mapping[str, Sequence[int]], new_ranks: Sequence[int]) -> None:
        used = [_named_groups(rank.template, rank.groups) for rank in traces.ranks]
        names = dict.fromkeys(name for rank_groups in used for name in rank_groups if name not in ALL_RANKS)
        self.numbers = {name: str(index) for index, name in enumerate(names, 1)}
        self._used = used
        recorded = stated_groups(traces)
        members = {**recorded, **{name: tuple(ranks) for name, ranks in groups.items()}}
        count = len(new_ranks)
        self._members = {
            name: tuple(new_ranks[rank] if 0 <= rank < count else rank for rank in ranks)
            for name, ranks in members.items()
        }
        self._stated = recorded.keys()
        self.groups = {self.numbers[name]: self._members[name] for name in names if name in members}

    def rename_groups(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the new names of a rank's groups; those of all ranks stay, and unused ones become those."""
        return tuple(name if name in ALL_RANKS else self.numbers.get(name, "0") for name in names)

    def texts(self, template: Template, ranks: Sequence[int]) -> dict[int, str]:
        """Return new texts for the metadata nodes of *ranks*, which share a template: the groups that these use.

        Texts that say nothing of groups are left out.
        """
        rows = [row for row, text in template.process_groups.items() if "[{" in text]
        if not rows:
            return {}
        used = dict.fromkeys(name for rank in ranks for name in self._used[rank])
        names = [name for name in (*ALL_RANKS, *used) if name in self._stated]
        entries = [{"pg_name": self.numbers.get(name, name), "ranks": list(self._members[name])} for name in names]
        return dict.fromkeys(rows, f"['{json.dumps(entries)}']")


def _named_groups(template: Template, names: Sequence[str]) -> list[str]:
    """Return the groups that a rank's nodes name."""
    indices = np.unique(template.group[template.group != ABSENT])
    return [names[index] for index in indices.tolist()]


def node_nanoseconds(template: Template) -> Ints:
    """Return how long each node took: `duration_ns` where recorded, else its microseconds."""
    return np.where(template.duration_ns != ABSENT, template.duration_ns, 1000 * template.duration_us)


def start_gaps(template: Template) -> Ints:
    """Return the time from the last event that a node may have waited for to its start; `ABSENT` where it has none.

    An event is the end of a node that it depends on, or, where that ended later, its start; without any, the
    beginning of the trace.

    >>> from cosmic.traces.trace import template_of
    >>> nodes = [{"id": 0, "start_ns": 5, "duration_ns": 10}, {"id": 1, "start_ns": 18, "data": [0]}]
    >>> start_gaps(template_of(nodes)).tolist()
    [5, 3]
    """
    return _StartEvents(template).gap


class _StartEvents:
    """The event that each node's start is counted from."""

    def __init__(self, template: Template) -> None:
        start = template.start_ns
        end = start + node_nanoseconds(template)
        # The dependencies between nodes that state when they began
        edges = dependencies_of(template).within()
        timed = (start[edges.row] != ABSENT) & (start[edges.dependent] != ABSENT)
        self.edges = Dependencies(
            edges.nodes, edges.dependent[timed], edges.wanted[timed], edges.row[timed], edges.absent[timed]
        )
        early, late = self.edges.row, self.edges.dependent
        self.ended = end[early] <= start[late]
        event = np.where(self.ended, end[early], np.where(start[early] <= start[late], start[early], ABSENT))
        last = np.full(template.nodes, ABSENT)
        np.maximum.at(last, late, event)
        tight = np.flatnonzero((event == last[late]) & (event != ABSENT))
        self.edge = np.full(template.nodes, ABSENT)
        self.edge[late[tight]] = tight
        self.gap = np.where(start == ABSENT, ABSENT, start - np.maximum(last, 0))


def move_starts(template: Template, durations: Ints, table: NoiseTable, where: str) -> Ints:
    """Return new starts for new *durations*: each is its event's new time and its gap by *table*.

    So every start is within the tolerance of the old one, and what had ended before a node began still has. Refuse
    dependencies with a cycle.
    """
    anchors = _StartEvents(template)
    order = topological_order(anchors.edges)
    if len(order) < template.nodes:
        rule = "dependencies have a cycle, so that start times cannot follow them: --policy starts=drop leaves them out"
        raise SpecError(f"{where}: nodes in order", len(order), rule)
    gap = table.apply(anchors.gap).tolist()
    first = np.searchsorted(anchors.edges.dependent, np.arange(template.nodes + 1)).tolist()
    early, ended, edge = anchors.edges.row.tolist(), anchors.ended.tolist(), anchors.edge.tolist()
    start, end = template.start_ns.tolist(), template.start_ns.tolist()
    lengths = durations.tolist()
    for row in order.tolist():
        if start[row] == ABSENT:
            continue
        anchor = edge[row]
        base = 0 if anchor == ABSENT else (end if ended[anchor] else start)[early[anchor]]
        begin = base + gap[row]
        for index in range(first[row], first[row + 1]):
            if ended[index] and end[early[index]] > begin:
                begin = end[early[index]]
        start[row], end[row] = begin, begin + lengths[row]
    return np.array(start, np.int64)


CHOICES = {
    "names": ("class", "drop"),
    "sizes": MODES,
    "times": MODES,
    "starts": ("keep", "drop"),
    "kernels": ("sizes", "class", "drop"),
    "ranks": ("keep", "permute"),
}
"""What may be done with each part of a trace, the usual way first."""
LARGEST_TOLERANCE = 1.0
BYTE_COLUMNS = ("comm_size", "tensor_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is done with each part of a trace."""

    names: Annotated[str, one_of(*CHOICES["names"])] = "class"
    """`class`: the type of the node and a number, the same for equal names. `drop`: none."""
    sizes: Annotated[str, one_of(*CHOICES["sizes"])] = "perturb"
    """Bytes and operations. `perturb`: each value times a random factor. `bucket`: rounded to a geometric grid."""
    times: Annotated[str, one_of(*CHOICES["times"])] = "perturb"
    """Durations and delays, as sizes; starts move with them."""
    starts: Annotated[str, one_of(*CHOICES["starts"])] = "keep"
    """Recorded starts; without them a trace cannot be replayed as recorded."""
    kernels: Annotated[str, one_of(*CHOICES["kernels"])] = "sizes"
    """What kernels compute. `sizes`: class, number format, and sizes by the policy for them. `class`: no sizes."""
    ranks: Annotated[str, one_of(*CHOICES["ranks"])] = "keep"
    """`permute` numbers ranks anew, which changes where they are in a network, and so the simulated time."""
    tolerance: Share = 0.05
    """A value *v* stays between v / (1 + tolerance) and v (1 + tolerance)."""

    def __post_init__(self) -> None:
        for key, choices in CHOICES.items():
            if getattr(self, key) not in choices:
                raise UnknownName.among(f"policy {key}", getattr(self, key), "way", choices)
        rule = (
            "must be above 0 % and at most 100 %; to keep values as they are, use the policies sizes=keep, times=keep"
        )
        require(0 < self.tolerance <= LARGEST_TOLERANCE, "tolerance", self.tolerance, rule)


def parse_policy(settings: Sequence[str], tolerance: float) -> Policy:
    """Return the policy of settings such as ``sizes=bucket``.

    >>> parse_policy(["sizes=bucket", "names=drop"], 0.1)
    Policy(names='drop', sizes='bucket', times='perturb', starts='keep', kernels='sizes', ranks='keep', tolerance=0.1)
    """
    chosen: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        require(bool(equals), "policy", setting, "is written PART=WAY, such as sizes=bucket")
        if key not in CHOICES:
            raise UnknownName.among("policy", key, "part of a trace", CHOICES)
        require(chosen.setdefault(key, value) == value, f"policy {key}", value, f"is also said to be {chosen[key]}")
    return Policy(**chosen, tolerance=tolerance)


@dataclass(frozen=True, slots=True)
class ValueChange:
    """What was done with one kind of values."""

    what: str
    """Kind of values."""
    policy: str
    """What was done with them."""
    distinct: int
    """Distinct values of the original."""
    kept: int
    """How many of them are still as they were: too small for another value within the tolerance, or kept by policy."""
    largest_change: Share | None = None
    """Of a number: *t* where it was multiplied, or divided, by 1 + *t*; None where values are not numbers."""


@dataclass(frozen=True, slots=True)
class VisibleParts:
    """What the traces still show."""

    ranks: PositiveCount
    """Ranks."""
    nodes: Count
    """Nodes of all ranks."""
    templates: PositiveCount
    """Ranks that differ in more than their peers and groups."""
    dependencies: Count
    """Dependencies, of one rank of each template."""
    nodes_by_type: Mapping[str, Count]
    """Nodes by type."""
    group_sizes: Mapping[int, Count]
    """Groups by their number of ranks."""


@dataclass(frozen=True, slots=True, eq=False)
class Anonymized:
    """Traces that may be shared, their groups, what was changed, and the way back."""

    traces: TraceSet
    groups: dict[str, tuple[int, ...]]
    changes: tuple[ValueChange, ...]
    visible: VisibleParts
    mapping: Callable[[], dict[str, Any]]
    """Returns the old values of new ones, for the owner: it undoes everything."""


def anonymize(
    traces: TraceSet, groups: Mapping[str, Sequence[int]] | None, policy: Policy, seed: int, where: str = "trace"
) -> Anonymized:
    """Return *traces* with all that *policy* does not keep replaced; the same for the same *seed*."""
    templates = traces.templates()
    noise = Noise(seed)
    new_rank = noise.order("ranks", len(traces.ranks)) if policy.ranks == "permute" else np.arange(len(traces.ranks))
    numbers = _TemplateNumbers.from_templates(templates, policy, noise)
    names = NodeNames(policy.names == "drop")
    kernels = KernelTexts(policy.kernels, templates, KernelSizes(templates, policy.sizes, policy.tolerance, noise))
    group_names = GroupNames(traces, groups or {}, new_rank.tolist())
    anonymized = {
        id(template): replace(
            numbers.apply(template, policy, traces.where),
            **_renumber_ids(template),
            names=names.rename_nodes(template),
            kernels=kernels.new_texts(template),
            kernel=kernels.column(template),
            process_groups=group_names.texts(template, ranks),
        )
        for template, ranks in ranks_by_template(traces)
    }
    new_ranks = new_rank.tolist()
    # The new numbers of ranks; one that is not in the job stays outside
    moved = [
        RankTrace(
            anonymized[id(rank.template)],
            group_names.rename_groups(rank.groups),
            tuple(new_ranks[peer] if 0 <= peer < len(new_ranks) else peer for peer in rank.peers),
            new_ranks[index],
        )
        for index, rank in enumerate(traces.ranks)
    ]
    result = TraceSet(tuple(moved[rank] for rank in np.argsort(new_rank).tolist()), where)
    unchanged_ids = sum(int((template.id == np.arange(template.nodes)).sum()) for template in templates)
    changes = (
        ValueChange("names", policy.names, names.distinct, 0),
        *numbers.changes(policy),
        ValueChange("kernels", policy.kernels, kernels.distinct, kernels.kept, kernels.sizes.table.largest_change),
        ValueChange("groups", "renumber", len(group_names.numbers), 0),
        ValueChange("ranks", policy.ranks, len(new_ranks), sum(new == rank for rank, new in enumerate(new_ranks))),
        ValueChange("ids", "renumber", sum(template.nodes for template in templates), unchanged_ids),
    )

    def mapping() -> dict[str, Any]:
        return {
            "names": names.mapping(),
            **numbers.mapping(),
            "kernels": kernels.mapping(),
            "groups": {number: name for name, number in group_names.numbers.items()},
            "ranks": np.argsort(new_rank).tolist(),
            "ids": {str(new_ranks[ranks[0]]): template.id.tolist() for template, ranks in ranks_by_template(traces)},
        }

    return Anonymized(result, group_names.groups, changes, _list_visible(result, group_names.groups), mapping)


def _renumber_ids(template: Template) -> dict[str, Ints]:
    """Return ids from 0 on in the old order, and dependencies on them; absent ids get numbers that no node has.

    >>> from cosmic.traces.trace import template_of
    >>> new = _renumber_ids(template_of([{"id": 40}, {"id": 70, "data": [40, 55]}]))
    >>> new["id"].tolist(), new["data_id"].tolist()
    ([0, 1], [0, 2])
    """
    wanted = np.concatenate([template.data_id, template.ctrl_id])
    rows = np.searchsorted(template.id, wanted)
    absent = ~contains_values(template.id, wanted)
    rows[absent] = template.nodes + np.searchsorted(distinct_values(wanted[absent]), wanted[absent])
    data, ctrl = np.split(rows, [len(template.data_id)])
    return {"id": np.arange(template.nodes), "data_id": data, "ctrl_id": ctrl}


@dataclass(frozen=True, slots=True, eq=False)
class _TemplateNumbers:
    """What becomes of the numbers of all templates."""

    bytes: NoiseTable
    operations: NoiseTable
    nanoseconds: NoiseTable
    microseconds: NoiseTable
    tags: NoiseTable
    streams: NoiseTable

    @classmethod
    def from_templates(cls, templates: Sequence[Template], policy: Policy, noise: Noise) -> _TemplateNumbers:
        """Return the tables for all values in *templates*."""

        def noisy(label: str, mode: str, columns: list[Ints]) -> NoiseTable:
            return noise_table(
                positive_values(columns), mode, policy.tolerance, (noise, label), divided=label == "bytes"
            )

        recorded = [
            template
            for template in templates
            if template.is_recorded and policy.starts == "keep" and policy.times != "keep"
        ]
        times = [template.duration_ns for template in templates] + [template.delay_ns for template in templates]
        microseconds = [
            np.where(template.duration_ns == ABSENT, template.duration_us, ABSENT) for template in templates
        ]
        return cls(
            bytes=noisy(
                "bytes", policy.sizes, [getattr(template, name) for template in templates for name in BYTE_COLUMNS]
            ),
            operations=noisy("operations", policy.sizes, [template.num_ops for template in templates]),
            nanoseconds=noisy("nanoseconds", policy.times, times + [start_gaps(template) for template in recorded]),
            microseconds=noisy("microseconds", policy.times, microseconds),
            tags=_shuffle_numbers([template.comm_tag for template in templates], noise, "tags"),
            streams=_shuffle_numbers([template.stream for template in templates], noise, "streams"),
        )

    def apply(self, template: Template, policy: Policy, where: str) -> Template:
        """Return *template* with new numbers."""
        duration_ns = self.nanoseconds.apply(template.duration_ns)
        # Whatever way microseconds were rounded, they are rounded the same way again.
        rounded = duration_ns // 1000 + template.duration_us - template.duration_ns // 1000
        in_us = self.microseconds.apply(template.duration_us)
        changed = replace(
            template,
            comm_size=self.bytes.apply(template.comm_size),
            tensor_size=self.bytes.apply(template.tensor_size),
            num_ops=self.operations.apply(template.num_ops),
            duration_ns=duration_ns,
            duration_us=np.where(template.duration_ns != ABSENT, np.maximum(rounded, 0), in_us),
            delay_ns=self.nanoseconds.apply(template.delay_ns),
            comm_tag=self.tags.apply(template.comm_tag),
            stream=self.streams.apply(template.stream),
        )
        return replace(changed, start_ns=self._starts(template, changed, policy, where))

    def _starts(self, template: Template, changed: Template, policy: Policy, where: str) -> Ints:
        if policy.starts == "drop":
            return np.full(template.nodes, ABSENT)
        if not template.is_recorded or policy.times == "keep":
            return template.start_ns
        durations = np.where(changed.duration_ns != ABSENT, changed.duration_ns, 1000 * changed.duration_us)
        return move_starts(template, durations, self.nanoseconds, where)

    def changes(self, policy: Policy) -> list[ValueChange]:
        """Return the changes made to each kind of numbers."""
        ways = dict.fromkeys(("bytes", "operations"), policy.sizes)
        ways |= dict.fromkeys(("nanoseconds", "microseconds"), policy.times)
        changes = []
        for field in fields(self):
            table: NoiseTable = getattr(self, field.name)
            change = table.largest_change if field.name in ways else None
            changes.append(
                ValueChange(field.name, ways.get(field.name, "renumber"), len(table.old), table.kept, change)
            )
        return changes

    def mapping(self) -> dict[str, dict[str, int | list[int]]]:
        """Return the old values of each new one, by kind; several may have become one."""
        mapping: dict[str, dict[str, int | list[int]]] = {}
        for field in fields(self):
            table: NoiseTable = getattr(self, field.name)
            back: dict[str, list[int]] = {}
            for old, new in zip(table.old.tolist(), table.new.tolist(), strict=True):
                back.setdefault(str(new), []).append(old)
            mapping[field.name] = {new: old if len(old) > 1 else old[0] for new, old in back.items()}
        return mapping


def _shuffle_numbers(columns: Sequence[Ints], noise: Noise, label: str) -> NoiseTable:
    """Return numbers from 0 on for the distinct values, shuffled."""
    numbers = distinct_values(np.concatenate([np.empty(0, np.int64), *columns]))
    old = numbers[numbers != ABSENT]
    return NoiseTable(old, noise.order(label, len(old)))


def _list_visible(traces: TraceSet, groups: Mapping[str, Sequence[int]]) -> VisibleParts:
    types: Counter[int] = Counter()
    for template, ranks in ranks_by_template(traces):
        kinds, counts = np.unique(template.type, return_counts=True)
        for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
            types[kind] += count * len(ranks)
    templates = traces.templates()
    return VisibleParts(
        ranks=len(traces.ranks),
        nodes=traces.nodes,
        templates=len(templates),
        dependencies=sum(len(template.data_id) + len(template.ctrl_id) for template in templates),
        nodes_by_type={enum_name(NodeType, kind): types[kind] for kind in sorted(types)},
        group_sizes=dict(sorted(Counter(len(ranks) for ranks in groups.values()).items())),
    )
