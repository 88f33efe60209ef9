"""The types of what commands print with `--json`: which one each command prints, by the words of the command."""

from __future__ import annotations

from typing import Any

from cosmic.cli.answers.calibration_answers import CalibrateAnswer, ProbeAnswer, ValidateAnswer
from cosmic.cli.answers.cluster_answers import ClusterTasksAnswer, FleetAnswer, SizeAnswer
from cosmic.cli.answers.command_answers import CompletionAnswer, RunAnswer, SchemaAnswer, UiAnswer
from cosmic.cli.answers.design_answers import (
    DesignDiffAnswer,
    DesignExportAnswers,
    DesignImportAnswer,
    StudyExportAnswer,
    SweepAnswer,
)
from cosmic.cli.answers.evaluation_answers import (
    CatalogListAnswer,
    CatalogShowAnswer,
    DesignShowAnswer,
    EvaluateAnswer,
    ModelListAnswer,
    WorkloadAnswer,
)
from cosmic.cli.answers.model_answers import ModelShardAnswer, ModelShowAnswer
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
    "calibrate probe": ProbeAnswer,
    "calibrate run": CalibrateAnswer,
    "calibrate validate": ValidateAnswer,
    "catalog list": CatalogListAnswer,
    "catalog show": CatalogShowAnswer,
    "cluster fleet": FleetAnswer,
    "cluster tasks": ClusterTasksAnswer,
    "completion": CompletionAnswer,
    "demo": DemoAnswer,
    "design diff": DesignDiffAnswer,
    "design experts": ExpertLoads,
    "design export": DesignExportAnswers,
    "design import": DesignImportAnswer,
    "design show": DesignShowAnswer,
    "design sweep": SweepAnswer,
    "design workload": WorkloadAnswer,
    "evaluate": EvaluateAnswer,
    "model list": ModelListAnswer,
    "model shard": ModelShardAnswer,
    "model show": ModelShowAnswer,
    "network bound": CollectiveBoundAnswer,
    "network check": CollectiveCheckAnswer,
    "network convert": CollectiveConvertAnswer,
    "network provision": ProvisionAnswer,
    "network synthesize": CollectiveSynthesizeAnswer,
    "report": ReportAnswer,
    "run": RunAnswer,
    "schema": SchemaAnswer,
    "search": SearchAnswer,
    "serve": ServeAnswer,
    "simulate": SimulateAnswer,
    "size": SizeAnswer,
    "space certify": CertifyAnswer,
    "space count": SpaceCountAnswer,
    "space sample": SampleAnswer,
    "space schema": SpaceSchemaAnswer,
    "space show": SpaceShowAnswer,
    "study compare": CompareAnswer,
    "study doctor": StudyDoctorAnswer,
    "study export": StudyExportAnswer,
    "study importance": ImportanceAnswer,
    "study leaderboard enter": LeaderboardAnswer,
    "study leaderboard new": LeaderboardRules,
    "study leaderboard show": LeaderboardAnswer,
    "study replay": ReplayAnswer,
    "study show": StudyShowAnswer,
    "study tell": StudyTellAnswer,
    "study tournament": TournamentAnswer,
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
