"""Agents and people compared on one problem: tournaments, and a leaderboard that is kept.

In a tournament agents have one budget and several seeds each; every winner is evaluated again.

A kept leaderboard has one problem, and what agents and people entered. Nothing counts that was not evaluated here.

    BOARD/problem.json      the space, objective, limits, budget and seeds, fixed when it is made
    BOARD/entries.jsonl     a line an entry: a design, or an agent with its settings and what each seed found

A design enters as a file: it must be a point of the space, and gets the value that this evaluator finds. An agent
enters by its name: it is run here, with the board's budget and seeds. Whenever the board is shown, designs and winners
are evaluated again; where that gives another value than the one that was kept, the entry says so and the new value
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from cosmic.base.caching import digest
from cosmic.base.errors import SpecError, check_text, require
from cosmic.base.files import dump_json, exists, make_folder, read_text, write_text
from cosmic.base.json_types import PositiveCount, ShareOrNull, one_of, unit
from cosmic.design.plain_data import parse_json
from cosmic.evaluation import evaluate
from cosmic.search.agent import parse_agent
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.objectives import loss, losses
from cosmic.search.problem import Problem
from cosmic.search.search_inputs import DEFAULT_TRIALS, MAX_TRIALS, Options, make_inputs
from cosmic.search.search_loop import Found, PoolOptions, run_search
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.search.study.study_comparison import Course, course_of, metric_of_loss, share_behind
from cosmic.simulate.metrics import Metrics
from cosmic.simulate.user_engines import read_own_point

# ---- Tournaments: agents on one problem with one budget and several seeds each; every winner is evaluated again

ENUMERATED_DESIGNS = 20_000
"""Spaces up to this size are enumerated, so that regret is against the true optimum."""
MAX_SEEDS = 1000
SAME_LOSS = 1e-9
"""Relative tolerance for a winner that is evaluated alone: sums over one design round otherwise than over a batch."""


@dataclass(frozen=True)
class TournamentEntry:
    """One search of the tournament."""

    course: Course
    elapsed_s: float
    point: dict[str, Any] | None
    """The winner, as files write it; None where nothing could run."""
    checked: bool
    """Whether the winner, evaluated alone, has the loss that the search reported."""
    row: tuple[int, ...] | None = None
    """The winner as the set indexes it."""


@dataclass(frozen=True)
class Standing:
    """The searches of one agent, over all seeds."""

    agent: str
    entries: tuple[TournamentEntry, ...]
    target: float
    """The least known loss of the problem."""

    @property
    def regrets(self) -> list[float]:
        """The regret of each search: its best loss above the target, as a share of the target."""
        return [share_behind(entry.course.best, self.target) for entry in self.entries]

    def row(self, objective: str) -> dict[str, Any]:
        """Return the agent's row of the leaderboard."""
        regrets = sorted(self.regrets)
        near = [entry.course.near(self.target) for entry in self.entries]
        reached = [count for count in near if count is not None]
        bests = [entry.course.best for entry in self.entries]
        return {
            "agent": self.agent,
            "median": metric_of_loss(objective, float(np.median(bests))),
            "best": metric_of_loss(objective, min(bests)),
            "regret_mean": float(np.mean(regrets)),
            "regret_median": float(np.median(regrets)),
            "regret_worst": regrets[-1],
            "within_2_percent": sum(regret <= 0.02 for regret in regrets),
            "seeds": len(regrets),
            "trials_to_5_percent": float(np.median(reached)) if 2 * len(reached) > len(near) else None,
            "elapsed_s": float(np.mean([entry.elapsed_s for entry in self.entries])),
            "checked": all(entry.checked for entry in self.entries),
        }


