"""`cosmic catalog`: what there is, in files with sources and in registries."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Json, emit_json, emit_table, print_sentences
from cosmic.cli.output_streams import emit_data
from cosmic.cli.value_completion import complete_one_of

if TYPE_CHECKING:
    from cosmic.cli.answers.evaluation_answers import CatalogShowAnswer

Row = dict[str, Any]


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
BROKEN = "broken"
"""How the summary of a module from outside begins that cannot be imported."""


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
    kinds = listings()
    if kind:
        rows = kinds[_known_kind(kind)]()
    else:
        rows = [{"kind": name, "entries": len(make())} for name, make in kinds.items()]
    _print_rows(kind, rows, json)


def list_models(json: Json = False) -> None:
    """Print the models of the catalog: family, shape, parameters."""
    _print_rows("models", listings()["models"](), json)


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
        kind, name = _only_kind(kind), kind
    name, entry = _read_any_entry(_known_kind(kind), name)
    source = entry.pop("source", "")
    if json:
        answer: CatalogShowAnswer = {"kind": kind, "name": name, "source": source, "entry": entry}
        emit_json(answer)
        return
    emit_data([f"{kind}: {name}", "", *dump_yaml(entry).removesuffix("\n").split("\n")])
    print_sentences([] if not source else ["", f"source: {source}"])


def _known_kind(kind: str) -> str:
    from cosmic.base.errors import UnknownName  # noqa: PLC0415

    if kind not in listings():
        raise UnknownName.among("kind", kind, "kind", listings())
    return kind


def _only_kind(name: str) -> str:
    """Return the kind that alone has an entry called *name*."""
    from cosmic.base.errors import SpecError, UnknownName  # noqa: PLC0415
    from cosmic.design import catalog_entries  # noqa: PLC0415

    names = {
        kind: [row["name"] for row in make()] for kind, make in listings().items() if kind not in catalog_entries.KINDS
    }
    kinds = [kind for kind in catalog_entries.KINDS if catalog_entries.resolve_name(kind, name) is not None]
    kinds += [kind for kind, entries in names.items() if name in entries]
    if not kinds:
        entry_names = {entry for kind in catalog_entries.KINDS for entry in catalog_entries.entry_names(kind)}
        raise UnknownName.among("name", name, "entry", entry_names.union(*names.values()))
    if len(kinds) > 1:
        raise SpecError("name", name, f"is in {' and in '.join(kinds)}: write 'cosmic catalog show {kinds[0]} {name}'")
    return kinds[0]


def _read_any_entry(kind: str, name: str) -> tuple[str, Row]:
    """Return an entry under its own name: of the catalog as its file has it, of a registry what is listed."""
    from cosmic.base.errors import UnknownName  # noqa: PLC0415
    from cosmic.design import catalog_entries  # noqa: PLC0415

    rows = (
        {} if kind in catalog_entries.KINDS and kind != "engines" else {row["name"]: row for row in listings()[kind]()}
    )
    if kind in catalog_entries.KINDS and (full_name := catalog_entries.resolve_name(kind, name)) is not None:
        return full_name, dict(catalog_entries.read_entry(kind, full_name))
    if name in rows:
        return name, {key: value for key, value in rows[name].items() if key != "name" and value not in ("", None)}
    if rows:
        raise UnknownName.among("name", name, kind.removesuffix("s"), rows)
    return name, catalog_entries.read_entry(kind, name)  # says which there are


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


def listings() -> dict[str, Callable[[], list[Row]]]:
    """Return the kinds of things that can be listed, each with the function that lists them."""
    from cosmic.design import catalog_entries  # noqa: PLC0415  heavy imports stay in functions

    def entries(kind: str, describe: Callable[[str, Row], Row]) -> Callable[[], list[Row]]:
        return lambda: [
            {"name": name, **describe(name, entry), "source": entry.get("source", "")}
            for name in catalog_entries.entry_names(kind)
            for entry in [catalog_entries.read_entry(kind, name)]
        ]

    return {
        "models": entries("models", _list_model),
        "accelerators": entries("accelerators", _list_accelerator),
        "nodes": entries("nodes", _list_component),
        "links": entries("links", _list_component),
        "systems": entries("systems", _list_system),
        "engines": lambda: [
            *_list_engines(),
            *entries(
                "engines", lambda _, entry: {"kind": "serves", "metrics": "", "summary": entry.get("title", "")}
            )(),
        ],
        "spaces": entries("spaces", lambda _, entry: {"base": entry["base"], "summary": entry.get("title", "")}),
        "strategies": entries("strategies", lambda _, entry: {"summary": entry.get("title", "")}),
        "schedules": lambda: _list_variants("cosmic.workload.pipeline_schedule", "schedules"),
        "topologies": lambda: _list_variants("cosmic.design.network_layer", "topologies"),
        "builds": lambda: _list_variants("cosmic.design.fabric", "builds"),
        "algorithms": lambda: _list_variants("cosmic.design.collective_layer", "algorithms"),
        "agents": lambda: [
            {"name": row["name"], "settings": _settings_in_words(row), "summary": row["summary"]}
            for row in _list_variants("cosmic.search.agent", "agents")
        ],
    }


def _list_variants(module: str, name: str) -> list[Row]:
    """Return the variants that a registry knows; its *module* is imported only here, so that completion is quick.

    Modules from outside that cannot be imported come last, with the reason.
    """
    registry = getattr(import_module(module), name)
    rows = [{"name": each, "summary": _first_line(registry[each].__doc__)} for each in registry]
    return rows + [{"name": each, "summary": f"{BROKEN}: {why}"} for each, why in registry.broken.items()]


def _list_engines() -> list[Row]:
    """Return the engines that evaluate designs: COSMIC's own, and those that others bring."""
    from cosmic.simulate.user_engines import engines  # noqa: PLC0415  heavy

    own = {"analytic": "Closed forms: a step summed up.", "event": "Simulates a design's traces, node by node."}
    rows = [{"name": name, "kind": "evaluates", "metrics": "", "summary": text} for name, text in own.items()]
    for name, engine in engines.items():
        takes = "designs" if engine.fields is None else "its own fields"
        about = {"kind": f"evaluates {takes}", "metrics": " ".join(engine.metrics)}
        rows.append({"name": name, **about, "summary": f"{_first_line(engine.__doc__)} ({engine.version})"})
    for name, why in engines.broken.items():
        rows.append({"name": name, "kind": "evaluates", "metrics": "", "summary": f"{BROKEN}: {why}"})
    return [{**row, "source": ""} for row in rows]


