"""The price of a step of a serving engine: the one price that closed form and simulation use.

Kernels, links and launches are those that `cosmic evaluate` states of a decode or a prefill step on the same mapping
(`cosmic.simulate.step_evaluation`). The engine adds what it needs beside them, and calls collectives of its own:

    decode  = x K(r) + C(r) + l gap + r host + step
    prefill = max(y K(t) + C(t),  h) + step
    mixed   = max(x K(r) + y (L(t + r) - L(r)) + A(t) + C(t + r),  h) + r host + step

    K  kernels: linear ones L and attention A       C  collectives       h  launching a prefill's kernels, one by one
    r  requests of a rank of attention              t  tokens of prompts that it prefills
    x, y, gap, host, step                           of the engine: `cosmic.design.serving_engine.Engine`

A decode step replays a CUDA graph, unless the engine has none; a step with prompts in it launches its kernels. gap has
parts: of every layer, of layers with experts, and of those where activations are cast to blocks of 8 bits or weights of
4 bits are widened. In a mixed step weights are read
once for the tokens of both kinds. A chunk of a prompt attends to what the cache has of it: A(c + t) - A(c) after c
tokens. All stages of a pipeline work at once, on a share of the requests each.

Speculative decoding checks k drafted tokens beside the next one: linear kernels and collectives are of (k + 1) r
tokens; attention reads the cache once, and multiplies k + 1 times as much. A draft passes one layer and the head, which
reads about as much as another layer: 2/l of a step.

Numbers, or arrays over a batch of deployments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from cosmic.base.errors import require
from cosmic.design.design_batch import Batch, none_to_nan
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Transformer, count_active_parameters, count_parameters, is_moe, layer_kinds
from cosmic.design.serving_engine import Engine
from cosmic.simulate.analytic_step import COMMUNICATED, COMPUTE_PARTS
from cosmic.simulate.metrics import BatchOutcome
from cosmic.simulate.step_evaluation import evaluate_steps
from cosmic.step.attention import CONSTANTS as ATTENTION
from cosmic.step.block_memory import is_decoder
from cosmic.workload.precision import recipe_for

LINEAR = ("gemm", "other")
SENT = (*COMMUNICATED, "bubble", "offload")
"""What beside kernels a step consists of: collectives, stages that wait for others, weights from outer tiers."""
DRAFT_LAYERS = 2
"""Layers that a drafted token passes: one, and the head, which reads about as much."""
INSIDE_NODE = 0
"""Place of the network's dimension inside a node, where engines have collectives of their own."""
SMALL = 1e-12
MOST_KNOWN = 32
"""Steps that a price keeps."""

StepParts = Mapping[str, Any]
"""Seconds of a step by part: those of `cosmic.simulate.analytic_step.BREAKDOWN`, and ``engine``."""


