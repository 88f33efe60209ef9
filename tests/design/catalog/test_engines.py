"""Serving engines: read from the catalog and from a user's folders, and checked as input is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries, schema
from cosmic.design.serving_engine import Engine, load_engine


@pytest.mark.parametrize("name", catalog_entries.entry_names("engines"))
def test_an_engine_is_written_as_it_was_read(name: str) -> None:
    assert schema.write_value(load_engine(name), brief=True) == catalog_entries.read_entry("engines", name)["engine"]


def test_an_engine_of_a_user_stands_beside_the_catalog_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "mine.yaml").write_text("{source: ours, engine: {layer_gap: 20 us, prefill_first: true}}")
    monkeypatch.setenv("COSMIC_PATH", str(tmp_path))
    assert load_engine("mine") == Engine(layer_gap_s=2e-5, prefill_first=True)
    assert "vllm" in catalog_entries.entry_names("engines")


def test_an_engine_that_is_nowhere_is_refused_with_a_near_miss() -> None:
    with pytest.raises(SpecError, match=r"^engine = 'vlm': no such engine; did you mean 'vllm'\?$"):
        load_engine("vlm")


@pytest.mark.parametrize(
    ("tree", "rule"),
    [
        ({"layer_gap": "-1 us"}, "engine.layer_gap = -1e-06: must not be negative"),
        ({"decode_factor": 0}, "engine.decode_factor = 0.0: must be positive"),
        ({"memory_fraction": 1.5}, "engine.memory_fraction = 1.5: must be at most 1"),
        ({"all_reduce": "-1 us"}, "engine.all_reduce = -1e-06: must not be negative"),
        ({"prefil_first": True}, "engine.prefil_first = True: no such key; did you mean 'prefill_first'?"),
    ],
)
def test_what_no_engine_does_is_refused(tree: dict[str, object], rule: str) -> None:
    with pytest.raises(SpecError) as caught:
        schema.read_value(Engine, tree, "engine")
    assert str(caught.value) == rule


def test_a_field_may_be_an_array_over_deployments() -> None:
    assert Engine(taken_steps=np.array([0.0, 2.0])).decode_factor == 1  # type: ignore[arg-type]  # as a batch has it
    with pytest.raises(SpecError, match="must not be negative"):
        Engine(taken_steps=np.array([0.0, -2.0]))  # type: ignore[arg-type]
