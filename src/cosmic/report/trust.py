"""How far to trust a study: its inputs and versions, infeasible designs, expected errors, what the model leaves out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import get_args

from cosmic.base.errors import CosmicError
from cosmic.design import catalog_entries
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import is_moe
from cosmic.design.prediction_accuracy import expected_error
from cosmic.design.workload_layer import Task
from cosmic.report.document_types import CommandJson, Failure, Trust
from cosmic.search.design_wording import metric_label
from cosmic.search.search_inputs import Inputs
from cosmic.search.search_loop import Found
from cosmic.search.search_verdict import reason_text, resume_command
from cosmic.search.space.space_files import mapping_space
from cosmic.serving.serving_accuracy import tpot_expectation
from cosmic.simulate.metrics import OF_REQUESTS
from cosmic.simulate.step_evaluation import unknown_metrics

DESIGN_NAME = re.compile(r"([\w.-]+)@([\w.-]+)(?::\d{1,7})?")
"""MODEL@SYSTEM or MODEL@SYSTEM:N."""
ENDING_TEXTS = {
    "trials": "all requested trials are done",
    "exhausted": "every valid design was tried",
    "stalled": "the agent had nothing new to propose",
    "interrupted": "interrupted, or still running",
}


def trust_of(found: Found, point: DesignPoint | None, written_by: Mapping[str, str], created: str) -> Trust:
    """Return the trust section of a study; *point* is the best design, None where no design is feasible."""
    space, trials = found.problem.space, found.trials
    return Trust(
        inputs=[(name, value) for name, value in _trusted_inputs(found, created) if value],
        versions=list(written_by.items()),
        limits=list(
            model_limits(found.problem.space.base if point is None else point, found.problem.engine)
            if found.problem.of_designs
            else _limits_of_engine(found.problem.engine)
        ),
        failures=[
            Failure(reason=reason, label=reason_text(reason), count=count) for reason, count in trials.reasons().items()
        ],
        raw=space.raw,
        valid=space.valid,
        evaluated=trials.evaluated,
        feasible=trials.feasible,
        coverage=coverage_sentence(len(trials), space.valid),
        commands=study_commands(found),
    )


def _trusted_inputs(found: Found, created: str) -> Iterator[tuple[str, str]]:
    inputs = found.inputs
    yield "space", found.problem.space.name
    yield "title", str(inputs.space.get("title", ""))
    yield "source", str(inputs.space.get("source", ""))
    yield "layers searched", ", ".join(found.problem.space.stacks)
    yield "agent", inputs.agent
    yield "settings", ", ".join(f"{name} = {value}" for name, value in inputs.settings.items())
    yield "objectives", ", ".join(f"{name} ({metric_label(name)})" for name in found.problem.objectives)
    yield "constraints", ", ".join(limit.text for limit in found.problem.limits)
    yield "engine", " ".join(filter(None, [inputs.engine, inputs.engine_identity]))
    yield "seed", str(inputs.seed)
    yield "trials requested", f"{inputs.trials:,}"
    yield "ended", ENDING_TEXTS.get(found.stopped, found.stopped)
    yield "identity of the parameter set", inputs.identity
    yield "started", created


def _limits_of_engine(engine: str) -> Iterator[str]:
    """Yield what is to be said of answers that are not COSMIC's."""
    yield f"Every metric is what the engine {engine} answered: COSMIC checked that it is a number, and no more."


def coverage_sentence(seen: int, valid: int) -> str:
    """Return a sentence with the share of the valid designs that was evaluated.

    >>> coverage_sentence(500, 1000), coverage_sentence(1000, 1000)
    ('500 of 1,000 valid designs were tried: 50 %.', 'All 1,000 valid designs were tried.')
    >>> coverage_sentence(12, 10**15)
    '12 of 1.00e+15 valid designs were tried: one in 83,333,333,333,333.'
    """
    if seen >= valid:
        return f"All {valid:,} valid designs were tried."
    number = f"{valid:,}" if valid < 10**12 else f"{float(valid):.2e}"
    sentence = f"{seen:,} of {number} valid designs were tried"
    if not seen:
        return sentence + "."
    part = f"{100 * seen / valid:.2g} %" if seen * 1000 >= valid else f"one in {valid // seen:,}"
    return f"{sentence}: {part}."


def study_commands(found: Found) -> list[CommandJson]:
    """Return the commands that search again, replay, export and continue."""
    commands: list[CommandJson] = [CommandJson(label="search again", command=search_command(found.inputs))]
    if found.path is not None:
        folder = shlex.quote(str(found.path))
        commands += [
            CommandJson(label="run it again and compare bit for bit", command=f"cosmic study replay {folder} --check"),
            CommandJson(label="every trial as a table", command=f"cosmic study export {folder} --to trials.csv"),
        ]
        if found.stopped != "exhausted":
            commands.append(CommandJson(label="continue with more trials", command=resume_command(found)))
    return commands


def space_name(inputs: Inputs) -> str:
    """Return the parameter set as a command line names it: by its name in the catalog, as a design, or a file."""
    name = str(inputs.space.get("name", "space"))
    loadable = name in catalog_entries.entry_names("spaces") or design_settings(name, inputs.identity) is not None
    return name if loadable else f"{name}.yaml"


@lru_cache(maxsize=16)
def design_settings(name: str, identity: str) -> dict[str, str] | None:
    """Return the settings with which the mappings of a design MODEL@SYSTEM:N are the set with this identity.

    None where *name* is no design of the catalog, or where its mappings are not what was searched: anybody may have
    written the name into a study.
    """
    match = DESIGN_NAME.fullmatch(name)
    if match is None or not all(map(catalog_entries.resolve_name, ("models", "systems"), match.groups()[:2])):
        return None
    for settings in ({}, *({"workload.task": task} for task in get_args(Task))):
        with suppress(CosmicError):
            if mapping_space(name, settings).identity == identity:
                return settings
    return None


