"""Programs in YAML."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cosmic.base.errors import CosmicError, SpecError
from cosmic.search.sharding.automatic_sharding import shard
from cosmic.workload.sharding.tensor_sharding import Sharding
from cosmic.workload.user_programs.program_models import load_program, model_of, program_of
from cosmic.workload.user_programs.program_yaml import json_schema, read_program

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "programs").glob("*.yaml"))
TREE: dict[str, Any] = {
    "program": "small",
    "dims": {"batch": 8, "inner": 4, "outer": 16},
    "inputs": {"x": ["batch", "inner"]},
    "weights": {"w": ["inner", "outer"]},
    "operators": [{"name": "y", "einsum": ["x", "w"], "to": ["batch", "outer"]}, {"name": "z", "gelu": "y"}],
}


def with_operator(**changes: Any) -> dict[str, Any]:
    return {**TREE, "operators": [{"name": "y", "einsum": ["x", "w"], "to": ["batch", "outer"], **changes}]}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_fits_the_json_schema(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), json_schema())


def test_a_formula_and_named_dimensions_say_the_same() -> None:
    one = read_program(with_operator())
    other = {"name": "y", "einsum": ["x", "w"], "formula": "bi,io->bo"}
    assert read_program({**TREE, "operators": [other]}).graph == one.graph


def test_a_program_as_a_model_and_back_is_the_same() -> None:
    program = read_program({**TREE, "annotations": {"w": ["_", "tp"]}})
    again = program_of(model_of(program))
    assert again.graph == program.graph
    assert again.annotations == program.annotations


WRONG = {
    "an unknown operator is named": (with_operator(einsom="x"), "einsom"),
    "an unknown tensor is named": ({**TREE, "operators": [{"name": "y", "gelu": "q"}]}, "q"),
    "an unknown dimension is named": (with_operator(to=["batch", "wide"]), "wide"),
    "a key that a kind does not take is refused": (with_operator(causal=True), "takes no causal"),
    "an input that nobody reads is refused": (
        {**TREE, "inputs": {**TREE["inputs"], "q": ["batch"]}},
        "no operator reads",
    ),
    "a size must be whole": ({**TREE, "dims": {**TREE["dims"], "inner": 0}}, "dims.inner"),
    "an annotation that matches nothing is refused": ({**TREE, "annotations": {"v": ["tp"]}}, "annotations.v"),
    "an annotation has an axis for each dimension": ({**TREE, "annotations": {"w": ["tp"]}}, "inner, outer"),
    "an annotation uses an axis once": ({**TREE, "annotations": {"w": ["tp", "tp"]}}, "once only"),
    "a formula has as many letters as dimensions": (
        {**TREE, "operators": [{"name": "y", "einsum": ["x", "w"], "formula": "bsi,io->bo"}]},
        "3 letters",
    ),
}


@pytest.mark.parametrize(("tree", "words"), WRONG.values(), ids=WRONG)
def test_a_mistake_gets_one_sentence(tree: dict[str, Any], words: str) -> None:
    with pytest.raises(CosmicError) as caught:
        model_of(read_program(tree))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_axis_that_no_mesh_has_is_refused() -> None:
    with pytest.raises(CosmicError, match="mesh axis"):
        model_of(read_program({**TREE, "annotations": {"w": ["_", "xp"]}}))


def test_a_convolution_checks_what_its_windows_make() -> None:
    tree = {
        "dims": {"batch": 1, "h": 8, "v": 8, "i": 2, "o": 4, "r": 3, "c": 3, "h2": 4, "v2": 5},
        "inputs": {"x": ["batch", "h", "v", "i"]},
        "weights": {"w": ["r", "c", "i", "o"]},
        "operators": [{"name": "y", "convolution": ["x", "w"], "to": ["batch", "h2", "v2", "o"], "strides": 2}],
    }
    with pytest.raises(CosmicError, match=r"v2.*make 4"):
        read_program(tree)


def test_a_file_of_a_user_replaces_no_module(tmp_path: Path) -> None:
    file = tmp_path / "json.py"
    file.write_text("arguments = None\n")
    with pytest.raises(SpecError, match=r"json.py:double.*nothing of this name"):
        load_program(f"{file}:double")
    assert sys.modules["json"] is json
    with pytest.raises(SpecError, match="No such file"):
        load_program(f"{tmp_path / 'none.py'}:double")


def test_a_reshape_goes_by_sizes_and_takes_no_dims() -> None:
    tree = {"dims": {"batch": 8, "wide": 12, "heads": 3, "width": 4}, "inputs": {"x": ["batch", "wide"]}}
    flat = {"name": "y", "reshape": "x", "to": ["batch", "heads", "width"]}
    made = read_program({**tree, "operators": [flat]}).graph.operators[0]
    assert made.same == (("heads", "wide"), ("width", "wide"))
    with pytest.raises(SpecError, match=r"operators.0.dims = .*: reshape takes no dims"):
        read_program({**tree, "operators": [{**flat, "dims": {"heads": "wide"}}]})


@pytest.mark.parametrize("axes", ["dp+tp", "dp tp", ["dp", "tp"]])
def test_axes_are_written_as_cosmic_shard_prints_them(axes: Any) -> None:
    program = read_program({**TREE, "annotations": {"w": ["_", axes]}})
    assert program.annotations == {"w": ((), ("dp", "tp"))}
    assert shard(program, "dp=2,tp=2").sharding("w") == Sharding.of({"outer": ("dp", "tp")})
    again = shard(program, "dp=2,tp=2", annotate={"w": ["_", axes]}, free=True)
    assert again.sharding("w") == Sharding.of({"outer": ("dp", "tp")})
