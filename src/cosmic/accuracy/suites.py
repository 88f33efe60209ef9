"""Conformance suites: what must hold for every topology, collective algorithm, pipeline schedule, agent and engine.

Each suite is a class of tests. Subclass it in a test module and give it the names to check, or a whole registry, which
covers every variant that registers itself; each test runs once per name:

    from cosmic.accuracy.suites import TopologySuite

    class TestMyTopology(TopologySuite):
        names = ["my_topology"]
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import isclose
from typing import Any, ClassVar, NamedTuple, get_args

import numpy as np

from cosmic.base.errors import SpecError
from cosmic.base.numeric import divisors
from cosmic.base.registry import Registry
from cosmic.design.collective_layer import CollectiveKind, algorithms
from cosmic.design.network_layer import topologies
from cosmic.network.collective_rounds import rounds_of
from cosmic.network.link_graph import graph_of
from cosmic.network.schedules.baseline_algorithms import textbook_schedule
from cosmic.network.schedules.schedule_checking import check_schedule
from cosmic.search.agent import Agent, Outcomes, Task, agents
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.problem import make_problem
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.search.trials import Ledger
from cosmic.simulate.schedule_timeline import simulate_tasks
from cosmic.simulate.user_engines import UserEngine, engines
from cosmic.workload.pipeline_schedule import PipelineSchedule, PipelineTask, TaskKind, schedules


class Suite:
    """A class of tests that pytest runs once for each of `names`."""

    registry: ClassVar[Registry[Any]]
    """Registry of the variants under test."""
    names: ClassVar[Iterable[str]] = ()
    """Variants to test."""

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Parametrize each test by name; pytest calls this."""
        metafunc.parametrize("name", list(self.names))

    def test_it_says_what_it_is(self, name: str) -> None:
        """A variant has a docstring of its own, not the one that a dataclass generates."""
        variant = self.registry[name]
        text = (variant.__doc__ or "").strip()
        assert text
        assert not text.startswith(f"{getattr(variant, '__name__', '')}(")


def small_space() -> ParameterSet:
    """Return a small space with constraints."""
    return load_space("cosmic-512-full-stack").restrict(["workload", "network"])


def small_task(objectives: int = 1) -> Task:
    """Return a task on the small space."""
    return Task(small_space(), trials=60, objectives=objectives)


def sum_outcomes(rows: Indices, objectives: int = 1) -> Outcomes:
    """Return synthetic outcomes: the loss is the sum of all indices, and a second loss its negative."""
    total = rows.sum(axis=1).astype(float)
    losses = np.stack([total, -total], axis=1)[:, :objectives]
    return Outcomes(rows, losses, np.zeros(len(rows)))


def half_infeasible_outcomes(rows: Indices) -> Outcomes:
    """Return outcomes of which every second is infeasible, half of these by no measurable amount."""
    sums = sum_outcomes(rows)
    index = np.arange(len(rows))
    excess = np.select([index % 4 == 1, index % 4 == 3], [0.5, np.inf], 0.0)
    return Outcomes(rows, np.where((excess == 0)[:, None], sums.losses, np.nan), excess)


def infeasible_outcomes(rows: Indices) -> Outcomes:
    """Return outcomes that are all infeasible."""
    return Outcomes(rows, np.full((len(rows), 1), np.nan), np.full(len(rows), np.inf))


