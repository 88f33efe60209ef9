"""Traces that may be shared: no name, text or id of the original, and sizes and times within a tolerance of it.

What a simulator needs stays: nodes, their types, dependencies and order, which values are equal, who talks to whom.
Ids are numbered anew in their old order, as simulators issue the lowest first. A value becomes the same on all ranks,
so that members of a group still agree, and sends meet their receives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from cosmic.errors import UnknownName, require
from cosmic.traces.groups import ranks_by_template
from cosmic.traces.noise import MODES, Noise, Table, distinct, holds, positive, table
from cosmic.traces.renaming import GroupNames, Kernels, NodeNames, Sizes
from cosmic.traces.retiming import gaps, moved_starts
from cosmic.traces.trace import ABSENT, Ints, NodeType, RankTrace, Template, TraceSet
from cosmic.traces.views import enum_name

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

    names: str = "class"
    """`class`: the type of the node and a number, the same for equal names. `drop`: none."""
    sizes: str = "perturb"
    """Bytes and operations. `perturb`: each value times a random factor. `bucket`: rounded to a geometric grid."""
    times: str = "perturb"
    """Durations and delays, as sizes; starts move with them."""
    starts: str = "keep"
    """Recorded starts; without them a trace cannot be replayed as recorded."""
    kernels: str = "sizes"
    """What kernels compute. `sizes`: class, number format, and sizes by the policy for them. `class`: no sizes."""
    ranks: str = "keep"
    """`permute` numbers ranks anew, which changes where they are in a network, and so the simulated time."""
    tolerance: float = 0.05
    """A value *v* stays between v / (1 + tolerance) and v (1 + tolerance)."""

    def __post_init__(self) -> None:
        for key, choices in CHOICES.items():
            if getattr(self, key) not in choices:
                raise UnknownName.among(f"policy {key}", getattr(self, key), "way", choices)
        rule = (
            "must be above 0 % and at most 100 %; to keep values as they are, use the policies sizes=keep, times=keep"
        )
        require(0 < self.tolerance <= LARGEST_TOLERANCE, "tolerance", self.tolerance, rule)


def policy_of(settings: Sequence[str], tolerance: float) -> Policy:
    """Return the policy of settings such as ``sizes=bucket``.

    >>> policy_of(["sizes=bucket", "names=drop"], 0.1)
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
class Change:
    """What was done with one kind of values."""

    what: str
    policy: str
    distinct: int
    """Distinct values of the original."""
    kept: int
    """How many of them are still as they were: too small for another value within the tolerance, or kept by policy."""
    largest_change: float | None = None
    """Of a number: *t* where it was multiplied, or divided, by 1 + *t*; None where values are not numbers."""


@dataclass(frozen=True, slots=True)
class Visible:
    """What traces still show."""

    ranks: int
    nodes: int
    templates: int
    dependencies: int
    """Of one rank of each template."""
    nodes_by_type: dict[str, int]
    group_sizes: dict[int, int]
    """How many groups there are of each size."""


@dataclass(frozen=True, slots=True, eq=False)
class Anonymized:
    """Traces that may be shared, their groups, what was changed, and the way back."""

    traces: TraceSet
    groups: dict[str, tuple[int, ...]]
    changes: tuple[Change, ...]
    visible: Visible
    mapping: Callable[[], dict[str, Any]]
    """Returns the old values of new ones, for the owner: it undoes everything."""


