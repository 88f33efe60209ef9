"""Named arguments, as a command line or a file has them, and checked look-ups: who reads what is noted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cosmic.design.schema import Absent
from cosmic.errors import SpecError, suggestion
from cosmic.importing.shell_values import DOUBT, UNKNOWN

TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_WHOLE = re.compile(r"[+-]?\d{1,18}(\.0*)?")


@dataclass(frozen=True, slots=True)
class NotModelled:
    """An argument that the design does not express."""

    argument: str
    """As the source writes it, with its value."""
    why: str


@dataclass(slots=True)
class Argument:
    """One argument: its words, and how its source spells its name."""

    values: tuple[str, ...]
    spelled: str
    doubt: str = ""
    """The mark of what decides whether it is there at all."""


@dataclass
class Arguments:
    """Arguments by name, in the spelling of Megatron-LM: two dashes first, single ones between words.

    What is asked for is noted, so that in the end nothing is left out silently.
    """

    where: str
    given: dict[str, Argument] = field(default_factory=dict)
    reasons: Sequence[tuple[str, str]] = ()
    """What the marks in values stand for: a variable's name, and why it is not known."""
    asked: set[str] = field(default_factory=set)
    assumed: list[str] = field(default_factory=list)
    not_modelled: list[NotModelled] = field(default_factory=list)

    # ------------------------------------------------------------------------------------------- look-ups

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def spelled(self, name: str) -> str:
        """Return how the source writes a name."""
        return self.given[name].spelled if name in self.given else name

    def words(self, name: str) -> tuple[str, ...]:
        """Return all values of an argument, known; none if it is not there."""
        self.asked.add(name)
        argument = self.given.get(name)
        if argument is None:
            return ()
        self.known(argument, argument.doubt)
        return tuple(self.known(argument, word) for word in argument.values)

    def text(self, name: str, choices: Iterable[str] = ()) -> str | None:
        """Return the value of an argument; None if it is not there."""
        values = self.words(name)
        if name not in self.given:
            return None
        if len(values) != 1:
            raise self.error(name, "takes one value")
        known = tuple(choices)
        if known and values[0] not in known:
            raise self.error(name, f"must be one of {', '.join(known)}{suggestion(values[0], known, shown=0)}")
        return values[0]

    def whole(self, name: str, *, least: int = 1) -> int | None:
        """Return a whole number; None if it is not there."""
        text = self.text(name)
        if text is None:
            return None
        if _WHOLE.fullmatch(text) is None:
            raise self.error(name, "must be a whole number")
        value = int(text.partition(".")[0])
        if value < least:
            raise self.error(name, f"must be at least {least}")
        return value

    def number(self, name: str) -> float | None:
        """Return a number; None if it is not there."""
        text = self.text(name)
        try:
            return None if text is None else float(text)
        except ValueError:
            raise self.error(name, "must be a number") from None

    def flag(self, name: str) -> bool:
        """Return whether a flag is there; a value of true or false is accepted."""
        values = self.words(name)
        if name not in self.given:
            return False
        if len(values) > 1 or (values and values[0].lower() not in (*TRUE, *FALSE)):
            raise self.error(name, "is a flag and takes no value")
        return not values or values[0].lower() in TRUE

    def error(self, name: str, rule: str) -> SpecError:
        """Return the error about an argument: where, its value, the rule."""
        argument = self.given.get(name)
        value: Any = Absent() if argument is None else " ".join(map(self.readable, argument.values)) or True
        return SpecError(f"{self.where} {self.spelled(name)}", value, rule)

    # ------------------------------------------------------------------------------------------- what is unknown

    def known(self, argument: Argument, word: str) -> str:
        """Return a word of an argument that somebody needs; it must not depend on what only a run would tell."""
        for kind in (UNKNOWN, DOUBT):
            if (mark := kind.search(word)) is not None:
                name, why = self.reasons[int(mark[1])]
                raise SpecError(
                    f"{self.where} {argument.spelled}", self.readable(word), f"{self.why(name, why)}: {self.hint(name)}"
                )
        return word

    def why(self, name: str, why: str) -> str:
        """Return why a variable is not known."""
        return f"${name} {why}" if name else why

    def hint(self, name: str) -> str:
        """Return how to make a variable known."""
        return f"give --define {name}=VALUE" if name else "give the variable that holds it by --define NAME=VALUE"

    def readable(self, word: str) -> str:
        """Return a word with the names of variables in place of marks."""
        plain = DOUBT.sub("", word)
        return UNKNOWN.sub(lambda mark: f"${self.reasons[int(mark[1])][0] or '(…)'}", plain)

    # ------------------------------------------------------------------------------------------- what is left

    def shown(self, name: str) -> str:
        """Return an argument as its source has it."""
        argument = self.given[name]
        sign = " " if argument.spelled.startswith("-") else " = "
        values = " ".join(map(self.readable, argument.values))
        return f"{argument.spelled}{sign}{values}" if values else argument.spelled

    def leave_out(self, name: str, why: str) -> None:
        """Note that an argument, if it is there, is not modelled."""
        self.asked.add(name)
        if name in self.given:
            self.not_modelled.append(NotModelled(self.shown(name), why))

    def assume(self, sentence: str) -> None:
        """Note something that the source does not say."""
        self.assumed.append(sentence)


def parse_words(words: Sequence[str], where: str, reasons: Sequence[tuple[str, str]]) -> Arguments:
    """Return the arguments of a command line; of those that are there twice, the last counts, as in argparse.

    >>> found = parse_words(["--bf16", "--lr=1e-4", "--tp", "4", "--tp", "8"], "a.sh", [])
    >>> found.whole("--tp"), found.flag("--bf16"), found.number("--lr")
    (8, True, 0.0001)
    """
    found = Arguments(where, reasons=reasons)
    current: Argument | None = None
    for raw in words:
        word = DOUBT.sub("", raw)
        if not word.startswith("--") or word == "--":
            if current is None and UNKNOWN.fullmatch(word):
                found.known(Argument((), "arguments"), raw)
            if current is not None:
                current.values = (*current.values, raw)
            continue
        spelled, equals, value = word.partition("=")
        if any(letter.isspace() for letter in spelled):
            rule = "is one word with a blank in it, which no argument is: leave out the quotes around both"
            raise SpecError(f"{where} argument", found.readable(word), rule)
        mark = DOUBT.search(raw)
        current = Argument((value,) if equals else (), spelled, mark[0] if mark else "")
        found.given[spelled.replace("_", "-")] = current
    return found
