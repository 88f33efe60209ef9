"""Designs, fields, metrics and quantities as people read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cosmic.base.errors import SpecError
from cosmic.base.files import dump_json
from cosmic.base.units import (
    BYTES,
    BYTES_PER_S,
    FLOP,
    FLOP_PER_S,
    JOULES,
    SECONDS,
    USD,
    WATTS,
    PhysicalDimension,
    read_quantity,
)
from cosmic.design import catalog_entries
from cosmic.design.design_point import DesignPoint, full_path, model_title
from cosmic.design.model_layer import is_moe
from cosmic.design.network_layer import BY_BANDWIDTH
from cosmic.design.plain_data import parse_yaml
from cosmic.design.serving_layer import Load
from cosmic.design.workload_layer import AXES as AXIS_ORDER
from cosmic.design.workload_layer import Workload

if TYPE_CHECKING:
    from cosmic.serving.deployment import Pool


UNITS = {
    BYTES: "B",
    BYTES_PER_S: "B/s",
    SECONDS: "s",
    USD: "USD",
    JOULES: "J",
    WATTS: "W",
    FLOP: "flop",
    FLOP_PER_S: "flop/s",
}
METRICS = {
    "step_s": ("step", "s"),
    "ttft_s": ("time to first token", "s"),
    "tpot_s": ("time per output token", "s"),
    "tokens_per_s": ("tokens/s", "1/s"),
    "mfu": ("MFU", "share"),
    "hfu": ("HFU", "share"),
    "memory_bytes": ("memory", "B"),
    "memory_used_bytes": ("memory used", "B"),
    "offloaded_bytes": ("offloaded", "B"),
    "cost_usd": ("cost", "USD"),
    "network_usd": ("network cost", "USD"),
    "cost_usd_per_token": ("cost per token", "USD"),
    "energy_j": ("energy per step", "J"),
    "perf_per_bandwidth": ("steps/s per B/s", ""),
    "perf_per_network_cost": ("steps/s per network USD", ""),
    "power_w": ("power", "W"),
    "goodput": ("goodput", "share"),
    "effective_tokens_per_s": ("effective tokens/s", "1/s"),
    "train_days": ("time to train", "day"),
    "train_usd": ("cost of the run", "USD"),
    "train_energy_j": ("energy of the run", "J"),
    "train_co2_kg": ("carbon of the run", "kg"),
    "ttft_p95_s": ("P95 time to first token", "s"),
    "tpot_p95_s": ("P95 time per output token", "s"),
    "goodput_per_s": ("good requests/s", "1/s"),
    "tokens_per_s_per_npu": ("tokens/s per NPU", "1/s"),
    "tokens_per_s_per_user": ("tokens/s per user", "1/s"),
    "energy_j_per_token": ("energy per token", "J"),
    "samples_per_s": ("samples/s", "1/s"),
    "cost_usd_per_sample": ("cost per sample", "USD"),
}
"""Labels and units of metrics."""
WRITTEN_METRICS: dict[str, Callable[[float], str]] = {"day": "{:.4g}".format, "kg": "{:,.0f}".format}
"""How numbers of other units are written."""
AXES = {"dp": "dp", "tp": "tp", "cp": "cp", "pp": "pp", "ep": "ep", "virtual_stages": "vpp"}
"""Degrees of parallelism, and what they are called."""


def design_in_words(point: DesignPoint) -> str:
    """Return a design on one line: the model, the accelerators, the mapping."""
    model = model_title(point.model)
    return f"{model} on {point.network.npus:,} × {point.compute.accelerator}: {mapping_in_words(point)}"


def mapping_in_words(point: DesignPoint) -> str:
    """Return how a design's model is mapped: every degree that is not 1, then what decides memory and time.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> mapping_in_words(load_design("llama3-70b@dgx-h100:512"))
    'dp 16 · tp 4 · cp 2 · pp 4 · vpp 10 · microbatch 1 · zero1 · recompute none · tp overlap'
    """
    workload = point.workload
    if point.serving is not None:
        return deployment_in_words(point)
    degrees = [f"{word} {getattr(workload, axis)}" for axis, word in AXES.items() if getattr(workload, axis) > 1]
    if is_moe(point.model) and workload.expert_tensor > 1:
        degrees.append(f"etp {workload.expert_tensor}")
    ends = dict(zip(("first", "last"), workload.stage_ends, strict=True))
    degrees += [f"{end} stage {layers} layers" for end, layers in ends.items() if layers is not None]
    degrees += [f"{workload.stage_layers} stages"] if workload.stage_layers != "even" and workload.pp > 1 else []
    alone = "a single accelerator" if point.network.npus == 1 else "one rank"
    words = [*(degrees or [alone]), f"microbatch {workload.micro_batch}"]
    if workload.task == "training":
        sharding = workload.weight_sharding if workload.shards_states else "no weight sharding"
        words += [sharding, f"recompute {_recompute(workload)}", *_switches(workload)]
    return " · ".join(words)


def deployment_in_words(point: DesignPoint) -> str:
    """Return the engine instances of a design that serves a load.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> load = {"isl": 4000, "osl": 500, "concurrency": 64, "prefill.replicas": 2, "prefill.tp": 4}
    >>> deployment_in_words(load_design("llama3-70b@dgx-h100:64", {"tp": 8, "pp": 1, **load}))
    'vllm, 7 × tp 8 to decode, 2 × tp 4 to prefill'
    """
    from cosmic.serving.deployment import deployment_of  # noqa: PLC0415  heavy

    deployment = deployment_of(point)
    pools = [_pool_in_words(deployment.pool)]
    if deployment.prefill:
        where = point.serving and point.serving.prefill and point.serving.prefill.system
        pools = [f"{pools[0]} to decode", f"{_pool_in_words(deployment.prefill)} to prefill"]
        pools[1] += f" on {where}" if where else ""
    return ", ".join([deployment.pool.serving.engine, *pools])


def load_in_words(load: Load) -> str:
    """Return the load of a design that serves.

    >>> load_in_words(Load(isl=4000, osl=500, concurrency=64))
    '64 requests in flight, 4,000 tokens in and 500 out'
    """
    many = (
        f"{load.rate:,.4g} requests a second" if load.rate is not None else f"{load.concurrency:,} requests in flight"
    )
    kinds = f", {len(load.classes)} classes, on average" if load.classes else ","
    return f"{many}{kinds} {load.mean('isl'):,.0f} tokens in and {load.mean('osl'):,.0f} out"


def _pool_in_words(pool: Pool) -> str:
    workload = pool.design.workload
    degrees = {"tp": workload.tp, "cp": workload.cp, "pp": workload.pp, "ep": workload.ep, "attention dp": pool.ranks}
    words = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1]
    return f"{pool.instances:,} × {' · '.join(words) or 'tp 1'}"


def _recompute(workload: Workload) -> str:
    if workload.recompute != "selective" or workload.recompute_modules == ("core_attn",):
        return workload.recompute
    return f"of {', '.join(workload.recompute_modules)}"


def _switches(workload: Workload) -> Iterator[str]:
    """Yield the switches of a training step that are not as usual."""
    if workload.pp > 1 and workload.schedule not in ("1f1b", "interleaved"):
        yield workload.schedule.replace("_", " ")
    if workload.pp > 1 and workload.placement != AXIS_ORDER:
        yield f"{', '.join(workload.placement)} inside out"
    if workload.tp > 1 and not workload.sequence_parallel:
        yield "no sequence parallelism"
    if workload.cp > 1 and workload.cp_comm_type != "ring":
        yield f"cp by {workload.cp_comm_type.replace('_', ' ')}"
    for axis in ("tp", "ep"):
        if getattr(workload, axis) > 1 and getattr(workload, f"{axis}_overlap"):
            yield f"{axis} overlap"
    if workload.offload:
        yield f"offloads {', '.join(workload.offload)}"


def metric_label(name: str) -> str:
    """Return the label of a metric."""
    return METRICS[name][0] if name in METRICS else name.replace("_", " ")


def metric_unit(name: str) -> str:
    """Return a metric's unit, as `cosmic.report.document_types` writes it."""
    return METRICS[name][1] if name in METRICS else ""


