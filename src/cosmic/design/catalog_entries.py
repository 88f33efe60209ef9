"""The catalog: YAML files with their sources, by kind and name.

The files are in ``catalog/`` beside this module, a folder for each kind (`KINDS`); ``catalog/constants/`` and single
files such as ``catalog/reliability.yaml`` are read by the modules that they belong to. A user's own entries are in
folders that ``COSMIC_PATH`` lists, laid out like this one: ``accelerators/*.yaml``.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from cosmic.base.errors import SpecError, UnknownName, join_path
from cosmic.base.registry import user_files, user_folders
from cosmic.design import schema
from cosmic.design.plain_data import load_yaml

KINDS = ("models", "accelerators", "nodes", "links", "systems", "engines", "spaces", "strategies")
CATALOG_FOLDER = Path(__file__).parent / "catalog"
REQUIRED_KEYS: dict[str, dict[str, tuple[type, str]]] = {
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


def entry_names(kind: str) -> tuple[str, ...]:
    """Return the names of all entries of one *kind*, in alphabetical order."""
    return tuple(_entry_files(kind, user_folders()))


@cache
def _entry_files(kind: str, folders: tuple[Path, ...]) -> dict[str, Path]:
    """Return the file of every entry of one *kind*: of the package, and of the user's *folders*."""
    files: dict[str, Path] = {}
    for path in (*(CATALOG_FOLDER / kind).glob("*.yaml"), *(user_files(kind, "*.yaml") if folders else ())):
        if path.stem in files:
            raise SpecError(kind, path.stem, f"exists already: rename {path}")
        files[path.stem] = path
    return dict(sorted(files.items()))


TRAINING_ENDINGS = ("-hf", "-instruct", "-base", "-chat", "-it", "-pt")
"""How names on a hub go on: the same model, trained further."""


WEIGHT_ENDING = re.compile(r"-(nvfp4|mxfp4|fp4|fp8|awq|gptq|int4|w4a16|4bit)(-(dynamic|kv|v2|int4|int8|block))*$")
"""How names on a hub end that say how the weights are stored."""
QUANTIZED_ENDINGS = (
    ("fp4", re.compile(r"-(nv|mx)?fp4\b|-w4a4\b")),
    ("int4", re.compile(r"-(awq|gptq|int4|w4a16|4bit)\b")),
    ("fp8", re.compile(r"-(fp8|w8a8-fp8)\b")),
)
"""Endings of names on a hub by the number format of the weights that they say."""


def stated_weight_format(name: str) -> str:
    """Return the number format that the name of a checkpoint ends in; empty if it says none.

    >>> stated_weight_format("nvidia/Llama-3.3-70B-Instruct-FP4"), stated_weight_format("Qwen/Qwen3-32B-AWQ"), stated_weight_format("Qwen/Qwen3-32B")
    ('fp4', 'int4', '')
    """
    return next((form for form, ending in QUANTIZED_ENDINGS if ending.search(name.lower().replace("_", "-"))), "")


def resolve_name(kind: str, name: str) -> str | None:
    """Return the name of the catalog entry that *name* or an alias means; None if there is no entry.

    Case and separators do not matter, nor whose model it is, nor how it was trained further; an entry may list
    ``aliases`` beside.

    >>> resolve_name("models", "GPT-3 175B"), resolve_name("models", "meta-llama/Llama-3.1-70B-Instruct")
    ('gpt3-175b', 'llama3-70b')
    >>> resolve_name("models", "deepseek-ai/DeepSeek-V2-Chat"), resolve_name("models", "nvidia/DeepSeek-R1-0528-NVFP4-v2")
    ('deepseek-v2', 'deepseek-v3')
    """
    if name in entry_names(kind):
        return name
    return _names_by_alias(kind, user_folders()).get(_normalize_name(kind, name))


@cache
def _names_by_alias(kind: str, folders: tuple[Path, ...]) -> dict[str, str]:
    """Return the names of entries by all that they are called, in plain letters; a name comes before an alias."""
    files = _entry_files(kind, folders)
    name_of: dict[str, str] = {}
    for name, path in files.items():
        for alias in _stated_aliases(kind, path):
            name_of.setdefault(_normalize_name(kind, alias), name)
    return name_of | {_normalize_name(kind, name): name for name in files}


