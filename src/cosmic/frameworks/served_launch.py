"""A served design as launches of engines need it: its pools, limits and lengths, with the engine's defaults filled in.

A design without a serving section that prefills or decodes one step is served, too, within the engine's own limits.

A checkpoint is named as on the Hugging Face Hub, in the precision of the design: a table beside this module, in YAML.

One script starts the servers of all pools and the router before them, and is the same on every host. It has one function
for each pool, called with the GPUs and the port of a server; what differs between hosts (the place in an instance that
spans several of them, the address of its first host) follows as further arguments. Hosts are counted from 0 (NODE_RANK)
in the order of their names (HOSTS).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import ceil, gcd
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.base.files import is_file
from cosmic.design import catalog_entries, schema
from cosmic.design.catalog_entries import load_mapping
from cosmic.design.design_point import DesignPoint, model_title
from cosmic.design.field_facts import unsupported_fields
from cosmic.design.model_layer import Model, Transformer, is_moe
from cosmic.design.serving_engine import Engine, load_engine
from cosmic.design.serving_layer import PrefillPool, RequestClass
from cosmic.design.workload_layer import Workload
from cosmic.frameworks.launch import (
    ENGINES,
    FRAMEWORKS,
    LARGEST_HOST,
    ArgumentValue,
    count_hosts,
    host_npus,
    quote_options,
    quote_word,
    refuse_padding,
    trained_decoder,
    vendor_warnings,
)
from cosmic.serving.deployment import deployment_of
from cosmic.workload.precision import SERVING

PoolRole = Literal["serve", "prefill", "decode"]
SPREADS = 3
"""Standard deviations above the mean up to which a request's length is admitted."""
FEW = 256
"""Requests at once that an engine is given room for however few the load has in flight."""
SHORTER = 4
"""How many times shorter than the mean the prompts may be that fill a step together."""
MARGIN = 256
"""Tokens beside those of the load (a chat template's); lengths are rounded up to as many."""
TITLES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "dynamo": "Dynamo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePool:
    """Equal engine instances."""

    role: PoolRole
    replicas: int
    tp: int
    pp: int
    ranks: int
    """Ranks of attention data parallelism."""
    ep: int
    etp: int
    """Ranks that split each expert."""
    batched_tokens: int
    """Most tokens of a step, for each rank of attention."""
    host: int
    """GPUs of a host."""
    apart: bool = False
    """Whether its hosts are of another system than the design's."""

    @property
    def world(self) -> int:
        """GPUs of one instance."""
        return self.tp * self.pp * self.ranks

    @property
    def nodes(self) -> int:
        """Hosts of one instance, each with the same number of its GPUs."""
        least = ceil(self.world / self.host)
        return next(count for count in range(least, self.world + 1) if self.world % count == 0)

    @property
    def gpus(self) -> int:
        """GPUs of one instance on each of its hosts."""
        return self.world // self.nodes


