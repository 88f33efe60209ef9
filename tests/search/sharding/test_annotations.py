"""What users fix, and how they are told what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.base.errors import CosmicError
from cosmic.search.sharding.automatic_sharding import shard
from cosmic.search.sharding.sharding_result import read_mesh
from tests.search.sharding.programs import chain, product


def test_axes_may_be_several_open_or_named_by_dimension() -> None:
    found = shard(product(), "x=2,y=4", annotate="A: [x+y, _]", objective="bytes", training=False)
    assert str(found.sharding("A")) == "i: x y"
    found = shard(product(), "x=2,y=4", annotate={"A": {"k": "y"}, "B": ["?", "x?"]}, training=False)
    assert str(found.sharding("A")) == "k: y"
    assert found.sharding("B").axes("j")[0] == "x"
    assert [each.given for each in found.annotations] == [True, True, False]


def test_a_pattern_annotates_every_tensor_that_it_matches() -> None:
    found = shard(chain(2), "tp=2", annotate={"w_up*": ["_", "tp"]})
    assert {str(found.sharding(f"w_up{place}")) for place in range(2)} == {"ffn: tp"}


def test_an_axis_may_be_cut_into_sub_axes() -> None:
    mesh = read_mesh("x=2,y=2*4")
    assert mesh.devices == 16
    found = shard(product(), mesh, annotate={"A": ["y", "x"]}, training=False)
    assert str(found.sharding("A")) == "i: y_0 y_1, k: x"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mesh": "x"}, "mesh = 'x': write AXIS=DEVICES"),
        ({"mesh": "x=2,x=2"}, "names the axis x twice"),
        ({"mesh": "x=0"}, r"mesh.x = 0: must be a whole number"),
        ({"mesh": "a=2,b=2,c=2,d=2"}, "must have 1 to 3 axes"),
        ({"mesh": "i=2"}, "i is the name of a dimension too"),
        ({"annotate": "D: [x, _]"}, "annotate = 'D': no such tensor"),
        ({"annotate": "A: [z, _]"}, "annotate.A = 'z': no such mesh axis"),
        ({"annotate": "A: [x]"}, "must have an entry for each of its dimensions: i, k"),
        ({"annotate": "A: [x, x]"}, "names an axis twice"),
        ({"annotate": "A"}, "write TENSOR:"),
        ({"annotate": {"A": {"j": "x"}}}, "annotate.A = 'j': no such dimension"),
        ({"mesh": "x=4096", "annotate": "A: [x, _]"}, "splits 1024 into 4096"),
        ({"memory": "80"}, "memory = '80': write a number and its unit"),
        ({"memory": -1.0}, "must be positive"),
        ({"objective": "speed"}, "objective = 'speed': no such objective"),
        ({"mode": "slow"}, "mode = 'slow': no such mode"),
        ({"system": "abacus"}, "no such system"),
    ],
)
def test_bad_input_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CosmicError, match=sentence):
        shard(product(), **{"mesh": "x=2", **options})


def test_an_unknown_model_is_one_sentence() -> None:
    with pytest.raises(CosmicError, match="no such model"):
        shard("gpt9", "x=2")
