"""What `cosmic serve --search` prints: the front, one pool beside two, and the cheapest deployment."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cosmic.cli.console import emit, emit_commands, emit_table, say
from cosmic.cli.evaluate import seconds
from cosmic.cli.serve_words import counted, expected, load_in_words, near, prices, short

if TYPE_CHECKING:
    from pathlib import Path

    from cosmic.advice.deploying import Checked, Plan
    from cosmic.loading.services import Service
    from cosmic.serving.candidates import Candidate
    from cosmic.serving.outcome import ServingMetrics
    from cosmic.serving.searching import Found
    from cosmic.serving.slo import Slo

FEWER = 3
"""Deployments that the simulation refutes, of which so many are named."""
SHOWN = 12
"""Deployments of the front that are printed."""


def show_plan(service: Service, found: Plan, limits: Sequence[Slo], saved: Path | None) -> None:
    """Print what a search for a deployment found."""
    from cosmic.design.point import called  # noqa: PLC0415  heavy

    design = service.design
    assert design.serving is not None  # noqa: S101  a service has a load
    emit(
        [
            f"{called(design.model)} on {design.compute.accelerator}, {design.serving.engine}, "
            f"{design.workload.precision}",
            load_in_words(design) + "".join(f" · {each.metric.upper()} {each}" for each in limits),
        ]
    )
    say([f"assumed: {each}" for each in service.assumed])
    say(held_in_words(service))
    if found.front:
        _show_front(found.front, limits)
    _show_beside(service, found, limits)
    emit([""])
    _show_chosen(service, found, limits)
    say(["", _effort(found)])
    if found.chosen and saved:
        file = shlex.quote(str(saved))
        emit_commands(
            {
                f"cosmic serve {file}": "where its time goes, and what would help",
                f"cosmic export {file} --to {design.serving.engine}": "its launch arguments",
            }
        )


def held_in_words(service: Service) -> list[str]:
    """Return what of an instance's mapping a search holds, as its file or --set states it."""
    if not service.held:
        return []
    said = ", ".join(f"{name} {value}" for name, value in service.held.items())
    own = {path.rpartition(".")[2] for path in service.settings}
    where = "--set" if all(name in own for name in service.held) else service.source
    return [f"held: {said}, as {where} states: only such instances are compared, in one pool alone"]


