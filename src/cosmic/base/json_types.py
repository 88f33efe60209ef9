"""JSON of dataclasses, and its schema: both follow from the class, its docstrings and the names of its attributes.

An object has a key for each field of its class; `json_keys` leaves fields out, renames them and adds properties. A
value's description is the string below its attribute, or the docstring of its property. Its unit follows from its name
(`step_s`, `used_bytes`) or from its type (`Ratio`). Objects have no other keys than those of their class.

    @json_keys("gap", without=("graph",), nodes="graph.nodes")
    @dataclass(frozen=True)
    class Found:
        graph: Graph
        time_s: float  # JSON: {"time_s": 1.5, "gap": 0.0, "nodes": 8}
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, reduce
from itertools import pairwise
from operator import attrgetter, or_
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypedDict,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from typing import Union as AnyOf

__all__ = [
    "AlwaysFalse",
    "AlwaysTrue",
    "AnyOf",
    "Count",
    "Fraction",
    "Keywords",
    "NonNegative",
    "NonNegativeRatio",
    "Number",
    "NumberOrNull",
    "PositiveCount",
    "Ratio",
    "SecondsOrBytes",
    "Share",
    "ShareOrNull",
    "attribute_docstrings",
    "described",
    "json_keys",
    "json_object",
    "one_of",
    "schemas_of",
    "unit",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _JsonKeys:
    """What the JSON of a class shows.

    By key, the path of an attribute; which keys are left out where empty; which parts have keys that stand beside its own.
    """

    paths: Mapping[str, str]
    optional: frozenset[str]
    beside: tuple[str, ...]
    getters: Mapping[str, Callable[[Any], Any]]


def json_keys(
    *properties: str,
    own: bool = True,
    without: Collection[str] = (),
    optional: Collection[str] = (),
    beside: Collection[str] = (),
    **renamed: str,
) -> Callable[[type[T]], type[T]]:
    """Return a decorator that says what the JSON of a dataclass has besides its fields, or instead of them.

    *properties* are keys, too. Fields *without* a key are left out, all of them unless they are its *own* keys. Keys
    *optional* are left out where their value is None. The keys of parts that are named *beside* stand beside its own;
    a mapping's may be any.
    A key that is *renamed* shows another attribute, or a part of one, in place of it.

    >>> @json_keys("area", without=("secret",), wide="width")
    ... @dataclass
    ... class Box:
    ...     width: int
    ...     secret: str = ""
    ...     @property
    ...     def area(self) -> int: return self.width ** 2
    >>> json_object(Box(3))
    {'area': 9, 'wide': 3}
    """

    def add_keys(cls: type[T]) -> type[T]:
        hidden = {*without, *beside, *(path.partition(".")[0] for path in renamed.values())}
        names = [field.name for field in fields(cls) if own and field.name not in hidden]  # type: ignore[arg-type]
        paths = {name: name for name in (*names, *properties)} | renamed
        getters = {key: attrgetter(path) for key, path in paths.items()}
        cls.__json_keys__ = _JsonKeys(paths, frozenset(optional), tuple(beside), getters)  # type: ignore[attr-defined]
        return cls

    return add_keys


def json_object(value: Any) -> dict[str, Any]:
    """Return the keys of a dataclass with their values, which may be dataclasses again."""
    keys: _JsonKeys | None = getattr(type(value), "__json_keys__", None)
    if keys is None:
        return {field.name: getattr(value, field.name) for field in fields(value)}
    shown = {key: get(value) for key, get in keys.getters.items()}
    shown = {key: part for key, part in shown.items() if key not in keys.optional or part is not None}
    for name in keys.beside:
        part = getattr(value, name)
        shown |= part if isinstance(part, Mapping) else json_object(part)
    return shown


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
Number = Annotated[Any, Keywords(type="number")]
"""A number in JSON; in a batch, an array of one for each design."""
NumberOrNull = Annotated[Any, Keywords(type=["number", "null"])]
"""The same of a number that is null in JSON where it is not finite."""
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
    definitions: dict[str, Any] = {}
    schemas = [_schema_of(type_, definitions, other_keys) for type_ in types]
    return schemas, dict(sorted(definitions.items()))


_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null", Path: "string"}


def _schema_of(type_: Any, definitions: dict[str, Any], other_keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; the classes in it are put into *definitions*."""

    def schema_of(part: Any) -> dict[str, Any]:
        return _schema_of(part, definitions, other_keys)

    origin, arguments = get_origin(type_), get_args(type_)
    if type_ is Any:
        return {}
    if origin is NotRequired:
        return schema_of(arguments[0])
    if origin is Annotated:
        schema = schema_of(arguments[0])
        for note in arguments[1:]:
            schema.update(note.keywords)
        return schema
    if origin is Literal:
        return {"enum": sorted(arguments)}
    if origin in (AnyOf, UnionType):
        return _schema_of_union([schema_of(part) for part in arguments])
    if origin is tuple and arguments[-1] is not Ellipsis:
        parts = [schema_of(part) for part in arguments]
        return {"type": "array", "minItems": len(parts), "maxItems": len(parts), "prefixItems": parts, "items": False}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        values = schema_of(arguments[1])
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if isinstance(origin, type) and issubclass(origin, Collection):
        items = schema_of(arguments[0])
        return {"type": "array", **({"items": items} if items else {})}
    if type_ in _PLAIN:
        return {"type": _PLAIN[type_]}
    if type_.__name__ not in definitions:
        definitions[type_.__name__] = {}  # a class may have parts of its own kind
        definitions[type_.__name__] = _describe_object(type_, schema_of, other_keys.get(type_.__name__))
    return {"$ref": f"#/$defs/{type_.__name__}"}