def anonymize(
    traces: TraceSet, groups: Mapping[str, Sequence[int]] | None, policy: Policy, seed: int, where: str = "trace"
) -> Anonymized:
    """Return *traces* with all that *policy* does not keep replaced; the same for the same *seed*."""
    templates = traces.templates()
    noise = Noise(seed)
    new_rank = noise.order("ranks", len(traces.ranks)) if policy.ranks == "permute" else np.arange(len(traces.ranks))
    numbers = _Numbers.of(templates, policy, noise)
    names = NodeNames(policy.names == "drop")
    kernels = Kernels(policy.kernels, templates, Sizes(templates, policy.sizes, policy.tolerance, noise))
    group_names = GroupNames(traces, groups or {}, new_rank.tolist())
    made = {
        id(template): replace(
            numbers.apply(template, policy, traces.where),
            **_renumbered(template),
            names=names.of(template),
            kernels=kernels.of(template),
            kernel=kernels.column(template),
            process_groups=group_names.texts(template, ranks),
        )
        for template, ranks in ranks_by_template(traces)
    }
    places = new_rank.tolist()
    moved = [
        RankTrace(made[id(rank.template)], group_names.of(rank.groups), _moved(rank.peers, places), places[place])
        for place, rank in enumerate(traces.ranks)
    ]
    result = TraceSet(tuple(moved[place] for place in np.argsort(new_rank).tolist()), where)
    changes = (
        Change("names", policy.names, names.distinct, 0),
        *numbers.changes(policy),
        Change("kernels", policy.kernels, kernels.distinct, kernels.kept, kernels.sizes.table.largest_change),
        Change("groups", "renumber", len(group_names.numbers), 0),
        Change("ranks", policy.ranks, len(places), sum(place == rank for rank, place in enumerate(places))),
        Change("ids", "renumber", *_ids(templates)),
    )

    def mapping() -> dict[str, Any]:
        return {
            "names": names.mapping(),
            **numbers.mapping(),
            "kernels": kernels.mapping(),
            "groups": {number: name for name, number in group_names.numbers.items()},
            "ranks": np.argsort(new_rank).tolist(),
            "ids": {str(places[ranks[0]]): template.id.tolist() for template, ranks in ranks_by_template(traces)},
        }

    return Anonymized(result, group_names.groups, changes, _visible(result, group_names.groups), mapping)


def _moved(peers: Sequence[int], places: Sequence[int]) -> tuple[int, ...]:
    """Return the new numbers of ranks; one that is not in the job stays outside."""
    return tuple(places[peer] if 0 <= peer < len(places) else peer for peer in peers)


def _ids(templates: Sequence[Template]) -> tuple[int, int]:
    """Return the number of ids, and how many stay as they were."""
    same = sum(int((template.id == np.arange(template.nodes)).sum()) for template in templates)
    return sum(template.nodes for template in templates), same


def _renumbered(template: Template) -> dict[str, Ints]:
    """Return ids from 0 on in the old order, and dependencies on them; absent ids get numbers that no node has.

    >>> from cosmic.traces.trace import template_of
    >>> new = _renumbered(template_of([{"id": 40}, {"id": 70, "data": [40, 55]}]))
    >>> new["id"].tolist(), new["data_id"].tolist()
    ([0, 1], [0, 2])
    """
    wanted = np.concatenate([template.data_id, template.ctrl_id])
    rows = np.searchsorted(template.id, wanted)
    absent = ~holds(template.id, wanted)
    rows[absent] = template.nodes + np.searchsorted(distinct(wanted[absent]), wanted[absent])
    data, ctrl = np.split(rows, [len(template.data_id)])
    return {"id": np.arange(template.nodes), "data_id": data, "ctrl_id": ctrl}


