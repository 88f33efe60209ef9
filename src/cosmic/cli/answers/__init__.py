"""The types of what commands print with `--json`: which one each command prints, by the words of the command."""

from __future__ import annotations

from typing import Any

from cosmic.cli.answers.calibration_answers import CalibrateAnswer, ProbeAnswer, ValidateAnswer
from cosmic.cli.answers.cluster_answers import ClusterTasksAnswer, FleetAnswer, SizeAnswer
from cosmic.cli.answers.command_answers import CompletionAnswer, RunAnswer, SchemaAnswer, UiAnswer
from cosmic.cli.answers.design_answers import DesignDiffAnswer, DesignImportAnswer, ExportAnswer, SweepAnswer
from cosmic.cli.answers.evaluation_answers import CatalogListAnswer, DesignShowAnswer, EvaluateAnswer, WorkloadAnswer
from cosmic.cli.answers.model_answers import ModelProgramAnswer, ModelShardAnswer
from cosmic.cli.answers.network_answers import (
    CollectiveBoundAnswer,
    CollectiveCheckAnswer,
    CollectiveConvertAnswer,
    CollectiveSynthesizeAnswer,
    ProvisionAnswer,
)
from cosmic.cli.answers.serving_answers import ServeAnswer
from cosmic.cli.answers.space_answers import (
    CertifyAnswer,
    SampleAnswer,
    SpaceCountAnswer,
    SpaceSchemaAnswer,
    SpaceShowAnswer,
)
from cosmic.cli.answers.study_answers import (
    CompareAnswer,
    DemoAnswer,
    ImportanceAnswer,
    LeaderboardAnswer,
    LeaderboardRules,
    ReplayAnswer,
    ReportAnswer,
    SearchAnswer,
    StudyDoctorAnswer,
    StudyShowAnswer,
    StudyTellAnswer,
    TournamentAnswer,
)
from cosmic.cli.answers.trace_analysis_answers import TraceDiffAnswer, TraceProjectAnswer, TraceStatsAnswer
from cosmic.cli.answers.trace_answers import (
    SimulateAnswer,
    TraceAnonymizeAnswer,
    TraceCheckAnswer,
    TraceConvertAnswer,
    TraceGenerateAnswer,
    TraceRepairAnswer,
    TraceShowAnswer,
    TraceSuiteAnswer,
    TraceSynthesizeAnswer,
)
from cosmic.workload.expert_loads import ExpertLoads

ANSWERS: dict[str, Any] = {
    "calibrate": CalibrateAnswer,
    "certify": CertifyAnswer,
    "collective bound": CollectiveBoundAnswer,
    "collective check": CollectiveCheckAnswer,
    "collective convert": CollectiveConvertAnswer,
    "collective synthesize": CollectiveSynthesizeAnswer,
    "compare": CompareAnswer,
    "completion": CompletionAnswer,
    "demo": DemoAnswer,
    "diff": DesignDiffAnswer,
    "doctor": StudyDoctorAnswer,
    "evaluate": EvaluateAnswer,
    "experts": ExpertLoads,
    "export": ExportAnswer,
    "fleet": FleetAnswer,
    "import": DesignImportAnswer,
    "importance": ImportanceAnswer,
    "leaderboard enter": LeaderboardAnswer,
    "leaderboard new": LeaderboardRules,
    "leaderboard show": LeaderboardAnswer,
    "list": CatalogListAnswer,
    "probe": ProbeAnswer,
    "program": ModelProgramAnswer,
    "provision": ProvisionAnswer,
    "psa count": SpaceCountAnswer,
    "psa sample": SampleAnswer,
    "psa schema": SpaceSchemaAnswer,
    "psa show": SpaceShowAnswer,
    "replay": ReplayAnswer,
    "report": ReportAnswer,
    "run": RunAnswer,
    "schema": SchemaAnswer,
    "search": SearchAnswer,
    "serve": ServeAnswer,
    "shard": ModelShardAnswer,
    "show": DesignShowAnswer,
    "simulate": SimulateAnswer,
    "size": SizeAnswer,
    "study show": StudyShowAnswer,
    "study tell": StudyTellAnswer,
    "sweep": SweepAnswer,
    "tasks": ClusterTasksAnswer,
    "tournament": TournamentAnswer,
    "trace anonymize": TraceAnonymizeAnswer,
    "trace check": TraceCheckAnswer,
    "trace convert": TraceConvertAnswer,
    "trace diff": TraceDiffAnswer,
    "trace generate": TraceGenerateAnswer,
    "trace project": TraceProjectAnswer,
    "trace repair": TraceRepairAnswer,
    "trace show": TraceShowAnswer,
    "trace stats": TraceStatsAnswer,
    "trace suite": TraceSuiteAnswer,
    "trace synthesize": TraceSynthesizeAnswer,
    "ui": UiAnswer,
    "validate": ValidateAnswer,
    "workload": WorkloadAnswer,
}
"""By the words of a command, the type of what it prints."""
OTHER_KEYS: dict[str, dict[str, Any]] = {
    "MemoryTierUse": {
        "additionalProperties": {"description": "Bytes of one class of state.", "type": "number", "x-unit": "B"}
    },
    "FeasibleSweepRow": {},
    "InfeasibleSweepRow": {},
    "ValidationErrors": {},
    "ImportedDesign": {},
    "ResolvedDesign": {},
    "SpaceSchemaAnswer": {},
    "PublishedSchema": {},
}
"""By the name of a class, which keys its objects have besides those of the class, where they have any."""