class AgentSuite(Suite):
    """Laws of `ask` and `tell`."""

    registry = agents

    def started(self, name: str, task: Task, seed: int = 0) -> Agent:
        """Return a new agent *name*."""
        agent: Agent = self.registry[name](task, np.random.default_rng(seed))
        return agent

    def test_it_proposes_as_many_points_as_asked(self, name: str) -> None:
        """Batches may have any size, 0 included; the agent states its own batch size."""
        task = small_task()
        for n in (0, 1, 7):
            assert self.started(name, task).ask(n).shape == (n, len(task.space.parameters))
        assert self.started(name, task).batch >= 1

    def test_it_proposes_valid_points_only(self, name: str) -> None:
        """Every proposal satisfies every constraint, before and after learning."""
        task = small_task()
        agent = self.started(name, task)
        for _ in range(4):
            rows = agent.ask(15)
            assert task.space.contains(rows).all()
            agent.tell(half_infeasible_outcomes(rows))

    def test_the_same_seed_gives_the_same_search(self, name: str) -> None:
        """Two agents with the same seed and the same outcomes propose the same points."""
        task = small_task()
        first, second = self.started(name, task, seed=3), self.started(name, task, seed=3)
        for _ in range(3):
            rows, same_seed = first.ask(10), second.ask(10)
            assert np.array_equal(rows, same_seed)
            first.tell(half_infeasible_outcomes(rows))
            second.tell(half_infeasible_outcomes(same_seed))

    def test_it_survives_points_that_cannot_run(self, name: str) -> None:
        """Batches without a feasible point are allowed, first and later."""
        task = small_task()
        agent = self.started(name, task)
        for outcomes in (infeasible_outcomes, infeasible_outcomes, sum_outcomes, infeasible_outcomes):
            rows = agent.ask(10)
            assert task.space.contains(rows).all()
            agent.tell(outcomes(rows))
        assert task.space.contains(agent.ask(10)).all()

    def test_a_tell_may_be_late_partial_or_of_other_points(self, name: str) -> None:
        """Two asks before a tell, and tells in another order, in parts, or of points never proposed, are allowed."""
        task = small_task()
        agent = self.started(name, task)
        early, late = agent.ask(6), agent.ask(6)
        agent.tell(sum_outcomes(late[::-1]))
        agent.tell(sum_outcomes(early[:2]))
        agent.tell(sum_outcomes(early[2:]))
        strangers = task.space.sample(4, np.random.default_rng(9))
        agent.tell(sum_outcomes(strangers))
        agent.tell(sum_outcomes(strangers[:0]))
        assert task.space.contains(agent.ask(4)).all()

    def test_the_best_so_far_never_worsens(self, name: str) -> None:
        """A search keeps the best point so far, whatever the agent proposes next."""
        problem = make_problem(small_space(), ["step_s"])
        agent, ledger = self.started(name, Task(problem.space, trials=60)), Ledger(problem)
        best = [ledger.best]
        for _ in range(4):
            rows = agent.ask(15)
            new = rows[ledger.unknown(rows)]
            ledger.add(new, problem.evaluate(new))
            agent.tell(problem.outcomes(rows, ledger.recall(rows)))
            best.append(ledger.best)
        assert best == sorted(best, reverse=True)
        assert best[-1] == np.nanmin(np.append(ledger.trials.results.columns["step_s"], np.inf))

    def test_it_searches_for_several_objectives(self, name: str) -> None:
        """Two opposite objectives do not stop it."""
        task = small_task(objectives=2)
        agent = self.started(name, task)
        for _ in range(3):
            rows = agent.ask(12)
            assert task.space.contains(rows).all()
            agent.tell(sum_outcomes(rows, objectives=2))

    def test_it_ends_a_small_space(self, name: str) -> None:
        """It proposes the points that are left, until it has visited all."""
        space = load_space("cosmic-512-full-stack").restrict(["workload"])
        agent = self.started(name, Task(space, trials=space.valid))
        asked: set[object] = set()
        for _ in range(60):
            rows = agent.ask(10)
            asked.update(space.keys(rows))
            agent.tell(sum_outcomes(rows))
        assert len(asked) == space.valid


COLLECTIVE_SIZES = (2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 64, 100)
KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)


MEASURED = ("auto", "synthesized", "in_network")
"""Algorithms that stand for others: what a library takes is measured, a search finds a schedule, a switch adds up."""


