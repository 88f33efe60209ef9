"""`cosmic serve`: a model under a load of requests.

It prints, as text and as JSON, of a deployment: its times, its costs, where time goes and what would help. Of a search (--search): the front, one pool
beside two, and the cheapest deployment.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cosmic.base.errors import require
from cosmic.base.files import check_writable
from cosmic.cli.console import (
    MORE,
    Design,
    Json,
    Settings,
    draw_bar,
    emit_commands,
    emit_json,
    emit_table,
    format_seconds,
    print_sentences,
)
from cosmic.cli.output_streams import FAILED, doing, emit
from cosmic.cli.value_completion import complete_one_of

if TYPE_CHECKING:
    from pathlib import Path

    from cosmic.design.design_point import DesignPoint
    from cosmic.search.advice.deployment_plan import Checked, Plan
    from cosmic.search.advice.service_question import Asked, Service
    from cosmic.search.advice.serving_answers import ServedDeploymentAnswer, ServiceAnswer, SimulationRequest
    from cosmic.serving.deployment_candidates import Candidate
    from cosmic.serving.deployment_search import FoundDeployments
    from cosmic.serving.request_simulation import SimulatedLoad
    from cosmic.serving.serving_accuracy import JudgedLimit
    from cosmic.serving.serving_metrics import Percentiles, ServingMetrics, Slo
    from cosmic.serving.serving_requests import Requests


CANNOT_SERVE = FAILED


def serve(  # noqa: PLR0913, PLR0917  one option each
    design: Design,
    input_tokens: Annotated[int | None, typer.Option("--input", min=1, help="Mean tokens of a prompt.")] = None,
    output_tokens: Annotated[int | None, typer.Option("--output", min=1, help="Mean tokens of an answer.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Requests in flight: a closed loop.")] = None,
    rate: Annotated[str, typer.Option(metavar="'N req/s'", help="Requests a second: an open loop.")] = "",
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Requests of a file: Mooncake, BurstGPT, Azure, or CSV of arrival and tokens.", rich_help_panel=MORE
        ),
    ] = None,
    ttft: Annotated[str, typer.Option(metavar="'p95 <= 1 s'", help="Limit on the time to first token.")] = "",
    tpot: Annotated[str, typer.Option(metavar="'p95 <= 30 ms'", help="Limit on the time per output token.")] = "",
    search: Annotated[
        bool, typer.Option("--search", help="Find deployments: the Pareto front, and the cheapest within the limits.")
    ] = False,
    max_gpus: Annotated[
        int | None, typer.Option(min=1, help="With --search: accelerators at most.", rich_help_panel=MORE)
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="vllm, sglang or trtllm [vllm].",
            autocompletion=complete_one_of("sglang", "trtllm", "vllm"),
            rich_help_panel=MORE,
        ),
    ] = "",
    precision: Annotated[
        str,
        typer.Option(
            help="Number format of the weights [what the accelerator multiplies in].",
            autocompletion=complete_one_of("bf16", "fp4", "fp8", "int4"),
            rich_help_panel=MORE,
        ),
    ] = "",
    spread: Annotated[
        float | None,
        typer.Option(min=0, help="Standard deviation of lengths, as a share of their means.", rich_help_panel=MORE),
    ] = None,
    prefix_hit: Annotated[
        float | None,
        typer.Option(min=0, help="Share of prompts that the prefix cache has already.", rich_help_panel=MORE),
    ] = None,
    settings: Settings = [],  # noqa: B006  typer copies it
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Simulate request by request.", rich_help_panel=MORE)
    ] = False,
    requests: Annotated[int | None, typer.Option(min=1, help="Requests to simulate.", rich_help_panel=MORE)] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same requests.", rich_help_panel=MORE)] = 0,
    timeline: Annotated[
        Path | None,
        typer.Option(help="Write the simulated timeline to this file, for Perfetto or Chrome.", rich_help_panel=MORE),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the deployment as a design file.", rich_help_panel=MORE)
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --search: write the deployments as a page.", rich_help_panel=MORE),
    ] = None,
    json: Json = False,
) -> None:
    """Print what a deployment achieves under a load, where time goes and what would help; or find the cheapest one."""
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.search.advice.service_question import Asked, read_service  # noqa: PLC0415  heavy
    from cosmic.search.advice.serving_answers import SimulationRequest  # noqa: PLC0415  heavy
    from cosmic.serving.deployment import check_context  # noqa: PLC0415  heavy
    from cosmic.serving.deployment_candidates import load_of  # noqa: PLC0415  heavy
    from cosmic.serving.serving_metrics import limits_of, read_rate, read_slo  # noqa: PLC0415  heavy
    from cosmic.serving.serving_requests import check_request_lengths  # noqa: PLC0415  heavy

    limits_stated = [read_slo(text, name) for name, text in (("ttft", ttft), ("tpot", tpot)) if text]
    for path, option in ((timeline, "--timeline"), (save, "--save"), (report, "--report")):
        if path is not None:
            check_writable(path, option)
    alone = {"--trace": trace, "--timeline": timeline, "--requests": requests}
    for name, value in alone.items():
        require(not search or value is None, name, value, "is for one deployment, not for --search")
    for name, value in {"--max-gpus": max_gpus, "--report": report}.items():
        require(value is None or search, name, value, "is for --search")
    require(
        not (search and simulate), "--simulate", simulate, "--search simulates the deployments that it chooses among"
    )
    asked = Asked(
        input=input_tokens,
        output=output_tokens,
        concurrency=concurrency,
        rate=read_rate(rate) if rate else None,
        spread=spread,
        prefix_hit=prefix_hit,
        limits_s={each.metric: each.limit_s for each in limits_stated},
        engine=engine,
        precision=precision,
        largest=search,
    )
    traced = None if trace is None else _load_trace_requests(trace, asked, requests)
    service = read_service(design, parse_overrides(settings), traced[0] if traced else asked)
    service = _note_engine_support(service)
    if trace is not None and traced:
        check_request_lengths(trace, traced[1], getattr(service.design.model, "context", None))
    limits = limits_of(load_of(service.design), limits_stated)
    if search:
        check_context(service.design)
        options: dict[str, object] = {
            "--input": input_tokens,
            "--output": output_tokens,
            "--concurrency": concurrency,
            "--rate": rate,
            "--ttft": ttft,
            "--tpot": tpot,
            "--max-gpus": max_gpus,
            "--engine": engine,
            "--precision": precision,
            "--spread": spread,
            "--prefix-hit": prefix_hit,
            "--seed": seed or None,
            "--save": save,
        }
        words = [word for name, value in options.items() if value not in (None, "") for word in (name, str(value))]
        words += [word for setting in settings for word in ("--set", setting)]
        page = (
            None if report is None else ServePage(report, shlex.join(["cosmic", "serve", design, "--search", *words]))
        )
        _search(service, limits, ServeSearch(max_gpus, seed), save, page, json=json)
        return
    wanted = None
    given_again = {"--trace": trace, "--rate": rate, "--requests": requests} if traced else {}
    replayed = [word for name, value in given_again.items() if value not in (None, "") for word in (name, str(value))]
    if simulate or traced or timeline is not None or requests is not None:
        noting = timeline is not None
        wanted = SimulationRequest(traced and traced[1], requests, seed, noting=noting, replayed=tuple(replayed))
    _serve(service, limits, (wanted, seed), ServeFiles(save, timeline), json=json)


class ServeSearch(NamedTuple):
    """What a search is asked for, besides limits."""

    most: int | None
    seed: int


class ServePage(NamedTuple):
    """A page to write, and the command that it is of."""

    path: Path
    command: str


class ServeFiles(NamedTuple):
    """Files to write."""

    save: Path | None
    timeline: Path | None


def _note_engine_support(service: Service) -> Service:
    """Return a service that says, too, where its engine does not run on its accelerators."""
    from cosmic.frameworks.launch import unsupported_reason  # noqa: PLC0415  heavy
    from cosmic.serving.deployment_candidates import serving_of  # noqa: PLC0415  heavy

    engine = serving_of(service.design).engine
    why = unsupported_reason(engine, service.design)
    return (
        replace(service, assumed=(*service.assumed, f"{engine} runs on these accelerators, although {why}"))
        if why
        else service
    )


def _load_trace_requests(path: Path, asked: Asked, most: int | None) -> tuple[Asked, Requests]:
    """Return what is asked, with lengths and rate of a trace, and its requests."""
    from cosmic.search.advice.service_question import asked_by_trace  # noqa: PLC0415  heavy
    from cosmic.serving.serving_requests import MOST_REQUESTS  # noqa: PLC0415  heavy

    options = {
        "--input": asked.input,
        "--output": asked.output,
        "--concurrency": asked.concurrency,
        "--spread": asked.spread,
    }
    for name, value in options.items():
        require(value is None, name, value, "is what --trace says already")
    doing(f"reading {path}")
    return asked_by_trace(path, asked, most or MOST_REQUESTS)


def _serve(
    service: Service,
    limits: list[Slo],
    simulation: tuple[SimulationRequest | None, int],
    files: ServeFiles,
    *,
    json: bool,
) -> None:
    from cosmic.search.advice.serving_answers import answer_service  # noqa: PLC0415  heavy

    wanted, seed = simulation
    doing("simulating requests" if wanted else "looking for what would help")
    answer = answer_service(service, limits, wanted, seed=seed)
    if answer.metrics is not None:
        _save_deployment(answer.design, files.save)
    if answer.seen is not None and files.timeline is not None:
        _write_timeline(answer.seen, files.timeline)
    if json:
        emit_json(answer)
    else:
        print_service(answer)
    if answer.metrics is None:
        raise typer.Exit(CANNOT_SERVE)


def _write_timeline(seen: SimulatedLoad, path: Path) -> None:
    from cosmic.serving.serving_timeline import write_serving_timeline  # noqa: PLC0415  heavy

    doing("writing the timeline")
    write_serving_timeline(seen, path, "--timeline")


def _search(
    service: Service, limits: list[Slo], wanted: ServeSearch, save: Path | None, page: ServePage | None, *, json: bool
) -> None:
    from cosmic.search.advice.deployment_plan import plan_deployments  # noqa: PLC0415  heavy

    plan = plan_deployments(service, limits, wanted.most, seed=wanted.seed, progress=doing)
    if plan.chosen is not None:
        _save_deployment(plan.chosen.design, save)
    if json:
        emit_json(plan)
    else:
        print_plan(plan, save)
    if page is not None:
        _write_page(plan, page, save)
    if plan.chosen is None:
        raise typer.Exit(CANNOT_SERVE)


def _write_page(plan: Plan, page: ServePage, save: Path | None) -> None:
    from cosmic.base.files import write_text  # noqa: PLC0415
    from cosmic.report.serving_report import serving_report  # noqa: PLC0415  heavy

    doing("writing the page")
    write_text(page.path, serving_report(plan, page.command, str(save or "")).html, "--report")


def _save_deployment(design: DesignPoint, path: Path | None) -> None:
    """Write a deployment as a design file."""
    if path is None:
        return
    from cosmic.base.files import write_text  # noqa: PLC0415
    from cosmic.design.loading import dump_design  # noqa: PLC0415  heavy

    write_text(path, dump_design(design), "--save")


STATISTICS = {"mean": "mean", "P50": "p50", "P95": "p95", "P99": "p99"}
TIMES = {"TTFT": "ttft", "TPOT": "tpot", "end to end": "e2e"}
MILLION = 1e6
GAINS = {"tokens/s": "the tokens/s", "end to end": "as fast end to end"}
"""What the gain of a move is of."""


def print_service(answer: ServiceAnswer) -> None:
    """Print what a service achieves, where its time goes and what would help."""
    from cosmic.search.advice.serving_answers import ServedDeploymentAnswer  # noqa: PLC0415  heavy

    emit([deployment_in_words(answer.design), *idle_in_words(answer.design), load_in_words(answer.design)])
    if answer.searched:
        emit([f"mapping: the best of {answer.searched:,} for this load (--set tp=…, pp=…, ep=… states one)"])
    print_sentences([f"assumed: {each}" for each in answer.assumed])
    emit([""])
    if not isinstance(answer, ServedDeploymentAnswer):
        print_sentences([f"cannot serve: {reason}" for reason in answer.reasons])
        print_sentences(fewest_in_words(answer))
        return
    metrics = answer.shown
    print_times(metrics)
    if answer.simulated is not None:
        print_sentences(["", *_compare_engines_in_words(answer)])
    emit(["", *achieved_in_words(metrics, simulated=answer.leads)])
    print_sentences(limits_in_words(answer))
    print_sentences([*expected_error_in_words(answer.design), *price_basis_in_words(answer.design), ""])
    print_parts("decode step", metrics.decode_breakdown)
    emit([""])
    print_parts("TTFT", metrics.ttft_breakdown)
    emit([""])
    print_moves(answer)


def _compare_engines_in_words(answer: ServiceAnswer) -> list[str]:
    """Return how closed form and simulation compare: the one that is not shown, and where they differ."""
    assert answer.metrics is not None  # noqa: S101  it runs
    assert answer.simulated is not None  # noqa: S101  it was simulated
    name, other = ("closed form", answer.metrics) if answer.leads else ("simulation", answer.simulated)
    sentence = f"{name}: TTFT {_known_statistics(other.ttft.mean_s)}, TPOT {_known_statistics(other.tpot.mean_s)}"
    notes = [f"note: {each}" for each in (answer.seen.cautions if answer.seen else ())]
    if not answer.differences:
        return [f"{sentence}; the two differ by less than 10 %", *notes]
    apart = ", ".join(f"{name} {ratio:.2f}×" for name, ratio in answer.differences.items())
    return [f"{sentence}; simulated over closed form: {apart}", *notes]


def count_in_words(number: float, noun: str) -> str:
    """Return a number of things.

    >>> count_in_words(1, "accelerator"), count_in_words(1024, "accelerator"), count_in_words(2.66667, "request")
    ('1 accelerator', '1,024 accelerators', '2.667 requests')
    """
    number_text = f"{number:,.0f}" if number == int(number) else f"{number:,.4g}"
    return f"{number_text} {noun}{'' if number == 1 else 's'}"


def fewest_in_words(answer: ServiceAnswer) -> list[str]:
    """Return how many accelerators would do in one pool, and whether within the limits and with the mapping stated."""
    if answer.fewest is None:
        return []
    fewest = answer.fewest
    npus = fewest.npus
    conditions = ["in closed form", "in one pool"]
    conditions += [] if answer.searched else ["with this mapping" if fewest.mapped else "with another mapping"]
    conditions += [f"{'within' if fewest.within else 'not within'} the limits"] if answer.limits else []
    return [
        f"{count_in_words(npus, 'accelerator')} would do: {npus // fewest.shape.npus:,} × {fewest.shape} ({', '.join(conditions)}); "
        "--search compares two pools, too"
    ]


def limits_in_words(answer: ServedDeploymentAnswer) -> list[str]:
    """Return which limits hold, which by less than the expected error, and on which the two engines do not agree."""
    return [
        f"{each.limit.metric.upper()} {each.limit}: {'holds' if each.holds else 'does not hold'}"
        + (f", {_nearness_in_words(each)}" if each.within_error else "")
        + _dispute_in_words(answer, each.limit)
        for each in answer.judged
    ]


def _nearness_in_words(each: JudgedLimit) -> str:
    return f"by {100 * each.apart:.0f} %, less than the expected error of {100 * (each.error or 0):.0f} %"


def _dispute_in_words(answer: ServiceAnswer, limit: Slo) -> str:
    """Return what the other engine says of a limit, where that is not the same; empty where it is."""
    name, other = ("closed form", answer.metrics) if answer.leads else ("simulation", answer.simulated)
    if other is None or bool(limit.holds(other)) == bool(limit.holds(answer.shown)):
        return ""
    kept = "" if limit.holds(other) else "not "
    return f", but {kept}in the {name} ({_known_statistics(float(limit.value(other)))})"


def expected_error_in_words(design: DesignPoint) -> list[str]:
    """Return how far off the times are expected to be."""
    from cosmic.serving.serving_accuracy import errors_of_design, unlike_published  # noqa: PLC0415  heavy

    errors = errors_of_design(design)
    if errors is None:
        return ["expected error: not measured, as no published run has this engine"]
    runs = f"{errors.runs:,} published runs {errors.kind}"
    unlike = unlike_published(design)
    beside = f"; none of them had {' or '.join(unlike)}: it may be more" if unlike else ""
    both = f"TTFT {100 * errors.ttft:.0f} %, TPOT {100 * errors.tpot:.0f} %"
    return [f"expected error: {both}, as on average of {runs}{beside}"]


def price_basis_in_words(design: DesignPoint) -> list[str]:
    """Return what dollars are of."""
    from cosmic.search.design_wording import price_in_words  # noqa: PLC0415  heavy

    price_text = price_in_words(design)
    return [f"USD: {price_text}"] if price_text else []


def deployment_in_words(design: DesignPoint) -> str:
    """Return the model, its accelerators, the engine and its instances on one line."""
    from cosmic.design.design_point import model_title  # noqa: PLC0415  heavy
    from cosmic.serving.deployment_candidates import pool_of, prefill_pool_of, serving_of  # noqa: PLC0415  heavy

    pool, prefill, serving = pool_of(design), prefill_pool_of(design), serving_of(design)
    instances = f"{pool.instances:,} instance{'s' if pool.instances > 1 else ''} of {pool.shape}"
    if prefill:
        instances = f"{instances} to decode, {prefill.instances:,} of {prefill.shape} to prefill"
    where = f"{design.network.npus:,} × {design.compute.accelerator}"
    model = model_title(design.model)
    return f"{model} on {where}, {serving.engine}, {design.workload.precision}: {instances}"


def idle_in_words(design: DesignPoint) -> list[str]:
    """Return how many accelerators no instance has, if any."""
    from cosmic.serving.deployment_candidates import pool_of  # noqa: PLC0415  heavy

    serving, installed = design.serving, design.network.npus
    used = pool_of(design).npus
    if serving and serving.disaggregated and (pool := serving.prefill) and pool.system is None:
        used += pool.npus
    return (
        [f"{installed - used:,} of {installed:,} accelerators are idle: no instance has them"]
        if used < installed
        else []
    )


def load_in_words(design: DesignPoint) -> str:
    """Return the load on one line."""
    assert design.serving is not None  # noqa: S101  a service has a load
    load = design.serving.load
    arrivals = f"{count_in_words(load.rate, 'request')}/s" if load.rate is not None else ""
    arrivals = arrivals or f"{count_in_words(load.concurrency or 1, 'request')} in flight"
    beside = [f"lengths spread by {100 * load.isl_cv:.0f} %"] if load.isl_cv else []
    beside += [f"{100 * load.prefix_hit:.0f} % of prompts cached"] if load.prefix_hit else []
    if load.classes:
        arrivals += f" of {len(load.classes)} classes ({', '.join(class_.name for class_ in load.classes)})"
        beside += ["on average"]
    lengths = f"{count_in_words(round(load.mean('isl')), 'token')} in, {load.mean('osl'):,.0f} out"
    return " · ".join([arrivals, lengths, *beside])


def print_times(metrics: ServingMetrics) -> None:
    """Print the times that clients see as a table."""
    rows = []
    for name, key in TIMES.items():
        times: Percentiles = getattr(metrics, key)
        rows.append([name, *(_known_statistics(times.at(statistic)) for statistic in STATISTICS.values())])
    emit_table("", ["", *STATISTICS], rows)


def _known_statistics(value: float) -> str:
    return "-" if isnan(value) else format_seconds(value)


def format_short(value: float) -> str:
    """Return a number of three digits, or of as many as it has before the point.

    >>> format_short(1234.5), format_short(0.01234), format_short(12.34)
    ('1,234', '0.0123', '12.3')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _seconds_of_statistics(rate: float) -> str:
    return f"{format_short(rate)} request{'' if format_short(rate) == '1' else 's'}/s"


