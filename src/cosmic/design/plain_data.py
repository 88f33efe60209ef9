"""Plain data of files: YAML and JSON in, YAML out, and one tree of data merged into another.

A repeated key is refused, and every failure is one sentence. Trees are merged key by key, or built from dotted paths.
"""

from __future__ import annotations

import io
import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from cosmic.base.errors import SpecError, as_key, require
from cosmic.base.files import read_bytes
from cosmic.design import schema

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


MOST_BYTES = 16 * 2**20
"""The most that a YAML file may have: its parser reads about a megabyte a second."""
DEEPEST = 100
"""Most levels of lists and mappings in a file; the stack of the C parser holds thousands."""


class _StrictLoader(_Loader):  # type: ignore[misc]  # the base is chosen at run time: the C loader if there is one
    """A loader that refuses repeated keys, of which YAML silently keeps the last."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._flattened: set[int] = set()

    def flatten_mapping(self, node: Any) -> None:
        """Merge what ``<<`` refers to into a mapping, after checking for repeated keys."""
        if id(node) in self._flattened:  # merged into another mapping before it was built itself
            return
        self._flattened.add(id(node))
        self._check_keys(node)
        super().flatten_mapping(node)
        # Keys that are merged repeatedly count once: a few lines could otherwise expand into billions of keys.
        node.value = list({id(key): (key, value) for key, value in node.value}.values())

    def _check_keys(self, node: Any) -> None:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.MarkedYAMLError(problem="a key must be text", problem_mark=key_node.start_mark)
            if key in seen:
                problem = f"the key {as_key(key)} is there twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            seen.add(key)


def parse_yaml(text: str | bytes, where: str) -> Any:
    """Return the plain data in *text*; *where* names it in messages."""
    try:
        _check_depth(text)
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = f"{where} line {mark.line + 1} column {mark.column + 1}" if mark else where
        raise SpecError(location, _marked_line(text, mark), f"is no valid YAML: {error.problem}") from None
    except (
        yaml.YAMLError,
        ValueError,
        ArithmeticError,
        LookupError,
        AttributeError,
        TypeError,
        RecursionError,
    ) as error:
        # PyYAML also raises whatever a malformed `!!int` or `!!timestamp` runs into.
        problem = " ".join(str(error).split())
        raise SpecError(where, text[:40], f"is no valid YAML: {problem}") from None


def _check_depth(text: str | bytes) -> None:
    """Refuse nesting that would overflow the C stack and crash the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        # PyYAML builds nested collections by recursion: a file of brackets would exhaust the stack.
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=event.start_mark)


def load_yaml(path: Path) -> Any:
    """Return the plain data in the YAML (or JSON) file at *path*."""
    if path.suffix == ".json":
        return parse_json(read_bytes(path), path.name)
    return parse_yaml(read_bytes(path, most=MOST_BYTES), path.name)


def parse_json(text: str | bytes, where: str) -> Any:
    """Return the plain data in *text*; a YAML parser would refuse tabs and read 1e-5 as text."""
    try:
        return json.loads(text, object_pairs_hook=_refuse_repeated_keys)
    except json.JSONDecodeError as error:
        location = f"{where} line {error.lineno} column {error.colno}"
        line = error.doc.splitlines()[error.lineno - 1 : error.lineno]
        raise SpecError(location, "".join(line).strip(), f"is no valid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise SpecError(where, text[:40], f"is no valid JSON: {error}") from None


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a mapping; refuse repeated keys."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if any(key == earlier for earlier, _ in pairs[:index]))
        raise ValueError(f"the key {twice} is there twice")
    return mapping


def dump_yaml(tree: Any) -> str:
    """Return *tree* as YAML: one line per key of the outer two levels, in their order."""
    dumper = _PlainDumper(io.StringIO(), sort_keys=False)
    node = dumper.represent_data(tree)
    _lay_out(node, 0)
    text: str = yaml.serialize(node, Dumper=yaml.SafeDumper, width=120)
    return text


class _PlainDumper(yaml.SafeDumper):
    """A dumper that writes repeated values in full, without anchors and aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: no value gets an alias."""
        return True


def _lay_out(node: yaml.Node, depth: int) -> None:
    """Put inner lists and mappings of plain values on one line each."""
    if isinstance(node, yaml.CollectionNode):
        parts = [part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,))]
        node.flow_style = depth >= 2 and all(isinstance(part, yaml.ScalarNode) for part in parts)
        for part in parts:
            _lay_out(part, depth + 1)


def _marked_line(text: str | bytes, mark: Any) -> str:
    """Return the line of *text* that *mark* points at."""
    decoded = text.decode(errors="replace") if isinstance(text, bytes) else text
    lines = decoded.splitlines()
    return lines[mark.line].strip() if mark and mark.line < len(lines) else ""


def merge_trees(below: Any, above: Any) -> Any:
    """Return *below* changed by *above*: mappings key by key, lists place by place if *above* gives places.

    >>> merge_trees({"dims": [{"npus": 4}, {"npus": 8}]}, {"dims": {"1": {"npus": 2}}})
    {'dims': [{'npus': 4}, {'npus': 2}]}
    """
    if isinstance(below, list) and isinstance(above, Mapping):
        items = list(below)
        for key, value in above.items():
            index = schema.list_place(items, as_key(key))
            if index is None:
                raise SpecError(as_key(key), value, f"the list has {len(items)} places, which count from 0")
            items[index] = merge_at_key(items[index], value, index)
        return items
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        merged = dict(below)
        for key, value in above.items():
            merged[key] = merge_at_key(merged[key], value, key) if key in merged else value
        return merged
    return above


def merge_at_key(below: Any, above: Any, key: Any) -> Any:
    """Return what `merge_trees` returns; a mistake in it is at *key*."""
    try:
        return merge_trees(below, above)
    except SpecError as error:
        raise error.inside(as_key(key)) from None


def unflatten_paths(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree that holds each value of *overrides* at its dotted path.

    >>> unflatten_paths({"workload.tp": 8, "workload.pp": 2})
    {'workload': {'tp': 8, 'pp': 2}}
    """
    tree: dict[str, Any] = {}
    for path, value in overrides.items():
        *parents, last = path.split(".")
        node = tree
        for key in parents:
            node = node.setdefault(key, {})
            require(isinstance(node, dict), path, value, f"'{key}' is set as a whole too")
        require(not isinstance(node.get(last), dict), path, value, f"keys below '{last}' are set too")
        node[last] = value
    return tree
