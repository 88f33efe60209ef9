"""`cosmic schema`: the JSON Schema of what --json prints.

A file in `schemas/` describes the output of one command in JSON Schema, draft 2020-12: `psa-count.yaml` that of
``cosmic psa count --json``. Definitions that several share are in `common.yaml`. Every key has a description, every
quantity a unit as ``x-unit``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cosmic.cli.candidates import one_of
from cosmic.cli.console import Json, emit_json, emit_table, new_app

app = new_app()
FOLDER = Path(__file__).parent / "schemas"
COMMON = "common"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
WITHIN = "#/$defs/"


@app.command()
def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            help="Such as 'evaluate' or 'psa count'; without it, the commands.",
            autocompletion=_commands,
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE.md", help="Write all schemas as a page of tables.")
    ] = None,
    json: Json = False,
) -> None:
    """Print the JSON Schema of what a command prints with --json, or which commands have one."""
    if page is not None:
        from cosmic.cli.schema_page import schema_page  # noqa: PLC0415  rarely needed
        from cosmic.files import write_text  # noqa: PLC0415

        write_text(page, schema_page(), "--page")
    if command:
        emit_json(schema_of(" ".join(command).replace("-", " ")))
        return
    rows = [{"command": name, "prints": schema_of(name)["description"]} for name in published()]
    if json:
        emit_json(rows)
    else:
        emit_table("", ["command", "prints"], [list(row.values()) for row in rows])


def _commands(incomplete: str) -> list[str]:
    return one_of(*dict.fromkeys(name.partition(" ")[0] for name in published()))(incomplete)


def published() -> list[str]:
    """Return the commands that have a schema."""
    names = (path.stem.replace("-", " ") for path in FOLDER.glob("*.yaml") if path.stem != COMMON)
    return sorted(names)


def schema_of(command: str) -> dict[str, Any]:
    """Return the schema of what a command prints, with all definitions that it refers to.

    >>> schema_of("psa count")["properties"]["valid"]["description"]
    'Those that the constraints allow.'
    """
    from cosmic.catalog import load_mapping  # noqa: PLC0415  heavy imports stay in functions
    from cosmic.errors import UnknownName  # noqa: PLC0415

    known = published()
    if command not in known:
        raise UnknownName.among("command", command, "command with a schema", known)
    own = load_mapping(FOLDER / f"{command.replace(' ', '-')}.yaml")
    shared = {**load_mapping(FOLDER / f"{COMMON}.yaml"), **own.pop("$defs", {})}
    definitions = {name: shared[name] for name in sorted(_needed(own, shared))}
    return {"$schema": DIALECT, **own, **({"$defs": definitions} if definitions else {})}


def _needed(tree: Any, shared: dict[str, Any]) -> set[str]:
    """Return the names of the shared definitions that *tree* refers to, directly or through another."""
    found: set[str] = set()
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            name = str(part.get("$ref", "")).removeprefix(WITHIN)
            if name in shared and name not in found:
                found.add(name)
                waiting.append(shared[name])
            waiting += part.values()
    return found
