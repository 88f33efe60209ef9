"""What the host takes: to launch the kernels of each operator, and to start a step.

    host seconds of a run = ( kernels x price + of its block ) x host_launch x slowest

    price    forward 1; backward less, as autograd calls no Python; without autograd (serving) less still
    block    where a block begins: entering its checkpoint, and again when the backward pass recomputes it; entering the
             graph that a compiler made of it
    slowest  ranks that exchange data wait for the slowest of their hosts

*Eager*, every operation is a kernel, and gradients that accumulate are added by one for each weight. *Compiled*,
neighbours are one kernel, which a generated wrapper launches faster. *Fused* by hand (Megatron-LM with Transformer
Engine), the experts of a device share one call, but it launches a GEMM and its casts for each of them. A step that is
replayed from CUDA graphs, and a decode step, need no launches.

Counts are those of PyTorch 2.11, by its profiler; host times by calibration/measure_launches.py.

A step starts by a process on every host, or by one controller for all of them (`controller_wait_s`):

    multi_controller     every host starts its own kernels: nothing beyond what kernels take to launch
    single_parallel      one client starts a program on all h hosts at once while the last one runs:
                         step = max(step, t(h)),  t(h) = t_client + t_host h
    single_sequential    a node of the program is prepared when those before it were enqueued: a node of c seconds takes
                         max(c, t(h) + 2 l),  l one message between hosts

A step without a pipeline is one node: one compiled function on all hosts. Of a pipeline, every pass of a microbatch
through a virtual stage is one, on the hosts of that stage. After Barham et al., Pathways, arXiv 2203.12533; t(h) is the
line through the two thresholds that it states, and is taken for the preparation of a node too, which it does not state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cosmic.base.numeric import Numeric, log, sum_of
from cosmic.design.catalog_entries import load_constants
from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import Transformer
from cosmic.design.program_model import ProgramModel
from cosmic.step.attention import Attention
from cosmic.step.communication import reduces_once
from cosmic.step.gemm import Gemm
from cosmic.step.operator_work import OperatorUse, unfused_share
from cosmic.step.scan import Scan, scan_passes
from cosmic.step.streaming import Style, memory_traffic
from cosmic.workload.block_plans import plan_of
from cosmic.workload.expert_routing import pads_experts
from cosmic.workload.operator_kinds import SCANS

WEIGHTED = ("norm", "bias")
"""Kinds of operators besides GEMMs that have weights, whose gradients accumulate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassNumbers:
    """A number for each pass."""

    forward: float
    backward: float

    def of_pass(self, phase: str) -> float:
        """Return that of a pass."""
        return self.forward if phase == "forward" else self.backward


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConstants:
    """What launching costs, and how many kernels operators run."""

    backward_launch: float
    """Cost of a backward launch over that of a forward one: autograd calls no Python."""
    inference_launch: float
    """Cost of a launch without autograd over that of one with it."""
    compiled_launch: float
    """Cost of a launch by a compiler's wrapper over that of an eager one."""
    compiled_call: PassNumbers
    """What entering a compiled layer costs, in launches."""
    checkpoint_call: PassNumbers
    """What entering a checkpoint costs, in launches, and what recomputing it does beside its kernels."""
    router_kernels: PassNumbers
    dispatch_kernels: PassNumbers
    """Kernels of a training framework's router and dispatcher beside those of compiled ones."""
    host_jitter: float
    """By how much hosts of ranks that wait for each other differ: a standard deviation over the mean."""
    queue_gap_s: float
    """Between two kernels of one queue."""
    fused_gap_s: float
    """Between two kernels of an engine's decode step, of which each joins several operations."""
    graph_gap_s: float
    """Between two kernels that are replayed from a CUDA graph."""
    attention_kernels: PassNumbers
    unfused_kernels: PassNumbers
    """Of unfused attention."""
    collective_kernels: float
    """What a collective costs the host, in launches."""


CONSTANTS = load_constants("launches", LaunchConstants)