@dataclass(frozen=True)
class Leaderboard:
    """The result of a tournament, the best agent first."""

    objective: str
    trials: int
    optimum: str
    """What regret is relative to: the ``exhaustive`` optimum, a ``proven`` one, or the best that any ``found``."""
    standings: tuple[Standing, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each agent."""
        return [standing.row(self.objective) for standing in self.standings]


def hold_tournament(
    space: ParameterSet,
    names: Sequence[str],
    *,
    seeds: int = 5,
    options: Options,
    workers: int = 1,
    watch: Callable[[str, int], None] | None = None,
    prove: Callable[[Problem], float | None] | None = None,
) -> Leaderboard:
    """Return the leaderboard of the agents *names* with the same budget; *options* hold all but agent and seed.

    A name may have settings, as in ``genetic(population=64)``: the same agent with others is another rival.
    *prove* gives the least loss of a set that is too large to go through, or None; regret is then against it.
    """
    require(bool(names), "agents", list(names), "name at least one")
    rivals = {name: parse_agent(name) for name in names}
    repeated = [name for index, name in enumerate(names) if name in names[:index]]
    require(not repeated, "agents", ", ".join(repeated), "is named twice")
    require(seeds >= 1, "seeds", seeds, "give at least one")
    trials = DEFAULT_TRIALS if options.trials is None else options.trials
    total_trials = len(names) * seeds * trials
    rule = f"at most {MAX_TRIALS:,} trials are run in all: fewer agents, seeds or trials"
    require(total_trials <= MAX_TRIALS, "agents × seeds × trials", total_trials, rule)
    require(seeds <= MAX_SEEDS, "seeds", seeds, f"give at most {MAX_SEEDS:,}")
    pool = PoolOptions(workers)
    entries: dict[str, list[TournamentEntry]] = {name: [] for name in names}
    for seed in range(seeds):
        for name in names:
            if watch is not None:
                watch(name, seed)
            agent, settings = rivals[name]
            chosen = replace(options, agent=agent, settings=settings, seed=seed, trials=trials)
            inputs = make_inputs(space, chosen)
            entries[name].append(_make_entry(run_search(inputs, pool)))
    problem = inputs.problem  # the same for all
    listed = problem.space.valid <= ENUMERATED_DESIGNS and problem.engine == "analytic"
    best_losses = [entry.course.best for agent_entries in entries.values() for entry in agent_entries]
    proven = None if listed or prove is None or problem.engine != "analytic" else prove(problem)
    target = (
        least_loss_of_space(problem) if listed else min(best_losses) if proven is None else min(proven, *best_losses)
    )
    against = "exhaustive" if listed else "found" if proven is None else "proven"
    standings = [Standing(name, tuple(agent_entries), target) for name, agent_entries in entries.items()]
    standings.sort(key=lambda standing: float(np.mean(standing.regrets)))
    objective = problem.objectives[0]
    return Leaderboard(objective, trials, against, tuple(standings))


def least_loss_of_space(problem: Problem) -> float:
    """Return the least loss over all valid points of a small set."""
    rows = np.array(list(problem.space.enumerate()))
    space_losses = losses(problem.objectives[:1], problem.evaluate(rows).columns)
    return float(np.nanmin(space_losses, initial=np.inf))


def _make_entry(result: Found) -> TournamentEntry:
    inputs, problem, trials = result.inputs, result.problem, result.trials
    course = course_of(f"{inputs.agent}-{inputs.seed}", inputs.agent, inputs.seed, problem, trials)
    trial = trials.best(problem)
    if trial is None:
        return TournamentEntry(course, result.elapsed_s, None, checked=True)
    row = trials.row(trial)
    if problem.space.workloads or problem.user_engine is not None:
        checked_loss = float(losses(problem.objectives[:1], problem.evaluate(row[None, :]).columns)[0, 0])
    else:
        outcome = evaluate(problem.space.point(row), problem.engine)
        achieved = getattr(outcome, problem.objectives[0]) if isinstance(outcome, Metrics) else np.nan
        checked_loss = float(loss(problem.objectives[0], np.array([achieved]))[0])
    same = bool(np.isclose(checked_loss, course.best, SAME_LOSS, 0))
    return TournamentEntry(course, result.elapsed_s, problem.space.labels(row), same, tuple(row.tolist()))


# ---- A kept leaderboard: one problem, and what agents and people entered. Nothing counts that was not evaluated here

PROBLEM, ENTRIES = "problem.json", "entries.jsonl"
MAX_ENTRIES = 10_000
Losses = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class BoardRules:
    """What all entries of a board have in common."""

    space: str
    """What is searched."""  # as load_space takes it: a name of the catalog, MODEL@SYSTEM, or a file
    identity: str
    """Digest of the space."""  # a file that has changed since is another problem
    objective: str
    """The metric that counts."""
    constraints: tuple[str, ...]
    """Limits that designs must keep."""
    trials: PositiveCount
    """Designs that a search may evaluate."""
    seeds: PositiveCount
    """Searches of an agent."""  # seeds 0, 1, …


@dataclass(frozen=True)
class BoardLine:
    """A line of the board."""

    name: str
    """Name of the entry."""
    kind: Annotated[str, one_of("agent", "design")]
    """``agent`` or ``design``."""
    value: Annotated[float, unit("of the objective")] | None
    """The objective; of an agent, the median over its seeds. None where the design can no longer run."""
    best: Annotated[float, unit("of the objective")] | None
    """The best of its seeds; of a design, its value."""
    regret: ShareOrNull
    """Above the optimum of a set that can be gone through, or above the best entry, as a share of it."""
    confirmed: bool
    """Whether evaluating it again, by the board's rules, gave what was kept."""
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
) -> BoardRules:
    """Make a board in *folder* for a space; by default, for its own objective."""
    require(not exists(Path(folder) / PROBLEM), "board", str(folder), "is a leaderboard already")
    require(seeds >= 1, "seeds", seeds, "give at least one")
    problem = _board_problem(space, objective, constraints, trials)
    rules = BoardRules(space, problem.space.identity, problem.objectives[0], constraints, trials, seeds)
    make_folder(folder, "board")
    write_text(Path(folder) / PROBLEM, dump_json(asdict(rules), indent=1) + "\n", "board")
    return rules