class CollectiveSuite(Suite):
    """Laws of collectives in groups of any size."""

    registry = algorithms

    def test_a_group_of_one_sends_nothing(self, name: str) -> None:
        """A group of one has no steps and no traffic."""
        for kind in KINDS:
            assert self.registry[name].steps(kind, 1) == 0
            assert self.registry[name].traffic(kind, 1) == 0

    def test_it_never_beats_the_bandwidth_bound(self, name: str) -> None:
        """Everything but an NPU's own shard must travel at least once."""
        for kind in KINDS:
            for npus in COLLECTIVE_SIZES:
                assert self.registry[name].traffic(kind, npus) >= (npus - 1) / npus - 1e-12

    def test_an_all_reduce_costs_no_less_than_a_gather(self, name: str) -> None:
        """It ends like an all-gather, with the whole buffer on every NPU."""
        for npus in COLLECTIVE_SIZES:
            variant = self.registry[name]
            assert variant.traffic("all_reduce", npus) >= variant.traffic("all_gather", npus)
            assert variant.steps("all_reduce", npus) >= variant.steps("all_gather", npus) >= 1

    def test_the_closed_form_is_the_sum_over_rounds(self, name: str) -> None:
        """What a formula says of steps and bytes is what the rounds add up to; of `MEASURED` only the bytes."""
        variant = self.registry[name]
        for kind in KINDS:
            for npus in COLLECTIVE_SIZES:
                rounds = rounds_of(variant, kind, npus)
                if name not in MEASURED:
                    assert isclose(float(variant.steps(kind, npus)), rounds.steps)
                    assert isclose(float(variant.traffic(kind, npus)), float(rounds.traffic), rel_tol=1e-9)

    def test_it_does_what_its_collective_is_for(self, name: str) -> None:
        """Its schedule on a network that joins every two NPUs is valid."""
        for npus in (2, 3, 6, 8, 12):
            ends = [(a, b) for a in range(npus) for b in range(npus) if a != b]
            graph = graph_of(npus, [(a, b, 1e9, 1e-6) for a, b in ends])
            for kind in KINDS:
                rounds = partial(rounds_of, self.registry[name], kind)
                if name not in MEASURED and rounds(npus).executable:
                    verdict = check_schedule(textbook_schedule(graph, rounds, kind, 1e6, [range(npus)]))
                    assert verdict.valid, (kind, npus, verdict.examples)

    def test_peers_exist_within_the_group(self, name: str) -> None:
        """An NPU has at least one peer, at a distance from 1 to the size of the group."""
        for npus in COLLECTIVE_SIZES:
            assert 1 <= self.registry[name].peers(npus) <= max(npus - 1, 1)
            assert 1 <= self.registry[name].distance(npus) <= npus

    def test_arrays_give_what_numbers_give(self, name: str) -> None:
        """The formulas work on arrays as on numbers."""
        variant, sizes = self.registry[name], np.array(COLLECTIVE_SIZES)
        for kind in KINDS:
            array_result = np.broadcast_to(variant.traffic(kind, sizes), sizes.shape)
            assert np.allclose(array_result, [float(variant.traffic(kind, npus)) for npus in COLLECTIVE_SIZES])
            array_result = np.broadcast_to(variant.steps(kind, sizes), sizes.shape)
            assert np.allclose(array_result, [float(variant.steps(kind, npus)) for npus in COLLECTIVE_SIZES])


class EngineSuite(Suite):
    """Laws of answers. Give `points` an engine's interesting cases; else its defaults, or a small design, are asked."""

    registry = engines
    points: ClassVar[Sequence[Any]] = ()
    """Designs, or choices of the engine's own fields, of which at least one can run."""

    def asked(self, engine: UserEngine) -> Sequence[Any]:
        """Return the points that are asked for."""
        if self.points:
            return self.points
        return [load_design("llama3-8b@dgx-h100:8") if engine.fields is None else engine.fields()]

    def test_it_has_an_answer_for_each_point(self, name: str) -> None:
        """An engine does not crash; what cannot run has a reason, and all else metrics that it declares."""
        engine = self.registry[name]
        for point in self.asked(engine):
            answer = engine.ask(point)
            assert not answer.failed, answer.reasons
            assert answer.reasons or answer.metrics.keys() <= set(engine.metrics)

    def test_its_usual_objective_is_known_for_some_point(self, name: str) -> None:
        """The first metric is what a search improves if nothing is said."""
        engine = self.registry[name]
        assert any(next(iter(engine.metrics)) in engine.ask(point).metrics for point in self.asked(engine))

    def test_it_gives_the_same_answer_twice(self, name: str) -> None:
        """A study is resumed and replayed: an answer depends on its point alone."""
        engine = self.registry[name]
        for point in self.asked(engine):
            assert engine.ask(point) == engine.ask(point)

    def test_a_point_reaches_workers_as_it_is(self, name: str) -> None:
        """Other processes get the same point, and give the same answer."""
        engine = self.registry[name]
        for point in self.asked(engine):
            sent = pickle.loads(pickle.dumps(point))
            assert sent == point
            assert engine.ask(sent) == engine.ask(point)

    def test_it_says_its_version(self, name: str) -> None:
        """Studies keep the version, and a digest that a change of its source changes."""
        engine = self.registry[name]
        assert engine.version
        assert engine.identity.startswith(engine.version)


TIMES_S = ((1.0, 1.0, 1.0), (1.0, 1.5, 0.5), (2.0, 1.0, 3.0))
"""Seconds of forward, of backward for the input and of backward for the weights."""


