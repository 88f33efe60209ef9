"""`cosmic schema`: the JSON Schema of what --json prints, and all schemas as a page of tables.

A file in `schemas/` describes the output of one command in JSON Schema, draft 2020-12: `space-count.yaml` that of
``cosmic space count --json``. Definitions that several share are in `common.yaml`. Every key has a description, every
quantity a unit as ``x-unit``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from cosmic.cli.console import Json, emit_json, emit_table
from cosmic.cli.exit_codes import as_rows
from cosmic.cli.value_completion import complete_one_of

# --------------------------------------------------------------------------------------
# `cosmic schema`: the JSON Schema of what --json prints
# --------------------------------------------------------------------------------------

SCHEMA_FOLDER = Path(__file__).parent / "schemas"
COMMON_SCHEMA = "common"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
DEFINITION_PREFIX = "#/$defs/"


def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            help="Such as 'evaluate' or 'space count'; without it, the commands.",
            autocompletion=_complete_commands,
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE.md", help="Write all schemas as a page of tables.")
    ] = None,
    json: Json = False,
) -> None:
    """Print the JSON Schema of what a command prints with --json, or which commands have one."""
    if page is not None:
        from cosmic.base.files import write_text  # noqa: PLC0415

        write_text(page, schema_page(), "--page")
    if command:
        emit_json(schema_of(" ".join(command).replace("-", " ")))
        return
    rows = [{"command": name, "prints": schema_of(name)["description"]} for name in published_commands()]
    if json:
        emit_json(rows)
    else:
        emit_table("", ["command", "prints"], [list(row.values()) for row in rows])


def _complete_commands(incomplete: str) -> list[str]:
    return complete_one_of(*dict.fromkeys(name.partition(" ")[0] for name in published_commands()))(incomplete)


def published_commands() -> list[str]:
    """Return the commands that have a schema."""
    names = (path.stem.replace("-", " ") for path in SCHEMA_FOLDER.glob("*.yaml") if path.stem != COMMON_SCHEMA)
    return sorted(names)


def schema_of(command: str) -> dict[str, Any]:
    """Return the schema of what a command prints, with all definitions that it refers to.

    >>> schema_of("space count")["properties"]["valid"]["description"]
    'Those that the constraints allow.'
    """
    from cosmic.base.errors import UnknownName  # noqa: PLC0415
    from cosmic.design.catalog_entries import load_mapping  # noqa: PLC0415  heavy imports stay in functions

    known = published_commands()
    if command not in known:
        raise UnknownName.among("command", command, "command with a schema", known)
    own = load_mapping(SCHEMA_FOLDER / f"{command.replace(' ', '-')}.yaml")
    shared = {**load_mapping(SCHEMA_FOLDER / f"{COMMON_SCHEMA}.yaml"), **own.pop("$defs", {})}
    definitions = {name: shared[name] for name in sorted(_needed_definitions(own, shared))}
    return {"$schema": DIALECT, **own, **({"$defs": definitions} if definitions else {})}


def _needed_definitions(tree: Any, shared: dict[str, Any]) -> set[str]:
    """Return the names of the shared definitions that *tree* refers to, directly or through another."""
    found: set[str] = set()
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            name = str(part.get("$ref", "")).removeprefix(DEFINITION_PREFIX)
            if name in shared and name not in found:
                found.add(name)
                waiting.append(shared[name])
            waiting += part.values()
    return found


# --------------------------------------------------------------------------------------
# The published schemas as a page: a table of keys for each command
# --------------------------------------------------------------------------------------

INTRODUCTION = """# What `--json` prints

Every command takes `--json` and then prints only JSON on standard output. Its
[JSON Schema](https://json-schema.org), draft 2020-12, is published:

```console
$ cosmic schema                # the commands
$ cosmic schema space count      # the schema of one, for a validator or a code generator
```

Required keys stay; a release may add keys, and the changelog says so. Numbers are in SI units: a key ends in its unit
(`_s`, `_bytes`, `_usd`), or the column below and `x-unit` in the schema give it. A missing value is `null`, never NaN
or infinity. `[]` stands for each element of a list, `*` for any key.

EXIT_CODES

This page is written by `cosmic schema --page docs/reference/json.md`.
"""


def schema_page() -> str:
    """Return the page, as Markdown."""
    codes = ["| exit code | means |", "|---|---|", *(f"| {code} | {text} |" for code, text in as_rows())]
    lines = [INTRODUCTION.replace("EXIT_CODES", "\n".join(codes))]
    for name in published_commands():
        schema = schema_of(name)
        lines += [f"## cosmic {name}", "", schema["description"], ""]
        rows = list(dict.fromkeys(_rows_of_keys(schema, schema.get("$defs", {}), "")))
        lines += ["| key | type | unit | meaning |", "|---|---|---|---|"] if rows else []
        lines += [f"| `{key}` | {kind} | {unit} | {said} |" for key, kind, unit, said in rows]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _rows_of_keys(schema: Any, shared: dict[str, Any], path: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield key, type, unit and meaning of everything below a schema."""
    schema = _resolve_reference(schema, shared)
    for part in (*schema.get("oneOf", ()), *schema.get("anyOf", ())):
        yield from _rows_of_keys(part, shared, path)
    inside = dict(schema.get("properties", {}))
    if isinstance(schema.get("additionalProperties"), dict):
        inside["*"] = schema["additionalProperties"]
    for key, part in inside.items():
        found = _resolve_reference(part, shared)
        place = f"{path}.{key}" if path else key
        yield place, _kind_of_value(found, shared), str(found.get("x-unit", "")), found.get("description", "")
        yield from _rows_of_keys(found, shared, place)
    if "items" in schema:
        yield from _rows_of_keys(schema["items"], shared, f"{path}[]")


def _resolve_reference(schema: Any, shared: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its `$ref` resolved; its own keys win."""
    if "$ref" not in schema:
        return dict(schema)
    rest = {key: value for key, value in schema.items() if key != "$ref"}
    return {**_resolve_reference(shared[schema["$ref"].removeprefix(DEFINITION_PREFIX)], shared), **rest}


def _kind_of_value(schema: dict[str, Any], shared: dict[str, Any]) -> str:
    """Return the type of a value in words.

    >>> _kind_of_value({"type": ["number", "null"]}, {}), _kind_of_value({"enum": ["a", "b"]}, {}), _kind_of_value({"const": True}, {})
    ('number or null', 'a, b', 'true')
    """
    if "const" in schema:
        return str(schema["const"]).lower()
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "oneOf" in schema:
        return " or ".join(
            dict.fromkeys(_kind_of_value(_resolve_reference(each, shared), shared) for each in schema["oneOf"])
        )
    stated = schema.get("type", "any")
    return " or ".join(stated) if isinstance(stated, list) else str(stated)
