"""`cosmic schema`: the JSON Schema of what --json prints, and all schemas as a page of tables.

The types in `cosmic.cli.answers` describe the output of each command; its schema, in draft 2020-12, is made of them.
Every key has a description, every quantity a unit as ``x-unit``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Json, emit_json, emit_table
from cosmic.cli.output_streams import as_rows
from cosmic.cli.value_completion import complete_one_of

if TYPE_CHECKING:
    from cosmic.cli.answers.study_answers import PublishedCommandRow

# ---- `cosmic schema`: the JSON Schema of what --json prints

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
    rows: list[PublishedCommandRow] = [
        {"command": name, "prints": schema_of(name)["description"]} for name in published_commands()
    ]
    if json:
        emit_json(rows)
    else:
        emit_table("", ["command", "prints"], [[row["command"], row["prints"]] for row in rows])


def _complete_commands(incomplete: str) -> list[str]:
    return complete_one_of(*dict.fromkeys(name.partition(" ")[0] for name in published_commands()))(incomplete)


def published_commands() -> list[str]:
    """Return the commands that have a schema."""
    from cosmic.cli.answers import ANSWERS  # noqa: PLC0415  imports the types of every room

    return sorted(ANSWERS)


def schema_of(command: str) -> dict[str, Any]:
    """Return the schema of what a command prints, with all definitions that it refers to.

    >>> schema_of("space count")["properties"]["valid"]["description"]
    'Those that the constraints allow.'
    """
    from cosmic.base.errors import UnknownName  # noqa: PLC0415
    from cosmic.base.json_types import schemas_of  # noqa: PLC0415
    from cosmic.cli.answers import ANSWERS, OTHER_KEYS  # noqa: PLC0415

    if command not in ANSWERS:
        raise UnknownName.among("command", command, "command with a schema", published_commands())
    (schema,), definitions = schemas_of([ANSWERS[command]], OTHER_KEYS)
    if "$ref" in schema:  # the answer is one object: its class is the schema itself
        schema = definitions.pop(schema["$ref"].removeprefix(DEFINITION_PREFIX)) | schema
        del schema["$ref"]
    title = {"title": f"cosmic {command} --json"}
    return {"$schema": DIALECT, **title, **schema, **({"$defs": definitions} if definitions else {})}


# ---- The published schemas as a page: a table of keys for each command

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
        lines += [f"| `{key}` | {kind} | {unit} | {description} |" for key, kind, unit, description in rows]
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
        resolved = _resolve_reference(part, shared)
        key_path = f"{path}.{key}" if path else key
        yield (
            key_path,
            _kind_of_value(resolved, shared),
            str(resolved.get("x-unit", "")),
            resolved.get("description", ""),
        )
        yield from _rows_of_keys(resolved, shared, key_path)
    if schema.get("items"):  # a tuple allows no items besides its own
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
    if members := schema.get("oneOf", schema.get("anyOf")):
        return " or ".join(dict.fromkeys(_kind_of_value(_resolve_reference(each, shared), shared) for each in members))
    stated = schema.get("type", "any")
    return " or ".join(stated) if isinstance(stated, list) else str(stated)
