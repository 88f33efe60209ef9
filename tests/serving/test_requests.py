"""Requests of loads and of trace files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design.serving_layer import Load, RequestClass
from cosmic.serving.event_loop import PrefixCache
from cosmic.serving.serving_requests import MOST_REQUESTS, check_request_lengths, draw_requests, read_request_trace

TWO = Load(
    classes=(
        RequestClass(name="chat", isl=1000, osl=300, isl_cv=0.5, osl_cv=1.0),
        RequestClass(name="code", share=3, isl=100, osl=30, prefix_hit=0.5),
    ),
    rate=10,
)


def test_lengths_have_the_mean_and_spread_of_their_class() -> None:
    found = draw_requests(TWO, 50_000, seed=3)
    chat = found.kind == 0
    assert chat.mean() == pytest.approx(0.25, abs=0.01)
    assert found.input_tokens[chat].mean() == pytest.approx(1000, rel=0.02)
    assert found.output_tokens[chat].std() == pytest.approx(300, rel=0.1)
    assert set(found.input_tokens[~chat]) == {100}
    assert set(found.cached_tokens[~chat]) == {50}
    assert found.output_tokens.min() >= 1


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 3.0])
def test_arrivals_have_the_rate_and_spread_of_the_load(cv: float) -> None:
    arrival = draw_requests(Load(isl=1, osl=1, rate=20, arrival_cv=cv), 60_000).arrival_s
    between = np.diff(arrival)
    assert between.mean() == pytest.approx(1 / 20, rel=0.05)
    assert between.std() * 20 == pytest.approx(cv, rel=0.05, abs=1e-9)


def test_the_seed_decides() -> None:
    first, same, other = (draw_requests(TWO, 100, seed=seed) for seed in (1, 1, 2))
    assert first.input_tokens.tolist() == same.input_tokens.tolist()
    assert first.arrival_s.tolist() == same.arrival_s.tolist()
    assert first.arrival_s.tolist() != other.arrival_s.tolist()


def test_haste_is_even_over_any_part() -> None:
    haste = draw_requests(TWO, 500, seed=5).haste
    assert haste is not None
    assert haste.min() >= 0
    assert haste.max() < 2
    for part in (haste[:50], haste[123:173], haste):
        assert part.mean() == pytest.approx(1, abs=0.05)


def test_a_number_follows_from_rounds_or_duration() -> None:
    assert draw_requests(Load(isl=1, osl=1, concurrency=7, rounds=3)).count == 21
    timed = draw_requests(TWO, duration_s=100)
    assert timed.arrival_s[-1] <= 100
    assert timed.count == pytest.approx(1000, rel=0.15)


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"count": 0}, "requests = 0: must be from 1"),
        ({"count": MOST_REQUESTS + 1}, "must be from 1 to 2,000,000"),
        ({"duration_s": float("nan")}, "duration = nan: must be positive"),
        ({"duration_s": 1e12}, "must be from 1 to 2,000,000"),
        ({"count": 1, "seed": -1}, "seed = -1: must be a whole number"),
    ],
)
def test_impossible_numbers_are_refused(asked: dict[str, float], rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        draw_requests(TWO, **asked)  # type: ignore[arg-type]


def test_a_closed_loop_has_no_duration() -> None:
    with pytest.raises(SpecError, match="a closed loop has a number of requests"):
        draw_requests(Load(isl=1, osl=1, concurrency=7), duration_s=10)


# ---- traces

MOONCAKE = [
    {"timestamp": 1000, "input_length": 1024, "output_length": 5, "hash_ids": [0, 1]},
    {"timestamp": 1500, "input_length": 1300, "output_length": 6, "hash_ids": [0, 1, 2]},
]
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,GPT-4,0,0,0,Conversation log
50,GPT-4,10,2,12,API log
"""
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
)


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_mooncake_traces_have_blocks(tmp_path: Path) -> None:
    found = read_request_trace(written(tmp_path, "\n".join(map(json.dumps, MOONCAKE)), "trace.jsonl"))
    assert found.arrival_s.tolist() == [0.0, 0.5]
    assert found.input_tokens.tolist() == [1024, 1300]
    assert found.blocks == ((0, 1), (0, 1, 2))
    assert not found.steady


def test_burst_traces_leave_failed_requests_out(tmp_path: Path) -> None:
    found = read_request_trace(written(tmp_path, BURST), scale=0.5)
    assert found.arrival_s.tolist() == [0.0, 22.5]
    assert found.output_tokens.tolist() == [18, 2]
    assert found.skipped == 1
    assert found.at_rate(4).arrival_s.tolist() == [0.0, 0.25]


def test_azure_traces_have_a_clock(tmp_path: Path) -> None:
    found = read_request_trace(written(tmp_path, AZURE))
    assert found.arrival_s.tolist() == pytest.approx([0.0, 4.314579], abs=1e-5)
    assert found.input_tokens.tolist() == [374, 396]
    assert read_request_trace(written(tmp_path, AZURE), most_requests=1).count == 1


@pytest.mark.parametrize(
    ("text", "place", "rule"),
    [
        ("a,b\n1,2\n", 1, "has not the columns of a trace"),
        ("", 1, "has not the columns of a trace"),
        ("arrival_s,input_tokens,output_tokens,output_tokens\n", 1, "is there twice"),
        ("arrival_s,input_tokens,output_tokens\n0,1,1\nsoon,1,1\n", 3, "arrival_s must be seconds"),
        ("arrival_s,input_tokens,output_tokens\nnan,1,1\n", 2, "arrival_s must be seconds"),
        ("arrival_s,input_tokens,output_tokens\n0,1.5,1\n", 2, "input_tokens must be a whole number"),
        ("arrival_s,input_tokens,output_tokens\n0,-1,1\n", 2, "input_tokens must be a whole number"),
        ("arrival_s,input_tokens,output_tokens\n0,1,1e99\n", 2, "output_tokens must be a whole number"),
        ("arrival_s,input_tokens,output_tokens\n0,1\n", 2, "has not the columns"),
        ('{"timestamp": 0}\n', 1, "has not the columns"),
        ('{"timestamp": 0,\n', 1, "must be one JSON object"),
        ('{"timestamp": true, "input_length": 1, "output_length": 1}', 1, "timestamp must be milliseconds"),
        ('{"timestamp": 0, "input_length": [1], "output_length": 1}', 1, "input_length must be a whole number"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0.5]}', 1, "hash_ids must be a list"),
        (AZURE + "yesterday,1,1\n", 4, "timestamp must be a date and a time"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, text: str, place: int, rule: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SpecError, match=rule) as error:
        read_request_trace(path)
    assert error.value.where == f"{path}:{place}"


def test_a_trace_without_requests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no row has a request"):
        read_request_trace(written(tmp_path, "arrival_s,input_tokens,output_tokens\n0,0,1\n"))
    with pytest.raises(SpecError, match="cannot be read"):
        read_request_trace(tmp_path / "missing.csv")


def test_a_cache_keeps_what_was_used_last() -> None:
    cache = PrefixCache(3)
    assert [cache.use((1, 2, 3)), cache.use((1, 2, 3)), cache.use((4,)), cache.use((1, 2, 3))] == [0, 3, 0, 2]


def test_a_request_longer_than_the_context_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n5,10,10\n0,90,20\n")
    found = read_request_trace(path)
    check_request_lengths(path, found, None)
    check_request_lengths(path, found, 110)
    with pytest.raises(SpecError, match=r"trace.csv:3 = '110 tokens': .* context of 109 tokens"):
        check_request_lengths(path, found, 109)