def enter_design(folder: str | Path, name: str, source: str | Path) -> None:
    """Enter the design in a file: it must be a point of the board's space, and run within its limits."""
    rules, problem = open_board(folder)
    _check_name(_read_entries(folder, rules, problem), name)
    user_engine = problem.user_engine
    has_own_fields = user_engine is not None and user_engine.fields is not None
    row = problem.space.row_of(
        read_own_point(user_engine, str(source), {}) if has_own_fields and user_engine else load_design(source)
    )
    if row is None:
        raise SpecError("design", str(source), "is no point of the board's space")
    [design_loss] = _evaluate_entries(problem, [row.tolist()])
    require(bool(np.isfinite(design_loss)), "design", str(source), "cannot run, or breaks a limit of the board")
    entry = {"name": name, "kind": "design", "rows": [row.tolist()], "losses": [float(design_loss)]}
    _append_entry(folder, problem, entry | {"rules": _digest_of(rules)})


def enter_agent(
    folder: str | Path, agent: str, name: str = "", watch: Callable[[str, int], None] | None = None
) -> None:
    """Enter an agent, with settings as a tournament takes them: it is run here, by the board's rules."""
    rules, problem = open_board(folder)
    _check_name(_read_entries(folder, rules, problem), name or agent)
    rows, best_losses = _run_agent(rules, problem, agent, watch)
    entry = {"name": name or agent, "kind": "agent", "agent": agent, "rows": rows, "losses": best_losses}
    _append_entry(folder, problem, entry | {"rules": _digest_of(rules)})


def _run_agent(
    rules: BoardRules, problem: Problem, agent: str, watch: Callable[[str, int], None] | None
) -> tuple[list[list[int] | None], list[float]]:
    """Return what an agent finds by a board's rules with each seed: the design, and its loss."""
    options = Options(trials=rules.trials, objectives=[rules.objective], constraints=list(rules.constraints))
    [standing] = hold_tournament(problem.space, [agent], seeds=rules.seeds, options=options, watch=watch).standings
    rows = [None if entry.row is None else list(entry.row) for entry in standing.entries]
    return rows, [entry.course.best for entry in standing.entries]


def show_board(
    folder: str | Path, *, rerun: bool = False, watch: Callable[[str, int], None] | None = None
) -> list[BoardLine]:
    """Return the board, the best first, with every design and every winner evaluated again.

    With *rerun*, agents are run again, too: what they find now counts.
    """
    rules, problem = open_board(folder)
    entries = list(_read_entries(folder, rules, problem))
    rows_by_entry = [entry["rows"] for entry in entries]
    if rerun:
        agents = [entry.get("agent") if entry["kind"] == "agent" else None for entry in entries]
        rerun_rows = [None if agent is None else _run_agent(rules, problem, agent, watch)[0] for agent in agents]
        rows_by_entry = [rows if new is None else new for rows, new in zip(rows_by_entry, rerun_rows, strict=True)]
    losses_by_entry = [_evaluate_entries(problem, rows) for rows in rows_by_entry]
    listed = problem.space.valid <= ENUMERATED_DESIGNS and problem.engine == "analytic"
    least = (
        least_loss_of_space(problem)
        if listed
        else min((float(entry_losses.min()) for entry_losses in losses_by_entry), default=np.inf)
    )
    lines = [
        _make_line(rules, entry, rerun_rows, least) for entry, rerun_rows in zip(entries, losses_by_entry, strict=True)
    ]
    return sorted(lines, key=lambda line: (line.regret, line.name))


def open_board(folder: str | Path) -> tuple[BoardRules, Problem]:
    """Return the rules of a board, and its problem; refuse a space that has changed since."""
    path = Path(folder) / PROBLEM
    require(
        exists(path), "board", str(folder), f"is no leaderboard: it has no {PROBLEM} ('cosmic study leaderboard new')"
    )
    tree = parse_json(read_text(path, "board"), str(path))
    try:
        rules = BoardRules(**{**tree, "constraints": tuple(tree["constraints"])})
    except (TypeError, KeyError):
        raise SpecError("board", str(path), "does not hold the rules of a leaderboard") from None
    texts = (rules.space, rules.identity, rules.objective, *rules.constraints)
    valid = all(isinstance(text, str) for text in texts) and all(
        type(number) is int and number >= 1 for number in (rules.trials, rules.seeds)
    )
    require(valid, "board", str(path), "does not hold the rules of a leaderboard")
    problem = _board_problem(rules.space, rules.objective, rules.constraints, rules.trials)
    same = problem.space.identity == rules.identity
    require(same, "board", rules.space, "is another space now: entries of the old one cannot be compared with new ones")
    return rules, problem


