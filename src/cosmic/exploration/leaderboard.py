"""A kept leaderboard: one problem, and what agents and people entered. Nothing counts that was not evaluated here.

    BOARD/problem.json      the space, objective, limits, budget and seeds, fixed when it is made
    BOARD/entries.jsonl     a line an entry: a design, or an agent with its settings and what each seed found

A design enters as a file: it must be a point of the space, and gets the value that this evaluator finds. An agent
enters by its name: it is run here, with the board's budget and seeds. Whenever the board is shown, designs and winners
are evaluated again; where that gives another value than the one that was kept, the entry says so and the new value
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.catalog.yaml_files import parse_json
from cosmic.digests import digest
from cosmic.errors import SpecError, check_text, require
from cosmic.exploration.comparison import behind, value_of
from cosmic.exploration.inputs import Options, make_inputs
from cosmic.exploration.objectives import losses
from cosmic.exploration.problem import Problem
from cosmic.exploration.tournament import LISTED, SAME, hold_tournament, optimum
from cosmic.files import exists, make_folder, read_text, write_text
from cosmic.loading.designs import load_design
from cosmic.psa.files import load_space
from cosmic.strict_json import json_text

PROBLEM, ENTRIES = "problem.json", "entries.jsonl"
MOST_ENTRIES = 10_000
Losses = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Rules:
    """What all entries of a board have in common."""

    space: str
    """A space as `load_space` takes it: a name of the catalog, MODEL@SYSTEM, or a file."""
    identity: str
    """Digest of the space: a file that has changed since is another problem."""
    objective: str
    constraints: tuple[str, ...]
    trials: int
    """Designs that a search of an agent may evaluate."""
    seeds: int
    """Searches of an agent: seeds 0, 1, …"""


@dataclass(frozen=True)
class Line:
    """A line of the board."""

    name: str
    kind: str
    """``agent`` or ``design``."""
    value: float | None
    """The objective; of an agent, the median over its seeds. None where the design can no longer run."""
    best: float | None
    """The best of its seeds; of a design, its value."""
    regret: float
    """Above the optimum of a set that can be gone through, or above the best entry, as a share of it."""
    confirmed: bool
    """Whether evaluating it again gave what was kept."""
    digest: str
    """Of what was entered."""


def make_board(
    folder: str | Path,
    space: str,
    *,
    objective: str = "",
    constraints: tuple[str, ...] = (),
    trials: int = 1000,
    seeds: int = 5,
) -> Rules:
    """Make a board in *folder* for a space; by default, for its own objective."""
    require(not exists(Path(folder) / PROBLEM), "board", str(folder), "is a leaderboard already")
    require(seeds >= 1, "seeds", seeds, "give at least one")
    problem = _problem(space, objective, constraints, trials)
    rules = Rules(space, problem.space.identity, problem.objectives[0], constraints, trials, seeds)
    make_folder(folder, "board")
    write_text(Path(folder) / PROBLEM, json_text(asdict(rules), indent=1) + "\n", "board")
    return rules


def enter_design(folder: str | Path, name: str, source: str | Path) -> None:
    """Enter the design in a file: it must be a point of the board's space, and run within its limits."""
    _, problem = open_board(folder)
    row = problem.space.row_of(load_design(source))
    if row is None:
        raise SpecError("design", str(source), "is no point of the board's space")
    [found] = _evaluated(problem, [row.tolist()])
    require(bool(np.isfinite(found)), "design", str(source), "cannot run, or breaks a limit of the board")
    _append(folder, {"name": name, "kind": "design", "rows": [row.tolist()], "losses": [float(found)]})


def enter_agent(
    folder: str | Path, agent: str, name: str = "", watch: Callable[[str, int], None] | None = None
) -> None:
    """Enter an agent, with settings as a tournament takes them: it is run here, by the board's rules."""
    rules, problem = open_board(folder)
    _check_name(folder, name or agent)
    options = Options(trials=rules.trials, objectives=[rules.objective], constraints=list(rules.constraints))
    [standing] = hold_tournament(problem.space, [agent], seeds=rules.seeds, options=options, watch=watch).standings
    rows = [None if entry.row is None else list(entry.row) for entry in standing.entries]
    kept = [entry.course.best for entry in standing.entries]
    _append(folder, {"name": name or agent, "kind": "agent", "agent": agent, "rows": rows, "losses": kept})


