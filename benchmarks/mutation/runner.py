"""Run mutants: in place where they change functions, else with their module imported anew."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Literal

import pytest

from .live import Live, NotInPlaceError, constant
from .operators import Mutant, Probe
from .pool import Ended, forked
from .survey import Notes, Surveyed, Test, import_as, probed, run, survey, tame
from .tree import Imports, Mentions, Tree

Verdict = Literal["killed", "survived", "no coverage"]
ARGUMENTS = ("-q", "-n", "0", "-p", "no:cacheprovider", "--capture=sys", "--doctest-modules", "--assert=plain")
"""Options of pytest; it would otherwise import the modules whose doctests it collects in its own way."""
FIRST = ("numpy", "yaml", "hypothesis", "_pytest.doctest")
"""Imported before anything is forked, as every fresh run needs them."""
BUDGET_S = 8.0
"""How long the tests of one mutant may take on the unchanged sources: the rest is not asked."""
SHORTEST_LIMIT_S, LIMIT = 5.0, 10.0
"""A mutant whose tests take longer than both, the second in multiples of what they take otherwise, hangs."""
COLLECTING_S = 30.0
"""What a fresh run may take to import and to collect."""
DAY_S = 86400.0
SOME = 8
"""How many tests a fresh run asks before it collects the files of all the others."""
CONTROL = 16
"""One test in so many is asked with nothing changed, so that what fails for another reason kills no mutant."""
FAR = 1e6
"""What sorts tests that run a mutant's name before all others."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a mutant."""

    verdict: Verdict
    by: str = ""
    """The test that failed, or why the run was stopped."""
    asked: int = 0
    """How many tests cover it."""


@dataclass(slots=True)
class Job:
    """A mutant and the tests to ask, in their order."""

    mutant: Mutant
    tests: list[Test]

    @property
    def limit_s(self) -> float:
        """When its run is taken to hang."""
        return max(SHORTEST_LIMIT_S, LIMIT * sum(test.seconds for test in self.tests))


@dataclass(slots=True)
class Run:
    """Everything a run is given."""

    tree: Tree
    mutants: list[Mutant]
    tests: list[str]
    workers: int = 2
    budget_s: float = BUDGET_S
    say: Callable[[str], None] = lambda text: None

    @property
    def modules(self) -> list[str]:
        """The modules that are mutated."""
        return sorted({mutant.module for mutant in self.mutants})

    @property
    def collected(self) -> list[str]:
        """What pytest is asked to collect: the tests, and the modules for their doctests."""
        return [*self.tests, *(str(self.tree.path(module)) for module in self.modules)]


@dataclass(slots=True)
class Found:
    """Everything a run finds."""

    surveyed: Surveyed
    verdicts: dict[str, Judged] = field(default_factory=dict)
    """By the mutant's id."""
    open: set[str] = field(default_factory=set)
    """Mutants on which a run in place has no verdict."""


def execute(given: Run) -> Found:
    """Return the verdict on every mutant.

    A child collects the tests once; it forks for the survey and for every mutant, which it puts in place of what is in
    memory. Where that is not possible, or not enough, children of this process judge, which has imported nothing of the
    package.
    """
    for name in FIRST:
        with suppress(ImportError):
            import_module(name)
    (ended,) = forked([given], _in_place, lambda _: DAY_S, 1, silent=(1,))
    if ended.stopped or ended.result is None:
        raise SystemExit(f"the tests cannot be collected: {ended.stopped or 'run pytest on them to see why'}")
    found: Found = ended.result
    tests = Covering(given, found.surveyed)
    jobs = (Job(mutant, tests.of(mutant) or tests.near(mutant)) for mutant in given.mutants if mutant.id in found.open)
    for each in forked(
        jobs, lambda job: _fresh(given.tree, job), lambda job: job.limit_s + COLLECTING_S, given.workers
    ):
        found.verdicts[each.job.mutant.id] = _judged(each)
        given.say(f"{len(found.verdicts)} of {len(given.mutants)} mutants judged")
    return found


def _judged(ended: Ended[Job]) -> Judged:
    failed = ended.stopped or ended.result
    return Judged("killed" if failed else "survived", failed.strip().rpartition("\n")[2], len(ended.job.tests))


# ---- which tests to ask