def _board_problem(space: str, objective: str, constraints: tuple[str, ...], trials: int) -> Problem:
    options = Options(trials=trials, objectives=[objective] if objective else [], constraints=list(constraints))
    return make_inputs(load_space(space), options).problem


def _evaluate_entries(problem: Problem, rows: list[list[int] | None]) -> Losses:
    """Return the loss of each design now; infinite where there is none, it cannot run, or it breaks a limit."""
    entry_losses = np.full(len(rows), np.inf)
    indices = [index for index, row in enumerate(rows) if row is not None]
    if indices:
        table = np.array([rows[number] for number in indices], dtype=np.intp)
        results = problem.evaluate(table)
        values = losses(problem.objectives[:1], results.columns)[:, 0]
        entry_losses[indices] = np.where(results.feasible & np.isfinite(values), values, np.inf)
    return entry_losses


def _make_line(rules: BoardRules, entry: Mapping[str, Any], entry_losses: Losses, least: float) -> BoardLine:
    recorded = np.array([np.inf if value is None else value for value in entry["losses"]], dtype=float)
    middle = float(np.median(entry_losses))
    same = bool(np.isclose(entry_losses, recorded, SAME_LOSS, 0.0).all())
    return BoardLine(
        name=entry["name"],
        kind=entry["kind"],
        value=metric_of_loss(rules.objective, middle),
        best=metric_of_loss(rules.objective, float(entry_losses.min())),
        regret=share_behind(middle, least),
        confirmed=same and entry.get("rules") == _digest_of(rules),
        digest=digest(dump_json(entry, sort_keys=True))[:12],
    )


def _digest_of(rules: BoardRules) -> str:
    """Return the digest of a board's rules: an entry that was made by others is not confirmed."""
    return digest(dump_json(asdict(rules), sort_keys=True))[:16]


def _read_entries(folder: str | Path, rules: BoardRules, problem: Problem) -> Iterator[dict[str, Any]]:
    """Yield the entries of a board; one that no command writes is refused."""
    path = Path(folder) / ENTRIES
    names: set[str] = set()
    for number, text in enumerate(read_text(path, "board").splitlines() if exists(path) else [], 1):
        entry = parse_json(text, f"{path} line {number}")
        require(_is_entry(entry, rules, problem), "board", str(path), f"line {number} is no entry")
        require(entry["name"] not in names, "board", str(path), f"line {number} is called as one before it is")
        names.add(entry["name"])
        yield entry


def _is_entry(entry: Any, rules: BoardRules, problem: Problem) -> bool:
    """Return whether *entry* has what an entry has: a design of the space, or one of each seed."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return False
    rows, recorded = entry.get("rows"), entry.get("losses")
    agent = entry.get("kind") == "agent" and isinstance(entry.get("agent"), str)
    if not (agent or entry.get("kind") == "design") or not isinstance(rows, list) or not isinstance(recorded, list):
        return False
    numbers = all(value is None or (type(value) in (int, float)) for value in recorded)
    expected = rules.seeds if agent else 1
    points = all((agent and row is None) or _is_point(row, problem) for row in rows)
    return numbers and points and len(rows) == len(recorded) == expected


def _is_point(row: Any, problem: Problem) -> bool:
    sizes = problem.space.sizes
    typed = isinstance(row, list) and len(row) == len(sizes) and all(type(index) is int for index in row)
    within = typed and all(0 <= index < size for index, size in zip(row, sizes, strict=True))
    return within and bool(problem.space.contains(np.array([row], dtype=np.intp))[0])


def _check_name(entries: Iterable[Mapping[str, Any]], name: str) -> None:
    check_text(name, "name")
    require(all(entry["name"] != name for entry in entries), "name", name, "is on the board already")


def _append_entry(folder: str | Path, problem: Problem, entry: dict[str, Any]) -> None:
    """Add an entry; somebody else may have entered one since the board was read."""
    rules, _ = open_board(folder)
    entries = list(_read_entries(folder, rules, problem))
    _check_name(entries, entry["name"])
    require(len(entries) < MAX_ENTRIES, "board", len(entries), f"holds at most {MAX_ENTRIES:,} entries")
    write_text(Path(folder) / ENTRIES, "".join(dump_json(line) + "\n" for line in (*entries, entry)), "board")
