"""Mutation testing: the operators, and the verdicts on a toy whose tests are known to be lacking."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from mutation.operators import mutants  # noqa: E402  it is no package that is installed
from mutation.pool import forked  # noqa: E402

TOY = '''
"""A toy."""

from dataclasses import dataclass
from functools import cache, cached_property

RATE = 3.0
DOUBLE = 2 * RATE
SPARE = 7.0


@cache
def area(a, b):
    """Return a product.

    >>> area(2, 3)
    6
    """
    return a * b


def around(a):
    def inner(b):
        return a - b

    return inner(1)


def loose(a):
    return a + 1


def never(a):
    return a + 2


@dataclass(frozen=True)
class Box:
    side: float = 4.0

    @property
    def rated(self):
        return self.side * RATE

    @cached_property
    def doubled(self):
        return self.side + DOUBLE
'''
TESTS = """
import pytest
from toy.model import Box, area, around, loose

BOX = Box()


def test_area():
    assert area(4, 5) == 20


def test_around():
    assert around(5) == 4


def test_loose():
    assert loose(5) > 0


def test_box():
    assert BOX.rated == 12
    assert BOX.doubled == 10
"""

FROZEN = """
import gc


def pytest_collection_finish():
    gc.freeze()
"""
"""As the project's own tests do: what is frozen is mutated all the same."""


KILLED = 22


def described(source: str) -> set[str]:
    return {mutant.description for mutant in mutants(source, "m.py")}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a + b", {"a + b -> a - b", "a + b -> a", "a + b -> b"}),
        ("a / b", {"a / b -> a * b", "a / b -> a", "a / b -> 1 / b"}),
        ("a - b", {"a - b -> a + b", "a - b -> a", "a - b -> -b"}),
        ("a ** b", {"a ** b -> a * b", "a ** b -> a"}),
        ("a // b", {"a // b -> a / b", "a // b -> a"}),
        ("-a", {"-a -> a"}),
        ("not a", {"not a -> a"}),
        ("a < b", {"a < b -> a <= b"}),
        ("a == 'x'", {"a == 'x' -> a != 'x'", "a == 'x' -> a == 'no such case'"}),
        ("a in ('x', b)", {"a in ('x', b) -> a not in ('x', b)", "a in ('x', b) -> a in ('no such case', b)"}),
        ("a and b", {"a and b -> a or b", "a and b -> a", "a and b -> b"}),
        ("a if c else b", {"a if c else b -> a", "a if c else b -> b"}),
        ("f(3)", {"3 -> 4", "3 -> 6"}),
        ("f(0)", {"0 -> 1"}),
        ("f(True)", {"True -> False"}),
        ("np.maximum(a, b)", {"np.maximum(a, b) -> np.minimum(a, b)"}),
        ("max(a, b)", {"max(a, b) -> min(a, b)"}),
        ("np.ceil(a)", {"np.ceil(a) -> np.floor(a)"}),
        (
            "np.where(c, a, b)",
            {"np.where(c, a, b) -> np.where(True, a, b)", "np.where(c, a, b) -> np.where(False, a, b)"},
        ),
        ("[a for a in b if a]", {"[a for a in b if a] -> [a for a in b if True]"}),
    ],
)
def test_operators_change_one_thing_at_a_time(source: str, expected: set[str]) -> None:
    assert described(f"def f(a, b, c): return {source}") == expected


def test_a_branch_is_always_or_never_taken() -> None:
    assert described("def f(a):\n if a:\n  return a") == {"if a -> if True", "if a -> if False"}


@pytest.mark.parametrize(
    "source",
    [
        '"""Twice 2 + 2."""',
        "def f(a: 'int' = x) -> Literal[3]: return a",
        "def f(a): raise ValueError(1 + 1)",
        "def f(a): require(a, 'a', 1 + 1, f'at most {2 + 2}')",
        "def __repr__(self): return 1 + 1",
        "@lru_cache(maxsize=3)\ndef f(a): return a",
        "if TYPE_CHECKING:\n    x = 3",
        "x = 3  # pragma: no mutate",
        "def f(a, b): return zip(a, b, strict=True)",
    ],
)
def test_what_is_no_physics_stays(source: str) -> None:
    assert described(source) == set()


def test_mutants_are_told_apart_and_keep_their_place_in_the_sample() -> None:
    source = "def f(a, b, c): return a + b + c"
    found = mutants(source, "m.py")
    assert len({mutant.id for mutant in found}) == len(found) == 6
    moved = mutants(f"\n\n{source}", "m.py")
    assert [mutant.falls_in(2) for mutant in found] == [mutant.falls_in(2) for mutant in moved]


def test_a_child_that_hangs_or_dies_is_stopped_and_changes_nothing_here() -> None:
    kept = [0]

    def work(job: str) -> int:
        kept[0] = 1
        while job == "hangs":
            pass
        return 1 // (job != "fails")

    found = {ended.job: ended for ended in forked(["runs", "hangs", "fails"], work, lambda _: 0.3, 2)}
    assert (found["runs"].result, found["runs"].stopped, kept) == (1, "", [0])
    assert found["hangs"].stopped == "time"
    assert "ZeroDivisionError" in found["fails"].stopped


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of the mutants of the toy that were not killed, by line and description."""
    root = tmp_path_factory.mktemp("toy")
    files = {
        "src/toy/__init__.py": "",
        "src/toy/model.py": TOY,
        "tests/test_model.py": TESTS,
        "tests/conftest.py": FROZEN,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    options = ["--package", "src/toy", "--only", "model.py", "--tests", "tests", "--workers", "1", "--json"]
    command = [sys.executable, str(BENCHMARKS / "mutation"), "--root", str(root), *options]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(ended.stdout)
    assert not found["tests_that_fail"], found
    assert found["total"]["killed"] == KILLED
    return {f"{row['text']} | {row['mutant']}": row["verdict"] for row in found["survivors"]}


@pytest.mark.long
def test_only_what_no_test_notices_survives(verdicts: dict[str, str]) -> None:
    lines = {line.partition(" | ")[0] for line, verdict in verdicts.items() if verdict == "survived"}
    assert lines == {"SPARE = 7.0", "return a + 1"}


@pytest.mark.long
def test_what_no_test_runs_is_said_to_have_no_coverage(verdicts: dict[str, str]) -> None:
    lines = {line.partition(" | ")[0] for line, verdict in verdicts.items() if verdict == "no coverage"}
    assert lines == {"return a + 2"}
