"""JSON Schemas of typed dictionaries and dataclasses: msgspec's, with the docstrings of attributes and with units.

A value's description is the string below its attribute, as everywhere in this package. Its unit follows from its name
(`step_s`, `used_bytes`) or from its type (`Ratio`). Objects have no other keys than those of their class.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NotRequired,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

__all__ = [
    "AlwaysFalse",
    "AlwaysTrue",
    "AnyOf",
    "Count",
    "Fraction",
    "Keywords",
    "NonNegative",
    "NonNegativeRatio",
    "PositiveCount",
    "Ratio",
    "SecondsOrBytes",
    "Share",
    "ShareOrNull",
    "attribute_docstrings",
    "described",
    "one_of",
    "schemas_of",
    "unit",
]

if TYPE_CHECKING:
    from typing import Union as AnyOf
else:

    class AnyOf:
        """A union of objects. msgspec refuses `Union` of these, as a decoder could not tell them apart."""

        def __class_getitem__(cls, members: tuple[Any, ...]) -> type:
            """Return a type that stands for one of some types."""
            return type("AnyOf", (cls,), {"members": members})


class Keywords:
    """Keywords of JSON Schema that belong to a type: ``Annotated[float, Keywords(minimum=0)]``."""

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords


def unit(name: str) -> Keywords:
    """Return what gives numbers a unit, where their name does not."""
    return Keywords(**{"x-unit": name})


def one_of(*values: str | None) -> Keywords:
    """Return what limits texts to some, where the code that makes them does not say so by its types."""
    return Keywords(enum=list(values))


def described(description: str) -> Keywords:
    """Return what describes all values of a type that several classes use; elsewhere, attributes have docstrings."""
    return Keywords(description=description)


Count = Annotated[int, Keywords(minimum=0)]
PositiveCount = Annotated[int, Keywords(minimum=1)]
NonNegative = Annotated[float, Keywords(minimum=0)]
Ratio = Annotated[float, unit("1")]
NonNegativeRatio = Annotated[Ratio, Keywords(minimum=0)]
Share = Annotated[float, unit("share")]
ShareOrNull = Annotated[Share, Keywords(type=["number", "null"])]
"""A share that is null in JSON where it is not finite."""
Fraction = Annotated[Share, Keywords(minimum=0, maximum=1)]
SecondsOrBytes = Annotated[float, unit("s, or byte")]
AlwaysTrue = Annotated[bool, Keywords(const=True)]
AlwaysFalse = Annotated[bool, Keywords(const=False)]

UNITS_OF_NAMES = {
    "bytes_per_s": "B/s",
    "flop_per_s": "FLOP/s",
    "per_s": "1/s",
    "s": "s",
    "seconds": "s",
    "ns": "ns",
    "cycles": "ns",
    "days": "day",
    "bytes": "B",
    "flop": "FLOP",
    "usd": "USD",
    "w": "W",
    "j": "J",
    "kg": "kg",
    "share": "share",
    "utilization": "share",
}
"""By the last words of a name, the longest first, the unit of its numbers. A cycle is a nanosecond, as in ASTRA-sim."""


def schemas_of(
    types: Iterable[Any], other_keys: Mapping[str, Mapping[str, Any]] = {}
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the schemas of *types*, and by name the definitions of the classes that these refer to.

    *other_keys* says by the name of a class which keys its objects may have besides its own.
    """
    import msgspec  # noqa: PLC0415  slow to import, and types are annotated where no schema is made

    definitions: dict[str, Any] = {}

    def build_schemas(types: Iterable[Any]) -> list[dict[str, Any]]:
        schemas, components = msgspec.json.schema_components(types, schema_hook=build_union)
        definitions.update(components)
        return list(schemas)

    def build_union(union: Any) -> dict[str, Any]:
        return {"anyOf": build_schemas(union.members)}

    types = list(types)
    schemas = build_schemas(types)
    for schema, type_ in zip(schemas, types, strict=True):
        _add_keywords(schema, type_)
    for cls in {cls.__name__: cls for type_ in types for cls in _classes_in(type_)}.values():
        definitions[cls.__name__] = _describe_object(cls, definitions[cls.__name__], other_keys.get(cls.__name__))
    return schemas, dict(sorted(definitions.items()))


