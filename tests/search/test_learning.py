"""What a search learns: judged on held-out trials, from earlier studies, and from measured runs."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.design.design_batch import Batch, batch_of, column_of
from cosmic.evaluation import evaluate
from cosmic.report.study_report import found_in_study
from cosmic.search.agent import Outcomes, Task, parse_agent, separate_agents, start_agent
from cosmic.search.leaderboard import hold_tournament
from cosmic.search.learning.design_features import (
    arithmetic_features,
    derived_features,
    memory_features,
    physics_features,
)
from cosmic.search.learning.prediction_quality import (
    Learned,
    Quality,
    fit_residuals,
    kendall_tau,
    measure_quality,
    parse_learned,
    top_recall,
)
from cosmic.search.learning.prior_knowledge import Lessons, memory_filter
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.problem import make_problem
from cosmic.search.search_inputs import Options, task_of
from cosmic.search.search_loop import resume_study, search
from cosmic.search.search_verdict import judge_search
from cosmic.search.space.diagram import Indices
from cosmic.search.space.space_files import load_space
from cosmic.search.study.doctor import examine_study, repair_study
from cosmic.search.study.measured_runs import summarize_evidence
from cosmic.search.study.study import open_study, tell_runs
from cosmic.search.study.study_comparison import replay_study
from cosmic.simulate.metrics import Metrics
from cosmic.step.process_memory import needed_bytes
from tests.search.searches import SPACE, told

BASE = {
    "model": "llama3-8b",
    "system": "dgx-h100:16",
    "workload": {"sequence": 4096, "global_batch": 64, "tp": 8, "cp": 1, "pp": 1, "micro_batch": 1},
}
MAPPINGS = {
    "version": 1,
    "name": "small",
    "base": BASE,
    "parameters": {"tp": [1, 2, 4, 8], "pp": [1, 2, 4], "micro_batch": [1, 2, 4], "chunks": [1, 4, 16]},
    "derived": {"dp": "npus // (tp * pp)"},
    "constraints": ["dp * tp * pp == npus", "global_batch % (dp * micro_batch) == 0"],
}


# ---- quality


def test_kendalls_tau_is_what_a_hand_counts() -> None:
    one, other = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])
    assert kendall_tau(one, other) == pytest.approx((5 - 1) / 6)  # of six pairs one is reversed
    assert kendall_tau(one, -one) == pytest.approx(-1)
    tied = np.array([1.0, 1.0, 2.0, 3.0])  # five untied pairs of six, all in order
    assert kendall_tau(one, tied) == pytest.approx(5 / np.sqrt(6 * 5))
    assert kendall_tau(one, np.ones(4)) == 0


def test_recall_is_the_share_of_the_best_that_a_model_names() -> None:
    predicted, achieved = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([5.0, 1.0, 2.0, 9.0, 8.0])
    assert top_recall(predicted, achieved, 1) == 0  # it names the first, the second is best
    assert top_recall(predicted, achieved, 2) == 0.5
    assert top_recall(predicted, achieved, 3) == 1


def test_few_trials_have_a_small_top_and_one_has_none() -> None:
    found = measure_quality(np.arange(15.0), np.arange(15.0))
    assert found is not None
    assert found.tau == pytest.approx(1)
    assert (found.recall, found.top, found.held_out) == (1.0, 3, 15)
    assert measure_quality(np.ones(1), np.ones(1)) is None


def test_a_model_is_bad_only_once_it_can_be_judged() -> None:
    assert Quality(0.0, 0.0, 1, 19).good
    assert not Quality(0.29, 1.0, 10, 20).good
    assert Quality(0.3, 0.0, 10, 20).good


def test_what_was_learned_is_read_as_it_was_written_or_refused() -> None:
    learned = Learned(Quality(0.5, 0.25, 4, 20), 3, 1, ("a note",))
    plain = {"quality": {"tau": 0.5, "recall": 0.25, "top": 4, "held_out": 20}, "proposals": 3, "fallbacks": 1}
    assert parse_learned({**plain, "notes": ["a note"]}) == learned
    assert "1 of its 3 batches were proposed without it" in " ".join(learned.sentences())
    for wrong in ({}, {**plain, "notes": ["\0"]}, {**plain, "notes": [], "fallbacks": -1}, [1]):
        with pytest.raises(SpecError):
            parse_learned(wrong)


@pytest.mark.long
@pytest.mark.parametrize("name", ["surrogate", "bayesian"])
def test_a_model_of_random_losses_is_not_used_and_one_of_an_order_is(name: str) -> None:
    pytest.importorskip("sklearn")
    noise = np.random.default_rng(3)

    def without_order(rows: Indices) -> Outcomes:
        return Outcomes(rows, noise.random((len(rows), 1)), np.zeros(len(rows)))

    found = {}
    for what, judge_rows in {"random": without_order, "ordered": told}.items():
        agent = start_agent(name, Task(SPACE, 60), np.random.default_rng(0))
        agent.tell(judge_rows(SPACE.sample(60, np.random.default_rng(1))))
        agent.ask(4)
        found[what] = agent.learned  # type: ignore[attr-defined]  # both have it
    assert (found["random"].proposals, found["random"].fallbacks) == (1, 1)
    assert found["random"].quality.tau < 0.3
    assert (found["ordered"].proposals, found["ordered"].fallbacks) == (1, 0)
    assert found["ordered"].quality.tau > 0.3


@pytest.mark.parametrize(("sign", "dropped"), [(1, False), (-1, True)])
def test_what_ranks_the_first_trials_in_reverse_is_dropped_and_the_model_goes_on_without(
    sign: int, dropped: bool
) -> None:
    pytest.importorskip("sklearn")

    def prior(rows: Indices) -> np.ndarray:
        return sign * np.nan_to_num(told(rows).losses[:, 0], nan=0.0)

    agent = start_agent("surrogate", Task(SPACE, 300, prior=prior), np.random.default_rng(0), {"candidates": 30})
    for _ in range(2):
        agent.tell(told(agent.ask(20)))
    (said,) = agent.learned.notes  # type: ignore[attr-defined]
    assert ("it is dropped" in said) == dropped
    seen = agent._mask_prior(agent._features)  # type: ignore[attr-defined]
    assert (seen[:, -1] == 0).all() == dropped
    agent.tell(told(agent.ask(20)))  # from all trials, those that it chose too
    assert agent._learnt == 40  # type: ignore[attr-defined]


def test_a_third_of_the_first_designs_is_what_was_taught() -> None:
    pytest.importorskip("sklearn")

    def prior(rows: Indices) -> np.ndarray:
        return np.asarray(rows.sum(axis=1), dtype=float)

    agent = start_agent("surrogate", Task(SPACE, 180, prior=prior), np.random.default_rng(0))
    first = agent.ask(12)  # a batch of 180 / 15; four of them, the first ones, are the best by the prior
    assert prior(first[:4]).max() < prior(first[4:]).min()


@pytest.mark.long
def test_a_prior_that_held_out_trials_are_ranked_worse_with_is_left_out_for_now() -> None:
    pytest.importorskip("sklearn")
    noise = np.random.default_rng(9).random(1_000_000)

    def prior(rows: Indices) -> np.ndarray:  # not bad enough to be dropped, as nobody judged it yet
        return np.asarray(noise[(rows * np.arange(1, rows.shape[1] + 1) ** 3).sum(axis=1)])

    agent = start_agent("surrogate", Task(SPACE, 300, prior=prior), np.random.default_rng(0))
    agent.tell(told(SPACE.sample(60, np.random.default_rng(1))))
    agent._trusted = True  # type: ignore[attr-defined]
    agent.ask(4)
    with_it = start_agent(
        "surrogate", Task(SPACE, 300, prior=lambda rows: told(rows).losses[:, 0]), np.random.default_rng(0)
    )
    with_it.tell(told(SPACE.sample(60, np.random.default_rng(1))))
    with_it.ask(4)
    assert not agent._helps  # type: ignore[attr-defined]
    assert with_it._helps  # type: ignore[attr-defined]


def test_what_does_not_fit_is_not_proposed_unless_nothing_fits() -> None:
    pytest.importorskip("sklearn")

    def low(rows: Indices) -> np.ndarray:
        return np.asarray(rows[:, 0] == 0)

    agent = start_agent("surrogate", Task(SPACE, 300, fits=low), np.random.default_rng(0))
    for _ in range(3):
        rows = agent.ask(20)
        assert low(rows).mean() > 0.9  # known points are replaced by neighbours, which may not fit
        agent.tell(told(rows))
    agent = start_agent(
        "surrogate", Task(SPACE, 300, fits=lambda rows: np.zeros(len(rows), bool)), np.random.default_rng(0)
    )
    assert len(agent.ask(20)) == 20


def test_starts_come_before_all_that_the_prior_ranks_behind_them() -> None:
    pytest.importorskip("sklearn")
    best = np.array([[len(each.values) - 1 for each in SPACE.parameters]])
    task = Task(
        SPACE,
        60,
        describe=lambda rows: rows.astype(float),
        prior=lambda rows: -rows.sum(axis=1).astype(float),
        starts=best,
    )
    assert (start_agent("surrogate", task, np.random.default_rng(0)).ask(4)[0] == best[0]).all()


# ---- features


def test_arithmetic_on_fields_is_what_a_hand_works_out() -> None:
    point = load_design(
        "llama3-8b@dgx-h100:16", {"tp": 2, "pp": 4, "cp": 1, "micro_batch": 2, "global_batch": 64, "sequence": 4096}
    )
    found = arithmetic_features(batch_of(point)).columns
    assert found["replicas"] == pytest.approx(1)  # 16 / (2 · 4) = 2
    assert found["microbatches"] == pytest.approx(4)  # 64 / (2 · 2) = 16
    stages = point.workload.virtual_stages
    assert found["bubble"] == pytest.approx(np.log2(1 + 3 / (16 * stages)))
    assert found["tokens of a pass"] == pytest.approx(13)  # 2 · 4,096


def test_memory_is_what_an_evaluation_says_and_decides_what_fits() -> None:
    space = load_space(MAPPINGS)
    problem = make_problem(space)
    rows = np.array(list(space.enumerate()))
    fits = memory_filter(problem)
    assert fits is not None
    runs = problem.evaluate(rows).feasible
    assert 0 < runs.sum() < len(rows)
    assert (fits(rows) == runs).all()
    known = derived_features(Batch(space.base, space.columns(rows))).columns["memory"]
    assert ((np.asarray(known) <= 0) == runs).all()
    place = int(np.flatnonzero(runs)[0])
    point = space.point(rows[place])
    evaluated = evaluate(point)
    assert isinstance(evaluated, Metrics)
    assert known[place] == pytest.approx(np.log2(needed_bytes(point, evaluated.memory) / point.memory.left_bytes))


def test_each_design_needs_memory_as_surely_as_it_must_fit_itself() -> None:
    """A batch in which certainty, what is left and accelerators' contexts differ is one of each alone."""
    point = load_design("llama3-8b@dgx-h100:8", {"tp": 4, "pp": 1, "cp": 1, "micro_batch": 1, "recompute": "none"})
    columns = {
        "memory.fits": np.array([0.5, 0.95, 0.95, 0.95]),
        "memory.usable": np.array([0.9, 0.9, 0.8, 0.9]),
        "memory.context": column_of([None, None, None, 2e9]),
    }
    found = memory_features(Batch(point, columns))
    for row, share in enumerate(found):
        alone = schema.assign_fields(point, {path: column[row] for path, column in columns.items()})
        evaluated = evaluate(alone)
        assert isinstance(evaluated, Metrics)
        assert share == pytest.approx(needed_bytes(alone, evaluated.memory) / alone.memory.left_bytes)
    assert found[0] < found[1] < found[2]
    assert found[3] != found[1]


