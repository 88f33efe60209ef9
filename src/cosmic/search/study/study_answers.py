"""What one asks of studies: a function for each command of studies, with the words of the command.

A study is the directory of one, or a `Study`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cosmic.search.agent import separate_agents
from cosmic.search.certify.certifying import proven_loss
from cosmic.search.importance import Importance
from cosmic.search.leaderboard import Leaderboard, hold_tournament
from cosmic.search.learning.prediction_quality import dump_learned
from cosmic.search.search_inputs import Options
from cosmic.search.search_loop import PoolOptions
from cosmic.search.space.space_answers import SpaceSource, open_space
from cosmic.search.study.doctor import StudyRepair, examine_study, repair_study
from cosmic.search.study.study import Study, open_study
from cosmic.search.study.study_comparison import Comparison, ReplayedStudy, compare_studies, replay_study

StudySource = str | Path | Study
AGENTS = ("random", "genetic", "ant_colony", "annealing", "policy")
"""The agents of a tournament unless it names some: those that need no optional library."""


def _opened(study: StudySource) -> Study:
    return study if isinstance(study, Study) else open_study(study)


def show_study(study: StudySource) -> dict[str, Any]:
    """Return what was searched, its best trial, what its model learned, and what was measured beside predictions.

    cosmic.study.show("runs/mine")["best"]["metrics"]["step_s"]  # 12.4
    """
    opened = _opened(study)
    inputs, trials, learned = opened.inputs, opened.trials, opened.learned
    best = trials.best(opened.problem)
    return {
        "study": str(opened.path),
        "space": opened.problem.space.name,
        "agent": inputs.agent,
        "settings": dict(inputs.settings),
        "seed": inputs.seed,
        "engine": inputs.engine,
        "objectives": list(inputs.objectives),
        "trials": trials.evaluated,
        "feasible": trials.feasible,
        "stopped": opened.stopped,
        "best": None if best is None else trials.describe(opened.problem, best),
        "learn": [{"path": path, "sha256": digest} for path, digest in inputs.learn],
        "learned": None if learned is None else dump_learned(learned),
        "measured": opened.evidence,
    }


def compare(studies: Sequence[StudySource]) -> Comparison:
    """Return the best design of several studies, how far each is behind the best, and how they converged.

    cosmic.study.compare(["runs/a", "runs/b"]).rows()[0]["study"]  # 'runs/a'
    """
    return compare_studies([_opened(study) for study in studies])


def importance(study: StudySource, *, objective: str = "") -> Importance:
    """Return the share of the variance of a metric that each parameter of a study explains.

    The metric is the study's first objective unless *objective* names another.

        cosmic.study.importance("runs/mine").factors[0].name  # 'workload.tp'
    """
    return _opened(study).importance(objective)


def replay(study: str | Path, *, workers: int = 1) -> ReplayedStudy:
    """Return a comparison of a study with the same search, run again from its inputs, bit for bit.

    cosmic.study.replay("runs/mine").same  # True
    """
    return replay_study(study, PoolOptions(workers))


def doctor(study: str | Path, *, check: bool = False) -> StudyRepair:
    """Check a study and repair a damaged one from what can be read; with *check*, change nothing.

    cosmic.study.doctor("runs/mine", check=True).before.whole  # True
    """
    if not check:
        return repair_study(study)
    diagnosis = examine_study(study)
    return StudyRepair(diagnosis, diagnosis)


def tournament(  # noqa: PLR0913  the options of the command
    space: SpaceSource,
    *,
    agents: str | Sequence[str] = AGENTS,
    trials: int = 1000,
    seeds: int = 5,
    objectives: Sequence[str] = (),
    constraints: Sequence[str] = (),
    stacks: Sequence[str] = (),
    engine: str = "analytic",
    prove: bool = False,
) -> Leaderboard:
    """Let *agents* search one space with the same budget, and rank them by regret.

    With *prove*, regret is against the proven optimum of a large space.

        cosmic.study.tournament("small.yaml", agents=["random", "genetic"], trials=100).rows()[0]["agent"]  # 'genetic'
    """
    options = Options(
        trials=trials, objectives=list(objectives), constraints=list(constraints), stacks=list(stacks), engine=engine
    )
    names = separate_agents(agents) if isinstance(agents, str) else list(agents)
    return hold_tournament(open_space(space), names, seeds=seeds, options=options, prove=proven_loss if prove else None)