def _schema_of_union(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of one of several: a list of types, where keywords hold for one type each."""
    if not all(isinstance(part.get("type"), str) for part in parts):
        return {"anyOf": parts}
    return {key: value for part in parts for key, value in part.items()} | {"type": [part["type"] for part in parts]}


def _describe_object(
    cls: type, schema_of: Callable[[Any], dict[str, Any]], other_keys: Mapping[str, Any] | None
) -> dict[str, Any]:
    properties, required = {}, []
    for key, attribute in _attributes_of(cls).items():
        value = schema_of(attribute.type)
        name_unit = next((u for end, u in UNITS_OF_NAMES.items() if f"_{key}".endswith(f"_{end}")), None)
        if name_unit and any(word in str(value) for word in ("'number'", "'integer'")) and "x-unit" not in str(value):
            value["x-unit"] = name_unit
        properties[key] = value | ({"description": attribute.description} if attribute.description else {})
        required += [key] if attribute.required else []
    words = {"description": " ".join((cls.__doc__ or "").split())}
    if other_keys is None:
        other_keys = {} if _has_any_keys(cls) else {"additionalProperties": False}
    return {**words, "type": "object", "properties": properties, "required": required, **other_keys}


def _has_any_keys(cls: type) -> bool:
    """Return whether a mapping's keys, which may be any, stand beside those of a class."""
    keys: _JsonKeys | None = getattr(cls, "__json_keys__", None)
    return keys is not None and any(_is_mapping(_attribute_at(cls, [part]).type) for part in keys.beside)


def _is_mapping(type_: Any) -> bool:
    origin = get_origin(type_)
    return isinstance(origin, type) and issubclass(origin, Mapping)


@dataclass(frozen=True, slots=True)
class _JsonValue:
    """A value of an object."""

    type: Any
    description: str
    required: bool = True


def _attributes_of(cls: type) -> dict[str, _JsonValue]:
    """Return the values that the JSON of a class has, by key."""
    keys: _JsonKeys | None = getattr(cls, "__json_keys__", None)
    if keys is not None:
        found = {key: _attribute_at(cls, path.split(".")) for key, path in keys.paths.items()}
        shown = {
            key: _JsonValue(_without_none(each.type), each.description, required=False)
            if key in keys.optional
            else each
            for key, each in found.items()
        }
        for part in keys.beside:
            type_ = _attribute_at(cls, [part]).type
            shown |= {} if _is_mapping(type_) else _attributes_of(type_)
        return shown
    descriptions = attribute_docstrings(cls)
    names = {field.name for field in fields(cls)} if is_dataclass(cls) else None
    return {
        name: _JsonValue(type_, descriptions.get(name, ""), get_origin(type_) is not NotRequired)
        for name, type_ in get_type_hints(cls, include_extras=True).items()
        if names is None or name in names
    }


def _without_none(type_: Any) -> Any:
    """Return the type of a value that is left out where it is None."""
    return reduce(or_, (part for part in get_args(type_) if part is not NoneType))


def _attribute_at(cls: Any, path: list[str]) -> _JsonValue:
    """Return the attribute at a path: a field, a property, or one of those of another."""
    name, *rest = path
    stated = inspect.getattr_static(cls, name, None)
    getter = getattr(stated, "fget", getattr(stated, "func", None))
    if getter is not None:
        type_ = get_type_hints(getter, include_extras=True)["return"]
        description = re.sub(r"\bNone\b", "null", " ".join((inspect.getdoc(stated) or "").split()))
    else:
        type_ = get_type_hints(cls, include_extras=True)[name]
        description = attribute_docstrings(cls).get(name, "")
    return _attribute_at(type_, rest) if rest else _JsonValue(type_, description)


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
