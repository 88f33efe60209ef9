"""What there is to choose from: data files with their sources, and the names that stand for them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from cosmic.catalog.yaml_files import load_yaml
from cosmic.errors import SpecError, UnknownName

KINDS = ("models", "accelerators", "nodes", "links", "systems", "spaces", "strategies")
FOLDER = Path(__file__).parent


@cache
def names(kind: str) -> tuple[str, ...]:
    """Return the names of everything of one *kind*, in alphabetical order."""
    return tuple(sorted(path.stem for path in (FOLDER / kind).glob("*.yaml")))


@cache
def entry(kind: str, name: str) -> dict[str, Any]:
    """Return what the file of *name* says; treat it as read-only.

    >>> entry("accelerators", "h100-sxm-80gb")["vendor"]
    'NVIDIA'
    """
    if name not in names(kind):
        singular = kind.removesuffix("s")
        raise UnknownName.among(singular, name, singular, names(kind))
    return load_mapping(FOLDER / kind / f"{name}.yaml")


def is_file(path: Path) -> bool:
    """Return whether there is a file at *path*, which may be no path at all: a long name of something else."""
    try:
        return path.is_file()
    except OSError:
        return False


def load_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping that the YAML file at *path* holds."""
    tree = load_yaml(path)
    if not isinstance(tree, dict):
        raise SpecError(path.name, tree, "a file must hold a mapping of keys to values")
    return tree
