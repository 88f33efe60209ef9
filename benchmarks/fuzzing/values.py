"""Awkward values: texts, numbers and files that programs stumble over."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

NUMBERS = (
    *("0", "-1", "1", "2", "3", "7", "1.5", "-0", "-0.0", "0.1", "1e3", "1e-300", "1e308", "1e999", "-1e999", "nan"),
    *("inf", "-inf", "NaN", "1_000", "0x10", "0b11", "0o17", "1e", "1.", ".5", "+5", "--5", "1,000", "½", "٣", "１２"),
    *("2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775809"),
    *("18446744073709551616", "1" + "0" * 40, "9" * 400, "9" * 5000, "1e400", "5e-324", "1/0", "1/3"),
)
TEXTS = (
    *(
        "",
        " ",
        "  \t ",
        "\n",
        "a\nb",
        "\t",
        "a b",
        "-",
        "--",
        "---",
        "-x",
        "--x",
        "=",
        "=1",
        "a=",
        ".",
        "..",
        "/",
        "//",
    ),
    *("*", "?", "[", "]", "{", "}", "{}", "[]", "[[", "[1, 2]", "{a: 1}", "{a}", "a,b", ",", ",,", ":", "a: b", ": :"),
    *(
        "#",
        "# a",
        "'",
        '"',
        "''",
        '""',
        "`",
        "\\",
        "\\n",
        "%s",
        "%d",
        "{0}",
        "{x!r}",
        "$HOME",
        "$(id)",
        ";",
        "|",
        "&",
        "!",
    ),
    *(
        "null",
        "None",
        "~",
        "true",
        "false",
        "yes",
        "no",
        "on",
        "off",
        "True",
        "y",
        "2020-01-01",
        "12:30:45",
        "!!str",
        "&a",
    ),
    *(
        "*a",
        "!x",
        "@",
        "a@b",
        "a@b@c",
        "@@",
        "a@",
        "@b",
        "a@b:",
        "a@b:0",
        "a@b:-1",
        ":8",
        "<<",
        "<",
        "<=",
        "1 <= 2 <= 3",
    ),
    *(
        "ä",
        "é",
        "日本語",
        "🙂",
        "e\u0301",
        "\u202e",
        "abc\u202edef",
        "\u2066x\u2069",
        "\u200f",
        "\u200b",
        "\ufeff",
        "\u2028",
    ),
    *(
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "\r",
        "a\rb",
        "\x07",
        "\x08",
        "\x7f",
        "\x85",
        "\x9b31m",
        "\x01",
        "\x0c",
    ),
    *(
        "\udcff",
        "\udc80abc",
        "a" * 300,
        "ä" * 300,
        "a" * 5000,
        "x" * 100_000,
        "(" * 1000,
        "[" * 1000,
        "{" * 1000,
        "-" * 500,
    ),
    *(
        "a." * 500,
        "a=" * 200,
        "\n" * 300,
        "1+" * 500 + "1",
        "not " * 500 + "true",
        "con",
        "nul",
        "__class__",
        "__proto__",
    ),
)
UNITS = (
    "B",
    "GB",
    "GiB",
    "Gbps",
    "GB/s",
    "TB/s",
    "TFLOP/s",
    "PFLOP/s",
    "s",
    "ms",
    "us",
    "ns",
    "W",
    "USD",
    "",
    "Gb",
    "xB",
)


def awkward(rng: Random) -> str:
    """Return a text that is hardly ever meant."""
    if rng.random() < 0.35:
        return rng.choice(NUMBERS)
    if rng.random() < 0.15:
        return f"{rng.choice(NUMBERS)}{rng.choice(('', ' '))}{rng.choice(UNITS)}"
    if rng.random() < 0.1:
        return "".join(
            chr(rng.choice((rng.randrange(1, 128), rng.randrange(1, 0x2FFF)))) for _ in range(rng.randrange(9))
        )
    return rng.choice(TEXTS)


def near(rng: Random, text: str) -> str:
    """Return *text* with a slip of the pen."""
    place = rng.randrange(len(text) + 1)
    slips: tuple[Callable[[], str], ...] = (
        lambda: text[:place] + text[place + 1 :],
        lambda: text[:place] + text[place : place + 1] * 2 + text[place + 1 :],
        lambda: (
            text[:place]
            + rng.choice(("x", " ", "=", ",", ".", "-", "@", ":", "\x1b", "\n", "é", "0", "9" * 30))
            + text[place:]
        ),
        text.upper,
        lambda: f" {text} ",
        lambda: text + text,
        lambda: text[:place],
    )
    return rng.choice(slips)()


def plain(rng: Random) -> Any:
    """Return an awkward value as files hold it: a number, a text, a list, nothing."""
    values: Sequence[Any] = (
        *(None, True, False, 0, 1, -1, 2, 3, 7, 2**31, 2**63, 2**64, 10**30, 10**400, 0.5, -0.0, 1e-300, 1e308),
        *(float("nan"), float("inf"), -float("inf"), [], {}, [[]], [None], {"": None}, [1, "a"], {"a": {"b": [1]}}),
        *([0] * 50, ["x"] * 2000, {str(place): place for place in range(300)}),
    )
    return rng.choice(values) if rng.random() < 0.7 else awkward(rng)


# ---- files


def _deep(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("x")


def _sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def _unreadable(path: Path) -> None:
    path.write_bytes(b"{}")
    path.chmod(0)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


FILES: dict[str, Callable[[Path], None]] = {
    "missing": lambda path: None,
    "folder": _deep,
    "pipe": os.mkfifo,
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "to_folder": lambda path: path.symlink_to("."),
    "sparse": lambda path: _sparse(path, 2**40),
    "large": lambda path: _sparse(path, 2**28 - 1),
    "binary": lambda path: _write(path, bytes(range(256)) * 8),
    "latin": lambda path: _write(path, "model: gpt3-175b # é\n".encode("latin-1")),
    "utf16": lambda path: _write(path, "model: gpt3-175b\n".encode("utf-16")),
    "empty": lambda path: _write(path, b""),
    "blank": lambda path: _write(path, b"\n \n"),
    "nulls": lambda path: _write(path, bytes(5000)),
    "unreadable": _unreadable,
}
DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/urandom",
    "/dev/stdin",
    "/dev/tty",
    "/proc/self/mem",
    "/",
    "/root",
)


def _linked(target: str, folder: Path) -> str:
    """Return a link to something outside *folder*: what a command adds to the name stays inside."""
    path = folder / (target.strip("/").replace("/", "-") or "root")
    if not os.path.lexists(path):
        path.symlink_to(target)
    return path.name


def awkward_file(rng: Random, folder: Path, ending: str) -> str:
    """Return the path of something that is no ordinary file, made in *folder* where need be."""
    if rng.random() < 0.25:
        return _linked(rng.choice(DEVICES), folder)
    if rng.random() < 0.15:
        return rng.choice(("n" * 300, "d/" * 60 + "x", "no/such/folder/file", "a\nb", "a\x1b[31m", "\udcff", "é"))
    what = rng.choice(tuple(FILES))
    path = folder / f"{what}{ending}"
    if not os.path.lexists(path):
        FILES[what](path)
    return path.name
