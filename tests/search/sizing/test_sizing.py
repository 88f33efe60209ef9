"""What to buy: limits bind, more money is never slower, a deadline is met with the least money, refusals say why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cosmic.base.errors import SpecError
from cosmic.base.units import USD, WATTS
from cosmic.cluster.cluster_cost import cluster_cost
from cosmic.design.design_batch import batch_of
from cosmic.search.cluster_sizing import (
    LARGER_IS_NO_BETTER,
    Effect,
    Question,
    Sizer,
    Sizing,
    UnsizedError,
    measure_sensitivity,
    read_amount,
    read_days,
    scale_design,
    simulate_risk,
    size_clusters,
    systems_asked,
)
from cosmic.search.mapping.design_completion import load_design

pytestmark = pytest.mark.xdist_group("sizing")  # what its tests share is made once

MODEL, TOKENS = "llama3-8b", 1e12
ONE_NODE = "one node of 8 does not fit:"
SMALL = Question(model=MODEL, tokens=TOKENS, accelerators=32)


@pytest.fixture(scope="module")
def small() -> Sizing:
    return size_clusters(SMALL, ["dgx-h100", "dgx-b200"])


@pytest.fixture(scope="module")
def effects() -> dict[str, Effect]:
    found = size_clusters(Question(model=MODEL, tokens=TOKENS, budget_usd=1.3e6), ["dgx-h100"])
    return {each.input: each for each in measure_sensitivity(found)}


def days_of(question: Question, system: str = "dgx-h100") -> float:
    row = Sizer(question).row(system)
    assert row.best.metrics.train_days is not None
    return row.best.metrics.train_days


# ---- answers


def test_a_row_is_the_run_that_its_design_states(small: Sizing) -> None:
    best = small.rows[0].best
    assert best.system == "dgx-b200"
    assert best.point.run.tokens == TOKENS
    # days = tokens / (tokens a second x goodput) / 86,400
    rate = best.metrics.throughput_per_s * (best.metrics.goodput or 0.0)
    assert best.metrics.train_days == pytest.approx(TOKENS / rate / 86_400)
    assert [row.bound_by for row in small.rows] == ["accelerators", "accelerators"]


def test_rows_are_best_first_and_all_that_was_tried_is_kept(small: Sizing) -> None:
    days = [row.best.metrics.train_days or 0.0 for row in small.rows]
    assert days == sorted(days)
    tried = {(each.system, each.accelerators) for each in small.tried}
    # 32 accelerators are 4 nodes: 4, 3 and 2 are the largest, and a quarter is 1
    assert tried == {(system, npus) for system in ("dgx-h100", "dgx-b200") for npus in (32, 24, 16, 8)}
    assert small.counted.sizes == 8


def test_the_cluster_costs_no_more_than_the_budget_and_the_next_larger_one_does() -> None:
    row = Sizer(Question(model=MODEL, tokens=TOKENS, budget_usd=1.3e6)).row("dgx-h100")
    assert (row.best.accelerators, row.bound_by) == (32, "budget")
    # 32 GPUs of 28,000, four hosts of 76,000, a switch of 40,000, 32 links with a cable of 240 and two optics of 500
    assert row.best.metrics.cost_usd == 32 * 28_000 + 4 * 76_000 + 40_000 + 32 * (240 + 2 * 500) == 1_279_680
    assert float(cluster_cost(batch_of(load_design(f"{MODEL}@dgx-h100:40"))).capital_usd) > 1.3e6


@pytest.mark.parametrize(("smaller", "larger"), [(0.7e6, 1.3e6), (1.3e6, 2.6e6), (2.6e6, 5.2e6)])
def test_a_larger_budget_is_never_slower(smaller: float, larger: float) -> None:
    asked = Question(model=MODEL, tokens=TOKENS, budget_usd=smaller)
    assert days_of(replace(asked, budget_usd=larger)) <= days_of(asked)


@pytest.mark.parametrize(
    ("model", "system", "budgets"),
    [
        ("llama3-70b", "gb300-nvl72", (8e8, 9e8)),
        pytest.param(MODEL, "dgx-h100", (2e9, 5e9, 1e10), marks=pytest.mark.long),
    ],
)
def test_money_that_the_batch_cannot_use_changes_nothing(model: str, system: str, budgets: tuple[float, ...]) -> None:
    rows = [Sizer(Question(model=model, tokens=TOKENS, budget_usd=each)).row(system).best for each in budgets]
    assert len({(row.accelerators, row.metrics.train_days) for row in rows}) == 1


@pytest.mark.long
def test_the_run_that_costs_least_does_not_depend_on_money_that_is_not_spent() -> None:
    asked = Question(model=MODEL, tokens=TOKENS, budget_usd=2e6, objective="train_usd")
    rows = [Sizer(replace(asked, budget_usd=each)).row("dgx-h100").best for each in (2e6, 4e6, 3e7)]
    assert len({(row.accelerators, row.metrics.train_usd) for row in rows}) == 1


@pytest.mark.parametrize(("fewer", "more"), [(20e3, 50e3), (50e3, 110e3)])
def test_fewer_watts_are_never_faster(fewer: float, more: float) -> None:
    asked = Question(model=MODEL, tokens=TOKENS, power_w=fewer)
    assert days_of(asked) >= days_of(replace(asked, power_w=more))
    row = Sizer(asked).row("dgx-h100")
    assert (row.best.metrics.power_w or 0.0) <= fewer
    assert row.bound_by == "power"


@pytest.mark.parametrize(
    ("system", "budget"),
    [
        ("dgx-h100", 2.5e6),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (("dgx-b200", 9e6), ("gb200-nvl72", 40e6))),
    ],
)
def test_no_number_of_whole_nodes_within_the_budget_trains_sooner(system: str, budget: float) -> None:
    sizer = Sizer(replace(SMALL, budget_usd=budget, accelerators=None))
    best = sizer.row(system).best
    node, fits = best.point.node.npus, sizer._fits(system, {}, sizer.question)[0]
    days = []
    for nodes in range(1, 1000):
        if not fits(node * nodes):
            break
        tried = sizer._evaluate_size(system, node * nodes, {}, sizer.question)
        if not isinstance(tried, str):
            days.append(tried.metrics.train_days)
    assert len(days) >= 5
    assert best.metrics.train_days == min(each for each in days if each is not None)


def test_two_limits_are_as_strict_as_the_stricter() -> None:
    asked = Question(model=MODEL, tokens=TOKENS, budget_usd=1.3e6, power_w=20e3)
    assert days_of(asked) == days_of(replace(asked, budget_usd=None))
    assert Sizer(asked).row("dgx-h100").bound_by == "power"


def test_spares_are_among_the_most_accelerators() -> None:
    # 9 spares are two nodes of 8: of 64 accelerators 48 train
    asked = replace(SMALL, accelerators=64, overrides={"run.spare_npus": 9})
    best = Sizer(asked).row("dgx-h100").best
    assert best.accelerators == 48
    # 64 GPUs of 28,000, eight hosts of 76,000, a switch of 40,000 and 64 links of 1,240
    assert best.metrics.cost_usd == 64 * 28_000 + 8 * 76_000 + 40_000 + 64 * 1_240


def test_a_number_that_the_batch_cannot_use_is_not_bought() -> None:
    # replicas only, and 24 sequences: of 32, 24, 16 and 8 accelerators they can be shared by 24 and 8
    mesh = {"global_batch": 24, "tp": 1, "cp": 1, "pp": 1}
    row = Sizer(Question(model=MODEL, tokens=TOKENS, accelerators=32, overrides=mesh)).row("dgx-h100")
    assert (row.best.accelerators, row.bound_by) == (24, LARGER_IS_NO_BETTER)


# ---- deadlines


@pytest.mark.long
def test_far_more_accelerators_than_the_batch_can_use_leave_those_that_it_can() -> None:
    best = Sizer(replace(SMALL, accelerators=1_000_000)).row("dgx-h100")
    assert best.bound_by == LARGER_IS_NO_BETTER
    assert best.best.accelerators < 250_000


@pytest.mark.long
def test_whole_nodes_between_round_numbers_meet_a_deadline_too() -> None:
    # 24 nodes of 8 are late and 27 are in time; of 25 and 26 the fewest that are in time are bought
    asked = Question(model=MODEL, tokens=15e12, deadline_days=93.0)
    sizer = Sizer(asked)
    row = sizer.row("dgx-h100")
    assert row.best.accelerators == 8 * 26
    days = {each.accelerators: each.metrics.train_days or 0.0 for each in sizer.tried}
    assert days[8 * 24] > 93 > days[8 * 26]
    assert days[8 * 25] > 93


def test_a_limit_binds_where_no_batch_is_near_for_what_is_left_of_it() -> None:
    # 13 racks of 72 fit, and share no batch near 512: 9 * 13 * 4 = 468 and 9 * 13 * 5 = 585; 12 racks share 27 * 20
    row = Sizer(replace(SMALL, accelerators=72 * 13)).row("gb200-nvl72")
    assert (row.best.accelerators, row.bound_by) == (72 * 12, "accelerators")


def test_a_deadline_is_met_by_the_fewest_that_make_it() -> None:
    asked = Question(model=MODEL, tokens=TOKENS, deadline_days=30.0)
    row = Sizer(asked).row("dgx-h100")
    assert row.bound_by == "deadline"
    assert (row.best.metrics.train_days or 0.0) <= 30
    fewer = Question(model=MODEL, tokens=TOKENS, accelerators=row.best.accelerators - 8)
    assert days_of(fewer) > 30


def test_a_deadline_out_of_reach_ends_with_the_least_late() -> None:
    asked = Question(model=MODEL, tokens=TOKENS, accelerators=32, deadline_days=1.0)
    row = Sizer(asked).row("dgx-h100")
    assert (row.best.accelerators, row.bound_by) == (32, "accelerators")


@pytest.mark.long
def test_a_deadline_out_of_reach_looks_between_the_numbers_that_were_doubled() -> None:
    # doubled racks are 72, 144, …: of those 1,152 train soonest; 2,160 share the batch better, and train sooner still
    asked = Question(model="qwen3-8b", tokens=2e12, deadline_days=0.001, accelerators=4608)
    sizer = Sizer(asked)
    assert sizer.row("gb200-nvl72").best.accelerators == 2160
    days = {each.accelerators: each.metrics.train_days or 0.0 for each in sizer.tried}
    assert days[2304] > days[1152] > 1.5 * days[2160]


def test_the_loss_is_lateness_then_dollars_then_days(small: Sizing) -> None:
    metrics = replace(small.rows[0].best.metrics, train_days=40.0, cost_usd=5e6, train_usd=1e5)
    asked = replace(SMALL, deadline_days=30.0)
    assert Sizer(SMALL).loss(metrics) == (40.0,)
    assert Sizer(asked).loss(metrics) == (10.0, 5e6, 40.0)
    assert Sizer(replace(asked, deadline_days=50.0)).loss(metrics) == (0.0, 5e6, 40.0)
    assert Sizer(replace(asked, objective="train_usd")).loss(metrics) == (10.0, 1e5, 40.0)
    unknown = replace(metrics, train_days=None)
    assert Sizer(asked).loss(unknown) == (float("inf"),)


# ---- refusals


@pytest.mark.parametrize(
    ("system", "limits", "why"),
    [
        # 8 GPUs of 28,000 and a host of 76,000; the node draws 10,200 W, and the facility a quarter more
        ("dgx-h100", {"budget_usd": 1e5}, f"{ONE_NODE} budget of 100,000 USD, and it costs 300,000 USD"),
        ("dgx-h100", {"power_w": 100.0}, f"{ONE_NODE} power of 100 W, and it draws 12,750 W"),
        ("gb200-nvl72", {"accelerators": 71}, "one node of 72 does not fit: at most 71 accelerators"),
        ("dgx-h800", {"budget_usd": 1e7}, "no price is known"),
        ("mi300x", {"accelerators": 64}, "no rate of interruptions is known for mi300x: set run.npu_mtbf"),
    ],
)
def test_a_system_without_an_answer_says_why(system: str, limits: dict[str, float], why: str) -> None:
    with pytest.raises(UnsizedError) as error:
        Sizer(Question(model=MODEL, tokens=TOKENS, **limits)).row(system)  # type: ignore[arg-type]
    assert str(error.value) == why


def test_a_model_that_does_not_fit_is_refused_with_the_reason() -> None:
    found = size_clusters(Question(model="llama3-405b", tokens=TOKENS, accelerators=8), ["dgx-h100"])
    assert found.best is None
    assert found.refused["dgx-h100"].startswith("8: ")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "say what may be spent"),
        ({"budget_usd": 0.0}, "--budget = 0.0: must be above 0"),
        ({"power_w": float("nan")}, "--power = nan: must be above 0"),
        ({"deadline_days": float("inf")}, "--deadline = inf: must be above 0 and finite"),
        ({"accelerators": -8}, "--accelerators = -8: must be above 0"),
        ({"accelerators": 8, "objective": "beauty"}, "must be one of train_days"),
        ({"accelerators": 8, "objective": "cost_usd"}, "one node costs least: say by when with --deadline"),
        ({"accelerators": 8, "overrides": {"system": "dgx-b200"}}, "--set system = 'dgx-b200': name systems with"),
        ({"accelerators": 8, "overrides": {"run.tokens": "3 T"}}, "--set run.tokens = '3 T': state them with --tokens"),
        ({"accelerators": 8, "overrides": {"model": "gpt2"}}, "--set model = 'gpt2': is the model of the question"),
    ],
)
def test_a_question_without_sense_is_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Question(model=MODEL, tokens=TOKENS, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("tp", 0, "workload.tp = 0: must be at least 1"),
        ("workload.precision", "fp13", "workload.precision = 'fp13': no such choice"),
        ("task", "decode", "workload.task = 'decode': only training is sized"),
        ("model.layers", 0, "model.layers = 0: must be at least 1"),
    ],
)
def test_a_field_without_sense_is_an_error_and_no_reason_of_a_system(path: str, value: object, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        size_clusters(replace(SMALL, overrides={path: value}), ["dgx-h100"])


def test_a_mapping_that_does_not_fit_the_machine_is_a_reason_of_the_system() -> None:
    assert "dgx-h100" in size_clusters(replace(SMALL, overrides={"dp": 7}), ["dgx-h100"]).refused


def test_a_field_of_the_network_between_nodes_leaves_one_node_as_it_is() -> None:
    # two nodes and their network cost 660 kUSD: one is bought, which has no dimension 1
    asked = replace(SMALL, accelerators=None, budget_usd=5e5, overrides={"network.dims.1.oversubscription": 4.0})
    assert Sizer(asked).row("dgx-h100").best.accelerators == 8
    with pytest.raises(SpecError, match="the list has 2 places"):
        Sizer(replace(asked, overrides={"network.dims.2.oversubscription": 4.0})).row("dgx-h100")


@pytest.mark.parametrize(("system", "npus"), [("gh200", 12), ("cosmic-512", 512)])
def test_systems_without_an_entry_of_a_node_are_bought_in_their_groups(system: str, npus: int) -> None:
    # groups of 4 GH200 within 15, and a machine that is of one size within 600
    asked = replace(SMALL, accelerators=npus + 3, overrides={"run.npu_mtbf": "30000 h"})
    row = Sizer(asked).row(system)
    assert row.best.accelerators == npus
    assert row.bound_by == ("accelerators" if system == "gh200" else "has a fixed size of 512 NPUs")


def test_amounts_are_read_as_people_write_them() -> None:
    assert read_amount("200 M USD", "--budget", USD) == read_amount("200M", "--budget", USD) == 2e8
    assert read_amount("1,000,000", "--budget", USD) == 1e6
    assert read_amount("25 MW", "--power", WATTS) == 2.5e7
    assert (read_days("90 day", "--deadline"), read_days("90", "--deadline"), read_days("7.5", "--deadline")) == (
        90,
        90,
        7.5,
    )
    with pytest.raises(SpecError, match="--power = '25 apples'"):
        read_amount("25 apples", "--power", WATTS)


def test_systems_are_those_named_or_recent_ones_that_are_sold() -> None:
    assert systems_asked(["h100", "dgx-b200"]) == ["dgx-h100", "dgx-b200"]
    with pytest.raises(SpecError, match="is there twice"):
        systems_asked(["h100", "dgx-h100"])
    every = systems_asked([])
    assert {"dgx-h100", "gb300-nvl72", "mi355x"} <= set(every)
    assert not {"dgx-1v", "dgx-a100", "tpu-v5p", "cosmic-1024"} & set(every)


# ---- what moves it


def test_a_tenth_more_tokens_is_a_tenth_more_days_and_dollars(effects: dict[str, Effect]) -> None:
    assert effects["tokens"].train_days == pytest.approx(0.1)
    assert effects["tokens"].train_usd == pytest.approx(0.1)
    assert effects["tokens"].cost_usd == 0


def test_a_tenth_more_of_each_price_raises_the_cluster_by_its_share(effects: dict[str, Effect]) -> None:
    # of 1,279,680 dollars for 32: a tenth more of 896,000 for GPUs is above 1.3 million, so that 24 are left
    assert effects["price of an accelerator"].accelerators == 24
    assert effects["price of energy"].cost_usd == 0
    assert (effects["price of energy"].train_usd or 0.0) > 0


def test_signs_of_effects_are_those_of_their_inputs(effects: dict[str, Effect]) -> None:
    assert (effects["time of every step"].train_days or 0.0) == pytest.approx(0.1, abs=0.005)
    assert (effects["bandwidth between nodes"].train_days or 0.0) <= 0
    assert (effects["bandwidth of memory"].train_days or 0.0) < 0
    assert (effects["time between failures"].train_days or 0.0) <= 0
    assert (effects["years of depreciation"].train_usd or 0.0) < 0
    assert (effects["power usage effectiveness"].power_w or 0.0) == pytest.approx(0.1)
    assert (effects["budget"].train_days or 0.0) <= 0


def test_a_machine_of_one_node_has_no_network_to_scale() -> None:
    point = load_design("llama3-8b@dgx-h100:8")
    assert scale_design(point, {"network.outermost.bandwidth": 2.0, "network.dims.*.fabric.switch_price": 2.0}) == point


def test_factors_reach_every_dimension_or_the_outermost() -> None:
    point = load_design("llama3-8b@dgx-h100:16")
    twice = scale_design(point, {"network.outermost.bandwidth": 2.0, "network.dims.*.latency": 3.0})
    before, after = point.network.dims, twice.network.dims
    assert after[0].bandwidth_bytes_per_s == before[0].bandwidth_bytes_per_s
    assert after[1].bandwidth_bytes_per_s == 2 * before[1].bandwidth_bytes_per_s
    assert [each.latency_s for each in after] == [3 * each.latency_s for each in before]


def test_days_spread_around_what_is_expected(small: Sizing) -> None:
    best = small.rows[0].best
    risk = simulate_risk(best.point, best.metrics)
    assert risk is not None
    assert risk.failures.p05 <= risk.failures.p50 <= risk.failures.p95
    assert risk.steps.p05 < (best.metrics.train_days or 0.0) < risk.steps.p95
    assert risk.failures.p50 == pytest.approx(best.metrics.train_days, rel=0.02)
