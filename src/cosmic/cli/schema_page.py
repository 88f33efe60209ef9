"""The published schemas as a page: a table of keys for each command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cosmic.cli.exit_codes import as_rows
from cosmic.cli.schema import WITHIN, published, schema_of

INTRODUCTION = """# What `--json` prints

Every command takes `--json` and then prints only JSON on standard output. Its
[JSON Schema](https://json-schema.org), draft 2020-12, is published:

```console
$ cosmic schema                # the commands
$ cosmic schema psa count      # the schema of one, for a validator or a code generator
```

Required keys stay; a release may add keys, and the changelog says so. Numbers are in SI units: a key ends in its unit
(`_s`, `_bytes`, `_usd`), or the column below and `x-unit` in the schema give it. A missing value is `null`, never NaN
or infinity. `[]` stands for each element of a list, `*` for any key.

EXIT_CODES

This page is written by `cosmic schema --page docs/json.md`.
"""


def schema_page() -> str:
    """Return the page, as Markdown."""
    codes = ["| exit code | means |", "|---|---|", *(f"| {code} | {text} |" for code, text in as_rows())]
    lines = [INTRODUCTION.replace("EXIT_CODES", "\n".join(codes))]
    for name in published():
        schema = schema_of(name)
        lines += [f"## cosmic {name}", "", schema["description"], ""]
        rows = list(dict.fromkeys(_rows(schema, schema.get("$defs", {}), "")))
        lines += ["| key | type | unit | meaning |", "|---|---|---|---|"] if rows else []
        lines += [f"| `{key}` | {kind} | {unit} | {said} |" for key, kind, unit, said in rows]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _rows(schema: Any, shared: dict[str, Any], path: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield key, type, unit and meaning of everything below a schema."""
    schema = _resolved(schema, shared)
    for part in (*schema.get("oneOf", ()), *schema.get("anyOf", ())):
        yield from _rows(part, shared, path)
    inside = dict(schema.get("properties", {}))
    if isinstance(schema.get("additionalProperties"), dict):
        inside["*"] = schema["additionalProperties"]
    for key, part in inside.items():
        found = _resolved(part, shared)
        place = f"{path}.{key}" if path else key
        yield place, _kind(found, shared), str(found.get("x-unit", "")), found.get("description", "")
        yield from _rows(found, shared, place)
    if "items" in schema:
        yield from _rows(schema["items"], shared, f"{path}[]")


def _resolved(schema: Any, shared: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its `$ref` resolved; its own keys win."""
    if "$ref" not in schema:
        return dict(schema)
    rest = {key: value for key, value in schema.items() if key != "$ref"}
    return {**_resolved(shared[schema["$ref"].removeprefix(WITHIN)], shared), **rest}


def _kind(schema: dict[str, Any], shared: dict[str, Any]) -> str:
    """Return the type of a value in words.

    >>> _kind({"type": ["number", "null"]}, {}), _kind({"enum": ["a", "b"]}, {}), _kind({"const": True}, {})
    ('number or null', 'a, b', 'true')
    """
    if "const" in schema:
        return str(schema["const"]).lower()
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "oneOf" in schema:
        return " or ".join(dict.fromkeys(_kind(_resolved(each, shared), shared) for each in schema["oneOf"]))
    stated = schema.get("type", "any")
    return " or ".join(stated) if isinstance(stated, list) else str(stated)