def path_unit(dimension: PhysicalDimension | None) -> str:
    """Return the unit of a field, given its physical dimension."""
    return "" if dimension is None else UNITS.get(dimension, "")


def path_label(path: str) -> str:
    """Return the label of a parameter's path; network dimensions count from 1, the innermost.

    >>> path_label("workload.tp"), path_label("network.dims.0.bandwidth"), path_label("collective.algorithms.3")
    ('tp', 'bandwidth of dimension 1', 'algorithm of dimension 4')
    >>> path_label("network.dims.*.npus"), path_label("workload.{dp,tp}")
    ('npus of all dimensions', 'dp, tp')
    """
    field = path.partition(".")[2] or path
    match = re.fullmatch(r"dims\.(\d+|\*)\.(.+)", field) or re.fullmatch(r"algorithms\.(\d+|\*)()", field)
    if match is None:
        return field.strip("{}").replace(",", ", ").replace("_", " ").replace(".", " ")
    index, name = match.groups()
    where = "all dimensions" if index == "*" else f"dimension {int(index) + 1}"
    return f"{(name or 'algorithm').replace('_', ' ').replace('.', ' ')} of {where}"


def metric_text(name: str, value: float | None) -> str:
    """Return the value of a metric with a readable unit.

    >>> metric_text("step_s", 0.0123), metric_text("mfu", 0.41), metric_text("memory_bytes", 2**34), metric_text("cost_usd", 1.5e6)
    ('12.3 ms', '41.0 %', '16.0 GiB', '1,500,000 USD')
    >>> metric_text("energy_j", 9.265e6), metric_text("power_w", 1.3775e5), metric_text("perf_per_bandwidth", 1.0871e-14)
    ('9.265 MJ', '137.8 kW', '1.087e-14')
    """
    if value is None:
        return "–"
    unit = metric_unit(name)
    if unit == "s":
        return seconds_text(value)
    if unit == "share":
        return f"{100 * value:.1f} %"
    if unit == "B":
        return bytes_text(value)
    if unit == "USD":
        return f"{value:,.0f} USD" if value >= 10 else f"{value:.4g} USD"
    if unit in ("J", "W"):
        return energy_text(value).replace("J", unit)
    if unit in WRITTEN_METRICS:
        return f"{WRITTEN_METRICS[unit](value)} {unit}"
    return f"{value:,.0f}" if name.endswith(("tokens_per_s", "samples_per_s")) else f"{value:.4g}"