def test_memory_is_worked_out_before_only_where_an_evaluation_costs_more() -> None:
    space = load_space(MAPPINGS)
    assert task_of(make_problem(space), 10).fits is None
    assert task_of(make_problem(space), 10, expensive=True).fits is not None
    assert task_of(make_problem(space, engine="event"), 10).fits is not None
    assert task_of(make_problem(space), 10, Lessons(prior=lambda rows: np.zeros(len(rows)))).fits is not None


def test_physics_has_the_closed_form_and_no_bytes_on_an_axis_of_one() -> None:
    space = load_space(MAPPINGS)
    rows = np.array(list(space.enumerate()))
    found, valid = physics_features(Batch(space.base, space.columns(rows)))
    alone = space.columns(rows)["workload.tp"] == 1
    assert valid.all()
    assert (found.columns["bytes of tp"][alone] == 0).all()
    assert (np.asarray(found.columns["bytes of tp"])[~alone] > 0).all()
    shares = sum(np.asarray(column) for name, column in found.columns.items() if name.startswith("share of"))
    assert shares == pytest.approx(1)


# ---- residuals


def test_one_factor_is_learned_from_runs_that_share_it() -> None:
    logs = np.log([1.1, 1.1, 1.2, 1.2])
    found = fit_residuals(np.arange(8.0).reshape(4, 2), logs)
    assert found.kind == "factor"
    assert found.level == pytest.approx(logs.mean())
    assert found.error == pytest.approx(np.log(1.2 / 1.1) / 2 * 4 / 3)  # each mean is of the other three


