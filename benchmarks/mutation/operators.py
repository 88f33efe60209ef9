"""The mutants of a source file: a fixed list of operators on its syntax tree.

    arithmetic   a + b -> a - b, a * b -> a / b, a // b -> a / b, a ** b -> a * b, a % b -> a // b, also in a += b
    drop         one side of a sum, product or power, one operand of `and` and `or`, a filter of a comprehension
    sign         -x -> x, ~x -> x
    compare      a < b -> a <= b, a == b -> a != b, a in b -> a not in b, a is b -> a is not b
    case         a text that something is compared with becomes one that nothing equals
    constant     c -> c + 1 (unless c is large), c -> 2 c, True <-> False
    call         max <-> min, ceil <-> floor, any <-> all
    logic        and <-> or, & <-> |, not x -> x
    choose       a if c else b -> a, -> b; if c: -> if True:, -> if False:; the same for np.where(c, a, b)

What is no physics stays as it is: texts, annotations, decorators, errors that are raised, what `require` says (but not
what it requires), f-strings, ``__repr__`` and ``__str__``, the argument *strict* of zip, and lines with the comment
``pragma: no mutate``.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any

NOWHERE = "no such case"
"""A text that nothing equals."""
PRAGMA = "pragma: no mutate"
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Pow: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
MASKS: dict[type[ast.operator], type[ast.operator]] = {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
CALLED = {"maximum": "minimum", "max": "min", "ceil": "floor", "any": "all"}
CALLED |= {after: before for before, after in CALLED.items()}
LARGE = 10_000
"""Of a larger constant only the double is tried: one more is no change that a test could notice."""
SENTENCES = ("__repr__", "__str__")
"""Methods that only say something."""
UNCHECKED = ("strict", "repr")
"""Keyword arguments that change no number."""

Place = tuple[ast.AST, str, int | None]
"""A node's parent, the field in which the parent has it, and its index where the field is a list."""
Probe = tuple[str, int, int]
"""A statement or lambda: its module, line and column."""
Change = tuple[str, Place, Any]
"""An operator, where it acts, and the node that it puts there."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file."""

    module: str
    line: int
    span: str
    """Columns of the changed expression."""
    operator: str
    description: str
    """The expression before and after."""
    text: str
    """The source line on which the expression begins."""
    at_import: bool
    """Whether the changed code runs when its module is imported, and not in a function."""
    holder: ast.stmt | ast.Lambda
    """The innermost statement or lambda around the expression."""
    place: Place
    replacement: Any
    root: ast.Module

    @property
    def id(self) -> str:
        """Module, line, columns and operator."""
        return f"{self.module}:{self.line}:{self.span}:{self.operator}:{self.description.rpartition(' -> ')[2]}"

    @property
    def key(self) -> tuple[str, str, str]:
        """What names the mutant also after lines above it have moved: module, source line and description."""
        return self.module, self.text, f"{self.operator}: {self.description}"

    @property
    def probe(self) -> Probe:
        """Where a test is seen to run the mutant."""
        return self.module, self.holder.lineno, self.holder.col_offset

    def falls_in(self, parts: int) -> bool:
        """Return whether the mutant is in the sample of one in *parts*."""
        digest = hashlib.sha256("\0".join(self.key).encode()).digest()
        return int.from_bytes(digest[:8]) % parts == 0

    def compile(self, filename: str) -> CodeType:
        """Return the code of the whole module with this one change."""
        with replaced(self.place, self.replacement):
            return compile(self.root, filename, "exec", dont_inherit=True)


@contextmanager
def replaced(place: Place, node: Any) -> Iterator[None]:
    """Put *node* at *place* of a tree for a while."""
    before = _get(place)
    _put(place, node)
    try:
        yield
    finally:
        _put(place, before)


def mutants(source: str, module: str) -> list[Mutant]:
    """Return the mutants of a file, each once, in the order of its lines.

    >>> [mutant.description for mutant in mutants("def f(a, b): return a + b", "f.py")]
    ['a + b -> a - b', 'a + b -> a', 'a + b -> b']
    """
    root = ast.parse(source)
    lines = source.splitlines()
    found: dict[str, Mutant] = {}
    for seen in _seen(root):
        for change in _changes(seen):
            mutant = _mutant(Source(root, module, lines), change, seen)
            if mutant is not None:
                found.setdefault(mutant.id, mutant)
    return sorted(found.values(), key=lambda mutant: (mutant.line, mutant.id))


