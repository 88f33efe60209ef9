"""What words of a shell script stand for: variables, arrays, defaults and arithmetic, as far as the script says.

What only a run would tell (a variable that nobody sets, the output of a command) stays in the text as a mark, so that
it matters only where somebody needs that text: a path may be unknown, a degree of parallelism may not. Arithmetic has
whole numbers, variables with or without ``$``, and the operators of C.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from cosmic.base.errors import SpecError, require, shorten
from cosmic.frameworks.shell_syntax import ShellWord, WordPart, quoted_parts

LARGEST_NUMBER = 2**63 - 1
LONGEST_EXPRESSION = 1000
"""Characters of an expression."""
_TOKEN = re.compile(r"\s*(\ue000\d+\ue001|\d+|[A-Za-z_]\w*|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%()<>!?:])")
_RANKS = {
    sign: rank
    for rank, signs in enumerate(("||", "&&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %"))
    for sign in signs.split()
}
"""How tightly the operators of two numbers bind."""
_DEEPEST = 50


class UnknownNumber(Exception):  # noqa: N818  no error: a number that only a run would tell
    """A part of the expression is not known; *mark* says which."""

    def __init__(self, mark: str) -> None:
        super().__init__(mark)
        self.mark = mark


def evaluate_arithmetic(text: str, variable: Callable[[str], str], where: str) -> int:
    """Return the value of an expression; *variable* gives the text of a name.

    >>> evaluate_arithmetic("2 * (NODES + 1) % 5", {"NODES": "8"}.__getitem__, "a.sh")
    3
    """
    return _ArithmeticReader(text, variable, where).value()


class _ArithmeticReader:
    """Reads an expression from its tokens, of which the next one is the last."""

    def __init__(self, text: str, variable: Callable[[str], str], where: str) -> None:
        self.text, self.variable, self.where, self.depth = text, variable, where, 0
        if len(text.strip()) > LONGEST_EXPRESSION:
            raise self.fail(f"has more than {LONGEST_EXPRESSION:,} characters")
        self.tokens: list[str] = _TOKEN.findall(text)[::-1]
        if "".join(self.tokens[::-1]) != re.sub(r"\s", "", text):
            raise self.fail("is no arithmetic that is read here")

    def fail(self, rule: str) -> SpecError:
        return SpecError(f"{self.where} $(( ))", shorten(self.text), rule)

    def value(self) -> int:
        result = self.choice() if self.tokens else 0
        if self.tokens:
            raise self.fail("is no arithmetic that is read here")
        return result

    def choice(self) -> int:
        condition = self.level(0)
        if not self.accept("?"):
            return condition
        first = self.choice()
        if not self.accept(":"):
            raise self.fail("has a '?' without ':'")
        second = self.choice()
        return first if condition else second

    def level(self, rank: int) -> int:
        """Return the value of what binds at least as tightly as operators of a rank."""
        result = self.power()
        while self.tokens and _RANKS.get(self.tokens[-1], -1) >= rank:
            sign = self.tokens.pop()
            result = self.checked(self.apply(sign, result, self.level(_RANKS[sign] + 1)))
        return result

    def power(self) -> int:
        base = self.sign()
        if not self.accept("**"):
            return base
        exponent = self.power()
        if not 0 <= exponent <= 63 or abs(base) > 2**32:
            raise self.fail("has a power that is too large")
        return self.checked(base**exponent)

    def sign(self) -> int:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.fail("is nested too deeply")
        if self.accept("-"):
            result = -self.sign()
        elif self.accept("+"):
            result = self.sign()
        elif self.accept("!"):
            result = int(not self.sign())
        elif self.accept("("):
            result = self.choice()
            if not self.accept(")"):
                raise self.fail("has a parenthesis that is never closed")
        else:
            result = self.number()
        self.depth -= 1
        return result

    def number(self) -> int:
        if not self.tokens:
            raise self.fail("ends too early")
        token = self.tokens.pop()
        text = token if token[0].isdigit() or UNKNOWN.fullmatch(token) else self.variable(token)
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
        if abs(value) > LARGEST_NUMBER:
            raise self.fail("has a number that is too large")
        return value

    def apply(self, sign: str, first: int, second: int) -> int:
        if sign in "/%":
            if second == 0:
                raise self.fail("divides by 0")
            quotient = abs(first) // abs(second) * (1 if first * second >= 0 else -1)
            return quotient if sign == "/" else first - second * quotient
        if sign in ("<<", ">>") and not 0 <= second <= 63:
            raise self.fail("shifts too far")
        return int(_APPLY[sign](first, second))


_APPLY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "&&": lambda first, second: bool(first and second),
    "||": lambda first, second: bool(first or second),
}


ShellValue = str | tuple[str, ...]
"""Of a variable, or of an array."""
LONGEST_VALUE = 2**18
"""Characters that a value may grow to: a few lines that double a variable would fill any memory."""
LONGEST_EDITED, LONGEST_PATTERN = 500, 20
"""Characters of a value that loses a prefix or suffix, and of the pattern: matching takes time."""
DEEPEST_EXPANSION = 20
"""Defaults within defaults."""
UNKNOWN = re.compile("\ue000(\\d+)\ue001")
DOUBT = re.compile("\ue002(\\d+)\ue003")
MARKS = re.compile("[\ue000-\ue003]")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_QUOTED_DEFAULT = re.compile(r"([A-Za-z_]\w*|\d):?([-=+])([\"']).*\3", re.DOTALL)
_INDEXED = re.compile(r"([A-Za-z_]\w*)\[([^\]]*)\]")


@dataclass
class ShellState:
    """The variables of a script at one of its lines, and what is not known of them."""

    where: str
    variables: dict[str, ShellValue] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    """Names that the user defines: assignments in the script do not change them."""
    reasons: list[tuple[str, str]] = field(default_factory=list)
    """What marks stand for: a name that could be defined, and why it is not known."""
    asked: list[str] = field(default_factory=list)
    """Names that were asked for and are not known, since somebody emptied the list."""

    def copy(self) -> ShellState:
        """Return a state that can be changed by itself; reasons are shared, as marks count through them."""
        return ShellState(self.where, dict(self.variables), self.fixed, self.reasons, self.asked)

    def assign(self, name: str, value: ShellValue, *, append: bool = False) -> None:
        """Set a variable or, with *append*, add to it."""
        if name in self.fixed:
            return
        old = self.variables.get(name)
        if append and old is not None:
            if isinstance(old, tuple):
                value = (*old, *((value,) if isinstance(value, str) else value))
            else:
                value = old + value if isinstance(value, str) else (old, *value)
        size = len(value) if isinstance(value, str) else sum(map(len, value))
        require(size <= LONGEST_VALUE, f"{self.where} {name}", value[:40], f"grows beyond {LONGEST_VALUE:,} characters")
        self.variables[name] = value

    def unknown(self, name: str, why: str) -> str:
        """Return the mark of something that is not known."""
        self.asked.append(name)
        return f"\ue000{self._reason(name, why)}\ue001"

    def doubtful(self, words: Iterable[str], name: str, why: str) -> tuple[str, ...]:
        """Return *words* with the mark of what decides whether they are there."""
        mark = f"\ue002{self._reason(name, why)}\ue003"
        return tuple(f"{word}{mark}" for word in words)

    def _reason(self, name: str, why: str) -> int:
        if (name, why) not in self.reasons[-8:]:
            self.reasons.append((name, why))
        return len(self.reasons) - 1 - self.reasons[::-1].index((name, why))

    # ---------------------------------------------------------------------------------------------- expansion

    def words(self, word: ShellWord) -> list[str]:
        """Return the words that a word expands to: none, one or several."""
        fields: list[str] = []
        current: str | None = None
        for part in word.parts:
            if part.kind == "text" or (part.quoted and not _is_array(part.text)) or self.takes_quoted_default(part):
                current = (current or "") + self.text_of(part)
                continue
            pieces = self.pieces(part)
            if not pieces:
                continue
            if not isinstance(pieces, str):
                current = (current or "") + pieces[0]
                fields += [current, *pieces[1:-1]] if len(pieces) > 1 else []
                current = pieces[-1] if len(pieces) > 1 else current
                continue
            split = pieces.split()
            if pieces[0].isspace() and current is not None:
                fields.append(current)
                current = None
            for index, piece in enumerate(split):
                if index:
                    fields.append(current or "")
                    current = piece
                else:
                    current = (current or "") + piece
            if pieces[-1].isspace() and current is not None:
                fields.append(current)
                current = None
        expanded_words = fields if current is None else [*fields, current]
        require(
            sum(map(len, expanded_words)) <= LONGEST_VALUE,
            self.where,
            expanded_words[0][:40] if expanded_words else "",
            "expands to too much",
        )
        return expanded_words

    def takes_quoted_default(self, part: WordPart) -> bool:
        """Return whether ``${NAME:-"a b"}`` or ``${NAME:+"a b"}`` takes what is quoted, which is one word."""
        match = _QUOTED_DEFAULT.fullmatch(part.text) if part.kind == "variable" else None
        return match is not None and bool(self.variables.get(match[1])) is (match[2] == "+")

    def text(self, word: ShellWord) -> str:
        """Return a word as one text, as an assignment takes it."""
        return "".join(map(self.text_of, word.parts))

    def pieces(self, part: WordPart) -> str | tuple[str, ...]:
        """Return what a part expands to; the words of a quoted array stay apart."""
        if part.quoted and (array := self.array(part.text)) is not None:
            return array
        return self.text_of(part)

    def array(self, name: str) -> tuple[str, ...] | None:
        """Return the words of ``NAME[@]``, none if *name* is not written so."""
        if name == "@":
            return ()
        match = _INDEXED.fullmatch(name)
        if match is None or match[2] != "@":
            return None
        value = self.variables.get(match[1])
        if value is None:
            return (self.unknown(match[1], "is set nowhere"),)
        if isinstance(value, str):
            return tuple(value.split()) if match[1] in self.fixed else (value,)
        return value

    def text_of(self, part: WordPart, depth: int = 0) -> str:
        """Return what a part expands to, as one text."""
        if part.kind == "text":
            return part.text
        if part.kind == "command":
            return self.unknown("", f"is what $({shorten(part.text.strip()).strip(chr(39))}) prints")
        if part.kind == "arithmetic":
            return self.arithmetic(part.text, depth)
        return self.variable(part.text, depth)

    def arithmetic(self, text: str, depth: int = 0) -> str:
        """Return the value of an arithmetic expression as text."""
        spelled = "".join(self.text_of(quoted_part, depth + 1) for quoted_part in quoted_parts(text, self.where))
        try:
            return str(evaluate_arithmetic(spelled, self.variable, self.where))
        except UnknownNumber as error:
            return error.mark
        except SpecError as error:
            return self.unknown("", f"is $(({text.strip()})), which cannot be read: it {error.rule}")

    def variable(self, text: str, depth: int = 0) -> str:
        """Return what ``${text}`` expands to."""
        if depth > DEEPEST_EXPANSION:
            raise SpecError(
                self.where, f"${{{shorten(text)}}}", f"has more than {DEEPEST_EXPANSION} levels of defaults"
            )
        length = re.fullmatch(r"#([A-Za-z_]\w*)(\[[@*]\])?", text)
        if length is not None:
            return self._length(length[1], array=length[2] is not None)
        match = _INDEXED.match(text) or _NAME.match(text)
        if match is None:
            return self.unknown("", f"is ${{{shorten(text)}}}, which is not read")
        value, remainder = self._value(match), text[match.end() :]
        if not remainder:
            return self._not_set(match[0]) if value is None else value
        return self._changed(match[0], value, remainder, depth)

    def _not_set(self, name: str) -> str:
        return "" if name in ("@", "*") else self.unknown(name, "is set nowhere")

    def _length(self, name: str, *, array: bool) -> str:
        value = self.variables.get(name)
        if value is None or any(UNKNOWN.search(element) for element in ((value,) if isinstance(value, str) else value)):
            return self.unknown(name, "is not known")
        if isinstance(value, str):
            return "1" if array else str(len(value))
        return str(len(value)) if array else str(len(value[0]) if value else 0)

    def _value(self, match: re.Match[str]) -> str | None:
        """Return a variable as one text; None if it is not set."""
        if match.re is not _INDEXED:
            value = self.variables.get(match[0])
            return value if value is None or isinstance(value, str) else (value[0] if value else "")
        value = self.variables.get(match[1])
        if value is None:
            return None
        items = (value,) if isinstance(value, str) else value
        if match[2] in ("@", "*"):
            return " ".join(items)
        index = self.arithmetic(match[2])
        if UNKNOWN.search(index):
            return index
        position = int(index)
        return items[position] if -len(items) <= position < len(items) else ""

    def _changed(self, name: str, value: str | None, remainder: str, depth: int) -> str:
        """Return a variable with a default, an alternative, or a change of its text."""
        is_known = value is None or UNKNOWN.search(value) is None
        operation = next(
            (prefix for prefix in (":-", ":=", ":+", ":?", "-", "=", "+", "?") if remainder.startswith(prefix)), None
        )
        if operation is None:
            return self._edited(name, value, remainder)
        default = remainder[len(operation) :]
        empty = value is None or (operation[0] == ":" and value == "")
        if not is_known:
            return value or ""
        if operation[-1] == "+":
            return "" if empty else self._expanded(default, depth)
        if not empty:
            return value or ""
        if operation[-1] == "?":
            return self.unknown(name, "is set nowhere")
        expanded = self._expanded(default, depth)
        if operation[-1] == "=":
            self.assign(name, expanded)
        return expanded

    def _expanded(self, text: str, depth: int) -> str:
        inner = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
        return "".join(self.text_of(quoted_part, depth + 1) for quoted_part in quoted_parts(inner, self.where))

    def _edited(self, name: str, value: str | None, remainder: str) -> str:
        """Return a variable without a prefix or suffix, or in another case; other changes are not read."""
        if value is None:
            return self.unknown(name, "is set nowhere")
        if UNKNOWN.search(value):
            return value
        if remainder in (",,", "^^"):
            return value.lower() if remainder == ",," else value.upper()
        plain = "$" not in remainder and len(remainder) <= LONGEST_PATTERN and len(value) <= LONGEST_EDITED
        for sign in ("##", "#", "%%", "%"):
            if plain and remainder.startswith(sign):
                cut = _remove_prefix if sign[0] == "#" else _remove_suffix
                return cut(value, remainder[len(sign) :], longest=len(sign) == 2)
        return self.unknown(name, f"is changed by ${{{name}{shorten(remainder).strip(chr(39))}}}, which is not read")


def _is_array(name: str) -> bool:
    return name == "@" or (_INDEXED.fullmatch(name) is not None and name.endswith("[@]"))


def _remove_prefix(value: str, pattern: str, *, longest: bool) -> str:
    ends = range(len(value), -1, -1) if longest else range(len(value) + 1)
    return next((value[end:] for end in ends if fnmatchcase(value[:end], pattern)), value)


def _remove_suffix(value: str, pattern: str, *, longest: bool) -> str:
    starts = range(len(value) + 1) if longest else range(len(value), -1, -1)
    return next((value[:start] for start in starts if fnmatchcase(value[start:], pattern)), value)
