"""Files of designs and spaces: right ones, with something spoilt in the tree or in the text."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

from cosmic.design.design_point import field_patterns
from cosmic.design.plain_data import dump_yaml

from .expressions import condition, expression
from .settings import LARGE, content, path
from .trial import Maker
from .values import awkward, near, plain

Tree = dict[str, Any]
DEEP = "nested deeply"
"""Stands for a tree that is too deep to be walked."""
DEPTH = 5000
QUANTITY, NUMBER = re.compile(r"([\d.]+(?:e[+-]?\d+)?) (\S+)"), re.compile(r"\b\d+\b")
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""Nine lines that unfold into a billion entries."""


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of *tree* with each of its keys."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from places(tree[key])


def spoil(maker: Maker, tree: Tree) -> Tree:
    """Return *tree* with one to three changes."""
    spoilt = copy.deepcopy(tree)
    change = _tweak if maker.chance(0.65) else _change
    for _ in range(maker.rng.choice((1, 1, 1, 2, 3))):
        change(maker, spoilt)
    return spoilt


def _tweak(maker: Maker, tree: Tree) -> None:
    """Change one value to another of its type: such a file is read, and what is in it is worked with."""
    leaves = [(at, key) for at, key in places(tree) if not isinstance(at[key], dict)]
    if leaves:
        at, key = maker.rng.choice(leaves)
        at[key] = like(maker, str(key), at[key])


def like(maker: Maker, key: str, value: Any) -> Any:
    """Return another value of the type of *value*, which stands under *key*."""
    rng = maker.rng
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near_by = (value + 1, max(1, value - 1), value * 2, max(1, value // 2), value * 3, 1, 2, 3, 5, 64)
        return rng.choice((*near_by, *near_by, *near_by, 0, -value, *LARGE))
    if isinstance(value, float):
        return value * rng.choice((0.5, 2.0, 1e3, 1e-3, 1e12, 1e-12, 0.0, -1.0, 1e200))
    if isinstance(value, list):
        return [*value, *value[:1]] if maker.chance(0.5) else rng.sample(value, rng.randrange(len(value) + 1))
    if not isinstance(value, str):
        return value
    if quantity := QUANTITY.fullmatch(value):
        return f"{float(quantity[1]) * rng.choice((0.5, 2.0, 1e3, 1e-3, 1e9, 1e-9, 1e30, 0.0, -1.0))} {quantity[2]}"
    choices = [slot.choices() for name, slot in field_patterns().items() if name.rpartition(".")[2] == key]
    known = sorted({each for some in choices for each in some or ()})
    if known:
        return rng.choice(known)
    return NUMBER.sub(lambda _: rng.choice(("0", "1", "3", "1e9", "64")), value, count=1)


def _change(maker: Maker, tree: Tree) -> None:
    """Change one place of *tree*."""
    rng = maker.rng
    found = list(places(tree))
    if not found:
        tree[awkward(rng)] = plain(rng)
        return
    at, key = rng.choice(found)
    drawn = rng.random()
    if drawn < 0.15:
        del at[key]
    elif drawn < 0.25 and isinstance(at, dict):
        at[rng.choice((near(rng, str(key)), awkward(rng), 1, None, True, 2.5))] = at.pop(key)
    elif drawn < 0.35:
        other, place = rng.choice(found)
        at[key] = copy.deepcopy(other[place])
    elif drawn < 0.4:
        at[key] = rng.choice((_nested(10), _nested(90), DEEP))
    elif drawn < 0.55 and isinstance(at[key], str):
        at[key] = near(rng, at[key])
    elif drawn < 0.65 and isinstance(at[key], int | float):
        at[key] = rng.choice((-at[key], at[key] * 10, at[key] * 10**18, at[key] / 3, str(at[key]), [at[key]], 0, 2**63))
    else:
        at[key] = plain(rng)


def _nested(depth: int) -> Any:
    tree: Any = 1
    for _ in range(depth):
        tree = [tree]
    return tree


def text(maker: Maker, tree: Tree) -> tuple[str | bytes, str]:
    """Return a tree as the content of a file, and the ending of its name; now and then the text is spoilt too."""
    rng = maker.rng
    try:
        if maker.chance(0.15):
            found, ending = json.dumps(tree, default=str), rng.choice((".json", ".yaml"))
        else:
            found, ending = dump_yaml(tree), rng.choice((".yaml", ".yaml", ".yml"))
    except (RecursionError, ValueError, TypeError):  # what the writer does not take is written by hand
        found, ending = repr(tree), ".yaml"
    found = found.replace(f'"{DEEP}"', DEEP).replace(DEEP, "[" * DEPTH + "]" * DEPTH)
    return (garble(maker, found.encode("utf-8", "surrogatepass")), ending) if maker.chance(0.1) else (found, ending)


def garble(maker: Maker, data: bytes) -> bytes:
    """Return bytes that are cut, flipped, repeated or replaced somewhere."""
    rng = maker.rng
    place = rng.randrange(len(data) + 1)
    length = rng.choice((1, 1, 2, 4, 16, 200))
    drawn = rng.randrange(6)
    if drawn == 0:
        return data[:place]
    if drawn == 1:
        return data[:place] + data[place + length :]
    if drawn == 2:
        return data[:place] + data[place : place + length] * rng.choice((2, 50)) + data[place + length :]
    if drawn == 3:
        return data[:place] + rng.randbytes(length) + data[place + length :]
    if drawn == 4:
        odd = rng.choice(
            (
                b"\0",
                b"\t",
                b"\r\n",
                b"\xff",
                b"&a *a ",
                b"!!python/object:os.system ",
                b": ",
                b"- ",
                b"<<: *a\n",
                b"---\n",
            )
        )
        return data[:place] + odd + data[place:]
    flipped = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20)) if data else 0):
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def _file(maker: Maker, tree: Tree) -> str:
    if maker.chance(0.02):
        return maker.write(BOMB, ".yaml")
    return maker.write(*text(maker, tree))


