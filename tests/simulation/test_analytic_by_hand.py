"""Every term of the closed form, by values worked out by hand from profiles whose seconds are plain numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from cosmic.simulation.analytic import (
    BREAKDOWN,
    CommunicationTime,
    ComputeTime,
    StageTime,
    Step,
    _after_step,
    _bubble,
    _communicated,
    _optimizer,
    _other_stages,
    _slower,
    _stage_time,
    anatomy_of,
    communication_time,
    compute_time,
)
from cosmic.step.communication import Role
from cosmic.step.compute import Kernel, OperatorUse
from cosmic.step.memory import Footprint
from cosmic.step.profile import CollectiveCost, OperatorCost
from cosmic.workload.precision import recipe_of


@dataclass
class _Fields:
    base: Any
    fields: dict[str, Any]

    def __getitem__(self, path: str) -> Any:
        return self.fields[path]


@dataclass
class Profile:
    """A profile of plain numbers: what `StepProfile` has, without a design behind it."""

    operators: tuple[OperatorCost, ...] = ()
    traffic: tuple[CollectiveCost, ...] = ()
    microbatches: Any = 4
    task: str = "training"
    schedule: str = "1f1b"
    sharding: str = "none"
    pp: Any = 1
    virtual: int = 1
    scheduling: str = "fifo"
    calls: dict[str, float] = field(default_factory=dict)
    states: float = 0.0
    offloaded_states: float = 0.0
    offload_traffic: float = 0.0

    @property
    def batch(self) -> Any:
        """The fields of a design that the closed form asks for."""
        workload = SimpleNamespace(task=self.task, schedule=self.schedule, weight_sharding=self.sharding)
        fields = {
            "workload.pp": self.pp,
            "workload.virtual_stages": self.virtual,
            "collective.scheduling": self.scheduling,
        }
        return type(
            "Batch",
            (),
            {"base": SimpleNamespace(workload=workload, model=None), "__getitem__": lambda _, key: fields[key]},
        )()

    @property
    def kernels(self) -> Any:
        """One launch of a collective takes 0.25 s forward and 0.125 s backward; an update 3 s for each weight."""
        return SimpleNamespace(
            collective_launch_s=lambda phase: 0.25 if phase == "forward" else 0.125,
            update=lambda elements, tables: (3 * elements + tables.update_bytes, 0.0),
            recipe=recipe_of("bf16", "training"),
        )

    @property
    def network(self) -> Any:
        """Outer tiers move 10 bytes a second; compute overlaps at most half of what may be overlapped."""
        return SimpleNamespace(offload_seconds=lambda moved: moved / 10, overlap_efficiency=0.5)

    @property
    def memory(self) -> Footprint:
        """Optimizer states and the traffic of offloading."""
        return Footprint({"optimizer": self.states}, {"optimizer": self.offloaded_states}, self.offload_traffic)

    def launched_calls(self, phase: str) -> float:
        """Return the calls that are stated."""
        return self.calls.get(phase, 0.0)


def profile(**settings: Any) -> Any:
    return cast(Any, Profile(**settings))


def operator(
    kind: str,
    phase: Any,
    runs: float,
    seconds: float,
    *,
    block: str = "layer",
    launch_s: float = 0.0,
    again: bool = False,
) -> OperatorCost:
    """Return an operator of 10 flop a run."""
    use = OperatorUse(kind, kind, block, phase, 10.0, 1.0, runs, Kernel(), again)
    return OperatorCost(use, runs, seconds, launch_s)


def collective(role: Role, phase: str, seconds: float, block: str = "") -> CollectiveCost:
    return CollectiveCost(role, phase, "all_reduce", ("tp",), 1.0, 1.0, seconds, block)


# ------------------------------------------------------------------------------------------------- compute


def test_operators_are_summed_by_class_and_by_phase() -> None:
    found = compute_time(
        profile(
            operators=(
                operator("einsum", "forward", 3, 2.0),
                operator("einsum", "backward", 3, 4.0),
                operator("attention", "forward", 3, 1.0),
                operator("norm", "backward", 3, 0.5),
            )
        )
    )
    assert (found.gemm, found.attention, found.other) == (18.0, 3.0, 1.5)
    assert (found.forward, found.backward, found.recompute) == (9.0, 13.5, 0.0)
    assert found.flop == 4 * 3 * 10


def test_every_second_run_of_a_recomputed_operator_is_recomputation() -> None:
    found = compute_time(profile(operators=(operator("einsum", "forward", 6, 2.0, launch_s=0.1, again=True),)))
    assert (found.gemm, found.forward, found.recompute) == (6.0, 6.0, 6.0)  # 3 runs of 2 s, twice
    assert [found.launch_forward, found.launch_backward] == pytest.approx([0.3, 0.3])
    assert found.flop == 60


def test_the_head_is_counted_apart_and_its_forward_launches_overlap() -> None:
    found = compute_time(
        profile(
            operators=(
                operator("einsum", "forward", 2, 3.0, block="head", launch_s=0.5),
                operator("einsum", "backward", 2, 5.0, block="head", launch_s=0.25),
            )
        )
    )
    assert (found.head_forward, found.head_backward) == (6.0, 10.0)
    assert (found.forward, found.backward) == (6.0, 10.0)
    assert (found.launch_forward, found.launch_backward, found.launch_head) == (0.0, 0.5, 0.5)


def test_launches_are_of_all_runs_and_of_blocking_collectives() -> None:
    operators = (operator("norm", "forward", 4, 1.0, launch_s=0.2), operator("norm", "backward", 4, 1.0, launch_s=0.1))
    found = compute_time(profile(operators=operators, calls={"forward": 8, "backward": 16}))
    assert found.launch_forward == pytest.approx(4 * 0.2 + 8 * 0.25)
    assert found.launch_backward == pytest.approx(4 * 0.1 + 16 * 0.125)


def test_a_stage_runs_its_share_of_a_block_but_launches_are_counted_whole() -> None:
    use = OperatorUse("x", "einsum", "embedding", "forward", 10.0, 1.0, 4.0, Kernel())
    found = compute_time(profile(operators=(OperatorCost(use, 0.0, 2.0, 0.5),)))
    assert (found.gemm, found.flop, found.launch_forward) == (0.0, 0.0, 2.0)


# ------------------------------------------------------------------------------------------ communication


def test_collectives_are_summed_by_role_and_phase_with_head_and_embedding_apart() -> None:
    found = communication_time(
        profile(
            traffic=(
                collective("tp", "forward", 1.0),
                collective("tp", "forward", 2.0, "head"),
                collective("weights", "backward", 5.0, "embedding"),
                collective("weights", "backward", 3.0),
            )
        )
    )
    assert (found.of("tp", "forward"), found.of("tp", "backward")) == (3.0, 0.0)
    assert (found.at_head("forward"), found.at_head("backward")) == (2.0, 0.0)
    assert found.of("weights", "backward") == 8.0
    assert found.by_block["embedding", "backward"] == 5.0
    assert found.overlap_efficiency == 0.5


def communication(
    by_role: dict[tuple[Role, str], float], by_block: Any = None, efficiency: float = 0.5
) -> CommunicationTime:
    return CommunicationTime(cast(Any, by_role), by_block or {}, efficiency)


def test_only_tensor_context_expert_and_data_parallelism_block() -> None:
    roles: tuple[Role, ...] = ("tp", "cp", "ep", "dp", "pp", "ring", "weights", "updated")
    found = communication({(role, "forward"): 2.0**place for place, role in enumerate(roles)})
    assert found.blocking("forward") == 1 + 2 + 4 + 8
    assert found.blocking("backward") == 0


@pytest.mark.parametrize(("compute_s", "left"), [(4.0, 6.0), (8.0, 5.0)])
def test_compute_overlaps_a_share_at_best_and_no_longer_than_it_takes(compute_s: float, left: float) -> None:
    """Of 10 s, half can be overlapped: 4 s of compute leave 6 s, 8 s leave 5 s."""
    assert communication({("weights", "forward"): 10.0}).exposed("weights", "forward", compute_s) == left


@pytest.mark.parametrize(("compute_s", "left"), [(4.0, 6.0), (12.0, 0.0)])
def test_what_is_overlapped_completely_shows_only_beyond_its_compute(compute_s: float, left: float) -> None:
    assert communication({("ring", "forward"): 10.0}).beyond("ring", "forward", compute_s) == left


def test_after_a_step_gradients_overlap_one_backward_pass_and_updated_weights_nothing() -> None:
    """Reducing takes 10 s, of which 3 s of backward overlap: 7 s, then 4 s of updated weights."""
    found = communication({("weights", "step"): 10.0, ("updated", "step"): 4.0})
    assert _after_step(found, False, 2.0, 3.0, 4) == 7.0 + 4.0


def test_the_gradients_of_the_embedding_come_last_and_are_exposed() -> None:
    """6 s once a step and 8 s over 4 microbatches, of which the last shows: 8 s is more than the 7 s that are left."""
    by_block = {("embedding", "step"): 6.0, ("embedding", "backward"): 8.0}
    found = communication({("weights", "step"): 10.0, ("updated", "step"): 4.0}, by_block)
    assert _after_step(found, False, 2.0, 3.0, 4) == 8.0 + 4.0


@pytest.mark.parametrize(("forward_s", "left"), [(2.0, 9.0), (10.0, 7.0)])
def test_the_newest_first_overlaps_the_next_forward_pass_too(forward_s: float, left: float) -> None:
    """Of 14 s, at most half: 2 + 3 s of compute leave 9 s, 10 + 3 s leave 7 s."""
    found = communication({("weights", "step"): 10.0, ("updated", "step"): 4.0})
    assert _after_step(found, True, forward_s, 3.0, 4) == left


STAGE = StageTime(
    forward=8.0, backward=16.0, delay_forward=0.0, delay_backward=0.0, head_forward=0.0, head_backward=0.0
)


def exposed(by_role: dict[tuple[Role, str], float], **settings: Any) -> dict[str, float]:
    compute = ComputeTime(attention=3.0)
    found = _communicated(profile(**settings), compute, communication(by_role), STAGE)
    return {name: float(value) for name, value in found.items()}


def test_blocking_collectives_show_in_full() -> None:
    found = exposed({("tp", "forward"): 1.0, ("tp", "backward"): 2.0, ("ep", "backward"): 4.0, ("dp", "forward"): 8.0})
    assert (found["tp"], found["cp"], found["ep"], found["dp"]) == (3.0, 0.0, 4.0, 8.0)


def test_a_ring_overlaps_a_third_of_attention_forward_and_two_thirds_backward() -> None:
    """Attention takes 3 s: 1 s forward and 2 s backward."""
    assert exposed({("ring", "forward"): 5.0, ("cp", "forward"): 1.0})["cp"] == 1.0 + 4.0
    assert exposed({("ring", "backward"): 5.0})["cp"] == 3.0


def test_sharded_weights_overlap_the_pass_that_they_belong_to() -> None:
    """Of 40 s forward, 8 s of compute; of 40 s backward, 16 s."""
    assert exposed({("weights", "forward"): 40.0})["weights"] == 32.0
    assert exposed({("weights", "backward"): 40.0})["weights"] == 24.0


def test_gradients_overlap_the_backward_pass_of_one_microbatch() -> None:
    """16 s of backward in 4 microbatches leave 40 - 4 s; the newest first, with 2 s of forward, 40 - 6 s."""
    assert exposed({("weights", "step"): 40.0})["dp"] == 36.0
    assert exposed({("weights", "step"): 40.0}, scheduling="lifo")["dp"] == 34.0


def test_each_stage_adds_one_send_each_way() -> None:
    sends: dict[tuple[Role, str], float] = {("pp", "forward"): 0.5, ("pp", "backward"): 0.25}
    assert exposed(sends, pp=4)["pp"] == 3 * 0.75
    assert exposed(sends, pp=1)["pp"] == 0.0


# -------------------------------------------------------------------------------------- stages and bubble


def test_a_pass_is_compute_and_what_blocks_it() -> None:
    compute = ComputeTime(forward=8.0, backward=10.0, recompute=4.0, head_forward=2.0, head_backward=3.0)
    found = _stage_time(
        compute,
        communication(
            {("tp", "forward"): 1.0, ("ep", "backward"): 2.0}, {("head", "forward"): 0.5, ("head", "backward"): 0.25}
        ),
    )
    assert (found.forward, found.backward) == (9.0, 16.0)
    assert (found.head_forward, found.head_backward) == (2.5, 3.25)
    assert (found.delay_forward, found.delay_backward) == (0.0, 0.0)


def test_a_launch_bound_pass_lasts_until_its_kernels_are_launched() -> None:
    """Forward, 9 s of launches against 8 - 2 s of layers, as the head runs after them; backward, 12 s against 10 s."""
    compute = ComputeTime(forward=8.0, backward=10.0, head_forward=2.0, launch_forward=9.0, launch_backward=12.0)
    found = _stage_time(compute, communication({}))
    assert (found.delay_forward, found.delay_backward) == (3.0, 2.0)
    assert (found.forward, found.backward) == (11.0, 12.0)


def test_other_stages_have_layers_only_and_half_their_backward_makes_weight_gradients() -> None:
    """4 microbatches: F = (8 - 2) / 4, W = (10 - 2) / 2 / 4, B = (14 - 2) / 4 - W."""
    compute = ComputeTime(backward=10.0, head_backward=2.0)
    stage = StageTime(8.0, 14.0, 0.0, 0.0, 2.0, 2.0)
    assert _other_stages(profile(), compute, stage) == (1.5, 3.0 - 1.0, 1.0)


def test_other_stages_are_launch_bound_by_their_own_launches() -> None:
    """Backward they run (14 - 1 - 2) s and launch 20 - 4 s: the longer counts."""
    compute = ComputeTime(backward=10.0, head_backward=2.0, launch_backward=20.0, launch_head=4.0)
    stage = StageTime(8.0, 14.0, 0.0, 1.0, 2.0, 2.0)
    assert _other_stages(profile(), compute, stage)[1] == 4.0 - 1.0


def test_serving_stages_are_alike_but_for_the_head_of_a_prefill() -> None:
    stage = StageTime(8.0, 0.0, 0.0, 0.0, 2.0, 0.0)
    assert _other_stages(profile(task="prefill"), ComputeTime(), stage) == (1.5, 0.0, 0.0)
    assert _other_stages(profile(task="decode"), ComputeTime(), stage) == (2.0, 0.0, 0.0)


def test_the_bubble_is_that_of_the_schedule() -> None:
    """1F1B with 4 stages idles 3 (F + B + W); two virtual stages, interleaved, halve it."""
    times = (1.0, 2.0, 1.0)
    assert _bubble(profile(pp=4, microbatches=8), times) == 12.0
    assert _bubble(profile(pp=4, microbatches=8, schedule="interleaved", virtual=2), times) == 6.0


def test_a_prompt_passes_every_stage_and_a_decoded_token_returns_after_a_round() -> None:
    times = (2.0, 0.0, 0.0)
    assert _bubble(profile(task="prefill", pp=4, microbatches=1), times) == 6.0
    assert _bubble(profile(task="decode", pp=4, microbatches=1), times) == 6.0
    assert _bubble(profile(task="decode", pp=4, microbatches=3), times) == 2.0
    assert _bubble(profile(task="decode", pp=4, microbatches=8), times) == 0.0


def test_the_optimizer_updates_the_weights_whose_states_a_device_holds() -> None:
    """12 bytes of state a weight, 8 with ZeRO-3; 24 + 12 bytes are 3 weights, of 3 s each."""
    assert _optimizer(profile(states=24.0, offloaded_states=12.0)) == 9.0
    assert _optimizer(profile(states=24.0, sharding="zero3")) == 9.0
    assert _optimizer(profile(states=24.0, task="prefill")) == 0.0


# -------------------------------------------------------------------------------------------- the whole step


def test_the_breakdown_sums_to_the_step_and_offloading_overlaps_all_of_it() -> None:
    """GEMMs 6 + 12 s, tp 1 s, updates 3 s: 22 s; outer tiers take 30 s, of which 8 s show."""
    operators = (operator("einsum", "forward", 3, 2.0), operator("einsum", "backward", 3, 4.0))
    settings = {"operators": operators, "traffic": (collective("tp", "forward", 1.0),), "states": 12.0}
    found = anatomy_of(profile(**settings, offload_traffic=300.0)).step
    wanted = dict.fromkeys(BREAKDOWN, 0.0) | {"gemm": 18.0, "tp": 1.0, "optimizer": 3.0, "offload": 8.0}
    assert dict(found.parts) == wanted
    assert found.seconds == 30.0
    assert anatomy_of(profile(**settings, offload_traffic=100.0)).step.seconds == 22.0


def test_every_part_counts_before_offloading_shows() -> None:
    operators = (
        operator("einsum", "forward", 2, 1.0, again=True, launch_s=4.0),
        operator("attention", "forward", 1, 1.0),
        operator("norm", "backward", 1, 1.0),
    )
    roles: tuple[Role, ...] = ("tp", "cp", "ep", "dp")
    traffic = [collective(role, "forward", 1.0) for role in roles]
    traffic += [collective("weights", "forward", 8.0), collective("pp", "forward", 1.0)]
    found = anatomy_of(
        profile(operators=operators, traffic=tuple(traffic), pp=2, states=12.0, offload_traffic=1e4)
    ).step
    parts = {name: float(value) for name, value in found.parts.items()}
    assert all(value > 0 for value in parts.values())
    assert found.seconds == pytest.approx(1000.0)  # of 10,000 bytes at 10 a second


def test_the_slower_of_two_stages_counts_design_by_design() -> None:
    one = Step({"gemm": np.array([1.0, 5.0])}, np.array([10.0, 20.0]))
    other = Step({"gemm": np.array([2.0, 4.0])}, np.array([30.0, 40.0]))
    found = _slower(one, other)
    assert np.asarray(found.parts["gemm"]).tolist() == [2.0, 5.0]
    assert np.asarray(found.flop).tolist() == [30.0, 20.0]
