"""``--set PATH=VALUE`` for every field that a design has."""

from __future__ import annotations

import json
import re
from typing import Any, get_args, get_origin

from tests.relations.random_designs import SYSTEMS

from cosmic.base.units import format_quantity
from cosmic.design import catalog_entries, schema
from cosmic.design.design_point import field_patterns

from .stock import TINY
from .trial import Maker
from .values import awkward, near, plain

WHOLE = (1, 2, 4, 8, 16, 64, 128, 1024, 4096, 3, 7)
LARGE = (2**31, 2**53 + 1, 2**63, 10**12, 10**18, 10**30)
REAL = (0.0, 0.25, 0.5, 1.0, 1.5, 1e-9, 1e9, 1e30)


SIZES = (1, 2, 4, 8, 8, 16, 64, 512)


def design(maker: Maker) -> str:
    """Return MODEL@SYSTEM:N, usually of the catalog, and usually of a size that the system can have."""
    rng = maker.rng
    if maker.chance(0.75):
        return f"{rng.choice(catalog_entries.entry_names('models'))}@{rng.choice(SYSTEMS)}:{rng.choice(SIZES)}"
    model, system = (
        rng.choice(catalog_entries.entry_names("models")),
        rng.choice(catalog_entries.entry_names("systems")),
    )
    count = rng.choice((*SIZES, 3, 7, 100, 0, -1, 2**31, 10**20))
    text = f"{model}@{system}" if maker.chance(0.5) else f"{model}@{system}:{count}"
    return near(rng, text) if maker.chance(0.2) else text


def tiny(words: list[str]) -> list[str]:
    """Return the words of a command that writes traces, so that it writes few and small ones."""
    few = [re.sub(r"^([\w.-]+@[\w.-]+)(:\d+)?$", r"\1:4", word) for word in words]
    return [*few, *(word for name, value in TINY.items() for word in ("--set", f"{name}={value}"))]


def path(maker: Maker) -> str:
    """Return the path of a field, in full or short."""
    rng = maker.rng
    found = rng.choice(tuple(field_patterns()))
    while "*" in found:
        found = found.replace("*", str(rng.choice((0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 9, -1))), 1)
    short = found.rpartition(".")[2]
    alike = [each for each in field_patterns() if each.endswith(f".{short}")]
    if maker.chance(0.5) and (maker.chance(0.05) or (len(alike) == 1 and "*" not in alike[0])):
        found = short
    return near(rng, found) if maker.chance(0.03) else found


def content(maker: Maker, slot: schema.FieldSlot) -> Any:
    """Return a value for a field: usually one of its type."""
    rng = maker.rng
    if maker.chance(0.06):
        return plain(rng)
    choices = slot.choices()
    if choices:
        return rng.choice(sorted(choices))
    if slot.dimension is not None:
        amount = rng.choice(REAL) * 10.0 ** rng.randrange(-3, 15)
        return format_quantity(amount, slot.dimension) if maker.chance(0.95) else amount
    if slot.hint is bool:
        return rng.choice((True, False))
    if slot.hint is int:
        return rng.choice((*WHOLE, *WHOLE, *WHOLE, *LARGE, 0, -1))
    if slot.hint is float:
        return rng.choice(REAL)
    if get_origin(slot.hint) is tuple:
        inner = slot._replace(hint=get_args(slot.hint)[0])
        return [content(maker, inner) for _ in range(rng.randrange(4))]
    return rng.choice(("a", "gpt3-175b", "x y", awkward(rng)))


def value(maker: Maker, name: str) -> str:
    """Return a value for the field at a path, as YAML in one line."""
    if maker.chance(0.08):
        return awkward(maker.rng)
    slot = field_patterns().get(".".join("*" if part.isdecimal() else part for part in name.split(".")))
    ends = [each for key, each in field_patterns().items() if key.rpartition(".")[2] == name]
    slot = slot or (ends[0] if ends else None)
    found = plain(maker.rng) if slot is None else content(maker, slot)
    return found if isinstance(found, str) else re.sub(r"\b(\d)e", r"\1.0e", json.dumps(found))  # 1e9 is text in YAML


def setting(maker: Maker) -> str:
    """Return PATH=VALUE."""
    name = path(maker)
    text = f"{name}={value(maker, name)}"
    return near(maker.rng, text) if maker.chance(0.04) else text


def variation(maker: Maker) -> str:
    """Return PATH=A,B for a sweep."""
    name = path(maker)
    return f"{name}={','.join(value(maker, name) for _ in range(maker.rng.randrange(1, 4)))}"


def settings(maker: Maker) -> list[str]:
    """Return the words of a command that takes a design and changes it."""
    rng = maker.rng
    changes = [word for _ in range(rng.choice((1, 1, 1, 2, 3))) for word in ("--set", setting(maker))]
    command = rng.choice(
        ("evaluate", "evaluate", "evaluate", "show", "workload", "diff", "sweep", "export", "generate")
    )
    words = {
        "diff": ["design", "diff", design(maker), design(maker)],
        "sweep": ["design", "sweep", design(maker), "--vary", variation(maker)],
        "export": [
            "design",
            "export",
            design(maker),
            "--to",
            rng.choice(("megatron", "torchtitan", "deepspeed", "nccl")),
        ],
        "show": ["design", "show", design(maker)],
        "workload": ["design", "workload", design(maker)],
        "generate": ["trace", "generate", design(maker), "--out", "t/x"],
    }.get(command, ["evaluate", design(maker)])
    engine = ["--engine", "event"] if command == "evaluate" and maker.chance(0.1) else []
    words = [*words, *changes, *engine, *(["--json"] if maker.chance(0.3) else [])]
    return tiny(words) if command == "generate" else words