def show_board(folder: str | Path) -> list[Line]:
    """Return the board, the best first, with every design and every winner evaluated again."""
    rules, problem = open_board(folder)
    entries = list(_entries(folder))
    found = [_evaluated(problem, entry["rows"]) for entry in entries]
    listed = problem.space.valid <= LISTED and problem.engine == "analytic"
    least = optimum(problem) if listed else min((float(each.min()) for each in found), default=np.inf)
    lines = [_line(rules, entry, again, least) for entry, again in zip(entries, found, strict=True)]
    return sorted(lines, key=lambda line: (line.regret, line.name))


def open_board(folder: str | Path) -> tuple[Rules, Problem]:
    """Return the rules of a board, and its problem; refuse a space that has changed since."""
    path = Path(folder) / PROBLEM
    require(exists(path), "board", str(folder), f"is no leaderboard: it has no {PROBLEM} ('cosmic leaderboard new')")
    tree = parse_json(read_text(path, "board"), str(path))
    try:
        rules = Rules(**{**tree, "constraints": tuple(tree["constraints"])})
    except (TypeError, KeyError):
        raise SpecError("board", str(path), "does not hold the rules of a leaderboard") from None
    problem = _problem(rules.space, rules.objective, rules.constraints, rules.trials)
    same = problem.space.identity == rules.identity
    require(same, "board", rules.space, "is another space now: entries of the old one cannot be compared with new ones")
    return rules, problem


def _problem(space: str, objective: str, constraints: tuple[str, ...], trials: int) -> Problem:
    options = Options(trials=trials, objectives=[objective] if objective else [], constraints=list(constraints))
    return make_inputs(load_space(space), options).problem


def _evaluated(problem: Problem, rows: list[list[int] | None]) -> Losses:
    """Return the loss of each design now; infinite where there is none, it cannot run, or it breaks a limit."""
    found = np.full(len(rows), np.inf)
    places = [place for place, row in enumerate(rows) if row is not None]
    if places:
        table = np.array([rows[place] for place in places], dtype=np.intp)
        results = problem.evaluate(table)
        values = losses(problem.objectives[:1], results.columns)[:, 0]
        found[places] = np.where(results.feasible & np.isfinite(values), values, np.inf)
    return found


def _line(rules: Rules, entry: Mapping[str, Any], found: Losses, least: float) -> Line:
    kept = np.array([np.inf if each is None else each for each in entry["losses"]], dtype=float)
    middle = float(np.median(found))
    return Line(
        name=entry["name"],
        kind=entry["kind"],
        value=value_of(rules.objective, middle),
        best=value_of(rules.objective, float(found.min())),
        regret=behind(middle, least),
        confirmed=bool(np.isclose(found, kept, SAME, 0.0).all()),
        digest=digest(json_text(entry, sort_keys=True))[:12],
    )


def _entries(folder: str | Path) -> Iterator[dict[str, Any]]:
    path = Path(folder) / ENTRIES
    if exists(path):
        for number, text in enumerate(read_text(path, "board").splitlines(), 1):
            entry = parse_json(text, f"{path} line {number}")
            whole = isinstance(entry, dict) and {"name", "kind", "rows", "losses"} <= entry.keys()
            require(whole, "board", str(path), f"line {number} is no entry")
            yield entry


def _check_name(folder: str | Path, name: str) -> None:
    check_text(name, "name")
    require(all(each["name"] != name for each in _entries(folder)), "name", name, "is on the board already")


def _append(folder: str | Path, entry: dict[str, Any]) -> None:
    _check_name(folder, entry["name"])
    known = list(_entries(folder))
    require(len(known) < MOST_ENTRIES, "board", len(known), f"holds at most {MOST_ENTRIES:,} entries")
    write_text(Path(folder) / ENTRIES, "".join(json_text(each) + "\n" for each in (*known, entry)), "board")