TRANSFER_S = 1 / 64
"""Seconds from stage to stage, both ways, where transfers are simulated."""
TRANSFERS_APART = 1 / 4
"""By how many transfers and back a closed form may miss those that a simulated step waits for."""


class PipelineSizes(NamedTuple):
    """Sizes of a pipeline."""

    stages: int
    microbatches: int
    virtual: int


PIPELINE_GRID = [
    PipelineSizes(stages, microbatches, virtual)
    for stages in (1, 2, 3, 4, 6, 8)
    for microbatches in (1, 2, 3, 4, 6, 8, 12, 16, 24)
    for virtual in (1, 2, 3)
]


def peak_in_flight(tasks: list[PipelineTask], virtual: int) -> float:
    """Return the most microbatches whose activations a stage keeps while it runs *tasks*.

    A forward adds one; the whole backward, or its weight pass, removes one.
    """
    change = {"F": 1, "B": 0, "W": -1, "BW": -1}
    alive = np.cumsum([change[task.kind] for task in tasks])
    return float(alive.max()) / virtual


def simulate_schedule_s(
    schedule: PipelineSchedule, sizes: PipelineSizes, transfer_s: float, times_s: Sequence[float] = (1, 1, 1)
) -> float:
    """Return the seconds of a simulated step of equal stages."""
    orders = [schedule.order(stage, *sizes) for stage in range(sizes.stages)]
    forward, backward, weight = (pass_s / sizes.virtual for pass_s in times_s)
    seconds = {"F": forward, "B": backward, "W": weight, "BW": backward + weight}
    crossing = (transfer_s, transfer_s)
    simulation = simulate_tasks(
        orders, sizes.stages * sizes.virtual, lambda _, task: seconds[task.kind], crossing, frozenset()
    )
    return float(simulation.end.max())


def is_refused(schedule: PipelineSchedule, sizes: PipelineSizes) -> bool:
    """Return whether the schedule refuses to order *sizes*."""
    try:
        schedule.order(0, *sizes)
    except SpecError:
        return True
    return False