def achieved_in_words(metrics: ServingMetrics, *, simulated: bool = False) -> list[str]:
    """Return throughput, cost and use as lines; cost says where it is for tokens that were *simulated*."""
    user = float(metrics.tokens_per_s_per_user)
    lines = [
        f"{metrics.output_tokens_per_s:,.0f} tokens/s · {metrics.tokens_per_s_per_npu:,.0f} an accelerator · "
        f"{'' if isnan(user) else f'{user:,.1f} a user · '}{_seconds_of_statistics(metrics.requests_per_s)}"
    ]
    if metrics.goodput_per_s is not None:
        lines.append(
            f"goodput {_seconds_of_statistics(metrics.goodput_per_s)}: {100 * metrics.within_slo:.1f} % within the limits"
        )
    usd, joules = metrics.usd_per_million_tokens, metrics.j_per_million_tokens
    cost = "unknown USD" if usd is None else f"{usd:,.3g} USD to own and power{', as simulated' if simulated else ''}"
    energy = "unknown MJ" if joules is None else f"{joules / MILLION:,.3g} MJ"
    lines.append(f"per million output tokens {cost} · {energy}")
    busy = " · ".join(
        f"{'' if name == 'all' else name + ' '}busy {100 * share:.0f} %" for name, share in metrics.utilisation.items()
    )
    use = f"{format_short(metrics.running)} running, {format_short(metrics.waiting)} waiting"
    use += f" · KV cache {100 * metrics.kv_use:.0f} % full"
    return [*lines, f"{busy} · {use} · prefill {100 * metrics.prefill_share:.0f} % of the time" if busy else use]


