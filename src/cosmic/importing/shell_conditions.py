"""Conditions of a shell script: true, false, or unknown where only a run would tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from cosmic.importing.shell_values import DOUBT, UNKNOWN, State
from cosmic.importing.shell_words import HereDocument, Operator, Token

_NUMBERS = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
}
LONGEST_PATTERN = 200


def holds_test(tokens: Sequence[Token], state: State) -> bool | None:
    """Return whether ``[[ … ]]`` holds."""
    words: list[str] = []
    for token in tokens:
        if isinstance(token, Operator):
            words += [token.text] if token.text != "\n" else []
        elif not isinstance(token, HereDocument):
            words.append(state.text(token))
    return holds(["[[", *words, "]]"])


def holds(words: Sequence[str]) -> bool | None:
    """Return whether a test holds, given its words with the brackets; None if it cannot be decided.

    >>> holds(["[", "8", "-gt", "4", "-a", "-n", "x", "]"]), holds(["[[", "fp8", "==", "fp*", "]]"])
    (True, True)
    >>> holds(["[", "-f", "train.py", "]"]) is None
    True
    """
    inner = list(words[1:])
    if words[0] != "test" and inner and inner[-1] in ("]", "]]"):
        inner.pop()
    return _either(inner)


def _either(words: list[str]) -> bool | None:
    parts = [_both(part) for part in _split(words, ("||", "-o"))]
    return True if True in parts else None if None in parts else False


def _both(words: list[str]) -> bool | None:
    parts = [_one(part) for part in _split(words, ("&&", "-a"))]
    return False if False in parts else None if None in parts else True


def _split(words: list[str], signs: tuple[str, ...]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if word in signs and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _one(words: list[str]) -> bool | None:
    if words[:1] == ["!"]:
        found = _one(words[1:])
        return None if found is None else not found
    if len(words) > 2 and words[0] == "(" and words[-1] == ")":
        return _either(words[1:-1])
    if any(UNKNOWN.search(word) or DOUBT.search(word) for word in words):
        return None
    if len(words) <= 1:
        return bool(words and words[0])
    if len(words) == 2:
        return {"-z": words[1] == "", "-n": words[1] != ""}.get(words[0])
    return _compared(*words) if len(words) == 3 else None


def _compared(left: str, sign: str, right: str) -> bool | None:
    if sign in _NUMBERS:
        whole = all(re.fullmatch(r"\s*-?\d{1,18}\s*", each) for each in (left, right))
        return _NUMBERS[sign](int(left), int(right)) if whole else None
    if sign in ("=", "==", "!="):
        if len(right) > LONGEST_PATTERN or right.count("*") > 4:
            return None
        return fnmatchcase(left, right) is (sign != "!=")
    if sign in ("<", ">"):
        return left < right if sign == "<" else left > right
    return None
