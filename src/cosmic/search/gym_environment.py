"""Parameter sets as Gymnasium environments: an episode is a design, and its reward is the gain over the base design.

    cosmic/Design-v0        an action sets one parameter; an action mask says which values are still valid
    cosmic/WholeDesign-v0   an action sets all parameters, as in ArchGym; an invalid one is repaired

Importing this module registers both. ``gymnasium.make("cosmic.search.gym_environment:cosmic/Design-v0", space=...)``
imports the module. The reward is the base design's loss over this design's: 1 is as good as the base, 2 is twice as
good, 0 cannot run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError
from cosmic.search.objectives import loss_ratio, losses
from cosmic.search.optional_libraries import import_optional
from cosmic.search.problem import Problem, Results, make_problem
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space

import_optional("gymnasium", "gym", "environment", where="import")


Evaluate = Callable[[Indices], tuple[float | None, tuple[str, ...]]]
"""Returns the loss of a row, or None and the reasons why it cannot run."""
Observation = npt.NDArray[np.float32]
Mask = npt.NDArray[np.int8]
MAX_REWARD = 1e9
"""The largest reward: of a design whose loss is 0."""
IDS = {"cosmic/Design-v0": "DesignEnv", "cosmic/WholeDesign-v0": "WholeDesignEnv"}


def register() -> None:
    """Register the environments with Gymnasium, once."""
    for name, entry in IDS.items():
        if name not in gym.registry:
            gym.register(name, entry_point=f"{__name__}:{entry}")


class Rewards:
    """The rewards of the points of a parameter set: their gains over the base design."""

    def __init__(self, space: str | Path | ParameterSet, objective: str, evaluate: Evaluate | None) -> None:
        self.space = space if isinstance(space, ParameterSet) else load_space(space)
        self.problem: Problem = make_problem(self.space, (objective,))
        self.evaluate = evaluate or self._evaluate
        self.base = self.problem.base_loss
        if not 0 < self.base < np.inf:
            raise SpecError("space", self.space.name, f"its base design has no {objective} to compare with")

    def _loss(self, results: Results) -> float:
        return float(losses(self.problem.objectives, results.columns)[0, 0])

    def _evaluate(self, row: Indices) -> tuple[float | None, tuple[str, ...]]:
        results = self.problem.evaluate(row[None, :])
        if results.feasible[0]:
            return self._loss(results), ()
        return None, self.problem.explain(row)

    def outcome(self, row: Indices) -> tuple[float, dict[str, Any]]:
        """Return the reward of the design *row*, and its info."""
        evaluated_loss, reasons = self.evaluate(row)
        reward = 0.0 if evaluated_loss is None else min(loss_ratio(evaluated_loss, self.base), MAX_REWARD)
        return reward, {"row": row.copy(), "design": self.space.labels(row), "loss": evaluated_loss, "reasons": reasons}


def _as_indices(action: Any, shape: tuple[int, ...]) -> Indices:
    """Return *action* as value indices, if it is whole numbers in an array of this *shape*."""
    indices = np.asarray(action)
    if indices.dtype.kind not in "iu" or indices.shape != shape:
        raise SpecError("action", action, f"must be whole numbers, value indices, of shape {shape}")
    return indices.astype(np.intp)


class DesignEnv(gym.Env[Observation, np.int64]):
    """Each action sets the next parameter of a design; the reward comes with the last one.

    The observation is the values chosen so far, one-hot for each parameter, and which parameter is next. An action
    is the index of a value. `action_masks` gives the actions from which a valid design can still be reached. Any other
    action is replaced by the nearest of those, and ``info["wished"]`` holds the action as it was given.
    """

    def __init__(
        self, space: str | Path | ParameterSet, objective: str = "step_s", evaluate: Evaluate | None = None
    ) -> None:
        self.rewards = Rewards(space, objective, evaluate)
        self.space = self.rewards.space
        self._steps = [
            (part, level, column)
            for part, component in enumerate(self.space.components)
            for level, column in enumerate(component.columns)
        ]
        self._starts = np.concatenate(([0], np.cumsum(self.space.sizes)[:-1])).astype(np.intp)
        width = sum(self.space.sizes) + len(self._steps)
        self.action_space = gym.spaces.Discrete(max(self.space.sizes))
        self.observation_space = gym.spaces.Box(0.0, 1.0, (width,), np.float32)
        self._clear()

    def _clear(self) -> None:
        self._row = np.zeros(len(self._steps), dtype=np.intp)
        self._observation = np.zeros(self.observation_space.shape or (), dtype=np.float32)
        self._observation[sum(self.space.sizes)] = 1.0
        self._position = 0
        self._node = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a new design, with no parameter set."""
        super().reset(seed=seed, options=options)
        self._clear()
        return self._observation.copy(), self._info()

    @property
    def parameter(self) -> str | None:
        """The name of the parameter that the next action sets; None when all are set."""
        return (
            None if self._position == len(self._steps) else self.space.parameters[self._steps[self._position][2]].name
        )

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return which actions can still lead to a valid design, as sb3-contrib expects it."""
        mask = np.zeros(max(self.space.sizes), dtype=bool)
        if self._position < len(self._steps):
            part, level, _ = self._steps[self._position]
            live = self.space.components[part].diagram.live[level][self._node]
            mask[: len(live)] = live
        return mask

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.action_masks().astype(np.int8), "parameter": self.parameter}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Set the next parameter to the value with the index *action*."""
        wished = int(_as_indices(action, ()))
        live = np.flatnonzero(self.action_masks())
        if not len(live):
            raise gym.error.ResetNeeded("The design is complete: call reset() to begin another.")
        value = int(live[np.abs(live - wished).argmin()])
        self._choose(value)
        done = self._position == len(self._steps)
        reward, outcome = self.rewards.outcome(self._row) if done else (0.0, {})
        info = self._info() | outcome
        if value != wished:
            info["wished"] = wished
        return self._observation.copy(), reward, done, False, info

    def _choose(self, value: int) -> None:
        """Set the next parameter, and go on to the one after it."""
        part, level, column = self._steps[self._position]
        self._row[column] = value
        self._observation[self._starts[column] + value] = 1.0
        turn = sum(self.space.sizes) + self._position
        self._observation[turn] = 0.0
        self._node = int(self.space.components[part].diagram.children[level][self._node, value])
        self._position += 1
        if self._position < len(self._steps):
            self._observation[turn + 1] = 1.0
            if self._steps[self._position][0] != part:
                self._node = 0


