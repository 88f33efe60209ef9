"""How the best design is launched: the frameworks that can, and the command of the one that expresses it best."""

from __future__ import annotations

import shlex

from cosmic import catalog
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError
from cosmic.launching import launch as launching
from cosmic.publishing.contract import Launch

FRAMEWORKS = {"megatron": "Megatron-LM", "torchtitan": "TorchTitan", "deepspeed": "DeepSpeed"}
"""Targets that run a design, and their names; those that ask for the least work by hand come first."""


def is_gpu(point: DesignPoint) -> bool:
    """Return whether the accelerator is one that the frameworks run on."""
    name = point.compute.accelerator
    known = name in catalog.names("accelerators")
    return known and catalog.entry("accelerators", name).get("vendor") in launching.DRIVEN


def launch_of(point: DesignPoint, file: str) -> Launch:
    """Return how to launch a design that is written to *file*: by the framework with the fewest warnings."""
    able: dict[str, launching.Launch] = {}
    reasons: dict[str, None] = {}
    for target in FRAMEWORKS:
        try:
            able[target] = launching.targets[target](point)
        except SpecError as error:
            reasons[_why(error, target)] = None
    if not is_gpu(point):
        name = point.compute.accelerator or "the accelerator"
        return _none(f"they run on GPUs of {' and '.join(launching.DRIVEN)}, and {name} is not one of them")
    if not able:
        return _none("; ".join(reasons))
    chosen = min(able, key=lambda target: len(able[target].warnings))
    said = [f"{_listed([_noted(each, able[each]) for each in able])} can launch it."]
    if len(able) < len(FRAMEWORKS):
        others = [FRAMEWORKS[each] for each in FRAMEWORKS if each not in able]
        said.append(f"{_listed(others)} cannot: {'; '.join(reasons)}.")
    return {
        "target": FRAMEWORKS[chosen],
        "export": f"cosmic export {shlex.quote(file)} --to {chosen}",
        "script": launching.script(able[chosen]).partition("\n")[2],
        "note": " ".join(said),
    }


def _why(error: SpecError, target: str) -> str:
    """Return why a framework cannot launch a design, without its own name: the same reason of several is one."""
    return str(error).replace(f"{target} runs", "they run").replace(f" to {target}", "")


def _noted(target: str, launch: launching.Launch) -> str:
    """Return the name of a framework, with the number of notes on what it does otherwise or leaves to do by hand."""
    notes = len(launch.warnings)
    return FRAMEWORKS[target] + (f" ({notes} note{'' if notes == 1 else 's'})" if notes else "")


def _none(why: str) -> Launch:
    names = _listed(list(FRAMEWORKS.values()))
    return {"target": "", "export": "", "script": "", "note": f"{names} cannot launch it: {why}."}


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