@dataclass(frozen=True, slots=True)
class Source:
    """A file, parsed."""

    root: ast.Module
    module: str
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Seen:
    """A node that may be changed: its place, whether it runs at import, and the statement or lambda around it."""

    place: Place
    at_import: bool
    holder: Any


def _mutant(source: Source, change: Change, seen: Seen) -> Mutant | None:
    """Return the mutant of a change, or None if it changes nothing, does not compile or is not wanted.

    *seen* is the whole expression, which the description is about.
    """
    operator, place, replacement = change
    shown = seen.place
    node = _get(shown)
    before, dumped = _shown(node), ast.dump(node)
    located = _located(replacement, node)
    with replaced(place, located):
        after, same = _shown(_get(shown)), ast.dump(_get(shown)) == dumped
    lines = source.lines[node.lineno - 1 : node.end_lineno]
    if same or any(PRAGMA in line for line in lines):
        return None
    last = "" if node.end_lineno == node.lineno else f"{node.end_lineno}."
    mutant = Mutant(
        module=source.module,
        line=node.lineno,
        span=f"{node.col_offset}-{last}{node.end_col_offset}",
        operator=operator,
        description=f"{before} -> {after}",
        text=lines[0].strip(),
        at_import=seen.at_import,
        holder=seen.holder,
        place=place,
        replacement=located,
        root=source.root,
    )
    try:
        mutant.compile(source.module)
    except (SyntaxError, ValueError):
        return None
    return mutant


def _shown(node: Any) -> str:
    """Return a node as one line."""
    if isinstance(node, ast.If):
        return f"if {_shown(node.test)}"
    return " ".join(ast.unparse(node).split())


def _located(replacement: Any, node: Any) -> Any:
    """Give new nodes the position of the one that they stand for."""
    if isinstance(replacement, ast.expr) and not hasattr(replacement, "lineno"):
        ast.fix_missing_locations(ast.copy_location(replacement, node))
    return replacement


def _get(place: Place) -> Any:
    parent, field, index = place
    value = getattr(parent, field)
    return value if index is None else value[index]


def _put(place: Place, node: Any) -> None:
    parent, field, index = place
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


# ---- places


def _seen(root: ast.Module) -> Iterator[Seen]:
    """Yield all nodes that may be changed."""
    waiting = list(_children(root, True, root))
    while waiting:
        seen = waiting.pop()
        yield seen
        waiting.extend(_children(_get(seen.place), seen.at_import, seen.holder))


def _children(node: ast.AST, at_import: bool, holder: ast.AST) -> Iterator[Seen]:
    """Yield what a node has and may be changed."""
    for field in _fields(node):
        inside = field == "body" and isinstance(node, ast.FunctionDef | ast.Lambda)
        around = node if isinstance(node, ast.stmt) or (inside and isinstance(node, ast.Lambda)) else holder
        value = getattr(node, field)
        for index, each in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(each, ast.AST) and not _is_only_said(node, field, index):
                within = each if isinstance(each, ast.stmt) else around
                yield Seen((node, field, index if isinstance(value, list) else None), at_import and not inside, within)


def _fields(node: ast.AST) -> tuple[str, ...]:
    """Return the fields of a node in which something can be changed."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return ()
    if isinstance(node, ast.FunctionDef) and node.name in SENTENCES:
        return ()
    if isinstance(node, ast.keyword) and node.arg in UNCHECKED:
        return ()
    if isinstance(node, ast.If) and _is_for_types(node):
        return ("orelse",)
    return tuple(field for field in node._fields if field not in ("annotation", "returns", "decorator_list", "ctx"))


def _is_for_types(node: ast.If) -> bool:
    return ast.unparse(node.test).endswith("TYPE_CHECKING")


def _is_only_said(node: ast.AST, field: str, index: int) -> bool:
    """Return whether an argument is part of an error's sentence: all but the first one of `require`."""
    called = getattr(node, "func", None)
    return field == "args" and index > 0 and isinstance(called, ast.Name) and called.id == "require"


# ---- operators


def _changes(seen: Seen) -> Iterator[Change]:
    """Yield what the operators make of a node."""
    node = _get(seen.place)
    change = CHANGES.get(type(node))
    if change is not None and not (seen.at_import and isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)):
        yield from change(node, seen.place)  # an | at import joins types


