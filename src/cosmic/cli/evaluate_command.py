"""`cosmic evaluate`: one design, by our engines or by one that a user brings, and the changes that would help it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.base.errors import BackendError, require
from cosmic.base.files import check_writable
from cosmic.cli.console import (
    TIME_UNITS,
    Design,
    Json,
    Prices,
    Settings,
    draw_bar,
    emit_json,
    emit_table,
    format_seconds,
    print_sentences,
    terminal_columns,
)
from cosmic.cli.output_streams import FAILED, doing, emit, is_terminal
from cosmic.cli.value_completion import complete_engines

if TYPE_CHECKING:
    from cosmic.cli.answers.design_answers import UserEngineAnswer
    from cosmic.design.design_point import DesignPoint
    from cosmic.design.prediction_accuracy import Range
    from cosmic.search.advice.design_advice import Advised, Change
    from cosmic.search.mapping.design_completion import CompletedDesign
    from cosmic.simulate.events.simulation_result import SimulationResult
    from cosmic.simulate.metrics import Metrics, Outcome
    from cosmic.simulate.user_engines import UserEngine


# ---- `cosmic evaluate`: one design


def evaluate(
    design: Design,
    settings: Settings = [],  # noqa: B006  typer copies it
    prices: Prices = None,
    engine: Annotated[
        str,
        typer.Option(
            help="analytic: closed forms; event: simulates its traces; or an engine that you bring.",
            autocompletion=complete_engines(),
        ),
    ] = "analytic",
    timeline: Annotated[
        Path | None, typer.Option(help="Write the step's timeline to this file, for Perfetto or Chrome.")
    ] = None,
    advice: Annotated[
        bool, typer.Option("--advice", help="With --json: also what would help most, or make it run.")
    ] = False,
    json: Json = False,
) -> None:
    """Print the time, utilisation, memory and cost of a design, what bounds it and what would help most."""
    from cosmic.design.catalog_parts import quotes_override  # noqa: PLC0415  heavy
    from cosmic.design.loading import model_assumptions, parse_overrides  # noqa: PLC0415  heavy
    from cosmic.evaluation import evaluate as run  # noqa: PLC0415  heavy
    from cosmic.search.design_wording import design_in_words, search_command_of  # noqa: PLC0415
    from cosmic.search.mapping.design_completion import complete_design  # noqa: PLC0415  heavy
    from cosmic.simulate.metrics import Infeasible  # noqa: PLC0415  heavy
    from cosmic.simulate.step_evaluation import metrics_as_simulated  # noqa: PLC0415  heavy
    from cosmic.simulate.user_engines import engine_of  # noqa: PLC0415  heavy

    if (brought := engine_of(engine)) is not None:
        require(timeline is None, "--timeline", str(timeline), f"{engine} leaves none")
        require(not advice, "--advice", advice, f"is found in closed form, not by {engine}")
        evaluate_with_user_engine(brought, design, {**quotes_override(prices), **parse_overrides(settings)}, json=json)
        return
    if timeline is not None:
        check_writable(timeline, "--timeline")
    overrides = {**quotes_override(prices), **parse_overrides(settings)}
    loaded = complete_design(design, overrides)
    point = loaded.point
    notes = _notes(design, overrides, point)
    assumed = model_assumptions(design, overrides)
    asked: dict[str, Any] = {
        "point": point,
        "source": design,
        "settings": overrides,
        "engine": engine,
        "assumptions": assumed,
        "notes": notes,
    }
    base = run(point)  # improvements are found in closed form, with either engine
    if isinstance(base, Infeasible):
        if json:
            changes = _collect_advice(design, overrides, point, None) if advice else None
            _emit_evaluation(base, changes, asked)
        else:
            words = [*(f"note: {note}" for note in notes), *assumed_in_words(assumed), ""]
            emit([design_in_words(point), *(f"cannot run: {reason}" for reason in base.reasons), *words])
            _print_advice(design, overrides, point, None)
        raise typer.Exit(FAILED)
    outcome = base
    simulated = None
    if engine == "event" and point.serving is not None:
        doing("simulating the requests")
        answer = run(point, engine)
        if isinstance(answer, Infeasible):
            raise BackendError(f"the event engine refuses what the closed form accepts: {'; '.join(answer.reasons)}")
        outcome = answer
    elif engine == "event":
        from cosmic.simulate.events.design_simulation import (  # noqa: PLC0415  heavy
            simulate_design,
            simulate_step,
        )

        doing("simulating the step")
        simulated = simulate_step(point) if timeline is None else simulate_design(point)
        outcome = metrics_as_simulated(base, simulated)
    if timeline is not None:
        (_write_timeline if point.serving is None else _write_requests)(timeline, point, simulated)
    if json:
        changes = _collect_advice(design, overrides, point, base) if advice else None
        _emit_evaluation(outcome, changes, asked, loaded)
    else:
        remarks = [*(f"note: {note}" for note in notes), *assumed_in_words(assumed)]
        _print_evaluation(
            point, outcome, [*loaded.mapping_in_words(search_command_of(design, settings, prices)), *remarks]
        )
        emit([""])
        _print_advice(design, overrides, point, base)


def _emit_evaluation(
    outcome: Outcome, changes: list[Advised] | None, asked: dict[str, Any], loaded: CompletedDesign | None = None
) -> None:
    """Print what came of a design as JSON."""
    from cosmic.search.evaluated_design import (  # noqa: PLC0415  text needs none
        CompletedMapping,
        EvaluationQuestion,
        with_question,
    )

    mapping = CompletedMapping() if loaded is None else CompletedMapping(loaded.suggested, loaded.searched)
    emit_json(with_question(outcome, EvaluationQuestion(**asked, mapping=mapping, changes=changes)))


def _notes(design: str, overrides: dict[str, Any], point: DesignPoint) -> list[str]:
    """Return what is to be said of a design: fields without effect, links, and that it is not on sale."""
    from cosmic.report.network_description import network_notes  # noqa: PLC0415  heavy
    from cosmic.search.design_wording import sale_notes  # noqa: PLC0415  heavy

    return [*_without_effect(design, overrides, point), *network_notes(point), *sale_notes(point)]


def _without_effect(design: str, overrides: dict[str, Any], point: DesignPoint) -> list[str]:
    """Return which fields that a user stated have no effect, and why.

    What a file states just as it would be without the file, nobody meant to change: COSMIC's own files are complete.
    """
    from cosmic.design.design_point import full_path  # noqa: PLC0415  heavy
    from cosmic.design.loading import stated_fields, stated_memory  # noqa: PLC0415  heavy

    stated = stated_fields(design, overrides) | stated_memory(design, overrides)
    if not stated:
        return []
    from cosmic.search.advice.ineffective_fields import find_ineffective_fields  # noqa: PLC0415  heavy

    overridden = {*map(full_path, overrides)}
    meant = {
        path
        for path in stated
        if _states_a_difference(point, path) or any(f"{path}.".startswith(f"{at}.") for at in overridden)
    }
    ineffective = find_ineffective_fields(point, meant)
    return [f"{path.removeprefix('workload.')} has no effect: {reason}" for path, reason in ineffective.items()]


def _states_a_difference(point: DesignPoint, path: str) -> bool:
    """Return whether a file states something else than what would be without it."""
    from cosmic.design import schema  # noqa: PLC0415  heavy
    from cosmic.design.catalog_parts import outer_tiers  # noqa: PLC0415  heavy
    from cosmic.design.memory_layer import Memory, MemoryTier, Placement  # noqa: PLC0415  heavy
    from cosmic.design.workload_layer import Workload  # noqa: PLC0415  heavy

    parent, _, key = path.rpartition(".")
    layer = {"workload": Workload, "memory": Memory, "memory.placement": Placement}.get(parent)
    if layer is not None:
        return bool(schema.get_field(point, path) != schema.slots(layer)[key].default)
    known = tuple(
        schema.read_value(MemoryTier, outer_tier, "memory.tiers") for outer_tier in outer_tiers(point.node.name)
    )
    return point.memory.tiers != known


def _collect_advice(design: str, overrides: dict[str, Any], point: DesignPoint, base: Metrics | None) -> list[Advised]:
    """Return what would help most; what would make the design run, if it does not achieve *base*."""
    from cosmic.search.advice.design_advice import advise  # noqa: PLC0415  heavy

    doing("looking for what would help")
    return advise(design, overrides, point, base)


def _print_advice(design: str, overrides: dict[str, Any], point: DesignPoint, base: Metrics | None) -> None:
    from cosmic.search.advice.design_advice import advise  # noqa: PLC0415  heavy

    print_advice(design, point, advise(design, overrides, point, base), base)


def assumed_in_words(assumed: Sequence[str]) -> list[str]:
    """Return what was assumed about the model as a line, none if nothing was."""
    return [f"assumed: {'; '.join(assumed)}"] if assumed else []


def _write_timeline(path: Path, point: DesignPoint, simulated: SimulationResult | None) -> None:
    """Write the timeline of a step: the simulated one or, where there is none, that of the closed form."""
    from cosmic.simulate.events.simulation_timeline import timeline_of_result  # noqa: PLC0415  heavy
    from cosmic.simulate.schedule_timeline import draw_design_timeline  # noqa: PLC0415  heavy
    from cosmic.simulate.step_timeline import write_timeline  # noqa: PLC0415  heavy

    doing("writing the timeline")
    write_timeline(
        draw_design_timeline(point) if simulated is None else timeline_of_result(simulated, point), path, "--timeline"
    )


def _write_requests(path: Path, point: DesignPoint, _: SimulationResult | None) -> None:
    """Write the timeline of a design that serves a load: its requests, simulated."""
    from cosmic.serving.deployment import deployment_of  # noqa: PLC0415  heavy
    from cosmic.serving.request_simulation import simulate_load  # noqa: PLC0415  heavy
    from cosmic.serving.serving_timeline import write_serving_timeline  # noqa: PLC0415  heavy
    from cosmic.simulate.metrics import Infeasible  # noqa: PLC0415  heavy

    doing("simulating the requests")
    simulated = simulate_load(deployment_of(point), noting=True)
    if not isinstance(simulated, Infeasible):
        write_serving_timeline(simulated, path, "--timeline")


def _print_evaluation(point: DesignPoint, metrics: Metrics, about: list[str]) -> None:
    from cosmic.search.advice.design_advice import explain_bound  # noqa: PLC0415  heavy
    from cosmic.search.design_wording import design_in_words  # noqa: PLC0415
    from cosmic.simulate.step_evaluation import expected_in_words  # noqa: PLC0415  heavy
    from cosmic.step.process_memory import format_probability, has_process  # noqa: PLC0415  heavy

    emit(
        [
            design_in_words(point),
            *(_step_in_words(point, metrics) if point.serving is None else _served_in_words(point, metrics)),
            expected_in_words(metrics),
            explain_bound(point, metrics),
            *about,
            "",
        ]
    )
    parts = [(name, value) for name, value in metrics.breakdown.items() if value > 0]
    rows = [
        [name, format_seconds(value), f"{100 * value / metrics.step_s:.1f} %", draw_bar(value / metrics.step_s)]
        for name, value in parts
    ]
    emit_table("", ["step" if point.serving is None else "decode step", "time", "share", ""], rows)
    emit([""])
    capacity = point.memory.left_bytes
    kept = [(name, value) for name, value in metrics.memory.items() if value > 0]
    rows = [[name, f"{value / 2**30:.2f} GiB", draw_bar(value / capacity)] for name, value in kept]
    stages = point.workload.pp
    where = f", on stage {metrics.memory_stage + 1} of {stages}" if stages > 1 else ""
    rows.append(["total", f"{metrics.memory_used_bytes / 2**30:.2f} GiB", f"of {capacity / 2**30:.4g} GiB{where}"])
    emit_table("", ["memory", "size", ""], rows)
    if has_process(point) and metrics.fits is not None and (shown := metrics.memory_range) is not None:
        low, high = (f"{size / 2**30:.3g}" for size in (shown.p05, shown.p95))
        emit([f"fits with {format_probability(metrics.fits)} (P5–P95 {low}–{high} GiB)"])
    if len(metrics.memory_tiers) > 1:
        emit(["", "tiers of memory, for each accelerator", *describe_tiers(metrics.memory_tiers)])
    emit(["", *_costs_in_words(metrics)])


def describe_tiers(tiers: dict[str, Any]) -> list[str]:
    """Return a line for each tier, for people."""
    from cosmic.step.tier_traffic import GIB, TOTAL_KEYS  # noqa: PLC0415  heavy

    lines = []
    for name, tier in tiers.items():
        parts = ", ".join(f"{tier[key] / GIB:.3g} {key}" for key in tier if key not in TOTAL_KEYS)
        moved = f"; {tier['traffic_bytes'] / GIB:.4g} GiB cross its link in a step" if tier["traffic_bytes"] else ""
        lines.append(
            f"{name}: {tier['used_bytes'] / GIB:.4g} of {tier['capacity_bytes'] / GIB:.4g} GiB"
            f"{f' ({parts})' if parts else ''}{moved}"
        )
    return lines


def _step_in_words(point: DesignPoint, metrics: Metrics) -> list[str]:
    """Return the lines about a step, and what is trained in it: a batch that nobody stated grows with the machine."""
    work = point.workload
    each = f" × {work.sequence:,}" if metrics.counted == "tokens" else ""
    batch = f"{work.global_batch:,}{each} {metrics.counted}"
    return [
        f"{format_seconds(metrics.step_s)} per step ({format_seconds_range(metrics.step_s_range)})"
        f" · {metrics.throughput_per_s:,.0f} {metrics.counted}/s · {100 * metrics.mfu:.1f} % MFU"
        f" · {100 * metrics.hfu:.1f} % HFU · {metrics.provenance}",
        *([f"global batch {batch}"] if work.task == "training" else []),
    ]


def _served_in_words(point: DesignPoint, metrics: Metrics) -> list[str]:
    """Return the lines about requests under a load."""
    from cosmic.search.design_wording import load_in_words  # noqa: PLC0415

    phrases = [load_in_words(point.serving.load)] if point.serving else []
    times = [("TTFT", metrics.ttft_s, metrics.ttft_p95_s), ("TPOT", metrics.tpot_s, metrics.tpot_p95_s)]
    latencies = [f"{name} {format_seconds(mean or 0)} (P95 {format_seconds(high or 0)})" for name, mean, high in times]
    if metrics.goodput_per_s is not None:
        latencies.append(f"{metrics.goodput_per_s:,.3g} requests/s within their limits")
    rates = [
        f"{metrics.tokens_per_s:,.0f} tokens/s",
        f"{metrics.tokens_per_s_per_npu or 0:,.4g} per NPU",
        f"{metrics.tokens_per_s_per_user or 0:,.4g} per user",
        f"{100 * metrics.mfu:.1f} % MFU",
        metrics.provenance,
    ]
    return [*phrases, " · ".join(latencies), " · ".join(rates)]


def _costs_in_words(metrics: Metrics) -> list[str]:
    """Return the lines about dollars and joules; what is unknown is said to be, with the reason."""
    from cosmic.simulate.metrics import OF_TOKENS  # noqa: PLC0415  heavy

    network = "network unknown" if metrics.network_usd is None else f"network {metrics.network_usd:,.0f}"
    alone = network if metrics.network_usd is None else f"{network} USD"
    bought = f"{metrics.cost_usd:,.0f} USD ({network})" if metrics.cost_usd is not None else f"unknown ({alone})"
    counted = metrics.counted
    one_of_them = metrics.cost_usd_per_token if counted == "tokens" else metrics.cost_usd_per_sample
    million = "unknown" if one_of_them is None else f"{1e6 * one_of_them:.3g} USD"
    each, one = ("step", metrics.energy_j) if metrics.ttft_p95_s is None else ("token", metrics.energy_j_per_token)
    joules = "unknown" if one is None else f"{one:.3g} J"
    absent = OF_TOKENS if counted == "samples" else ()  # the first line counts samples
    reasons = [f"unknown: {metric}, as {why}" for metric, why in metrics.unknown.items() if metric not in absent]
    return [
        f"to buy {bought}",
        f"per million {counted} {million} · per {each} {joules}",
        *_training_run_in_words(metrics),
        *reasons,
    ]


def _training_run_in_words(metrics: Metrics) -> list[str]:
    """Return the line about a training run, if it has a length."""
    if metrics.train_days is None or metrics.goodput is None:
        return []
    phrases = [f"trained in {metrics.train_days:,.1f} days", f"goodput {100 * metrics.goodput:.1f} %"]
    if metrics.train_usd is not None:
        phrases.append(f"{metrics.train_usd / 1e6:,.3g} M USD")
    if metrics.train_energy_j is not None:
        phrases.append(f"{metrics.train_energy_j / 3.6e9:,.0f} MWh")
    return [" · ".join(phrases)]


def format_seconds_range(quantiles: Range) -> str:
    """Return the range of nine measurements in ten, both ends in one unit.

    >>> from cosmic.design.prediction_accuracy import Range
    >>> format_seconds_range(Range(1.251, 1.36, 1.42, 1.5, 1.632)), format_seconds_range(Range(9e-4, 1e-3, 1.1e-3, 1.2e-3, 1.3e-3))
    ('P5–P95 1.25–1.63 s', 'P5–P95 0.9–1.3 ms')
    """
    unit, worth = next((each for each in TIME_UNITS if quantiles.p50 >= each[1]), ("ns", 1e-9))
    return f"P5–P95 {quantiles.p05 / worth:.3g}–{quantiles.p95 / worth:.3g} {unit}"


# ---- Changes of a design for people to read, each with the command that tries it

INDENT = "         "
"""Before what belongs to the line above."""


def print_advice(source: str, point: DesignPoint, changes: Sequence[Advised], base: Metrics | None) -> None:
    """Print what to do, then what to buy."""
    done, bought = ([change for change in changes if change[0].kind == kind] for kind in ("action", "purchase"))
    runs = base is not None
    if done:
        emit(["what would help most" if runs else "what would make it run, fastest first"])
        _print_changes(source, point, done, base)
    else:
        what = "what would help most: no move, nor two together, is faster"
        print_sentences([what if runs else "no move, nor two together, makes it run"])
    if bought:
        emit(["", "what to buy"])
        _print_changes(source, point, bought, base)


def _print_changes(source: str, point: DesignPoint, changes: Iterable[Advised], base: Metrics | None) -> None:
    from cosmic.search.design_wording import evaluate_command_of  # noqa: PLC0415  heavy

    for change, settings in changes:
        number = format_seconds(change.step_s) if change.speedup is None else f"{change.speedup:.2f}×"
        line = f"{number.ljust(len(INDENT) - 2)}  {change_in_words(point, change)}"
        print_sentences([line + (f" ({_condition_in_words(change, base)})" if change.condition else "")])
        emit(break_command(evaluate_command_of(source, settings), terminal_columns() if is_terminal() else None))


def _condition_in_words(change: Change, base: Metrics | None) -> str:
    """Return the condition of a change; for latency, with what becomes of it."""
    if base is None or "latency" not in change.condition:
        return change.condition
    return f"{change.condition}: {format_seconds(base.step_s)} → {format_seconds(change.step_s)} per token"


def change_in_words(point: DesignPoint, change: Change) -> str:
    """Return what a change changes, each field with both values."""
    from cosmic.design import schema  # noqa: PLC0415  heavy
    from cosmic.search.advice.design_advice import write_field  # noqa: PLC0415  heavy

    rates = [path for path in change.settings if path.startswith("compute.")]
    parts = []
    for path, value in change.settings.items():
        if path not in rates[1:]:  # all rates grow alike
            old = write_field(point, path, schema.get_field(point, path))
            parts.append(f"{_label_of_field(path)} {_effect_in_words(old)} → {_effect_in_words(value)}")
    return ", ".join(parts)


def _label_of_field(path: str) -> str:
    """Return what a field is called: as it is written, or where it is.

    >>> _label_of_field("workload.micro_batch"), _label_of_field("network.dims.0.bandwidth"), _label_of_field("memory.bandwidth")
    ('micro_batch', 'bandwidth of dimension 1:', 'memory bandwidth')
    """
    from cosmic.search.design_wording import path_label  # noqa: PLC0415  heavy

    layer, _, name = path.partition(".")
    if layer == "workload":
        return name
    label = path_label(path)
    return f"{label}:" if label[-1].isdecimal() and "dimension" in label else f"{layer} {label}"


def _effect_in_words(value: Any) -> str:
    from cosmic.search.design_wording import option_value  # noqa: PLC0415  heavy

    return "auto" if value is None else option_value(value)


def break_command(words: Sequence[str], room: int | None) -> list[str]:
    r"""Return a command on lines that fit into *room*, if given: broken between options, as a shell takes it.

    >>> break_command(["cosmic", "evaluate", "a@b", "--set tp=2", "--set pp=4"], 36)
    ['         cosmic evaluate a@b \\', '           --set tp=2 --set pp=4']
    """
    lines = [INDENT + " ".join(words[:3])]
    for word in words[3:]:
        longer = f"{lines[-1]} {word}"
        if room is None or len(longer) + len(" \\") <= room:
            lines[-1] = longer
        else:
            lines[-1] += " \\"
            lines.append(f"{INDENT}  {word}")
    return lines


# ---- `cosmic evaluate --engine NAME`: one design, or a choice of an engine's own fields, by what somebody else brought


def evaluate_with_user_engine(engine: UserEngine, design: str, overrides: dict[str, Any], *, json: bool) -> None:
    """Print what *engine* says of *design*: its metrics, or why it has none."""
    from cosmic.search.mapping.design_completion import load_design  # noqa: PLC0415  heavy
    from cosmic.simulate.user_engines import read_own_point  # noqa: PLC0415  heavy

    point = load_design(design, overrides) if engine.fields is None else read_own_point(engine, design, overrides)
    doing(f"asking {engine.name}")
    answer = engine.ask(point)
    if json:
        evaluation: UserEngineAnswer = {
            "feasible": not answer.reasons,
            "reasons": answer.reasons,
            "identity": point.identity,
            "engine": engine.name,
            "engine_identity": engine.identity,
            "failed": answer.failed,
            "metrics": {name: answer.metrics.get(name) for name in engine.metrics},
        }
        emit_json(evaluation)
    elif answer.reasons:
        emit([f"{'no answer' if answer.failed else 'cannot run'}: {reason}" for reason in answer.reasons])
    else:
        from cosmic.cli.search_output import format_metric  # noqa: PLC0415

        rows = [
            [name, format_metric(name, answer.metrics.get(name)), better] for name, better in engine.metrics.items()
        ]
        emit_table(f"{engine.name} {engine.identity}", ["metric", "", "better"], rows)
    if answer.reasons:
        raise typer.Exit(FAILED)
