"""Print the JSON Schema of the documents that Python writes for the pages, for `document_types.mjs`.

In the draft of 2019, as json-schema-to-typescript reads it: a tuple has its members in `items`. Names of classes that
end in Json lose that: TypeScript has no other class of the name.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from cosmic.base.json_types import schemas_of
from cosmic.report.document_types import ReportDocument, TraceDocument


def older_draft(schema: Any) -> Any:
    """Return a schema with tuples as drafts before 2020 have them, and with shorter names of classes."""
    if isinstance(schema, list):
        return [older_draft(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: older_draft(part) for key, part in schema.items() if key != "prefixItems"}
    for key in plain.get("properties", {}).keys() - plain.get("required", ()):  # left out where it would be null
        plain["properties"][key] = without_null(plain["properties"][key])
    if "prefixItems" in schema:
        plain |= {"items": older_draft(schema["prefixItems"]), "additionalItems": False}
    if "$ref" in schema:
        plain["$ref"] = schema["$ref"].removesuffix("Json")
    return plain


def without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value that is there."""
    if isinstance(schema.get("type"), list):
        return {**schema, "type": next(kind for kind in schema["type"] if kind != "null")}
    if "anyOf" not in schema:
        return schema
    parts = [part for part in schema["anyOf"] if part != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**rest, **parts[0]} if len(parts) == 1 else {**rest, "anyOf": parts}


(report, trace), definitions = schemas_of([ReportDocument, TraceDocument])
named = {name.removesuffix("Json").lstrip("_"): older_draft(schema) for name, schema in definitions.items()}
pages = {"type": "object", "properties": {"report": report, "trace": trace}, "additionalProperties": False}
json.dump({**pages, "description": "The document of each kind of page.", "$defs": named}, sys.stdout)