def print_parts(title: str, parts: Mapping[str, float]) -> None:
    """Print what a time is made of as a table."""
    total = sum(parts.values())
    if total <= 0:
        return
    rows = [
        [name.replace("_", " "), format_seconds(value), f"{100 * value / total:.1f} %", draw_bar(value / total)]
        for name, value in parts.items()
        if value > 0.0005 * total
    ]
    emit_table("", [title, format_seconds(total), "share", ""], rows)


def print_moves(answer: ServiceAnswer) -> None:
    """Print what would help, each with the command that tries it."""
    if not answer.moves:
        emit(["what would help: no move that was tried gains 2 % or more"])
        return
    assert answer.metrics is not None  # noqa: S101  it runs
    means = ", with the trace's means" if answer.replayed else ""
    print_sentences([f"what would help (in closed form{means})"])
    for move in answer.moves:
        about = filter(None, [move.tried.condition, _becomes_in_words(answer.metrics, move.metrics)])
        print_sentences([f"  {move.gain:.2f}× {GAINS[move.gain_of]}: {move.tried.what} ({', '.join(about)})"])
        if move.simulated is not None and answer.simulated is not None:
            print_sentences(
                [
                    f"         simulated: {move.simulated_gain:.2f}×, {_becomes_in_words(answer.simulated, move.simulated)}"
                ]
            )
        emit([f"         {move.command}"])


