"""What there is: the entries of the catalog and the variants of the registries, kind by kind.

Modules are imported where their kind is listed, so that a shell can complete names quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Row = dict[str, Any]
BROKEN = "broken"
"""How the summary of a module from outside begins that cannot be imported."""


def list_entries(kind: str = "") -> list[Row]:
    """Return everything of one kind, a row each; without a *kind*, the kinds.

    >>> import cosmic
    >>> [row["name"] for row in cosmic.catalog.list("schedules")]
    ['1f1b', 'dualpipe', 'gpipe', 'interleaved', 'zero_bubble']
    """
    if kind:
        return listings()[known_kind(kind)]()
    return [{"kind": name, "entries": len(make())} for name, make in listings().items()]


def show_entry(kind: str, name: str = "") -> Row:
    """Return an entry: of the catalog as its file has it, of a registry what is listed.

    Where one kind alone has the name, it may stand without the kind.

    >>> import cosmic
    >>> cosmic.catalog.show("models", "llama3-8b")["model"]["layers"]
    32
    >>> cosmic.catalog.show("llama3-8b") == cosmic.catalog.show("models", "llama3-8b")
    True
    """
    kind, name = (known_kind(kind), name) if name else (only_kind(kind), kind)
    return read_any_entry(kind, name)[1]


def list_models() -> list[Row]:
    """Return the models of the catalog, a row each.

    >>> import cosmic
    >>> next(row["layers"] for row in cosmic.model.list() if row["name"] == "llama3-8b")
    32
    """
    return listings()["models"]()


def known_kind(kind: str) -> str:
    """Return a kind; refuse what is none."""
    from cosmic.base.errors import UnknownName  # noqa: PLC0415

    if kind not in listings():
        raise UnknownName.among("kind", kind, "kind", listings())
    return kind


def only_kind(name: str) -> str:
    """Return the kind that alone has an entry called *name*."""
    from cosmic.base.errors import SpecError, UnknownName  # noqa: PLC0415
    from cosmic.design import catalog_entries  # noqa: PLC0415

    names = {
        kind: [row["name"] for row in make()] for kind, make in listings().items() if kind not in catalog_entries.KINDS
    }
    kinds = [kind for kind in catalog_entries.KINDS if catalog_entries.resolve_name(kind, name) is not None]
    kinds += [kind for kind, entries in names.items() if name in entries]
    if not kinds:
        known = {entry for kind in catalog_entries.KINDS for entry in catalog_entries.entry_names(kind)}
        raise UnknownName.among("name", name, "entry", known.union(*names.values()))
    if len(kinds) > 1:
        raise SpecError("name", name, f"is in {' and in '.join(kinds)}: write 'cosmic catalog show {kinds[0]} {name}'")
    return kinds[0]


def read_any_entry(kind: str, name: str) -> tuple[str, Row]:
    """Return an entry under its own name: of the catalog as its file has it, of a registry what is listed."""
    from cosmic.base.errors import UnknownName  # noqa: PLC0415
    from cosmic.design import catalog_entries  # noqa: PLC0415

    rows = (
        {} if kind in catalog_entries.KINDS and kind != "engines" else {row["name"]: row for row in listings()[kind]()}
    )
    if kind in catalog_entries.KINDS and (found := catalog_entries.resolve_name(kind, name)) is not None:
        return found, dict(catalog_entries.read_entry(kind, found))
    if name in rows:
        return name, {key: value for key, value in rows[name].items() if key != "name" and value not in ("", None)}
    if rows:
        raise UnknownName.among("name", name, kind.removesuffix("s"), rows)
    return name, catalog_entries.read_entry(kind, name)  # says which there are


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
        "builds": lambda: _list_variants("cosmic.design.network_layer", "builds"),
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
    found = [{"name": each, "summary": _first_line(registry[each].__doc__)} for each in registry]
    return found + [{"name": each, "summary": f"{BROKEN}: {why}"} for each, why in registry.broken.items()]


def _list_engines() -> list[Row]:
    """Return the engines that evaluate designs: COSMIC's own, and those that others bring."""
    from cosmic.simulate.user_engines import engines  # noqa: PLC0415  heavy

    own = {"analytic": "Closed forms: a step summed up.", "event": "Simulates a design's traces, node by node."}
    found = [{"name": name, "kind": "evaluates", "metrics": "", "summary": text} for name, text in own.items()]
    for name, engine in engines.items():
        takes = "designs" if engine.fields is None else "its own fields"
        about = {"kind": f"evaluates {takes}", "metrics": " ".join(engine.metrics)}
        found.append({"name": name, **about, "summary": f"{_first_line(engine.__doc__)} ({engine.version})"})
    for name, why in engines.broken.items():
        found.append({"name": name, "kind": "evaluates", "metrics": "", "summary": f"{BROKEN}: {why}"})
    return [{**row, "source": ""} for row in found]


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
