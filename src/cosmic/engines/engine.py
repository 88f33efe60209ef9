"""What an engine is, the registry of those that others bring, and what is made of their answers.

An engine is a function from a design, or from a choice of its own fields, to metrics. COSMIC does not trust it: an
answer is checked, an exception is a reason, and a study goes on.

>>> @engine("_square", version="1", metrics={"area_mm2": "less"})
... def square(design):
...     '''A doctest.'''
...     return {"area_mm2": design["side"] ** 2}
>>> engines["_square"].ask({"side": 3})
Answer(metrics={'area_mm2': 9.0}, reasons=(), failed=False)
>>> engines["_square"].ask({}).reasons
("engine failed: KeyError: 'side'",)
"""

from __future__ import annotations

import copyreg
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from cosmic.design import schema
from cosmic.design.own import Fields
from cosmic.digests import digest
from cosmic.errors import SpecError, UnknownName, check_text, in_words, one_line, require
from cosmic.metrics import BETTER, Infeasible
from cosmic.registry import Registry

F = TypeVar("F", bound=Callable[[Any], Any])
BUILT_IN = ("analytic", "event")
"""COSMIC's own engines (`cosmic.evaluation`)."""
TAKEN = (*BUILT_IN, "ray")
LEAST, MOST = 1e-150, 1e150
"""A metric is 0 or between these, as those of COSMIC are: ratios and squares of it are numbers."""
LONGEST_REASON = 300
MOST_REASONS = 10
MOST_METRICS = 100
FAILED = "engine failed"
"""Begins the reason of a point that an engine gave no proper answer for."""


class EngineFailure(Exception):  # noqa: N818  the word that reasons have
    """An engine has no answer: its message is the reason."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine says of one point: metrics, or why it has none."""

    metrics: Mapping[str, float]
    """A number for each metric that is known."""
    reasons: tuple[str, ...] = ()
    """Why the point cannot run, or why the engine failed; none for a point that runs."""
    failed: bool = False


@dataclass(frozen=True)
class Engine:
    """An engine: its metrics, and the function that gives them."""

    name: str
    version: str
    metrics: Mapping[str, Literal["less", "more"]]
    """Each metric that it gives, and which way it is better. The first is the usual objective."""
    function: Callable[[Any], Mapping[str, float] | Infeasible]
    fields: type[Fields] | None = None
    """Its own fields; None for an engine that takes designs."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What else changes its answers, such as the command that it runs."""
    sources: tuple[str, ...] | None = None
    """The files that it is made of, as far as they are known; None for the one that its function is in."""

    def __post_init__(self) -> None:
        require(self.name not in TAKEN, "engine", self.name, "is the name of an engine of COSMIC")
        check_text(self.version, f"engine {self.name} version")
        _check_metrics(self)
        _check_fields(self)

    @property
    def __doc__(self) -> str:  # type: ignore[override]  # what `cosmic list` prints
        """The docstring of its function."""
        return inspect.getdoc(self.function) or ""

    @cached_property
    def identity(self) -> str:
        """Version and a digest of what is known of the engine: studies keep it, so that a replay knows it.

        The digest has the source file of its function, or the files that its command names, as versions are forgotten.
        What else a program is made of, nobody can tell: there the version counts.
        """
        own = (
            {} if self.fields is None else {key: str(slot.hint) for key, slot in schema.slots_of(self.fields()).items()}
        )
        about = [
            self.name,
            self.version,
            dict(self.metrics),
            own,
            {key: str(each) for key, each in self.settings.items()},
        ]
        files = [inspect.getsourcefile(inspect.unwrap(self.function))] if self.sources is None else self.sources
        return f"{self.version} ({digest(json.dumps(about), *map(_content, files))[:12]})"

    def ask(self, point: Any) -> Answer:
        """Return the answer for a design, or for a choice of the engine's own fields; only Ctrl-C is raised."""
        try:
            with redirect_stdout(sys.stderr):  # what a plugin prints is no result
                found = self.function(point)
            return self._checked(found)
        except EngineFailure as error:
            return Answer({}, (_reason(f"{FAILED}: {error}"),), failed=True)
        except (Exception, SystemExit) as error:
            return Answer({}, (_reason(f"{FAILED}: {in_words(error)}"),), failed=True)

    def _checked(self, found: Any) -> Answer:
        if isinstance(found, Infeasible):
            said = tuple(_reason(each) for each in found.reasons[:MOST_REASONS])
            return Answer({}, said or ("cannot run",))
        if not isinstance(found, Mapping):
            raise EngineFailure(f"returned {type(found).__name__}, not metrics by name or Infeasible")
        for name in found:
            if name not in self.metrics:
                raise EngineFailure(f"returned {name!r}, which is none of its metrics: {' '.join(self.metrics)}")
        return Answer({name: _number(name, value) for name, value in found.items() if value is not None})


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, bool | str) or not (number == 0 or LEAST <= number <= MOST):
        raise EngineFailure(f"returned {name} = {value!r}; a metric is 0 or a number from {LEAST:g} to {MOST:g}")
    return number


