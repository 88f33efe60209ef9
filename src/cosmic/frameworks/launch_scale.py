"""How many accelerators a launch has: from torchrun, srun, mpirun, deepspeed, #SBATCH or WORLD_SIZE."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cosmic.base.errors import SpecError
from cosmic.frameworks.shell_expansion import DOUBT, UNKNOWN
from cosmic.frameworks.shell_script import ShellScript

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