class ScheduleSuite(Suite):
    """Laws of order, bubble, transfers and activations in flight."""

    registry = schedules

    def fitting(self, name: str) -> Iterator[tuple[PipelineSchedule, PipelineSizes]]:
        """Yield the schedule with each of the grid's sizes that it can run."""
        schedule: PipelineSchedule = self.registry[name]
        for sizes in PIPELINE_GRID:
            if schedule.invalid_reason(*sizes) is None:
                yield schedule, sizes

    def test_one_stage_is_gradient_accumulation(self, name: str) -> None:
        """It always fits, has no bubble, and keeps one microbatch and one copy of the parameters."""
        schedule: PipelineSchedule = self.registry[name]
        for sizes in PIPELINE_GRID:
            if sizes.stages == 1:
                assert schedule.invalid_reason(*sizes) is None
                assert schedule.parameter_copies(1) == 1
                assert schedule.in_flight(0, *sizes) == 1
                assert all(schedule.bubble(*sizes[:2], *times_s, sizes.virtual) == 0 for times_s in TIMES_S)

    def test_each_task_is_done_once_and_in_turn(self, name: str) -> None:
        """A stage runs each microbatch forward through each chunk, then backward, whole or as input and weight pass."""
        for schedule, sizes in self.fitting(name):
            work = {(m, chunk) for m in range(sizes.microbatches) for chunk in range(sizes.virtual)}
            for stage in range(sizes.stages):
                done: dict[tuple[int, int], tuple[TaskKind, ...]] = {}
                for task in schedule.order(stage, *sizes):
                    key = (task.microbatch, task.chunk)
                    done[key] = (*done.get(key, ()), task.kind)
                assert done.keys() == work
                assert set(done.values()) <= {("F", "BW"), ("F", "B", "W")}

    def test_what_is_in_flight_follows_from_the_order(self, name: str) -> None:
        """The closed form equals the peak over the order, on every stage."""
        for schedule, sizes in self.fitting(name):
            for stage in range(sizes.stages):
                expected = peak_in_flight(schedule.order(stage, *sizes), sizes.virtual)
                assert isclose(schedule.in_flight(stage, *sizes), expected)

    def test_at_least_one_and_at_most_all_microbatches_are_in_flight(self, name: str) -> None:
        """A stage keeps the microbatch that it works on, and no more than there are."""
        for schedule, sizes in self.fitting(name):
            for stage in range(sizes.stages):
                assert 1 <= schedule.in_flight(stage, *sizes) <= sizes.microbatches

    def test_idle_time_is_never_negative(self, name: str) -> None:
        """For any times."""
        for schedule, sizes in self.fitting(name):
            for times_s in TIMES_S:
                assert schedule.bubble(*sizes[:2], *times_s, sizes.virtual) >= 0

    def test_more_microbatches_never_enlarge_the_fraction_that_idles(self, name: str) -> None:
        """The pipeline is filled and drained once per step."""
        for times_s in TIMES_S:
            fractions: dict[tuple[int, int], float] = {}
            for schedule, sizes in self.fitting(name):
                idle_s = schedule.bubble(*sizes[:2], *times_s, sizes.virtual)
                fraction = idle_s / (idle_s + sizes.microbatches * sum(times_s))
                key = (sizes.stages, sizes.virtual)
                assert fraction <= fractions.get(key, 1.0) + 1e-12
                fractions[key] = float(fraction)

    def test_a_step_waits_for_the_transfers_that_are_stated(self, name: str) -> None:
        """Simulated with stages of equal times and short transfers, within `TRANSFERS_APART`; one stage has none."""
        for schedule, sizes in self.fitting(name):
            transfers = float(sum(schedule.transfers(*sizes)))
            waited = simulate_schedule_s(schedule, sizes, TRANSFER_S) - simulate_schedule_s(schedule, sizes, 0.0)
            assert abs(waited / (2 * TRANSFER_S) - transfers) <= TRANSFERS_APART
            assert sizes.stages > 1 or transfers == 0

    def test_what_does_not_fit_is_refused_in_a_sentence(self, name: str) -> None:
        """`invalid_reason`, `runs` and `order` agree."""
        schedule: PipelineSchedule = self.registry[name]
        for sizes in PIPELINE_GRID:
            reason = schedule.invalid_reason(*sizes)
            assert schedule.runs(*sizes) == (reason is None)
            if reason is not None:
                assert reason.strip()
                assert is_refused(schedule, sizes)

    def test_arrays_give_what_numbers_give(self, name: str) -> None:
        """The closed forms work on a batch of sizes as on one."""
        schedule: PipelineSchedule = self.registry[name]
        grid = [sizes for _, sizes in self.fitting(name)]
        stages, microbatches, virtual = np.array(grid).T
        for times_s in TIMES_S:
            bubbles = np.broadcast_to(schedule.bubble(stages, microbatches, *times_s, virtual), len(grid))
            assert bubbles.tolist() == [schedule.bubble(*sizes[:2], *times_s, sizes.virtual) for sizes in grid]
        in_flight = np.broadcast_to(schedule.in_flight(0 * stages, stages, microbatches, virtual), len(grid))
        assert in_flight.tolist() == [schedule.in_flight(0, *sizes) for sizes in grid]
        for index in (0, 1):
            sent = np.broadcast_to(schedule.transfers(stages, microbatches, virtual)[index], len(grid))
            assert sent.tolist() == [schedule.transfers(*sizes)[index] for sizes in grid]
        copies = np.broadcast_to(schedule.parameter_copies(stages), len(grid))
        assert copies.tolist() == [schedule.parameter_copies(sizes.stages) for sizes in grid]
        runs = np.broadcast_to(schedule.runs(*np.array(PIPELINE_GRID).T), len(PIPELINE_GRID))
        assert runs.tolist() == [schedule.runs(*sizes) for sizes in PIPELINE_GRID]


TOPOLOGY_SIZES = (2, 3, 4, 5, 8, 12, 16, 64)
SHAPES = ("links", "diameter", "mean_hops", "bisection")


