"""The loop of every search: an agent is asked, its candidates are evaluated, and it is told."""

from __future__ import annotations

from collections.abc import Mapping

from cosmic.base.optimise import Optimum, Steps, explore, optimise, optimise_together


def halve(low: int, high: int) -> Steps[int, bool, Optimum[int]]:
    """Ask for the middle until the least number that holds is known."""
    tried = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if (yield middle) else (middle, high)
        tried += 1
    return Optimum(high, fits=True, tried=tried)


def test_steps_are_sent_what_they_asked_for_until_they_return() -> None:
    asked = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number >= 5

    assert optimise(halve(0, 8), holds) == Optimum(5, fits=True, tried=3)
    assert asked == [4, 6, 5]


def test_steps_that_ask_for_nothing_are_not_evaluated() -> None:
    assert optimise(halve(0, 1), lambda _: 1 / 0 > 0) == Optimum(1, fits=True, tried=0)


def test_agents_take_their_rounds_together_and_find_what_each_finds_alone() -> None:
    """The second ends a round before the first, and is not asked again."""
    rounds = []

    def hold(asked: Mapping[str, int]) -> dict[str, bool]:
        rounds.append(dict(asked))
        return {name: number >= 5 for name, number in asked.items()}

    found = optimise_together({"a": halve(0, 16), "b": halve(2, 6)}, hold)
    assert found == {"b": Optimum(5, fits=True, tried=2), "a": Optimum(5, fits=True, tried=4)}
    assert rounds == [{"a": 8, "b": 4}, {"a": 4, "b": 5}, {"a": 6}, {"a": 5}]


def test_a_round_is_yielded_once_the_agent_knows_it() -> None:
    class Counting:
        told: list[int]

        def __init__(self) -> None:
            self.told = []

        @property
        def stopped(self) -> str:
            return "trials" if len(self.told) == 3 else ""

        def ask(self) -> int:
            return len(self.told)

        def tell(self, outcomes: int) -> None:
            self.told.append(outcomes)

    agent = Counting()
    assert [(squared, list(agent.told)) for squared in explore(agent, lambda number: number**2)] == [
        (0, [0]),
        (1, [0, 1]),
        (4, [0, 1, 4]),
    ]
