"""What `cosmic serve` prints: a service's times, its costs, where time goes and what would help."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING

from cosmic.cli.console import emit, emit_table, say
from cosmic.cli.evaluate import bar, seconds

if TYPE_CHECKING:
    from cosmic.advice.serving import Answer, Move
    from cosmic.design.point import DesignPoint
    from cosmic.design.serving import Load
    from cosmic.loading.services import Service
    from cosmic.serving.accuracy import ServingErrors
    from cosmic.serving.outcome import Percentiles, ServingMetrics
    from cosmic.serving.slo import Slo

STATISTICS = {"mean": "mean", "P50": "p50", "P95": "p95", "P99": "p99"}
TIMES = {"TTFT": "ttft", "TPOT": "tpot", "end to end": "e2e"}
MILLION = 1e6
GAINS = {"tokens/s": "the tokens/s", "end to end": "as fast end to end"}
"""What the gain of a move is of."""


def show(service: Service, found: Answer, limits: Sequence[Slo], replayed: Sequence[str] = ()) -> None:
    """Print what a service achieves, where its time goes and what would help.

    *replayed* are the options that name a trace: the commands that are advised have them, too.
    """
    emit([deployment_in_words(found.design), *idle(found.design), load_in_words(found.design)])
    if found.searched:
        emit([f"mapping: the best of {found.searched:,} for this load (--set tp=…, pp=…, ep=… states one)"])
    say([f"assumed: {each}" for each in service.assumed])
    emit([""])
    if found.metrics is None:
        say([f"cannot serve: {reason}" for reason in found.reasons])
        say(fewest_in_words(found, limits))
        return
    metrics = found.shown
    show_times(metrics)
    if found.simulated is not None:
        say(["", *_beside(found)])
    emit(["", *achieved(metrics, simulated=found.leads)])
    say(verdicts(found, limits))
    say([*expected(found.design), *prices(found.design), ""])
    show_parts("decode step", metrics.decode_breakdown)
    emit([""])
    show_parts("TTFT", metrics.ttft_breakdown)
    emit([""])
    show_moves(service, found, limits, replayed)


def _beside(found: Answer) -> list[str]:
    """Return how closed form and simulation compare: the one that is not shown, and where they differ."""
    assert found.metrics is not None  # noqa: S101  it runs
    assert found.simulated is not None  # noqa: S101  it was simulated
    name, other = ("closed form", found.metrics) if found.leads else ("simulation", found.simulated)
    said = f"{name}: TTFT {_known(other.ttft.mean_s)}, TPOT {_known(other.tpot.mean_s)}"
    notes = [f"note: {each}" for each in (found.seen.cautions if found.seen else ())]
    if not found.differences:
        return [f"{said}; the two differ by less than 10 %", *notes]
    apart = ", ".join(f"{name} {ratio:.2f}×" for name, ratio in found.differences.items())
    return [f"{said}; simulated over closed form: {apart}", *notes]


def counted(number: float, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "accelerator"), counted(1024, "accelerator"), counted(2.66667, "request")
    ('1 accelerator', '1,024 accelerators', '2.667 requests')
    """
    said = f"{number:,.0f}" if number == int(number) else f"{number:,.4g}"
    return f"{said} {noun}{'' if number == 1 else 's'}"


def fewest_in_words(found: Answer, limits: Sequence[Slo]) -> list[str]:
    """Return how many accelerators would do in one pool, and whether within the limits and with the mapping stated."""
    if found.fewest is None:
        return []
    fewest = found.fewest
    npus = fewest.npus
    kept = ["in closed form", "in one pool"]
    kept += [] if found.searched else ["with this mapping" if fewest.mapped else "with another mapping"]
    kept += [f"{'within' if fewest.within else 'not within'} the limits"] if limits else []
    return [
        f"{counted(npus, 'accelerator')} would do: {npus // fewest.shape.npus:,} × {fewest.shape} ({', '.join(kept)}); "
        "--search compares two pools, too"
    ]


def verdicts(found: Answer, limits: Sequence[Slo]) -> list[str]:
    """Return which limits hold, which by less than the expected error, and on which the two engines do not agree."""
    close = dict(_close(found.design, found.shown, limits))
    return [
        f"{each.metric.upper()} {each}: {'holds' if each.holds(found.shown) else 'does not hold'}"
        + (f", {close[each]}" if each in close else "")
        + _disputed(found, each)
        for each in limits
    ]


def _disputed(found: Answer, limit: Slo) -> str:
    """Return what the other engine says of a limit, where that is not the same; empty where it is."""
    name, other = ("closed form", found.metrics) if found.leads else ("simulation", found.simulated)
    if other is None or bool(limit.holds(other)) == bool(limit.holds(found.shown)):
        return ""
    kept = "" if limit.holds(other) else "not "
    return f", but {kept}in the {name} ({_known(float(limit.value(other)))})"


def near(design: DesignPoint, metrics: ServingMetrics, limits: Sequence[Slo]) -> list[str]:
    """Return which limits hold or not by less than the expected error, a sentence each."""
    return [f"{each.metric.upper()} {each.statistic} holds {why}" for each, why in _close(design, metrics, limits)]


