"""The Python interface: public names, their signatures, and the types they return."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import cosmic
from generation.text import attribute_docs, escape, fence, page, prose, source_link, table

INTRODUCTION = """
Public names are those of `cosmic` itself; its modules may change from release to release. Names are imported when they
are first used, so that `import cosmic` is fast.
"""
LONGEST = 110


def make() -> str:
    """Return the page."""
    names = [name for name in cosmic.__all__ if name != "__version__"]
    things = {name: getattr(cosmic, name) for name in names}
    functions = {name: thing for name, thing in things.items() if not inspect.isclass(thing)}
    classes = {name: thing for name, thing in things.items() if inspect.isclass(thing)}
    methods = [member for name, member in vars(cosmic.study.Found).items() if inspect.isfunction(member) and name[0] != "_"]
    returned = {cls.__name__: cls for thing in (*functions.values(), *methods) for cls in _returned(thing)}
    held = {inner.__name__: inner for cls in (*returned.values(), cosmic.study.Found) for inner in _held(cls)}
    others = {name: cls for name, cls in sorted((held | returned).items()) if name not in classes}
    index = table(["name", "what it is"], [[_link(name), _first(thing)] for name, thing in things.items()])
    parts = ["## Functions", *(_function(name, thing) for name, thing in functions.items())]
    parts += ["## Values", *(_class(name, cls) for name, cls in classes.items())]
    parts += ["## Types of their fields", *(_class(name, cls) for name, cls in others.items())]
    return page("Python interface", INTRODUCTION, index, f"`cosmic.__version__` is `{cosmic.__version__}`.", *parts)


def _link(name: str) -> str:
    return f"[`{name}`](#{name.lower()})"


def _first(thing: Any) -> str:
    return escape(inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].replace("\n", " "))


def _function(name: str, function: Any) -> str:
    parts = [f"### {name}", fence(signature(f"cosmic.{name}", function)), prose(function.__doc__)]
    return "\n\n".join([*parts, f"Defined in {source_link(function)}."])


def _class(name: str, cls: type) -> str:
    parts = [f"### {name}", prose(cls.__doc__), _fields(cls), _methods(cls), f"Defined in {source_link(cls)}."]
    return "\n\n".join(part for part in parts if part)


def signature(name: str, function: Any) -> str:
    """Return a signature with types and defaults, one parameter a line where it does not fit on one line."""
    shown = inspect.signature(function)
    taken = [each for each in shown.parameters.values() if each.name not in ("self", "cls")]
    parameters = [_parameter(each) for each in taken]
    keyword = [each.kind is inspect.Parameter.KEYWORD_ONLY for each in taken]
    if True in keyword:
        parameters.insert(keyword.index(True), "*")
    returns = _quiet(str(shown.return_annotation)) if shown.return_annotation is not shown.empty else ""
    end = f") -> {returns}" if returns else ")"
    line = f"{name}({', '.join(parameters)}{end}"
    return line if len(line) <= LONGEST else f"{name}(\n    " + ",\n    ".join(parameters) + f",\n{end}"


def _parameter(parameter: inspect.Parameter) -> str:
    """Return a parameter with its type and default; a function as default is shown as an ellipsis."""
    kind = "" if parameter.annotation is parameter.empty else f": {_quiet(str(parameter.annotation))}"
    if parameter.default is parameter.empty:
        return f"{parameter.name}{kind}"
    default = "…" if callable(parameter.default) else repr(parameter.default)
    return f"{parameter.name}{kind} = {default}" if kind else f"{parameter.name}={default}"


def _quiet(text: str) -> str:
    """Return an annotation without quotes and modules."""
    return re.sub(r"\b(?:typing|collections\.abc|pathlib|cosmic(?:\.\w+)+)\.", "", text.replace("'", ""))


def _fields(cls: type) -> str:
    """Return the fields of a dataclass: name, type, meaning."""
    if not dataclasses.is_dataclass(cls):
        return ""
    docs = attribute_docs(cls)
    rows = [
        [f"`{each.name}`", f"`{_quiet(str(each.type)).replace(' | ', ' or ')}`", escape(docs.get(each.name, ""))]
        for each in dataclasses.fields(cls)
        if not each.name.startswith("_") and each.repr
    ]
    return table(["field", "type", "meaning"], rows)


def _methods(cls: type) -> str:
    """Return the public methods and properties that a class itself defines."""
    rows = []
    for name, member in vars(cls).items():
        text = inspect.getdoc(member) or ""
        if name.startswith("_") or not text or name in {each.name for each in _dataclass_fields(cls)}:
            continue
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        shown = (
            signature(name, function).replace("\n", " ").replace(" | ", " or ")
            if inspect.isfunction(function)
            else name
        )
        rows.append([f"`{re.sub(r'  +', ' ', shown)}`", escape(text.split("\n\n")[0])])
    return table(["method or property", "what it is"], rows) if rows else ""


def _dataclass_fields(cls: type) -> tuple[Any, ...]:
    return dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()


def _held(cls: type) -> Iterator[type]:
    """Yield COSMIC's dataclasses among the field types of a class; layers of a design have their own page."""
    hints = typing.get_type_hints(cls) if dataclasses.is_dataclass(cls) else {}
    for each in (inner for hint in hints.values() for inner in (hint, *typing.get_args(hint))):
        module = getattr(each, "__module__", "")
        if dataclasses.is_dataclass(each) and module.startswith("cosmic") and "cosmic.design" not in module:
            yield typing.cast(type, each)


def _returned(function: Any) -> Iterator[type]:
    """Yield COSMIC's classes that a function returns, alone or in a union."""
    try:
        hint = typing.get_type_hints(function).get("return")
    except NameError:  # a name that is imported for type checkers only
        return
    for each in (hint, *typing.get_args(hint)):
        if inspect.isclass(each) and each.__module__.startswith("cosmic"):
            yield each