def _show_front(front: Sequence[Candidate], limits: Sequence[Slo]) -> None:
    emit(["", "throughput against speed: of the deployments compared, none has more of both"])
    step = max(1, -(-len(front) // SHOWN))
    shown = [each for place, each in enumerate(front) if place % step == 0 or each is front[-1]]
    heads = ["tokens/s an accelerator", "tokens/s a user", "TTFT P95", "TPOT P95", "in flight", "deployment"]
    rows = [
        [
            short(each.metrics.tokens_per_s_per_npu),
            f"{each.metrics.tokens_per_s_per_user:,.1f}",
            seconds(each.metrics.ttft.p95_s),
            seconds(each.metrics.tpot.p95_s),
            f"{each.load.concurrency:,}",
            str(each),
            *((["holds" if each.holds else "-"]) if limits else []),
        ]
        for each in shown
    ]
    emit_table("", [*heads, *(["limits"] if limits else [])], rows)


def _show_beside(service: Service, found: Plan, limits: Sequence[Slo]) -> None:
    """Print the cheapest in one pool beside the cheapest in two."""
    rows = []
    for name, part in (("aggregated", found.one), ("disaggregated", found.two)):
        tried = [each for each in found.checked if bool(each.candidate.kind.prefill) == (part is found.two)]
        if part.cheapest:
            rows.append([name, *_row(part, tried, limits)])
        elif part.kinds:
            rows.append([name, "none", "-", "-", "-", "no deployment holds the limits", "none", "-"])
    if rows:
        emit(["", "cheapest at the load"])
        heads = ["", "accelerators", "TTFT P95", "TPOT P95", "tokens/s an accelerator", "deployment"]
        emit_table("", [*heads, "in closed form", "simulation"], rows)
    say(list(_rounded(service, found)))


def _row(part: Found, tried: Sequence[Checked], limits: Sequence[Slo]) -> list[str]:
    """Return the deployment that holds, or the first that was simulated, or the closed form's where none was."""
    first = part.cheapest[0]
    if not tried:
        return [*_cells(first, first.metrics), f"{first.npus:,}", "not simulated"]
    best = tried[0]  # those that hold come first
    verdict = "holds" if best.holds else "fails: " + "; ".join(_failing(best, limits))
    return [*_cells(best.candidate, best.simulated or best.candidate.metrics), f"{first.npus:,}", verdict]


def _cells(each: Candidate, seen: ServingMetrics) -> list[str]:
    times = [seconds(seen.ttft.p95_s), seconds(seen.tpot.p95_s)]
    return [f"{each.npus:,}", *times, short(each.metrics.tokens_per_s_per_npu), str(each)]


def _rounded(service: Service, found: Plan) -> Iterator[str]:
    """Yield that accelerators come in whole hosts, where that makes them more than the closed form asks for."""
    from cosmic.advice.sizing import next_size  # noqa: PLC0415  heavy

    fewest = {part.cheapest[0].npus for part in (found.one, found.two) if part.cheapest}
    larger = {npus: size for npus in sorted(fewest) if (size := next_size(service, npus)) not in (None, npus)}
    if larger:
        host = service.design.network.dims[0].npus if service.system else service.design.network.npus
        said = ", ".join(f"{npus:,} take {size:,}" for npus, size in larger.items())
        what = f"hosts of {host:,}" if service.system else f"the {counted(host, 'accelerator')} of {service.source}"
        yield f"accelerators come in whole {what}: {said}" if service.system else f"there are {what}: {said}"


def _show_chosen(service: Service, found: Plan, limits: Sequence[Slo]) -> None:
    best = found.chosen
    if best is None:
        say([f"cannot serve: {reason}" for reason in found.reasons])
        say([_refuted(each, limits) for each in found.checked[:FEWER]])
        return
    seen = best.simulated or best.candidate.metrics
    usd = best.candidate.metrics.usd_per_million_tokens  # the same that `serve` and `evaluate` say of it
    cost = f", {usd:,.3g} USD per million output tokens" if usd is not None else ""
    say([f"cheapest: {counted(best.candidate.npus, 'accelerator')}, {best.candidate}{cost}"])
    say([_simulated(best, limits)])
    say(near(best.design, seen, limits))
    fewer = [each for each in found.checked if not each.holds and each.candidate.npus < best.candidate.npus]
    say([_refuted(each, limits) for each in fewer[:FEWER]])
    if found.untried:
        say(["between {:,} accelerators, which fail, and {:,} not all sizes were tried".format(*found.untried)])
    say(["", *expected(best.design), *prices(best.design)])


def _simulated(each: Checked, limits: Sequence[Slo]) -> str:
    """Return what the simulation says of a deployment that holds."""
    seen = each.simulated or each.candidate.metrics
    told = (
        ", ".join(f"{limit.metric.upper()} {limit.statistic} {seconds(float(limit.value(seen)))}" for limit in limits)
        or f"TTFT p95 {seconds(seen.ttft.p95_s)}, TPOT p95 {seconds(seen.tpot.p95_s)}"
    )
    part = "" if each.share == 1 else f", of {100 * each.share:.0f} % of the instances with their share of the load"
    return f"simulation{part}: {'all limits hold' if limits else 'it bears the load, no limit is given'} ({told})"


def _refuted(each: Checked, limits: Sequence[Slo]) -> str:
    """Return what fails of a deployment in the simulation."""
    closed = "holds in closed form, " if each.candidate.holds and limits else ""
    what = f"{counted(each.candidate.npus, 'accelerator')}, {each.candidate}"
    return f"{what}: {closed}fails in the simulation: {'; '.join(_failing(each, limits))}"


def _failing(each: Checked, limits: Sequence[Slo]) -> list[str]:
    """Return which limits fail in the simulation, and by what."""
    seen = each.simulated
    if seen is None:
        return ["it cannot serve these requests"]
    broken = [limit for limit in limits if not limit.holds(seen)]
    said = [
        f"{limit.metric.upper()} {limit.statistic} {seconds(float(limit.value(seen)))}, not {seconds(limit.limit_s)}"
        for limit in broken
    ]
    rate = each.candidate.load.rate
    late = f"{seen.requests_per_s:,.4g} of {rate:,.4g} requests/s end" if rate else "requests wait for too long"
    return said or [late]


def _effort(found: Plan) -> str:
    kinds = found.one.kinds + found.two.kinds
    whole = "all kinds that fit" if found.one.exhaustive and found.two.exhaustive else "the most promising kinds"
    priced = found.one.priced + found.two.priced
    tried = f"; {len(found.checked):,} simulated" if found.checked else ""
    return f"{priced:,} deployments of {counted(kinds, 'kind')} priced in {found.seconds:.1f} s: {whole}{tried}"