class WholeDesignEnv(gym.Env[Observation, npt.NDArray[np.int64]]):
    """Each action sets all parameters: every step is a complete design.

    An action is a row of value indices. An invalid row is repaired, and ``info["wished"]`` holds the row as it was
    given. The observation is the previous design, one-hot for each parameter; all zeros at first.
    """

    def __init__(
        self, space: str | Path | ParameterSet, objective: str = "step_s", evaluate: Evaluate | None = None
    ) -> None:
        self.rewards = Rewards(space, objective, evaluate)
        self.space = self.rewards.space
        self.action_space = gym.spaces.MultiDiscrete(list(self.space.sizes))
        self.observation_space = gym.spaces.Box(0.0, 1.0, (sum(self.space.sizes),), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode, with no design."""
        super().reset(seed=seed, options=options)
        return np.zeros(sum(self.space.sizes), dtype=np.float32), {}

    def step(self, action: npt.NDArray[np.int64]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Evaluate the design nearest to *action*; the episode ends with it."""
        wished = _as_indices(action, (len(self.space.parameters),))[None, :]
        rows = self.space.repair(wished)
        reward, info = self.rewards.outcome(rows[0])
        if not np.array_equal(rows, wished):
            info["wished"] = wished[0]
        return to_one_hot(self.space, rows)[0].astype(np.float32), reward, True, False, info


def to_one_hot(space: ParameterSet, rows: Indices) -> npt.NDArray[np.float64]:
    """Return a 0/1 vector for each row, with an entry for each value of each parameter."""
    starts = np.concatenate(([0], np.cumsum(space.sizes)[:-1])).astype(np.intp)
    encoded = np.zeros((len(rows), sum(space.sizes)))
    np.put_along_axis(encoded, rows + starts, 1.0, axis=1)
    return encoded


register()
