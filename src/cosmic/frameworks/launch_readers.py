"""Readers of launches: what somebody's script or configuration says, as the layers of a design file.

A reader takes an `ImportRequest`, a file and what the user says besides, and returns `ImportedLayers`: model, system
and workload as in a design file, what the file does not say, and the arguments that a design does not express, each
with the reason. Nothing in a file is run. `find_stage_ends` turns the layers that a launch gives each stage into the
two fields of a design that say so: those of the first and of the last stage. `find_launch_scale` says how many
accelerators a launch has: from torchrun, srun, mpirun, deepspeed, #SBATCH or WORLD_SIZE.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from pathlib import Path
from typing import Any, Protocol

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.files import LARGEST_BYTES, is_file, read_text
from cosmic.design import catalog_entries
from cosmic.design.loading import load_machine
from cosmic.design.model_layer import Model, Transformer, is_moe
from cosmic.design.systems import read_system as system_entry
from cosmic.design.systems import split_size
from cosmic.frameworks.launch_arguments import NotModelled
from cosmic.frameworks.shell_expansion import DOUBT, UNKNOWN
from cosmic.frameworks.shell_script import ShellScript
from cosmic.workload.pipeline_cut import layers_per_part
from cosmic.workload.precision import RECIPES

# ---- A launch as a design: what somebody's script or configuration achieves, and on what

Tree = dict[str, Any]
DEFAULT_SYSTEM = "dgx-h100"
"""On what a launch runs that does not say."""
DEFAULT_HOST = {"name": "host", "capacity": "256 GB", "bandwidth": "55 GB/s"}
"""What is offloaded to where a system states no outer memory: a share of a host's, over PCIe."""
MOST_BYTES = 4 * 2**20
"""Of a configuration."""
VARIABLE_NAME = re.compile(r"[A-Za-z_]\w*|[0-9]")


class NoteTaker(Protocol):
    """A reader of arguments or keys, which notes what it assumed and what it left out."""

    assumed: list[str]
    not_modelled: list[NotModelled]


@dataclass(frozen=True, slots=True)
class ImportRequest:
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

    def placed(self, scale: LaunchScale, notes: list[str]) -> tuple[str, int]:
        """Return the system with its size, and the number of its accelerators."""
        stem, size = split_size(self.system or DEFAULT_SYSTEM)
        if not self.system:
            notes.append(f"it runs on {DEFAULT_SYSTEM}; say otherwise with --system")
        if catalog_entries.resolve_name("systems", stem) is None and not is_file(stem):
            raise UnknownName.among("--system", stem, "system", catalog_entries.entry_names("systems"))
        if not size and scale.npus is None:
            raise missing_size_error(self.where, scale)
        name = self.system if size else f"{stem}:{scale.npus}"
        npus: int = system_entry(name)["npus"]
        if size and scale.npus not in (None, npus):
            notes.append(f"{npus:,} accelerators as --system says, though {scale.said} are {scale.npus:,}")
        return name, npus

    def resolved(self, model: str | Tree) -> Model:
        """Return a model by its name, path or sizes, with what the user sets."""
        changes = {path: value for path, value in self.overrides.items() if path.startswith("model.")}
        tree = {"model": model, "system": f"{DEFAULT_SYSTEM}:1", "workload": {"sequence": 1, "tp": 1, "cp": 1, "pp": 1}}
        model_read: Model = load_machine(tree, changes).model
        return model_read


@dataclass(frozen=True, slots=True)
class ImportedLayers:
    """What a file says: the layers of a design file, and what is to be said about them."""

    model: str | Tree
    system: str
    workload: Tree
    said: str
    """What the number of accelerators comes from."""
    assumed: tuple[str, ...] = ()
    not_modelled: tuple[NotModelled, ...] = ()

    @classmethod
    def of(cls, model: str | Tree, system: str, workload: Tree, scale: LaunchScale, read: NoteTaker) -> ImportedLayers:
        """Return what was *read*, with what was noted on the way."""
        return cls(model, system, workload, scale.said, tuple(read.assumed), tuple(read.not_modelled))


def readers_by_format() -> Mapping[str, Callable[[ImportRequest], ImportedLayers]]:
    """Return the readers of all formats by name."""
    from cosmic.frameworks import megatron_files  # noqa: PLC0415  they import this module
    from cosmic.frameworks.targets import deepspeed, torchtitan  # noqa: PLC0415

    return {
        "deepspeed": deepspeed.read_deepspeed,
        "megatron": megatron_files.read_megatron,
        "nemo": megatron_files.read_nemo,
        "torchtitan": torchtitan.read_torchtitan,
    }


