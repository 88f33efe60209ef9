"""`cosmic serve`: a model under a load of requests."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cosmic.base.errors import require
from cosmic.base.files import check_writable
from cosmic.cli.console import MORE, Design, Json, Settings, emit_json
from cosmic.cli.exit_codes import FAILED
from cosmic.cli.output_streams import doing
from cosmic.cli.value_completion import complete_one_of

if TYPE_CHECKING:
    from cosmic.design.design_point import DesignPoint
    from cosmic.search.advice.deployment_plan import Plan
    from cosmic.search.advice.service_question import Asked, Service
    from cosmic.search.advice.serving_answers import SimulationRequest
    from cosmic.serving.request_simulation import SimulatedLoad
    from cosmic.serving.serving_requests import Requests
    from cosmic.serving.slo import Slo


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
    from cosmic.serving.serving_requests import check_request_lengths  # noqa: PLC0415  heavy
    from cosmic.serving.slo import limits_of, read_rate, read_slo  # noqa: PLC0415  heavy

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
    if simulate or traced or timeline is not None or requests is not None:
        wanted = SimulationRequest(traced and traced[1], requests, seed, noting=timeline is not None)
    given_again = {"--trace": trace, "--rate": rate, "--requests": requests} if traced else {}
    replayed = [word for name, value in given_again.items() if value not in (None, "") for word in (name, str(value))]
    _serve(service, limits, (wanted, seed), ServeFiles(save, timeline, replayed), json=json)


class ServeSearch(NamedTuple):
    """What a search is asked for, besides limits."""

    most: int | None
    seed: int


class ServePage(NamedTuple):
    """A page to write, and the command that it is of."""

    path: Path
    command: str


class ServeFiles(NamedTuple):
    """Files to write, and the options that name the one that was read."""

    save: Path | None
    timeline: Path | None
    replayed: list[str]


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
    from cosmic.cli.serve_output import (  # noqa: PLC0415  heavy
        answer_as_data,
        print_service,
    )
    from cosmic.search.advice.serving_answers import answer_service  # noqa: PLC0415  heavy

    wanted, seed = simulation
    doing("simulating requests" if wanted else "looking for what would help")
    answer = answer_service(service, limits, wanted, seed=seed)
    if answer.metrics is not None:
        _save_deployment(answer.design, files.save)
    if answer.seen is not None and files.timeline is not None:
        _write_timeline(answer.seen, files.timeline)
    if json:
        emit_json(answer_as_data(service, answer, limits, files.replayed))
    else:
        print_service(service, answer, limits, files.replayed)
    if answer.metrics is None:
        raise typer.Exit(CANNOT_SERVE)


def _write_timeline(seen: SimulatedLoad, path: Path) -> None:
    from cosmic.serving.serving_timeline import write_serving_timeline  # noqa: PLC0415  heavy

    doing("writing the timeline")
    write_serving_timeline(seen, path, "--timeline")


def _search(
    service: Service, limits: list[Slo], wanted: ServeSearch, save: Path | None, page: ServePage | None, *, json: bool
) -> None:
    from cosmic.cli.serve_output import (  # noqa: PLC0415  heavy
        plan_as_data,
        print_plan,
    )
    from cosmic.search.advice.deployment_plan import plan_deployments  # noqa: PLC0415  heavy

    plan = plan_deployments(service, limits, wanted.most, seed=wanted.seed, progress=doing)
    if plan.chosen is not None:
        _save_deployment(plan.chosen.design, save)
    if json:
        emit_json(plan_as_data(service, plan, limits))
    else:
        print_plan(service, plan, limits, save)
    if page is not None:
        _write_page(service, plan, limits, page, save)
    if plan.chosen is None:
        raise typer.Exit(CANNOT_SERVE)


def _write_page(service: Service, plan: Plan, limits: list[Slo], page: ServePage, save: Path | None) -> None:
    from cosmic.base.files import write_text  # noqa: PLC0415
    from cosmic.report.serving_report import serving_report  # noqa: PLC0415  heavy

    doing("writing the page")
    write_text(page.path, serving_report(service, plan, limits, page.command, str(save or "")).html, "--report")


def _save_deployment(design: DesignPoint, path: Path | None) -> None:
    """Write a deployment as a design file."""
    if path is None:
        return
    from cosmic.base.files import write_text  # noqa: PLC0415
    from cosmic.design.loading import dump_design  # noqa: PLC0415  heavy

    write_text(path, dump_design(design), "--save")
