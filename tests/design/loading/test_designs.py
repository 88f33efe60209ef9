"""From what a user writes to a complete design: names, files, changes, and who has the last word."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries, schema
from cosmic.design.loading import design_tree, dump_design, parse_overrides
from cosmic.design.model_layer import Recommender, Transformer
from cosmic.design.plain_data import merge_trees, unflatten_paths
from cosmic.search.mapping.design_completion import load_design
from tests.batches import check_all

DATA = Path(__file__).parents[2] / "design" / "catalog" / "data"
DIM = {"topology": "ring", "npus": 4, "bandwidth": "50 GB/s", "latency": "500 ns"}
MODEL = {"layers": 2, "hidden": 8, "heads": 2, "ffn": 32, "vocab": 100}
INLINE: dict[str, Any] = {
    "model": MODEL,
    "workload": {"sequence": 16, "global_batch": 8},
    "network": {"dims": [DIM, {**DIM, "topology": "switch", "npus": 2}]},
    "compute": {"bf16": "10 TFLOP/s"},
    "memory": {"capacity": "16 GiB", "bandwidth": "1 TB/s"},
}


def refusal(source: Any, overrides: dict[str, Any] | None = None) -> str:
    """Return what is said of a design that cannot be loaded."""
    with pytest.raises(SpecError) as caught:
        load_design(source, overrides)
    return str(caught.value)


def named(**layers: Any) -> dict[str, Any]:
    """Return a design of the catalog, changed in some layers."""
    return {"model": "gpt3-13b", "system": "dgx-h100:16", **layers}


# ---- sources


def test_a_design_is_named_by_model_and_system() -> None:
    point = load_design("gpt3-175b@cosmic-1024")
    assert isinstance(point.model, Transformer)
    assert (point.model.name, point.model.layers, point.model.hidden) == ("gpt3-175b", 96, 12288)
    assert [dim.npus for dim in point.network.dims] == [4, 8, 4, 8]
    assert point.network.dims[0].bandwidth_bytes_per_s == 375e9
    assert point.collective.algorithms == ("ring", "direct", "ring", "halving_doubling")
    assert (point.compute.accelerator, point.compute.bf16_flop_per_s) == ("cosmic-10tf", 10e12)
    assert point.memory.capacity_bytes == 24e9


def test_a_name_a_mapping_and_a_file_of_the_same_give_the_same(tmp_path: Path) -> None:
    (tmp_path / "design.yaml").write_text("model: gpt3-13b\nsystem: dgx-h100:16\n")
    point = load_design("gpt3-13b@dgx-h100:16")
    assert load_design(named()) == point
    assert load_design(tmp_path / "design.yaml") == point
    assert load_design(str(tmp_path / "design.yaml")) == point


def test_a_design_can_be_written_out_in_full() -> None:
    point = load_design(INLINE)
    assert point.network.npus == 8
    assert point.collective.algorithms == ("ring", "halving_doubling")
    assert (point.compute.accelerator, point.compute.bf16_flop_per_s) == ("", 10e12)
    assert (point.workload.dp, point.workload.tp, point.workload.pp) == (8, 1, 1)


def test_the_topology_chooses_the_algorithm_that_is_not_given() -> None:
    dims = [{**DIM, "topology": name} for name in ("ring", "fully_connected", "switch")]
    assert load_design(named(network={"dims": dims})).collective.algorithms == ("ring", "direct", "halving_doubling")


DUMPED = ["gpt3-175b@cosmic-1024", "dlrm-criteo@dgx-h100:8", "vit-base@tpu-v4:64"]


@pytest.mark.long
@check_all("name", [*DUMPED, *(f"llama3-8b@{name}" for name in catalog_entries.entry_names("systems"))], tests=2)
def test_a_dumped_design_loads_as_the_same(name: str, tmp_path: Path) -> None:
    point = load_design(name)
    (tmp_path / "design.yaml").write_text(dump_design(point))
    assert load_design(tmp_path / "design.yaml") == point


def test_what_a_design_does_not_know_of_its_accelerator_stays_unknown() -> None:
    point = schema.assign_fields(load_design("gpt3-13b@dgx-h100:16"), {"compute.fp8": None, "compute.price": None})
    text = dump_design(point)
    assert "fp8: null" in text
    assert "fp4" not in text
    assert load_design({**named(), "compute": {"accelerator": "h100-sxm-80gb", "fp8": None, "price": None}}) == point


# ---- models


def test_a_model_of_the_catalog_can_be_changed() -> None:
    point = load_design(named(model={"base": "gpt3-13b", "layers": 10, "name": "short"}))
    assert isinstance(point.model, Transformer)
    assert (point.model.name, point.model.layers, point.model.hidden) == ("short", 10, 5140)


def test_a_nested_part_of_a_model_can_be_changed() -> None:
    point = load_design({"model": {"base": "mixtral-8x7b", "experts": {"active": 4}}, "system": "dgx-h100:16"})
    assert isinstance(point.model, Transformer)
    assert point.model.experts is not None
    assert (point.model.experts.count, point.model.experts.active) == (8, 4)


def test_an_inline_model_is_a_decoder_unless_it_says_otherwise() -> None:
    assert load_design(INLINE).model.family == "decoder"
    encoder = load_design({**INLINE, "model": {**MODEL, "family": "encoder"}})
    assert encoder.model.family == "encoder"


def test_models_of_other_families_load() -> None:
    assert isinstance(load_design("dlrm-criteo@dgx-h100:8").model, Recommender)
    assert load_design("vit-base@dgx-h100:8").workload.sequence == 197


def test_a_model_file_is_found_relative_to_the_design_file(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    entry = {"workload": {"sequence": 77}, "model": {"family": "decoder", **MODEL}}
    (tmp_path / "models" / "mine.yaml").write_text(json.dumps(entry))
    (tmp_path / "design.yaml").write_text("model: models/mine.yaml\nsystem: dgx-h100:8\n")
    point = load_design(tmp_path / "design.yaml")
    assert (point.model.name, point.workload.sequence) == ("mine", 77)


def test_a_hugging_face_config_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    shutil.copy(DATA / "gpt2.json", tmp_path / "tiny" / "config.json")
    (tmp_path / "by_file.yaml").write_text("model: tiny/config.json\nsystem: dgx-h100:8\n")
    (tmp_path / "by_folder.yaml").write_text("model: {base: tiny, layers: 3}\nsystem: dgx-h100:8\n")
    by_file, by_folder = load_design(tmp_path / "by_file.yaml"), load_design(tmp_path / "by_folder.yaml")
    assert isinstance(by_file.model, Transformer)
    assert isinstance(by_folder.model, Transformer)
    assert (by_file.model.name, by_file.model.layers, by_file.model.hidden) == ("tiny", 12, 768)
    assert (by_folder.model.name, by_folder.model.layers) == ("tiny", 3)
    assert by_file.workload.sequence == 1024
    assert load_design(f"{tmp_path / 'tiny'}@dgx-h100:8") == by_file


# ---- precedence


def test_given_beats_system_beats_model_beats_rule() -> None:
    assert load_design("gpt3-175b@dgx-h100").workload.global_batch == 1536  # the model's
    assert load_design("gpt3-175b@cosmic-1024").workload.global_batch == 2048  # the system's
    assert load_design("gpt3-175b@cosmic-1024", {"workload.global_batch": 512}).workload.global_batch == 512
    assert load_design("gpt-oss-20b@dgx-h100").workload.global_batch == 2**22 // 4096  # the rule's


def test_a_batch_that_is_not_given_is_rounded_up_to_equal_parts() -> None:
    assert load_design("bert-base@dgx-h100", {"workload.micro_batch": 3}).workload.global_batch == 3 * 64


def test_data_parallelism_takes_what_the_other_axes_leave() -> None:
    assert load_design("gpt3-175b@cosmic-1024", {"workload.tp": 8}).workload.dp == 4
    assert load_design("gpt3-175b@cosmic-1024", {"workload.tp": 8, "workload.dp": 2}).workload.dp == 2


def test_a_layer_is_changed_key_by_key() -> None:
    point = load_design(named(memory={"capacity": "40 GiB"}, compute={"power": "500 W"}))
    assert (point.memory.capacity_bytes, point.memory.bandwidth_bytes_per_s) == (40 * 2**30, 3.35e12)
    assert (point.compute.power_w, point.compute.bf16_flop_per_s) == (500.0, 989.4e12)


def test_another_accelerator_brings_its_own_memory() -> None:
    for compute in ("a100-sxm-40gb", {"accelerator": "a100-sxm-40gb"}):
        point = load_design(named(compute=compute))
        assert (point.compute.bf16_flop_per_s, point.memory.capacity_bytes) == (312e12, 40 * 2**30)


def test_an_accelerator_file_is_found_relative_to_the_design_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("compute: {bf16: 5 TFLOP/s}\nmemory: {capacity: 1 GiB, bandwidth: 1 GB/s}\n")
    (tmp_path / "design.yaml").write_text("model: gpt3-125m\nsystem: dgx-h100:8\ncompute: mine.yaml\n")
    point = load_design(tmp_path / "design.yaml")
    assert (point.compute.accelerator, point.compute.bf16_flop_per_s) == ("mine", 5e12)
    assert point.memory.capacity_bytes == 2**30


# ---- overrides


def test_overrides_reach_into_lists_by_place() -> None:
    changes = {"network.dims.1.bandwidth": "100 GB/s", "collective.algorithms.0": "ring"}
    point = load_design("gpt3-175b@dgx-h100:16", changes)
    assert [dim.bandwidth_bytes_per_s for dim in point.network.dims] == [450e9, 100e9]
    assert point.collective.algorithms == ("ring", "auto")


def test_overrides_reach_into_models_and_accelerators_given_by_name() -> None:
    point = load_design("gpt3-13b@dgx-h100:8", {"model.layers": 4, "compute.bf16": "1 PFLOP/s"})
    assert isinstance(point.model, Transformer)
    assert (point.model.layers, point.compute.bf16_flop_per_s) == (4, 1e15)
    assert load_design(named(compute="gaudi2"), {"compute.power": "1 W"}).compute.power_w == 1.0


def test_overrides_can_replace_a_whole_layer_s_name() -> None:
    changes = {"model": "gpt3-175b", "system": "dgx-a100:8", "compute.accelerator": "gaudi3"}
    point = load_design("gpt3-13b@dgx-h100:8", changes)
    assert (point.model.name, point.compute.accelerator) == ("gpt3-175b", "gaudi3")


def test_settings_of_the_command_line_are_paths_and_yaml() -> None:
    texts = ["workload.tp=8", "memory.capacity=80 GiB", "workload.placement=[tp, pp, cp, dp]", "a=b=c", "x= "]
    assert parse_overrides(texts) == {
        "workload.tp": 8,
        "memory.capacity": "80 GiB",
        "workload.placement": ["tp", "pp", "cp", "dp"],
        "a": "b=c",
        "x": None,
    }


@pytest.mark.parametrize("text", ["workload.tp", "=8", ""])
def test_a_setting_without_path_or_value_is_refused(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_overrides([text])
    assert str(caught.value) == f"--set = '{text}': write PATH=VALUE, such as tp=8"


def test_paths_become_a_tree_and_may_not_contradict_each_other() -> None:
    assert unflatten_paths({"a.b": 1, "a.c.d": 2, "e": 3}) == {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    for paths in ({"a": 1, "a.b": 2}, {"a.b": 2, "a": 1}):
        with pytest.raises(SpecError):
            unflatten_paths(paths)


def test_merging_changes_neither_side() -> None:
    below, above = {"a": [{"x": 1}], "b": 1}, {"a": {"0": {"x": 2}}, "c": 3}
    assert merge_trees(below, above) == {"a": [{"x": 2}], "b": 1, "c": 3}
    assert (below, above) == ({"a": [{"x": 1}], "b": 1}, {"a": {"0": {"x": 2}}, "c": 3})


# ---- errors


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nope", "design = 'nope': is neither MODEL@SYSTEM nor the path of a YAML file"),
        ("nope.yaml", "file = 'nope.yaml': cannot be read: No such file or directory"),
        ("gpt3-17b@dgx-h100", "model = 'gpt3-17b': no such model; did you mean 'gpt3-175b'?"),
        ("gpt3-175b@dgx-h10", "system = 'dgx-h10': no such system; did you mean 'dgx-h100'?"),
        ("nope.json@dgx-h100", "file = 'nope.json': cannot be read: No such file or directory"),
        ("x" * 5000 + "@dgx-h100", "model = 'xxxx"),
        ({}, "model = (missing): must be a mapping of keys to values"),
        (
            {"model": "gpt3-13b"},
            "compute.accelerator = (missing): name an accelerator, or give its rates: at least bf16",
        ),
        (
            {"model": "gpt3-13b", "compute": "gaudi2"},
            "network = (missing): give a network or a system",
        ),
        (named(sytem=1), "sytem = 1: no such key; did you mean 'system'?"),
        (named(system=5), "system = 5: must be text"),
        (named(model=5), "model = 5: must be a mapping of keys to values"),
        (named(model={"base": 5}), "model = 5: must be text"),
        (named(model={"base": "gpt3-13b", "hiden": 5}), "model.hiden = 5: no such key; did you mean 'hidden'?"),
        (named(workload=[1]), "workload = [1]: must be a mapping of keys to values"),
        (named(workload={"tpp": 1}), "workload.tpp = 1: no such key; did you mean 'tp'?"),
        (named(workload={"tp": 0}), "workload.tp = 0: must be at least 1"),
        (named(workload={"tp": "8"}), "workload.tp = '8': must be a whole number"),
        (named(workload={"tp": 3}), "workload.tp = 3: does not divide 16 accelerators"),
        (named(workload={"tp": 32}), "workload.tp = 32: there are only 16 accelerators"),
        (named(workload={"tp": 2, "pp": 3}), "workload = 'tp 2 × pp 3 = 6': does not divide 16 accelerators"),
        (named(compute=5), "compute = 5: must be an accelerator's name or a mapping of keys to values"),
        (
            named(compute="h100"),
            "compute.accelerator = 'h100': no such accelerator; did you mean 'h100-pcie-80gb' or 'h100-sxm-80gb'?",
        ),
        (named(compute={"bf16": "5 GB/s"}), "compute.bf16 = '5 GB/s': is byte/s; wanted flop/s, such as '312 TFLOP/s'"),
        (named(memory=5), "memory = 5: must be a mapping of keys to values"),
        (named(memory={"capacity": 80}), "memory.capacity = 80: write a number with its unit, such as '80 GiB'"),
        (named(network={"dims": "ring"}), "network.dims = 'ring': must be a list"),
        (named(network={"dims": {"5": {}}}), "network.dims.5 = {}: the list has 2 places, which count from 0"),
        (named(network={"dims": [{**DIM, "npus": 1}]}), "network.dims.0.npus = 1: a dimension joins at least 2 NPUs"),
        (
            named(collective={"algorithms": ["ring"]}),
            "collective.algorithms = ['ring']: the network has 2 dimensions, and each takes one algorithm",
        ),
        (
            named(collective={"algorithms": ["ring", "rign"]}),
            "collective.algorithms.1 = 'rign': no such algorithm; did you mean 'ring'?",
        ),
        ({**INLINE, "memory": {}}, "memory.capacity = (missing): is required"),
        ({**INLINE, "workload": {}}, "workload.sequence = (missing): is required, as the model gives none"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_what_is_wrong_is_said_in_one_sentence(source: Any, message: str) -> None:
    assert refusal(source).startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network.dims.9.npus": 4}, "network.dims.9 = {'npus': 4}: the list has 2 places, which count from 0"),
        ({"network.dims.x.npus": 4}, "network.dims.x = {'npus': 4}: the list has 2 places, which count from 0"),
        ({"network.dims.1.npus": 1}, "network.dims.1.npus = 1: a dimension joins at least 2 NPUs"),
        ({"workload.tp.x": 4}, "workload.tp = {'x': 4}: must be a whole number"),
        ({"workloads.tp": 4}, "workloads = {'tp': 4}: no such key; did you mean 'workload'?"),
    ],
    ids=str,
)
def test_a_wrong_override_is_said_in_one_sentence(changes: dict[str, Any], message: str) -> None:
    assert refusal("gpt3-13b@dgx-h100:16", changes) == message


def test_a_model_file_without_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("layers: 3\n")
    said = refusal({"model": str(tmp_path / "mine.yaml"), "system": "dgx-h100:8"})
    assert said == "mine.yaml = {'layers': 3}: a model file needs a mapping 'model'"


def test_a_wrong_workload_in_a_model_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"workload: {{sequence: long}}\nmodel: {json.dumps(MODEL)}\n")
    said = refusal({"model": {"base": str(tmp_path / "mine.yaml"), "family": "decoder"}, "system": "dgx-h100:8"})
    assert said == "model workload.sequence = 'long': must be a whole number"


@pytest.mark.parametrize(
    "path",
    [
        "model.name",
        "compute.accelerator",
        "memory.tiers.0.name",
        "workload.strategies.0",
        "workload.schedule",
        "network.dims.0.topology",
        "collective.algorithms.0",
    ],
)
def test_no_text_of_a_design_file_leaves_its_line(path: str, tmp_path: Path) -> None:
    tiers = [{"name": "host", "capacity": "1 TB", "bandwidth": "10 GB/s"}]
    point = load_design("gpt3-13b@dgx-h100:8", {"memory.tiers": tiers, "workload.strategies": ["ulysses"]})
    tree = merge_trees(design_tree(point), unflatten_paths({path: "a\ntouch b"}))
    (tmp_path / "d.yaml").write_text(yaml.safe_dump(tree))
    with pytest.raises(SpecError, match=rf"^{path} = 'a\\ntouch b': must be printable text on one line, and"):
        load_design(tmp_path / "d.yaml")


def test_the_folder_of_a_model_names_it_in_printable_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a\nb").mkdir()
    shutil.copy(DATA / "gpt2.json", tmp_path / "a\nb" / "config.json")
    monkeypatch.chdir(tmp_path / "a\nb")
    with pytest.raises(SpecError, match=r"^model.name = 'a\\nb': must be printable text on one line"):
        load_design({"model": "config.json", "system": "dgx-h100:8"})