def _stated_aliases(kind: str, path: Path) -> list[str]:
    try:
        aliases = _read_cached_entry(kind, path).get("aliases", [])
    except SpecError:  # whoever asks for that entry is told
        return []
    where = f"{kind}/{path.name} aliases"
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise SpecError(where, aliases, "must be a list of names")
    return aliases


def _normalize_name(kind: str, name: str) -> str:
    """Return a name in small letters, digits and points; of a model, without its owner, version and training.

    >>> _normalize_name("models", "mistralai/Mistral-7B-v0.1"), _normalize_name("models", "Qwen2.5-72B-Instruct-AWQ")
    ('mistral7b', 'qwen2.572b')
    >>> _normalize_name("systems", "DGX_H100")
    'dgxh100'
    """
    if kind != "models":
        return "".join(letter for letter in name.lower() if letter.isalnum() or letter == ".")
    text = re.sub(r"[\s_]+", "-", name.rpartition("/")[2].strip().lower()).removeprefix("meta-")
    text = WEIGHT_ENDING.sub("", text)
    while (shorter := re.sub(r"-(v\d+\.\d+|\d{4})$", "", text)) != text or text.endswith(TRAINING_ENDINGS):
        text = shorter if shorter != text else text[: text.rindex("-")]
    return "".join(letter for letter in text if letter.isalnum() or letter == ".")


def read_entry(kind: str, name: str) -> dict[str, Any]:
    """Return the entry *name* as plain data; treat it as read-only.

    >>> read_entry("accelerators", "h100-sxm-80gb")["vendor"]
    'NVIDIA'
    """
    files = _entry_files(kind, user_folders())
    if name not in files and (resolved := resolve_name(kind, name)) is not None:
        name = resolved
    if name not in files:
        singular = "strategy" if kind == "strategies" else kind.removesuffix("s")
        aliases = (alias for path in files.values() for alias in _stated_aliases(kind, path))
        raise UnknownName.among(singular, name, singular, {*files, *aliases})
    return _read_cached_entry(kind, files[name])


def read_entry_at(kind: str, path: Path) -> dict[str, Any]:
    """Return the file at *path*, which is in no catalog, as an entry of one *kind*."""
    return _check_entry(kind, path)


@cache
def _read_cached_entry(kind: str, path: Path) -> dict[str, Any]:
    return _check_entry(kind, path)


def _check_entry(kind: str, path: Path) -> dict[str, Any]:
    """Return a file as plain data, with all keys that an entry of its *kind* needs."""
    tree = load_mapping(path)
    for key, (wanted, rule) in REQUIRED_KEYS.get(kind, {}).items():
        if not isinstance(tree.get(key), wanted):
            raise SpecError(f"{kind}/{path.name} {key}", tree.get(key), rule)
    return tree


def load_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping in the YAML file at *path*."""
    tree = load_yaml(path)
    if not isinstance(tree, dict):
        raise SpecError(path.name, tree, "a file must hold a mapping of keys to values")
    return tree


T = TypeVar("T")
CONSTANT_KEYS = {"value", "source", "set_by"}
"""What a constant consists of."""


def load_constants(name: str, cls: type[T]) -> T:
    """Return the constants in ``catalog/constants/NAME.yaml`` as a *cls*.

    >>> from dataclasses import make_dataclass
    >>> Roofline = make_dataclass("Roofline", [("sustained", float), ("usual_efficiency", float)])
    >>> load_constants("roofline", Roofline)
    Roofline(sustained=0.8, usual_efficiency=0.6)
    """
    values = _constant_values(load_mapping(CATALOG_FOLDER / "constants" / f"{name}.yaml"), name)
    return cast(T, schema.read_value(cls, values, name))


def _constant_values(tree: Any, where: str) -> Any:
    """Return a tree of constants as a tree of their values."""
    if not isinstance(tree, dict):
        raise SpecError(where, tree, f"a constant must state {', '.join(sorted(CONSTANT_KEYS))}")
    if "value" not in tree:
        return {key: _constant_values(entry, join_path(where, key)) for key, entry in tree.items()}
    if tree.keys() != CONSTANT_KEYS:
        raise SpecError(where, sorted(tree), f"a constant must state {', '.join(sorted(CONSTANT_KEYS))}, and no more")
    return tree["value"]
