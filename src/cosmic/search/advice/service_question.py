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
from cosmic.serving.deployment_search import fitting_shapes
from cosmic.serving.serving_requests import Requests, read_request_trace
from cosmic.step.block_memory import is_decoder
from cosmic.workload.precision import recipe_for

USUAL = {"isl": 1024, "osl": 256, "concurrency": 32}
"""What a question that says nothing of it is about: a chat."""
MOST_SPREAD = 3.0
"""Of the lengths of a trace, as the closed form takes them."""
USUAL_SPREAD = 0.2
"""Standard deviation of lengths over their means: clients with answers of one length would stay in step for ever."""
WORDS = {
    "isl": ("--input", "tokens in"),
    "osl": ("--output", "tokens out"),
    "concurrency": ("--concurrency or --rate", "requests in flight"),
}
NARROW = 8
"""Bits of a number of a narrow KV cache."""
NODE = 8
"""Accelerators where no number is given, unless a node has fewer or the weights need more."""
LARGEST = 4096
"""Accelerators of the largest machine that is tried for want of memory."""
MESH = ("tp", "pp", "dp", "ep", "etp")
SET = {
    "input": "serving.load.isl",
    "output": "serving.load.osl",
    "rate": "serving.load.rate",
    "concurrency": "serving.load.concurrency",
}
"""What is asked for all the same where it is set as a field."""
OF_ONE_STEP = ("workload.task", "workload.sequence", "workload.global_batch", "workload.micro_batch")
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
        return "tp" in self.stated or "pp" in self.stated or "ep" in self.stated

    @property
    def held(self) -> Mapping[str, int]:
        """Fields of an instance's mapping that a search holds; the number of instances is its own."""
        return {name: value for name, value in self.stated.items() if name != "dp"}

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


def read_service(source: str, settings: Mapping[str, Any], asked: Asked) -> Service:
    """Return the service that *source*, its *settings* and what was *asked* describe."""
    given = {full_path(path): value for path, value in settings.items()}
    own = dict(given)
    for name, key in SET.items():
        if getattr(asked, name) is None and given.get(key) is not None:
            asked = replace(asked, **{name: given[key]})
    for path in OF_ONE_STEP:
        rule = "is of a single step; a load has --input, --output and --concurrency or --rate"
        require(path not in given, f"--set {path.partition('.')[2]}", given.get(path), rule)
    assumed: list[str] = []
    name, sized = _with_size(source, asked)
    before = load_design(name, {path: value for path, value in given.items() if not path.startswith("serving.")})
    rule = "generates no tokens: only decoders are served"
    require(is_decoder(before.model), "model", before.model.name, rule)
    given = _load(before.serving, asked, assumed) | given
    stated = stated_fields(name, given)
    given["workload.precision"] = _precision(before, asked, "workload.precision" in stated, assumed)
    design = load_design(name, given)
    assumed += [*_cache(design), *_drafts(design, {*stated, *given}), *_adapters(design, stated)]
    mesh = {key: getattr(design.workload, key) for key in MESH if f"workload.{key}" in stated}
    stem = split_size(name.rpartition("@")[2])[0] if is_model_at_system(name) else ""
    service = Service(design, name, given, mesh, tuple(assumed), own, stem)
    return service if sized or asked.largest else _grow_service(service)


def _drafts(design: DesignPoint, stated: Collection[str]) -> Iterator[str]:
    """Yield what is assumed of speculative decoding, or that what is stated of it has no effect."""
    serving, said = design.serving, "serving.acceptance" in stated
    if serving and serving.draft_tokens and not said:
        yield f"{serving.acceptance:.0%} of drafted tokens are accepted (--set acceptance=…)"
    if serving and said and not serving.draft_tokens:
        yield "nothing is drafted, so that acceptance has no effect (--set draft_tokens=…)"


def _adapters(design: DesignPoint, stated: Collection[str]) -> Iterator[str]:
    """Yield that what is stated of adapters has no effect, where there are none."""
    if design.workload.lora_rank is None and "workload.lora_adapters" in stated:
        yield "there are no adapters, so that lora_adapters has no effect (--set lora_rank=…)"


def asked_by_trace(path: str | Path, asked: Asked, most: int) -> tuple[Asked, Requests]:
    """Return what is *asked*, with the lengths and the rate of a trace, and its requests, at most so many.

    At a rate that is asked for, they come as much sooner or later.
    """
    limits = {f"{name}_slo_s": limit for name, limit in asked.limits_s.items()}
    found = read_request_trace(path, most_requests=most, kind=RequestClass(name="trace", isl=1, osl=1, **limits))
    if asked.rate is not None:
        found = found.at_rate(asked.rate)
    lasted = float(found.arrival_s[-1])
    rate = (found.count - 1) / lasted if lasted > 0 else None
    means = {"input": _mean(found.input_tokens), "output": _mean(found.output_tokens)}
    spread = float(found.output_tokens.std() / found.output_tokens.mean())
    load: dict[str, Any] = {
        "spread": min(spread, MOST_SPREAD),
        "rate": rate,
        "concurrency": None if rate else found.count,
        **means,
    }
    return replace(asked, **load), found