@dataclass(frozen=True)
class Served:
    """A design that an engine is to serve."""

    point: DesignPoint
    target: str
    """The engine that is written for."""

    @cached_property
    def engine(self) -> Engine:
        """The catalog's entry of the target: its defaults count where the design states nothing."""
        return load_engine(self.target)

    @cached_property
    def checkpoint(self) -> ServedCheckpoint:
        """What the engine loads."""
        return choose_checkpoint(self.point)

    @property
    def workload(self) -> Workload:
        """Mapping and precision."""
        return self.point.workload

    @property
    def moe(self) -> bool:
        """Whether the model has experts."""
        return is_moe(self.point.model)

    # ------------------------------------------------------------------------------------------------- pools

    @cached_property
    def pools(self) -> tuple[EnginePool, ...]:
        """Instances that prefill alone, if there are some, and the others."""
        w, serving = self.workload, self.point.serving
        ranks = max(1, w.expert_tensor * w.ep // w.tp)
        rule = f"must be a multiple of {ranks}, the ranks of attention that share the experts of an instance"
        require(w.dp % ranks == 0, "workload.dp", w.dp, rule)
        disaggregated = serving is not None and serving.disaggregated
        main = EnginePool(
            role="decode" if disaggregated else "serve",
            replicas=w.dp // ranks,
            tp=w.tp,
            pp=w.pp,
            ranks=ranks,
            ep=w.ep,
            etp=w.expert_tensor,
            batched_tokens=self._tokens(None),
            host=host_npus(self.point.compute.accelerator) or count_hosts(self.point)[1],
        )
        if serving is None or serving.prefill is None or not disaggregated:
            return (main,)
        return (self._prefill(serving.prefill, main.host), main)

    def _prefill(self, pool: PrefillPool, host: int) -> EnginePool:
        return EnginePool(
            role="prefill",
            replicas=pool.replicas,
            tp=pool.tp,
            pp=pool.pp,
            ranks=pool.dp,
            ep=pool.ep,
            etp=pool.etp or gcd(pool.tp, pool.tp * pool.dp // pool.ep),
            batched_tokens=self._tokens(pool.max_num_batched_tokens),
            host=_system_host_gpus(pool.system) if pool.system else host,
            apart=pool.system is not None,
        )

    def _tokens(self, tokens: int | None) -> int:
        serving = self.point.serving
        return tokens or (serving and serving.max_num_batched_tokens) or self.engine.max_num_batched_tokens

    @property
    def disaggregated(self) -> bool:
        """Whether some instances only prefill."""
        return len(self.pools) > 1

    @property
    def gpus(self) -> int:
        """GPUs of all pools."""
        return sum(pool.replicas * pool.world for pool in self.pools)

    # ------------------------------------------------------------------------------------------------ limits

    def seats(self, pool: EnginePool) -> int:
        """Return the most requests that a rank of attention runs at once.

        If the design does not say, the engine's default, but not many more than the KV cache holds, than are in flight
        at all or, in a pool that only prefills, than a step has tokens for.
        """
        serving = self.point.serving
        if serving is None or serving.max_num_seqs is not None:
            return (serving and serving.max_num_seqs) or self.engine.max_num_seqs
        if pool.role == "prefill":
            fitting = SHORTER * ceil(pool.batched_tokens / serving.load.mean("isl"))
        else:
            concurrency = serving.load.concurrency
            fitting = min(self._held_requests, max(FEW, concurrency) if concurrency else self._held_requests)
        return min(self.engine.max_num_seqs, 1 << (fitting - 1).bit_length())

    @cached_property
    def _held_requests(self) -> int:
        """Requests of mean length that the KV cache of a rank holds, by the target's own limits."""
        serving = self.point.serving
        assert serving is not None  # noqa: S101  a single step has no load
        price = deployment_of(replace(self.point, serving=replace(serving, engine=self.target))).pool.price
        request_limit = float(np.ravel(price.held_requests(serving.load.mean("isl") + serving.load.mean("osl") / 2))[0])
        return min(ceil(request_limit), self.engine.max_num_seqs) if request_limit > 1 else 1

    def running(self, pool: EnginePool) -> int:
        """Return the most requests of a step that decodes, where its tokens are limited, too.

        Engines that count both refuse to start with fewer tokens than requests.
        """
        return max(1, min(self.seats(pool), pool.batched_tokens // (1 + self.draft_tokens)))

    @property
    def classes(self) -> tuple[RequestClass, ...]:
        """Requests of the load; of a single step, of its length."""
        serving = self.point.serving
        return serving.load.all_classes if serving else (RequestClass(isl=self.workload.sequence, osl=1),)

    @property
    def longest_input(self) -> int:
        """Tokens of the longest prompts that are admitted."""
        return ceil(max(class_.isl * (1 + SPREADS * class_.isl_cv) for class_ in self.classes))

    @property
    def longest_request(self) -> int:
        """Tokens of the longest requests of the load, prompt and output."""
        longest = max(
            class_.isl * (1 + SPREADS * class_.isl_cv) + class_.osl * (1 + SPREADS * class_.osl_cv)
            for class_ in self.classes
        )
        return ceil(longest) + self.draft_tokens

    @property
    def longest(self) -> int:
        """Tokens of the longest requests that are admitted: room for a chat template, as far as the model has it."""
        roomy = (ceil(self.longest_request / MARGIN) + 1) * MARGIN
        context = self.checkpoint.context
        return roomy if context is None or context < self.longest_request else min(roomy, context)

    @property
    def memory_fraction(self) -> float:
        """Share of the memory, as the target's entry of the catalog defines it."""
        serving = self.point.serving
        fraction = serving.memory_fraction if serving else None
        return float(self.engine.memory_fraction if fraction is None else fraction)

    @property
    def cache_bytes(self) -> float:
        """Bytes of a number in the KV cache."""
        serving = self.point.serving
        cache_format = serving.kv_cache_dtype if serving else "auto"
        if cache_format != "auto":
            return {"fp8": 1.0, "bf16": 2.0}[cache_format]
        return float(SERVING[self.workload.precision].cache)

    @property
    def draft_tokens(self) -> int:
        """Tokens that speculative decoding drafts a step."""
        return self.point.serving.draft_tokens if self.point.serving else 0

    @property
    def shares_prefixes(self) -> bool:
        """Whether some requests find a part of their prompt in the cache."""
        return any(class_.prefix_hit > 0 for class_ in self.classes)

    # ---------------------------------------------------------------------------------------------- sentences

    @property
    def about(self) -> str:
        """One line: which model in which pools."""
        parts = [_describe_pool(pool, self.moe) for pool in self.pools]
        accelerator = self.point.compute.accelerator or "GPU"
        return f"{model_title(self.point.model) or 'a model'} on {self.gpus:,} × {accelerator}, {' and '.join(parts)}"

    def warnings(self) -> Iterator[str]:
        """Yield what any engine does otherwise, or leaves to do by hand."""
        yield from self._of_the_engine()
        unsaid = QUANTIZED_AT_LOADING if self.target == "trtllm" else ()  # which does not, and says so itself
        yield from (warning for warning in self.checkpoint.warnings if not warning.endswith(unsaid))
        yield from self._of_drafting()
        yield from self._of_limits()
        yield from self._of_lengths()
        yield from unsupported_fields(self.workload, "serving", moe=self.moe)
        if any(pool.gpus < pool.world and pool.gpus != pool.host for pool in self.pools):
            yield "an instance does not fill its hosts: their other GPUs stay idle"
        yield from vendor_warnings(self.point)

    def _of_the_engine(self) -> Iterator[str]:
        serving = self.point.serving
        if serving is None:
            yield (
                f"the design has no serving section, only a step of {self.workload.task}: limits are "
                f"{TITLES.get(self.target, self.target)}'s defaults"
            )
        elif serving.engine != self.target:
            yield f"the design's numbers are those of {serving.engine}: set serving.engine={self.target} for this one's"
            if (
                serving.memory_fraction is not None
                and load_engine(serving.engine).reserves_kv != self.engine.reserves_kv
            ):
                yield f"memory_fraction {serving.memory_fraction:g} means something else in {serving.engine}"

    def _of_drafting(self) -> Iterator[str]:
        serving = self.point.serving
        if serving is None or not serving.draft_tokens:
            return
        yield f"the numbers assume that {serving.acceptance:.0%} of drafted tokens are accepted: measure it"
        if self.checkpoint.draft == DRAFT_PLACEHOLDER:
            yield f"replace {DRAFT_PLACEHOLDER} by an EAGLE-3 head of {self.checkpoint.name}: none is known"

    def _of_limits(self) -> Iterator[str]:
        serving = self.point.serving
        if serving is not None and serving.max_num_seqs is not None and self.target != "sglang":
            for pool in self.pools:
                if (fewer := self.running(pool)) < serving.max_num_seqs:
                    yield f"steps of {pool.batched_tokens:,} tokens run {fewer:,} requests, not {serving.max_num_seqs:,}"
        if self.cache_bytes == 1 and (serving is None or serving.kv_cache_dtype == "auto"):
            yield "the KV cache is in fp8, as the numbers assume: set kv_cache_dtype=bf16 for 16 bits"
        narrow_format = self.workload.precision in ("fp8", "fp4")
        if serving is not None and serving.kv_cache_dtype == "bf16" and narrow_format and self.target != "sglang":
            yield f"check that the engine keeps the KV cache in bf16: {self.checkpoint.name} may ask for fp8"

    def _of_lengths(self) -> Iterator[str]:
        context = self.checkpoint.context
        if context is not None and context < self.longest_request:
            yield f"{self.checkpoint.name} takes {context:,} tokens, fewer than the {self.longest_request:,} of a request"
        if any(class_.isl_cv or class_.osl_cv for class_ in self.classes):
            yield (
                f"lengths vary: requests of up to {self.longest:,} tokens are admitted, {SPREADS} standard deviations "
                "above the mean"
            )


def describe_served(point: DesignPoint, target: str, engine: str = "") -> Served:
    """Return a design as *target* serves it, with another *engine* if that is named; refuse what is not served."""
    task = point.workload.task
    rule = (
        f"{target} serves models: give the design a serving section ('cosmic serve … --save FILE' writes one), "
        "or the task prefill or decode"
    )
    require(point.serving is not None or task in ("prefill", "decode"), "workload.task", task, rule)
    model = point.model
    if not (isinstance(model, Transformer) and model.family == "decoder"):
        raise SpecError("model.family", model.family, f"only decoders can be exported to {target}")
    refuse_padding(point, model, target)
    return Served(point, engine or target)


def check_served_kind(point: DesignPoint, target: str) -> None:
    """Refuse a design that is trained where a target serves, and the other way round."""
    if target in ENGINES:
        describe_served(point, target)
    elif target in FRAMEWORKS:
        trained_decoder(point, target)


def _system_host_gpus(system: str) -> int:
    """Return the GPUs of a host of a system of the catalog.

    >>> _system_host_gpus("dgx-h200"), _system_host_gpus("gb200-nvl72")
    (8, 4)
    """
    entry = catalog_entries.read_entry("systems", system)
    if (gpus := host_npus(entry["accelerator"])) is not None:
        return gpus
    dims = entry.get("network", {}).get("dims", [])
    inner = dims[0].get("npus") if dims else 1
    inner = inner if isinstance(inner, int) else 1
    return next(gpus for gpus in range(min(inner, LARGEST_HOST), 0, -1) if inner % gpus == 0)


def _describe_pool(pool: EnginePool, moe: bool) -> str:
    """Return a pool in a few words.

    >>> size = {"pp": 1, "ep": 8, "etp": 1, "batched_tokens": 1, "host": 8}
    >>> _describe_pool(EnginePool(role="serve", replicas=2, tp=4, ranks=2, **size), moe=True)
    '2 × (tp 4, attention dp 2, ep 8)'
    """
    sizes = {"tp": pool.tp, "pp": pool.pp, "attention dp": pool.ranks, "ep": pool.ep if moe else 1}
    shown = ", ".join(f"{name} {size}" for name, size in sizes.items() if size > 1 or name == "tp")
    return f"{pool.replicas} × ({shown})" + ("" if pool.role == "serve" else f" to {pool.role}")


PLACEHOLDER = "MODEL"
"""Stands for a checkpoint that is not known."""
DRAFT_PLACEHOLDER = "DRAFT_MODEL"
WIDE = ("bf16", "bf16_pure", "fp16", "fp32")
"""Precisions that an engine casts a checkpoint of 16 bits to, with ``--dtype``."""
WIDTHS = {"bf16": 16, "fp8": 8, "fp4": 4, "int4": 4}
"""Bits of a weight, by the format of a checkpoint."""
QUANTIZED_AT_LOADING = ("it is quantized when loaded; a checkpoint in FP8 loads faster",)
"""How a note ends about a checkpoint that an engine quantizes."""
QUANTIZED = {"fp8": "FP8", "fp4": "NVFP4 (or MXFP4)", "int4": "4-bit integers (AWQ, GPTQ)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCheckpoint:
    """What an engine loads."""

    name: str
    """On the Hugging Face Hub, or a placeholder."""
    quantize: bool = False
    """Whether the engine has to quantize it to the design's precision when it loads it."""
    draft: str | None = None
    """Draft model of speculative decoding; None if the checkpoint has modules for that itself."""
    remote_code: bool = False
    context: int | None = None
    """Tokens that the model takes at most, where that is known to be few."""
    warnings: tuple[str, ...] = ()


def choose_checkpoint(point: DesignPoint) -> ServedCheckpoint:
    """Return the checkpoint of a design's model in its precision: of what was asked for, never of another model."""
    model = point.model
    catalog_name = catalog_entries.resolve_name("models", model.name) if model.name else None
    requested = model.checkpoint if isinstance(model, Transformer) else ""
    entry, remarks = _find_checkpoints(requested, catalog_name)
    name, quantize, precision_remarks = _choose_precision(
        entry, point.workload.precision, requested or model.name or "the model"
    )
    warnings = [*([precision_remarks] if precision_remarks else []), *remarks]
    if (
        catalog_name is not None
        and name != PLACEHOLDER
        and not _has_catalog_shapes(model, catalog_name)
        and not _is_path(requested)
    ):
        warnings.append(
            f"the design's model is not {catalog_name} as the catalog has it: serve a checkpoint of its own shapes"
        )
    if entry.get("remote_code"):
        warnings.append(f"the card of {name} asks for --trust-remote-code, which runs code of that repository")
    return ServedCheckpoint(
        name=name,
        quantize=quantize,
        draft=None if entry.get("mtp") else entry.get("draft", DRAFT_PLACEHOLDER),
        remote_code=bool(entry.get("remote_code")),
        context=entry.get("context"),
        warnings=tuple(warnings),
    )


def _find_checkpoints(requested: str, catalog_name: str | None) -> tuple[dict[str, Any], list[str]]:
    """Return the checkpoints, by precision, of a model that is *requested* for, and remarks; *catalog_name* has its shapes."""
    family = _load_table().get(catalog_name or "", {})
    if not requested:
        return family, _remark_shared_name(family, catalog_name or "")
    if _is_path(requested):
        return {_stored_in_folder(requested): requested}, []
    if (listed := _find_in_table(requested)) is not None:
        return listed, []
    aliases = catalog_entries.read_entry("models", catalog_name).get("aliases", []) if catalog_name else []
    if "/" not in requested and _normalize_checkpoint(requested) in map(_normalize_checkpoint, aliases):
        return family, []  # only another word for it
    family_options = {key: family[key] for key in ("mtp", "remote_code") if key in family}
    usual = next((form for form in family if form in WIDTHS), "bf16")
    form = catalog_entries.stated_weight_format(requested) or usual
    if "/" in requested:
        return {form: requested, **family_options}, []
    owner = str(family[usual]).partition("/")[0] if usual in family else ""
    if not owner:
        return {}, []
    name = f"{owner}/{requested}"
    return {form: name, **family_options}, [f"check that {name} exists: {requested} was asked for, without an owner"]


def _remark_shared_name(family: dict[str, Any], catalog_name: str) -> list[str]:
    """Return for which model a name is taken that several have, if the checkpoint does not say so itself."""
    first = next((str(family[form]) for form in family if form in WIDTHS), "")
    sharing_names = [
        name
        for name in _load_table()
        if name != catalog_name and catalog_entries.resolve_name("models", name) == catalog_name
    ]
    other_names = [name for name in sharing_names if first not in _load_table()[name].values()]
    if not other_names or _normalize_checkpoint(catalog_name) in _normalize_checkpoint(first):
        return []
    return [
        f"{catalog_name} is taken for {first}: set model.checkpoint for another of its shapes, such as {other_names[0]}"
    ]


def _find_in_table(requested: str) -> dict[str, Any] | None:
    """Return the entry of a name of the table, or of a checkpoint in it; None if it has neither."""
    normalized = _normalize_checkpoint(requested.rpartition("/")[2])
    entry: dict[str, Any]
    for name, entry in _load_table().items():
        checkpoints = [str(entry[form]) for form in WIDTHS if form in entry]
        if "/" in requested:
            if requested.lower() in (checkpoint.lower() for checkpoint in checkpoints):
                return entry
        elif normalized == _normalize_checkpoint(name) or normalized in (
            _normalize_checkpoint(checkpoint.rpartition("/")[2]) for checkpoint in checkpoints
        ):
            return entry
    return None


def _normalize_checkpoint(name: str) -> str:
    """Return a name without what different spellings of it differ in."""
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter == ".")


def _is_path(name: str) -> bool:
    """Return whether a checkpoint is a folder, not a name on the hub."""
    return name.startswith((".", "~")) or Path(name).is_absolute()


def _stored_in_folder(folder: str) -> str:
    """Return the format of the weights in a folder: what its config.json says, 16 bits where it says nothing."""
    path = Path(folder) / "config.json"
    try:
        config = load_mapping(path) if is_file(path) else {}
    except SpecError:  # whoever loads the model is told
        config = {}
    quantization = config.get("quantization_config")
    words = " ".join(map(str, quantization.values())) if isinstance(quantization, dict) else ""
    return catalog_entries.stated_weight_format(f"-{words.lower().replace(' ', '-')}") or "bf16"


def _choose_precision(entry: dict[str, Any], precision: str, model: str) -> tuple[str, bool, str]:
    """Return a checkpoint, whether to quantize it, and what is to be said of it."""
    form_wanted = "bf16" if precision in WIDE else precision
    if form_wanted in entry:
        return entry[form_wanted], False, ""
    forms = [(form, entry[form]) for form in entry if form in WIDTHS]
    if not forms:
        return PLACEHOLDER, False, f"no checkpoint of {model} is known: replace {PLACEHOLDER} by the path of yours"
    form, name = forms[0]  # the one that its makers published
    if WIDTHS[form] < WIDTHS[form_wanted]:
        return name, False, f"{name} is stored in {form}: set precision={form}, or serve a checkpoint in {precision}"
    if form == "bf16" and form_wanted == "fp8":
        return name, True, f"{name} is in 16 bits: {QUANTIZED_AT_LOADING[0]}"
    return (
        name,
        False,
        f"a checkpoint in {QUANTIZED[form_wanted]} is needed for {precision}: quantize {name}, or find one",
    )


def _has_catalog_shapes(model: Model, name: str) -> bool:
    """Return whether a model has the shapes of a catalog's entry."""
    listed = schema.read_value(
        Model, {"name": model.name, **catalog_entries.read_entry("models", name)["model"]}, f"models/{name}.yaml"
    )
    return bool(listed == (replace(model, checkpoint="") if isinstance(model, Transformer) else model))


@cache
def _load_table() -> dict[str, Any]:
    table: dict[str, Any] = load_mapping(Path(__file__).with_suffix(".yaml"))
    return table


# ---- servers on hosts, and the script that starts them


ROUTER_PORT = 8000
FIRST_PORT = 8001
INDENT = "  "
LOCAL = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One engine instance."""

    pool: EnginePool
    first: int
    """First of its hosts."""
    gpus: tuple[int, ...]
    """GPUs on each of its hosts."""
    port: int

    @property
    def hosts(self) -> range:
        """Its hosts."""
        return range(self.first, self.first + self.pool.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """A server on one of its hosts."""

    server: Server
    host: int
    alone: bool
    """Whether there is only one host in all."""

    @property
    def rank(self) -> int:
        """Place of this host among those of the server."""
        return self.host - self.server.first

    @property
    def head(self) -> str:
        """The address of the server's first host, as the script has it."""
        return host_address(self.server.first, single_host=self.alone)


def host_address(host: int, *, single_host: bool) -> str:
    """Return the address of a host, as a word of the script."""
    return LOCAL if single_host else f'"${{HOST[{host}]}}"'


def server_url(server: Server, *, single_host: bool, scheme: str = "http://") -> str:
    """Return where a server listens, as a word of the script."""
    if single_host:
        return f"{scheme}{LOCAL}:{server.port}"
    return f'"{scheme}${{HOST[{server.first}]}}:{server.port}"'


def place_servers(pools: Iterable[EnginePool]) -> list[Server]:
    """Return the instances of all pools on hosts; an instance that spans hosts has them to itself.

    Clients reach a single one at the port of the router, which is then not needed.

    >>> size = {"pp": 1, "ep": 1, "ranks": 1, "etp": 1, "batched_tokens": 1, "host": 8}
    >>> both = [EnginePool(role="prefill", replicas=1, tp=4, **size), EnginePool(role="decode", replicas=1, tp=16, **size)]
    >>> [(each.first, each.gpus, each.port) for each in place_servers(both)]
    [(0, (0, 1, 2, 3), 8001), (1, (0, 1, 2, 3, 4, 5, 6, 7), 8001)]
    """
    servers_placed: list[Server] = []
    host, used, servers = 0, 0, 0
    previous: EnginePool | None = None
    for pool in pools:
        for _ in range(pool.replicas):
            starts_host = previous is not None and (previous.apart or pool.apart) and previous is not pool
            if used and (starts_host or pool.nodes > 1 or used + pool.gpus > pool.host):
                host, used, servers = host + 1, 0, 0
            gpus = tuple(range(used, used + pool.gpus))
            servers_placed.append(Server(pool=pool, first=host, gpus=gpus, port=FIRST_PORT + servers))
            used, servers, previous = used + pool.gpus, servers + 1, pool
            if pool.nodes > 1:
                host, used, servers = host + pool.nodes, 0, 0
    return (
        servers_placed if len(servers_placed) > 1 else [replace(server, port=ROUTER_PORT) for server in servers_placed]
    )


def count_server_hosts(servers: Sequence[Server]) -> int:
    """Return how many hosts the servers need."""
    return max(server.hosts.stop for server in servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """How a pool's servers are started."""

    program: str
    """Program and model, quoted."""
    arguments: Mapping[str, ArgumentValue]
    before: str = "CUDA_VISIBLE_DEVICES=$1"
    """What stands before the program: variables, or another program that starts it. $1 are the GPUs, $2 is the port."""
    last: tuple[str, ...] = ('--port "$2"',)
    """Further lines of arguments, quoted."""
    rest: str = '"${@:3}"'
    """What differs between hosts."""

    def function(self, role: str) -> list[str]:
        """Return the lines of the shell function that starts a server of a pool."""
        lines = [f"{self.before} {self.program}", *quote_options(self.arguments), *self.last, self.rest]
        body = f" \\\n{INDENT * 2}".join(filter(None, lines))
        return [f"{role}() {{  # GPUs, port, what differs between hosts", f"{INDENT}{body}", "}"]


def script_body(
    servers: Sequence[Server],
    commands: Mapping[str, ServerCommand],
    further: Callable[[ServerPlace], list[str] | None],
    router: Sequence[str],
    prepared: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the lines of a script that starts *servers* by the *commands* of their pools, and the *router*.

    *further* returns the arguments of a server that depend on the host, quoted; None if that host starts nothing.
    *prepared* lines come before the servers.
    """
    count = count_server_hosts(servers)
    lines = _host_lines(count)
    for role, command in commands.items():
        lines += ["", *command.function(role)]
    calls = _server_calls(servers, count, further)
    lines += ["", *prepared, *_group_calls(calls)]
    if router:
        lines += _run_on_first(" \\\n".join([router[0], *(f"{INDENT}{line}" for line in router[1:])]) + " &", count)
    return (*lines, "wait")


def _host_lines(count: int) -> list[str]:
    if count == 1:
        return []
    return [
        f'read -r -a HOST <<< "${{HOSTS:?the names of all {count} hosts, with blanks between}}"',
        ': "${NODE_RANK:?the place of this host in HOSTS, from 0}"',
    ]


def _server_calls(
    servers: Sequence[Server], count: int, further: Callable[[ServerPlace], list[str] | None]
) -> list[tuple[str, ...]]:
    """Return what each host starts."""
    calls: list[list[str]] = [[] for _ in range(count)]
    for server in servers:
        gpus = ",".join(map(str, server.gpus))
        for host in server.hosts:
            rest = further(ServerPlace(server=server, host=host, alone=count == 1))
            if rest is not None:
                calls[host].append(" ".join([server.pool.role, gpus, str(server.port), *rest, "&"]))
    return [tuple(lines) for lines in calls]


def _group_calls(calls: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines that start what a host runs; hosts that run the same share them."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for host, started in enumerate(calls):
        alike.setdefault(started, []).append(host)
    if len(alike) == 1:
        return list(calls[0])
    lines = ["case $NODE_RANK in"]
    for started, hosts in alike.items():
        if started:
            pattern = " | ".join(map(str, hosts))
            lines += [f"{INDENT}{pattern})", *(INDENT * 2 + line for line in started), f"{INDENT * 2};;"]
    return [*lines, "esac"]


def _run_on_first(command: str, count: int) -> list[str]:
    if count == 1:
        return [command]
    indented = command.replace("\n", f"\n{INDENT}")
    return ['if [ "$NODE_RANK" = 0 ]; then', f"{INDENT}{indented}", "fi"]


def quote_program(program: str, model: str) -> str:
    """Return a program with its model as the words of a shell."""
    return f"{program} {quote_word(model)}"
