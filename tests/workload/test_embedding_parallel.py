"""The embedding split over data-parallel ranks: derived communication, and memory."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Metrics
from cosmic.step.communication import CollectiveUse, list_collectives

NAME = "embedding_parallel"
MESH = {"tp": 1, "cp": 1, "pp": 1, "dp": 8, "global_batch": 8, "micro_batch": 1, "sequence": 1024}


def design(strategies: tuple[str, ...], **changes: Any) -> DesignPoint:
    stated = {**MESH, "weight_sharding": "none", "strategies": list(strategies), **changes}
    return load_design("llama2-7b@dgx-h200:8", stated, plain=True)


def sent(point: DesignPoint) -> list[CollectiveUse]:
    return [each for each in list_collectives(batch_of(point)) if each.block == "embedding" and float(each.group) > 1]


def test_all_to_alls_take_the_place_of_the_reduction() -> None:
    assert [each.kind for each in sent(design(()))] == ["all_reduce"]
    kinds = [each.kind for each in sent(design((NAME,)))]
    assert kinds == ["all_gather", "all_to_all", "all_to_all", "all_gather"]  # tokens, rows, gradients, tokens


def test_rows_of_a_microbatch_are_what_is_sent() -> None:
    found = {each.kind: float(each.bytes) for each in sent(design((NAME,)))}
    assert found == {"all_gather": 8 * 1024 * 8, "all_to_all": 1024 * 4096 * 2}


@pytest.mark.parametrize(("sharding", "saved"), [("none", 2 + 4 + 12), ("zero1", 2 + 4)])
def test_a_rank_has_an_eighth_of_the_table_with_its_states(sharding: str, saved: float) -> None:
    table = 32000 * 4096 * 7 / 8
    kept = []
    for strategies in ((), (NAME,)):
        found = evaluate(design(strategies, weight_sharding=sharding).changed({"memory.capacity": 1e15}))
        assert isinstance(found, Metrics)
        kept.append(sum(found.memory[key] for key in ("weights", "gradients", "optimizer")))
    assert kept[0] - kept[1] == pytest.approx(saved * table)
