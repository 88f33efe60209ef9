"""A model of traces makes new ones that run, and that are what a longer or wider job would be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.accuracy.trace_fidelity import _system, comparison_networks
from cosmic.base.errors import SpecError
from cosmic.simulate.events.simulation_job import Job
from cosmic.simulate.events.trace_simulation import simulate_job
from cosmic.traces.synthesis.trace_model import SyntheticTraces, TraceLength, fit_model, synthesize
from cosmic.traces.trace import CollectiveType, RankTrace, Template, TraceSet, template_of
from cosmic.traces.trace_checks import list_problems
from tests.traces.synthesis.jobs import COLLECTIVE, COMP, Given, layers, pipeline, random_jobs

SAME = ("type", "duration_us", "num_ops", "tensor_size", "comm_type", "comm_size", "data_start", "data_id")


def lists(template: Template) -> list[list[int]]:
    """Return the rows that each row depends on."""
    rows = np.searchsorted(template.id, template.data_id)
    return [sorted(each.tolist()) for each in np.split(rows, template.data_start[1:-1])]


def same(made: Template, wanted: Template) -> bool:
    """Return whether two templates have the same nodes."""
    columns = all(np.array_equal(getattr(made, name), getattr(wanted, name)) for name in SAME[:-2])
    return columns and lists(made) == lists(wanted)


def cycles(made: SyntheticTraces | Given) -> int:
    """Return what traces take on a switch."""
    traces, groups = (made.traces, made.groups) if isinstance(made, SyntheticTraces) else made
    network = comparison_networks(len(traces.ranks))["switch"]
    named = {name: tuple(ranks) for name, ranks in groups.items()}
    return simulate_job(Job(traces=traces, groups=named, system=_system(network, False), network=network)).cycles


def test_a_model_of_four_layers_makes_the_step_of_nine() -> None:
    made = synthesize(fit_model([layers(4)]), TraceLength(blocks=9))
    wanted = layers(9)[0].ranks[0].template
    assert (made.block, made.copies_before, made.copies) == ("blocks", 4, 9)
    assert same(made.traces.ranks[0].template, wanted)


def test_a_model_of_nine_layers_makes_the_step_of_two() -> None:
    made = synthesize(fit_model([layers(9)]), TraceLength(blocks=2))
    assert same(made.traces.ranks[0].template, layers(2)[0].ranks[0].template)


def test_without_a_length_the_traces_are_as_they_were() -> None:
    for job in (layers(6), pipeline(5)):
        made = synthesize(fit_model([job]))
        assert made.block == ""
        assert all(
            same(mine.template, other.template) for mine, other in zip(made.traces.ranks, job[0].ranks, strict=True)
        )


def test_a_pipeline_gets_more_microbatches_on_both_stages() -> None:
    made = synthesize(fit_model([pipeline(5)]), TraceLength(scale=2))
    longer = pipeline(10)
    assert [rank.template.nodes for rank in made.traces.ranks] == [rank.template.nodes for rank in longer[0].ranks]
    assert cycles(made) == cycles(longer)


@pytest.mark.parametrize("ranks", [2, 8, 12, 64, 1024])
def test_groups_grow_along_the_axis_that_communicates_least(ranks: int) -> None:
    made = synthesize(fit_model([layers(4)]), ranks=ranks)
    assert len(made.traces.ranks) == ranks
    assert list_problems(made.traces, made.groups) == []
    assert made.mesh == (ranks // 2, 2)
    assert {rank.groups for rank in made.traces.ranks} == {(name,) for name in made.groups}


def test_stages_stay_two_when_ranks_grow() -> None:
    made = synthesize(fit_model([pipeline(4)]), ranks=12)
    assert made.mesh == (6, 2)
    assert made.groups == {"1": tuple(range(6)), "2": tuple(range(6, 12))}
    assert [rank.peers[0] for rank in made.traces.ranks] == [*range(6, 12), *range(6)]
    with pytest.raises(SpecError, match="must be a multiple of 2"):
        synthesize(fit_model([pipeline(4)]), ranks=7)


def test_an_all_gather_gives_each_of_more_ranks_less() -> None:
    rows = [{"id": 0, "type": COLLECTIVE, "comm_type": CollectiveType.ALL_GATHER, "comm_size": 1000}]
    rows.append({"id": 1, "type": COLLECTIVE, "comm_type": CollectiveType.ALL_REDUCE, "comm_size": 1000})
    template = template_of(rows)
    job = TraceSet(tuple(RankTrace(template) for _ in range(4)))
    made = synthesize(fit_model([(job, None)]), ranks=16)
    assert made.traces.ranks[0].template.comm_size.tolist() == [250, 1000]


def test_whole_steps_follow_each_other_where_nothing_repeats() -> None:
    template = template_of([{"id": 5, "type": COMP, "name": "a"}, {"id": 7, "type": COMP, "name": "b", "data": [5]}])
    made = synthesize(fit_model([(TraceSet((RankTrace(template),)), None)]), TraceLength(scale=3))
    assert (made.block, made.copies) == ("steps", 3)
    assert lists(made.traces.ranks[0].template) == [[], [0], [1], [2], [3], [4]]


def test_amounts_are_drawn_together_and_keep_their_mean() -> None:
    rng = np.random.default_rng(3)
    work = rng.lognormal(10, 0.3, 400).astype(int)
    rows = [{"id": 0, "type": COMP, "name": "first", "num_ops": 1}]
    rows += [
        {"id": 1 + at, "type": COMP, "name": "layer", "num_ops": int(each), "duration_us": int(3 * each), "data": [at]}
        for at, each in enumerate(work)
    ]
    job = TraceSet((RankTrace(template_of(rows)),))
    model = fit_model([(job, None)])
    first, second = (synthesize(model, seed=seed).traces.ranks[0].template for seed in (1, 2))
    assert not np.array_equal(first.num_ops, second.num_ops)
    assert np.abs(first.duration_us[1:] / first.num_ops[1:] - 3).max() < 0.01
    assert first.duration_us.sum() == pytest.approx(3 * work.sum(), rel=0.05)
    assert np.array_equal(first.num_ops, synthesize(model, seed=1).traces.ranks[0].template.num_ops)


def test_ranks_whose_durations_differ_have_one_role() -> None:
    traces, groups = layers(4)
    rng = np.random.default_rng(1)
    noisy = tuple(
        replace(rank, template=replace(rank.template, duration_us=rank.template.duration_us + rng.integers(0, 3, 11)))
        for rank in traces.ranks
    )
    model = fit_model([(TraceSet(noisy), groups)])
    assert len(model.jobs[0].source.roles) == 1
    assert len(synthesize(model, ranks=32).traces.ranks) == 32


def test_what_cannot_run_is_mended_and_said() -> None:
    rows = [
        {"id": 1, "type": COMP, "data": [1, 99], "ctrl": [2]},
        {"id": 2, "type": COLLECTIVE, "data": [1], "duration_us": 5},
    ]
    model = fit_model([(TraceSet((RankTrace(template_of(rows)),)), None)])
    assert model.notes == (
        "trace: 1 nodes lack what their type needs: they become compute of the same duration",
        "trace: 2 dependencies on absent nodes, or of nodes on themselves, are left out",
        "trace: 1 control dependencies that may close cycles are left out",
    )
    made = synthesize(model)
    assert list_problems(made.traces) == []
    assert made.traces.ranks[0].template.type.tolist() == [COMP, COMP]


def test_traces_whose_ranks_disagree_are_refused() -> None:
    traces, groups = layers(4)
    other = replace(traces.ranks[0], template=template_of([{"id": 0, "type": COMP}]))
    with pytest.raises(SpecError, match="collective 1 of group 1"):
        fit_model([(TraceSet((other, *traces.ranks[1:])), groups)])
    with pytest.raises(SpecError, match="nothing to fit"):
        fit_model([(TraceSet((RankTrace(template_of([])),)), None)])


@pytest.mark.parametrize(
    ("length", "rule"),
    [
        ({"blocks": 0}, "blocks = 0: must be from 1 to"),
        ({"scale": 0.0}, "scale = 0.0: must be positive"),
        ({"scale": float("nan")}, "scale = nan: must be positive"),
        ({"scale": 2.0, "blocks": 3}, "blocks = 3: excludes scale"),
    ],
)
def test_a_length_is_checked(length: dict[str, float], rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        TraceLength(**length)  # type: ignore[arg-type]


def test_more_nodes_than_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosmic.traces.synthesis.trace_model.MOST_NODES", 1000)
    with pytest.raises(SpecError, match=r"nodes = 10999: at most 1,000 are made of the roles of a job"):
        synthesize(fit_model([layers(4)]), TraceLength(scale=1000))


def test_a_block_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        SpecError, match=r"blocks = '5x1:9': there is no such block; copies and their nodes are 4x1, 1x11"
    ):
        synthesize(fit_model([layers(4)]), TraceLength(blocks=9, of=5, width=1))


def test_groups_that_are_no_mesh_keep_their_ranks() -> None:
    rows = [{"id": 0, "type": COLLECTIVE, "comm_type": 0, "comm_size": 8, "group": 0}]
    groups = {"1": (0, 1, 3), "2": (2, 4)}
    names = ("1", "1", "2", "1", "2")
    job = TraceSet(tuple(RankTrace(template_of(rows), (name,)) for name in names))
    model = fit_model([(job, groups)])
    assert list_problems(*_given(synthesize(model, TraceLength(scale=3)))) == []
    with pytest.raises(SpecError, match=r"ranks = 10: the groups and peers of the traces are no mesh: only their 5"):
        synthesize(model, ranks=10)


def _given(made: SyntheticTraces) -> Given:
    return made.traces, made.groups


def test_of_several_jobs_the_seed_draws_one() -> None:
    model = fit_model([layers(3), layers(5)])
    assert {synthesize(model, seed=seed).traces.nodes // 4 for seed in range(8)} == {9, 13}


@given(random_jobs(), st.sampled_from([None, 0.3, 1.0, 1.7, 4.0]), st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=40)
def test_whatever_the_traces_what_is_made_of_them_is_valid(
    job: Given, scale: float | None, times: int, seed: int
) -> None:
    model = fit_model([job])
    before = len(job[0].ranks)
    made = synthesize(
        model, TraceLength(scale=scale), ranks=times * before if model.jobs[0].placement else None, seed=seed
    )
    assert list_problems(made.traces, made.groups) == []
    plain = synthesize(model, seed=seed)
    assert [rank.template.nodes for rank in plain.traces.ranks] == [rank.template.nodes for rank in job[0].ranks]
    mine, other = plain.traces.ranks[0].template, job[0].ranks[0].template
    assert lists(mine) == [sorted(set(each)) for each in lists(other)]
