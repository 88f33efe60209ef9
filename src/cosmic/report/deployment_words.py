"""A deployment in words: an instance, its limits, and the limits on latencies that it is to hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cosmic.base.errors import require
from cosmic.base.units import USD, read_quantity
from cosmic.design import catalog_entries
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import is_moe
from cosmic.design.serving_layer import Load, Serving
from cosmic.report.document_types import SloJson
from cosmic.search.design_wording import seconds_text
from cosmic.search.objectives import MetricLimit
from cosmic.serving.deployment import Pool

LATENCY_LABELS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}
"""Latencies, and what they are called."""
USUAL_STATISTIC = "p95"
"""The statistic that a limit on requests is compared with."""
LATENCY_METRICS = {
    f"{name}_s" if statistic == "mean" else f"{name}_{statistic}_s": (name, statistic)
    for name in LATENCY_LABELS
    for statistic in ("mean", "p50", "p95", "p99")
}
"""Metrics of a trial that are a latency, with its statistic."""


def serving_of(point: DesignPoint) -> Serving:
    """Return the serving layer of a design that has one."""
    require(point.serving is not None, "serving", None, "the design has no serving layer")
    assert point.serving is not None  # noqa: S101  as was required
    return point.serving


def instance_in_words(pool: Pool) -> str:
    """Return the mapping of one engine instance of a pool."""
    workload, ranks = pool.design.workload, int(pool.ranks)
    degrees = {"tp": workload.tp, "pp": workload.pp, "attention dp": ranks}
    words = [f"{name} {size}" for name, size in degrees.items() if size > 1]
    if is_moe(pool.design.model) and workload.ep > 1:
        words.append(f"ep {workload.ep}")
    return " · ".join(words) or "one accelerator"


def limits_in_words(serving: Serving) -> str:
    """Return the limits of an instance that are stated.

    >>> limits_in_words(Serving(load=Load(isl=1, osl=1, rate=1)))
    "the engine's own limits"
    >>> limits_in_words(Serving(load=Load(isl=1, osl=1, rate=1), max_num_seqs=256, kv_cache_dtype="fp8"))
    'at most 256 requests at once, KV cache in fp8'
    """
    words = []
    if serving.max_num_seqs is not None:
        words.append(f"at most {serving.max_num_seqs:,} requests at once")
    if serving.max_num_batched_tokens is not None:
        words.append(f"at most {serving.max_num_batched_tokens:,} tokens a step")
    if serving.kv_cache_dtype != "auto":
        words.append(f"KV cache in {serving.kv_cache_dtype}")
    if serving.memory_fraction is not None:
        words.append(f"{100 * serving.memory_fraction:.0f} % of the memory")
    if serving.draft_tokens:
        words.append(f"{serving.draft_tokens} drafted tokens a step, {100 * serving.acceptance:.0f} % accepted")
    return ", ".join(words) or "the engine's own limits"


def slos_of(load: Load, limits: Sequence[MetricLimit] = ()) -> list[SloJson]:
    """Return the limits on latencies: those of a search, and of the requests, of which 95 in 100 are to be within.

    Of several on one metric, the tightest counts. Those of the search come first.
    """
    slos: dict[str, SloJson] = {}
    asked = [(limit.metric, limit.bound) for limit in limits if limit.most and limit.metric in LATENCY_METRICS]
    for request_class in load.all_classes:
        asked += (
            [(f"ttft_{USUAL_STATISTIC}_s", request_class.ttft_slo_s)] if request_class.ttft_slo_s is not None else []
        )
        asked += (
            [(f"tpot_{USUAL_STATISTIC}_s", request_class.tpot_slo_s)] if request_class.tpot_slo_s is not None else []
        )
    for metric, bound in sorted(asked, key=lambda each: -each[1]):
        name, statistic = LATENCY_METRICS[metric]
        text = f"{LATENCY_LABELS[name]} {statistic} ≤ {seconds_text(bound)}"
        slos[metric] = {"metric": metric, "statistic": statistic, "limit_s": bound, "text": text}
    limited = {limit.metric for limit in limits}
    return [
        slos[metric]
        for metric in sorted(slos, key=lambda each: (each not in limited, list(LATENCY_METRICS).index(each)))
    ]


def first_slo_on(name: str, slos: Iterable[SloJson]) -> SloJson | None:
    """Return the limit on a latency; of several, the first."""
    return next((slo for slo in slos if LATENCY_METRICS[slo["metric"]][0] == name), None)


def price_in_words(point: DesignPoint) -> str:
    """Return what the dollars of a deployment are of, and where its price comes from; empty where it has none."""
    price, name = point.compute.price_usd, point.compute.accelerator
    if price is None:
        return ""
    priced_entry = (
        catalog_entries.read_entry("accelerators", name) if name in catalog_entries.entry_names("accelerators") else {}
    )
    usual = priced_entry and read_quantity(str(priced_entry["compute"].get("price", "0 USD")), USD) == price
    basis = str(priced_entry.get("price_basis", "of the catalog")) if usual else "as stated"
    terms = point.facility
    terms_text = f"{100 * terms.upkeep_per_year:.0f} % upkeep a year and power at {terms.usd_per_kwh:g} USD/kWh"
    hosts = f"host (of {point.node.name})" if point.node.name else ""
    bought = " and ".join(filter(None, ["its network", f"its {hosts}" if hosts else ""]))
    without = (
        "buildings, idle time and a renter's margin" if hosts else "hosts, buildings, idle time and a renter's margin"
    )
    return (
        f"{price:,.0f} for each {name or 'NPU'} ({basis.replace('+-', '±').replace('%', ' %')}) and {bought} over "
        f"{terms.years:g} years, with {terms_text}; without {without}"
    )