def read_written_file(request: ImportRequest, suffix: str) -> tuple[str, LaunchScale]:
    """Return the text of a configuration, itself or as a script writes it, and what the script starts it on."""
    text, kind, given = request.text(), suffix[1:].upper(), request.path.suffix.lower()
    if given == suffix:
        return text, NO_SCALE
    require(given in (".sh", ".bash", ""), "file", str(request.path), f"is no {kind} file")
    from cosmic.frameworks.shell_script import follow_script  # noqa: PLC0415  only scripts need it

    script = follow_script(text, request.where, request.defines)
    text = next((document for name, document in script.files.items() if name.endswith(suffix)), "")
    rule = f"the script writes none: give the {kind} file itself"
    require(bool(text), request.where, f"no {kind} file", rule)
    return text, first_launcher_scale(script)


def count_replicas(where: str, npus: int, tp: int, cp: int, pp: int) -> int:
    """Return dp, the accelerators over those of a replica; refuse a mesh that they are no multiple of."""
    rule = f"{npus:,} accelerators do not divide by tp × cp × pp = {tp} × {cp} × {pp}"
    require(npus % (tp * cp * pp) == 0, f"{where} accelerators", npus, rule)
    return npus // (tp * cp * pp)


def parse_defines(settings: list[str]) -> dict[str, str]:
    """Return the variables that texts such as ``NNODES=8`` define.

    >>> parse_defines(["NNODES=8"])
    {'NNODES': '8'}
    """
    defines = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        require(bool(equals) and VARIABLE_NAME.fullmatch(name) is not None, "--define", setting, "write NAME=VALUE")
        defines[name] = value
    return defines


def check_decoder(model: Model, where: str) -> Transformer:
    """Return a model that training frameworks take: a decoder."""
    if not (isinstance(model, Transformer) and model.family == "decoder"):
        raise SpecError(where, model.name, "must be a decoder: other models are not read from launches")
    return model