class LaunchCosts:
    """What the host takes to launch operators, for a batch of designs that share one plan."""

    def __init__(self, batch: Batch, cast_kernels: Callable[[OperatorUse], Numeric]) -> None:
        self.batch = batch
        self.workload = batch.base.workload
        self._cast_kernels = cast_kernels
        self._serves = self.workload.task != "training"
        self._style: Style = "eager" if self.workload.execution == "eager" else "fused"

    @property
    def replayed(self) -> bool:
        """Whether kernels are replayed from CUDA graphs, which needs no launches."""
        return self.workload.task == "decode" or "full_iteration" in self.workload.cuda_graph

    def operator_s(self, use: OperatorUse) -> Numeric:
        """Return the seconds of the host for one run of an operator."""
        launch_s = self._one_s(use.phase)
        if (np.ndim(launch_s) == 0 and launch_s == 0) or self._scope.get(
            (use.block, use.name)
        ) in self.workload.cuda_graph:
            return 0.0
        return (self.kernels(use) * self._wrapper + self._entered(use)) * launch_s

    def collective_s(self, phase: str) -> Numeric:
        """Return the seconds of the host to launch one collective."""
        return CONSTANTS.collective_kernels * self._one_s(phase)

    def _one_s(self, phase: str) -> Numeric:
        """Return the seconds of one eager launch; a replayed CUDA graph needs none."""
        if self.replayed:
            return 0.0
        price = CONSTANTS.inference_launch if self._serves else 1.0
        price *= CONSTANTS.backward_launch if phase == "backward" else 1.0
        launch: Numeric = self.batch["compute.host_launch"] * self.batch["compute.time_factor"]
        return launch * price * self._slowest

    @property
    def _wrapper(self) -> float:
        """The cost of a launch over that of an eager one."""
        return CONSTANTS.compiled_launch if self.workload.execution == "compiled" else 1.0

    @cached_property
    def _slowest(self) -> Numeric:
        """How many times longer the slowest of n hosts takes: the largest of n normal deviates is √(2 ln n)."""
        spread: Numeric = np.sqrt(2 * log(np.maximum(self.batch.npus, 1)))
        return 1 + CONSTANTS.host_jitter * spread

    # ------------------------------------------------------------------------------------------------- kernels

    def kernels(self, use: OperatorUse) -> Numeric:
        """Return how many kernels the host launches for one run of an operator."""
        if isinstance(use.kernel.shape, Gemm):
            return self._gemm_kernels(use, use.kernel.shape)
        if isinstance(use.kernel.shape, Attention):
            share = unfused_share(self.workload, self.batch.base.model)
            per_pass = CONSTANTS.attention_kernels.of_pass(use.phase), CONSTANTS.unfused_kernels.of_pass(use.phase)
            return (1 - share) * per_pass[0] + share * per_pass[1]
        if isinstance(use.kernel.shape, Scan):
            return scan_passes(use.kernel.shape.kind, use.phase).kernels
        count = memory_traffic(use.kind, use.phase, self._style).kernels
        if self._by_hand and use.kind in ("router", "dispatch"):
            count += self._routing(use)
        added = self._accumulates and use.phase == "backward" and use.kind in WEIGHTED
        return self._looped(use) * (count + added)

    def _gemm_kernels(self, use: OperatorUse, shape: Gemm) -> Numeric:
        """Return the kernels of a GEMM, of all experts where each has its own, and casts that nothing fuses.

        Backward there are two GEMMs, of which the first casts the gradient; the sum of gradients of an activation that
        several GEMMs read is a kernel, too, and so is each weight's accumulation.
        """
        if use.kernel.fuses and (self._by_hand or (self._serves and self._style == "fused")):
            return 0.0  # columns of an earlier GEMM
        batched = self._one_call or isinstance(self.batch.base.model, ProgramModel)  # loops over experts are a model's
        gemms = 1.0 if batched else np.maximum(shape.count, 1.0)
        casts = self._casts(use)
        read = 0.0 if use.kernel.fuses else casts  # an earlier GEMM has cast the same activation
        if use.phase == "forward":
            return gemms * (1.0 + read)
        if use.kernel.frozen:
            return gemms * (1.0 + casts) + use.kernel.fuses
        return gemms * (2.0 + casts + read + self._accumulates) + use.kernel.fuses

    def _casts(self, use: OperatorUse) -> Numeric:
        """Return the kernels that cast an operand: nothing fuses those of experts."""
        narrow = self.workload.precision in ("fp8", "fp4") and use.kernel.weight.startswith("w_expert_")
        return 1.0 if self._by_hand and narrow else self._cast_kernels(use)

    @property
    def _by_hand(self) -> bool:
        """Whether a training framework has fused kernels."""
        return self.workload.execution == "fused" and not self._serves

    @property
    def _one_call(self) -> bool:
        """Whether the experts of a device are one launch."""
        return self.workload.grouped_gemm and not self._by_hand

    @cached_property
    def _accumulates(self) -> bool:
        """Whether kernels of their own add gradients to those of earlier microbatches."""
        return not self._by_hand and not self._serves and reduces_once(self.workload)

    def _routing(self, use: OperatorUse) -> float:
        """Return the kernels of a training framework's router, or of its dispatcher, beside those of a compiled one.

        Where experts have a stated capacity, nothing about their tokens has to be gathered and read by the host.
        """
        model = self.batch.base.model
        even = pads_experts(model, self.workload)
        if use.kind == "router":
            return CONSTANTS.router_kernels.of_pass(use.phase)
        return 0.0 if even else CONSTANTS.dispatch_kernels.of_pass(use.phase)

    def _looped(self, use: OperatorUse) -> Numeric:
        """Return how often an operator between the GEMMs of experts runs: once for each where these are a loop."""
        model = self.batch.base.model
        if self.workload.grouped_gemm or not use.name.startswith("expert_"):
            return 1.0
        if not isinstance(model, Transformer) or model.experts is None:
            return 1.0
        ranks: Numeric = self.batch["workload.ep"]
        return np.maximum(model.experts.count / ranks, 1.0)

    # ------------------------------------------------------------------------------------------------- blocks

    @cached_property
    def _first(self) -> dict[str, str]:
        """The operator with which each repeated block begins, by the block's name."""
        first_operators = {}
        for plan in plan_of(self.batch):
            parts = [part.operator for part in plan.partitioned.operators]
            names = [part.name for part in parts if part.phase == "forward" and part.kind != "view"]
            if plan.block.part == "layers" and names:
                first_operators[plan.block.name] = names[0]
        return first_operators

    @cached_property
    def _scope(self) -> dict[tuple[str, str], str]:
        """The scope of a CUDA graph that each operator of a layer belongs to, by block and name."""
        scopes = {}
        for plan in plan_of(self.batch) if self.workload.cuda_graph else ():
            names = {part.operator.name for part in plan.partitioned.operators}
            scans = any(part.operator.kind in SCANS for part in plan.partitioned.operators)
            scope = "mamba" if scans else "attn"
            for part in plan.partitioned.operators if plan.block.part == "layers" else ():
                operator = part.operator
                if operator.name == "ffn_norm":
                    scope = "moe_router" if "router" in names else "mlp"
                elif operator.kind == "dispatch":
                    scope = "moe_preprocess"
                elif operator.name.startswith("expert_"):
                    scope = ""
                scopes[plan.block.name, operator.name] = scope
        return scopes

    def _entered(self, use: OperatorUse) -> Numeric:
        """Return what entering a block costs, in launches, if this operator is its first.

        A run that is recomputed enters a checkpoint the first time, and leaves it the second.
        """
        if self._serves or self._first.get(use.block) != use.name:
            return 0.0
        entered: Numeric = CONSTANTS.compiled_call.of_pass(use.phase) if self.workload.execution == "compiled" else 0.0
        if use.phase == "forward" and self.workload.recompute == "full":
            checkpoint_calls = CONSTANTS.checkpoint_call.forward + CONSTANTS.checkpoint_call.backward
            entered = entered + checkpoint_calls * use.recomputed / (1 + use.recomputed)
        return entered