@dataclass(frozen=True)
class StepPrice:
    """Seconds of an engine's steps on the mappings of a batch: one design, or many that share a structure."""

    batch: Batch
    """Designs without a load; of their workload only mapping and formats count."""
    engine: Engine
    draft_tokens: int = 0
    """Tokens that speculative decoding drafts a step."""
    known: dict[Any, BatchOutcome] = field(default_factory=dict, repr=False, compare=False)
    """Cache: steps that were asked for."""

    @classmethod
    def for_design(cls, design: DesignPoint, engine: Engine, draft_tokens: int = 0) -> StepPrice:
        """Return the price of steps of one design."""
        model = design.model
        require(is_decoder(model), "model", model.name, "generates no tokens: only decoders are served")
        return cls(Batch(with_collectives(replace(design, serving=None), engine), {}), engine, draft_tokens)

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return int(getattr(self.batch.base.model, "layers", 0))

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        model = self.batch.base.model
        kinds = layer_kinds(model) if isinstance(model, Transformer) else {}
        return sum(count for name, count in kinds.items() if "moe" in name)

    @property
    def casts(self) -> bool:
        """Whether kernels of their own cast activations: to 8 bits, with scales of blocks."""
        return self.batch.base.workload.precision == "fp8" and is_moe(self.batch.base.model)

    @property
    def widens(self) -> Any:
        """Whether kernels widen experts' weights of 4 bits to 16, which the accelerator multiplies."""
        precision = self.batch.base.workload.precision
        multiplied = ~np.isnan(np.asarray(none_to_nan(self.batch["compute.fp4"]), dtype=float))
        return precision == "int4" or (precision == "fp4" and ~multiplied)

    @cached_property
    def ranks(self) -> Any:
        """Ranks of attention data parallelism of all instances together."""
        return np.asarray(self.batch["workload.dp"], dtype=float)

    # ------------------------------------------------------------------------------------------------ steps

    def decode_s(self, requests: Any, context: Any) -> Any:
        """Return the seconds in which each rank of attention decodes *requests* of *context* tokens each."""
        return total_step_s(self.decode_parts(requests, context))

    def prefill_s(self, tokens: Any, prompts: Any = 1, cached: Any = 0) -> Any:
        """Return the seconds in which each rank of attention prefills *prompts* of *tokens* each.

        The KV cache has *cached* tokens of each prompt already.
        """
        return total_step_s(self.prefill_parts(tokens, prompts, cached))

    def mixed_s(
        self, tokens: Any, requests: Any, context: Any, cached: Any = 0, prompts: Any = 1, alone_of: Any = 1
    ) -> Any:
        """Return the seconds of a step that prefills *tokens* of each prompt and decodes *requests* beside them.

        All ranks of attention do so, or one *alone of* as many: the others only decode.
        """
        return total_step_s(self.mixed_parts(tokens, requests, context, cached, prompts, alone_of))

    def decode_parts(self, requests: Any, context: Any) -> StepParts:
        """Return `decode_s` by part."""
        requests = np.asarray(requests, dtype=float)
        priced = self._decoded(requests, context)
        parts = self._captured(priced)
        if not self.engine.cuda_graphs:
            parts["launch"] = self._launched(requests, parts)
        return parts | {"engine": self._beside(requests) + self._gaps_s + self._drafts_s(priced)}

    def prefill_parts(self, tokens: Any, prompts: Any = 1, cached: Any = 0, alone_of: Any = 1) -> StepParts:
        """Return `prefill_s` by part; of all ranks of attention, or of a prompt on one *alone of* as many."""
        tokens, prompts = np.asarray(tokens, dtype=float), np.asarray(prompts, dtype=float)
        priced = self.steps("prefill", prompts, tokens)
        if np.any(np.asarray(alone_of) > 1):
            priced = self._spread(tokens, 0.0, alone_of)
        parts = {name: self.prefill_factor * _step_part(priced, name) for name in COMPUTE_PARTS}
        if np.any(np.asarray(cached) > 0):
            parts["attention"] = self.prefill_factor * self.chunk_attention(tokens, prompts, cached)
        parts |= {name: _step_part(priced, name) for name in SENT}
        return parts | {"launch": self._late(priced, parts), "engine": self.engine.step_host_s}

    def mixed_parts(
        self, tokens: Any, requests: Any, context: Any, cached: Any = 0, prompts: Any = 1, alone_of: Any = 1
    ) -> StepParts:
        """Return `mixed_s` by part."""
        tokens, prompts = np.asarray(tokens, dtype=float), np.asarray(prompts, dtype=float)
        requests = np.asarray(requests, dtype=float)
        decoded = self._decoded(requests, context)
        priced = self._spread(tokens * prompts, requests * (1 + self.draft_tokens), alone_of)
        x, y = self.engine.decode_factor, self.prefill_factor
        any_decode = requests > 0
        parts = {}
        for name in LINEAR:
            decode_s = np.where(any_decode, _step_part(decoded, name), 0.0)
            parts[name] = x * decode_s + y * np.maximum(_step_part(priced, name) - decode_s, 0.0)
        attended = y * self.chunk_attention(tokens, prompts, cached)
        parts["attention"] = attended + x * np.where(any_decode, _step_part(decoded, "attention"), 0.0)
        parts |= {name: _step_part(priced, name) for name in SENT}
        gap_s = self._beside(requests) + np.where(any_decode, self._drafts_s(decoded), 0.0)
        return parts | {"launch": np.maximum(self._late(priced, parts), any_decode * self._gaps_s), "engine": gap_s}

    def _spread(self, tokens: Any, decode_tokens: Any, alone_of: Any) -> StepParts:
        """Return a step of so many tokens; of those that one rank alone has, all ranks' routed experts take a share."""
        step = self.steps("prefill", 1.0, tokens + decode_tokens)
        if not np.any(self.expert_share) or np.all(np.asarray(alone_of) <= 1):
            return step
        shared = self.steps("prefill", 1.0, np.maximum(tokens / alone_of + decode_tokens, 1.0))
        gemm = _step_part(step, "gemm")
        return {**step, "breakdown.gemm": gemm + self.expert_share * (_step_part(shared, "gemm") - gemm)}

    @cached_property
    def expert_share(self) -> float:
        """Share of a token's parameters that are of routed experts, which ranks of attention share."""
        model = self.batch.base.model
        experts = model.experts if isinstance(model, Transformer) else None
        if experts is None or experts.count == experts.active:
            return 0.0
        active = count_active_parameters(model)
        return (count_parameters(model) - active) * experts.active / (experts.count - experts.active) / active

    def _captured(self, step: StepParts) -> dict[str, Any]:
        """Return the parts of a decode step that a CUDA graph replays."""
        parts = {name: self.engine.decode_factor * _step_part(step, name) for name in COMPUTE_PARTS}
        return parts | {name: _step_part(step, name) for name in SENT}

    def _launched(self, requests: Any, parts: StepParts) -> Any:
        """Return what a decode step waits for its host that launches all kernels one by one, as many as a prefill's."""
        step = self.steps("prefill", 1.0, np.maximum(requests * (1 + self.draft_tokens), 1.0))
        host = sum(_step_part(step, name) for name in (*COMPUTE_PARTS, *SENT, "launch"))
        return np.where(_step_part(step, "launch") > 0, np.maximum(host - total_step_s(parts), 0.0), 0.0)

    def _late(self, step: StepParts, parts: StepParts) -> Any:
        """Return what a step waits for its host: kernels of prompts are launched one by one.

        What `cosmic evaluate` states as such is what launching takes beyond the kernels; zero where it takes less.
        """
        waited = _step_part(step, "launch")
        busy = sum(_step_part(step, name) for name in (*COMPUTE_PARTS, *SENT))
        host = np.where(waited > 0, self.engine.launch_factor * (waited + busy), 0.0)
        return np.maximum(host - sum(parts[name] for name in (*COMPUTE_PARTS, *SENT)), 0.0)

    @property
    def prefill_factor(self) -> Any:
        """Time of a prefill's kernels, over what the accelerator reaches."""
        return self.engine.prefill_factor * np.where(self.casts, self.engine.cast_factor, 1.0)

    @property
    def _gaps_s(self) -> Any:
        """Gaps between the kernels of a decode step."""
        engine = self.engine
        kernel_gaps_s = engine.expert_gap_s + engine.cast_gap_s * self.casts + engine.widening_gap_s * self.widens
        return self.layers * engine.layer_gap_s + self.expert_layers * kernel_gaps_s

    def _beside(self, requests: Any) -> Any:
        return self.engine.request_host_s * requests + self.engine.step_host_s

    def _drafts_s(self, decoded: StepParts) -> Any:
        """Return the seconds in which a model's own draft layers make the tokens that the next step checks."""
        if not self.draft_tokens:
            return 0.0
        step = total_step_s(self._captured(decoded)) + self._gaps_s
        return self.draft_tokens * DRAFT_LAYERS / np.maximum(self.layers, 1) * step

    def _decoded(self, requests: Any, context: Any) -> StepParts:
        """Return a decode step without an engine, with the tokens that it checks."""
        step = self.steps("decode", np.maximum(requests, SMALL), context)
        if not self.draft_tokens:
            return step
        checked = self.steps("decode", np.maximum(requests, SMALL) * (1 + self.draft_tokens), context)
        return {**checked, "breakdown.attention": _step_part(step, "attention") * self.more_queries}

    @cached_property
    def more_queries(self) -> Any:
        """How many times longer attention to the same cache takes with the queries of drafted tokens.

        Up to the rate at which the cache is read, products of further queries cost nothing.
        """
        model, fields = self.batch.base.model, self.batch
        if not isinstance(model, Transformer):
            return 1.0
        width, values, groups = model.head_dim, model.head_dim, model.kv_heads
        if model.mla:
            width, values, groups = model.mla.kv_lora_rank + model.mla.qk_rope_head_dim, model.mla.kv_lora_rank, 1
        heads = np.maximum(model.heads / fields["workload.tp"] / np.ceil(groups / fields["workload.tp"]), 1)
        multiplied = 2 * heads * (width + values) / (fields["compute.bf16"] * fields["compute.attention_efficiency"])
        read = recipe_for(fields.base.workload).cache * (width if model.mla else width + values)
        rate = fields["memory.bandwidth"] * fields["compute.memory_efficiency"] * ATTENTION.read_alone
        share = multiplied / (read / rate)
        return np.maximum(1.0, (1 + self.draft_tokens) * share) / np.maximum(1.0, share)

    def chunk_attention(self, tokens: Any, prompts: Any, cached: Any) -> Any:
        """Return the attention of *tokens* of each prompt, after *cached* ones, without an engine."""
        cached = np.asarray(cached, dtype=float)
        with_chunk = _step_part(self.steps("prefill", prompts, cached + tokens), "attention")
        if not np.any(cached > 0):
            return with_chunk
        without_chunk = _step_part(self.steps("prefill", prompts, np.maximum(cached, 1)), "attention")
        return np.maximum(with_chunk - np.where(cached > 0, without_chunk, 0.0), 0.0)

    # ------------------------------------------------------------------------------------------------ memory

    def held_requests(self, context: Any) -> Any:
        """Return how many requests of *context* tokens each fit into the KV cache of a rank; below 0: not its weights.

        An engine reserves its share of the memory, or of what weights leave of it (`Engine.reserves_kv`).
        """
        step = self.steps("decode", 1.0, context)
        cache = step["memory.kv_cache"]
        used = step["memory_bytes"] + step["memory.fragmentation"] - cache + self.engine.workspace_bytes
        capacity = np.asarray(self.batch["memory.capacity"], dtype=float)
        share = self.engine.memory_fraction
        room = np.where(self.engine.reserves_kv, share * (capacity - used), share * capacity - used)
        return room / np.maximum(cache, SMALL)

    def kv_tokens(self, context: Any) -> Any:
        """Return the tokens that the KV cache of a rank holds, of requests of *context* tokens each."""
        return np.maximum(self.held_requests(context), 0.0) * np.maximum(np.rint(context), 1)

    # ---------------------------------------------------------------------------------------------- evaluation

    def steps(self, task: str, requests: Any, tokens: Any) -> StepParts:
        """Return the metrics of steps without an engine: what `cosmic evaluate` says of them."""
        return self.outcome(task, requests, tokens).columns

    def outcome(self, task: str, requests: Any, tokens: Any) -> BatchOutcome:
        """Return the same, with the rules that designs break; what was asked before is not evaluated again."""
        requests, tokens = np.asarray(requests, dtype=float), np.asarray(tokens, dtype=float)
        key = (task, requests.shape, requests.tobytes(), tokens.shape, tokens.tobytes())
        if key not in self.known:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[key] = self._outcome(task, requests, tokens)
        return self.known[key]

    def _outcome(self, task: str, requests: Any, tokens: Any) -> BatchOutcome:
        counts = np.empty(self.batch.size)
        rows = np.broadcast(requests, np.asarray(tokens), self.ranks, counts).shape or (1,)
        flights = np.minimum(self.batch["workload.pp"], np.maximum(requests, 1.0)) if task == "decode" else 1.0
        per_flight = np.where(flights > 1, np.ceil(requests / flights - SMALL), requests)
        sizes = {
            "sequence": np.maximum(np.rint(tokens), 1),
            "micro_batch": per_flight,
            "global_batch": requests * self.ranks,
        }
        base = self.batch.base
        base = base.changed(
            {"workload.task": task, "workload.global_batch": base.workload.dp, "workload.micro_batch": 1}
        )
        columns = {f"workload.{name}": np.broadcast_to(value, rows).reshape(-1) for name, value in sizes.items()}
        columns_of_rows = self.batch.columns
        if rows != (self.batch.size,):  # steps of several sizes on the same mappings
            batch_rows = np.broadcast_to(np.arange(self.batch.size), rows).reshape(-1)
            columns_of_rows = {path: column[batch_rows] for path, column in columns_of_rows.items()}
        outcome = evaluate_steps(Batch(base, {**columns_of_rows, **columns}))
        if len(rows) == 1:
            return outcome
        return BatchOutcome(
            {name: column.reshape(rows) for name, column in outcome.columns.items()},
            {name: flags.reshape(rows) for name, flags in outcome.broken.items()},
            outcome.excess.reshape(rows),
        )


def with_collectives(design: DesignPoint, engine: Engine) -> DesignPoint:
    """Return a design whose collectives inside a node are the engine's own, where its links can reduce in the switch.

    They take `Engine.all_reduce_s`, whatever the library needs to start, and the time of their bytes.
    """
    if engine.all_reduce_s is None or not design.network.dims:
        return design
    link = design.network.dims[INSIDE_NODE].transport
    if not link.reduction_efficiency or link.overhead_s <= engine.all_reduce_s:
        return design
    where = f"network.dims.{INSIDE_NODE}.transport"
    stated_rates = {
        "overhead": engine.all_reduce_s,
        "reduction": 0.0,
        "reduction_efficiency": engine.all_reduce_efficiency,
    }
    return design.changed({f"{where}.{key}": value for key, value in stated_rates.items()})


def total_step_s(parts: StepParts) -> Any:
    """Return the seconds of a step, given its parts."""
    return sum(parts.values())


def _step_part(step: StepParts, name: str) -> Any:
    return step[f"breakdown.{name}"]