def stated_etp(model: Model, tp: int, ranks: int, ep: int, etp: int) -> Tree:
    """Return an etp unless it is the one of a design that states none."""
    return {} if not is_moe(model) or etp == gcd(tp, max(1, ranks // ep)) else {"etp": etp}


def stated_gradients(precision: str, in_fp32: bool) -> Tree:
    """Return in what gradients are reduced, unless it is what a design has that does not say."""
    usual = RECIPES[precision].gradient == 4
    return {} if precision == "fp32" or in_fp32 == usual else {"grad_reduce_in_fp32": in_fp32}


# ---- Which layers lie on which stage: what a launch deals out, as the two fields of a design that say so


def find_stage_ends(parts: Sequence[int], stages: int, virtual: int) -> dict[str, int] | None:
    """Return the layers of first and last stage that deal layers out as *parts*; None where no two numbers do.

    >>> find_stage_ends([2, 2, 2, 2], 4, 1), find_stage_ends([3, 4, 4, 1], 4, 1), find_stage_ends([4, 4, 1, 3], 4, 1)
    ({}, {'first_stage_layers': 3, 'last_stage_layers': 1}, None)
    """
    layers, layer_counts = sum(parts), list(parts)
    first, last = (sum(parts[offset % stages :: stages]) for offset in (0, -1))
    for ends in ((None, None), (None, last), (first, None), (first, last)):
        if layers_per_part(layers, stages, virtual, *ends) == layer_counts:
            return name_ends(ends[0], ends[1])
    return None


def name_ends(first: int | None, last: int | None) -> dict[str, int]:
    """Return the layers of first and last stage as the fields of a design, those that are stated."""
    ends = {"first_stage_layers": first, "last_stage_layers": last}
    return {name: count for name, count in ends.items() if count is not None}


# ---- how many accelerators a launch has


NODES = ("nnodes", "num-nodes", "nodes", "N")
PER_NODE = ("nproc-per-node", "num-gpus", "gpus-per-node", "ntasks-per-node", "gres", "gpus-per-task")
RANKS = ("ntasks", "n", "np")
LAUNCHERS = ("torchrun", "deepspeed", "torch.distributed.run", "torch.distributed.launch", "srun", "mpirun", "mpiexec")
MOST_NPUS = 10**7
"""Accelerators: more is a mistake."""


@dataclass(frozen=True, slots=True)
class LaunchScale:
    """A number of accelerators and where it comes from; without a number, why there is none."""

    npus: int | None
    said: str
    """What the source says."""
    why: str = ""


NO_SCALE = LaunchScale(None, "", "the file does not say how many accelerators there are")


def find_launch_scale(script: ShellScript, launcher: Sequence[str]) -> LaunchScale:
    """Return the accelerators that a script starts its launch on; *launcher* is what stands before the program."""
    sources = [(launcher, ""), (script.scheduler, "#SBATCH ")]
    failed: list[LaunchScale] = []
    for words, prefix in sources:
        scale = _launcher_scale(script, list(words), prefix)
        if scale is not None and scale.npus is not None:
            return scale
        failed += [scale] if scale is not None else []
    world = script.state.variables.get("WORLD_SIZE")
    if isinstance(world, str):
        count = _parse_whole(world)
        if count is not None:
            return LaunchScale(count, f"WORLD_SIZE={count}")
    return failed[0] if failed else NO_SCALE


def _launcher_scale(script: ShellScript, words: list[str], prefix: str) -> LaunchScale | None:
    """Return what options of a launcher say; None if they say nothing."""
    options = dict(_launcher_options(words))
    nodes = next((options[name] for name in NODES if name in options), None)
    ranks_per_node = next((options[name] for name in PER_NODE if name in options), None)
    ranks = next((options[name] for name in RANKS if name in options), None)
    if ranks_per_node is not None and nodes is None and not prefix:
        nodes = ("--nnodes (default)", "1") if "torchrun" in " ".join(words) or "standalone" in options else None
    if ranks is not None and (nodes is None or ranks_per_node is None):
        nodes, ranks_per_node = ("", "1"), ranks
    if nodes is None or ranks_per_node is None:
        return None
    spelled = " × ".join(
        f"{name} {_show_unknowns(script, value)}".strip() for name, value in (nodes, ranks_per_node) if name
    )
    product = 1
    for name, value in (nodes, ranks_per_node):
        number = _parse_whole(value.rpartition(":")[2] if name.endswith("gres") else value)
        if number is None:
            return LaunchScale(None, prefix + spelled, _explain_unknown(script, name, value))
        product *= number
    sensible = 0 < product <= MOST_NPUS
    return LaunchScale(product if sensible else None, prefix + spelled, "" if sensible else "is no size of a cluster")


def _launcher_options(words: list[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield options by name, without dashes, each with its spelling and value."""
    for index, raw in enumerate(words):
        word = DOUBT.sub("", raw)
        match = re.fullmatch(r"(--?([A-Za-z][\w-]*))(?:=(.*))?", word, re.DOTALL)
        short = re.fullmatch(r"(-(N|n))(\d+)", word)
        if short is not None:
            yield short[2], (short[1], short[3])
        elif match is not None:
            value = match[3] if match[3] is not None else next(iter(words[index + 1 : index + 2]), "")
            yield match[2].replace("_", "-"), (match[1], DOUBT.sub("", value))


def _parse_whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,9}", text.strip()) else None


def _show_unknowns(script: ShellScript, text: str) -> str:
    return UNKNOWN.sub(lambda mark: f"${script.state.reasons[int(mark[1])][0] or '(…)'}", text)


def _explain_unknown(script: ShellScript, name: str, value: str) -> str:
    """Return why an option gives no number."""
    mark = UNKNOWN.search(value)
    if mark is None:
        return f"{name} {value} is no number of accelerators"
    variable, why = script.state.reasons[int(mark[1])]
    hint = f": give --define {variable}=VALUE" if variable else ""
    return f"{f'${variable} ' if variable else ''}{why}{hint}"


def missing_size_error(where: str, scale: LaunchScale) -> SpecError:
    """Return the error that nobody says how many accelerators there are."""
    rule = f"{scale.why}; or say on what it runs, as in --system dgx-h100:64"
    return SpecError(f"{where} accelerators", scale.said or "nothing", rule)


def first_launcher_scale(script: ShellScript) -> LaunchScale:
    """Return the accelerators of the first launcher in a script."""
    for command in script.commands:
        scale = find_launch_scale(script, command.words)
        if scale.npus is not None or scale.said:
            return scale
    return find_launch_scale(script, ())
