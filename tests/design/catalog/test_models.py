"""The models of the catalog: each file loads, says where it comes from, and has the published size."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cosmic.base.errors import UnknownName
from cosmic.design import catalog_entries, schema
from cosmic.design.model_layer import (
    Model,
    Recommender,
    Transformer,
    count_active_parameters,
    count_parameters,
    served_model,
)
from cosmic.search.mapping.design_completion import load_design
from tests.batches import check_all

FOLDER = catalog_entries.CATALOG_FOLDER / "models"
FILES: dict[str, dict[str, Any]] = {path.stem: yaml.safe_load(path.read_text()) for path in FOLDER.glob("*.yaml")}
KEYS = {
    "source",
    "published_parameters",
    "published_digits",
    "published_active_parameters",
    "notes",
    "aliases",
    "checkpoint",
    "workload",
    "model",
}
TOLERANCE = 0.005
ACTIVE_TOLERANCE = 0.02

every_file = check_all("name", sorted(FILES))


def model(name: str) -> Model:
    """Return the model that the file called *name* describes."""
    read: Model = schema.read_value(Transformer | Recommender, {**FILES[name]["model"], "name": name}, "model")
    return read


def significant(number: int, digits: int) -> int:
    """Return *number* rounded to *digits* digits."""
    return int(float(f"{number:.{digits - 1}e}"))


def test_the_catalog_holds_the_models_that_studies_start_from() -> None:
    wanted = {"gpt3-13b", "gpt3-175b", "cosmic-vit-base", "cosmic-vit-large", "llama3-405b", "deepseek-v3"}
    assert wanted | {"megatron-1008b", "transformer-1t", "palm-540b", "dlrm-criteo"} <= set(FILES)


@every_file
def test_a_file_has_the_keys_of_a_model_file(name: str) -> None:
    assert set(FILES[name]) <= KEYS
    assert {"source", "published_parameters", "workload", "model"} <= set(FILES[name])
    assert FILES[name]["source"].strip()


@every_file
def test_a_file_describes_a_model_and_writes_back_the_same(name: str) -> None:
    read = model(name)
    assert read.name == name
    assert schema.read_value(Transformer | Recommender, schema.write_value(read), "model") == read


@every_file
def test_the_default_workload_is_a_length_and_perhaps_a_batch(name: str) -> None:
    workload, read = FILES[name]["workload"], model(name)
    assert set(workload) <= {"sequence", "global_batch"}
    assert all(isinstance(size, int) and size >= 1 for size in workload.values())
    if isinstance(read, Transformer) and read.image:
        assert workload["sequence"] == read.image.tokens == read.positions


def main(name: str) -> int:
    """Return the parameters of the model that is published, without what predicts further tokens."""
    return count_parameters(served_model(model(name)))


@every_file
def test_the_parameters_are_as_published(name: str) -> None:
    """Within half a percent, or equal once rounded to the digits that the publication gives."""
    published, digits = FILES[name]["published_parameters"], FILES[name].get("published_digits")
    if published is None:
        assert "No count is published" in FILES[name]["notes"]
    elif digits:
        assert significant(main(name), digits) == published
    else:
        assert main(name) == pytest.approx(published, rel=TOLERANCE)


@pytest.mark.parametrize("name", sorted(name for name in FILES if "published_digits" in FILES[name]))
def test_digits_are_stated_only_where_the_publication_rounds_too_coarsely(name: str) -> None:
    assert main(name) != pytest.approx(FILES[name]["published_parameters"], rel=TOLERANCE)
    assert "rounds" in FILES[name]["notes"]


@check_all("name", sorted(name for name in FILES if "experts" in FILES[name]["model"]))
def test_the_active_parameters_are_as_published(name: str) -> None:
    """Publications count the input embedding, as `count_active_parameters` does, unless the notes say otherwise."""
    entry, read = FILES[name], model(name)
    assert isinstance(read, Transformer)
    if "published_active_parameters" not in entry:
        assert "No count is published" in entry["notes"]
        return
    without = "without the input embedding" in entry.get("notes", "")
    counted = count_active_parameters(served_model(read)) - without * read.vocab * read.hidden
    published = entry["published_active_parameters"]
    assert counted == pytest.approx(published, rel=ACTIVE_TOLERANCE) or significant(counted, 2) == published


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gpt3-125m", 125226240),
        ("gpt3-350m", 355871744),
        ("gpt3-760m", 760300032),
        ("gpt3-1.3b", 1315723264),
        ("gpt3-2.7b", 2651553280),
        ("gpt3-6.7b", 6658404352),
        ("gpt3-175b", 174604259328),
        ("megatron-1008b", 1008038758400),
    ],
)
def test_gpt_shapes_count_as_transformers_counts_a_gpt2_of_that_shape(name: str, count: int) -> None:
    assert count_parameters(model(name)) == count


def test_the_trillion_parameter_models_have_one_shape() -> None:
    assert FILES["transformer-1t"]["model"] == FILES["megatron-1008b"]["model"]


@pytest.mark.parametrize("name", ["cosmic-vit-base", "cosmic-vit-large"])
def test_cosmic_reads_images_as_256_tokens(name: str) -> None:
    assert FILES[name]["workload"] == {"sequence": 256, "global_batch": 2048}


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("GPT-3 175B", "gpt3-175b"),
        ("gpt3", "gpt3-175b"),
        ("llama-3.1-70b", "llama3-70b"),
        ("meta-llama/Llama-3.1-70B", "llama3-70b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama3-8b"),
        ("bloom", "bloom-176b"),
        ("OPT_175B", "opt-175b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("MT-NLG 530B", "megatron-529.6b"),
        ("Qwen/Qwen2-72B-Instruct", "qwen2.5-72b"),
        ("mistralai/Mistral-Large-Instruct-2407", "mistral-large-123b"),
    ],
)
def test_a_model_is_known_by_other_names(typed: str, name: str) -> None:
    assert catalog_entries.resolve_name("models", typed) == name
    assert catalog_entries.read_entry("models", typed) is catalog_entries.read_entry("models", name)
    assert load_design(f"{typed}@dgx-h100:8", plain=True).model.name == name


def test_names_that_nobody_has_are_refused_with_the_nearest() -> None:
    assert catalog_entries.resolve_name("models", "llama-3.1-71b") is None
    with pytest.raises(UnknownName, match=r"did you mean 'llama3\.1-70b'"):
        catalog_entries.read_entry("models", "llama-3.1-71b")


def test_no_two_models_have_a_name_in_common() -> None:
    names = [
        (catalog_entries._normalize_name("models", each), name)
        for name in FILES
        for each in (name, *FILES[name].get("aliases", []))
    ]
    assert len(dict(names)) == len(set(names))


def test_the_scale_of_maxtext_is_near_the_count() -> None:
    for scale in (16, 32, 64, 128, 256, 512, 1024):
        assert count_parameters(model(f"maxtext-{scale}b")) == pytest.approx(scale * 1e9, rel=0.03)
