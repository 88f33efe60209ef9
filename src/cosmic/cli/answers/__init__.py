"""The types of what commands print with `--json`: which one each command prints, by the words of the command."""

from __future__ import annotations

from typing import Any

from cosmic.accuracy.calibrate.calibration import Calibration
from cosmic.cli.answers import cluster_answers, design_answers, study_answers, trace_answers
from cosmic.cluster.fleet_jobs import ComparedFleets
from cosmic.network.collective_requests import CollectiveBound, SynthesizedSchedule
from cosmic.network.schedules.schedule_checking import ScheduleVerdict
from cosmic.report.schedule_files import ConvertedSchedule
from cosmic.search.cluster_sizing import Sizing
from cosmic.search.design_answers import DesignComparison
from cosmic.search.provision.bandwidth_problem import Provisioned
from cosmic.search.sharding.sharding_result import Sharded
from cosmic.search.space.space_answers import SpaceSize
from cosmic.simulate.events.simulation_result import SimulationResult
from cosmic.workload.expert_loads import ExpertLoads

ANSWERS: dict[str, Any] = {
    "calibrate probe": cluster_answers.ProbeAnswer,
    "calibrate run": Calibration,
    "calibrate validate": cluster_answers.ValidateAnswer,
    "catalog list": design_answers.CatalogListAnswer,
    "catalog show": design_answers.CatalogShowAnswer,
    "cluster fleet": ComparedFleets,
    "cluster tasks": cluster_answers.ClusterTasksAnswer,
    "completion": study_answers.CompletionAnswer,
    "demo": study_answers.DemoAnswer,
    "design diff": DesignComparison,
    "design experts": ExpertLoads,
    "design export": design_answers.DesignExportAnswers,
    "design import": design_answers.DesignImportAnswer,
    "design show": design_answers.DesignShowAnswer,
    "design sweep": design_answers.SweepAnswer,
    "design workload": design_answers.WorkloadAnswer,
    "evaluate": design_answers.EvaluateAnswer,
    "model list": design_answers.ModelListAnswer,
    "model shard": Sharded,
    "model show": design_answers.ModelShowAnswer,
    "network bound": CollectiveBound,
    "network check": ScheduleVerdict,
    "network convert": ConvertedSchedule,
    "network provision": Provisioned,
    "network synthesize": SynthesizedSchedule,
    "report": study_answers.ReportAnswer,
    "run": study_answers.RunAnswer,
    "schema": study_answers.SchemaAnswer,
    "search": study_answers.SearchAnswer,
    "serve": cluster_answers.ServeAnswer,
    "simulate": SimulationResult,
    "size": Sizing,
    "space certify": study_answers.CertifyAnswer,
    "space count": SpaceSize,
    "space sample": study_answers.SampleAnswer,
    "space schema": study_answers.SpaceSchemaAnswer,
    "space show": study_answers.SpaceShowAnswer,
    "study compare": study_answers.CompareAnswer,
    "study doctor": study_answers.StudyDoctorAnswer,
    "study export": design_answers.StudyExportAnswer,
    "study importance": study_answers.ImportanceAnswer,
    "study leaderboard enter": study_answers.LeaderboardAnswer,
    "study leaderboard new": study_answers.LeaderboardRules,
    "study leaderboard show": study_answers.LeaderboardAnswer,
    "study replay": study_answers.ReplayAnswer,
    "study show": study_answers.StudyShowAnswer,
    "study tell": study_answers.StudyTellAnswer,
    "study tournament": study_answers.TournamentAnswer,
    "trace anonymize": trace_answers.TraceAnonymizeAnswer,
    "trace check": trace_answers.TraceCheckAnswer,
    "trace convert": trace_answers.TraceConvertAnswer,
    "trace diff": trace_answers.TraceDiffAnswer,
    "trace generate": trace_answers.TraceGenerateAnswer,
    "trace project": trace_answers.TraceProjectAnswer,
    "trace repair": trace_answers.TraceRepairAnswer,
    "trace show": trace_answers.TraceShowAnswer,
    "trace stats": trace_answers.TraceStatsAnswer,
    "trace suite": trace_answers.TraceSuiteAnswer,
    "trace synthesize": trace_answers.TraceSynthesizeAnswer,
    "ui": study_answers.UiAnswer,
}
"""By the words of a command, the type of what it prints."""
OTHER_KEYS: dict[str, dict[str, Any]] = {
    "MemoryTierUse": {
        "additionalProperties": {"description": "Bytes of one class of state.", "type": "number", "x-unit": "B"}
    },
    "FeasibleSweepRow": {},
    "InfeasibleSweepRow": {},
    "ImportedDesign": {},
    "ResolvedDesign": {},
    "SpaceSchemaAnswer": {},
    "PublishedSchema": {},
}
"""By the name of a class, which keys its objects have besides those of the class, where they have any."""
