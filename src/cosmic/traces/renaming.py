"""New names for what traces name: nodes, kernels, groups. Nothing of an old name is left but which were equal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from cosmic.traces.groups import ALL_RANKS, stated_groups
from cosmic.traces.kernels import ELEMENT_BYTES, SIZES, WALKS
from cosmic.traces.noise import Noise, table
from cosmic.traces.trace import ABSENT, CollectiveType, Ints, NodeType, Template, TraceSet

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

    def of(self, template: Template) -> list[str]:
        """Return the new names of a template's nodes; a node without a name stays without."""
        if self._drop:
            self._new |= {("", name): "" for name in template.names}
            return [""] * template.nodes
        known = (template.type == NodeType.COMM_COLL) & (template.comm_type != ABSENT)
        kinds = np.where(known, _COLLECTIVE + template.comm_type, template.type)
        labels = {kind: _label(kind) for kind in np.unique(kinds).tolist()}
        new = self._new
        found = []
        for kind, name in zip(kinds.tolist(), template.names, strict=True):
            key = labels[kind], name
            if key not in new:
                new[key] = self._next(key[0]) if name else ""
            found.append(new[key])
        return found

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


def _label(kind: int) -> str:
    """Return what a new name begins with.

    >>> _label(NodeType.COMP), _label(NodeType.COMM_SEND), _label(_COLLECTIVE + CollectiveType.ALL_TO_ALL), _label(44)
    ('COMP', 'SEND', 'ALL_TO_ALL', 'NODE')
    """
    if kind - _COLLECTIVE in CollectiveType._value2member_map_:
        return CollectiveType(kind - _COLLECTIVE).name
    return NodeType(kind).name.removeprefix("COMM_") if kind in NodeType._value2member_map_ else "NODE"


class Kernels:
    """New texts for what kernels compute: known words, and sizes by *sizes*, the table of each; or no sizes."""

    def __init__(self, way: str, templates: Sequence[Template], sizes: Sizes) -> None:
        self._way = way
        self.sizes = sizes
        self.words: dict[str, str] = {}
        """Words that are not kept, and their numbers."""
        texts = dict.fromkeys(text for template in templates for text in _used(template))
        self._new = {text: "" if way == "drop" else self._text(text) for text in texts}

    def _text(self, text: str) -> str:
        kept = [self._word(word) for word in text.split() if self._way == "sizes" or not _is_size(word)]
        return " ".join(kept)

    def _word(self, word: str) -> str:
        if _is_size(word):
            return str(self.sizes.of(int(word)))
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

    def of(self, template: Template) -> list[str]:
        """Return the distinct new texts of a template."""
        return list(dict.fromkeys(self._new[text] for text in _used(template) if self._new[text]))

    def column(self, template: Template) -> Ints:
        """Return the place of each node's text among the new ones."""
        place = {text: at for at, text in enumerate(self.of(template))}
        new = [place.get(self._new.get(text, ""), ABSENT) for text in template.kernels]
        return np.array([*new, ABSENT], np.int64)[template.kernel]

    def mapping(self) -> dict[str, list[str]]:
        """Return the old texts of each new one."""
        found: dict[str, list[str]] = {}
        for old, new in self._new.items():
            found.setdefault(new, []).append(old)
        return found


class Sizes:
    """What becomes of the sizes in kernels' texts: the same for equal ones."""

    def __init__(self, templates: Sequence[Template], mode: str, tolerance: float, noise: Noise) -> None:
        texts = {text for template in templates for text in _used(template)}
        found = {int(word) for text in texts for word in text.split() if _is_size(word)}
        each = (1 + tolerance) ** (1 / GEMM_SIZES) - 1
        # Divisors stay, as sizes that are no multiples of 8 would run on slower paths.
        old = np.array(sorted(found - {0}), np.int64)
        self.table = table(old, mode, each, (noise, "sizes of kernels"), divided=True)

    def of(self, size: int) -> int:
        """Return what becomes of one size."""
        return int(self.table.of(np.array([size], np.int64))[0])


def _is_size(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 18


def _used(template: Template) -> list[str]:
    """Return the texts that nodes of a template refer to."""
    places = np.unique(template.kernel[template.kernel != ABSENT])
    return [template.kernels[place] for place in places.tolist()]


class GroupNames:
    """New names of groups: numbers from 1 on, in the order of first use. Groups that no node names are left out."""

    def __init__(self, traces: TraceSet, given: Mapping[str, Sequence[int]], places: Sequence[int]) -> None:
        used = [_named(rank.template, rank.groups) for rank in traces.ranks]
        names = dict.fromkeys(name for each in used for name in each if name not in ALL_RANKS)
        self.numbers = {name: str(place) for place, name in enumerate(names, 1)}
        self._used = used
        stated = stated_groups(traces)
        known = {**stated, **{name: tuple(ranks) for name, ranks in given.items()}}
        count = len(places)
        self._members = {
            name: tuple(places[rank] if 0 <= rank < count else rank for rank in ranks) for name, ranks in known.items()
        }
        self._stated = stated.keys()
        self.groups = {self.numbers[name]: self._members[name] for name in names if name in known}

    def of(self, names: Sequence[str]) -> tuple[str, ...]:
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


def _named(template: Template, names: Sequence[str]) -> list[str]:
    """Return the groups that a rank's nodes name."""
    places = np.unique(template.group[template.group != ABSENT])
    return [names[place] for place in places.tolist()]
