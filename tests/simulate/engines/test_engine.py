"""Engines that others bring: what is registered, and what is made of answers."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from cosmic.accuracy.suites import EngineSuite
from cosmic.base.errors import SpecError, UnknownName
from cosmic.design.design_point import EngineFields
from cosmic.simulate.metrics import BETTER, Infeasible
from cosmic.simulate.user_engines import direction, engine, engine_of, engines, identity_of, metrics_of
from tests.simulate.engines.conftest import METRICS, Tiles


@pytest.mark.usefixtures("brought")
class TestConformance(EngineSuite):
    """The engine of these tests."""

    names = ("tiles",)
    points = (Tiles(), Tiles(tile=512))


def answer(returned: Any) -> tuple[str, ...]:
    engine("one", version="1", metrics={"latency_s": "less"})(lambda _: returned)
    return engines["one"].ask(None).reasons


def test_metrics_are_numbers_by_name(brought: type[Tiles]) -> None:
    found = engines["tiles"].ask(brought(tile=32, buffers=4))
    assert found.metrics["latency_s"] == 1 / 1024 + 8e-6
    assert found.reasons == ()


def test_reasons_have_no_commas_which_separate_them(brought: type[Tiles]) -> None:
    assert engines["tiles"].ask(brought(tile=512)).reasons == ("two tiles; both whole; do not fit",)


def test_an_exception_is_a_failure_with_its_words(brought: type[Tiles]) -> None:
    found = engines["tiles"].ask(brought(tile=16, order="column"))
    assert found.failed
    assert found.reasons == ("engine failed: ValueError: no columns; sorry",)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 1e151, 1e-151, "3", True, [1.0]])
def test_what_is_no_metric_is_a_failure(value: Any) -> None:
    (said,) = answer({"latency_s": value})
    assert said.startswith("engine failed: returned latency_s = ")


def test_a_metric_may_be_zero_or_unknown() -> None:
    assert answer({"latency_s": 0}) == ()
    engine("two", version="1", metrics={"latency_s": "less"})(lambda _: {"latency_s": None})
    assert engines["two"].ask(None).metrics == {}


def test_other_answers_are_failures_in_a_sentence() -> None:
    assert answer({"speed": 1.0}) == ("engine failed: returned 'speed'; which is none of its metrics: latency_s",)


def test_what_is_no_mapping_is_a_failure() -> None:
    assert answer(3.0) == ("engine failed: returned float; not metrics by name or Infeasible",)


def test_infeasible_without_words_cannot_run() -> None:
    assert answer(Infeasible(())) == ("cannot run",)


def test_ctrl_c_is_heard() -> None:
    def interrupted(_: Any) -> dict[str, float]:
        raise KeyboardInterrupt

    engine("one", version="1", metrics=METRICS)(interrupted)
    with pytest.raises(KeyboardInterrupt):
        engines["one"].ask(None)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"name": "event"}, "is the name of an engine of COSMIC"),
        ({"metrics": {}}, "give 1 to 100 metrics"),
        ({"metrics": {"a b": "less"}}, "a metric is a word"),
        ({"metrics": {"a": "low"}}, "less or more"),
        ({"metrics": {"mfu": "less"}}, "COSMIC has a metric of that name, of which more is better"),
        ({"metrics": {"latency_s": "more"}}, "tiles has a metric of that name"),
        ({"metrics": {"tile": "less"}, "fields": Tiles}, "is one of its metrics too"),
        ({"fields": dict}, "must be a frozen dataclass"),
        ({"version": "1\n2"}, "printable"),
    ],
)
@pytest.mark.usefixtures("brought")
def test_what_cannot_be_registered_is_said_in_a_sentence(given: dict[str, Any], rule: str) -> None:
    options: dict[str, Any] = {"name": "one", "version": "1", "metrics": {"a": "less"}, **given}
    with pytest.raises(SpecError, match=rule):
        engine(options.pop("name"), **options)(lambda _: {})


def test_a_field_without_default_is_refused() -> None:
    @dataclass(frozen=True)
    class Open(EngineFields):
        tile: int

    with pytest.raises(SpecError, match="needs a default"):
        engine("open", version="1", metrics={"a": "less"}, fields=Open)(lambda _: {})


@pytest.mark.usefixtures("brought")
def test_metrics_and_their_directions_are_those_of_the_engine() -> None:
    assert metrics_of("analytic") == metrics_of("event") == BETTER
    assert metrics_of("tiles") == METRICS
    assert (direction("ops_per_s"), direction("latency_s"), direction("mfu")) == ("more", "less", "more")
    with pytest.raises(SpecError, match="no engine gives it"):
        direction("latency")


@pytest.mark.usefixtures("brought")
def test_an_unknown_engine_is_named_with_what_was_meant() -> None:
    assert engine_of("event") is None
    with pytest.raises(UnknownName, match="did you mean 'tiles'"):
        engine_of("tile")


def test_the_identity_changes_with_the_version_and_the_metrics(brought: type[Tiles]) -> None:
    first = identity_of("tiles")
    assert first.startswith("1 (")
    assert identity_of("analytic") == ""
    seen = {first.partition(" ")[2]}
    others: list[tuple[str, Any]] = [("2", METRICS), ("1", {"latency_s": "less"})]
    for place, (version, metrics) in enumerate(others):
        engine(f"other{place}", version=version, metrics=metrics, fields=brought)(lambda _: {})
        seen.add(identity_of(f"other{place}").partition(" ")[2])
    assert len(seen) == 3


def test_fields_have_paths_and_an_identity(brought: type[Tiles]) -> None:
    point = brought(tile=32)
    assert point.fields == {"tile": 32, "buffers": 2, "scratch": 65536.0, "order": "row"}
    assert point.identity == brought(tile=32).identity != brought().identity
    assert pickle.loads(pickle.dumps(point)) == point