def _mean(lengths: Any) -> int:
    return max(1, round(float(lengths.mean())))


def _with_size(source: str, asked: Asked) -> tuple[str, bool]:
    """Return the source with a number of accelerators, and whether that was given or is all there is."""
    if not is_model_at_system(source):
        return source, True
    model, _, name = source.rpartition("@")
    stem, size = split_size(name)
    if size or asked.largest:
        return source, bool(size)
    dims = read_system(stem)["network"]["dims"]
    npus = min(int(dims[0]["npus"]), NODE) if dims else 1
    try:
        read_system(f"{stem}:{npus}")
    except SpecError:
        return source, True  # of a fixed size
    return f"{model}@{stem}:{npus}", False


def _grow_service(service: Service) -> Service:
    """Return a service on as many accelerators as its weights need, and say how many they are."""
    npus = service.design.network.npus
    held = {name: value for name, value in service.stated.items() if name != "dp"}
    while npus < LARGEST and ((found := service.sized(npus)) is None or not fitting_shapes(found, held)):
        npus *= 2
    name = service.source.rpartition(":")[0]
    said = f"{npus:,} accelerator{'s' if npus > 1 else ''}, as no number was given ({name}:N)"
    found = service.sized(npus) or service.design
    return replace(service, design=found, source=f"{name}:{npus}", assumed=(said, *service.assumed), known={})


def _load(known: Serving | None, asked: Asked, assumed: list[str]) -> dict[str, Any]:
    """Return what of the serving layer is asked for, and what nobody says, as a file has it."""
    both = "give either --concurrency (requests in flight) or --rate (requests a second)"
    require(asked.rate is None or asked.concurrency is None, "--rate", asked.rate, both)
    given: dict[str, Any] = {
        "isl": asked.input,
        "osl": asked.output,
        "concurrency": asked.concurrency,
        "rate": asked.rate,
    }
    if known is None:
        missing = [name for name in USUAL if given[name] is None and not (name == "concurrency" and asked.rate)]
        if missing:
            said = ", ".join(f"{USUAL[name]:,} {WORDS[name][1]}" for name in missing)
            options = ", ".join(WORDS[name][0] for name in missing)
            assumed.append(f"{said}, as {options} {'is' if len(missing) == 1 else 'are'} not given")
        given |= {name: USUAL[name] for name in missing}
    spread = asked.spread
    if spread is None and known is None:
        spread = USUAL_SPREAD
        assumed.append(f"lengths that differ by {100 * spread:.0f} %, as --spread is not given")
    given |= {"isl_cv": spread, "osl_cv": spread, "prefix_hit": asked.prefix_hit}
    if known is None or not known.load.classes:  # classes have limits of their own
        limits = asked.limits_s.items()
        given |= {f"{name}_slo": None if limit is None else format_quantity(limit, SECONDS) for name, limit in limits}
    found: dict[str, Any] = {f"serving.load.{name}": value for name, value in given.items() if value is not None}
    if known is not None and known.load.concurrency is not None and asked.rate is not None:
        found["serving.load.concurrency"] = None
    if known is not None and known.load.rate is not None and asked.concurrency is not None:
        found["serving.load.rate"] = None
    if asked.engine or known is None:
        found["serving.engine"] = catalog_entries.resolve_name("engines", asked.engine or "vllm") or asked.engine
    return found


def _cache(design: DesignPoint) -> list[str]:
    """Return the number format of the KV cache, where nobody states it."""
    stated = {design.workload.cache_dtype, design.serving.kv_cache_dtype if design.serving else "auto"} - {"auto"}
    if stated:
        return []
    serves = replace(design.workload, task="decode")
    bits = 8 * recipe_for(serves).cache
    known, other = ("bf16", "fp8") if bits > NARROW else ("fp8", "bf16")
    usual = f"as is usual with weights in {design.workload.precision}"
    return [f"KV cache in {known}, {usual} (--set kv_cache_dtype={other})"]


def _precision(machine: DesignPoint, asked: Asked, stated: bool, assumed: list[str]) -> str:
    """Return the number format of weights: what is asked for, that of the published weights, or the usual one."""
    if asked.precision:
        return asked.precision
    if stated:
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