def test_a_trend_is_learned_and_ends_where_the_runs_do() -> None:
    coded = np.arange(8.0)[:, None]
    found = fit_residuals(coded, 0.1 * coded[:, 0] + 0.05)
    assert found.kind == "trend"
    assert found.predict(np.array([[3.5]])) == pytest.approx(0.4, abs=0.01)
    assert found.predict(np.array([[1e6]])) == pytest.approx(0.75)


def test_parts_of_a_step_that_take_longer_are_told_from_those_that_do_not() -> None:
    """Communication takes twice as long, compute as long as predicted: log(1 + share), nearly a line in the share."""
    share = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    others = np.random.default_rng(0).random((6, 5))
    coded = np.concatenate([np.stack([1 - share, share], axis=1), others], axis=1)
    found = fit_residuals(coded, np.log(1 + share), np.zeros(6), parts=(0, 1))
    assert found.kind == "parts"
    assert found.predict(np.array([[0.75, 0.25, *[1e9] * 5]])) == pytest.approx(
        np.log(1.25), abs=0.02
    )  # of parts alone
    assert found.predict(np.array([[0.0, 1.0, *[0.0] * 5]])) == pytest.approx(np.log(1.5))  # no run had a larger factor


def test_a_trend_needs_as_many_runs_as_there_are_features() -> None:
    coded = np.stack([np.arange(7.0), *np.random.default_rng(0).random((7, 7))], axis=1)
    few = fit_residuals(coded, 0.3 * coded[:, 0])  # seven runs, eight features
    assert few.kind in ("none", "factor")
    assert fit_residuals(coded[:, :7], 0.3 * coded[:, 0]).kind == "trend"


