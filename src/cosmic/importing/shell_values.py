"""What words of a shell script stand for: variables, arrays, defaults and arithmetic, as far as the script says.

What only a run would tell (a variable that nobody sets, the output of a command) stays in the text as a mark, so that
it matters only where somebody needs that text: a path may be unknown, a degree of parallelism may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from cosmic.errors import SpecError, require, shorten
from cosmic.importing.shell_arithmetic import UnknownNumber, calculate
from cosmic.importing.shell_words import Part, Word, quoted_parts

Value = str | tuple[str, ...]
"""Of a variable, or of an array."""
LONGEST = 2**18
"""Characters that a value may grow to: a few lines that double a variable would fill any memory."""
LONGEST_EDITED, LONGEST_PATTERN = 500, 20
"""Characters of a value that loses a prefix or suffix, and of the pattern: matching takes time."""
DEEPEST = 20
"""Defaults within defaults."""
UNKNOWN = re.compile("\ue000(\\d+)\ue001")
DOUBT = re.compile("\ue002(\\d+)\ue003")
MARKS = re.compile("[\ue000-\ue003]")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_QUOTED_DEFAULT = re.compile(r"([A-Za-z_]\w*|\d):?([-=+])([\"']).*\3", re.DOTALL)
_INDEXED = re.compile(r"([A-Za-z_]\w*)\[([^\]]*)\]")


@dataclass
class State:
    """The variables of a script at one of its lines, and what is not known of them."""

    where: str
    variables: dict[str, Value] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    """Names that the user defines: assignments in the script do not change them."""
    reasons: list[tuple[str, str]] = field(default_factory=list)
    """What marks stand for: a name that could be defined, and why it is not known."""
    asked: list[str] = field(default_factory=list)
    """Names that were asked for and are not known, since somebody emptied the list."""

    def copy(self) -> State:
        """Return a state that can be changed by itself; reasons are shared, as marks count through them."""
        return State(self.where, dict(self.variables), self.fixed, self.reasons, self.asked)

    def assign(self, name: str, value: Value, *, more: bool = False) -> None:
        """Set a variable or, with *more*, add to it."""
        if name in self.fixed:
            return
        old = self.variables.get(name)
        if more and old is not None:
            if isinstance(old, tuple):
                value = (*old, *((value,) if isinstance(value, str) else value))
            else:
                value = old + value if isinstance(value, str) else (old, *value)
        size = len(value) if isinstance(value, str) else sum(map(len, value))
        require(size <= LONGEST, f"{self.where} {name}", value[:40], f"grows beyond {LONGEST:,} characters")
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

    def words(self, word: Word) -> list[str]:
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
            for place, piece in enumerate(split):
                if place:
                    fields.append(current or "")
                    current = piece
                else:
                    current = (current or "") + piece
            if pieces[-1].isspace() and current is not None:
                fields.append(current)
                current = None
        found = fields if current is None else [*fields, current]
        require(sum(map(len, found)) <= LONGEST, self.where, found[0][:40] if found else "", "expands to too much")
        return found

    def takes_quoted_default(self, part: Part) -> bool:
        """Return whether ``${NAME:-"a b"}`` or ``${NAME:+"a b"}`` takes what is quoted, which is one word."""
        match = _QUOTED_DEFAULT.fullmatch(part.text) if part.kind == "variable" else None
        return match is not None and bool(self.variables.get(match[1])) is (match[2] == "+")

    def text(self, word: Word) -> str:
        """Return a word as one text, as an assignment takes it."""
        return "".join(map(self.text_of, word.parts))

    def pieces(self, part: Part) -> str | tuple[str, ...]:
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

    def text_of(self, part: Part, depth: int = 0) -> str:
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
        spelled = "".join(self.text_of(each, depth + 1) for each in quoted_parts(text, self.where))
        try:
            return str(calculate(spelled, self.number, self.where))
        except UnknownNumber as error:
            return error.mark
        except SpecError as error:
            return self.unknown("", f"is $(({text.strip()})), which cannot be read: it {error.rule}")

    def number(self, name: str) -> str:
        """Return the text of a variable in arithmetic, where one that is not set counts as 0 for the shell."""
        return self.variable(name)

    def variable(self, text: str, depth: int = 0) -> str:
        """Return what ``${text}`` expands to."""
        if depth > DEEPEST:
            raise SpecError(self.where, f"${{{shorten(text)}}}", f"has more than {DEEPEST} levels of defaults")
        length = re.fullmatch(r"#([A-Za-z_]\w*)(\[[@*]\])?", text)
        if length is not None:
            return self._length(length[1], array=length[2] is not None)
        match = _INDEXED.match(text) or _NAME.match(text)
        if match is None:
            return self.unknown("", f"is ${{{shorten(text)}}}, which is not read")
        value, rest = self._value(match), text[match.end() :]
        if not rest:
            return self._not_set(match[0]) if value is None else value
        return self._changed(match[0], value, rest, depth)

    def _not_set(self, name: str) -> str:
        return "" if name in ("@", "*") else self.unknown(name, "is set nowhere")

    def _length(self, name: str, *, array: bool) -> str:
        value = self.variables.get(name)
        if value is None or any(UNKNOWN.search(each) for each in ((value,) if isinstance(value, str) else value)):
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
        place = int(index)
        return items[place] if -len(items) <= place < len(items) else ""

    def _changed(self, name: str, value: str | None, rest: str, depth: int) -> str:
        """Return a variable with a default, an alternative, or a change of its text."""
        known = value is None or UNKNOWN.search(value) is None
        operation = next((each for each in (":-", ":=", ":+", ":?", "-", "=", "+", "?") if rest.startswith(each)), None)
        if operation is None:
            return self._edited(name, value, rest)
        other = rest[len(operation) :]
        empty = value is None or (operation[0] == ":" and value == "")
        if not known:
            return value or ""
        if operation[-1] == "+":
            return "" if empty else self._expanded(other, depth)
        if not empty:
            return value or ""
        if operation[-1] == "?":
            return self.unknown(name, "is set nowhere")
        found = self._expanded(other, depth)
        if operation[-1] == "=":
            self.assign(name, found)
        return found

    def _expanded(self, text: str, depth: int) -> str:
        inner = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
        return "".join(self.text_of(each, depth + 1) for each in quoted_parts(inner, self.where))

    def _edited(self, name: str, value: str | None, rest: str) -> str:
        """Return a variable without a prefix or suffix, or in another case; other changes are not read."""
        if value is None:
            return self.unknown(name, "is set nowhere")
        if UNKNOWN.search(value):
            return value
        if rest in (",,", "^^"):
            return value.lower() if rest == ",," else value.upper()
        plain = "$" not in rest and len(rest) <= LONGEST_PATTERN and len(value) <= LONGEST_EDITED
        for sign in ("##", "#", "%%", "%"):
            if plain and rest.startswith(sign):
                cut = _without_prefix if sign[0] == "#" else _without_suffix
                return cut(value, rest[len(sign) :], longest=len(sign) == 2)
        return self.unknown(name, f"is changed by ${{{name}{shorten(rest).strip(chr(39))}}}, which is not read")


def _is_array(name: str) -> bool:
    return name == "@" or (_INDEXED.fullmatch(name) is not None and name.endswith("[@]"))


def _without_prefix(value: str, pattern: str, *, longest: bool) -> str:
    ends = range(len(value), -1, -1) if longest else range(len(value) + 1)
    return next((value[end:] for end in ends if fnmatchcase(value[:end], pattern)), value)


def _without_suffix(value: str, pattern: str, *, longest: bool) -> str:
    starts = range(len(value) + 1) if longest else range(len(value), -1, -1)
    return next((value[:start] for start in starts if fnmatchcase(value[start:], pattern)), value)
