"""Formulas: the docstrings of the functions that compute them, in the order in which a step is composed."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from cosmic.design.collective_layer import algorithms
from cosmic.design.network_layer import topologies
from cosmic.workload.pipeline_schedule import schedules
from generation.interface import signature
from generation.text import fence, page, prose, source_link

INTRODUCTION = """
Every formula stands in the docstring of the function that computes it, with its symbols, assumptions and source; this
page collects them. Functions take numbers or arrays, so that one formula serves one design or a million. Times are in
seconds, sizes in bytes, rates per second. How these make up a step: [evaluation](../explanation/evaluation.md); their errors:
[accuracy](accuracy.md).
"""
FORMULA = re.compile(r"[=×·^]|\w / |\w \* |\b(?:ceil|floor|log2|max|min)\b|\d \w|\(p - 1\)")
"""What marks a docstring with a formula."""


class Chapter(NamedTuple):
    """A chapter of the page: modules, from which all docstrings with a formula are shown, and variants, shown whole."""

    title: str
    modules: tuple[str, ...] = ()
    variants: Mapping[str, Any] | None = None


CHAPTERS = (
    Chapter(
        "GEMM, attention, memory-bound operators",
        ("step.accelerator_rates", "step.gemm", "step.attention", "step.scan", "step.streaming"),
    ),
    Chapter("Topologies", ("design.network_layer", "network.topologies.grid_product"), topologies),
    Chapter(
        "Collective algorithms",
        ("network.collective_rounds", "network.collective_algorithms", "design.collective_layer"),
        algorithms,
    ),
    Chapter(
        "Collectives in several dimensions",
        ("network.mesh_spans", "network.collective_costs", "network.switch_tiers", "network.transport_protocols"),
    ),
    Chapter(
        "Collectives on links",
        (
            *("network.link_graph", "network.link_costs"),
            *("network.synthesis.lower_bounds", "network.synthesis.synthesis_loops"),
            "network.schedules.schedule_checking",
        ),
    ),
    Chapter("Chunks in orders of their own", ("network.themis_chunks",)),
    Chapter(
        "Compute of a rank",
        (
            *("workload.mesh_sizes", "workload.attended_keys", "step.operator_work", "workload.operator_kinds"),
            *("workload.lora_adapters", "workload.precision"),
        ),
    ),
    Chapter(
        "Seconds of operators and collectives",
        (
            *("step.kernel_prices", "step.kernel_costs", "step.kernel_launches"),
            "step.communication",
        ),
    ),
    Chapter("Communication", ("step.communication", "step.bottleneck", "workload.sharding.graph_partition")),
    Chapter("Experts", ("workload.expert_routing",)),
    Chapter(
        "Memory",
        (
            *("step.device_memory", "step.stage_memory", "step.block_memory"),
            *("step.process_memory", "step.tier_traffic"),
        ),
    ),
    Chapter("Pipeline schedules", ("workload.pipeline_schedule",), schedules),
    Chapter(
        "A step",
        (
            *("step.step_profile", "step.stage_time", "step.kernel_launches", "simulate.analytic_step"),
            "simulate.step_evaluation",
        ),
    ),
    Chapter(
        "Serving",
        (
            *("serving.step_price", "serving.continuous_batching", "serving.closed_form"),
            "serving.disaggregated_serving",
        ),
    ),
    Chapter(
        "Sharing a cluster",
        ("cluster.job_requests", "cluster.fleet_sharing", "cluster.fleet_jobs"),
    ),
    Chapter("Money and energy", ("cluster.cluster_cost",)),
)


def make() -> str:
    """Return the page."""
    contents = "\n".join(f"- [{each.title}](#{_anchor(each.title)})" for each in CHAPTERS)
    return page("Formulas", INTRODUCTION, contents, *(_chapter(each) for each in CHAPTERS))


def covered() -> set[str]:
    """Return the modules whose formulas are on the page, including registered variants."""
    named = {f"cosmic.{name}" for chapter in CHAPTERS for name in chapter.modules}
    found = [variant for chapter in CHAPTERS for variant in _own(chapter).values()]
    return named | {variant.__module__ for variant in found}


def with_formulas(package: str) -> set[str]:
    """Return the modules of *package* with an indented formula in a docstring."""
    found = [import_module(each.name) for each in pkgutil.walk_packages(import_module(package).__path__, f"{package}.")]
    described = {module: [module, *(thing for _, thing in _documented(module))] for module in found}
    return {module.__name__ for module, things in described.items() if any(map(_set_apart, things))}


def _set_apart(thing: Any) -> bool:
    lines = inspect.cleandoc(thing.__doc__ or "").splitlines()
    return any(line.startswith("    ") and FORMULA.search(line) for line in lines)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _chapter(chapter: Chapter) -> str:
    parts = [f"## {chapter.title}"]
    for name in chapter.modules:
        module = import_module(f"cosmic.{name}")
        parts += [f"### {name}", prose(module.__doc__), f"In {source_link(module)}."]
        parts += [_entry(label, thing) for label, thing in _documented(module) if _belongs(label, thing, module)]
    for name, variant in _own(chapter).items():
        parts += [f"### {name}", prose(variant.__doc__), f"`{variant.__name__}` in {source_link(variant)}."]
        parts += [_entry(label, thing) for label, thing in _members(variant)]
    return "\n\n".join(part for part in parts if part)


def _own(chapter: Chapter) -> dict[str, Any]:
    """Return the variants of a chapter that belong to the package itself."""
    variants = (chapter.variants or {}).items()
    return {name: variant for name, variant in variants if variant.__module__.startswith("cosmic.")}


def _belongs(label: str, thing: Any, module: ModuleType) -> bool:
    """Return whether *thing* has a formula, or is a method that every variant must have."""
    protocol = getattr(vars(module).get(label.partition(".")[0]), "_is_protocol", False)
    return bool(protocol or FORMULA.search(_plain(thing)))


def _plain(thing: Any) -> str:
    """Return a docstring without its examples and code."""
    return re.sub(r"`[^`]*`|^\s*(?:>>>|\.\.\.) .*\n.*$", "", thing.__doc__ or "", flags=re.MULTILINE)


def _entry(label: str, thing: Any) -> str:
    function = inspect.isfunction(thing)
    shown = [fence(signature(label, thing))] if function else []
    return "\n\n".join([f"#### {label}", *shown, prose(thing.__doc__)])


def _documented(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the documented functions, classes and methods that *module* defines, in its order."""
    for name, thing in vars(module).items():
        if getattr(thing, "__module__", None) != module.__name__ or not getattr(thing, "__doc__", None):
            continue
        plain = inspect.unwrap(thing) if callable(thing) else thing
        if inspect.isclass(plain):
            if not (inspect.getdoc(plain) or "").startswith(f"{name}("):
                yield name, plain
            yield from _members(plain)
        elif inspect.isfunction(plain):
            yield name, plain


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the documented methods and properties that a class itself defines."""
    for name, member in vars(cls).items():
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        function = getattr(function, "fget", None) or getattr(function, "func", None) or function
        function = inspect.unwrap(function) if callable(function) else function
        if inspect.isfunction(function) and function.__doc__ and not name.startswith("__"):
            yield f"{cls.__name__}.{name}", function