def _close(design: DesignPoint, metrics: ServingMetrics, limits: Sequence[Slo]) -> list[tuple[Slo, str]]:
    errors = _errors(design)
    found = []
    for each in limits:
        error = errors.of(each.metric) if errors else None
        apart = abs(1 - float(each.value(metrics)) / each.limit_s)
        if error is not None and apart < error:
            found.append((each, f"by {100 * apart:.0f} %, less than the expected error of {100 * error:.0f} %"))
    return found


def expected(design: DesignPoint) -> list[str]:
    """Return how far off the times are expected to be."""
    errors = _errors(design)
    if errors is None:
        return ["expected error: not measured, as no published run has this engine"]
    from cosmic.serving.accuracy import unlike_published  # noqa: PLC0415  heavy

    runs = f"{errors.runs:,} published runs {errors.kind}"
    unlike = unlike_published(design)
    beside = f"; none of them had {' or '.join(unlike)}: it may be more" if unlike else ""
    both = f"TTFT {100 * errors.ttft:.0f} %, TPOT {100 * errors.tpot:.0f} %"
    return [f"expected error: {both}, as on average of {runs}{beside}"]


def _errors(design: DesignPoint) -> ServingErrors | None:
    from cosmic.serving.accuracy import errors_of  # noqa: PLC0415  heavy

    assert design.serving is not None  # noqa: S101  a service has a load
    return errors_of(design.serving.engine, disaggregated=design.serving.disaggregated)


def prices(design: DesignPoint) -> list[str]:
    """Return what dollars are of."""
    from cosmic.publishing.serving_words import price_in_words  # noqa: PLC0415  heavy

    said = price_in_words(design)
    return [f"USD: {said}"] if said else []


