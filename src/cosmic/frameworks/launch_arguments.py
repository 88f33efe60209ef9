"""Named arguments of a command line, and keys of a nested configuration (TOML, JSON): checked look-ups.

Both note which names were asked for, what was assumed, and what is not modelled, so that nothing is left out silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any, get_args

from cosmic.base.errors import SpecError, as_key, suggest_names
from cosmic.design.field_facts import Flag, facts_of, flags_of
from cosmic.design.schema import Absent, slots
from cosmic.design.workload_layer import Workload
from cosmic.frameworks.shell_expansion import DOUBT, UNKNOWN

# ---- Named arguments, as a command line or a file has them, and checked look-ups: who reads what is noted

TRUE_WORDS, FALSE_WORDS = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_WHOLE = re.compile(r"[+-]?\d{1,18}(\.0*)?")


@dataclass(frozen=True, slots=True)
class NotModelled:
    """An argument that the design does not express."""

    argument: str
    """As the source writes it, with its value."""
    why: str
    """What the design has in its place, or that it is unknown."""


@dataclass(slots=True)
class NamedArgument:
    """One argument: its words, and how its source spells its name."""

    values: tuple[str, ...]
    spelled: str
    doubt: str = ""
    """The mark of what decides whether it is there at all."""


@dataclass
class NamedArguments:
    """Arguments by name, in the spelling of Megatron-LM: two dashes first, single ones between words.

    What is asked for is noted, so that in the end nothing is left out silently.
    """

    where: str
    given: dict[str, NamedArgument] = field(default_factory=dict)
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
        allowed = tuple(choices)
        if allowed and values[0] not in allowed:
            raise self.error(name, f"must be one of {', '.join(allowed)}{suggest_names(values[0], allowed, shown=0)}")
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
        if len(values) > 1 or (values and values[0].lower() not in (*TRUE_WORDS, *FALSE_WORDS)):
            raise self.error(name, "is a flag and takes no value")
        return not values or values[0].lower() in TRUE_WORDS

    def error(self, name: str, rule: str) -> SpecError:
        """Return the error about an argument: where, its value, the rule."""
        argument = self.given.get(name)
        value: Any = Absent() if argument is None else " ".join(map(self.readable, argument.values)) or True
        return SpecError(f"{self.where} {self.spelled(name)}", value, rule)

    # ------------------------------------------------------------------------------------------- what is unknown

    def known(self, argument: NamedArgument, word: str) -> str:
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


def parse_arguments(words: Sequence[str], where: str, reasons: Sequence[tuple[str, str]]) -> NamedArguments:
    """Return the arguments of a command line; of those that are there twice, the last counts, as in argparse.

    >>> found = parse_arguments(["--bf16", "--lr=1e-4", "--tp", "4", "--tp", "8"], "a.sh", [])
    >>> found.whole("--tp"), found.flag("--bf16"), found.number("--lr")
    (8, True, 0.0001)
    """
    arguments = NamedArguments(where, reasons=reasons)
    current: NamedArgument | None = None
    for raw in words:
        word = DOUBT.sub("", raw)
        if not word.startswith("--") or word == "--":
            if current is None and UNKNOWN.fullmatch(word):
                arguments.known(NamedArgument((), "arguments"), raw)
            if current is not None:
                current.values = (*current.values, raw)
            continue
        spelled, equals, value = word.partition("=")
        if any(letter.isspace() for letter in spelled):
            rule = "is one word with a blank in it, which no argument is: leave out the quotes around both"
            raise SpecError(f"{where} argument", arguments.readable(word), rule)
        mark = DOUBT.search(raw)
        current = NamedArgument((value,) if equals else (), spelled, mark[0] if mark else "")
        arguments.given[spelled.replace("_", "-")] = current
    return arguments


# ---- Checked look-ups in a nested configuration (TOML, JSON): who reads what is noted

TYPE_RULES = {int: "must be a whole number", bool: "must be true or false", str: "must be text"}


class ConfigEntries:
    """The keys of a file by dotted path."""

    def __init__(self, tree: Mapping[str, Any], where: str) -> None:
        self.where = where
        self.values = dict(_flatten_keys(tree, ""))
        self.asked: set[str] = set()
        self.assumed: list[str] = []
        self.not_modelled: list[NotModelled] = []

    def __contains__(self, path: str) -> bool:
        return path in self.values

    def get(self, path: str, default: Any = None) -> Any:
        """Return a value as it is."""
        self.asked.add(path)
        return self.values.get(path, default)

    def whole(self, path: str, default: int | None = None, least: int = 1) -> int | None:
        """Return a whole number; *default* if it is not there."""
        value = self.get(path)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(path, TYPE_RULES[int])
        if value < least:
            raise self.error(path, f"must be at least {least}")
        return value

    def flag(self, path: str, *, default: bool = False) -> bool:
        """Return whether something is switched on."""
        value = self.get(path)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(path, TYPE_RULES[bool])
        return value

    def text(self, path: str, default: str = "", choices: tuple[str, ...] = ()) -> str:
        """Return a text."""
        value = self.get(path)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(path, TYPE_RULES[str])
        if choices and value not in choices:
            raise self.error(path, f"must be one of {', '.join(choices)}{suggest_names(value, choices, shown=0)}")
        return value

    def error(self, path: str, rule: str) -> SpecError:
        """Return the error about a key."""
        return SpecError(f"{self.where} {path}", self.values.get(path, Absent()), rule)

    def leave_out(self, path: str, why: str) -> None:
        """Note that a key, if it is there, is not modelled."""
        self.asked.add(path)
        if path in self.values:
            self.not_modelled.append(NotModelled(f"{path} = {_show_value(self.values[path])}", why))

    def assume(self, sentence: str) -> None:
        """Note something that the file does not say."""
        self.assumed.append(sentence)

    def finish(self, without_cost: re.Pattern[str], effects: Mapping[str, str]) -> None:
        """List what nobody asked for, but for what is off or has no cost."""
        for path, value in self.values.items():
            if path in self.asked or without_cost.fullmatch(path) or value in (None, False, "", [], 0, "none"):
                continue
            self.leave_out(path, effects.get(path, "unknown to COSMIC"))


def _flatten_keys(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        path = f"{prefix}{as_key(key)}"
        if isinstance(value, Mapping) and value:
            yield from _flatten_keys(value, f"{path}.")
        else:
            yield path, value


def _show_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- Flags that are declared beside the fields of a workload


def read_fields(
    source: NamedArguments | ConfigEntries, target: str, known: Mapping[str, Any], *, moe: bool
) -> dict[str, Any]:
    """Return what is *known* of a workload, and the fields that the flags of a framework say as they stand.

    A field that has no effect beside those that are read already is left out; one that the source leaves out has what the
    framework does unless it is told, where that is something else than what a design has.
    """
    tree = dict(known)
    usual = {each.name: each.default for each in fields(Workload)}
    for name, flag in flags_of(Workload, target):
        if not flag.read or not flag.name or name in known:
            continue
        value = _read_flag(source, flag, slots(Workload)[name].hint)
        so_far = SimpleNamespace(**{**usual, **tree})
        if (flag.experts and not moe) or facts_of(Workload)[name].idle(so_far):
            continue
        if value is None and (isinstance(flag.default, bool) or flag.default != usual[name] or usual[name] == 1):
            value = flag.default
        if value is not None:
            tree[name] = value
    return tree


def _read_flag(source: NamedArguments | ConfigEntries, flag: Flag, hint: Any) -> Any:
    """Return the value that a flag has in a source, in a design's words; None if it is not there."""
    if hint is bool:
        return source.flag(flag.name)
    if int in (hint, *get_args(hint)):
        return source.whole(flag.name)
    words = {spelled: value for value, spelled in reversed([*flag.spelled.items()])}
    text = source.text(flag.name, choices=tuple(reversed(words)))
    return words[text] if text else None
