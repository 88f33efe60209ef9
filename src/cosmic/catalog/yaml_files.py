"""YAML in and out: plain data only, a repeated key refused, every failure one sentence."""

from __future__ import annotations

import io
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from cosmic.errors import SpecError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_Loader):  # type: ignore[misc]  # the base is chosen at run time: C where it was built
    """A loader that refuses what YAML would silently lose: the first of two equal keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping whose keys are plain text or numbers, each there once."""
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.MarkedYAMLError(problem="a key must be text", problem_mark=key_node.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key} is there twice", problem_mark=key_node.start_mark)
            seen.add(key)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def parse_yaml(text: str | bytes, where: str) -> Any:
    """Return the plain data that *text* describes; *where* names it in messages."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506  the loader is a safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where} line {mark.line + 1} column {mark.column + 1}" if mark else where
        raise SpecError(place, _line(text, mark), f"is no valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise SpecError(where, text[:40], f"is no valid YAML: {' '.join(str(error).split())}") from None


def load_yaml(path: Path) -> Any:
    """Return the plain data in the YAML (or JSON) file at *path*."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SpecError("file", str(path), f"cannot be read: {error.strerror}") from None
    return parse_yaml(text, path.name)


def dump_yaml(tree: Any) -> str:
    """Return *tree* as YAML: a line for each key of the outer two levels, keys in their own order."""
    dumper = _PlainDumper(io.StringIO(), sort_keys=False)
    node = dumper.represent_data(tree)
    _lay_out(node, 0)
    text: str = yaml.serialize(node, Dumper=yaml.SafeDumper, width=120, allow_unicode=True)
    return text


class _PlainDumper(yaml.SafeDumper):
    """A dumper that writes a value out each time it occurs, instead of pointing back to the first."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  none is wanted
        """Answer that no value may be pointed to."""
        return True


def _lay_out(node: yaml.Node, depth: int) -> None:
    """Put inner lists and mappings of plain values on one line each."""
    if isinstance(node, yaml.CollectionNode):
        parts = [part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,))]
        node.flow_style = depth >= 2 and all(isinstance(part, yaml.ScalarNode) for part in parts)
        for part in parts:
            _lay_out(part, depth + 1)


def _line(text: str | bytes, mark: Any) -> str:
    """Return the line of *text* that *mark* points at."""
    decoded = text.decode(errors="replace") if isinstance(text, bytes) else text
    lines = decoded.splitlines()
    return lines[mark.line].strip() if mark and mark.line < len(lines) else ""
