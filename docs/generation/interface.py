"""The Python interface: public names, their signatures, and the types they return."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cosmic
from generation.text import attribute_docs, constant_docs, escape, fence, page, prose, source_link, table

INTRODUCTION = """
`cosmic` has the commands as functions, and a module for each noun of the command line: `cosmic design show` is
`cosmic.design.show`. Options are keywords of the same name; `--set PATH=VALUE` is `settings={PATH: VALUE}`. `cosmic.plugins`
has what extensions use, and `cosmic.pages` what writes pages and charts. Names on this page stay; all other modules may change
from release to release. Names are imported when they are first used, so that `import cosmic` is fast.
"""
MODULES = (
    "cosmic",
    "cosmic.design",
    "cosmic.space",
    "cosmic.study",
    "cosmic.network",
    "cosmic.cluster",
    "cosmic.model",
    "cosmic.trace",
    "cosmic.catalog",
    "cosmic.calibrate",
    "cosmic.plugins",
    "cosmic.pages",
)
"""The documented modules."""
LONGEST = 110


def make() -> str:
    """Return the page."""
    offered = {module: _names_of(module) for module in MODULES}
    homes: dict[int, str] = {}
    for module, names in offered.items():
        for name, thing in names.items():
            homes.setdefault(id(thing), f"{module}.{name}")
    described = {homes[id(thing)]: thing for names in offered.values() for thing in names.values()}
    functions = [thing for thing in described.values() if inspect.isfunction(thing)]
    classes = [thing for thing in described.values() if inspect.isclass(thing)]
    methods = [
        member for name, member in vars(cosmic.study.Found).items() if inspect.isfunction(member) and name[0] != "_"
    ]
    returned = {cls.__name__: cls for function in (*functions, *methods) for cls in _returned(function)}
    others = {name: cls for name, cls in sorted(returned.items()) if cls not in classes}
    parts = [part for module, names in offered.items() for part in _module(module, names, homes)]
    parts += ["## Other types that functions return", *(_class(name, cls) for name, cls in others.items())]
    return page("Python interface", INTRODUCTION, f"`cosmic.__version__` is `{cosmic.__version__}`.", *parts)


def _names_of(module: str) -> dict[str, Any]:
    """Return what a module promises, functions first, without its version and the modules in it."""
    loaded = importlib.import_module(module)
    things = {name: getattr(loaded, name) for name in loaded.__all__ if name != "__version__"}
    things = {name: thing for name, thing in things.items() if not inspect.ismodule(thing)}
    return dict(sorted(things.items(), key=lambda item: (not inspect.isfunction(item[1]), item[0])))


def _module(module: str, names: Mapping[str, Any], homes: Mapping[int, str]) -> Iterator[str]:
    """Yield the section of a module: its names, then each that is not described in another section."""
    loaded = importlib.import_module(module)
    yield f"## {module}"
    yield prose((loaded.__doc__ or "").split("\n\n")[0])
    rows = [[f"[`{name}`](#{_anchor(homes[id(thing)])})", _first(module, name, thing)] for name, thing in names.items()]
    yield table(["name", "what it is"], rows)
    for name, thing in names.items():
        if homes[id(thing)] != f"{module}.{name}":
            continue
        if inspect.isclass(thing):
            yield _class(f"{module}.{name}", thing)
        elif inspect.isfunction(thing):
            yield _function(f"{module}.{name}", thing)
        else:
            yield f"### {module}.{name}\n\n{_first(module, name, thing)}"


def _anchor(name: str) -> str:
    return re.sub(r"[^a-z0-9_ -]", "", name.lower())


def _first(module: str, name: str, thing: Any) -> str:
    """Return the first sentence about a name; about a value, what its home says of it."""
    if inspect.isfunction(thing) or inspect.isclass(thing) or not isinstance(thing, int | float | str | tuple | Path):
        text = inspect.getdoc(thing) or ""
    else:
        text = ""
    if not (inspect.isfunction(thing) or inspect.isclass(thing)):
        text = _about_value(module, name) or text
    return escape(inspect.cleandoc(text).split("\n\n")[0].replace("\n", " "))


def _about_value(module: str, name: str) -> str:
    """Return the docstring below a value, in the module that the name is imported from."""
    source = ast.parse(inspect.getsource(importlib.import_module(module)))
    imports = [node for part in source.body if isinstance(part, ast.If) for node in part.body]
    for node in imports:
        for each in node.names if isinstance(node, ast.ImportFrom) else ():
            if name == (each.asname or each.name) and isinstance(node, ast.ImportFrom):
                return constant_docs(importlib.import_module(str(node.module))).get(each.name, "")
    return ""


def _function(name: str, function: Any) -> str:
    parts = [f"### {name}", fence(signature(name, function)), prose(function.__doc__)]
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
    hidden = callable(parameter.default) or isinstance(parameter.default, Path)  # a path is of this machine
    default = "…" if hidden else repr(parameter.default)
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
        text = "" if isinstance(member, str | int | float) else inspect.getdoc(member) or ""  # values say their type's
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


def _returned(function: Any) -> Iterator[type]:
    """Yield COSMIC's classes that a function returns, alone or in a union."""
    try:
        hint = typing.get_type_hints(function).get("return")
    except NameError:  # a name that is imported for type checkers only
        return
    for each in (hint, *typing.get_args(hint)):
        if inspect.isclass(each) and each.__module__.startswith("cosmic"):
            yield each
