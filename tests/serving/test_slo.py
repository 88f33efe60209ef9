"""Limits and rates as users write them."""

from __future__ import annotations

import pytest

from cosmic.base.errors import SpecError
from cosmic.design.serving_layer import Load, RequestClass
from cosmic.serving.serving_accuracy import published_errors
from cosmic.serving.serving_metrics import Slo, limits_of, read_rate, read_slo


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p95 <= 1 s", "p95 <= 1 s"),
        ("P99<=250ms", "p99 <= 250 ms"),
        ("mean ≤ 30 ms", "mean <= 30 ms"),
        ("median < 2 s", "p50 <= 2 s"),
        ("avg <= 2 s", "mean <= 2 s"),
        (" 1 s ", "p95 <= 1 s"),
        ("<= 1 s", "p95 <= 1 s"),
    ],
)
def test_a_limit_is_read_as_it_is_meant(text: str, said: str) -> None:
    assert str(read_slo(text, "ttft")) == said


@pytest.mark.parametrize(
    "text",
    ["", "1", "p95", "p95 <=", "p42 <= 1 s", "p95 >= 1 s", "p95 = 1 s", "-1 s", "0 s", "1 GB", "1 s\n1 s", "x" * 500],
)
def test_what_is_no_limit_is_one_sentence(text: str) -> None:
    with pytest.raises(SpecError, match=r"^--ttft = "):
        read_slo(text, "ttft")


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10", 10),
        ("10 req/s", 10),
        ("0.5 requests/s", 0.5),
        ("1,000 req/s", 1000),
        ("60/min", 1),
        ("3 rps", 3),
        ("2e3/s", 2000),
    ],
)
def test_a_rate_is_read_as_it_is_meant(text: str, rate: float) -> None:
    assert read_rate(text) == rate


@pytest.mark.parametrize("text", ["fast", "0", "-1 req/s", "1.2.3", "1,00 req/s", "10 req", "1e99", "nan", "inf req/s"])
def test_what_is_no_rate_is_one_sentence(text: str) -> None:
    with pytest.raises(SpecError, match=r"^--rate = "):
        read_rate(text)


def test_errors_to_expect_are_of_the_engine_and_of_the_pools() -> None:
    one, two, none = published_errors("vllm"), published_errors("vllm", disaggregated=True), published_errors("plain")
    assert one is not None
    assert two is not None
    assert none is None
    assert (one.kind, two.kind) == ("in one pool with vllm", "in two pools")
    for each in (one, two):
        assert 0.02 < each.tpot < each.ttft < 0.5
        assert each.runs > 100
    assert one.of("e2e") is None


def test_limits_that_are_given_come_before_those_of_requests() -> None:
    kinds = (RequestClass(name="a", isl=1, osl=1, ttft_slo_s=2.0), RequestClass(name="b", isl=1, osl=1, ttft_slo_s=1.5))
    load = Load(classes=kinds, rate=1.0)
    assert limits_of(load) == [Slo("ttft", "p95", 1.5)]
    assert limits_of(load, [Slo("ttft", "p99", 3.0)]) == [Slo("ttft", "p99", 3.0)]
    assert limits_of(Load(isl=1, osl=1, rate=1.0)) == []