def test_a_correction_that_turns_the_order_of_left_out_runs_is_not_taken() -> None:
    """Two groups: the factor differs between them, and noise within is as large as the gaps between predictions."""
    coded = np.repeat([[0.0], [1.0]], 6, axis=0)
    logs = np.repeat([0.0, 0.5], 6) + 0.05 * np.tile([1.0, -1.0], 6)
    ordered = np.repeat([0.0, -1.0], 6) + 0.2 * np.arange(12)
    free = fit_residuals(coded, logs, None, parts=(0,))
    assert free.kind == "parts"
    assert free.error < free.before
    kept = fit_residuals(coded, logs, ordered, parts=(0,))
    measured = ordered + logs
    left = kept.predict(coded) + ordered
    assert kendall_tau(left, measured) >= kendall_tau(ordered, measured)


def test_noise_and_a_single_run_correct_nothing() -> None:
    noise = 0.1 * np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    assert fit_residuals(np.zeros((6, 3)), noise).kind == "none"
    assert fit_residuals(np.zeros((1, 3)), np.array([0.3])).predict(np.zeros((2, 3))).tolist() == [0, 0]


# ---- studies that learn


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exhaustive study with measured runs: trials 0 to 5, each 1.2 times as long as predicted."""
    folder = tmp_path_factory.mktemp("learning") / "earlier"
    found = search(load_space(MAPPINGS), out=folder)
    rows = [
        f"{place},{1.2 * found.trials.results.columns['step_s'][place]}"
        for place in np.flatnonzero(found.trials.results.feasible)[:6].tolist()
    ]
    (folder.parent / "runs.csv").write_text("\n".join(["trial,step_s", *rows]))
    assert tell_runs(folder, folder.parent / "runs.csv") == (6, 6)
    assert tell_runs(folder, folder.parent / "runs.csv") == (0, 6)
    return folder


def test_measured_runs_are_kept_and_shown_beside_predictions(earlier: Path) -> None:
    study = open_study(earlier)
    found = study.evidence
    assert found is not None
    assert [row.ratio for row in found.rows] == pytest.approx([1.2] * 6)
    assert examine_study(earlier).whole
    said = " ".join(judge_search(found_in_study(study)).caveats)
    assert "best predicted is also the best measured" in said
    assert "1.200 in the median" in said


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("tp,pp,micro_batch,chunks,step_s\n16,1,1,4,9", "workload.tp = 16: is outside the study, which has 1, 2, 4, 8"),
        ("tp,pp,chunks,step_s\n8,1,4,9", "workload.micro_batch = None: is searched by the study"),
        ("tp,pp,micro_batch,chunks,sequence,step_s\n8,1,1,4,8192,9", "workload.sequence = 8192: is outside the study"),
        (
            "tp,pp,micro_batch,chunks,dp,step_s\n8,1,1,4,4,9",
            "workload.dp = 4: is outside the study, whose design has 2",
        ),
        ("trial,step_s\n9999,9", "trial = '9999': the study has trials 0 to"),
        ("trial,step_s\n1,fast", "step_s = 'fast': must be a number"),
        ("trial,step_s\n1,-1", "step_s = '-1': must be from"),
        ("trial,note\n1,x", "no column is a metric"),
        ("trial,speed,step_s\n1,2,3", "speed"),
        ("trial\n1", "no column is a metric"),
        ("trial,step_s\n1,", "measures nothing"),
        ("trial,step_s", "there are no rows"),
        ("trial,mfu\n1,45", "mfu = '45': is a share, at most 1: write 0.45 for 45 %"),
    ],
)
def test_rows_outside_the_study_are_refused_and_nothing_is_put_in(
    earlier: Path, tmp_path: Path, row: str, complaint: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(row)
    with pytest.raises(SpecError, match=complaint.replace("(", r"\(")):
        tell_runs(earlier, path)
    assert len(open_study(earlier).runs) == 6


@pytest.mark.long
def test_a_study_that_learned_is_replayed_and_resumed_bit_for_bit(earlier: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    options: dict[str, Any] = {"trials": 20, "seed": 1, "learn": [earlier], "agent": "surrogate"}
    found = search(load_space(MAPPINGS), out=tmp_path / "one", **options)
    assert replay_study(tmp_path / "one").same
    assert search(load_space(MAPPINGS), **options).trials.points.tolist() == found.trials.points.tolist()
    more = resume_study(tmp_path / "one", trials=30)
    assert more.trials.points[:20].tolist() == found.trials.points.tolist()
    said = " ".join(open_study(tmp_path / "one").learned.sentences())  # type: ignore[union-attr]
    assert "6 measured runs correct predictions (times are 1.200× as long)" in said
    assert "earlier (the same set) teaches by" in said
    assert json.loads((tmp_path / "one" / "study.json").read_text())["inputs"]["learn"][0][0] == str(earlier)


def test_a_source_that_is_gone_or_has_changed_is_one_sentence(earlier: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text("tp,pp,micro_batch,step_s\n8,1,1,9\n4,1,1,8\n")
    search(load_space(MAPPINGS), agent="random", trials=5, learn=[runs], out=tmp_path / "one")
    assert replay_study(tmp_path / "one").same
    runs.write_text("tp,pp,micro_batch,step_s\n8,1,1,9\n4,1,1,7\n")
    with pytest.raises(SpecError, match="has changed since the study began"):
        replay_study(tmp_path / "one")
    runs.unlink()
    with pytest.raises(SpecError, match="is gone"):
        resume_study(tmp_path / "one", trials=8)
    with pytest.raises(SpecError):
        search(load_space(MAPPINGS), agent="random", trials=5, learn=[runs])


def test_rows_of_a_file_derive_what_the_set_derives(tmp_path: Path) -> None:
    """The rows that a study takes are taken from a file too: dp follows tp and pp, or the design could not run."""
    space = load_space({**MAPPINGS, "base": {**BASE, "memory": {"capacity": "1 TiB"}}})  # all of them fit
    runs = tmp_path / "runs.csv"
    predicted = {}
    for tp in (2, 4):
        outcome = evaluate(schema.assign_fields(space.base, {"workload.tp": tp, "workload.dp": 16 // tp}))
        predicted[tp] = outcome.step_s  # type: ignore[union-attr]
    runs.write_text(f"tp,step_s\n2,{2 * predicted[2]}\n4,{2 * predicted[4]}\n")
    lessons = search(space, agent="random", trials=3, learn=[runs]).inputs.lessons
    assert "2 measured runs correct predictions (times are 2.000× as long)" in lessons.notes[0]
    assert "is off by 0.0 % instead of 100.0 %" in lessons.notes[0]  # a factor of 2, not its logarithm
    runs.write_text(f"tp,dp,step_s\n2,4,{predicted[2]}\n")  # stated, so it does not follow: 8 of 16 accelerators
    assert "cannot run by the model" in search(space, agent="random", trials=3, learn=[runs]).inputs.lessons.notes[0]


def test_times_in_another_unit_are_pointed_at(earlier: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text("tp,pp,micro_batch,step_s\n8,1,1,3500\n4,1,1,2500\n")
    found = search(load_space(MAPPINGS), agent="random", trials=3, learn=[runs])
    assert "They are more than 30 times apart: look at the units" in found.inputs.lessons.notes[0]
    study = tmp_path / "study"
    shutil.copytree(earlier, study)
    assert not any("look at the units" in text for text in summarize_evidence(open_study(study).evidence))  # type: ignore[arg-type]
    runs.write_text("trial,step_s\n0,3500\n")
    tell_runs(study, runs)
    assert any("look at the units" in text for text in summarize_evidence(open_study(study).evidence))  # type: ignore[arg-type]


def test_what_was_measured_decides_which_design_is_best(tmp_path: Path) -> None:
    """Runs that take the longer the more tensor parallelism there is turn the order of predictions."""
    space = load_space(MAPPINGS)
    whole = search(space)
    step, tp = whole.trials.results.columns["step_s"], space.columns(whole.trials.rows)["workload.tp"]
    lines = ["tp,pp,micro_batch,chunks,step_s"]
    assert tp[whole.trials.best(whole.problem)] < 8
    for place in np.flatnonzero(whole.trials.results.feasible)[::2].tolist():
        point = space.labels(whole.trials.row(place))
        cells = [point[f"workload.{name}"] for name in ("tp", "pp", "micro_batch")]
        lines.append(",".join(map(str, [*cells, point["collective.chunks"], step[place] * (8 / tp[place]) ** 2])))
    (tmp_path / "runs.csv").write_text("\n".join(lines))
    found = search(space, agent="random", trials=space.valid, learn=[tmp_path / "runs.csv"])
    expected = found.inputs.lessons.expected(found.problem, found.trials)
    assert expected is not None
    before = whole.trials.row(whole.trials.best(whole.problem) or 0)
    assert space.labels(found.trials.row(expected[0]))["workload.tp"] > space.labels(before)["workload.tp"]


def test_simulations_start_from_the_best_designs_of_a_study_by_closed_forms(earlier: Path) -> None:
    pytest.importorskip("sklearn")
    space = load_space(MAPPINGS)
    study = open_study(earlier)
    found = search(space, trials=6, engine="event", settings={"batch": 4}, agent="surrogate", learn=[earlier])
    best = study.trials.row(study.trials.best(study.problem) or 0)
    assert (found.trials.points[:5] == best).all(axis=1).any()
    assert found.learned is not None
    said = " ".join(found.learned.notes)
    many = min(100, study.trials.feasible)
    assert f"earlier (the same set) has closed forms: its {many} best designs come first" in said
    assert "6 measured runs correct predictions" in said


@pytest.mark.long
def test_simulated_designs_correct_closed_forms_and_measured_runs_correct_simulations(tmp_path: Path) -> None:
    """The ladder, with runs made by hand: each takes 1.3 times as long as its simulation."""
    pytest.importorskip("sklearn")
    space = load_space(MAPPINGS)
    below = search(space, agent="random", trials=24, engine="event", out=tmp_path / "simulated")
    ran = np.flatnonzero(below.trials.results.feasible)[:6]
    lines = [f"{place},{1.3 * below.trials.results.columns['step_s'][place]}" for place in ran.tolist()]
    (tmp_path / "runs.csv").write_text("\n".join(["trial,step_s", *lines]))
    tell_runs(tmp_path / "simulated", tmp_path / "runs.csv")
    found = search(
        space,
        trials=4,
        engine="event",
        seed=3,
        learn=[tmp_path / "simulated"],
        agent="surrogate",
        settings={"batch": 4},
    )
    lessons = found.inputs.lessons
    assert lessons.factor is not None
    assert lessons.prior is not None
    rows = below.trials.rows[ran]
    assert lessons.factor(rows) == pytest.approx(np.log(1.3))
    simulated = np.log(below.trials.results.columns["step_s"][ran])
    expected = lessons.prior(rows)  # as measured: the simulation, learned from its own trials, and a factor of 1.3
    assert np.abs(expected - simulated - np.log(1.3)).max() < 0.05
    said = " ".join(lessons.notes)
    assert "simulated designs" in said
    assert "6 measured runs correct predictions (times are 1.300× as long)" in said


def test_the_event_engine_starts_from_closed_forms(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    space = load_space(MAPPINGS)
    whole = search(space).trials
    best = whole.row(whole.best(search(space, agent="random", trials=1).problem) or 0)
    found = search(space, agent="surrogate", trials=6, engine="event", settings={"batch": 4})
    near = np.abs(found.trials.points.astype(int) - best).sum(axis=1)
    assert (near[:4] <= 1).any()  # of the first batch, half is what the closed form ranks best
    assert found.learned is not None


def test_a_damaged_study_keeps_its_measured_runs(earlier: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(earlier, tmp_path / "copy")
    with sqlite3.connect(folder / "trials.db") as database:
        database.execute("UPDATE packed SET crc = crc + 1")
    assert not examine_study(folder).whole
    repair_study(folder)
    assert len(open_study(folder).runs) == 6


# ---- tournaments


def test_agents_with_settings_are_rivals_of_their_own() -> None:
    names = separate_agents("random, genetic(population=8), genetic(population=16, batch=4)")
    assert names == ["random", "genetic(population=8)", "genetic(population=16, batch=4)"]
    assert parse_agent(names[2]) == ("genetic", {"population": 16, "batch": 4})
    board = hold_tournament(load_space(MAPPINGS), names[:2], seeds=1, options=Options(trials=10))
    assert {each.agent for each in board.standings} == {"random", "genetic(population=8)"}


@pytest.mark.parametrize(
    "text", ["genetic(", "genetic(population)", "genetic(population=8,population=9)", "no_such", "a b"]
)
def test_an_agent_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="agents = "):
        parse_agent(text)
