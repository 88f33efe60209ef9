"""Themis: the loads of its authors' code, digit by digit."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cosmic.base.errors import SpecError
from cosmic.network.themis_chunks import MIB, ThemisInput, ThemisKind, themis_chunks, themis_loads, themis_orders

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "themis_loads.csv"
REFERENCE = ROOT.parent / "shared" / "reference" / "collectives" / "themis.csv"
KINDS: dict[str, ThemisKind] = {"AR": "all_reduce", "RS": "reduce_scatter", "AG": "all_gather"}
Row = dict[str, str]


def rows(path: Path) -> list[Row]:
    with path.open() as file:
        return list(csv.DictReader(file))


def plan(row: Row, *, as_in_astra_sim: bool = True) -> ThemisInput:
    return ThemisInput(
        npus=tuple(int(each) for each in row["sizes"].split("|")),
        bandwidths=tuple(float(each) for each in row["bw"].split("|")),
        size_bytes=int(row["size_bytes"]),
        splits=int(row["splits"]),
        flexible=row["policy"] == "offlineGreedyFlex",
        as_in_astra_sim=as_in_astra_sim,
    )


def agrees(row: Row) -> bool:
    found = themis_chunks(KINDS[row["coll"]], plan(row))
    shown = "|".join(f"{load:.6g}" for load in found[-1].loads)
    whole = sum(chunk.size_bytes for chunk in found) == int(row["size_bytes"])
    return whole and (shown, str(len(found))) == (row["final_load"], row["n_chunks"])


@pytest.mark.parametrize("row", rows(GOLDEN), ids=lambda row: "-".join(list(row.values())[:6]))
def test_loads_are_those_of_the_authors_code(row: Row) -> None:
    assert agrees(row)


@pytest.mark.skipif(not REFERENCE.exists(), reason="the shared reference numbers are not here")
def test_every_known_load_is_exact() -> None:
    known = rows(REFERENCE)
    assert len(known) == 119
    assert [row for row in known if not agrees(row)] == []


def test_an_all_gather_is_a_reduce_scatter_backwards() -> None:
    gather = ThemisInput(npus=(16, 8, 8), bandwidths=(1600, 800, 400), size_bytes=MIB, splits=16)
    scatter = ThemisInput(npus=(16, 8, 8), bandwidths=(1600, 800, 400), size_bytes=MIB * 1024, splits=16)

    assert themis_loads("all_gather", gather) == themis_loads("reduce_scatter", scatter)
    assert [order[::-1] for order in themis_orders("all_gather", gather)] == list(
        themis_orders("reduce_scatter", scatter)
    )


def test_the_mirrored_all_gather_is_balanced_as_well_as_the_simulator_s_or_better() -> None:
    for row in rows(GOLDEN):
        if row["coll"] == "AG" and row["policy"] == "offlineGreedy" and int(row["splits"]) == 64:
            ours = max(themis_loads("all_gather", plan(row, as_in_astra_sim=False)))
            assert ours <= max(themis_loads("all_gather", plan(row))) * 1.01


def test_loads_never_fall_below_the_ideal() -> None:
    """All dimensions always busy: (P - 1) / P of the buffer over the sum of bandwidths."""
    even = ThemisInput(npus=(16, 8, 8), bandwidths=(800, 800, 800), size_bytes=1024 * MIB, splits=64)
    ideal = 1024 * (1023 / 1024) / 3

    assert ideal <= max(themis_loads("reduce_scatter", even)) < 1.03 * ideal


def test_one_chunk_takes_the_default_order() -> None:
    (order,) = themis_orders("all_reduce", ThemisInput(npus=(4, 8), bandwidths=(1, 9), size_bytes=2**20, splits=1))
    assert order == (0, 1)


@pytest.mark.parametrize(
    ("npus", "splits", "message"),
    [((1, 1), 1, "some dimension"), ((2, 2, 2), 1, "one for each"), ((2, 2), 0, "at least one byte")],
)
def test_a_wrong_plan_is_refused(npus: tuple[int, ...], splits: int, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ThemisInput(npus=npus, bandwidths=(1, 1), size_bytes=1024, splits=splits)


def test_chunks_by_hand() -> None:
    """10 bytes in 3 chunks of 3, and what is left; 3 bytes leave 1 of 3 to the second dimension.

    The loads of dimension 0 are 2/3 of each chunk, those of dimension 1 half of what is left, at its speed of 2.
    """
    odd = ThemisInput(npus=(3, 2), bandwidths=(1, 2), size_bytes=10, splits=3)
    found = themis_chunks("reduce_scatter", odd)
    assert [chunk.size_bytes for chunk in found] == [3, 3, 3, 1]
    assert found[0].order == (0, 1)
    assert [load * MIB for load in found[0].loads] == pytest.approx([3 * 2 / 3, 1 * 1 / 2 / 2])
    single = ThemisInput(npus=(2,), bandwidths=(1,), size_bytes=4, splits=4)
    assert [load * MIB for load in themis_loads("reduce_scatter", single)] == [2.0]


def test_shards_of_an_all_gather_add_up() -> None:
    shards = ThemisInput(npus=(4, 2), bandwidths=(2, 1), size_bytes=4 * MIB, splits=4)
    assert [chunk.size_bytes for chunk in themis_chunks("all_gather", shards)] == [MIB] * 4