def deployment_in_words(design: DesignPoint) -> str:
    """Return the model, its accelerators, the engine and its instances on one line."""
    from cosmic.design.point import called  # noqa: PLC0415  heavy
    from cosmic.serving.shapes import Shape, shape_of  # noqa: PLC0415  heavy

    shape, serving = shape_of(design.workload), design.serving
    count = max(1, design.workload.dp // shape.ranks)
    assert serving is not None  # noqa: S101  a service has a load
    instances = f"{count:,} instance{'s' if count > 1 else ''} of {shape}"
    if serving.disaggregated and (pool := serving.prefill):
        instances = (
            f"{instances} to decode, {pool.replicas:,} of {Shape(pool.tp, pool.pp, pool.dp, pool.ep)} to prefill"
        )
    where = f"{design.network.npus:,} × {design.compute.accelerator}"
    model = called(design.model)
    return f"{model} on {where}, {serving.engine}, {design.workload.precision}: {instances}"


def idle(design: DesignPoint) -> list[str]:
    """Return how many accelerators no instance has, if any."""
    from cosmic.serving.shapes import shape_of  # noqa: PLC0415  heavy

    shape, serving, there = shape_of(design.workload), design.serving, design.network.npus
    used = shape.npus * max(1, design.workload.dp // shape.ranks)
    if serving and serving.disaggregated and (pool := serving.prefill) and pool.system is None:
        used += pool.npus
    return [f"{there - used:,} of {there:,} accelerators are idle: no instance has them"] if used < there else []


def load_in_words(design: DesignPoint) -> str:
    """Return the load on one line."""
    assert design.serving is not None  # noqa: S101  a service has a load
    load = design.serving.load
    arrivals = f"{counted(load.rate, 'request')}/s" if load.rate is not None else ""
    arrivals = arrivals or f"{counted(load.concurrency or 1, 'request')} in flight"
    beside = [f"lengths spread by {100 * load.isl_cv:.0f} %"] if load.isl_cv else []
    beside += [f"{100 * load.prefix_hit:.0f} % of prompts cached"] if load.prefix_hit else []
    if load.classes:
        arrivals += f" of {len(load.classes)} classes ({', '.join(each.name for each in load.classes)})"
        beside += ["on average"]
    lengths = f"{counted(round(load.mean('isl')), 'token')} in, {load.mean('osl'):,.0f} out"
    return " · ".join([arrivals, lengths, *beside])


def show_times(metrics: ServingMetrics) -> None:
    """Print the times that clients see as a table."""
    rows = []
    for name, key in TIMES.items():
        times: Percentiles = getattr(metrics, key)
        rows.append([name, *(_known(times.at(each)) for each in STATISTICS.values())])
    emit_table("", ["", *STATISTICS], rows)


def _known(value: float) -> str:
    return "-" if isnan(value) else seconds(value)


def short(value: float) -> str:
    """Return a number of three digits, or of as many as it has before the point.

    >>> short(1234.5), short(0.01234), short(12.34)
    ('1,234', '0.0123', '12.3')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _each_s(rate: float) -> str:
    return f"{short(rate)} request{'' if short(rate) == '1' else 's'}/s"


def achieved(metrics: ServingMetrics, *, simulated: bool = False) -> list[str]:
    """Return throughput, cost and use as lines; cost says where it is for tokens that were *simulated*."""
    user = float(metrics.tokens_per_s_per_user)
    lines = [
        f"{metrics.output_tokens_per_s:,.0f} tokens/s · {metrics.tokens_per_s_per_npu:,.0f} an accelerator · "
        f"{'' if isnan(user) else f'{user:,.1f} a user · '}{_each_s(metrics.requests_per_s)}"
    ]
    if metrics.goodput_per_s is not None:
        lines.append(f"goodput {_each_s(metrics.goodput_per_s)}: {100 * metrics.within_slo:.1f} % within the limits")
    usd, joules = metrics.usd_per_million_tokens, metrics.j_per_million_tokens
    cost = "unknown USD" if usd is None else f"{usd:,.3g} USD to own and power{', as simulated' if simulated else ''}"
    energy = "unknown MJ" if joules is None else f"{joules / MILLION:,.3g} MJ"
    lines.append(f"per million output tokens {cost} · {energy}")
    busy = " · ".join(
        f"{'' if name == 'all' else name + ' '}busy {100 * share:.0f} %" for name, share in metrics.utilisation.items()
    )
    use = f"{short(metrics.running)} running, {short(metrics.waiting)} waiting"
    use += f" · KV cache {100 * metrics.kv_use:.0f} % full"
    return [*lines, f"{busy} · {use} · prefill {100 * metrics.prefill_share:.0f} % of the time" if busy else use]


def show_parts(title: str, parts: Mapping[str, float]) -> None:
    """Print what a time is made of as a table."""
    whole = sum(parts.values())
    if whole <= 0:
        return
    rows = [
        [name.replace("_", " "), seconds(value), f"{100 * value / whole:.1f} %", bar(value / whole)]
        for name, value in parts.items()
        if value > 0.0005 * whole
    ]
    emit_table("", [title, seconds(whole), "share", ""], rows)


def show_moves(service: Service, found: Answer, limits: Sequence[Slo], replayed: Sequence[str] = ()) -> None:
    """Print what would help, each with the command that tries it."""
    if not found.moves:
        emit(["what would help: no move that was tried gains 2 % or more"])
        return
    assert found.metrics is not None  # noqa: S101  it runs
    means = ", with the trace's means" if replayed else ""
    say([f"what would help (in closed form{means})"])
    for move in found.moves:
        about = filter(None, [move.tried.condition, _becomes(found.metrics, move.metrics)])
        say([f"  {move.gain:.2f}× {GAINS[move.gain_of]}: {move.tried.what} ({', '.join(about)})"])
        if move.simulated is not None and found.simulated is not None:
            say([f"         simulated: {move.simulated_gain:.2f}×, {_becomes(found.simulated, move.simulated)}"])
        emit([f"         {command(service, found, move, limits, replayed)}"])


def _becomes(base: ServingMetrics, other: ServingMetrics) -> str:
    return (
        f"TTFT P95 {seconds(base.ttft.p95_s)} → {seconds(other.ttft.p95_s)}, "
        f"TPOT {_known(base.tpot.mean_s)} → {_known(other.tpot.mean_s)}"
    )


def command(service: Service, found: Answer, move: Move, limits: Sequence[Slo], replayed: Sequence[str] = ()) -> str:
    """Return the command that serves with a move, within the same limits."""
    from cosmic.advice.serving_moves import mesh_of  # noqa: PLC0415  heavy
    from cosmic.cli.advising import setting  # noqa: PLC0415
    from cosmic.design.paths import full_path  # noqa: PLC0415  heavy
    from cosmic.serving.candidates import load_of, serving_of  # noqa: PLC0415  heavy
    from cosmic.serving.shapes import has_experts  # noqa: PLC0415  heavy

    tried, load, source = move.tried, load_of(found.design), service.source
    if tried.npus:
        source = f"{source.rpartition(':')[0]}:{tried.npus}"
    words = ["cosmic", "serve", source]
    words += replayed or _load_words(load)
    words += ["--prefix-hit", f"{load.prefix_hit:g}"] if load.prefix_hit else []
    if not load.classes:  # which have limits of their own
        words += [word for each in limits if each.metric != "e2e" for word in (f"--{each.metric}", str(each))]
    usual = {"--engine": serving_of(found.design).engine, "--precision": found.design.workload.precision}
    changed = {**mesh_of(found.shape, experts=has_experts(found.design)), **tried.settings}
    settings = {**service.settings, **{full_path(name): value for name, value in changed.items()}}
    words += [word for name, value in {**usual, **tried.options}.items() for word in (name, value)]
    words += [
        word
        for path, value in settings.items()
        if path != "workload.precision"
        for word in ("--set", setting(path, value))
    ]
    return shlex.join(words)


def _load_words(load: Load) -> list[str]:
    """Return the options that say a load."""
    words: list[str] = []
    if not load.classes:  # which a file has, each with its own lengths
        words += ["--input", f"{load.mean('isl'):.0f}", "--output", f"{load.mean('osl'):.0f}"]
    words += ["--rate", f"{load.rate:g} req/s"] if load.rate is not None else ["--concurrency", str(load.concurrency)]
    return words + (["--spread", f"{load.isl_cv:g}"] if load.isl_cv else [])
