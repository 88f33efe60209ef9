"""What is declared beside the fields of a workload: every value that a framework has is told to it, and read back."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest

from cosmic.design.field_facts import (
    OTHER,
    Flag,
    declared,
    facts_of,
    fields_told,
    flags_of,
    lacks,
    unsupported_fields,
    written_arguments,
)
from cosmic.design.schema import slots
from cosmic.design.workload_layer import Workload
from cosmic.frameworks.launch import ENGINES, FRAMEWORKS, quote_options
from cosmic.frameworks.launch_arguments import ConfigEntries, parse_arguments, read_fields

PLAIN = Workload(
    sequence=4096,
    global_batch=64,
    dp=2,
    tp=2,
    cp=2,
    pp=2,
    ep=2,
    precision="fp8",
    recompute="full",
    lora_rank=8,
    weight_sharding="zero1",
)
"""A workload in which most fields have an effect."""


def values_of(name: str) -> list[Any]:
    """Return values that a field can have: all of a choice, two of numbers."""
    slot = slots(Workload)[name]
    kinds = (slot.hint, *get_args(slot.hint))
    if slot.choices():
        return sorted(slot.choices() or ())
    if bool in kinds:
        return [False, True]
    return [2, 4] if int in kinds else [1.5, 2.0] if float in kinds else [getattr(PLAIN, name)]


def test_flags_are_of_targets_that_there_are() -> None:
    targets = {target for about in facts_of(Workload).values() for target in about.flags}
    assert targets <= {*FRAMEWORKS, *ENGINES, "training", "serving"}


@pytest.mark.parametrize("target", [*FRAMEWORKS, *ENGINES, "training", "serving"])
def test_every_value_is_written_or_something_is_said_and_no_sentence_fails(target: str) -> None:
    for name, flag in flags_of(Workload, target):
        for value, moe in product(values_of(name), (False, True)):
            workload = replace(PLAIN, **{name: value})
            said = [*unsupported_fields(workload, target, moe=moe)]
            assert all(sentence and "{" not in sentence for sentence in said)
            known = {*flag.spelled, *flag.sets, *flag.lacks, flag.default}
            assert value in known or OTHER in flag.lacks or not flag.spelled, f"{target} does what with {name} {value}?"


@pytest.mark.parametrize("target", ["megatron", "torchtitan"])
def test_a_flag_that_says_one_field_is_read_as_it_is_written(target: str) -> None:
    known = {"precision": PLAIN.precision}
    for name, flag in flags_of(Workload, target):
        for value in values_of(name) if flag.read and flag.name else ():
            workload = replace(PLAIN, **{name: value})
            written = written_arguments(workload, target, moe=True)
            source: Any = ConfigEntries(written, "a.toml")
            if target == "megatron":
                words = [word for option in quote_options(written) for word in option.split()]
                source = parse_arguments(words, "a.sh", ())
            if value in flag.lacks or (flag.spelled and value not in flag.spelled):
                continue
            assert read_fields(source, target, known, moe=True).get(name, flag.default) == value, (name, value)


def test_an_argument_that_means_several_fields_values_has_the_first() -> None:
    told = "parallelism.fsdp_reshard_after_forward"
    assert fields_told(Workload, "torchtitan", told, "never") == {"weight_sharding": "zero2"}
    assert fields_told(Workload, "torchtitan", told, "sometimes") == {}
    assert fields_told(Workload, "torchtitan", told, None) == {"weight_sharding": "none"}


def test_a_field_that_only_a_framework_knows_needs_no_more_than_its_declaration() -> None:
    from dataclasses import dataclass  # noqa: PLC0415  a layer of this test alone

    @dataclass(frozen=True, kw_only=True)
    class Layer:
        pages: bool = declared(False, flags={"a": Flag("--pages"), "b": lacks({True: "b has no pages ({pages})"})})

    assert written_arguments(Layer(pages=True), "a", moe=False) == {"--pages": True}
    assert written_arguments(Layer(), "a", moe=False) == {}
    assert [*unsupported_fields(Layer(pages=True), "b", moe=False)] == ["b has no pages (True)"]
