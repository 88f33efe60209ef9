"""How the best design is launched: the programs that can, and the command of the one that expresses it best."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries
from cosmic.design.design_point import DesignPoint
from cosmic.frameworks import launch as launching
from cosmic.report.document_types import LaunchJson
from cosmic.search.design_wording import metric_label

FRAMEWORKS = {"megatron": "Megatron-LM", "torchtitan": "TorchTitan", "deepspeed": "DeepSpeed"}
"""Targets that train a design, and their names; those that ask for the least work by hand come first."""
ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "dynamo": "Dynamo"}
"""Targets that serve a design."""


def is_gpu(point: DesignPoint) -> bool:
    """Return whether the accelerator is one that the frameworks run on."""
    name = point.compute.accelerator
    in_catalog = name in catalog_entries.entry_names("accelerators")
    return in_catalog and catalog_entries.read_entry("accelerators", name).get("vendor") in launching.NCCL_VENDORS


def accelerator_label(point: DesignPoint, metric: str) -> str:
    """Return the label of a metric of each accelerator of a design: a GPU is called one."""
    label = metric_label(metric)
    return label.replace("NPU", "GPU") if is_gpu(point) else label


def launch_of(point: DesignPoint, file: str) -> LaunchJson:
    """Return how to launch a design that is written to *file*: by its engine, or with the fewest warnings."""
    programs = FRAMEWORKS if point.serving is None and point.workload.task == "training" else ENGINES
    engine = "" if point.serving is None else point.serving.engine
    launches: dict[str, launching.Launch] = {}
    reasons: dict[str, None] = {}
    for target in programs:
        try:
            launches[target] = launching.targets[target](point)
        except SpecError as error:
            reasons[_reason_without_name(error, target)] = None
    if not is_gpu(point):
        name = point.compute.accelerator or "the accelerator"
        why = f"they run on GPUs of {' and '.join(launching.NCCL_VENDORS)}, and {name} is not one of them"
        return _no_launch(programs, why)
    if not launches:
        return _no_launch(programs, "; ".join(reasons))
    chosen = min(launches, key=lambda target: (target != engine, len(launches[target].warnings)))
    sentences = [
        f"{join_names([_name_with_notes(programs[each], launches[each]) for each in launches])} can launch it."
    ]
    if len(launches) < len(programs):
        others = [programs[program] for program in programs if program not in launches]
        sentences.append(f"{join_names(others)} cannot: {'; '.join(reasons)}.")
    return LaunchJson(
        target=programs[chosen],
        export=f"cosmic design export {shlex.quote(file)} --to {chosen}",
        script=launching.render_script(launches[chosen]).partition("\n")[2],
        note=" ".join(sentences),
    )


def _reason_without_name(error: SpecError, target: str) -> str:
    """Return why a program cannot launch a design, without its own name: the same reason of several is one."""
    return str(error).replace(f"{target} runs", "they run").replace(f" to {target}", "")


def _name_with_notes(name: str, launch: launching.Launch) -> str:
    """Return the name of a program, with the number of notes on what it does otherwise or leaves to do by hand."""
    notes = len(launch.warnings)
    return name + (f" ({notes} note{'' if notes == 1 else 's'})" if notes else "")


def _no_launch(programs: Mapping[str, str], why: str) -> LaunchJson:
    names = join_names(list(programs.values()))
    return LaunchJson(target="", export="", script="", note=f"{names} cannot launch it: {why}.")


def join_names(names: Sequence[str]) -> str:
    """Return names in a sentence, the last after an *and*."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
