"""The mapping that a row states, and what it leaves open."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.accuracy.measured_rows import Fields
from cosmic.accuracy.rows.training_rows import StatedMapping, mesh_of, stated_of
from cosmic.accuracy.rows.training_software import Software
from cosmic.base.errors import SpecError
from cosmic.design.model_layer import Experts, Transformer

MEGATRON = Software("megatron-lm", "2024-06", {"sequence_parallel": True}, interleaves=True)
TITAN = Software("torchtitan", "2024-12", sharding="zero3", staged_zero3="zero1", microbatches="stages")
MODEL = Transformer(layers=32, hidden=1024, heads=8, ffn=4096, vocab=32000)
MIXTURE = Transformer(
    layers=8, hidden=1024, heads=8, ffn=4096, vocab=32000, experts=Experts(count=8, active=2, ffn=1024)
)


def mesh(cells: dict[str, str], software: Software = MEGATRON) -> dict[str, int]:
    return mesh_of(Fields(cells), software, 64)


def read(
    cells: dict[str, str],
    software: Software = MEGATRON,
    model: Transformer = MODEL,
    batch: int = 256,
    count: int = 64,
) -> StatedMapping:
    fields = Fields({"n_accel": str(count), "seq_len": "2048", **cells})
    return stated_of(fields, software, model, mesh_of(fields, software, count), batch)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"tp": "8", "pp": "2", "cp": "1", "dp": "4"}, (8, 2, 1, 4)),
        ({"tp": "8"}, (8, 1, 1, 8)),
        ({"tp": "8", "dp": "2"}, (8, 4, 1, 2)),  # what is left is the one that is not given
        ({"tp": "8", "pp": "2", "cp": "2", "dp": "4"}, (8, 2, 2, 2)),  # dp counts cp, as in some tables
        ({"schedule": "fsdp"}, (1, 1, 1, 64)),
        ({}, ()),
    ],
)
def test_axes_that_are_not_stated_follow(cells: dict[str, str], expected: tuple[int, ...]) -> None:
    assert tuple(mesh(cells).values()) == expected


def test_frameworks_that_shard_replicate_as_far_as_the_batch_goes() -> None:
    assert mesh({}, TITAN) == {"tp": 1, "pp": 1, "cp": 1, "dp": 64}
    assert mesh({"gbs": "32"}, TITAN) == {}


def test_a_mesh_that_does_not_divide_is_refused() -> None:
    with pytest.raises(SpecError, match="does not divide by tp"):
        mesh({"tp": "3"})


def test_what_is_stated_is_held_and_the_rest_is_open() -> None:
    given = read(
        {"tp": "2", "pp": "4", "vpp": "2", "mbs": "2", "zero_stage": "1", "seq_par": "0", "schedule": "interleaved"}
    )
    assert given.open == frozenset()
    assert (given.held["micro_batch"], given.held["virtual_stages"], given.held["schedule"]) == (2, 2, "interleaved")
    assert (given.held["weight_sharding"], given.held["sequence_parallel"]) == ("zero1", False)
    assert read({"tp": "2", "pp": "4", "schedule": "1f1b"}).open == {"micro_batch"}
    assert read({"tp": "2", "pp": "4"}).open == {"micro_batch", "virtual_stages"}
    assert read({}).open == {"tp", "pp", "cp", "micro_batch", "virtual_stages"}
    assert read({"tp": "1", "mbs": "1"}, model=MIXTURE).open == {"ep"}


@pytest.mark.parametrize(
    ("software", "cells", "key", "value"),
    [
        (MEGATRON, {"tp": "2", "pp": "4", "vpp": "64"}, "virtual_stages", 8),  # (32 + 2) / 4
        (MEGATRON, {"tp": "2", "pp": "4", "schedule": "DualPipe"}, "schedule", "dualpipe"),
        (MEGATRON, {"tp": "2", "pp": "4", "schedule": "ZB-H1"}, "schedule", "zero_bubble"),
        (TITAN, {"zero_stage": "3"}, "weight_sharding", "zero3"),
        (TITAN, {"pp": "4", "zero_stage": "3"}, "weight_sharding", "zero1"),
        (TITAN, {"pp": "4"}, "weight_sharding", "zero1"),
        (TITAN, {"pp": "4", "vpp": "2"}, "micro_batch", 2),  # 256 of 16 replicas in as many as stages
        (MEGATRON, {"tp": "64"}, "weight_sharding", "none"),  # no replicas
        (MEGATRON, {"tp": "2", "zero_stage": "ZeRO-2"}, "weight_sharding", "zero2"),
        (MEGATRON, {"tp": "2", "zero_stage": "FSDP"}, "weight_sharding", "zero3"),
        (MEGATRON, {"tp": "8"}, "sequence_parallel", True),
        (MEGATRON, {"tp": "1"}, "sequence_parallel", False),
        (MEGATRON, {"tp": "64", "seq_len": "2000"}, "sequence_parallel", False),  # it does not divide
        (MEGATRON, {"tp": "2", "accumulated": "4"}, "micro_batch", 2),  # 256 / (32 × 4)
        (MEGATRON, {"accumulated": "16"}, "dp", 16),  # one sequence a pass
    ],
)
def test_a_row_is_read_as_its_framework_writes(software: Software, cells: dict[str, str], key: str, value: Any) -> None:
    assert read(cells, software).held[key] == value


def test_one_sequence_for_each_replica_leaves_nothing_open() -> None:
    assert read({"zero_stage": "3", "schedule": "fsdp"}, batch=64).held["micro_batch"] == 1


def test_experts_spread_no_wider_than_a_stage() -> None:
    assert read({"tp": "1", "pp": "2", "ep": "8"}, model=MIXTURE, count=8).held["ep"] == 4
    assert "ep" not in read({"tp": "1", "ep": "8"}).held