def _of_binary(node: ast.BinOp, place: Place) -> Iterator[Change]:
    if swapped := ARITHMETIC.get(type(node.op)):
        yield "arithmetic", (node, "op", None), swapped()
    if swapped := MASKS.get(type(node.op)):
        yield "logic", (node, "op", None), swapped()
    yield "drop", place, node.left
    if isinstance(node.op, ast.Add | ast.Mult | ast.BitAnd | ast.BitOr):
        yield "drop", place, node.right
    elif isinstance(node.op, ast.Sub):
        yield "drop", place, ast.UnaryOp(ast.USub(), node.right)
    elif isinstance(node.op, ast.Div):
        yield "drop", place, ast.BinOp(ast.Constant(1), ast.Div(), node.right)


def _of_augmented(node: ast.AugAssign, _: Place) -> Iterator[Change]:
    if swapped := (ARITHMETIC | MASKS).get(type(node.op)):
        yield "arithmetic", (node, "op", None), swapped()


def _of_unary(node: ast.UnaryOp, place: Place) -> Iterator[Change]:
    if not isinstance(node.op, ast.UAdd):
        yield "logic" if isinstance(node.op, ast.Not) else "sign", place, node.operand


def _of_comparison(node: ast.Compare, _: Place) -> Iterator[Change]:
    for index, each in enumerate(node.ops):
        yield "compare", (node, "ops", index), COMPARED[type(each)]()
    yield from _cases((node, "left", None))
    for index in range(len(node.comparators)):
        yield from _cases((node, "comparators", index))


def _of_pattern(node: ast.MatchValue, _: Place) -> Iterator[Change]:
    yield from _cases((node, "value", None))


def _cases(place: Place) -> Iterator[Change]:
    """Yield changes of the texts that something is compared with: one, or several in brackets."""
    node = _get(place)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield "case", place, ast.Constant(NOWHERE)
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for index in range(len(node.elts)):
            yield from _cases((node, "elts", index))


def _of_constant(node: ast.Constant, place: Place) -> Iterator[Change]:
    value = node.value
    if isinstance(value, bool):
        yield "constant", place, ast.Constant(not value)
    elif isinstance(value, int | float):
        if abs(value) < LARGE:
            yield "constant", place, ast.Constant(value + 1)
        if value not in (0, 1):
            yield "constant", place, ast.Constant(2 * value)


def _of_logic(node: ast.BoolOp, place: Place) -> Iterator[Change]:
    yield "logic", (node, "op", None), ast.Or() if isinstance(node.op, ast.And) else ast.And()
    for index in range(len(node.values)):
        left = [each for place, each in enumerate(node.values) if place != index]
        yield "drop", place, left[0] if len(left) == 1 else ast.BoolOp(node.op, left)


def _of_choice(node: ast.IfExp, place: Place) -> Iterator[Change]:
    yield "choose", place, node.body
    yield "choose", place, node.orelse


def _of_branch(node: ast.If, _: Place) -> Iterator[Change]:
    for always in () if _is_for_types(node) else (True, False):
        yield "choose", (node, "test", None), ast.copy_location(ast.Constant(always), node.test)


def _of_comprehension(node: Any, _: Place) -> Iterator[Change]:
    for generator in node.generators:
        for index, each in enumerate(generator.ifs):
            yield "drop", (generator, "ifs", index), ast.copy_location(ast.Constant(True), each)


def _of_call(node: ast.Call, _: Place) -> Iterator[Change]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in CALLED:
        field = "attr" if isinstance(node.func, ast.Attribute) else "id"
        yield "call", (node.func, field, None), CALLED[name]
    if name == "where" and len(node.args) == 3:
        for always in (True, False):
            yield "choose", (node, "args", 0), ast.copy_location(ast.Constant(always), node.args[0])


CHANGES: dict[type[ast.AST], Callable[[Any, Place], Iterator[Change]]] = {
    ast.BinOp: _of_binary,
    ast.AugAssign: _of_augmented,
    ast.UnaryOp: _of_unary,
    ast.Compare: _of_comparison,
    ast.MatchValue: _of_pattern,
    ast.Constant: _of_constant,
    ast.BoolOp: _of_logic,
    ast.IfExp: _of_choice,
    ast.If: _of_branch,
    ast.ListComp: _of_comprehension,
    ast.SetComp: _of_comprehension,
    ast.DictComp: _of_comprehension,
    ast.GeneratorExp: _of_comprehension,
    ast.Call: _of_call,
}