def _reason(text: object) -> str:
    """Return a reason on one line; commas separate reasons, so it has none."""
    said = one_line(str(text)).replace(", ", "; ").strip()
    return said if len(said) <= LONGEST_REASON else f"{said[: LONGEST_REASON - 1]}…"


def _content(path: str | None) -> bytes:
    try:
        return Path(path or "").read_bytes()
    except OSError:
        return b""


# ------------------------------------------------------------------------------------------------ the registry

engines: Registry[Engine] = Registry("engine", group="cosmic.engines", members=("ask", "metrics", "version"))
"""Engines that others bring, by name."""


def engine(
    name: str, *, version: str, metrics: Mapping[str, Literal["less", "more"]], fields: type[Fields] | None = None
) -> Callable[[F], F]:
    """Return a decorator that registers a function as an engine.

    It takes a `DesignPoint`, or one of its own *fields*, and returns a number for each of its *metrics*, in SI units,
    or `Infeasible` with reasons. Metrics that it leaves out are unknown.
    """

    def add(function: F) -> F:
        register(Engine(name, version, dict(metrics), function, fields))
        return function

    return add


def register(one: Engine) -> None:
    """Add an engine. Workers, which do not know the module of its fields yet, get those by the engine's name."""
    engines.register(one.name)(one)
    if one.fields is not None:
        copyreg.pickle(one.fields, lambda point: (_restored, (one.name, point.__getstate__())))


def _restored(name: str, held: Mapping[str, Any]) -> Fields:
    kind = engines[name].fields
    if kind is None:
        raise SpecError("engine", name, "has no fields of its own any more")
    return kind(**held)


def _check_metrics(one: Engine) -> None:
    where = f"engine {one.name}"
    require(0 < len(one.metrics) <= MOST_METRICS, where, len(one.metrics), f"give 1 to {MOST_METRICS} metrics")
    for name, better in one.metrics.items():
        require(isinstance(name, str) and name.isidentifier(), where, name, "a metric is a word, such as latency_s")
        require(better in ("less", "more"), f"{where} {name}", better, "say which is better: less or more")
        known = {"": BETTER} | {each.name: each.metrics for each in _registered() if each.name != one.name}
        for other, theirs in known.items():
            rule = f"{other or 'COSMIC'} has a metric of that name, of which {theirs.get(name)} is better: rename it"
            require(theirs.get(name, better) == better, f"{where} {name}", better, rule)


def _check_fields(one: Engine) -> None:
    if one.fields is None:
        return
    where = f"engine {one.name} fields"
    known = isinstance(one.fields, type) and issubclass(one.fields, Fields) and is_dataclass(one.fields)
    require(known, where, one.fields, "must be a frozen dataclass that derives from cosmic.engines.Fields")
    for each in fields(one.fields):
        given = each.default is not MISSING or each.default_factory is not MISSING
        require(given, where, each.name, "needs a default: searches are compared with a base")
    for key in schema.slots_of(one.fields()):
        require(key not in one.metrics, where, key, "is one of its metrics too: rename one")


def _registered() -> list[Engine]:
    return [engines[name] for name in engines]


def engine_of(name: str) -> Engine | None:
    """Return the engine *name* of somebody else; None for COSMIC's own. An unknown one raises `UnknownName`."""
    if name in BUILT_IN:
        return None
    if name not in engines and name not in engines.broken:
        raise UnknownName.among("engine", name, "engine", (*BUILT_IN, *engines))
    return engines[name]


def metrics_of(name: str) -> Mapping[str, str]:
    """Return the metrics that the engine *name* gives, each with the way in which it is better."""
    found = engine_of(name)
    return BETTER if found is None else found.metrics


def identity_of(name: str) -> str:
    """Return the version and digest of an engine of somebody else; empty for COSMIC's own, whose version is its own."""
    found = engine_of(name)
    return "" if found is None else found.identity


def direction(metric: str) -> str:
    """Return which way a metric is better, of COSMIC's engines or of any other: ``less`` or ``more``."""
    if metric in BETTER:
        return BETTER[metric]
    for each in _registered():
        if metric in each.metrics:
            return each.metrics[metric]
    raise SpecError("metric", metric, "no engine gives it")