def _list_model(name: str, entry: Row) -> Row:
    from cosmic.design.loading import read_model  # noqa: PLC0415  heavy
    from cosmic.design.model_layer import Transformer, count_active_parameters, count_parameters  # noqa: PLC0415  heavy

    model = read_model(entry, name)
    shape = [model.layers, model.hidden, model.heads] if isinstance(model, Transformer) else [None] * 3
    return {
        "family": model.family,
        **dict(zip(("layers", "hidden", "heads"), shape, strict=True)),
        "parameters": count_parameters(model),
        "active_parameters": count_active_parameters(model),
        "sequence": entry.get("workload", {}).get("sequence"),
    }


def _list_accelerator(name: str, entry: Row) -> Row:
    from cosmic.design.machine_layers import accelerator_layers  # noqa: PLC0415  heavy

    compute, memory = accelerator_layers(name, "accelerator")
    return {
        "vendor": entry.get("vendor"),
        "year": str(entry.get("year", "-")),
        "bf16_flop_per_s": compute.bf16_flop_per_s,
        "memory_bytes": memory.capacity_bytes,
        "memory_bandwidth_bytes_per_s": memory.bandwidth_bytes_per_s,
        "power_w": compute.power_w,
        "price_usd": compute.price_usd,
    }


def _list_component(_: str, entry: Row) -> Row:
    shown = ("vendor", "npus", "bandwidth", "power", "price")
    return {"kind": entry["kind"], **{key: entry.get(key) for key in shown}}


def _list_system(name: str, entry: Row) -> Row:
    from cosmic.design.systems import read_system  # noqa: PLC0415  heavy

    dims = read_system(name)["network"]["dims"]
    return {
        "npus": entry["npus"],
        "accelerator": entry["accelerator"],
        "network": " · ".join(f"{dim['topology']} {dim['npus']} @ {dim['bandwidth']}" for dim in dims),
        "summary": entry.get("title", ""),
    }


def _settings_in_words(row: Row) -> str:
    from cosmic.search.agent import agent_settings  # noqa: PLC0415  heavy

    if row["summary"].startswith(f"{BROKEN}: "):
        return ""
    return " ".join(f"{name}={value}" for name, value in agent_settings(row["name"]).items())


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]