@dataclass(frozen=True, slots=True)
class RuntimeConstants:
    """What a single controller takes."""

    client_s: float
    """To start a program, whatever the number of hosts."""
    host_s: float
    """More, for each host."""
    control_latency_s: float
    """One message between hosts."""


RUNTIME = load_constants("runtime", RuntimeConstants)


def controller_dispatch_s(hosts: Numeric) -> Numeric:
    """Return the seconds that a single controller takes to start a program on so many *hosts*.

    Programs that take longer hide it: 2.3 ms at 16 hosts, 35 ms at 512.

    >>> [round(1e3 * float(controller_dispatch_s(hosts)), 1) for hosts in (16, 512)]
    [2.3, 35.0]
    """
    return RUNTIME.client_s + RUNTIME.host_s * hosts


def host_counts(batch: Batch) -> Numeric:
    """Return the hosts of each design; at least one."""
    hosts: Numeric = np.ceil(batch.npus / batch["workload.npus_per_host"])
    return hosts


def virtual_stages(batch: Batch) -> Numeric:
    """Return how many nodes a microbatch has on each stage in a pass; serving, stages are not divided."""
    return batch["workload.virtual_stages"] if batch.base.workload.task == "training" else 1


def controller_wait_s(
    batch: Batch,
    step_s: Numeric,
    passes_s: tuple[Numeric, ...],
    microbatches: Numeric,
    filling: Callable[[Numeric], Numeric] | None = None,
) -> Numeric:
    """Return the seconds that a step of *step_s* waits for its controller.

    *passes_s* are those of a stage's passes, forward and backward, of all *microbatches* together. *filling* says how
    much longer the stage idles while the others run, if each of their nodes takes so many seconds at least;
    without it, stages - 1 nodes as late as those of the stage itself.
    """
    runtime = batch.base.workload.runtime
    if runtime == "multi_controller":
        return 0.0
    hosts = host_counts(batch)
    if runtime == "single_parallel":
        return np.maximum(0.0, controller_dispatch_s(hosts) - step_s)
    return_s = 2 * RUNTIME.control_latency_s
    one_node_s = np.maximum(0.0, controller_dispatch_s(hosts) + return_s - step_s)
    if np.all(batch["workload.pp"] == 1):
        return one_node_s
    stages, nodes = batch["workload.pp"], microbatches * virtual_stages(batch)
    least = controller_dispatch_s(np.ceil(hosts / stages)) + return_s
    late = sum_of((np.maximum(0.0, least - pass_s / nodes) for pass_s in passes_s), 0.0)
    filled = late * (stages - 1) if filling is None else filling(least)
    return np.where(stages > 1, np.maximum(0.0, late * nodes + filled), one_node_s)
