"""The grammar of derived parameters and constraints: text in, syntax tree out. Nothing is executed.

expression  := choice
choice      := or ["if" or "else" choice]
or          := and {"or" and}            and := not {"and" not}           not := ["not"] comparison
comparison  := sum {("==" | "!=" | "<" | "<=" | ">" | ">=" | ["not"] "in") sum}
sum         := term {("+" | "-") term}   term := factor {("*" | "/" | "//" | "%") factor}
factor      := ["-"] power               power := atom ["**" factor]
atom        := number [unit] | text | "true" | "false" | path | function "(" list ")" | "[" list "]" | "(" choice ")"
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from cosmic.base import units
from cosmic.base.errors import SpecError
from cosmic.base.units import NUMBER, Quantity

MAX_DEPTH = 60
"""The deepest nesting of brackets in an expression; far beyond what a person writes."""
MAX_TOKENS = 400
"""The most tokens in an expression: each may be a level of the tree, which Python walks by recursion."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A number with its unit, a text, or a truth value."""

    value: Quantity | str | bool


@dataclass(frozen=True, slots=True)
class Path:
    """The dotted name of a field; ``*`` stands for each entry of a list."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function applied to its arguments."""

    name: str
    arguments: tuple[Syntax, ...]


Syntax = Literal | Path | Call

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)(?:\s*(?P<unit>[A-Za-zµ]+(?:/[A-Za-zµ]+)?))?
    | (?P<text>"[^"]*"|'[^']*')
    | (?P<path>[A-Za-z_]\w*(?:\.(?:\w+|\*))*)
    | (?P<symbol>\*\*|//|==|!=|<=|>=|[-+*/%<>()\[\],])
    )""",
    re.VERBOSE | re.ASCII,
)
_WORDS = {"if", "else", "and", "or", "not", "in"}
_COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    unit: str | None = None


def parse_expression(text: str) -> Syntax:
    """Return the syntax tree of *text*; a `SpecError` quotes what cannot be understood.

    >>> parse_expression("2 * workload.dp").name
    '*'
    """
    if not isinstance(text, str):
        raise SpecError("expression", text, "must be text")
    return _ExpressionParser(text).whole()


def _split_tokens(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if not match:
            raise SpecError("expression", text, f"cannot be understood from '{text[position:].strip()[:20]}' on")
        kind = match.lastgroup if match.lastgroup != "unit" else "number"
        unit = match["unit"]
        position = match.end()
        if unit in _WORDS:  # "1 if x else 2": a word of the language, not a unit
            unit, position = None, match.end("number")
        content = match[kind or "symbol"]
        tokens.append(_Token("symbol" if content in _WORDS else kind or "symbol", content, unit))
        if len(content) > units.LONGEST_TEXT:
            raise SpecError("expression", text, f"cannot be understood from '{content[:20]}' on")
    return tokens


class _ExpressionParser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _split_tokens(text)
        self.position = 0
        self.depth = 0

    def whole(self) -> Syntax:
        tree = self.choice()
        if self.position < len(self.tokens):
            raise self.error(f"stops making sense at '{self.tokens[self.position].text}'")
        if len(self.tokens) > MAX_TOKENS:
            raise self.error("is too long")
        return tree

    def error(self, rule: str) -> SpecError:
        return SpecError("expression", self.text, rule)

    def peek(self) -> str:
        """Return the next operator or bracket; an empty text if something else comes next."""
        ahead = self.tokens[self.position] if self.position < len(self.tokens) else _Token("end", "")
        return ahead.text if ahead.kind == "symbol" else ""

    def accept(self, *symbols: str) -> str:
        token = self.peek()
        if token and token in symbols:
            self.position += 1
            return token
        return ""

    def expect(self, symbol: str) -> None:
        if not self.accept(symbol):
            raise self.error(f"lacks '{symbol}'")

    def choice(self) -> Syntax:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error("is nested too deeply")
        tree = self.disjunction()
        if self.accept("if"):
            condition = self.disjunction()
            self.expect("else")
            tree = Call("if", (condition, tree, self.choice()))
        self.depth -= 1
        return tree

    def disjunction(self) -> Syntax:
        tree = self.conjunction()
        while self.accept("or"):
            tree = Call("or", (tree, self.conjunction()))
        return tree

    def conjunction(self) -> Syntax:
        tree = self.negation()
        while self.accept("and"):
            tree = Call("and", (tree, self.negation()))
        return tree

    def negation(self) -> Syntax:
        negated = False
        while self.accept("not"):
            negated = not negated
        tree = self.comparison()
        return Call("not", (tree,)) if negated else tree

    def comparison(self) -> Syntax:
        """Parse one comparison, or a chain: ``a < b <= c`` is ``a < b and b <= c``."""
        left = self.sum()
        parts: list[Syntax] = []
        while name := self.accept(*_COMPARISONS, "in", "not"):
            if name == "not":
                self.expect("in")
            right = self.sum()
            call = Call("in" if name in ("in", "not") else name, (left, right))
            parts.append(Call("not", (call,)) if name == "not" else call)
            left = right
        return left if not parts else parts[0] if len(parts) == 1 else Call("and", tuple(parts))

    def sum(self) -> Syntax:
        tree = self.term()
        while name := self.accept("+", "-"):
            right = self.term()
            tree = Call("+", (tree, right if name == "+" else _negate(right)))
        return tree

    def term(self) -> Syntax:
        tree = self.factor()
        while name := self.accept("*", "/", "//", "%"):
            tree = Call(name, (tree, self.factor()))
        return tree

    def factor(self) -> Syntax:
        negative = False
        while self.accept("-"):
            negative = not negative
        tree = self.atom()
        if self.accept("**"):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise self.error("is nested too deeply")
            tree = Call("**", (tree, self.factor()))
            self.depth -= 1
        return _negate(tree) if negative else tree

    def atom(self) -> Syntax:
        if self.accept("("):
            tree = self.choice()
            self.expect(")")
            return tree
        if self.accept("["):
            return Call("list", self.arguments("]"))
        if self.peek() or self.position == len(self.tokens):
            raise self.error(f"lacks a value before '{self.peek()}'" if self.peek() else "ends too early")
        token = self.tokens[self.position]
        self.position += 1
        if token.kind == "number":
            return Literal(self.quantity(token))
        if token.kind == "text":
            return Literal(token.text[1:-1])
        if token.text in ("true", "false"):
            return Literal(token.text == "true")
        return Call(token.text, self.arguments(")")) if self.accept("(") else Path(token.text)

    def quantity(self, token: _Token) -> Quantity:
        if token.unit is None:
            return Quantity(Fraction(token.text), NUMBER)
        try:
            return units.parse_quantity(f"{token.text} {token.unit}")
        except SpecError as error:
            raise self.error(error.rule) from None

    def arguments(self, closing: str) -> tuple[Syntax, ...]:
        listed: list[Syntax] = []
        while not self.accept(closing):
            if listed:
                self.expect(",")
            listed.append(self.choice())
        return tuple(listed)


def _negate(tree: Syntax) -> Syntax:
    return Call("*", (Literal(Quantity(Fraction(-1), NUMBER)), tree))
