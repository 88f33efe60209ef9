"""A launch as a design: what somebody's script or configuration achieves, and on what.

    found = import_launch("train.sh", "megatron", system="dgx-h100:64")
    found.point                  a design, as `load_machine` gives one
    found.assumed                what the file does not say
    found.not_modelled           arguments that the design does not express, each with the reason

Nothing in a file is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import gcd
from pathlib import Path
from typing import Any, Protocol

from cosmic import catalog
from cosmic.catalog.systems import split_size
from cosmic.catalog.systems import system as system_entry
from cosmic.design.model import Model, Transformer, is_moe
from cosmic.errors import SpecError, UnknownName, require
from cosmic.files import LARGEST_BYTES, is_file, read_text
from cosmic.importing.arguments import NotModelled
from cosmic.importing.scale import Scale, needs_size
from cosmic.loading.designs import load_machine

Tree = dict[str, Any]
SYSTEM = "dgx-h100"
"""On what a launch runs that does not say."""
HOST = {"name": "host", "capacity": "256 GB", "bandwidth": "55 GB/s"}
"""What is offloaded to where a system states no outer memory: a share of a host's, over PCIe."""
MOST_BYTES = 4 * 2**20
"""Of a configuration."""
DEFINE = re.compile(r"[A-Za-z_]\w*|[0-9]")


class Noted(Protocol):
    """A reader of arguments or keys, which notes what it assumed and what it left out."""

    assumed: list[str]
    not_modelled: list[NotModelled]


@dataclass(frozen=True, slots=True)
class Request:
    """A file, and what the user says besides."""

    path: Path
    origin: str
    system: str = ""
    model: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """By full path."""
    defines: Mapping[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """What the file is called in messages."""
        return self.path.name

    def text(self) -> str:
        """Return the text of the file."""
        text = read_text(self.path, "file", min(MOST_BYTES, LARGEST_BYTES))
        require("\0" not in text, "file", str(self.path), "is no text")
        require(bool(text.strip()), "file", str(self.path), "is empty")
        return text

    def stated(self, path: str) -> bool:
        """Return whether the user sets a field of the design."""
        return path in self.overrides

    def placed(self, scale: Scale, notes: list[str]) -> tuple[str, int]:
        """Return the system with its size, and the number of its accelerators."""
        stem, size = split_size(self.system or SYSTEM)
        if not self.system:
            notes.append(f"it runs on {SYSTEM}; say otherwise with --system")
        if catalog.known_as("systems", stem) is None and not is_file(stem):
            raise UnknownName.among("--system", stem, "system", catalog.names("systems"))
        if not size and scale.npus is None:
            raise needs_size(self.where, scale)
        name = self.system if size else f"{stem}:{scale.npus}"
        npus: int = system_entry(name)["npus"]
        if size and scale.npus not in (None, npus):
            notes.append(f"{npus:,} accelerators as --system says, though {scale.said} are {scale.npus:,}")
        return name, npus

    def resolved(self, model: str | Tree) -> Model:
        """Return a model by its name, path or sizes, with what the user sets."""
        changes = {path: value for path, value in self.overrides.items() if path.startswith("model.")}
        tree = {"model": model, "system": f"{SYSTEM}:1", "workload": {"sequence": 1, "tp": 1, "cp": 1, "pp": 1}}
        model_read: Model = load_machine(tree, changes).model
        return model_read


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file says: the layers of a design file, and what is to be said about them."""

    model: str | Tree
    system: str
    workload: Tree
    said: str
    """What the number of accelerators comes from."""
    assumed: tuple[str, ...] = ()
    not_modelled: tuple[NotModelled, ...] = ()

    @classmethod
    def of(cls, model: str | Tree, system: str, workload: Tree, scale: Scale, read: Noted) -> Reading:
        """Return what was *read*, with what was noted on the way."""
        return cls(model, system, workload, scale.said, tuple(read.assumed), tuple(read.not_modelled))


def formats() -> Mapping[str, Callable[[Request], Reading]]:
    """Return the readers of all formats by name."""
    from cosmic.importing import deepspeed, megatron_files, nemo, torchtitan  # noqa: PLC0415  they import this module

    return {
        "deepspeed": deepspeed.read,
        "megatron": megatron_files.read,
        "nemo": nemo.read,
        "torchtitan": torchtitan.read,
    }


def parse_defines(settings: list[str]) -> dict[str, str]:
    """Return the variables that texts such as ``NNODES=8`` define.

    >>> parse_defines(["NNODES=8"])
    {'NNODES': '8'}
    """
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        require(bool(equals) and DEFINE.fullmatch(name) is not None, "--define", setting, "write NAME=VALUE")
        found[name] = value
    return found


def check_layers(model: Model, where: str) -> Transformer:
    """Return a model that training frameworks take: a decoder."""
    if not (isinstance(model, Transformer) and model.family == "decoder"):
        raise SpecError(where, model.name, "must be a decoder: other models are not read from launches")
    return model


def usual_etp(model: Model, tp: int, ranks: int, ep: int, etp: int) -> Tree:
    """Return an etp unless it is the one of a design that states none."""
    return {} if not is_moe(model) or etp == gcd(tp, max(1, ranks // ep)) else {"etp": etp}