class Covering:
    """The tests to ask about a mutant, in their order."""

    def __init__(self, given: Run, surveyed: Surveyed) -> None:
        self._tree, self._modules, self._surveyed = given.tree, given.modules, surveyed
        self._by_probe: dict[Probe, list[Test]] = defaultdict(list)
        for test in surveyed.tests:
            for probe in test.probes:
                self._by_probe[probe].append(test)
        self._probes_of_line: dict[tuple[Path, int], list[Probe]] = defaultdict(list)
        for probe in (*self._by_probe, *surveyed.collected, *surveyed.imported):
            self._probes_of_line[given.tree.path(probe[0]), probe[1]].append(probe)
        self._mentions = Mentions(map(given.tree.path, given.modules), at_import=False)
        self._imports = Imports(given.tree)
        self._budget_s = given.budget_s
        self.kills: Counter[tuple[str, str]] = Counter()
        """How often a test killed a mutant of a module: it is asked earlier next time."""

    def of(self, mutant: Mutant) -> list[Test]:
        """Return the tests that run a mutant; for one that runs at import, those that may use what it makes."""
        if mutant.at_import:
            return self.near(mutant)
        return self._ordered(self._close(mutant), lambda test: self.kills[mutant.module, test.name])

    def near(self, mutant: Mutant) -> list[Test]:
        """Return the tests of a mutant's module and of those that import it.

        First come those that run a line with the name that it is bound to.
        """
        close, path = {test.name for test in self._close(mutant)}, self._tree.path(mutant.module)
        modules = {each for each in self._modules if path in (self._tree.path(each), *self._imported(each))}
        tests = [
            test
            for test in self._surveyed.tests
            if test.name in close or any(module in modules for module, _, _ in test.probes)
        ]
        return self._ordered(tests, lambda test: self.kills[mutant.module, test.name] + FAR * (test.name in close))

    def _close(self, mutant: Mutant) -> Iterable[Test]:
        found = {test.name: test for probe in self._probes(mutant) for test in self._by_probe.get(probe, ())}
        return found.values()

    def run_in(self, seen: frozenset[Probe], mutant: Mutant) -> bool:
        """Return whether a mutant, or what uses the name that it is bound to, is among what was seen to run."""
        return any(probe in seen for probe in self._probes(mutant))

    def _probes(self, mutant: Mutant) -> Iterable[Probe]:
        if not mutant.at_import:
            return [mutant.probe]
        lines = self._mentions.lines.get(constant(mutant), ())
        return [probe for line in lines for probe in self._probes_of_line.get(line, ())]

    def _imported(self, module: str) -> frozenset[Path]:
        return self._imports.direct(self._tree.path(module))

    def _ordered(self, tests: Iterable[Test], worth: Callable[[Test], float]) -> list[Test]:
        """Return tests in the order in which they are asked, as many as fit the budget.

        First come those that are short and run little else, as they say the most of what they run, and worthy ones.
        """
        chosen: list[Test] = []
        spent = 0.0
        for test in sorted(tests, key=lambda test: (test.seconds * len(test.probes) / (1 + worth(test)), test.name)):
            spent += test.seconds
            if chosen and spent > self._budget_s:
                break
            chosen.append(test)
        return chosen


# ---- in place


def _in_place(given: Run) -> Found | None:
    """Run every test function once, collect the tests anew, survey them and judge mutants.

    The first time warms what the package has cached and does not depend on the targets. What test modules have made and
    kept is thrown away with them.
    """
    paths = {module: given.tree.path(module) for module in given.modules}
    import_as({str(path): probed(path.read_text(), module, str(path)) for module, path in paths.items()})
    notes = Notes()
    for module in given.modules:
        import_module(given.tree.dotted(module))
    imported = notes.take()
    arguments = [*ARGUMENTS, "--rootdir", str(given.tree.root), *given.collected]
    warming = Warming()
    pytest.main(arguments, plugins=[warming])
    given.say(f"{warming.passed} of {warming.tests} tests pass")
    Live(given.tree, given.modules).forget()
    _forget_tests(given.tree)
    notes.take()
    session = InPlace(given, imported, notes)
    pytest.main(arguments, plugins=[session])
    return session.found


def _forget_tests(tree: Tree) -> None:
    """Forget the modules of the tests."""
    for name, module in list(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "/")
        if path.is_relative_to(tree.root / "tests"):
            del sys.modules[name]


