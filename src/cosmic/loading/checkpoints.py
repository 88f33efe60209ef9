"""What a model is called that was asked for by a folder or a name on a hub, and where its weights are."""

from __future__ import annotations

from pathlib import Path

from cosmic import catalog
from cosmic.catalog.systems import YAML_ENDINGS
from cosmic.errors import LONGEST_NAME


def folder_name(config: Path) -> str:
    """Return what to call a model after the folder of its `config.json`; in a Hugging Face cache, as on the hub.

    >>> folder_name(Path("hub/models--Qwen--Qwen3-8B/snapshots/a1b2/config.json"))
    'Qwen3-8B'
    """
    folders = [folder.name for folder in config.absolute().parents]
    return next((name.rpartition("--")[2] for name in folders if name.startswith("models--")), folders[0])


def checkpoint_of(base: str, name: str, folder: Path | None) -> str:
    """Return what was asked for where a model has the shapes of an entry of another name; the folder of its weights.

    >>> [checkpoint_of(asked, "deepseek-v3", None) for asked in ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek V3")]
    ['deepseek-ai/DeepSeek-R1-0528', '']
    """
    weights = folder / base if folder is not None else Path()
    if folder is not None and catalog.is_file(weights / "config.json"):
        return _weights(weights)
    if folder is not None and weights.suffix == ".json":
        return _weights(weights.parent)
    if folder is not None and weights.suffix in YAML_ENDINGS:
        return ""
    plain = ["".join(letter for letter in each.lower() if letter.isalnum() or letter == ".") for each in (base, name)]
    return "" if plain[0] == plain[1] else base


def _weights(folder: Path) -> str:
    """Return a folder of weights as an engine is told of it: by its path, or as on the hub it was loaded from."""
    whole = folder.absolute()
    names = [each.name for each in (whole, *whole.parents)]
    hub = next((each.removeprefix("models--").replace("--", "/") for each in names if each.startswith("models--")), "")
    path = hub or str(whole)
    return path if len(path) <= LONGEST_NAME and path.isprintable() else ""