def _becomes_in_words(base: ServingMetrics, compared: ServingMetrics) -> str:
    return (
        f"TTFT P95 {format_seconds(base.ttft.p95_s)} → {format_seconds(compared.ttft.p95_s)}, "
        f"TPOT {_known_statistics(base.tpot.mean_s)} → {_known_statistics(compared.tpot.mean_s)}"
    )


FEWER = 3
"""Deployments that the simulation refutes, of which so many are named."""
SHOWN = 12
"""Deployments of the front that are printed."""


def print_plan(plan: Plan, saved: Path | None) -> None:
    """Print what a search for a deployment found."""
    from cosmic.design.design_point import model_title  # noqa: PLC0415  heavy

    service, limits = plan.service, plan.limits
    design = service.design
    assert design.serving is not None  # noqa: S101  a service has a load
    emit(
        [
            f"{model_title(design.model)} on {design.compute.accelerator}, {design.serving.engine}, "
            f"{design.workload.precision}",
            load_in_words(design) + "".join(f" · {limit.metric.upper()} {limit}" for limit in limits),
        ]
    )
    print_sentences([f"assumed: {each}" for each in plan.assumed])
    print_sentences(held_mapping_in_words(service))
    if plan.front:
        _print_front(plan.front, limits)
    _print_pools(plan)
    emit([""])
    _print_chosen(plan)
    print_sentences(["", _search_effort(plan)])
    if plan.chosen and saved:
        file = shlex.quote(str(saved))
        emit_commands(
            {
                f"cosmic serve {file}": "where its time goes, and what would help",
                f"cosmic design export {file} --to {design.serving.engine}": "its launch arguments",
            }
        )


