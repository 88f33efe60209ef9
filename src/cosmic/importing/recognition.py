"""Models of the catalog that have the sizes that somebody's arguments state."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from cosmic import catalog
from cosmic.design import schema
from cosmic.design.model import Model, Transformer
from cosmic.design.workload import Workload
from cosmic.errors import SpecError
from cosmic.importing.arguments import parse_words
from cosmic.importing.megatron_model import model_tree
from cosmic.launching.launch import Draft
from cosmic.launching.megatron_model import describe
from cosmic.launching.quoting import options

PADDING = 0.02
"""Share by which a vocabulary may be padded."""


def recognised(tree: dict[str, Any], sequence: int) -> str | dict[str, Any] | None:
    """Return the model of the catalog with the sizes in *tree*: its name, or its name with another vocabulary.

    A vocabulary may be missing, or padded. Of several such models, the one that is trained with *sequence* is taken,
    and then the last by name, which is the youngest of a family.

    >>> sizes = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "ffn": 14336, "gated": True}
    >>> more = {"norm": "rmsnorm", "tied_embeddings": False, "biases": [], "vocab": 128256}
    >>> recognised({**sizes, **more}, 8192)
    'llama3-8b'
    """
    wanted = _sizes({**tree, "vocab": tree.get("vocab", 1)})
    found: list[tuple[bool, bool, str]] = []
    for name, sizes, trained in _decoders(catalog.names("models")):
        known = dict(sizes)
        vocab = known["vocab"]
        near = "vocab" not in tree or vocab <= tree["vocab"] <= (1 + PADDING) * vocab
        if near and {**known, "vocab": 0} == {**wanted, "vocab": 0}:
            found.append((tree.get("vocab", vocab) == vocab, trained == sequence, name))
    if not found:
        return None
    exact, _, name = max(found)
    return name if exact else {"base": name, "vocab": tree["vocab"]}


@cache
def _decoders(names: tuple[str, ...]) -> tuple[tuple[str, dict[str, Any], int], ...]:
    """Return the decoders of the catalog as arguments can state them, with the sequences they are trained with."""
    return tuple(_read(names))


def _read(names: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any], int]]:
    for name in names:
        entry = catalog.entry("models", name)
        try:
            model: Model = schema.read(Model, {"name": name, **entry["model"]}, "model")
            if isinstance(model, Transformer) and model.family == "decoder":
                yield name, _sizes(expressed(model)), entry.get("workload", {}).get("sequence", 0)
        except SpecError:  # an entry of the user's that is not right is no reason to refuse a script
            continue


def expressed(model: Transformer) -> dict[str, Any]:
    """Return what arguments of Megatron-LM say of a model, as in a design file."""
    draft = Draft()
    describe(draft, model, Workload(sequence=1, global_batch=1))
    draft.add("--vocab-size", model.vocab)
    words = [word for option in options(draft.arguments) for word in option.replace("'", "").split()]
    return model_tree(parse_words(words, model.name, ()))


def _sizes(tree: dict[str, Any]) -> dict[str, Any]:
    """Return all fields of a model but its name, with defaults filled in."""
    model: Transformer = schema.read(Model, {"family": "decoder", **tree}, "model")
    return {key: value for key, value in schema.leaves(model) if key != "name"}
