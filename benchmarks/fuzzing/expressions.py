"""Expressions of the grammar of parameter sets: with sense, without, and nearly expressions."""

from __future__ import annotations

from random import Random

from .values import awkward, near

NUMBERS = (
    *("tp", "pp", "dp", "npus", "workload.micro_batch", "sequence", "global_batch", "network.dims.0.npus", "layers"),
    *("1", "2", "3", "0", "0.5", "-1", "1e9", "1e300"),
)
RATES = ("450 GB/s", "network.dims.0.bandwidth", "1 Tbps", "0 GB/s", "network.dims.0.bandwidth * 2", "100 GB / 2 s")
AMOUNTS = ("10 GB", "2 s", "memory.capacity", "5 us", *RATES)
"""Quantities with units."""
TEXTS = ('"none"', "'full'", "recompute", "network.dims.0.topology", '"ring"', "precision", '""', '"é"')
TRUTHS = ("true", "false", "sequence_parallel", "gated", "dropout")
STARS = ("network.dims.*.npus", "network.dims.*.bandwidth", "collective.algorithms.*", "network.dims.*.topology")
ODD = (
    "step_s",
    "memory_bytes",
    "nothing",
    "a.b.c",
    "workload",
    "network.dims",
    "network.dims.9.npus",
    "model.name",
    "base",
)
ARITHMETIC = ("+", "-", "*", "/", "//", "%", "**")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
FUNCTIONS = ("product", "sum", "min", "max", "all", "any", "abs", "len", "eval", "product")
DEPTH = 4


def number(rng: Random, depth: int = 0) -> str:
    """Return an expression that is a number, mostly."""
    drawn = rng.random()
    if depth >= DEPTH or drawn < 0.35:
        return rng.choice(NUMBERS) if rng.random() < 0.98 else anything(rng, depth)
    if drawn < 0.75:
        return _in_brackets(rng, f"{number(rng, depth + 1)} {rng.choice(ARITHMETIC)} {number(rng, depth + 1)}")
    if drawn < 0.85:
        return f"({number(rng, depth + 1)})"
    if drawn < 0.95:
        inner = rng.choice(
            (STARS[0], STARS[0], f"{number(rng, depth + 1)}, {number(rng, depth + 1)}", number(rng, depth + 1), "")
        )
        return f"{rng.choice(FUNCTIONS[:4])}({inner})"
    return f"({number(rng, depth + 1)} if {truth(rng, depth + 1)} else {number(rng, depth + 1)})"


def _in_brackets(rng: Random, text: str) -> str:
    return f"({text})" if rng.random() < 0.7 else text


def truth(rng: Random, depth: int = 0) -> str:
    """Return an expression that is true or false, mostly."""
    drawn = rng.random()
    if depth >= DEPTH or drawn < 0.1:
        return rng.choice(TRUTHS)
    if drawn < 0.55:
        return f"{number(rng, depth + 1)} {rng.choice(COMPARISONS)} {number(rng, depth + 1)}"
    if drawn < 0.6:
        return f"{rng.choice(RATES)} {rng.choice(COMPARISONS)} {rng.choice(RATES)}"
    if drawn < 0.65:
        return f"{rng.choice(TEXTS)} {rng.choice(COMPARISONS)} {rng.choice(TEXTS)}"
    if drawn < 0.75:
        return _in_brackets(rng, f"{truth(rng, depth + 1)} {rng.choice(('and', 'or'))} {truth(rng, depth + 1)}")
    if drawn < 0.82:
        return f"not ({truth(rng, depth + 1)})"
    if drawn < 0.92:
        kind = rng.choice((number, number, anything))
        inside = ", ".join(kind(rng, depth + 1) for _ in range(rng.randrange(4)))
        return f"{kind(rng, depth + 1)} {rng.choice(('in', 'not in'))} [{inside}]"
    return f"{rng.choice(('all', 'any'))}({truth(rng, depth + 1)}, {truth(rng, depth + 1)})"


def anything(rng: Random, depth: int = 0) -> str:
    """Return an expression of any type, or no type at all."""
    drawn = rng.random()
    if depth >= DEPTH or drawn < 0.4:
        return rng.choice((*NUMBERS, *AMOUNTS, *TEXTS, *TRUTHS, *STARS, *ODD))
    if drawn < 0.6:
        return number(rng, depth + 1)
    if drawn < 0.75:
        return truth(rng, depth + 1)
    if drawn < 0.8:
        return f"{rng.choice(FUNCTIONS)}({anything(rng, depth + 1)})"
    operator = rng.choice((*ARITHMETIC, *COMPARISONS, "and", "or", "in", "not in"))
    return f"{anything(rng, depth + 1)} {operator} {anything(rng, depth + 1)}"


def _or_worse(rng: Random, text: str) -> str:
    drawn = rng.random()
    if drawn < 0.04:
        return near(rng, text)
    return awkward(rng) if drawn < 0.06 else text


def condition(rng: Random) -> str:
    """Return a constraint."""
    return _or_worse(rng, truth(rng) if rng.random() < 0.85 else anything(rng))


def expression(rng: Random) -> str:
    """Return the value of a derived field."""
    return _or_worse(rng, number(rng) if rng.random() < 0.85 else anything(rng))