def _describe_object(cls: type, schema: dict[str, Any], other_keys: Mapping[str, Any] | None) -> dict[str, Any]:
    descriptions = attribute_docstrings(cls)
    properties = {}
    for name, type_ in get_type_hints(cls, include_extras=True).items():  # in the order of the class; msgspec sorts
        value = {key: part for key, part in schema["properties"][name].items() if key != "default"}
        _add_keywords(value, type_)
        name_unit = next((u for end, u in UNITS_OF_NAMES.items() if f"_{name}".endswith(f"_{end}")), None)
        if name_unit and any(word in str(value) for word in ("'number'", "'integer'")) and "x-unit" not in str(value):
            value["x-unit"] = name_unit
        properties[name] = value | ({"description": descriptions[name]} if name in descriptions else {})
    required = [name for name in properties if name in schema["required"] or is_dataclass(cls)]
    words = {"description": " ".join((cls.__doc__ or "").split())}
    keys = {"additionalProperties": False} if other_keys is None else other_keys
    return {**words, "type": "object", "properties": properties, "required": required, **keys}


def _add_keywords(schema: dict[str, Any], type_: Any) -> None:
    """Add the keywords of a type to its schema, and those of its parts to the schemas of these."""
    origin, arguments = get_origin(type_), get_args(type_) or getattr(type_, "members", ())
    if origin is NotRequired:
        _add_keywords(schema, arguments[0])
    elif origin is Annotated:
        _add_keywords(schema, arguments[0])
        for note in arguments[1:]:
            schema.update(note.keywords)
    elif "additionalProperties" in schema:
        _add_keywords(schema["additionalProperties"], arguments[1])
    elif schema.get("type") == "array" and schema.get("items"):
        _add_keywords(schema["items"], arguments[0])
    elif "anyOf" in schema:
        parts = schema["anyOf"]
        for part, member in zip(parts, arguments, strict=True):
            _add_keywords(part, member)
        if all("type" in part for part in parts):  # keywords hold for one type each: a list of types says the same
            del schema["anyOf"]
            schema.update({key: value for part in parts for key, value in part.items()})
            schema["type"] = [part["type"] for part in parts]


def _classes_in(type_: Any) -> Iterator[type]:
    """Yield the typed dictionaries and dataclasses that a type consists of."""
    if is_typeddict(type_) or (isinstance(type_, type) and is_dataclass(type_)):
        yield type_
        for part in get_type_hints(type_, include_extras=True).values():
            yield from _classes_in(part)
    for part in (*get_args(type_), *getattr(type_, "members", ())):
        yield from _classes_in(part)


def attribute_docstrings(cls: type) -> dict[str, str]:
    """Return the strings below the attributes of a class and of its bases, each on one line; None is null, as in JSON."""
    module = sys.modules[cls.__module__]
    source = _classes_of_module(cls.__module__).get(cls.__name__)
    if source is None:  # made by a call of TypedDict
        return {}
    descriptions: dict[str, str] = {}
    for name in source.bases:  # a TypedDict does not know its bases
        base: Any = getattr(module, name.id) if isinstance(name, ast.Name) else TypedDict
        descriptions |= attribute_docstrings(base) if is_typeddict(base) or is_dataclass(base) else {}
    for above, below in pairwise(source.body):
        if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name) and isinstance(below, ast.Expr):
            text = ast.literal_eval(below.value)
            descriptions[above.target.id] = re.sub(r"\bNone\b", "null", " ".join(text.split()))
    return descriptions


@cache
def _classes_of_module(module: str) -> dict[str, ast.ClassDef]:
    body = ast.parse(inspect.getsource(sys.modules[module])).body
    return {node.name: node for node in body if isinstance(node, ast.ClassDef)}