def held_mapping_in_words(service: Service) -> list[str]:
    """Return what of an instance's mapping a search holds, as its file or --set states it."""
    if not service.held:
        return []
    mapping_text = ", ".join(f"{name} {value}" for name, value in service.held.items())
    own = {path.rpartition(".")[2] for path in service.settings}
    where = "--set" if all(name in own for name in service.held) else service.source
    return [f"held: {mapping_text}, as {where} states: only such instances are compared, in one pool alone"]


def _print_front(front: Sequence[Candidate], limits: Sequence[Slo]) -> None:
    emit(["", "throughput against speed: of the deployments compared, none has more of both"])
    step = max(1, -(-len(front) // SHOWN))
    shown = [each for index, each in enumerate(front) if index % step == 0 or each is front[-1]]
    heads = ["tokens/s an accelerator", "tokens/s a user", "TTFT P95", "TPOT P95", "in flight", "deployment"]
    rows = [
        [
            format_short(each.metrics.tokens_per_s_per_npu),
            f"{each.metrics.tokens_per_s_per_user:,.1f}",
            format_seconds(each.metrics.ttft.p95_s),
            format_seconds(each.metrics.tpot.p95_s),
            f"{each.load.concurrency:,}",
            str(each),
            *((["holds" if each.holds else "-"]) if limits else []),
        ]
        for each in shown
    ]
    emit_table("", [*heads, *(["limits"] if limits else [])], rows)


def _print_pools(plan: Plan) -> None:
    """Print the cheapest in one pool beside the cheapest in two."""
    rows = []
    for name, part in (("aggregated", plan.one), ("disaggregated", plan.two)):
        tried = [each for each in plan.checked if bool(each.candidate.kind.prefill) == (part is plan.two)]
        if part.cheapest:
            rows.append([name, *_plan_row(part, tried, plan.limits)])
        elif part.kinds:
            rows.append([name, "none", "-", "-", "-", "no deployment holds the limits", "none", "-"])
    if rows:
        emit(["", "cheapest at the load"])
        heads = ["", "accelerators", "TTFT P95", "TPOT P95", "tokens/s an accelerator", "deployment"]
        emit_table("", [*heads, "in closed form", "simulation"], rows)
    print_sentences(list(_rounded_hosts_in_words(plan)))


def _plan_row(part: FoundDeployments, tried: Sequence[Checked], limits: Sequence[Slo]) -> list[str]:
    """Return the deployment that holds, or the first that was simulated, or the closed form's where none was."""
    first = part.cheapest[0]
    if not tried:
        return [*_plan_cells(first, first.metrics), f"{first.npus:,}", "not simulated"]
    best = tried[0]  # those that hold come first
    verdict = "holds" if best.holds else "fails: " + "; ".join(_failing_limits(best, limits))
    return [*_plan_cells(best.candidate, best.simulated or best.candidate.metrics), f"{first.npus:,}", verdict]


def _plan_cells(each: Candidate, seen: ServingMetrics) -> list[str]:
    times = [format_seconds(seen.ttft.p95_s), format_seconds(seen.tpot.p95_s)]
    return [f"{each.npus:,}", *times, format_short(each.metrics.tokens_per_s_per_npu), str(each)]


def _rounded_hosts_in_words(plan: Plan) -> Iterator[str]:
    """Yield that accelerators come in whole hosts, where that makes them more than the closed form asks for."""
    from cosmic.search.advice.deployment_plan import next_machine_size  # noqa: PLC0415  heavy

    service = plan.service
    fewest = {part.cheapest[0].npus for part in (plan.one, plan.two) if part.cheapest}
    larger = {npus: size for npus in sorted(fewest) if (size := next_machine_size(service, npus)) not in (None, npus)}
    if larger:
        host = service.design.network.dims[0].npus if service.system else service.design.network.npus
        sizes_text = ", ".join(f"{npus:,} take {size:,}" for npus, size in larger.items())
        what = (
            f"hosts of {host:,}" if service.system else f"the {count_in_words(host, 'accelerator')} of {service.source}"
        )
        yield (
            f"accelerators come in whole {what}: {sizes_text}" if service.system else f"there are {what}: {sizes_text}"
        )


def _print_chosen(plan: Plan) -> None:
    best, limits = plan.chosen, plan.limits
    if best is None:
        print_sentences([f"cannot serve: {reason}" for reason in plan.reasons])
        print_sentences([_refutation_in_words(each, limits) for each in plan.checked[:FEWER]])
        return
    usd = best.candidate.metrics.usd_per_million_tokens  # the same that `serve` and `evaluate` say of it
    cost = f", {usd:,.3g} USD per million output tokens" if usd is not None else ""
    print_sentences([f"{plan.answer.verdict}{cost}"])
    print_sentences([_simulation_in_words(best, limits)])
    near = [each for each in best.judged if each.within_error]
    print_sentences(
        f"{each.limit.metric.upper()} {each.limit.statistic} holds {_nearness_in_words(each)}" for each in near
    )
    fewer = [each for each in plan.checked if not each.holds and each.candidate.npus < best.candidate.npus]
    print_sentences([_refutation_in_words(each, limits) for each in fewer[:FEWER]])
    print_sentences(plan.untried_in_words)
    print_sentences(["", *expected_error_in_words(best.design), *price_basis_in_words(best.design)])


def _simulation_in_words(each: Checked, limits: Sequence[Slo]) -> str:
    """Return what the simulation says of a deployment that holds."""
    seen = each.simulated or each.candidate.metrics
    sentence = (
        ", ".join(
            f"{limit.metric.upper()} {limit.statistic} {format_seconds(float(limit.value(seen)))}" for limit in limits
        )
        or f"TTFT p95 {format_seconds(seen.ttft.p95_s)}, TPOT p95 {format_seconds(seen.tpot.p95_s)}"
    )
    part = "" if each.share == 1 else f", of {100 * each.share:.0f} % of the instances with their share of the load"
    return f"simulation{part}: {'all limits hold' if limits else 'it bears the load, no limit is given'} ({sentence})"


def _refutation_in_words(each: Checked, limits: Sequence[Slo]) -> str:
    """Return what fails of a deployment in the simulation."""
    closed = "holds in closed form, " if each.candidate.holds and limits else ""
    what = f"{count_in_words(each.candidate.npus, 'accelerator')}, {each.candidate}"
    return f"{what}: {closed}fails in the simulation: {'; '.join(_failing_limits(each, limits))}"


def _failing_limits(each: Checked, limits: Sequence[Slo]) -> list[str]:
    """Return which limits fail in the simulation, and by what."""
    seen = each.simulated
    if seen is None:
        return ["it cannot serve these requests"]
    broken = [limit for limit in limits if not limit.holds(seen)]
    failing = [
        f"{limit.metric.upper()} {limit.statistic} {format_seconds(float(limit.value(seen)))}, not {format_seconds(limit.limit_s)}"
        for limit in broken
    ]
    rate = each.candidate.load.rate
    late = f"{seen.requests_per_s:,.4g} of {rate:,.4g} requests/s end" if rate else "requests wait for too long"
    return failing or [late]


def _search_effort(plan: Plan) -> str:
    kinds = plan.one.kinds + plan.two.kinds
    coverage = "all kinds that fit" if plan.one.exhaustive and plan.two.exhaustive else "the most promising kinds"
    priced = plan.one.priced + plan.two.priced
    tried = f"; {len(plan.checked):,} simulated" if plan.checked else ""
    return (
        f"{priced:,} deployments of {count_in_words(kinds, 'kind')} priced in {plan.seconds:.1f} s: {coverage}{tried}"
    )
