"""What `cosmic serve --json` prints."""

from __future__ import annotations

from dataclasses import asdict
from math import isnan
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cosmic.advice.deploying import Checked, Plan
    from cosmic.advice.serving import Answer, Fewest, Move
    from cosmic.design.point import DesignPoint
    from cosmic.loading.services import Service
    from cosmic.serving.candidates import Candidate
    from cosmic.serving.outcome import ServingMetrics
    from cosmic.serving.shapes import Shape
    from cosmic.serving.slo import Slo


def answer_as_data(
    service: Service, found: Answer, limits: Sequence[Slo], replayed: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what a service achieves; *replayed* are the options that name a trace."""
    from cosmic.cli.serve_words import command  # noqa: PLC0415

    about: dict[str, Any] = {
        "identity": found.design.identity,
        "deployment": _deployment(found.design),
        "load": _load(found.design),
    }
    about |= {"assumed": list(service.assumed), "searched": found.searched}
    if found.metrics is None:
        return {
            "feasible": False,
            "reasons": list(found.reasons),
            **about,
            "fewest_npus": found.fewest and found.fewest.npus,
            "fewest": found.fewest and _fewest(found.fewest),
        }
    return {
        "feasible": True,
        "reasons": [],
        **about,
        "limits": [
            _limit(each, found.shown, found.design) | {"simulated_s": _seen(each, found.simulated)} for each in limits
        ],
        "expected_error": _expected(found.design),
        "metrics": _metrics(found.metrics),
        "simulated": None if found.simulated is None else _metrics(found.simulated),
        "differences": dict(found.differences),
        "improvements": [_move(each, command(service, found, each, limits, replayed)) for each in found.moves],
    }


def plan_as_data(service: Service, found: Plan, limits: Sequence[Slo]) -> dict[str, Any]:
    """Return what a search for a deployment found."""
    chosen = found.chosen
    cheapest = [each.cheapest[0] if each.cheapest else None for each in (found.one, found.two)]
    return {
        "feasible": chosen is not None,
        "reasons": list(found.reasons),
        "load": _load(service.design),
        "assumed": list(service.assumed),
        "limits": [{"metric": each.metric, "statistic": each.statistic, "limit_s": each.limit_s} for each in limits],
        "front": [_candidate(each) for each in found.front],
        "aggregated": cheapest[0] and _candidate(cheapest[0]),
        "disaggregated": cheapest[1] and _candidate(cheapest[1]),
        "held": dict(service.held),
        "chosen": chosen and _checked(chosen, limits),
        "checked": [_checked(each, limits) for each in found.checked],
        "needed_npus": found.needed,
        "untried": found.untried and list(found.untried),
        "kinds": {"aggregated": found.one.kinds, "disaggregated": found.two.kinds},
        "priced": found.one.priced + found.two.priced,
        "exhaustive": found.one.exhaustive and found.two.exhaustive,
        "seconds": found.seconds,
    }


def _shape(shape: Shape, instances: int) -> dict[str, int]:
    names = {"tp": shape.tp, "pp": shape.pp, "attention_dp": shape.ranks, "ep": shape.ep}
    return {"instances": instances, "npus": shape.npus * instances, **names}


def _deployment(design: DesignPoint) -> dict[str, Any]:
    from cosmic.serving.shapes import Shape, shape_of  # noqa: PLC0415  heavy

    shape, serving = shape_of(design.workload), design.serving
    pool = serving.prefill if serving and serving.disaggregated else None
    filling = pool and _shape(Shape(pool.tp, pool.pp, pool.dp, pool.ep), pool.replicas)
    return {
        "npus": design.network.npus,
        "engine": serving.engine if serving else "",
        "precision": design.workload.precision,
        "pool": _shape(shape, max(1, design.workload.dp // shape.ranks)),
        "prefill": filling,
    }


def _load(design: DesignPoint) -> dict[str, Any]:
    assert design.serving is not None  # noqa: S101  a service has a load
    load = design.serving.load
    return {"input": load.mean("isl"), "output": load.mean("osl"), "concurrency": load.concurrency, "rate": load.rate}


def _fewest(found: Fewest) -> dict[str, Any]:
    pool = _shape(found.shape, found.npus // found.shape.npus)
    return {"npus": found.npus, "pool": pool, "within_limits": found.within, "as_mapped": found.mapped}


def _expected(design: DesignPoint) -> dict[str, Any] | None:
    from cosmic.serving.accuracy import errors_of  # noqa: PLC0415  heavy

    assert design.serving is not None  # noqa: S101  a service has a load
    found = errors_of(design.serving.engine, disaggregated=design.serving.disaggregated)
    return None if found is None else asdict(found)


def _seen(limit: Slo, simulated: ServingMetrics | None) -> float | None:
    value = float("nan") if simulated is None else float(limit.value(simulated))
    return None if isnan(value) else value


def _limit(limit: Slo, metrics: ServingMetrics, design: DesignPoint) -> dict[str, Any]:
    value = float(limit.value(metrics))
    known = None if isnan(value) else value
    about = {"metric": limit.metric, "statistic": limit.statistic, "limit_s": limit.limit_s}
    error = (_expected(design) or {}).get(limit.metric)
    close = error is not None and known is not None and abs(1 - known / limit.limit_s) < error
    return {**about, "value_s": known, "holds": bool(limit.holds(metrics)), "within_error": close}


def _metrics(metrics: ServingMetrics) -> dict[str, Any]:
    """Return metrics with null for what does not exist, such as the time per output token of a single token."""

    def known(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: known(each) for name, each in value.items()}
        return None if isinstance(value, float) and isnan(value) else value

    found: dict[str, Any] = known(asdict(metrics))
    return found


def _move(move: Move, command: str) -> dict[str, Any]:
    return {
        "kind": move.kind,
        "what": move.tried.what,
        "gain": move.gain,
        "gain_of": move.gain_of,
        "simulated_gain": move.simulated_gain,
        "simulated": None if move.simulated is None else _metrics(move.simulated),
        "holds": move.holds,
        "condition": move.tried.condition,
        "metrics": _metrics(move.metrics),
        "command": command,
    }


def _candidate(each: Candidate) -> dict[str, Any]:
    prefill = each.kind.prefill and _shape(each.kind.prefill, each.prefill_instances)
    return {
        "npus": each.npus,
        "pool": _shape(each.kind.shape, each.instances),
        "prefill": prefill,
        "max_num_batched_tokens": each.kind.chunk,
        "concurrency": each.load.concurrency,
        "rate": each.load.rate,
        "holds": each.holds,
        "metrics": _metrics(each.metrics),
    }


def _checked(each: Checked, limits: Sequence[Slo]) -> dict[str, Any]:
    return {
        "identity": each.design.identity,
        "deployment": _candidate(each.candidate),
        "holds": each.holds,
        "simulated": None if each.simulated is None else _metrics(each.simulated),
        "simulated_share": each.share,
        "limits": [_limit(limit, each.simulated or each.candidate.metrics, each.design) for limit in limits],
        "expected_error": _expected(each.design),
    }
