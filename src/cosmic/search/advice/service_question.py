"""From what a user asks of a service to a design with its load: lengths, requests, engine, number format.

What nobody states is chosen as most would, and said: `Service.assumed` has a sentence for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.base.units import SECONDS, format_quantity
from cosmic.design import catalog_entries
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.loading import stated_fields
from cosmic.design.model_layer import Transformer
from cosmic.design.serving_layer import RequestClass, Serving
from cosmic.design.systems import is_model_at_system, read_system, split_size
from cosmic.search.mapping.design_completion import load_design
from cosmic.serving.deployment_candidates import INSTANCES, list_shapes
from cosmic.serving.deployment_search import fitting_shapes
from cosmic.serving.serving_requests import Requests, read_request_trace
from cosmic.step.block_memory import is_decoder
from cosmic.workload.precision import recipe_for

DEFAULT_LOAD = {"isl": 1024, "osl": 256, "concurrency": 32}
"""What a question that says nothing of it is about: a chat."""
MAX_SPREAD = 3.0
"""Of the lengths of a trace, as the closed form takes them."""
DEFAULT_SPREAD = 0.2
"""Standard deviation of lengths over their means: clients with answers of one length would stay in step for ever."""
LOAD_OPTIONS = {
    "isl": ("--input", "tokens in"),
    "osl": ("--output", "tokens out"),
    "concurrency": ("--concurrency or --rate", "requests in flight"),
}
NARROW_CACHE_BITS = 8
"""Bits of a number of a narrow KV cache."""
DEFAULT_NPUS = 8
"""Accelerators where no number is given, unless a node has fewer or the weights need more."""
MAX_NPUS = 4096
"""Accelerators of the largest machine that is tried for want of memory."""
MESH = ("tp", "pp", "dp", "ep", "etp")
REPLICAS = ("replicas", "prefill_replicas", "decode_replicas")
"""Numbers of engine instances: of a deployment in one pool, and of either pool."""
LOAD_FIELDS = {
    "input": "serving.load.isl",
    "output": "serving.load.osl",
    "rate": "serving.load.rate",
    "concurrency": "serving.load.concurrency",
}
"""What is asked for all the same where it is set as a field."""
SINGLE_STEP_FIELDS = ("workload.task", "workload.sequence", "workload.global_batch", "workload.micro_batch")
"""Fields of a single step, which a load has instead."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a user says of a service; None where nothing is said."""

    input: int | None = None
    output: int | None = None
    concurrency: int | None = None
    rate: float | None = None
    spread: float | None = None
    """Standard deviation of the lengths, as a share of their means."""
    prefix_hit: float | None = None
    limits_s: Mapping[str, float] = field(default_factory=dict)
    """The longest ttft and tpot of a request that counts as good."""
    engine: str = ""
    precision: str = ""
    largest: bool = False
    """Whether a system without a size stands for as many accelerators as are needed."""


@dataclass(frozen=True)
class Service:
    """A design with its load, and what of it was stated or assumed."""

    design: DesignPoint
    """Its mapping is the stated one, or some that its accelerators have room for."""
    source: str
    overrides: Mapping[str, Any]
    stated: Mapping[str, int]
    """Fields of the mapping that the user gave."""
    assumed: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the user set, by their full paths."""
    system: str = ""
    """The system's name, of which a machine of any size can be had; empty if the design spells its own out."""
    known: dict[int, DesignPoint | None] = field(default_factory=dict, repr=False, compare=False)

    @property
    def mapped(self) -> bool:
        """Whether the mapping is settled: how many accelerators share a copy of the model, or which of them prefill."""
        if self.design.serving is not None and self.design.serving.disaggregated:
            return True
        return INSTANCES not in self.stated and any(name in self.stated for name in ("tp", "pp", "ep"))

    @property
    def held(self) -> Mapping[str, int]:
        """Fields of an instance's mapping that a search holds; the number of instances is its own."""
        return {name: value for name, value in self.stated.items() if name not in ("dp", INSTANCES)}

    def sized(self, npus: int) -> DesignPoint | None:
        """Return the design on another number of accelerators; None where there is no such machine."""
        if npus == self.design.network.npus:
            return self.design
        if npus not in self.known:
            self.known[npus] = _size_service(self, npus)
        return self.known[npus]