def seconds_text(value: float) -> str:
    """Return a time with a readable unit.

    >>> seconds_text(12.345), seconds_text(4.5e-5), seconds_text(0.0)
    ('12.35 s', '45 µs', '0 s')
    """
    for unit, worth in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if value >= worth:
            return f"{value / worth:.4g} {unit}" if unit == "s" else f"{value / worth:.3g} {unit}"
    return f"{value:.3g} s"


def bytes_text(value: float) -> str:
    """Return bytes with a readable unit.

    >>> bytes_text(2**34), bytes_text(3 * 2**20), bytes_text(12.0)
    ('16.0 GiB', '3.0 MiB', '12 B')
    """
    for unit, worth in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= worth:
            return f"{value / worth:.1f} {unit}"
    return f"{value:.4g} B"


def energy_text(value: float) -> str:
    """Return joules with a readable unit.

    >>> energy_text(1.5e10), energy_text(20.0)
    ('15 GJ', '20 J')
    """
    for unit, worth in (("TJ", 1e12), ("GJ", 1e9), ("MJ", 1e6), ("kJ", 1e3)):
        if value >= worth:
            return f"{value / worth:.4g} {unit}"
    return f"{value:.4g} J"


def share_text(value: float) -> str:
    """Return a share in percent; 0 % only for zero.

    >>> share_text(0.123), share_text(0.0004), share_text(0.0)
    ('12 %', '< 1 %', '0 %')
    """
    return "< 1 %" if 0 < value < 0.005 else f"{100 * value:.0f} %"


