"""The catalog: YAML files with their sources, by kind and name.

A user's own entries are in folders that ``COSMIC_PATH`` lists, laid out like this one: ``accelerators/*.yaml``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from cosmic.catalog.yaml_files import load_yaml
from cosmic.errors import SpecError, UnknownName
from cosmic.files import is_file
from cosmic.registry import user_files, user_folders

__all__ = ["KINDS", "entry", "is_file", "load_mapping", "names"]
KINDS = ("models", "accelerators", "nodes", "links", "systems", "engines", "spaces", "strategies")
FOLDER = Path(__file__).parent
NEEDED: dict[str, dict[str, tuple[type, str]]] = {
    "models": {"model": (dict, "must map the keys of a model to values")},
    "nodes": {"kind": (str, "must say what it is")},
    "links": {"kind": (str, "must say what it is")},
    "systems": {
        "accelerator": (str, "must name an accelerator of the catalog"),
        "npus": (int, "must be a number of NPUs: the usual size"),
        "network": (dict, "must hold a list dims"),
    },
    "engines": {"engine": (dict, "must map the keys of a serving engine to values")},
    "spaces": {"base": (object, "must be a design"), "parameters": (dict, "must map paths to their values")},
    "strategies": {"annotations": (list, "must be a list of rules")},
}
"""Keys that entries of a kind must have, with type and rule; readers check the rest."""


def names(kind: str) -> tuple[str, ...]:
    """Return the names of all entries of one *kind*, in alphabetical order."""
    return tuple(_files(kind, user_folders()))


@cache
def _files(kind: str, folders: tuple[Path, ...]) -> dict[str, Path]:
    """Return the file of every entry of one *kind*: of the package, and of the user's *folders*."""
    found: dict[str, Path] = {}
    for path in (*(FOLDER / kind).glob("*.yaml"), *(user_files(kind, "*.yaml") if folders else ())):
        if path.stem in found:
            raise SpecError(kind, path.stem, f"exists already: rename {path}")
        found[path.stem] = path
    return dict(sorted(found.items()))


def entry(kind: str, name: str) -> dict[str, Any]:
    """Return the entry *name* as plain data; treat it as read-only.

    >>> entry("accelerators", "h100-sxm-80gb")["vendor"]
    'NVIDIA'
    """
    files = _files(kind, user_folders())
    if name not in files:
        singular = "strategy" if kind == "strategies" else kind.removesuffix("s")
        raise UnknownName.among(singular, name, singular, files)
    return _entry(kind, files[name])


@cache
def _entry(kind: str, path: Path) -> dict[str, Any]:
    """Return a file as plain data, with all keys that an entry of its *kind* needs."""
    tree = load_mapping(path)
    for key, (wanted, rule) in NEEDED.get(kind, {}).items():
        if not isinstance(tree.get(key), wanted):
            raise SpecError(f"{kind}/{path.name} {key}", tree.get(key), rule)
    return tree


def load_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping in the YAML file at *path*."""
    tree = load_yaml(path)
    if not isinstance(tree, dict):
        raise SpecError(path.name, tree, "a file must hold a mapping of keys to values")
    return tree
