"""What queries see of packed documents, of windows and of compressed keys: counted key by key."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.design.design_batch import batch_of_changes
from cosmic.design.model_layer import SparseAttention, Transformer
from cosmic.workload.attended_keys import attended_share, document_length, visible_share
from cosmic.workload.block_plans import plan_of
from tests.step.tiny import MODEL, batch, point

SPARSE = SparseAttention(
    q_lora_rank=4, o_lora_rank=4, o_groups=1, window=2, block=2, picked=1, large_block=4, index_heads=1, index_dim=2
)
FEW_KEYS = Transformer(**MODEL | {"layers": 4, "pattern": "WCH*", "sparse": SPARSE})
"""Layers with a window of 2, with compressed keys of 2 tokens of which a query picks one, with all those of 4 tokens,
and with all keys."""


@pytest.mark.parametrize(
    ("kind", "before", "keys"),
    [
        # 8 queries: the first sees one key, all others two.
        ("window_layer", 0, 1 + 7 * 2),
        # And one compressed key each, of which the first two queries have half on average: 1 and 6.
        ("sparse_layer", 0, 15 + 1 + 6),
        # And compressed keys that grow from none to 2 at the end: 8 x 2 / 2.
        ("heavy_layer", 0, 15 + 8),
        ("layer", 0, 8 * 9 / 2),
        # The last 4 of the 8 queries.
        ("window_layer", 4, 4 * 2),
        ("sparse_layer", 4, 4 * 2 + 4),
        ("heavy_layer", 4, 4 * 2 + 4 * (1 + 2) / 2),
        ("layer", 4, 5 + 6 + 7 + 8),
    ],
)
def test_queries_of_few_keys_see_a_window_and_compressed_keys(kind: str, before: int, keys: float) -> None:
    share = float(attended_share(FEW_KEYS, kind, 8, before=before))
    assert share == pytest.approx(keys / ((8 - before) * 8))


@pytest.mark.parametrize(
    ("kind", "sequence", "keys"),
    [
        ("window_layer", 8, 2),
        ("sparse_layer", 8, 2 + 1),
        ("heavy_layer", 8, 2 + 2),
        ("layer", 8, 8),
        ("window_layer", 1, 1),
        ("sparse_layer", 1, 1 + 1 / 2),  # half a compressed key, of the one that it would pick
    ],
)
def test_a_decoded_token_of_few_keys_reads_all_compressed_ones_that_it_may(
    kind: str, sequence: int, keys: float
) -> None:
    assert float(attended_share(FEW_KEYS, kind, sequence, decoding=True)) == pytest.approx(keys / sequence)


def seen(**changes: Any) -> float:
    made = batch(**changes)
    return float(visible_share(made, next(each.block for each in plan_of(made) if each.block.name == "layer")))


@pytest.mark.parametrize(
    ("packed", "spread", "length"),
    [
        (2, 0.0, 2.0),
        (2, 0.5, 2 * 1.25),  # documents of 1 and 3 tokens: of 4 tokens three are in the longer one, (1 + 9) / 4
        (3, 2.0, 8.0),  # a sequence at most
    ],
)
def test_a_token_is_in_a_long_document_more_often(packed: int, spread: float, length: float) -> None:
    """A query sees what it would in a sequence as long as its document: (l + 1) / 2 keys, of 8."""
    packing: dict[str, Any] = {"sequence": 8, "packed_length": packed, "packed_spread": spread}
    assert float(document_length(batch(**packing)) or 0) == pytest.approx(length)
    assert seen(**packing) == pytest.approx((length + 1) / 2 / 8)
    assert seen(cp=2, cp_balanced=False, **packing) == pytest.approx((length + 1) / 2 / 8)  # ranks have as many
    assert document_length(batch(task="prefill", **packing)) is None
    assert seen(task="prefill", **packing) == pytest.approx(9 / 16)


def test_a_window_is_no_longer_than_a_document() -> None:
    """Documents of 4 of 8 tokens, seen through a window of 2: 1, 2, 2 and 2 keys."""
    assert seen(sequence=8, packed_length=4, model={"window": 2}) == pytest.approx(7 / 4 / 8)


def test_unpacked_sequences_have_no_documents() -> None:
    assert document_length(batch()) is None


def test_documents_are_cut_to_the_sequence_of_each_design() -> None:
    many = batch_of_changes(point(packed_length=6), [{"workload.sequence": 4}, {"workload.sequence": 8}])
    found: Any = document_length(many)
    assert found.tolist() == [4, 6]