class Warming:
    """A plugin of pytest that runs every test function once."""

    tests = passed = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run each test function with the first of its parameters."""
        first = {item.nodeid.partition("[")[0]: item for item in reversed(session.items)}
        tame(first.values())
        self.tests = len(first)
        self.passed = sum(run(item)[0] for item in first.values())
        return True


class InPlace:
    """A plugin of pytest that judges mutants where tests would be run."""

    def __init__(self, given: Run, imported: frozenset[Probe], notes: Notes) -> None:
        self._given = given
        self._imported = imported
        self._notes = notes
        self.found: Found | None = None

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Survey the tests and judge every mutant that can be put in place."""
        if session.testsfailed:
            return True
        collected = self._notes.take()
        tame(session.items)
        live = Live(self._given.tree, self._given.modules)
        gc.freeze()
        found = Found(self._survey(session.items, live))
        found.surveyed.imported, found.surveyed.collected = self._imported, collected
        live.restore()
        self._judge({item.nodeid: item for item in session.items}, live, found)
        self.found = found
        return True

    def _survey(self, items: list[pytest.Item], live: Live) -> Surveyed:
        """Return what the tests do, each worker with its share of them."""
        workers = self._given.workers
        whole = Surveyed()
        shares = [items[first::workers] for first in range(workers)]
        for part in forked(shares, lambda share: survey(share, self._notes, live.forget), lambda _: DAY_S, workers):
            if part.stopped:
                raise SystemExit(f"the tests could not be run: {part.stopped}")
            whole.tests += part.result.tests
            whole.failed += part.result.failed
            whole.slow += part.result.slow
        whole.tests.sort(key=lambda test: test.name)
        self._given.say(f"{len(whole.tests)} tests reach the targets")
        return whole

    def _judge(self, items: dict[str, pytest.Item], live: Live, found: Found) -> None:
        def work(job: Job) -> str | None:
            try:
                live.put(job.mutant)
            except NotInPlaceError:
                return None
            live.forget()
            return _first_failing(items[test.name] for test in job.tests)

        def unchanged(tests: list[Test]) -> str:
            live.forget()
            return _first_failing(items[test.name] for test in tests)

        (control,) = forked([found.surveyed.tests[::CONTROL]], unchanged, lambda _: DAY_S, 1)
        if failed := control.stopped or control.result:
            raise SystemExit(f"a test fails where mutants are judged, although nothing is changed: {failed}")
        tests = Covering(self._given, found.surveyed)
        for ended in forked(self._jobs(tests, found), work, lambda job: job.limit_s, self._given.workers):
            mutant = ended.job.mutant
            judged = None if ended.result is None and not ended.stopped else _judged(ended)
            if judged is None or (judged.verdict == "survived" and tests.run_in(found.surveyed.imported, mutant)):
                found.open.add(mutant.id)
                continue
            found.verdicts[mutant.id] = judged
            tests.kills[mutant.module, judged.by] += 1
            self._given.say(f"{len(found.verdicts)} of {len(self._given.mutants)} mutants judged")

    def _jobs(self, tests: Covering, found: Found) -> Iterator[Job]:
        """Yield the mutants that tests cover."""
        for mutant in self._given.mutants:
            if asked := tests.of(mutant):
                yield Job(mutant, asked)
            elif tests.run_in(found.surveyed.imported | found.surveyed.collected, mutant):
                found.open.add(mutant.id)
            else:
                found.verdicts[mutant.id] = Judged("no coverage")


def _first_failing(items: Iterable[pytest.Item]) -> str:
    """Return the name of the first test that fails; nothing if all pass."""
    return next((item.nodeid for item in items if not run(item)[0]), "")


# ---- fresh


def _fresh(tree: Tree, job: Job) -> str:
    """Return the first test that fails with the mutant's module imported in place of the original."""
    filename = str(tree.path(job.mutant.module))
    import_as({filename: job.mutant.compile(filename)})
    for tests in (job.tests[:SOME], job.tests[SOME:]):
        asking = Asking([test.name for test in tests])
        files = list(dict.fromkeys(test.file for test in tests))
        status = pytest.main([*ARGUMENTS, "--rootdir", str(tree.root), *files], plugins=[asking]) if files else None
        if files and (asking.failed or not asking.ran):
            return asking.failed or f"collection ({status})"
    return ""


class Asking:
    """A plugin of pytest that runs some tests, in an order of its own, until one fails."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self.failed = ""
        self.ran = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests, if all files could be collected."""
        if not session.testsfailed:
            tame(session.items)
            items = {item.nodeid: item for item in session.items}
            self.failed = _first_failing(items[name] for name in self._names if name in items)
            self.ran = True
        return True


def enter(tree: Tree) -> None:
    """Make this process work in *tree*: its folder, and imports from its sources."""
    os.chdir(tree.root)
    sources = str(tree.package.parent)
    sys.path[:] = [sources, *(path for path in sys.path if path not in ("", sources, str(tree.root)))]
    os.environ["PYTHONPATH"] = sources
