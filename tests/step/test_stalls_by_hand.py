"""What passes wait for outer memory, from blocks and transfers whose seconds are plain numbers.

Each of 4 microbatches takes 1 s in the embedding, 2 s in a layer and 3 s in the head; backward 1, 4 and 6 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from cosmic.step import communication
from cosmic.step.communication import OverlapEfficiency, Role
from cosmic.step.stage_time import ComputeTime, StageTime, _least_s, _stall_for_tiers, stage_time
from cosmic.step.step_profile import CollectiveCost
from tests.simulate.test_analytic_by_hand import stage_of
from tests.step.plain import collective, operator, plain

BLOCKS = {"embedding": (1.0, 1.0), "layer": (2.0, 4.0), "head": (3.0, 6.0)}
THREE = {"embedding": 1.0, "layer": 3.0, "head": 1.0}
MOVED = {
    "forward": {"embedding": 0.5, "layer": 3.0, "head": 1.0},
    "backward": {"embedding": 2.0, "layer": 5.0, "head": 1.0},
}
"""Seconds of a block's transfers for one microbatch."""
LOADED = {"forward": {"embedding": 0.25, "layer": 2.5, "head": 1.0}, "backward": dict.fromkeys(BLOCKS, 0.75)}
"""Those of them that come in."""


def stalled(
    counts: dict[str, float] | None = None,
    moved: Any = None,
    gradients_s: float = 0.0,
    traffic: Sequence[CollectiveCost] = (),
    placed: str = "weights",
    loads: Any = None,
    *,
    waiting: float | None = None,
    **changes: Any,
) -> StageTime:
    """Return a stage with its transfers; *gradients_s* go to the host after the last backward pass."""
    training = changes.get("task", "training") == "training"
    operators = [
        operator("einsum", phase, 4 * seconds, block=block)
        for block, both in BLOCKS.items()
        for phase, seconds in zip(("forward", "backward"), both if training else both[:1], strict=training)
    ]
    shape: dict[str, Any] = {"global_batch": 4, "model": {"layers": 3}} | changes
    made = plain(operators, traffic, **shape)
    found = MOVED if moved is None else moved
    loaded = LOADED if loads is None else loads
    tiers: Any = SimpleNamespace(
        placed=SimpleNamespace(sizes={placed: 1.0}),
        count=4,
        passes=("forward", "backward") if training else ("forward",),
        block_s=lambda name, phase: found[phase][name],
        load_s=lambda name, phase: loaded[phase][name],
        store_s=lambda name, phase: found[phase][name] - loaded[phase][name],
        gradients_out_s=gradients_s,
        updated={"embedding": 10.0, "layer": 30.0, "head": 60.0}.__getitem__,
    )
    held = THREE if counts is None else counts
    return _stall_for_tiers(made, tiers, held, stage_time(made, held), waiting)


def numbers(found: Any) -> dict[str, float]:
    return {phase: float(value) for phase, value in found.items()}


def test_transfers_run_beside_the_block_before() -> None:
    """14 s in place of 10 forward, and 1 + 6 + 2 x 5 + 4 s in place of 19 backward.

    Forward, the embedding's run beside the head (3), the first layer's beside the embedding (3), those of the others
    beside layers (2 x 3), and the head's beside a layer (2).
    """
    found = stalled()
    assert numbers(found.stalled) == {"forward": 4 * 4, "backward": 4 * 2}
    assert numbers(found.passed) == {"forward": 40 + 16, "backward": 76 + 8}
    assert numbers(found.sent) == {"forward": 16, "backward": 8}  # compute hides no communication meanwhile
    assert found.input_gradients_s == 76 / 2 + 8
    assert found.compute.forward == 40


def test_one_buffer_hides_no_transfer() -> None:
    found = stalled(memory={"resident_layers": 1})
    assert numbers(found.stalled) == {"forward": 4 * (0.5 + 9 + 1), "backward": 4 * (2 + 15 + 1)}
    assert found.ends_s == 0  # the first block waits for all of its transfer in any case


@pytest.mark.parametrize(
    ("placed", "forward", "backward"),
    [("weights", 12, 12), ("experts", 12, 12), ("gradients", 0, 9), ("expert_gradients", 0, 9), ("optimizer", 0, 0)],
)
def test_with_one_buffer_weights_are_gathered_after_they_came(placed: str, forward: int, backward: int) -> None:
    """Compute would hide 4 s of each of 3 layers forward, and as much of 7 s backward: the rest is of gradients."""
    gathers = [collective("weights", "forward", 4.0), collective("weights", "backward", 7.0)]
    found = stalled(traffic=gathers, placed=placed, memory={"resident_layers": 1})
    assert numbers(found.stalled) == {"forward": 42 + forward, "backward": 72 + backward}
    ahead = stalled(traffic=gathers, placed=placed)
    assert numbers(ahead.stalled) == {"forward": 16, "backward": 8}  # compute hides gathers beside transfers


def test_the_first_block_of_a_step_has_nothing_beside_it() -> None:
    """In later microbatches 0.25 s of the embedding run beside the head; those of the first layer beside its 3 s."""
    assert stalled().ends_s == 0.25
    assert stalled({"embedding": 0.0, "layer": 3.0, "head": 1.0}).ends_s == 2.5
    assert stalled({"embedding": 0.0, "layer": 3.0, "head": 0.0}).ends_s == 2  # of a layer before it
    assert stalled(task="prefill").ends_s == 0.25
    assert stalled(task="decode").ends_s == 0  # another token came before


