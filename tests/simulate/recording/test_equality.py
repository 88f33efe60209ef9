"""A program, its replay by NumPy and the physics itself give the same bits, over random designs of every family."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.base.native.library import native_library
from cosmic.design.design_batch import Batch, Names, batch_of, batch_of_changes
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate import step_evaluation as evaluation
from cosmic.simulate.metrics import OF_REQUESTS, Metrics
from cosmic.simulate.recording.program_interpreters import SHARED, _CompiledPlan, replay_program
from cosmic.simulate.recording.recorded_evaluation import MANY, Recorder, run_recorded_batch, run_recorded_point
from cosmic.simulate.recording.recorded_program import RecordedProgram, structure_of
from cosmic.simulate.step_evaluation import MEASURED, RECORDER, RESULTS, UNSEEN
from cosmic.workload.mapping_rules import evaluate_rules
from tests.relations.random_designs import MODELS, random_design

pytestmark = pytest.mark.skipif(native_library() is None, reason="no compiler was at hand: designs run no programs")


def directly(point: DesignPoint) -> dict[str, float]:
    """Return the results of a design by the physics itself; NaN where numbers overflow."""
    batch = batch_of(point)
    rules = {f"rule.{name}": float(holds) for name, holds in evaluate_rules(batch).items()}
    try:
        found = evaluation._evaluate_group(batch)
    except ArithmeticError:
        return dict.fromkeys(MEASURED, np.nan) | rules
    return {name: float(found[name]) for name in MEASURED} | rules


def replayed(program: RecordedProgram, point: DesignPoint) -> dict[str, float]:
    results = np.empty((len(program.results), 1))
    columns = np.array([[float(point.fields[path])] for path in program.inputs])
    assert replay_program(program, {}, columns, tuple(program.inputs), results)
    return dict(zip(program.results, results[:, 0].tolist(), strict=True))


def same(one: dict[str, float], other: dict[str, float]) -> list[str]:
    """Return the names of the results that differ in a bit; NaN is like NaN."""
    assert one.keys() == other.keys()
    return [name for name in one if not (one[name] == other[name] or (np.isnan(one[name]) and np.isnan(other[name])))]


def varied(rng: Random, point: DesignPoint) -> DesignPoint:
    """Return a design with some of its figures changed."""
    figures = [path for path, value in point.fields.items() if type(value) is float and not path.startswith("model.")]
    for path in rng.sample(figures, 3):
        try:
            point = point.changed({path: point.fields[path] * rng.choice((0.5, 0.9, 1.1, 2.0))})
        except SpecError:
            continue  # a share of more than 1
    return point


@pytest.mark.parametrize("family", list(MODELS))
def test_single_designs_are_the_same_bits_in_every_way(family: str) -> None:
    rng = Random(family)
    for _ in range(4):
        point = varied(rng, random_design(rng, family=family))
        found = run_recorded_point(RECORDER, point)
        assert found is not None, "a design that cannot be recorded"
        assert list(found) == list(RESULTS)
        assert same(found, directly(point)) == []
        assert same(found, replayed(RECORDER.variants(structure_of(point, {}))[0], point)) == []


def mixed_batch(rng: Random, point: DesignPoint, size: int) -> Batch:
    """Return designs around one that differ in mapping, switches, names, figures, and in what they state."""
    algorithms = ["ring", "direct", "auto", "halving_doubling"]
    ranks = point.network.npus
    changes: list[dict[str, Any]] = []
    for _ in range(size):
        tp, pp = rng.choice([(1, 1), (2, 1), (1, 2), (2, 2), (4, 2)])
        left = max(1, ranks // (tp * pp))
        changes.append(
            {
                "workload.tp": tp,
                "workload.pp": pp,
                "workload.dp": left,
                "workload.cp": 1,
                "workload.ep": 1,
                "workload.etp": rng.choice([None, None, 1]),
                "workload.micro_batch": rng.choice([1, 2]),
                "workload.recompute": rng.choice(["none", "full"]),
                "workload.virtual_stages": 1,
                "collective.algorithms.0": rng.choice(algorithms),
                "collective.multi_dim": rng.choice(["baseline", "blueconnect", "themis"]),
                "memory.bandwidth": rng.choice([1e12, 3e12]),
                "compute.price": rng.choice([None, 2e4]),
            }
        )
    return batch_of_changes(point, changes)


@pytest.mark.parametrize("name", ["llama3-8b@dgx-h100:8", "mixtral-8x7b@dgx-h100:16", "gpt3-13b@cosmic-512"])
def test_batches_are_the_same_bits_in_every_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = mixed_batch(Random(3), load_design(name), 300)
    recorder = Recorder(evaluation._metrics_of_designs, evaluation._rules_of_designs)
    for _ in range(5):  # until programs are worth it
        found, without = run_recorded_batch(recorder, Batch(batch.base, batch.columns), len(RESULTS))
    assert without == []
    direct = np.empty_like(found)
    evaluation._run_directly(batch, np.arange(batch.size), direct)
    assert np.array_equal(found, direct, equal_nan=True)
    monkeypatch.setenv("COSMIC_NATIVE", "0")  # then the physics itself is faster
    _, without = run_recorded_batch(recorder, Batch(batch.base, batch.columns), len(RESULTS))
    assert np.concatenate(without).tolist() == list(range(batch.size))


def test_a_batch_gives_each_design_what_it_has_alone() -> None:
    point = load_design("llama3-8b@dgx-h100:16")
    batch = mixed_batch(Random(7), point, 40)
    for _ in range(5):
        found = evaluate_batch(batch)
    for row in range(batch.size):
        alone = point.changed({path: _plain(column[row]) for path, column in batch.columns.items()})
        single = directly(alone)
        assert all(
            found.columns[name][row] == single[name] or np.isnan(single[name])
            for name in MEASURED
            if name not in UNSEEN
        )


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


@pytest.mark.parametrize(
    "name",
    ["llama3-8b@dgx-h100:16", "deepseek-v3@gb200-nvl72:64", "gpt3-13b@cosmic-512", "t5-3b@dgx-a100:8"],
)
@pytest.mark.parametrize("task", ["training", "prefill", "decode"])
def test_every_number_of_a_design_is_an_input(name: str, task: str) -> None:
    """A number that the physics takes from the base of a batch would be baked into the program."""
    point = load_design(name, {"workload.task": task}, plain=True)
    numbers = structure_of(point, {}).numbers
    assert run_recorded_point(RECORDER, point) is not None
    for path in numbers:
        value = point.fields[path]
        try:
            changed = point.changed({path: value * 2 if type(value) is int else value * 0.75})
        except SpecError:
            continue
        found = run_recorded_point(RECORDER, changed)
        assert found is not None
        assert same(found, directly(changed)) == [], path


PIPELINE = {"tp": 1, "cp": 1, "pp": 4, "schedule": "interleaved", "virtual_stages": 2, "global_batch": 64}


@pytest.mark.parametrize("name", ["llama3-8b@dgx-h100:16", "deepseek-v3@gb200-nvl72:64", "t5-3b@dgx-a100:16"])
def test_stated_layers_are_numbers_of_one_program(name: str) -> None:
    """What is recorded for some stages and stated layers is right for others, also for those that cannot run."""
    point = load_design(name, {**PIPELINE, "recompute": "full", "recompute_num_layers": 1, "first_stage_layers": 4})
    recorder = Recorder(evaluation._metrics_of_designs, evaluation._rules_of_designs)
    for first, last, pp in (4, 2, 4), (2, 2, 4), (8, 6, 4), (0, 0, 4), (90, 4, 4), (4, 4, 2):
        stated = {"first_stage_layers": first, "last_stage_layers": last, "pp": pp}
        each = point.changed({f"workload.{key}": value for key, value in stated.items()})
        found = run_recorded_point(recorder, each)
        assert found is not None
        assert same(found, directly(each)) == [], stated
        (program,) = recorder.variants(structure_of(each, {}))
        assert same(found, replayed(program, each)) == []


@pytest.mark.parametrize("name", ["llama3-8b@dgx-h100:16", "deepseek-v3@gb200-nvl72:64"])
def test_some_designs_of_a_batch_state_layers_and_others_do_not(name: str) -> None:
    point, chosen = load_design(name, PIPELINE), (None, 0, 2, 4, 7, 20)
    ends = [{"first": first, "last": last} for first in chosen for last in chosen]
    changes = [{f"workload.{end}_stage_layers": layers for end, layers in each.items()} for each in ends]
    batch = batch_of_changes(point, [{**each, "workload.pp": pp} for each in changes for pp in (1, 2, 4, 8)])
    recorder = Recorder(evaluation._metrics_of_designs, evaluation._rules_of_designs)
    for _ in range(3):  # until programs are worth it
        found, without = run_recorded_batch(recorder, batch, len(RESULTS))
    assert without == []
    point.known.clear()
    assert len(recorder._programs) == 4  # with and without each of both
    direct = np.empty_like(found)
    evaluation._run_directly(batch, np.arange(batch.size), direct)
    assert np.array_equal(found, direct, equal_nan=True)
    for row in range(0, batch.size, 5):
        alone = directly(point.changed({path: _plain(column[row]) for path, column in batch.columns.items()}))
        assert same(dict(zip(RESULTS, found[:, row].tolist(), strict=True)), alone) == []


def test_a_machine_of_another_kind_has_a_program_of_its_own() -> None:
    """Whether SMs are known is asked of all designs at once: a program that was recorded for one answer has a guard."""
    point = load_design("llama3-8b@dgx-h100:8")
    recorder = Recorder(evaluation._metrics_of_designs, evaluation._rules_of_designs)
    plain = point.changed({"compute.sms": 0})
    for each in (point, plain, point):
        found = run_recorded_point(recorder, each)
        assert found is not None
        assert same(found, directly(each)) == []
    assert len(recorder.variants(structure_of(point, {}))) == 2


def test_a_batch_may_mix_machines() -> None:
    point = load_design("llama3-8b@dgx-h100:8")
    batch = Batch(point, {"compute.sms": np.array([0, 132] * 600), "workload.micro_batch": np.array([1] * 1200)})
    found, without = run_recorded_batch(
        Recorder(evaluation._metrics_of_designs, evaluation._rules_of_designs), batch, len(RESULTS)
    )
    assert without == []
    point.known.clear()
    for row in (0, 1):
        alone = directly(point.changed({"compute.sms": int(batch.columns["compute.sms"][row])}))
        assert same(dict(zip(RESULTS, found[:, row].tolist(), strict=True)), alone) == []


def test_numbers_that_overflow_leave_the_designs_beside_them_alone() -> None:
    point = load_design("llama3-8b@dgx-h100:8")
    rates = np.full(1200, point.fields["memory.bandwidth"])
    rates[[5, 700]] = 5e-324
    found = evaluate_batch(Batch(point, {"memory.bandwidth": rates}))
    assert np.flatnonzero(np.isnan(found.columns["step_s"])).tolist() == [5, 700]
    assert np.flatnonzero(found.broken["range"]).tolist() == [5, 700]
    single = evaluate(point)
    assert isinstance(single, Metrics)
    assert set(np.delete(found.columns["step_s"], [5, 700]).tolist()) == {single.step_s}


def test_names_differ_within_a_program() -> None:
    point = load_design("llama3-8b@dgx-h100:64")
    names = Names(("ring", "switch", "fully_connected"), np.arange(1200) % 3)
    found = evaluate_batch(Batch(point, {"network.dims.1.topology": names})).columns["step_s"]
    for code, name in enumerate(names.names):
        alone = directly(point.changed({"network.dims.1.topology": name}))["step_s"]
        assert set(found[code::3].tolist()) == {alone}


def test_the_library_is_used_where_it_is() -> None:
    from cosmic.simulate.recording.program_interpreters import find_interpreter  # noqa: PLC0415  the library is looked for when it is needed

    assert find_interpreter() is not None


def test_what_is_forgotten_is_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who changes the physics in memory says so; plans that are kept with designs are not used any more."""
    point = load_design("llama3-8b@dgx-h100:8")
    batch = Batch(point, {"workload.micro_batch": np.ones(1200, dtype=np.int64)})
    recorder = Recorder(lambda part: {"two": part["workload.micro_batch"] * 2}, lambda _: {})
    assert run_recorded_batch(recorder, batch, 1)[0][0, 0] == 2.0
    monkeypatch.setattr(recorder, "_measure", lambda part: {"two": part["workload.micro_batch"] * 3})
    assert run_recorded_batch(recorder, batch, 1)[0][0, 0] == 2.0
    recorder.forget()
    assert run_recorded_batch(recorder, batch, 1)[0][0, 0] == 3.0


