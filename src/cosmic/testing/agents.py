"""What must hold for every agent."""

from __future__ import annotations

import numpy as np

from cosmic.exploration.agent import Agent, Outcomes, Task, agents
from cosmic.exploration.problem import make_problem
from cosmic.exploration.trials import Ledger
from cosmic.psa.diagram import Indices
from cosmic.psa.files import load_space
from cosmic.psa.space import ParameterSet
from cosmic.testing.suite import Suite


def small_space() -> ParameterSet:
    """Return a small space with constraints."""
    return load_space("cosmic-512-full-stack").restrict(["workload", "network"])


def small_task(objectives: int = 1) -> Task:
    """Return a task on the small space."""
    return Task(small_space(), trials=60, objectives=objectives)


def worth(rows: Indices, objectives: int = 1) -> Outcomes:
    """Return synthetic outcomes: the loss is the sum of all indices, and a second loss its negative."""
    total = rows.sum(axis=1).astype(float)
    losses = np.stack([total, -total], axis=1)[:, :objectives]
    return Outcomes(rows, losses, np.zeros(len(rows)))


def mixed(rows: Indices) -> Outcomes:
    """Return outcomes of which every second is infeasible, half of these by no measurable amount."""
    known = worth(rows)
    place = np.arange(len(rows))
    excess = np.select([place % 4 == 1, place % 4 == 3], [0.5, np.inf], 0.0)
    return Outcomes(rows, np.where((excess == 0)[:, None], known.losses, np.nan), excess)


def hopeless(rows: Indices) -> Outcomes:
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
            agent.tell(mixed(rows))

    def test_the_same_seed_gives_the_same_search(self, name: str) -> None:
        """Two agents with the same seed and the same outcomes propose the same points."""
        task = small_task()
        first, second = self.started(name, task, seed=3), self.started(name, task, seed=3)
        for _ in range(3):
            rows, twin = first.ask(10), second.ask(10)
            assert np.array_equal(rows, twin)
            first.tell(mixed(rows))
            second.tell(mixed(twin))

    def test_it_survives_points_that_cannot_run(self, name: str) -> None:
        """Batches without a feasible point are allowed, first and later."""
        task = small_task()
        agent = self.started(name, task)
        for outcomes in (hopeless, hopeless, worth, hopeless):
            rows = agent.ask(10)
            assert task.space.contains(rows).all()
            agent.tell(outcomes(rows))
        assert task.space.contains(agent.ask(10)).all()

    def test_a_tell_may_be_late_partial_or_of_other_points(self, name: str) -> None:
        """Two asks before a tell, and tells in another order, in parts, or of points never proposed, are allowed."""
        task = small_task()
        agent = self.started(name, task)
        early, late = agent.ask(6), agent.ask(6)
        agent.tell(worth(late[::-1]))
        agent.tell(worth(early[:2]))
        agent.tell(worth(early[2:]))
        strangers = task.space.sample(4, np.random.default_rng(9))
        agent.tell(worth(strangers))
        agent.tell(worth(strangers[:0]))
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
            agent.tell(worth(rows, objectives=2))

    def test_it_ends_a_small_space(self, name: str) -> None:
        """It proposes the points that are left, until it has visited all."""
        space = load_space("cosmic-512-full-stack").restrict(["workload"])
        agent = self.started(name, Task(space, trials=space.valid))
        seen: set[object] = set()
        for _ in range(60):
            rows = agent.ask(10)
            seen.update(space.keys(rows))
            agent.tell(worth(rows))
        assert len(seen) == space.valid
