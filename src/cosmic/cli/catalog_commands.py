"""`cosmic catalog`: what there is, in files with sources and in registries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Json, emit_json, emit_table, print_sentences
from cosmic.cli.output_streams import emit_data
from cosmic.cli.value_completion import complete_one_of
from cosmic.search.catalog_listing import Row, known_kind, list_entries, listings, only_kind, read_any_entry

if TYPE_CHECKING:
    from cosmic.cli.answers.design_answers import CatalogShowAnswer


def _complete_kinds(incomplete: str) -> list[str]:
    return complete_one_of(*listings())(incomplete)


def _complete_entries(incomplete: str) -> list[str]:
    from cosmic.design.catalog_entries import KINDS, entry_names  # noqa: PLC0415  only where an entry is completed

    return complete_one_of(*dict.fromkeys(name for kind in KINDS for name in entry_names(kind)))(incomplete)


NOT_SHOWN = {
    "models": ("heads", "sequence"),
    "systems": ("summary",),
    "nodes": ("bandwidth",),
    "links": ("npus",),
}
"""Columns that only JSON has: they would make the table wider than a terminal."""


def list_(
    kind: Annotated[
        str,
        typer.Argument(
            help="models, accelerators, systems, spaces, topologies, …; without it, the kinds.",
            autocompletion=_complete_kinds,
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Print everything of one kind, or which kinds there are."""
    _print_rows(kind, list_entries(kind), json)


def list_models(json: Json = False) -> None:
    """Print the models of the catalog: family, shape, parameters."""
    _print_rows("models", list_entries("models"), json)


def show(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[KIND]",
            help="models, systems, spaces, …; may be left out where only one kind has the name.",
            autocompletion=_complete_kinds,
        ),
    ],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The entry.", autocompletion=_complete_entries, show_default=False)
    ] = "",
    json: Json = False,
) -> None:
    """Print one entry of the catalog, or of what can be chosen by name, with its source."""
    from cosmic.design.plain_data import dump_yaml  # noqa: PLC0415  heavy imports stay in functions

    if not name:
        kind, name = only_kind(kind), kind
    name, entry = read_any_entry(known_kind(kind), name)
    source = entry.pop("source", "")
    if json:
        answer: CatalogShowAnswer = {"kind": kind, "name": name, "source": source, "entry": entry}
        emit_json(answer)
        return
    emit_data([f"{kind}: {name}", "", *dump_yaml(entry).removesuffix("\n").split("\n")])
    print_sentences([] if not source else ["", f"source: {source}"])


def _print_rows(kind: str, rows: list[Row], json: bool) -> None:
    if json:
        emit_json(rows)
        return
    shown = [name for name in (rows[0] if rows else {}) if name not in ("source", *NOT_SHOWN.get(kind, ()))]
    shown.sort(key=lambda name: name == "summary")  # the longest column last
    emit_table("", shown, [[_list_cell(name, row[name]) for name in shown] for row in rows])


def _list_cell(name: str, value: Any) -> Any:
    """Return a value for a table: numbers of parameters in billions or millions, a design by its names.

    >>> _list_cell("parameters", 174_563_033_088), _list_cell("parameters", 86_567_656), _list_cell("layers", 96)
    ('174.6 B', '86.6 M', 96)
    >>> _list_cell("base", {"model": "llama3-8b", "system": "dgx-h100:64", "serving": {"engine": "vllm"}})
    'llama3-8b@dgx-h100:64, served'
    """
    if isinstance(value, dict):
        model = value.get("model", "")
        model = model.get("base", model.get("name", "")) if isinstance(model, dict) else model
        machine = value.get("system") or "its own system"
        return f"{model}@{machine}" + (", served" if value.get("serving") else "")
    if "parameters" not in name or not isinstance(value, int):
        return value
    return f"{value / 1e9:.1f} B" if value >= 1e9 else f"{value / 1e6:.1f} M"
