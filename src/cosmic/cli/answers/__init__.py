"""The types of what commands print with `--json`: which one each command prints, by the words of the command."""

from __future__ import annotations

from typing import Any

from cosmic.accuracy.calibrate.calibration import Calibration
from cosmic.cli.answers.cluster_answers import (
    ClusterTasksAnswer,
    ProbeAnswer,
    ServeAnswer,
    ValidateAnswer,
)
from cosmic.cli.answers.design_answers import (
    CatalogListAnswer,
    CatalogShowAnswer,
    DesignExportAnswers,
    DesignImportAnswer,
    DesignShowAnswer,
    EvaluateAnswer,
    ModelListAnswer,
    ModelShowAnswer,
    StudyExportAnswer,
    SweepAnswer,
    WorkloadAnswer,
)
from cosmic.cli.answers.study_answers import (
    CertifyAnswer,
    CompareAnswer,
    CompletionAnswer,
    DemoAnswer,
    ImportanceAnswer,
    LeaderboardAnswer,
    LeaderboardRules,
    ReplayAnswer,
    ReportAnswer,
    RunAnswer,
    SampleAnswer,
    SchemaAnswer,
    SearchAnswer,
    SpaceSchemaAnswer,
    SpaceShowAnswer,
    StudyDoctorAnswer,
    StudyShowAnswer,
    StudyTellAnswer,
    TournamentAnswer,
    UiAnswer,
)
from cosmic.cli.answers.trace_answers import (
    TraceAnonymizeAnswer,
    TraceCheckAnswer,
    TraceConvertAnswer,
    TraceDiffAnswer,
    TraceGenerateAnswer,
    TraceProjectAnswer,
    TraceRepairAnswer,
    TraceShowAnswer,
    TraceStatsAnswer,
    TraceSuiteAnswer,
    TraceSynthesizeAnswer,
)
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
    "calibrate probe": ProbeAnswer,
    "calibrate run": Calibration,
    "calibrate validate": ValidateAnswer,
    "catalog list": CatalogListAnswer,
    "catalog show": CatalogShowAnswer,
    "cluster fleet": ComparedFleets,
    "cluster tasks": ClusterTasksAnswer,
    "completion": CompletionAnswer,
    "demo": DemoAnswer,
    "design diff": DesignComparison,
    "design experts": ExpertLoads,
    "design export": DesignExportAnswers,
    "design import": DesignImportAnswer,
    "design show": DesignShowAnswer,
    "design sweep": SweepAnswer,
    "design workload": WorkloadAnswer,
    "evaluate": EvaluateAnswer,
    "model list": ModelListAnswer,
    "model shard": Sharded,
    "model show": ModelShowAnswer,
    "network bound": CollectiveBound,
    "network check": ScheduleVerdict,
    "network convert": ConvertedSchedule,
    "network provision": Provisioned,
    "network synthesize": SynthesizedSchedule,
    "report": ReportAnswer,
    "run": RunAnswer,
    "schema": SchemaAnswer,
    "search": SearchAnswer,
    "serve": ServeAnswer,
    "simulate": SimulationResult,
    "size": Sizing,
    "space certify": CertifyAnswer,
    "space count": SpaceSize,
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
    "ImportedDesign": {},
    "ResolvedDesign": {},
    "SpaceSchemaAnswer": {},
    "PublishedSchema": {},
}
"""By the name of a class, which keys its objects have besides those of the class, where they have any."""
