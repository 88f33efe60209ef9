"""Studies: what a search tried and found, kept in a directory; and boards of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.base.lazy_names import offer_names

if TYPE_CHECKING:
    from cosmic.report.study_report import Report
    from cosmic.search.importance import Importance
    from cosmic.search.leaderboard import (
        BoardLine,
        BoardRules,
        Leaderboard,
        Standing,
        enter_agent,
        enter_design,
        make_board,
    )
    from cosmic.search.leaderboard import show_board as leaderboard
    from cosmic.search.learning.prediction_quality import kendall_tau, top_recall
    from cosmic.search.learning.prior_knowledge import Lessons, arithmetic_of, identify_sources, read_lessons
    from cosmic.search.objectives import loss, losses, pareto_front
    from cosmic.search.search_inputs import LEARNED_TRIALS, Options, make_inputs, task_of, with_problem
    from cosmic.search.search_loop import Found, explore_batches
    from cosmic.search.study.doctor import StudyRepair
    from cosmic.search.study.study import Study, open_study
    from cosmic.search.study.study import export_trials as export
    from cosmic.search.study.study import tell_runs as tell
    from cosmic.search.study.study_answers import compare, doctor, importance, replay, tournament
    from cosmic.search.study.study_answers import show_study as show
    from cosmic.search.study.study_comparison import NEAR, Comparison, Course, ReplayedStudy
    from cosmic.search.trials import Ledger, Trials
else:
    __getattr__, __dir__ = offer_names(
        __name__,
        {
            "BoardLine": "cosmic.search.leaderboard",
            "BoardRules": "cosmic.search.leaderboard",
            "Comparison": "cosmic.search.study.study_comparison",
            "Course": "cosmic.search.study.study_comparison",
            "Found": "cosmic.search.search_loop",
            "Importance": "cosmic.search.importance",
            "LEARNED_TRIALS": "cosmic.search.search_inputs",
            "Leaderboard": "cosmic.search.leaderboard",
            "Ledger": "cosmic.search.trials",
            "Lessons": "cosmic.search.learning.prior_knowledge",
            "NEAR": "cosmic.search.study.study_comparison",
            "Options": "cosmic.search.search_inputs",
            "ReplayedStudy": "cosmic.search.study.study_comparison",
            "Report": "cosmic.report.study_report",
            "Standing": "cosmic.search.leaderboard",
            "Study": "cosmic.search.study.study",
            "StudyRepair": "cosmic.search.study.doctor",
            "Trials": "cosmic.search.trials",
            "arithmetic_of": "cosmic.search.learning.prior_knowledge",
            "compare": "cosmic.search.study.study_answers",
            "doctor": "cosmic.search.study.study_answers",
            "enter_agent": "cosmic.search.leaderboard",
            "enter_design": "cosmic.search.leaderboard",
            "explore_batches": "cosmic.search.search_loop",
            "export": "cosmic.search.study.study:export_trials",
            "identify_sources": "cosmic.search.learning.prior_knowledge",
            "importance": "cosmic.search.study.study_answers",
            "kendall_tau": "cosmic.search.learning.prediction_quality",
            "leaderboard": "cosmic.search.leaderboard:show_board",
            "loss": "cosmic.search.objectives",
            "losses": "cosmic.search.objectives",
            "make_board": "cosmic.search.leaderboard",
            "make_inputs": "cosmic.search.search_inputs",
            "open_study": "cosmic.search.study.study",
            "pareto_front": "cosmic.search.objectives",
            "read_lessons": "cosmic.search.learning.prior_knowledge",
            "replay": "cosmic.search.study.study_answers",
            "show": "cosmic.search.study.study_answers:show_study",
            "task_of": "cosmic.search.search_inputs",
            "tell": "cosmic.search.study.study:tell_runs",
            "top_recall": "cosmic.search.learning.prediction_quality",
            "tournament": "cosmic.search.study.study_answers",
            "with_problem": "cosmic.search.search_inputs",
        },
    )

__all__ = [
    "LEARNED_TRIALS",
    "NEAR",
    "BoardLine",
    "BoardRules",
    "Comparison",
    "Course",
    "Found",
    "Importance",
    "Leaderboard",
    "Ledger",
    "Lessons",
    "Options",
    "ReplayedStudy",
    "Report",
    "Standing",
    "Study",
    "StudyRepair",
    "Trials",
    "arithmetic_of",
    "compare",
    "doctor",
    "enter_agent",
    "enter_design",
    "explore_batches",
    "export",
    "identify_sources",
    "importance",
    "kendall_tau",
    "leaderboard",
    "loss",
    "losses",
    "make_board",
    "make_inputs",
    "open_study",
    "pareto_front",
    "read_lessons",
    "replay",
    "show",
    "task_of",
    "tell",
    "top_recall",
    "tournament",
    "with_problem",
]
