"""Reinforcement learning on a parameter set: one parameter a step, action masks for valid values, reward at the end.

With sb3-contrib installed (``pip install sb3-contrib``) this trains its MaskablePPO; without it, the cross-entropy
method on a table, in twenty lines, which needs only Gymnasium.

    python examples/gymnasium_agent.py
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np

DESIGN = "cosmic.search.gym_environment:cosmic/Design-v0"
SPACE = "cosmic-2048-full-stack"
DESIGNS = 800


class Best(gym.Wrapper[Any, Any, Any, Any]):
    """Remembers the best design."""

    reward, design = 0.0, None

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Record the reward of each complete design."""
        observation, reward, done, cut, info = self.env.step(action)
        if done and float(reward) > self.reward:
            self.reward, self.design = float(reward), info["design"]
        return observation, reward, done, cut, info


def cross_entropy(env: Best, designs: int, batch: int = 40, elite: int = 6, rate: float = 0.3) -> None:
    """Sample designs from a table of probabilities; move it towards the values of the best of each batch."""
    rng = np.random.default_rng(0)
    turns, values = len(env.get_wrapper_attr("space").parameters), int(env.action_space.n)  # type: ignore[attr-defined]
    table = np.ones((turns, values)) / values
    for _ in range(designs // batch):
        episodes = []
        for _ in range(batch):
            _, info = env.reset()
            actions, reward = [], 0.0
            for chances in table:
                possible = (chances + 1e-6) * info["action_mask"]
                actions.append(int(rng.choice(values, p=possible / possible.sum())))
                _, reward, _, _, info = env.step(actions[-1])
            episodes.append((reward, actions))
        best = np.array([actions for _, actions in sorted(episodes, reverse=True)[:elite]])
        table = (1 - rate) * table + rate * (best[:, :, None] == np.arange(values)).mean(axis=0)


def main() -> None:
    """Train, and print the best design."""
    env = Best(gym.make(DESIGN, space=SPACE))
    if find_spec("sb3_contrib"):
        from sb3_contrib import MaskablePPO  # noqa: PLC0415  only where it is installed

        steps = DESIGNS * len(env.get_wrapper_attr("space").parameters)
        MaskablePPO("MlpPolicy", env, n_steps=1024, batch_size=256, seed=0, device="cpu").learn(steps)
        print(f"MaskablePPO, {DESIGNS} designs")
    else:
        cross_entropy(env, DESIGNS)
        print(f"cross-entropy method, {DESIGNS} designs")
    print(f"the best is {env.reward:.2f} times as fast as the base of {SPACE}:")
    for name, value in (env.design or {}).items():
        print(f"  {name:24} {value}")


if __name__ == "__main__":
    main()