def sale_notes(point: DesignPoint) -> list[str]:
    """Return that a machine is not on sale, where its node is sold with another accelerator, or has no known host.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> sale_notes(load_design("llama3-8b@dgx-h100:8", {"compute.accelerator": "mi300x"}))
    ['not on sale: dgx-h100 is sold with h100-sxm-80gb, and not with mi300x; its host is priced as it is']
    >>> sale_notes(load_design("llama3-8b@mi250x:8"))
    ['cost and power are without hosts: the catalog has no node of mi250x']
    """
    node, accelerator = point.node, point.compute.accelerator
    counted = any(dim.fabric.build != BY_BANDWIDTH for dim in point.network.dims)
    if not node.name and counted and not (point.compute.price_usd is None and point.compute.power_w is None):
        return [f"cost and power are without hosts: the catalog has no node of {accelerator or 'its accelerator'}"]
    if not node.name or not node.accelerator or node.accelerator == accelerator:
        return []
    accelerator_text = accelerator or "an accelerator of one's own"
    return [
        f"not on sale: {node.name} is sold with {node.accelerator}, and not with {accelerator_text}; its host is priced as it is"
    ]


# ---- Commands that try a design with some fields changed, quoted for a shell


def evaluate_command_of(source: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the words of the command that evaluates a design with some settings, quoted for a shell.

    >>> evaluate_command_of("llama3-8b@dgx-h100:8", {"workload.tp_overlap": True, "memory.capacity": "160 GiB"})
    ['cosmic', 'evaluate', 'llama3-8b@dgx-h100:8', '--set tp_overlap=true', "--set 'memory.capacity=160 GiB'"]
    """
    options = [f"--set {shlex.quote(setting_option(path, value))}" for path, value in settings.items()]
    return ["cosmic", "evaluate", shlex.quote(source), *options]


def setting_option(path: str, value: Any) -> str:
    """Return a field and its value as ``--set`` takes them.

    >>> setting_option("workload.tp", 8), setting_option("serving.prefill.tp", 4)
    ('tp=8', 'prefill.tp=4')
    """
    return f"{_short_path(path)}={option_value(value)}"


def _short_path(path: str) -> str:
    """Return the shortest name of a field."""
    parts = path.split(".")
    for size in range(1, len(parts)):
        with suppress(SpecError):
            if full_path(name := ".".join(parts[-size:])) == path:
                return name
    return path


def option_value(value: Any) -> str:
    """Return the value of a field as an option takes it: YAML on one line."""
    names = isinstance(value, list) and all(isinstance(each, str) for each in value)
    plain = f"[{','.join(value)}]" if names else value
    with suppress(SpecError):
        if isinstance(plain, str) and parse_yaml(plain, "") == value:
            return plain
    return dump_json(value)


def search_command_of(design: str, settings: Sequence[str] = (), prices: object = None) -> str:
    """Return the command that searches all mappings of a design.

    >>> search_command_of("llama3-8b@dgx-h100:8", ["tp=2"])
    'cosmic search llama3-8b@dgx-h100:8 --set tp=2'
    """
    quotes = [] if prices is None else ["--prices", str(prices)]
    return shlex.join(
        ["cosmic", "search", design, *(word for setting in settings for word in ("--set", setting)), *quotes]
    )


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
