"""Parameter sets whose bandwidth is provisioned: each design gets what is best for it, and is complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design.catalog_entries import load_mapping
from cosmic.design.design_batch import Batch
from cosmic.design.loading import design_tree
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.certify.certifying import certify
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.problem import UNMET_PROVISION, make_problem
from cosmic.search.provision.provisioning import WeightedDesign, provision_base, provision_designs
from cosmic.search.search_loop import Found, Progress, search
from cosmic.search.search_verdict import proof_of
from cosmic.search.space.space_files import load_space
from cosmic.search.study.study import open_study
from cosmic.simulate.metrics import Metrics

BASE = {
    "model": "gpt3-13b",
    "system": "cosmic-1024",
    "workload": {"dp": 128, "tp": 8, "cp": 1, "pp": 1, "weight_sharding": "zero3"},
}
SHAPES: dict[str, Any] = {
    "base": BASE,
    "parameters": {"network.dims.1.topology": ["ring", "fully_connected", "switch"]},
    "objective": "step_s",
}
SPENT = {"provision": {"budget": "200 GB/s"}}
LARGER: dict[str, Any] = {
    **SHAPES,
    "parameters": {
        "network.dims.*.topology": ["ring", "fully_connected", "switch"],
        "network.dims.*.npus": {"powers_of_two": [4, 16]},
    },
    "constraints": ["product(network.dims.*.npus) == npus"],
}


def losses(found: Found) -> list[float]:
    values: list[float] = found.trials.results.columns["step_s"].tolist()
    return values


@pytest.mark.long
def test_the_best_is_the_best_of_all_shapes_provisioned_by_hand() -> None:
    space = load_space({**SHAPES, **SPENT})
    found = search(space)
    by_hand = []
    for name in SHAPES["parameters"]["network.dims.1.topology"]:
        shape = space.base.changed({"network.dims.1.topology": name})
        by_hand.append(provision_designs([WeightedDesign(name, shape)], "200 GB/s").time_s)
    assert losses(found) == pytest.approx(by_hand, rel=2e-5)
    assert found.best is not None
    assert found.best["metrics"]["step_s"] == pytest.approx(min(by_hand), rel=2e-5)
    assert "best of all 3 designs" in proof_of(found)


def test_it_beats_a_grid_of_the_same_budget() -> None:
    found = search({**SHAPES, **SPENT})
    grid = {
        **SHAPES,
        "parameters": {
            **SHAPES["parameters"],
            "network.dims.*.bandwidth": [f"{each} GB/s" for each in (5, 20, 50, 100, 150)],
        },
        "constraints": ["sum(network.dims.*.bandwidth) <= 200 GB/s"],
    }
    assert min(losses(found)) < np.nanmin(losses(search(grid)))


def test_designs_are_complete_and_keep_their_step_and_the_budget() -> None:
    space = load_space({**SHAPES, **SPENT})
    found = search(space)
    for place, row in enumerate(found.trials.rows):
        point = space.point(row)
        outcome = evaluate(point)
        assert isinstance(outcome, Metrics)
        assert outcome.step_s == losses(found)[place]
        assert sum(dim.bandwidth_bytes_per_s for dim in point.network.dims) == pytest.approx(200e9, rel=1e-6)
        written = load_design(design_tree(space.base), space.labels(row))
        assert written == point
    assert {path for path in space.derived if path.endswith("bandwidth")} == {
        f"network.dims.{place}.bandwidth" for place in range(4)
    }


def test_a_design_gets_the_same_alone_and_among_others() -> None:
    rows = load_space({**LARGER, **SPENT}).listed(100, 12)
    together = load_space({**LARGER, **SPENT}).columns(rows)
    alone = load_space({**LARGER, **SPENT}).columns(rows[7:8])
    for path in ("network.dims.0.bandwidth", "network.dims.3.bandwidth"):
        assert together[path][7] == alone[path][0]


class InterruptedSearchError(Exception):
    """Raised by the one who watches, in the middle of a search."""


@pytest.mark.long
def test_a_resumed_search_and_two_workers_find_the_same(tmp_path: Path) -> None:
    options: dict[str, Any] = {"agent": "genetic", "seed": 3, "batch": 6, "trials": 18}
    whole = search({**LARGER, **SPENT}, **options)

    def interrupt(progress: Progress) -> None:
        if progress.evaluated >= 6:
            raise InterruptedSearchError

    with pytest.raises(InterruptedSearchError):
        search({**LARGER, **SPENT}, **options, out=tmp_path / "study", watch=interrupt)
    begun = len(open_study(tmp_path / "study").history[1])
    assert 0 < begun < len(whole.trials)
    resumed = search({**LARGER, **SPENT}, **options, out=tmp_path / "study", resume=True, workers=2)
    assert resumed.computed == len(whole.trials) - begun
    assert np.array_equal(resumed.trials.rows, whole.trials.rows)
    assert np.array_equal(losses(resumed), losses(whole), equal_nan=True)


def test_limits_are_kept_and_cost_time() -> None:
    limits = {"provision": {"budget": "200 GB/s", "limits": ["B3 >= 60 GB/s", "B0 >= B1"]}}
    space = load_space({**SHAPES, **limits})
    fields = space.columns(space.listed(0, 3))
    rates = np.array([fields[f"network.dims.{place}.bandwidth"] for place in range(4)])
    assert np.all(rates[3] >= 60e9 * (1 - 1e-6))
    assert np.all(rates[0] >= rates[1] * (1 - 1e-6))
    free = losses(search({**SHAPES, **SPENT}))
    assert all(a >= b * (1 - 1e-9) for a, b in zip(losses(search(space)), free, strict=True))


def test_dollars_are_spent_by_each_shape_as_it_is_priced() -> None:
    space = load_space({**SHAPES, "provision": {"budget": "1 M USD"}})
    for row in space.listed(0, 3):
        found = evaluate_batch(Batch(space.point(row), {}))
        assert float(found.columns["network_usd"][0]) == pytest.approx(1e6, rel=1e-6)


def test_time_for_dollars_is_better_than_with_all_of_the_budget() -> None:
    of_time = load_space({**SHAPES, "provision": {"budget": "<= 2 M USD"}})
    of_both = load_space({**SHAPES, "provision": {"budget": "<= 2 M USD", "objective": "time_per_dollar"}})
    for place in range(3):
        values = []
        for space in (of_time, of_both):
            found = evaluate_batch(Batch(space.point(space.listed(place, 1)[0]), {})).columns
            values.append(float(found["step_s"][0] * found["network_usd"][0]))
        assert values[1] < values[0]


def test_shapes_for_which_dollars_do_not_suffice_cannot_run() -> None:
    provision = {"budget": "<= 300 k USD", "limits": ["B1 >= 100 GB/s"]}
    problem = make_problem(load_space({**SHAPES, "provision": provision}))
    rows = problem.space.listed(0, 3)
    results = problem.evaluate(rows)
    assert not results.feasible.all()
    place = int(np.flatnonzero(~results.feasible)[0])
    assert results.reasons[place] == UNMET_PROVISION
    assert problem.explain(rows[place]) == (UNMET_PROVISION,)


def test_one_network_serves_all_workloads() -> None:
    mix = {**SHAPES, **SPENT, "workloads": {"long": {"sequence": 4096}, "short": {"sequence": 1024, "weight": 3}}}
    space = load_space(mix)
    row = space.listed(1, 1)[0]
    shares = [
        WeightedDesign(share.name, share.base.changed({"network.dims.1.topology": "fully_connected"}), share.weight)
        for share in space.workloads
    ]
    by_hand = provision_designs(shares, "200 GB/s").time_s
    found = make_problem(space).evaluate(row[None, :])
    assert found.columns["step_s"][0] == pytest.approx(by_hand, rel=2e-5)


def test_without_the_network_bandwidth_is_that_of_the_base() -> None:
    tree = {**SHAPES, **SPENT, "parameters": {**SHAPES["parameters"], "collective.chunks": [2, 4]}}
    space = load_space(tree)
    assert space.stacks == ("collective", "network")
    held = space.restrict(["collective"])
    assert held.provisioner is None
    assert held.point(held.listed(0, 1)[0]).network == space.base.network
    kept = space.restrict(["network"])
    assert kept.provisioner is not None
    assert "network.dims.0.bandwidth" in kept.derived
    identities = {held.identity, kept.identity, space.identity}
    assert len(identities) == 3
    assert load_space({**tree, "provision": {"budget": "201 GB/s"}}).identity not in identities


def test_both_ways_to_write_it_are_the_same() -> None:
    chosen = {**SHAPES["parameters"], "network.dims.*.bandwidth": "provisioned"}
    assert load_space({**SHAPES, **SPENT, "parameters": chosen}).identity == load_space({**SHAPES, **SPENT}).identity


def test_a_study_has_the_best_design_with_its_bandwidth(tmp_path: Path) -> None:
    found = search({**SHAPES, **SPENT}, out=tmp_path / "study")
    study = open_study(tmp_path / "study")
    assert study.problem.space.identity == found.problem.space.identity
    assert found.best is not None
    assert "network.dims.3.bandwidth" in found.best["point"]
    assert load_mapping(tmp_path / "study" / "study.json")["inputs"]["space"]["provision"] == SPENT["provision"]


@pytest.mark.parametrize(
    ("changes", "where", "rule"),
    [
        ({"provision": "500 GB/s"}, "provision", "state a budget"),
        ({"provision": {}}, "provision.budget", "state one"),
        ({"provision": {"budget": "500"}}, "provision.budget", "bandwidth or dollars"),
        ({"provision": {"budget": ">= 5 GB/s"}}, "provision.budget", "how much there is"),
        ({"provision": {"budget": "5 GB/s", "objectiv": "time"}}, "provision.objectiv", "objective"),
        ({"provision": {"budget": "5 GB/s", "objective": "speed"}}, "provision.objective", "time_per_dollar"),
        ({"provision": {"budget": "5 GB/s", "limits": "B0 >= B1"}}, "provision.limits", "a list"),
        ({"provision": {"budget": "5 GB/s", "limits": ["B9 >= B1"]}}, "provision.limits", "4 dimensions"),
        ({"provision": {"budget": "5 GB/s", "limits": ["B0 >= 6 GB/s"]}}, "provision.budget", "cannot be met"),
        ({"parameters": {"network.dims.*.bandwidth": ["5 GB/s"]}}, "network.dims.0.bandwidth", "not chosen"),
        ({"derived": {"network.dims.0.bandwidth": "5 GB/s"}}, "network.dims.0.bandwidth", "not derived"),
        ({"constraints": ["network.dims.0.bandwidth >= 5 GB/s"]}, "constraints.0", "provision.limits"),
        ({"parameters": {"network.dims.0.bandwidth": "provisioned"}}, "network.dims.0.bandwidth", "together"),
        ({"base": "llama3-8b@dgx-h100:1", "parameters": {}}, "provision", "no network"),
        ({"workloads": {"a": {"network.dims.0.bandwidth": "9 GB/s"}}}, "workloads.a", "one network"),
    ],
)
def test_what_cannot_be_provisioned_is_refused(changes: dict[str, Any], where: str, rule: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_space({**SHAPES, **SPENT, **changes})
    assert where in caught.value.where
    assert rule in str(caught.value)


def test_without_a_budget_provisioned_says_what_is_missing() -> None:
    with pytest.raises(SpecError, match="needs a budget"):
        load_space({**SHAPES, "parameters": {"network.dims.*.bandwidth": "provisioned"}})


def test_nothing_is_certified_of_it() -> None:
    with pytest.raises(SpecError, match="searched and not proven"):
        certify(load_space({**SHAPES, **SPENT}))


def test_the_base_of_a_set_is_provisioned_by_its_own_budget(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"base": BASE, **SPENT}))
    found = provision_base(str(path))
    assert sum(dim.bandwidth_bytes_per_s for dim in found.dims) == pytest.approx(200e9)
    more = provision_base(str(path), budget="300 GB/s")
    assert more.time_s < found.time_s
