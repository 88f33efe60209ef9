"""Expressions without a value: they hold nowhere, and what cannot be computed is refused when a set is loaded."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.search.learning.agent_memory import Moves
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from tests.batches import check_all
from tests.search.space.spaces import BASE, space

NAMES = ("dp", "tp", "cp", "pp")
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
ORDER: dict[str, Callable[[Any, Any], bool]] = {"<": operator.lt, "==": operator.eq, ">=": operator.ge}
Tree = tuple[Any, ...]


def number(random: Random, depth: int) -> Tree:
    """A random expression of numbers, often one that has no value for some of them."""
    if depth == 0 or random.random() < 0.2:
        return ("name", random.choice(NAMES)) if random.random() < 0.7 else ("literal", random.randrange(4))
    if random.random() < 0.15:
        return ("if", truth(random, depth - 1), number(random, depth - 1), number(random, depth - 1))
    if random.random() < 0.15:
        return (random.choice(("min", "max")), number(random, depth - 1), number(random, depth - 1))
    sign = random.choice([*ARITHMETIC, "/", "%"])
    return (sign, number(random, depth - 1), number(random, 0 if sign == "**" else depth - 1))


def truth(random: Random, depth: int) -> Tree:
    """A random condition."""
    if depth == 0 or random.random() < 0.5:
        return (random.choice(list(ORDER)), number(random, 2), number(random, 1))
    if random.random() < 0.2:
        return ("not", truth(random, depth - 1))
    return (random.choice(("and", "or")), truth(random, depth - 1), truth(random, depth - 1))


def written(tree: Tree) -> str:
    name, *parts = tree
    if name in ("name", "literal"):
        return str(parts[0])
    texts = [written(part) for part in parts]
    if name == "if":
        return f"({texts[1]} if {texts[0]} else {texts[2]})"
    if name in ("min", "max"):
        return f"{name}({', '.join(texts)})"
    return f"(not {texts[0]})" if name == "not" else f"({texts[0]} {name} {texts[1]})"


def worth(tree: Tree, values: dict[str, int]) -> Any:
    """The value of *tree*; None where it has none."""
    name, *parts = tree
    if name == "name":
        return Fraction(values[parts[0]])
    if name == "literal":
        return Fraction(parts[0])
    found = [worth(part, values) for part in parts]
    if name == "if":
        return None if found[0] is None else found[1] if found[0] else found[2]
    if name in ("and", "or"):
        decisive = name == "or"
        return decisive if decisive in found else None if None in found else not decisive
    if None in found:
        return None
    if name == "not":
        return not found[0]
    if name in ORDER:
        return ORDER[name](*found)
    if name in ("min", "max"):
        return {"min": min, "max": max}[name](found)
    if name == "**" and found[1].denominator != 1:
        return None
    try:
        return Fraction(ARITHMETIC[name](*found))
    except ZeroDivisionError:
        return None


def loaded(domains: dict[str, list[int]], trees: list[Tree]) -> ParameterSet | None:
    try:
        return space({f"workload.{name}": values for name, values in domains.items()}, map(written, trees))
    except SpecError:
        return None


@check_all("seed", range(150), tests=3)
def test_counting_sampling_repair_and_moves_agree_with_brute_force(seed: int) -> None:
    random = Random(seed)
    domains = {name: sorted(random.sample((1, 2, 3, 4, 6), random.randint(1, 3))) for name in NAMES}
    trees = [truth(random, 2) for _ in range(random.randint(1, 2))]
    valid = set()
    for indices in product(*(range(len(values)) for values in domains.values())):
        values = {name: domains[name][index] for name, index in zip(NAMES, indices, strict=True)}
        if all(worth(tree, values) is True for tree in trees):
            valid.add(indices)
    found = loaded(domains, trees)
    assert (found is None) == (not valid)
    if found is None:
        return
    assert found.valid == len(valid)
    assert set(map(tuple, np.array(list(found.enumerate())).tolist())) == valid
    rng = np.random.default_rng(seed)
    everything = np.array(list(product(*map(range, found.sizes))), dtype=np.intp)
    inside = found.contains(everything)
    assert {tuple(row) for row in everything[inside].tolist()} == valid
    assert [not found.broken(row) for row in everything] == inside.tolist()
    for rows in (
        found.sample(20, rng),
        found.repair(everything),
        Moves(found).neighbour(found.sample(20, rng), rng),
        Moves(found).neighbourhood(found.sample(1, rng)[0]),
    ):
        assert {tuple(row) for row in rows.tolist()} <= valid


def test_a_constraint_that_never_has_a_value_is_an_error() -> None:
    for text in ("model.layers % 0 == 1", "1 / 0 > 5", "dp / 0 > 5", "dp // (tp - tp) > 5", "9 ** 9 ** 9 > dp"):
        with pytest.raises(SpecError, match="has no value"):
            space({"dp": [1, 2], "tp": [1, 2]}, [text])


def test_a_part_that_decides_alone_needs_no_value_of_the_others() -> None:
    for text in ("tp == 1 or dp / (tp - 1) > 2", "dp / (tp - 1) > 2 or tp == 1"):
        assert space({"tp": [1, 2, 4], "dp": [1, 2, 4]}, [text]).valid == 4


def test_an_invalid_point_says_why() -> None:
    some = space({"tp": [1, 2]}, ["4 / (tp - 1) > 2"])
    assert some.broken(np.array([1])) == {}
    assert (
        "the constraint 4 / (tp - 1) > 2 has no value: it divides by zero"
        in some.broken(np.array([0]))["constraints.0"]
    )
    assert space({"tp": [1, 2]}, ["tp > 1"]).broken(np.array([0])) == {"constraints.0": "breaks the constraint tp > 1"}


def test_a_figure_that_is_not_known_satisfies_no_constraint() -> None:
    tree = {"base": BASE, "parameters": {"compute.accelerator": ["h100-sxm-80gb", "trainium2", "gaudi2"]}}
    assert load_space({**tree, "constraints": ["compute.price < 20 kUSD"]}).valid == 1
    assert load_space({**tree, "constraints": ["not compute.price < 20 kUSD"]}).valid == 1


@pytest.mark.parametrize(
    "text",
    [
        "model.name + 1 == 2",
        "'a' ** 3 == 1",
        "-'a' == 1",
        "true + 1 == 2",
        "'a' < 1",
        "min('a', 1) == 1",
        "dp < 1 < 'a'",
        "sum(network.dims.*.npus) > 'a'",
        "memory.capacity > 5",
        "sum(0, 5 GB, 3 s) > 0",
        "min(0, memory.capacity) > 5",
        "(0 if dp == 1 else memory.capacity) > 5",
        "0 % memory.capacity > 5",
        "not model.name",
        "dp in ['a']",
        "'a' % 2 == 1",
        "'a' // 2 == 1",
        "(1 if dp else 2) == 1",
    ],
)
def test_wrong_types_are_refused_before_anything_is_computed(text: str) -> None:
    with pytest.raises(SpecError):
        space({"dp": [1, 2]}, [text])


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("micro_batch", "1e999", "too large"),
        ("micro_batch", "10 ** 400", "too large"),
        ("micro_batch", "9 ** 9 ** 9", "no value"),
        ("micro_batch", "'a'", "gives a text"),
        ("micro_batch", "dp - 2", "must be at least 1"),
        ("micro_batch", "dp / (dp - 1)", "no value"),
        ("memory.capacity", "1e999 GB", "too large"),
        ("memory.capacity", "0 GB - dp * 1 GB", "must be positive"),
        ("workload.precision", "'nonsense'", "must be one of"),
    ],
)
def test_a_derived_value_that_its_field_cannot_hold_is_refused_when_the_set_is_loaded(
    field: str, text: str, said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        space({"dp": [1, 2]}, derived={field: text})


def test_derived_fields_that_double_each_other_are_refused_in_a_moment() -> None:
    names = ["tp", "cp", "pp", "ep", "sequence", "global_batch"]
    terms = {name: " * ".join([before] * 60) for before, name in zip(["dp", *names], names, strict=False)}
    with pytest.raises(SpecError, match="too long"):
        space({"dp": [1, 2]}, derived=terms)