def _size_service(service: Service, npus: int) -> DesignPoint | None:
    if not service.system:
        return None
    model = service.source.rpartition("@")[0]
    try:
        free = {path: value for path, value in service.overrides.items() if path != "workload.dp"}
        return load_design(f"{model}@{service.system}:{npus}", free)
    except SpecError:
        return None


def read_service(source: str, settings: Mapping[str, Any], question: Asked) -> Service:
    """Return the service that *source*, its *settings* and what was *question* describe."""
    instances, fields = _read_replicas(settings)
    require(instances is None or not question.largest, "replicas", instances, "is what --search finds: leave it out")
    user_fields = dict(fields)
    for name, key in LOAD_FIELDS.items():
        if getattr(question, name) is None and fields.get(key) is not None:
            question = replace(question, **{name: fields[key]})
    for path in SINGLE_STEP_FIELDS:
        rule = "is of a single step; a load has --input, --output and --concurrency or --rate"
        require(path not in fields, f"--set {path.partition('.')[2]}", fields.get(path), rule)
    assumed: list[str] = []
    name, sized = _with_size(source, question)
    before = load_design(name, {path: value for path, value in fields.items() if not path.startswith("serving.")})
    rule = "generates no tokens: only decoders are served"
    require(is_decoder(before.model), "model", before.model.name, rule)
    fields = _load(before.serving, question, assumed) | fields
    set_paths = stated_fields(name, fields)
    fields["workload.precision"] = _precision(before, question, "workload.precision" in set_paths, assumed)
    design = load_design(name, fields)
    assumed += [*_cache(design), *_drafts(design, {*set_paths, *fields}), *_adapters(design, set_paths)]
    mesh = {key: getattr(design.workload, key) for key in MESH if f"workload.{key}" in set_paths}
    stem = split_size(name.rpartition("@")[2])[0] if is_model_at_system(name) else ""
    if instances is not None:
        mesh[INSTANCES] = instances
        _check_instances(design, mesh)
    service = Service(design, name, fields, mesh, tuple(assumed), user_fields, stem)
    return service if sized or question.largest else _grow_service(service)


