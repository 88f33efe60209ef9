"""Questions about serving in one call: `serve` is `cosmic serve`, `plan_serving` is `cosmic serve --search`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from cosmic.advice.deploying import Plan, plan
from cosmic.advice.serving import Answer, Simulation, answer
from cosmic.loading.services import Asked, Service, read_service
from cosmic.serving.slo import Slo, read_rate, read_slo


class Question(TypedDict, total=False):
    """What may be said of a load and its limits, with the names that the command's options have."""

    input: int
    output: int
    concurrency: int
    rate: float | str
    """Requests a second, or ``"100 req/s"``."""
    spread: float
    prefix_hit: float
    ttft: str
    """A limit: ``"p95 <= 1 s"``."""
    tpot: str
    engine: str
    precision: str


def serve(
    source: str,
    settings: Mapping[str, Any] | None = None,
    *,
    simulation: Simulation | None = None,
    **question: Unpack[Question],
) -> Answer:
    """Return what a deployment achieves under a load, where its time goes and what would help it.

    *source* is ``MODEL@SYSTEM:N`` or a design file, *settings* are fields as ``--set`` has them. A *simulation* follows
    each request.

    >>> found = serve("llama3-8b@h100:1", {"tp": 1}, input=1000, output=100, concurrency=1)
    >>> found.metrics.ttft.mean_s < 0.1
    True
    """
    service, limits = _read(source, settings, question, largest=False)
    return answer(service, limits, simulation)


def plan_serving(
    source: str,
    settings: Mapping[str, Any] | None = None,
    *,
    max_gpus: int | None = None,
    **question: Unpack[Question],
) -> Plan:
    """Return the deployments that hold the limits at the load: the cheapest (`chosen`), and the front of all.

    ``plan_serving("llama3-70b@h100", input=1000, output=300, rate=50, ttft="1 s", tpot="p95 <= 30 ms").chosen``
    """
    service, limits = _read(source, settings, question, largest=True)
    return plan(service, limits, max_gpus)


def _read(
    source: str, settings: Mapping[str, Any] | None, question: Question, *, largest: bool
) -> tuple[Service, list[Slo]]:
    said: dict[str, Any] = dict(question)
    limits = [read_slo(said.pop(name), name) for name in ("ttft", "tpot") if name in said]
    if isinstance(said.get("rate"), str):
        said["rate"] = read_rate(said["rate"], "rate")
    limits_s = {each.metric: each.limit_s for each in limits}
    return read_service(source, settings or {}, Asked(**said, limits_s=limits_s, largest=largest)), limits