# ---- designs


def designs(maker: Maker) -> list[str]:
    """Return the words of a command that reads a spoilt design."""
    rng = maker.rng
    name = _file(maker, spoil(maker, _by_name(maker) if maker.chance(0.2) else rng.choice(maker.stock.designs)))
    words = rng.choice(
        (
            ["evaluate", name],
            ["evaluate", name],
            ["design", "show", name],
            ["design", "workload", name],
            ["design", "diff", name, "llama3-8b@dgx-h100:8"],
            ["design", "sweep", name, "--vary", "tp=1,2"],
            ["design", "export", name, "--to", rng.choice(("megatron", "torchtitan", "deepspeed", "nccl"))],
        )
    )
    return [*words, *(["--json"] if maker.chance(0.3) else [])]


def _by_name(maker: Maker) -> Tree:
    """Return a short design: names, and some fields."""
    tree: Tree = {"model": "llama3-8b", "system": "dgx-h100:8"}
    for _ in range(maker.rng.randrange(4)):
        layer, _, key = path(maker).partition(".")
        tree[layer] = {key: plain(maker.rng)} if key else plain(maker.rng)
    return tree


# ---- spaces


def spaces(maker: Maker) -> list[str]:
    """Return the words of a command that reads a spoilt parameter set."""
    tree = copy.deepcopy(maker.rng.choice(maker.stock.spaces))
    if maker.chance(0.4):
        _widen(maker, tree)
    return over_space(maker, spoil(maker, tree))


def _widen(maker: Maker, tree: Tree) -> None:
    """Search another field, with values of its type."""
    rng = maker.rng
    name = rng.choice(tuple(field_patterns()))
    slot = field_patterns()[name]
    values = [content(maker, slot) for _ in range(rng.randrange(5))]
    ranges = ({"from": 1, "to": rng.choice((4, 10**9)), "step": 1}, {"powers_of_two": [1, rng.choice((8, 2**200))]})
    tree.setdefault("parameters", {})[name] = values if maker.chance(0.7) else rng.choice(ranges)


def expressions(maker: Maker) -> list[str]:
    """Return the words of a command that reads a parameter set with random expressions."""
    tree = copy.deepcopy(maker.stock.spaces[0])
    for _ in range(maker.rng.choice((1, 1, 2, 4))):
        if maker.chance(0.75):
            tree["constraints"].append(condition(maker.rng))
        else:
            tree["derived"][maker.rng.choice(("workload.dp", "workload.dp", "workload.sequence", "dims.0.latency"))] = (
                expression(maker.rng)
            )
    return over_space(maker, tree)


def over_space(maker: Maker, tree: Tree) -> list[str]:
    """Return the words of a command that reads the parameter set *tree*."""
    rng, name = maker.rng, _file(maker, tree)
    words = rng.choice(
        (
            ["space", "show", name],
            ["space", "count", name],
            ["space", "sample", name, "-n", str(rng.randrange(1, 20))],
            ["space", "schema", name],
            ["search", name, "-n", str(rng.randrange(1, 20)), "--agent", "random", "--out", "found"],
            ["search", name, "-n", "15", "--out", "found"],
            ["study", "tournament", name, "-n", "5", "--seeds", "2", "--agents", "random,genetic"],
        )
    )
    return [*words, *(["--json"] if maker.chance(0.3) else [])]
