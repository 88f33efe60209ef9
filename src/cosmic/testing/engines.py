"""What must hold for every engine that somebody brings."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, ClassVar

from cosmic.engines import Engine, engines
from cosmic.mapping.completing import load_design
from cosmic.testing.suite import Suite


class EngineSuite(Suite):
    """Laws of answers. Give `points` an engine's interesting cases; else its defaults, or a small design, are asked."""

    registry = engines
    points: ClassVar[Sequence[Any]] = ()
    """Designs, or choices of the engine's own fields, of which at least one can run."""

    def asked(self, engine: Engine) -> Sequence[Any]:
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