def _read_replicas(settings: Mapping[str, Any]) -> tuple[int | None, dict[str, Any]]:
    """Return the stated number of engine instances in one pool, and all other settings as fields by their full paths.

    >>> _read_replicas({"replicas": 2, "tp": 4})
    (2, {'workload.tp': 4})
    >>> pools = {"prefill_replicas": 1, "decode_replicas": 3, "workload.tp": 4, "ep": 8}  # two ranks of attention each
    >>> _read_replicas(pools)[1]["workload.dp"]
    6
    """
    stated = {name: settings[name] for name in REPLICAS if name in settings}
    for name, count in stated.items():
        least = 0 if name == "prefill_replicas" else 1
        require(type(count) is int and count >= least, name, count, f"is a number of engine instances, {least} or more")
    fields = {full_path(path): value for path, value in settings.items() if path not in stated}
    two_pools = "prefill_replicas" in stated or any(path.startswith("serving.prefill.") for path in fields)
    rule = "two pools have prefill_replicas and decode_replicas"
    require("replicas" not in stated or not two_pools, "replicas", stated.get("replicas"), rule)
    if "prefill_replicas" in stated:
        fields["serving.prefill.replicas"] = stated["prefill_replicas"]
    if "decode_replicas" in stated:
        rule = "goes with prefill_replicas; of one pool, say replicas"
        require(two_pools, "decode_replicas", stated["decode_replicas"], rule)
        tp, ep, etp = (fields.get(f"workload.{name}") or 1 for name in ("tp", "ep", "etp"))
        if ep > 1 and "workload.etp" not in fields:  # else it would follow from dp, which is that of all instances
            etp = fields["workload.etp"] = max(1, tp // ep)
        fields["workload.dp"] = stated["decode_replicas"] * max(1, etp * ep // tp)
    return stated.get("replicas"), fields


def _check_instances(design: DesignPoint, stated: Mapping[str, int]) -> None:
    """Refuse a number of instances that no shape with what else is stated gives on these accelerators."""
    count, npus = stated[INSTANCES], design.network.npus
    rest = ", ".join(f"{name} {value}" for name, value in stated.items() if name != INSTANCES)
    rule = f"instances{f' of {rest}' if rest else ''} do not share {npus:,} accelerators evenly"
    require(bool(list_shapes(design, stated)), "replicas", count, rule)


def _drafts(design: DesignPoint, set_paths: Collection[str]) -> Iterator[str]:
    """Yield what is assumed of speculative decoding, or that what is stated of it has no effect."""
    serving, sets_acceptance = design.serving, "serving.acceptance" in set_paths
    if serving and serving.draft_tokens and not sets_acceptance:
        yield f"{serving.acceptance:.0%} of drafted tokens are accepted (--set acceptance=…)"
    if serving and sets_acceptance and not serving.draft_tokens:
        yield "nothing is drafted, so that acceptance has no effect (--set draft_tokens=…)"


def _adapters(design: DesignPoint, set_paths: Collection[str]) -> Iterator[str]:
    """Yield that what is stated of adapters has no effect, where there are none."""
    if design.workload.lora_rank is None and "workload.lora_adapters" in set_paths:
        yield "there are no adapters, so that lora_adapters has no effect (--set lora_rank=…)"


def asked_by_trace(path: str | Path, question: Asked, most: int) -> tuple[Asked, Requests]:
    """Return what is *question*, with the lengths and the rate of a trace, and its requests, at most so many.

    At a rate that is asked for, they come as much sooner or later.
    """
    limits = {f"{name}_slo_s": limit for name, limit in question.limits_s.items()}
    requests = read_request_trace(path, most_requests=most, kind=RequestClass(name="trace", isl=1, osl=1, **limits))
    if question.rate is not None:
        requests = requests.at_rate(question.rate)
    lasted = float(requests.arrival_s[-1])
    rate = (requests.count - 1) / lasted if lasted > 0 else None
    means = {"input": _mean(requests.input_tokens), "output": _mean(requests.output_tokens)}
    spread = float(requests.output_tokens.std() / requests.output_tokens.mean())
    load: dict[str, Any] = {
        "spread": min(spread, MAX_SPREAD),
        "rate": rate,
        "concurrency": None if rate else requests.count,
        **means,
    }
    return replace(question, **load), requests


def _mean(lengths: Any) -> int:
    return max(1, round(float(lengths.mean())))


def _with_size(source: str, question: Asked) -> tuple[str, bool]:
    """Return the source with a number of accelerators, and whether that was given or is all there is."""
    if not is_model_at_system(source):
        return source, True
    model, _, name = source.rpartition("@")
    stem, size = split_size(name)
    if size or question.largest:
        return source, bool(size)
    dims = read_system(stem)["network"]["dims"]
    npus = min(int(dims[0]["npus"]), DEFAULT_NPUS) if dims else 1
    try:
        read_system(f"{stem}:{npus}")
    except SpecError:
        return source, True  # of a fixed size
    return f"{model}@{stem}:{npus}", False


def _grow_service(service: Service) -> Service:
    """Return a service on as many accelerators as its weights need, and say how many they are."""
    npus = service.design.network.npus
    fixed = {name: value for name, value in service.stated.items() if name != "dp"}
    while npus < MAX_NPUS and ((grown := service.sized(npus)) is None or not fitting_shapes(grown, fixed)):
        npus *= 2
    name = service.source.rpartition(":")[0]
    sentence = f"{npus:,} accelerator{'s' if npus > 1 else ''}, as no number was given ({name}:N)"
    grown = service.sized(npus) or service.design
    return replace(service, design=grown, source=f"{name}:{npus}", assumed=(sentence, *service.assumed), known={})


def _load(layer: Serving | None, question: Asked, assumed: list[str]) -> dict[str, Any]:
    """Return what of the serving layer is asked for, and what nobody says, as a file has it."""
    rule = "give either --concurrency (requests in flight) or --rate (requests a second)"
    require(question.rate is None or question.concurrency is None, "--rate", question.rate, rule)
    load_fields: dict[str, Any] = {
        "isl": question.input,
        "osl": question.output,
        "concurrency": question.concurrency,
        "rate": question.rate,
    }
    if layer is None:
        missing = [
            name for name in DEFAULT_LOAD if load_fields[name] is None and not (name == "concurrency" and question.rate)
        ]
        if missing:
            defaults_text = ", ".join(f"{DEFAULT_LOAD[name]:,} {LOAD_OPTIONS[name][1]}" for name in missing)
            options = ", ".join(LOAD_OPTIONS[name][0] for name in missing)
            assumed.append(f"{defaults_text}, as {options} {'is' if len(missing) == 1 else 'are'} not given")
        load_fields |= {name: DEFAULT_LOAD[name] for name in missing}
    spread = question.spread
    if spread is None and layer is None:
        spread = DEFAULT_SPREAD
        assumed.append(f"lengths that differ by {100 * spread:.0f} %, as --spread is not given")
    load_fields |= {"isl_cv": spread, "osl_cv": spread, "prefix_hit": question.prefix_hit}
    if layer is None or not layer.load.classes:  # classes have limits of their own
        limits = question.limits_s.items()
        load_fields |= {
            f"{name}_slo": None if limit is None else format_quantity(limit, SECONDS) for name, limit in limits
        }
    settings: dict[str, Any] = {
        f"serving.load.{name}": value for name, value in load_fields.items() if value is not None
    }
    if layer is not None and layer.load.concurrency is not None and question.rate is not None:
        settings["serving.load.concurrency"] = None
    if layer is not None and layer.load.rate is not None and question.concurrency is not None:
        settings["serving.load.rate"] = None
    if question.engine or layer is None:
        settings["serving.engine"] = (
            catalog_entries.resolve_name("engines", question.engine or "vllm") or question.engine
        )
    return settings


def _cache(design: DesignPoint) -> list[str]:
    """Return the number format of the KV cache, where nobody states it."""
    set_formats = {design.workload.cache_dtype, design.serving.kv_cache_dtype if design.serving else "auto"} - {"auto"}
    if set_formats:
        return []
    serves = replace(design.workload, task="decode")
    bits = 8 * recipe_for(serves).cache
    format_name, alternative = ("bf16", "fp8") if bits > NARROW_CACHE_BITS else ("fp8", "bf16")
    usual = f"as is usual with weights in {design.workload.precision}"
    return [f"KV cache in {format_name}, {usual} (--set kv_cache_dtype={alternative})"]


def _precision(machine: DesignPoint, question: Asked, is_set: bool, assumed: list[str]) -> str:
    """Return the number format of weights: what is asked for, that of the published weights, or the usual one."""
    if question.precision:
        return question.precision
    if is_set:
        return machine.workload.precision
    entry = (
        catalog_entries.read_entry("models", machine.model.name)
        if catalog_entries.resolve_name("models", machine.model.name)
        else {}
    )
    named = machine.model.checkpoint if isinstance(machine.model, Transformer) else ""
    published = catalog_entries.stated_weight_format(named) or entry.get("checkpoint")
    multiplies = machine.compute.fp8_flop_per_s is not None
    chosen = published or ("fp8" if multiplies else "bf16")
    name = machine.compute.accelerator or "the accelerator"
    why = f"{name} multiplies in it" if multiplies else f"{name} has no fp8"
    assumed.append(f"weights in {chosen}, as {'they are published' if published else why} (--precision)")
    return str(chosen)