def test_serving_has_no_backward_pass_to_stall() -> None:
    assert numbers(stalled(task="prefill").stalled) == {"forward": 16}


def test_gradients_that_go_to_the_host_have_what_the_last_backward_pass_leaves() -> None:
    """19 s of it move 0.5 s of transfers each block: 16.5 s are left, but for the 6 s of the head, which comes first.

    A sixteenth of all weights is the embedding's, whose gradients come when all has run.
    """
    short = dict.fromkeys(("forward", "backward"), dict.fromkeys(BLOCKS, 0.5))
    for sent, late in ((16.0, 16 - 10.5), (10.5, 10.5 / 16), (0.0, 0.0)):
        assert stalled(moved=short, gradients_s=sent).gradients_out_s == late
    assert stalled(gradients_s=3.0).gradients_out_s == 3  # 19 s of which move 18 s of transfers
    assert stalled(gradients_s=3.0).ends_s == 0.25
    alone = stalled({"embedding": 0.0, "layer": 0.0, "head": 1.0}, short, gradients_s=3.0)
    assert alone.gradients_out_s == 3  # one block has nothing beside its gradients


def test_a_stage_without_transfers_waits_for_none() -> None:
    """Half an embedding, layer and a half and half a head: a device of both directions."""
    nothing = dict.fromkeys(("forward", "backward"), dict.fromkeys(BLOCKS, 0.0))
    found = stalled({"embedding": 0.5, "layer": 1.5, "head": 0.5}, nothing)
    assert numbers(found.stalled) == {"forward": 0, "backward": 0}


def test_part_of_a_block_has_so_much_less_to_do() -> None:
    """Forward, 6 s: 1.5 s of a half head, 2 x 3 s of layers, and 2 s of a layer beside the transfer of a half head."""
    found = stalled({"embedding": 0.5, "layer": 2.0, "head": 0.5})
    assert numbers(found.stalled)["forward"] == 4 * (1.5 + 2 * 3 + 2 - 6)


def test_short_transfers_hide_completely() -> None:
    quick = dict.fromkeys(("forward", "backward"), dict.fromkeys(BLOCKS, 0.125))
    assert numbers(stalled(moved=quick).stalled) == {"forward": 0, "backward": 0}


@pytest.mark.parametrize(
    ("buffers", "took", "seconds"),
    [
        (2, 5.0, 3 * 5),  # the link is never idle: both ends, 4 s, run beside the second store, 5 s
        (1, 5.0, 3 * 2 + 2 * 5 + 5),  # after the last layer, a store beside both ends
        (2, 2.25, 3 * 2 + 4 + 0.25),  # the third layer waits until the first one's buffer is empty
        (3, 2.25, 3 * 2 + 4),  # each has a buffer, and 10 s have room for 6.75 s of stores
        (1, 2.25, 3 * 2 + 2 * 2.25 + 4),
    ],
)
def test_layers_wait_until_a_buffer_is_stored_beside_blocks_that_move_nothing(
    buffers: int, took: float, seconds: float
) -> None:
    moved = {"forward": {"embedding": 0.0, "layer": took, "head": 0.0}}
    none = {"forward": dict.fromkeys(BLOCKS, 0.0)}
    for loads in (none, moved):  # a ring has no direction
        found = stalled(moved=moved, loads=loads, task="prefill", memory={"resident_layers": buffers})
        assert numbers(found.stalled) == {"forward": 4 * (seconds - 10)}


def test_stages_that_wait_for_their_input_have_filled_their_buffers() -> None:
    """Two stages of 3 layers of 2 s: the third comes from 2 to 5 s, and is waited for from 4 s on.

    Backward, of 4 s, it comes from 4 to 9 s, and is waited for from 8 s on.
    """
    six = {"embedding": 0.0, "layer": 6.0, "head": 0.0}
    assert numbers(stalled(six, waiting=2.0).stalled) == {"forward": 4 * 2 * 1, "backward": 4 * 2 * 1}
    assert numbers(stalled(six).stalled) == {"forward": 4 * 6 * (3 - 2), "backward": 4 * 6 * (5 - 4)}
    one = stalled(six, waiting=2.0, memory={"resident_layers": 1})  # the first of each stage is there
    assert numbers(one.stalled) == {"forward": 4 * 2 * 2 * 3, "backward": 4 * 2 * 2 * 5}


@pytest.mark.parametrize(("overlap", "shown"), [(True, 0.2 * 5), (False, 5.0)])
def test_a_block_takes_at_least_its_compute_and_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, overlap: bool, shown: float
) -> None:
    """8 s of compute, 3 s of tp, 2 of cp, 1 of dp; of 5 s of ep other microbatches hide four fifths at best."""
    monkeypatch.setattr(communication, "OVERLAP", OverlapEfficiency(tp=0.5, ep=0.8))
    sent: dict[Role, float] = {"tp": 3.0, "cp": 2.0, "dp": 1.0, "ep": 5.0, "weights": 50.0}
    traffic = [collective(role, "forward", seconds) for role, seconds in sent.items()]
    made = plain([operator("norm", "forward", 8.0)], traffic, ep_overlap=overlap, global_batch=4)
    assert float(_least_s(made, "layer", "forward")) == pytest.approx(8 + 3 + 2 + 1 + shown)
    assert float(_least_s(made, "layer", "backward")) == 0


def test_half_of_what_is_not_said_otherwise_makes_gradients_of_weights() -> None:
    assert stage_of(ComputeTime(backward=4.0), {}, {}, late_s=2.0).weight_gradients_s == 3