def _command_settings(inputs: Inputs) -> dict[str, str]:
    """Return what a command sets of the design whose mappings were searched."""
    return design_settings(str(inputs.space.get("name", "")), inputs.identity) or {}


def search_command(inputs: Inputs) -> str:
    """Return the command of the same search."""
    words = ["cosmic", "search", space_name(inputs)]
    words += [word for path, value in _command_settings(inputs).items() for word in ("--set", f"{path}={value}")]
    words += ["--agent", inputs.agent, "-n", str(inputs.trials)]
    for flag, values in (("--objective", inputs.objectives), ("--constraint", inputs.constraints)):
        words += [word for value in values for word in (flag, value)]
    words += [word for name, value in inputs.settings.items() for word in ("--setting", f"{name}={value}")]
    words += ["--stacks", ",".join(inputs.stacks)] if inputs.stacks else []
    words += ["--engine", inputs.engine] if inputs.engine != "analytic" else []
    return shlex.join([*words, "--seed", str(inputs.seed)])


def search_python(inputs: Inputs) -> str:
    """Return Python for the same search and its report."""
    arguments = {
        "agent": inputs.agent,
        "trials": inputs.trials,
        "objectives": list(inputs.objectives),
        "constraints": list(inputs.constraints),
        "stacks": list(inputs.stacks),
        "settings": dict(inputs.settings),
        "engine": inputs.engine,
        "seed": inputs.seed,
    }
    usual = {"constraints": [], "stacks": [], "settings": {}, "engine": "analytic"}
    options = "".join(f", {name}={value!r}" for name, value in arguments.items() if usual.get(name) != value)
    space, settings = repr(space_name(inputs)), _command_settings(inputs)
    imports = "import cosmic\n"
    if settings:
        imports += "from cosmic.search.space.space_files import mapping_space\n"
        space = f"mapping_space({space}, {settings!r})"
    return f"{imports}\nfound = cosmic.search({space}{options})\ncosmic.report(found)"


def model_limits(point: DesignPoint, engine: str) -> Iterator[str]:
    """Yield what the model leaves out for a design like *point*."""
    if point.serving is not None:
        yield from _limits_of_serving(point)
        return
    expected = expected_error(point)
    if expected.error is None:
        yield "No run like this was measured and predicted by this model: its error is not known."
    else:
        made = "in closed form were" if engine == "event" else "were"
        yield (
            f"On {expected.runs} measured runs of this kind ({expected.like}), step times {made} off by"
            f" {100 * expected.error:.0f} % on average. Ratios of similar designs are more accurate than their times."
        )
    name = point.compute.accelerator or "the accelerator"
    if point.compute.provenance == "estimate":
        yield f"No kernels of {name} were measured: its efficiencies are estimates."
    else:
        yield f"Kernel efficiencies of {name} are {point.compute.provenance}, by shape."
    if engine == "event":
        yield "Steps were simulated node by node; identical ranks are simulated once, without stragglers among them."
    else:
        yield "Steps are closed forms: collectives of different axes do not contend for the same links."
    if any(dim.topology == "switch" and dim.oversubscription == 1 for dim in point.network.dims):
        yield "Switches are non-blocking; routing conflicts and congestion from other jobs are left out."
    elif point.network.dims:
        yield "Other jobs on the same network, failed links and routing conflicts are left out."
    yield from _limits_of_workload(point)
    yield "Failures, restarts, checkpoints, data loading and the start of a job are left out: this is the steady state."


def _limits_of_serving(point: DesignPoint) -> Iterator[str]:
    """Yield what the model leaves out for a design that serves a load of requests."""
    expected = tpot_expectation(point)
    engine = point.serving.engine if point.serving else ""
    if expected.error is None:
        yield f"No deployment on {engine} was measured and predicted by this model: its error is not known."
    else:
        yield (
            f"On {expected.runs} measured deployments on {engine}, times per output token were off by"
            f" {100 * expected.error:.0f} % on average. Ratios of similar deployments are more accurate than times."
        )
    yield "Latencies are closed forms of a load that has lasted for long; percentiles are queueing approximations."
    yield "Routers spread requests evenly over the instances of a pool; other jobs on the same machines are left out."
    if is_moe(point.model):
        yield "Tokens are balanced over the experts; with an imbalanced router, the busiest expert bounds the step."
    for metric, why in unknown_metrics(point).items():
        if metric not in OF_REQUESTS and metric != "cost_usd_per_token":
            yield f"The {metric_label(metric)} is unknown: {why}."
    yield "Failures, restarts, loading of weights and time of clients and their network are left out."


def _limits_of_workload(point: DesignPoint) -> Iterator[str]:
    workload = point.workload
    if is_moe(point.model):
        yield "Tokens are balanced over the experts; with an imbalanced router, the busiest expert bounds the step."
    if workload.task == "training" and workload.pp > 1:
        yield "All microbatches take the same time, and so do stages with the same number of layers."
    if workload.task == "prefill":
        yield "A prefill is one batch alone: queueing, and other requests before the first token, are left out."
    if workload.task == "decode":
        yield "A decode step is one token of every sequence at one context length: arrivals are left out."
    for metric, why in unknown_metrics(point).items():
        if metric != "cost_usd_per_token":
            yield f"The {metric_label(metric)} is unknown: {why}."
