"""Environments: masks are exact, rewards compare with the base, Gymnasium's own checks pass."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.evaluation import evaluate
from cosmic.search.gym_environment import IDS, DesignEnv, WholeDesignEnv, to_one_hot
from cosmic.search.space.diagram import Indices
from cosmic.search.space.space_files import load_space
from cosmic.simulate.metrics import Infeasible

SPACE = load_space("cosmic-1024-full-stack")
WORKLOAD = SPACE.restrict(["workload"])


def free(row: Indices) -> tuple[float | None, tuple[str, ...]]:
    """Say that a row costs the sum of its indices, and that even sums cannot run."""
    total = int(row.sum())
    return (float(total), ()) if total % 2 else (None, ("is even",))


def episode(env: DesignEnv, actions: Indices) -> tuple[float, dict[str, Any]]:
    """Return reward and info of a design made by *actions*."""
    env.reset()
    reward, done = 0.0, False
    info: dict[str, Any] = {}
    for action in actions:
        assert not done
        _, reward, done, _, info = env.step(action)
    assert done
    return reward, info


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_finds_nothing_to_complain_about(name: str) -> None:
    env = gym.make(name, space=SPACE)
    check_env(env.unwrapped)


def test_an_environment_can_be_made_without_importing_this_package() -> None:
    code = (
        "import gymnasium; env = gymnasium.make('cosmic.search.gym_environment:cosmic/Design-v0',"
        "space='cosmic-1024-full-stack', objective='mfu'); print(env.reset()[1]['parameter'])"
    )
    found = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "workload.dp"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_what_the_mask_allows_always_ends_in_a_valid_design(seed: int) -> None:
    env, rng = DesignEnv(SPACE, evaluate=free), np.random.default_rng(seed)
    _, info = env.reset()
    done = False
    while not done:
        assert np.array_equal(info["action_mask"], env.action_masks())
        action = rng.choice(np.flatnonzero(info["action_mask"]))
        _, _, done, _, info = env.step(action)
        assert "wished" not in info
    assert SPACE.contains(info["row"][None, :])[0]
    assert not info["action_mask"].any()


def test_the_mask_allows_every_valid_design() -> None:
    env = DesignEnv(WORKLOAD, evaluate=free)
    order = [column for component in WORKLOAD.components for column in component.columns]
    for row in WORKLOAD.enumerate():
        _, info = episode(env, row[order])
        assert np.array_equal(info["row"], row)
        assert "wished" not in info


def test_an_impossible_action_is_taken_for_the_nearest_possible_one() -> None:
    env = DesignEnv(WORKLOAD, evaluate=free)
    env.reset()
    assert env.parameter == "workload.dp"
    env.step(np.int64(9))  # dp 512
    assert np.flatnonzero(env.action_masks()).tolist() == [0, 1]  # cp 1 or 2
    _, _, _, _, info = env.step(np.int64(7))
    assert info["wished"] == 7
    assert env._row[1] == 1


def test_the_reward_is_the_gain_over_the_base_design() -> None:
    env = WholeDesignEnv(WORKLOAD)
    base = evaluate(SPACE.base)
    assert not isinstance(base, Infeasible)
    ran = 0
    for row in WORKLOAD.sample(20, np.random.default_rng(0)):
        _, reward, done, _, info = env.step(row)
        found = evaluate(WORKLOAD.point(row))
        assert done
        if isinstance(found, Infeasible):
            assert (reward, info["loss"], info["reasons"]) == (0.0, None, found.reasons)
        else:
            ran += 1
            assert reward == pytest.approx(base.step_s / found.step_s)
    assert 0 < ran < 20


def test_more_of_what_is_maximised_is_a_larger_reward() -> None:
    slow, fast = (WholeDesignEnv(WORKLOAD, objective=name) for name in ("step_s", "tokens_per_s"))
    for row in WORKLOAD.sample(10, np.random.default_rng(0)):
        assert slow.step(row)[1] == pytest.approx(fast.step(row)[1])


def test_both_environments_agree_on_a_design() -> None:
    one, whole = DesignEnv(SPACE), WholeDesignEnv(SPACE)
    order = [column for component in SPACE.components for column in component.columns]
    for row in SPACE.sample(5, np.random.default_rng(3)):
        assert episode(one, row[order])[0] == whole.step(row)[1]


def test_a_one_hot_vector_has_a_one_for_each_parameter() -> None:
    encoded = to_one_hot(SPACE, SPACE.sample(10, np.random.default_rng(0)))
    assert encoded.shape == (10, sum(SPACE.sizes))
    assert set(np.unique(encoded)) == {0.0, 1.0}
    assert (encoded.sum(axis=1) == len(SPACE.parameters)).all()


def test_a_whole_design_that_is_not_valid_is_repaired() -> None:
    env = WholeDesignEnv(WORKLOAD, evaluate=free)
    _, reward, _, _, info = env.step(np.array([9, 9, 2, 0]))
    assert info["wished"].tolist() == [9, 9, 2, 0]
    assert WORKLOAD.contains(info["row"][None, :])[0]
    assert reward == (0.0 if info["row"].sum() % 2 == 0 else env.rewards.base / info["row"].sum())


def test_a_finished_design_must_be_followed_by_a_reset() -> None:
    env = DesignEnv(WORKLOAD, evaluate=free)
    episode(env, np.zeros(4, dtype=np.intp))
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.int64(0))


def test_an_objective_that_the_base_does_not_have_is_refused() -> None:
    with pytest.raises(SpecError, match="it is a metric of prefill or serving a load, and the task is training"):
        DesignEnv(SPACE, objective="ttft_s")


@pytest.mark.parametrize("action", [0.5, np.nan, None, "a", [0], True])
def test_an_action_that_is_no_index_is_refused(action: Any) -> None:
    env = DesignEnv(WORKLOAD)
    env.reset()
    with pytest.raises(SpecError, match="action = "):
        env.step(action)