@dataclass(frozen=True, slots=True, eq=False)
class _Numbers:
    """What becomes of the numbers of all templates."""

    bytes: Table
    operations: Table
    nanoseconds: Table
    microseconds: Table
    tags: Table
    streams: Table

    @classmethod
    def of(cls, templates: Sequence[Template], policy: Policy, noise: Noise) -> _Numbers:
        """Return the tables for all values in *templates*."""

        def noisy(label: str, mode: str, columns: list[Ints]) -> Table:
            return table(positive(columns), mode, policy.tolerance, (noise, label), divided=label == "bytes")

        recorded = [
            each for each in templates if each.is_recorded and policy.starts == "keep" and policy.times != "keep"
        ]
        times = [each.duration_ns for each in templates] + [each.delay_ns for each in templates]
        lone = [np.where(each.duration_ns == ABSENT, each.duration_us, ABSENT) for each in templates]
        return cls(
            bytes=noisy("bytes", policy.sizes, [getattr(each, name) for each in templates for name in BYTE_COLUMNS]),
            operations=noisy("operations", policy.sizes, [each.num_ops for each in templates]),
            nanoseconds=noisy("nanoseconds", policy.times, times + [gaps(each) for each in recorded]),
            microseconds=noisy("microseconds", policy.times, lone),
            tags=_numbered([each.comm_tag for each in templates], noise, "tags"),
            streams=_numbered([each.stream for each in templates], noise, "streams"),
        )

    def apply(self, template: Template, policy: Policy, where: str) -> Template:
        """Return *template* with new numbers."""
        duration_ns = self.nanoseconds.of(template.duration_ns)
        # Whatever way microseconds were rounded, they are rounded the same way again.
        rounded = duration_ns // 1000 + template.duration_us - template.duration_ns // 1000
        in_us = self.microseconds.of(template.duration_us)
        made = replace(
            template,
            comm_size=self.bytes.of(template.comm_size),
            tensor_size=self.bytes.of(template.tensor_size),
            num_ops=self.operations.of(template.num_ops),
            duration_ns=duration_ns,
            duration_us=np.where(template.duration_ns != ABSENT, np.maximum(rounded, 0), in_us),
            delay_ns=self.nanoseconds.of(template.delay_ns),
            comm_tag=self.tags.of(template.comm_tag),
            stream=self.streams.of(template.stream),
        )
        return replace(made, start_ns=self._starts(template, made, policy, where))

    def _starts(self, template: Template, made: Template, policy: Policy, where: str) -> Ints:
        if policy.starts == "drop":
            return np.full(template.nodes, ABSENT)
        if not template.is_recorded or policy.times == "keep":
            return template.start_ns
        durations = np.where(made.duration_ns != ABSENT, made.duration_ns, 1000 * made.duration_us)
        return moved_starts(template, durations, self.nanoseconds, where)

    def changes(self, policy: Policy) -> list[Change]:
        """Return what was done with each kind of numbers."""
        ways = dict.fromkeys(("bytes", "operations"), policy.sizes)
        ways |= dict.fromkeys(("nanoseconds", "microseconds"), policy.times)
        found = []
        for each in fields(self):
            made: Table = getattr(self, each.name)
            change = made.largest_change if each.name in ways else None
            found.append(Change(each.name, ways.get(each.name, "renumber"), len(made.old), made.kept, change))
        return found

    def mapping(self) -> dict[str, dict[str, int | list[int]]]:
        """Return the old values of each new one, by kind; several may have become one."""
        found: dict[str, dict[str, int | list[int]]] = {}
        for each in fields(self):
            made: Table = getattr(self, each.name)
            back: dict[str, list[int]] = {}
            for old, new in zip(made.old.tolist(), made.new.tolist(), strict=True):
                back.setdefault(str(new), []).append(old)
            found[each.name] = {new: old if len(old) > 1 else old[0] for new, old in back.items()}
        return found


def _numbered(columns: Sequence[Ints], noise: Noise, label: str) -> Table:
    """Return numbers from 0 on for the distinct values, shuffled."""
    found = distinct(np.concatenate([np.empty(0, np.int64), *columns]))
    old = found[found != ABSENT]
    return Table(old, noise.order(label, len(old)))


def _visible(traces: TraceSet, groups: Mapping[str, Sequence[int]]) -> Visible:
    types: Counter[int] = Counter()
    for template, ranks in ranks_by_template(traces):
        kinds, counts = np.unique(template.type, return_counts=True)
        for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
            types[kind] += count * len(ranks)
    templates = traces.templates()
    return Visible(
        ranks=len(traces.ranks),
        nodes=traces.nodes,
        templates=len(templates),
        dependencies=sum(len(each.data_id) + len(each.ctrl_id) for each in templates),
        nodes_by_type={enum_name(NodeType, kind): types[kind] for kind in sorted(types)},
        group_sizes=dict(sorted(Counter(len(ranks) for ranks in groups.values()).items())),
    )
