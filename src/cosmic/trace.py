"""Execution traces of jobs: convert, generate, check, repair, summarize, compare, project, share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.base.lazy_names import offer_names

if TYPE_CHECKING:
    from cosmic.accuracy.trace_suite import CaseOutcome
    from cosmic.accuracy.trace_suite import run_suite as suite
    from cosmic.search.compare.predicted_step_trace import compare_traces as diff
    from cosmic.search.design_answers import generate_step_traces as generate
    from cosmic.search.trace_conversion import ConvertedTraces
    from cosmic.search.trace_conversion import convert_files as convert
    from cosmic.simulate.events.simulation_result import SimulationResult
    from cosmic.simulate.trace_generation import StepTraces
    from cosmic.step.kernel_prices import kernel_seconds
    from cosmic.traces.anonymization import Anonymized
    from cosmic.traces.chakra.trace_reader import read_traces
    from cosmic.traces.chakra.trace_writer import write_traces
    from cosmic.traces.profiles.operator_kernels import operator_works
    from cosmic.traces.profiles.profiled_operators import ProfiledOperator, ProfiledTensor
    from cosmic.traces.profiles.trace_contrast import TraceContrast
    from cosmic.traces.profiles.trace_projection import ProjectedTraces
    from cosmic.traces.repaired_traces import RepairedTraces
    from cosmic.traces.synthesis.trace_model import SyntheticTraces
    from cosmic.traces.trace import RankTrace, TraceSet
    from cosmic.traces.trace_jobs import JobStatistics
    from cosmic.traces.trace_jobs import anonymize_job as anonymize
    from cosmic.traces.trace_jobs import check_job as check
    from cosmic.traces.trace_jobs import project_job as project
    from cosmic.traces.trace_jobs import repair_job as repair
    from cosmic.traces.trace_jobs import show_nodes as show
    from cosmic.traces.trace_jobs import summarize_job as stats
    from cosmic.traces.trace_jobs import synthesize_job as synthesize
else:
    __getattr__, __dir__ = offer_names(
        __name__,
        {
            "Anonymized": "cosmic.traces.anonymization",
            "CaseOutcome": "cosmic.accuracy.trace_suite",
            "ConvertedTraces": "cosmic.search.trace_conversion",
            "JobStatistics": "cosmic.traces.trace_jobs",
            "ProfiledOperator": "cosmic.traces.profiles.profiled_operators",
            "ProfiledTensor": "cosmic.traces.profiles.profiled_operators",
            "ProjectedTraces": "cosmic.traces.profiles.trace_projection",
            "RankTrace": "cosmic.traces.trace",
            "RepairedTraces": "cosmic.traces.repaired_traces",
            "SimulationResult": "cosmic.simulate.events.simulation_result",
            "StepTraces": "cosmic.simulate.trace_generation",
            "SyntheticTraces": "cosmic.traces.synthesis.trace_model",
            "TraceContrast": "cosmic.traces.profiles.trace_contrast",
            "TraceSet": "cosmic.traces.trace",
            "anonymize": "cosmic.traces.trace_jobs:anonymize_job",
            "check": "cosmic.traces.trace_jobs:check_job",
            "convert": "cosmic.search.trace_conversion:convert_files",
            "diff": "cosmic.search.compare.predicted_step_trace:compare_traces",
            "generate": "cosmic.search.design_answers:generate_step_traces",
            "kernel_seconds": "cosmic.step.kernel_prices",
            "operator_works": "cosmic.traces.profiles.operator_kernels",
            "project": "cosmic.traces.trace_jobs:project_job",
            "read_traces": "cosmic.traces.chakra.trace_reader",
            "repair": "cosmic.traces.trace_jobs:repair_job",
            "show": "cosmic.traces.trace_jobs:show_nodes",
            "stats": "cosmic.traces.trace_jobs:summarize_job",
            "suite": "cosmic.accuracy.trace_suite:run_suite",
            "synthesize": "cosmic.traces.trace_jobs:synthesize_job",
            "write_traces": "cosmic.traces.chakra.trace_writer",
        },
    )

__all__ = [
    "Anonymized",
    "CaseOutcome",
    "ConvertedTraces",
    "JobStatistics",
    "ProfiledOperator",
    "ProfiledTensor",
    "ProjectedTraces",
    "RankTrace",
    "RepairedTraces",
    "SimulationResult",
    "StepTraces",
    "SyntheticTraces",
    "TraceContrast",
    "TraceSet",
    "anonymize",
    "check",
    "convert",
    "diff",
    "generate",
    "kernel_seconds",
    "operator_works",
    "project",
    "read_traces",
    "repair",
    "show",
    "stats",
    "suite",
    "synthesize",
    "write_traces",
]
