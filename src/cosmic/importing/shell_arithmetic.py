"""Arithmetic of a shell: whole numbers, variables with or without ``$``, the operators of C."""

from __future__ import annotations

import re
from collections.abc import Callable

from cosmic.errors import SpecError, shorten

LARGEST = 2**63 - 1
LONGEST = 1000
"""Characters of an expression."""
_TOKEN = re.compile(r"\s*(\ue000\d+\ue001|\d+|[A-Za-z_]\w*|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%()<>!?:])")
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_DEEPEST = 50


class UnknownNumber(Exception):  # noqa: N818  no error: a number that only a run would tell
    """A part of the expression is not known; *mark* says which."""

    def __init__(self, mark: str) -> None:
        super().__init__(mark)
        self.mark = mark


def calculate(text: str, variable: Callable[[str], str], where: str) -> int:
    """Return the value of an expression; *variable* gives the text of a name.

    >>> calculate("2 * (NODES + 1) % 5", {"NODES": "8"}.__getitem__, "a.sh")
    3
    """
    return _Reader(text, variable, where).value()


class _Reader:
    def __init__(self, text: str, variable: Callable[[str], str], where: str) -> None:
        self.text, self.variable, self.where = text, variable, where
        self.depth = 0
        self.tokens = self._tokens()

    def _tokens(self) -> list[str]:
        found, at = list[str](), 0
        text = self.text.strip()
        if len(text) > LONGEST:
            raise self.fail(f"has more than {LONGEST:,} characters")
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.fail("is no arithmetic that is read here")
            found.append(match[1])
            at = match.end()
        return found[::-1]

    def fail(self, rule: str) -> SpecError:
        return SpecError(f"{self.where} $(( ))", shorten(self.text), rule)

    def value(self) -> int:
        found = self.choice() if self.tokens else 0
        if self.tokens:
            raise self.fail("is no arithmetic that is read here")
        return found

    def choice(self) -> int:
        condition = self.level(0)
        if not self.accept("?"):
            return condition
        first = self.choice()
        if not self.accept(":"):
            raise self.fail("has a '?' without ':'")
        second = self.choice()
        return first if condition else second

    def level(self, place: int) -> int:
        if place == len(_LEVELS):
            return self.power()
        left = self.level(place + 1)
        while self.tokens and self.tokens[-1] in _LEVELS[place]:
            sign = self.tokens.pop()
            left = self.checked(self.apply(sign, left, self.level(place + 1)))
        return left

    def power(self) -> int:
        left = self.sign()
        if not self.accept("**"):
            return left
        exponent = self.power()
        if not 0 <= exponent <= 63 or abs(left) > 2**32:
            raise self.fail("has a power that is too large")
        return self.checked(left**exponent)

    def sign(self) -> int:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.fail("is nested too deeply")
        try:
            if self.accept("-"):
                return -self.sign()
            if self.accept("+"):
                return self.sign()
            if self.accept("!"):
                return int(not self.sign())
            return self.atom()
        finally:
            self.depth -= 1

    def atom(self) -> int:
        if not self.tokens:
            raise self.fail("ends too early")
        token = self.tokens.pop()
        if token == "(":
            found = self.choice()
            if not self.accept(")"):
                raise self.fail("has a parenthesis that is never closed")
            return found
        if token.startswith("\ue000"):
            raise UnknownNumber(token)
        text = token if token[0].isdigit() else self.variable(token)
        if text.startswith("\ue000"):
            raise UnknownNumber(text)
        if re.fullmatch(r"\s*[+-]?\d{1,19}\s*", text) is None:
            raise SpecError(f"{self.where} {token}", text, "must be a whole number in arithmetic")
        return self.checked(int(text))

    def accept(self, token: str) -> bool:
        if self.tokens and self.tokens[-1] == token:
            self.tokens.pop()
            return True
        return False

    def checked(self, value: int) -> int:
        if abs(value) > LARGEST:
            raise self.fail("has a number that is too large")
        return value

    def apply(self, sign: str, left: int, right: int) -> int:
        if sign in "/%":
            if right == 0:
                raise self.fail("divides by 0")
            quotient = abs(left) // abs(right) * (1 if left * right >= 0 else -1)
            return quotient if sign == "/" else left - right * quotient
        if sign in ("<<", ">>"):
            if not 0 <= right <= 63:
                raise self.fail("shifts too far")
            return left << right if sign == "<<" else left >> right
        return _APPLY[sign](left, right)


_APPLY: dict[str, Callable[[int, int], int]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "<": lambda left, right: int(left < right),
    ">": lambda left, right: int(left > right),
    "<=": lambda left, right: int(left <= right),
    ">=": lambda left, right: int(left >= right),
    "==": lambda left, right: int(left == right),
    "!=": lambda left, right: int(left != right),
    "&&": lambda left, right: int(bool(left and right)),
    "||": lambda left, right: int(bool(left or right)),
}
