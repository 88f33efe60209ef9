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
    from cosmic.search.search_loop import Found
    from cosmic.search.study.doctor import StudyRepair
    from cosmic.search.study.export import export_trials as export
    from cosmic.search.study.study import Study, open_study
    from cosmic.search.study.study import tell_runs as tell
    from cosmic.search.study.study_answers import compare, doctor, importance, replay, tournament
    from cosmic.search.study.study_answers import show_study as show
    from cosmic.search.study.study_comparison import Comparison, Course
    from cosmic.search.study.study_replay import ReplayedStudy
    from cosmic.search.trials import Trials
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
            "Leaderboard": "cosmic.search.leaderboard",
            "ReplayedStudy": "cosmic.search.study.study_replay",
            "Report": "cosmic.report.study_report",
            "Standing": "cosmic.search.leaderboard",
            "Study": "cosmic.search.study.study",
            "StudyRepair": "cosmic.search.study.doctor",
            "Trials": "cosmic.search.trials",
            "compare": "cosmic.search.study.study_answers",
            "doctor": "cosmic.search.study.study_answers",
            "enter_agent": "cosmic.search.leaderboard",
            "enter_design": "cosmic.search.leaderboard",
            "export": "cosmic.search.study.export:export_trials",
            "importance": "cosmic.search.study.study_answers",
            "leaderboard": "cosmic.search.leaderboard:show_board",
            "make_board": "cosmic.search.leaderboard",
            "open_study": "cosmic.search.study.study",
            "replay": "cosmic.search.study.study_answers",
            "show": "cosmic.search.study.study_answers:show_study",
            "tell": "cosmic.search.study.study:tell_runs",
            "tournament": "cosmic.search.study.study_answers",
        },
    )

__all__ = [
    "BoardLine",
    "BoardRules",
    "Comparison",
    "Course",
    "Found",
    "Importance",
    "Leaderboard",
    "ReplayedStudy",
    "Report",
    "Standing",
    "Study",
    "StudyRepair",
    "Trials",
    "compare",
    "doctor",
    "enter_agent",
    "enter_design",
    "export",
    "importance",
    "leaderboard",
    "make_board",
    "open_study",
    "replay",
    "show",
    "tell",
    "tournament",
]