def test_a_batch_has_every_metric_and_no_other_column() -> None:
    point = load_design("llama3-8b@dgx-h100:8")
    found = evaluate_batch(Batch(point, {"workload.micro_batch": np.array([1, 2])}))
    assert set(found.columns) == {*MEASURED, *OF_REQUESTS} - set(UNSEEN)


@pytest.mark.parametrize("recipe", ["auto", "delayed", "tensorwise", "rowwise", "blockwise", "mxfp8", "nvfp4"])
def test_every_recipe_of_casts_is_the_same_bits_in_every_way(recipe: str) -> None:
    narrow = {"precision": "fp4"} if recipe == "nvfp4" else {"precision": "fp8", "fp8_recipe": recipe}
    mesh = {"tp": 2, "cp": 2, "dp": 2, "global_batch": 16, "kv_repeated": True, "cp_comm_type": "all_gather"}
    for system in ("dgx-h100:8", "dgx-b200:8"):
        point = load_design(f"llama3-8b@{system}", mesh | narrow)
        found = run_recorded_point(RECORDER, point)
        assert found is not None
        assert same(found, directly(point)) == []
        assert same(found, replayed(RECORDER.variants(structure_of(point, {}))[0], point)) == []


def test_what_mappings_do_not_share_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a guard of the part that mappings share does not hold, nothing else is run on what it left."""
    base = load_design("llama3-8b@dgx-h100:8", {"task": "decode", "tp": 2, "pp": 1, "dp": 4, "global_batch": 64})
    speeds = np.linspace(1e11, 9e11, max(2 * SHARED, MANY))
    batch = Batch(base, {"workload.micro_batch": np.full(len(speeds), 16), "network.dims.0.bandwidth": speeds})
    expected = evaluate_batch(batch).columns["step_s"]
    run = _CompiledPlan._call
    seen: list[set[str]] = []

    def call(self: _CompiledPlan, *given: Any, **options: Any) -> bool:
        seen.append({name for name, value in options.items() if value is not None})
        return run(self, *given, **options) and "slots" not in seen[-1]

    monkeypatch.setattr(_CompiledPlan, "_call", call)
    found = evaluate_batch(Batch(base, dict(batch.columns))).columns["step_s"]
    assert {"slots"} in seen, "mappings shared nothing"
    assert {"shared"} not in seen
    assert found.tolist() == expected.tolist()
