"""`cosmic evaluate`: one design."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.candidates import evaluating
from cosmic.cli.console import Design, Json, Prices, Settings, doing, emit_json, emit_table, new_app
from cosmic.cli.output import emit
from cosmic.errors import BackendError, require
from cosmic.files import check_writable

if TYPE_CHECKING:
    from cosmic.catalog.accuracy import Range
    from cosmic.design.point import DesignPoint
    from cosmic.evaluation import Metrics
    from cosmic.simulation.event.result import Result

app = new_app()
NO_FEASIBLE_DESIGN = 1
UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
BAR = 30
"""Characters of a full bar."""


@app.command()
def evaluate(  # noqa: PLR0913, PLR0915, PLR0917  one option each
    design: Design,
    settings: Settings = [],  # noqa: B006  typer copies it
    prices: Prices = None,
    engine: Annotated[
        str,
        typer.Option(
            help="analytic: closed forms; event: simulates its traces; or an engine that you bring.",
            autocompletion=evaluating(),
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
    from cosmic.cli.evaluate_brought import evaluate_with  # noqa: PLC0415
    from cosmic.engines import engine_of  # noqa: PLC0415  heavy
    from cosmic.evaluation import Infeasible, as_simulated  # noqa: PLC0415  heavy
    from cosmic.evaluation import evaluate as run  # noqa: PLC0415  heavy
    from cosmic.loading.designs import assumptions, parse_overrides  # noqa: PLC0415  heavy
    from cosmic.loading.prices import quotes_in  # noqa: PLC0415  heavy
    from cosmic.mapping.completing import load  # noqa: PLC0415  heavy
    from cosmic.reporting.words import design_in_words  # noqa: PLC0415

    if (brought := engine_of(engine)) is not None:
        require(timeline is None, "--timeline", str(timeline), f"{engine} leaves none")
        require(not advice, "--advice", advice, f"is found in closed form, not by {engine}")
        evaluate_with(brought, design, {**quotes_in(prices), **parse_overrides(settings)}, json=json)
        return
    if timeline is not None:
        check_writable(timeline, "--timeline")
    overrides = {**quotes_in(prices), **parse_overrides(settings)}
    loaded = load(design, overrides)
    point = loaded.point
    notes = _notes(design, overrides, point)
    assumed = assumptions(design, overrides)
    base = run(point)  # improvements are found in closed form, with either engine
    if isinstance(base, Infeasible):
        if json:
            said = {"feasible": False, "reasons": list(base.reasons), "identity": point.identity, "notes": notes}
            emit_json(said | (_advice(design, overrides, point, None) if advice else {}))
        else:
            words = [*(f"note: {note}" for note in notes), *assumed_in_words(assumed), ""]
            emit([design_in_words(point), *(f"cannot run: {reason}" for reason in base.reasons), *words])
            _print_advice(design, overrides, point, None)
        raise typer.Exit(NO_FEASIBLE_DESIGN)
    outcome = base
    simulated = None
    if engine == "event" and point.serving is not None:
        doing("simulating the requests")
        answer = run(point, engine)
        if isinstance(answer, Infeasible):
            raise BackendError(f"the event engine refuses what the closed form accepts: {'; '.join(answer.reasons)}")
        outcome = answer
    elif engine == "event":
        from cosmic.simulation.event.from_design import simulate_design  # noqa: PLC0415  heavy
        from cosmic.simulation.event.periods import simulate_step  # noqa: PLC0415  heavy

        doing("simulating the step")
        simulated = simulate_step(point) if timeline is None else simulate_design(point)
        outcome = as_simulated(base, simulated)
    if timeline is not None:
        (_write_timeline if point.serving is None else _write_requests)(timeline, point, simulated)
    if json:
        about = {"identity": point.identity, "mapping": loaded.mapping_as_data()}
        found = {"feasible": True, "reasons": [], **about, **asdict(outcome), "notes": notes}
        found |= {"assumed": list(assumed)} if assumed else {}
        emit_json(found | (_advice(design, overrides, point, base) if advice else {}))
    else:
        remarks = [*(f"note: {note}" for note in notes), *assumed_in_words(assumed)]
        _print(point, outcome, [*loaded.mapping_in_words(_command(design, settings, prices)), *remarks])
        emit([""])
        _print_advice(design, overrides, point, base)


def _notes(design: str, overrides: dict[str, Any], point: DesignPoint) -> list[str]:
    """Return what is to be said of a design: fields without effect, links, and that it is not on sale."""
    from cosmic.reporting.networks import network_notes  # noqa: PLC0415  heavy
    from cosmic.reporting.words import sale_notes  # noqa: PLC0415  heavy

    return [*_without_effect(design, overrides, point), *network_notes(point), *sale_notes(point)]


def _without_effect(design: str, overrides: dict[str, Any], point: DesignPoint) -> list[str]:
    """Return which fields that a user stated have no effect, and why.

    What a file states just as it would be without the file, nobody meant to change: COSMIC's own files are complete.
    """
    from cosmic.design.paths import full_path  # noqa: PLC0415  heavy
    from cosmic.loading.designs import stated_fields, stated_memory  # noqa: PLC0415  heavy

    stated = stated_fields(design, overrides) | stated_memory(design, overrides)
    if not stated:
        return []
    from cosmic.advice import without_effect  # noqa: PLC0415  heavy

    given = {*map(full_path, overrides)}
    meant = {path for path in stated if _differs(point, path) or any(f"{path}.".startswith(f"{at}.") for at in given)}
    found = without_effect(point, meant)
    return [f"{path.removeprefix('workload.')} has no effect: {reason}" for path, reason in found.items()]


def _differs(point: DesignPoint, path: str) -> bool:
    """Return whether a file states something else than what would be without it."""
    from cosmic.catalog.hosts import outer_tiers  # noqa: PLC0415  heavy
    from cosmic.design import schema  # noqa: PLC0415  heavy
    from cosmic.design.memory import Memory, Placement, Tier  # noqa: PLC0415  heavy
    from cosmic.design.workload import Workload  # noqa: PLC0415  heavy

    parent, _, key = path.rpartition(".")
    layer = {"workload": Workload, "memory": Memory, "memory.placement": Placement}.get(parent)
    if layer is not None:
        return bool(schema.get(point, path) != schema.slots(layer)[key].default)
    known = tuple(schema.read(Tier, each, "memory.tiers") for each in outer_tiers(point.node.name))
    return point.memory.tiers != known


def _advice(design: str, overrides: dict[str, Any], point: DesignPoint, base: Metrics | None) -> dict[str, Any]:
    """Return what would help most as JSON has it; what would make the design run, if it does not achieve *base*."""
    from cosmic.advice import advise  # noqa: PLC0415  heavy
    from cosmic.cli.advising import as_data  # noqa: PLC0415

    doing("looking for what would help")
    return {"improvements": as_data(design, advise(design, overrides, point, base))}


def _print_advice(design: str, overrides: dict[str, Any], point: DesignPoint, base: Metrics | None) -> None:
    from cosmic.advice import advise  # noqa: PLC0415  heavy
    from cosmic.cli.advising import print_advice  # noqa: PLC0415

    print_advice(design, point, advise(design, overrides, point, base), base)


def assumed_in_words(assumed: Sequence[str]) -> list[str]:
    """Return what was assumed about the model as a line, none if nothing was."""
    return [f"assumed: {'; '.join(assumed)}"] if assumed else []


def _command(design: str, settings: list[str], prices: Path | None) -> str:
    """Return the command that searches all mappings of a design."""
    quotes = [] if prices is None else ["--prices", str(prices)]
    return shlex.join(["cosmic", "search", design, *(word for each in settings for word in ("--set", each)), *quotes])


def _write_timeline(path: Path, point: DesignPoint, simulated: Result | None) -> None:
    """Write the timeline of a step: the simulated one or, where there is none, that of the closed form."""
    from cosmic.simulation.event.timeline import timeline_of_result  # noqa: PLC0415  heavy
    from cosmic.simulation.perfetto import write_timeline  # noqa: PLC0415  heavy
    from cosmic.simulation.schedule_timeline import timeline_of  # noqa: PLC0415  heavy

    doing("writing the timeline")
    write_timeline(
        timeline_of(point) if simulated is None else timeline_of_result(simulated, point), path, "--timeline"
    )


def _write_requests(path: Path, point: DesignPoint, _: Result | None) -> None:
    """Write the timeline of a design that serves a load: its requests, simulated."""
    from cosmic.evaluation import Infeasible  # noqa: PLC0415  heavy
    from cosmic.serving.deployment import deployment_of  # noqa: PLC0415  heavy
    from cosmic.serving.simulation import simulate  # noqa: PLC0415  heavy
    from cosmic.serving.timeline import write_serving_timeline  # noqa: PLC0415  heavy

    doing("simulating the requests")
    found = simulate(deployment_of(point), noting=True)
    if not isinstance(found, Infeasible):
        write_serving_timeline(found, path, "--timeline")


def _print(point: DesignPoint, metrics: Metrics, about: list[str]) -> None:
    from cosmic.advice import bound_of  # noqa: PLC0415  heavy
    from cosmic.evaluation import expected_in_words  # noqa: PLC0415  heavy
    from cosmic.reporting.words import design_in_words  # noqa: PLC0415
    from cosmic.step.tier_reasons import lines  # noqa: PLC0415  heavy

    emit(
        [
            design_in_words(point),
            *(_step_in_words(point, metrics) if point.serving is None else _served_in_words(point, metrics)),
            expected_in_words(metrics),
            bound_of(point, metrics),
            *about,
            "",
        ]
    )
    parts = [(name, value) for name, value in metrics.breakdown.items() if value > 0]
    rows = [
        [name, seconds(value), f"{100 * value / metrics.step_s:.1f} %", bar(value / metrics.step_s)]
        for name, value in parts
    ]
    emit_table("", ["step" if point.serving is None else "decode step", "time", "share", ""], rows)
    emit([""])
    capacity = point.memory.capacity_bytes
    kept = [(name, value) for name, value in metrics.memory.items() if value > 0]
    rows = [[name, f"{value / 2**30:.2f} GiB", bar(value / capacity)] for name, value in kept]
    stages = point.workload.pp
    where = f", on stage {metrics.memory_stage + 1} of {stages}" if stages > 1 else ""
    rows.append(["total", f"{metrics.memory_bytes / 2**30:.2f} GiB", f"of {capacity / 2**30:.4g} GiB{where}"])
    emit_table("", ["memory", "size", ""], rows)
    if len(metrics.memory_tiers) > 1:
        emit(["", "tiers of memory, for each accelerator", *lines(metrics.memory_tiers)])
    emit(["", *_costs(metrics)])


def _step_in_words(point: DesignPoint, metrics: Metrics) -> list[str]:
    """Return the lines about a step, and what is trained in it: a batch that nobody stated grows with the machine."""
    work = point.workload
    each = f" × {work.sequence:,}" if metrics.counted == "tokens" else ""
    batch = f"{work.global_batch:,}{each} {metrics.counted}"
    return [
        f"{seconds(metrics.step_s)} per step ({seconds_range(metrics.step_s_range)})"
        f" · {metrics.throughput_per_s:,.0f} {metrics.counted}/s · {100 * metrics.mfu:.1f} % MFU"
        f" · {100 * metrics.hfu:.1f} % HFU · {metrics.provenance}",
        *([f"global batch {batch}"] if work.task == "training" else []),
    ]


def _served_in_words(point: DesignPoint, metrics: Metrics) -> list[str]:
    """Return the lines about requests under a load."""
    from cosmic.reporting.words import load_in_words  # noqa: PLC0415

    found = [load_in_words(point.serving.load)] if point.serving else []
    times = [("TTFT", metrics.ttft_s, metrics.ttft_p95_s), ("TPOT", metrics.tpot_s, metrics.tpot_p95_s)]
    said = [f"{name} {seconds(mean or 0)} (P95 {seconds(high or 0)})" for name, mean, high in times]
    if metrics.goodput_per_s is not None:
        said.append(f"{metrics.goodput_per_s:,.3g} requests/s within their limits")
    rates = [
        f"{metrics.tokens_per_s:,.0f} tokens/s",
        f"{metrics.tokens_per_s_per_npu or 0:,.4g} per NPU",
        f"{metrics.tokens_per_s_per_user or 0:,.4g} per user",
        f"{100 * metrics.mfu:.1f} % MFU",
        metrics.provenance,
    ]
    return [*found, " · ".join(said), " · ".join(rates)]


def _costs(metrics: Metrics) -> list[str]:
    """Return the lines about dollars and joules; what is unknown is said to be, with the reason."""
    from cosmic.metrics import OF_TOKENS  # noqa: PLC0415  heavy

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
    return [f"to buy {bought}", f"per million {counted} {million} · per {each} {joules}", *_run(metrics), *reasons]


def _run(metrics: Metrics) -> list[str]:
    """Return the line about a training run, if it has a length."""
    if metrics.train_days is None or metrics.goodput is None:
        return []
    said = [f"trained in {metrics.train_days:,.1f} days", f"goodput {100 * metrics.goodput:.1f} %"]
    if metrics.train_usd is not None:
        said.append(f"{metrics.train_usd / 1e6:,.3g} M USD")
    if metrics.train_energy_j is not None:
        said.append(f"{metrics.train_energy_j / 3.6e9:,.0f} MWh")
    return [" · ".join(said)]


def seconds(value: float) -> str:
    """Return a time with a readable unit.

    >>> seconds(12.345), seconds(0.0123), seconds(4.5e-5)
    ('12.35 s', '12.3 ms', '45 us')
    """
    for unit, worth in UNITS:
        if value >= worth:
            return f"{value / worth:.4g} {unit}" if unit == "s" else f"{value / worth:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def seconds_range(found: Range) -> str:
    """Return the range of nine measurements in ten, both ends in one unit.

    >>> from cosmic.catalog.accuracy import Range
    >>> seconds_range(Range(1.251, 1.36, 1.42, 1.5, 1.632)), seconds_range(Range(9e-4, 1e-3, 1.1e-3, 1.2e-3, 1.3e-3))
    ('P5–P95 1.25–1.63 s', 'P5–P95 0.9–1.3 ms')
    """
    unit, worth = next((each for each in UNITS if found.p50 >= each[1]), ("ns", 1e-9))
    return f"P5–P95 {found.p05 / worth:.3g}–{found.p95 / worth:.3g} {unit}"


def bar(share: Any) -> str:
    """Return *share* of a full bar."""
    return "█" * round(BAR * min(1.0, float(share)))