def divide_into_groups(sizes: tuple[int, ...] = TOPOLOGY_SIZES, fewest: int = 2) -> Iterator[tuple[int, int, int]]:
    """Yield the members, NPUs and step of every way to divide a dimension into groups that fill it."""
    for npus in sizes:
        for members in divisors(npus):
            if members >= fewest:
                yield from ((members, npus, step) for step in divisors(npus // members))


class TopologySuite(Suite):
    """Laws of links: every NPU has some, they join all NPUs, and no traffic exceeds their bandwidth."""

    registry = topologies

    def test_its_usual_algorithm_exists(self, name: str) -> None:
        """The algorithm it recommends is registered."""
        assert self.registry[name].algorithm in algorithms

    def test_every_npu_has_a_link(self, name: str) -> None:
        """From two NPUs on, each has at least one link, and at most one per other NPU."""
        for npus in TOPOLOGY_SIZES:
            assert 1 <= self.registry[name].links(npus) <= npus - 1

    def test_the_diameter_is_at_least_one_link(self, name: str) -> None:
        """Two NPUs are at least one hop apart, and at most as many as there are NPUs."""
        for npus in TOPOLOGY_SIZES:
            assert 1 <= self.registry[name].diameter(npus) <= npus

    def test_the_mean_distance_is_at_most_the_diameter(self, name: str) -> None:
        """The mean distance is at least one hop, and at most the diameter."""
        for npus in TOPOLOGY_SIZES:
            assert 1 <= self.registry[name].mean_hops(npus) <= self.registry[name].diameter(npus)

    def test_halving_it_cuts_links(self, name: str) -> None:
        """The halves are joined, by at most as many links as leave one half."""
        for npus in TOPOLOGY_SIZES:
            cut = self.registry[name].bisection(npus)
            assert 1 <= cut <= self.registry[name].links(npus) * (npus - npus // 2)

    def test_doubling_it_never_makes_the_cut_smaller(self, name: str) -> None:
        """Twice the NPUs keep at least the links across the middle (17 on a grid, not 4 by 4, may have fewer)."""
        cuts = [self.registry[name].bisection(2**power) for power in range(1, 12)]
        assert cuts == sorted(cuts)

    def test_a_group_can_use_some_of_the_bandwidth_and_no_more_than_all(self, name: str) -> None:
        """The share of any group is above 0 and at most 1; that of a group of one is 1."""
        for members, npus, step in divide_into_groups(fewest=1):
            share = self.registry[name].share(members, npus, step)
            assert 0 < share <= 1
            assert share == 1 or members > 1

    def test_the_whole_dimension_has_the_largest_share(self, name: str) -> None:
        """No group uses more of an NPU's links than the whole dimension does."""
        share = self.registry[name].share
        assert all(share(members, npus, step) <= share(npus, npus, 1) for members, npus, step in divide_into_groups())

    def test_neighbours_in_a_group_are_linked(self, name: str) -> None:
        """They are at least one hop apart, and at most the diameter."""
        for members, npus, step in divide_into_groups():
            assert 1 <= self.registry[name].hops(members, npus, step) <= self.registry[name].diameter(npus)

    def test_an_all_gather_never_beats_the_cut(self, name: str) -> None:
        """The data that crosses the bisection takes at least the time of its links.

        With M bytes in all, each NPU receives M (p - 1) / p at the rate B share, while ceil(p / 2) M / p cross
        `bisection` links of B / links each: share ceil(p / 2) links <= (p - 1) bisection.
        """
        for npus in TOPOLOGY_SIZES:
            shape = self.registry[name]
            cut_traffic = shape.share(npus, npus, 1) * (npus - npus // 2) * shape.links(npus)
            assert cut_traffic <= (npus - 1) * shape.bisection(npus) * (1 + 1e-12)

    def test_it_is_made_of_its_links(self, name: str) -> None:
        """There are links to reach every NPU, and no more than leave the NPUs unless there are switches."""
        for npus in TOPOLOGY_SIZES:
            shape = self.registry[name]
            parts, leaving = shape.parts(npus), npus * shape.links(npus)
            assert parts.links >= 2 * (npus - 1)
            assert parts.links <= leaving or (shape.switched and parts.switch_ports >= npus)

    def test_arrays_give_what_numbers_give(self, name: str) -> None:
        """A batch of sizes, or of groups, has the results of its elements."""
        shape = self.registry[name]
        for function in SHAPES:
            assert _same_as_scalars(getattr(shape, function), [(npus,) for npus in TOPOLOGY_SIZES])
        for function in ("share", "hops"):
            assert _same_as_scalars(getattr(shape, function), list(divide_into_groups(fewest=1)))
        for part in ("links", "switch_ports", "nics"):
            assert _same_as_scalars(
                lambda npus, part=part: getattr(shape.parts(npus), part), [(npus,) for npus in TOPOLOGY_SIZES]
            )


def _same_as_scalars(function: Any, calls: list[tuple[int, ...]]) -> bool:
    """Return whether *function* of arrays is the array of its values."""
    batch = function(*(np.array(column) for column in zip(*calls, strict=True)))
    return bool(np.all(batch == np.array([function(*call) for call in calls])))
