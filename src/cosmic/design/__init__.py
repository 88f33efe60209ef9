"""What is to be evaluated: one frozen dataclass per layer of the stack, and the design point that composes them.

    design_point      `DesignPoint`: one complete system, nothing left to default; read this first
    *_layer           its layers: model, workload, collective, network, compute, memory, facility, run, serving
    schema            one reader and one writer for every value of a design, driven by the dataclasses
    design_batch      many designs at once: one base, and an array for each field in which they differ
    answer            what every question is answered with: verdict, proof, gap, assumptions, what to do next
    loading           from what a user writes to an open design: all of a system but its mapping, which
                      `cosmic.search.mapping.design_completion` fills in (`load_design`)
    catalog_entries   what there is: YAML files with their sources, under ``catalog/``; `systems`, `catalog_parts`,
                      `serving_engine`, `run_layer` and `prediction_accuracy` read kinds of them
    huggingface       models read from a ``config.json``

A design says what is, never what it takes: costs are in the rooms above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.base.lazy_names import offer_names

if TYPE_CHECKING:
    from cosmic.base.units import BYTES, BYTES_PER_S, FLOP_PER_S, format_quantity
    from cosmic.design.answer import Answer
    from cosmic.design.collective_layer import Collective, CollectiveKind
    from cosmic.design.compute_layer import Compute
    from cosmic.design.design_batch import Batch, batch_of
    from cosmic.design.design_point import DesignPoint
    from cosmic.design.facility_layer import Facility, Node
    from cosmic.design.loading import design_tree, dump_design, load_machine
    from cosmic.design.machine_layers import accelerator_layers
    from cosmic.design.memory_layer import Memory
    from cosmic.design.model_layer import Model, Recommender, Transformer
    from cosmic.design.network_layer import Dimension, Fabric, FabricTier, Fault, Link, Network
    from cosmic.design.plain_data import dump_yaml
    from cosmic.design.program_model import ProgramModel
    from cosmic.design.run_layer import Run
    from cosmic.design.schema import assign_fields, get_field, read_value, write_value
    from cosmic.design.serving_layer import Load, Serving
    from cosmic.design.workload_layer import AXES, Workload
    from cosmic.frameworks.launch import Launch, compare_launches
    from cosmic.search.advice.deployment_plan import Plan
    from cosmic.search.advice.design_advice import explain_bound, find_improvements
    from cosmic.search.advice.serving_answers import ServiceAnswer, plan_serving
    from cosmic.search.compare.design_differences import describe_difference
    from cosmic.search.compare.remapping import SweptDesign
    from cosmic.search.design_answers import DesignComparison, StepWork
    from cosmic.search.design_answers import diff_designs as diff
    from cosmic.search.design_answers import export_design as export
    from cosmic.search.design_answers import list_work as workload
    from cosmic.search.design_answers import show_design as show
    from cosmic.search.design_answers import show_experts as experts
    from cosmic.search.design_answers import sweep_fields as sweep
    from cosmic.search.mapping.design_completion import load_design
    from cosmic.search.mapping.launch_import import Imported, import_launch
    from cosmic.serving.deployment import deployment_of
    from cosmic.serving.request_simulation import simulate_load
    from cosmic.serving.serving_requests import draw_requests
    from cosmic.simulate.events.design_simulation import simulate_design
    from cosmic.simulate.metrics import BatchOutcome, Infeasible, Metrics, Outcome
    from cosmic.simulate.schedule_timeline import draw_design_timeline
    from cosmic.step.bottleneck import network_loads
    from cosmic.step.communication import NetworkCosts
    from cosmic.step.kernel_launches import controller_dispatch_s
    from cosmic.step.step_profile import profile_step
    from cosmic.workload.expert_loads import ExpertLoads
else:
    __getattr__, __dir__ = offer_names(
        __name__,
        {
            "AXES": "cosmic.design.workload_layer",
            "Answer": "cosmic.design.answer",
            "BYTES": "cosmic.base.units",
            "BYTES_PER_S": "cosmic.base.units",
            "Batch": "cosmic.design.design_batch",
            "BatchOutcome": "cosmic.simulate.metrics",
            "Collective": "cosmic.design.collective_layer",
            "CollectiveKind": "cosmic.design.collective_layer",
            "Compute": "cosmic.design.compute_layer",
            "DesignComparison": "cosmic.search.design_answers",
            "DesignPoint": "cosmic.design.design_point",
            "Dimension": "cosmic.design.network_layer",
            "ExpertLoads": "cosmic.workload.expert_loads",
            "FLOP_PER_S": "cosmic.base.units",
            "Fabric": "cosmic.design.network_layer",
            "FabricTier": "cosmic.design.network_layer",
            "Facility": "cosmic.design.facility_layer",
            "Fault": "cosmic.design.network_layer",
            "Imported": "cosmic.search.mapping.launch_import",
            "Infeasible": "cosmic.simulate.metrics",
            "Launch": "cosmic.frameworks.launch",
            "Link": "cosmic.design.network_layer",
            "Load": "cosmic.design.serving_layer",
            "Memory": "cosmic.design.memory_layer",
            "Metrics": "cosmic.simulate.metrics",
            "Model": "cosmic.design.model_layer",
            "Network": "cosmic.design.network_layer",
            "NetworkCosts": "cosmic.step.communication",
            "Node": "cosmic.design.facility_layer",
            "Outcome": "cosmic.simulate.metrics",
            "Plan": "cosmic.search.advice.deployment_plan",
            "ProgramModel": "cosmic.design.program_model",
            "Recommender": "cosmic.design.model_layer",
            "Run": "cosmic.design.run_layer",
            "ServiceAnswer": "cosmic.search.advice.serving_answers",
            "Serving": "cosmic.design.serving_layer",
            "StepWork": "cosmic.search.design_answers",
            "SweptDesign": "cosmic.search.compare.remapping",
            "Transformer": "cosmic.design.model_layer",
            "Workload": "cosmic.design.workload_layer",
            "accelerator_layers": "cosmic.design.machine_layers",
            "assign_fields": "cosmic.design.schema",
            "batch_of": "cosmic.design.design_batch",
            "compare_launches": "cosmic.frameworks.launch",
            "controller_dispatch_s": "cosmic.step.kernel_launches",
            "deployment_of": "cosmic.serving.deployment",
            "describe_difference": "cosmic.search.compare.design_differences",
            "design_tree": "cosmic.design.loading",
            "diff": "cosmic.search.design_answers:diff_designs",
            "draw_design_timeline": "cosmic.simulate.schedule_timeline",
            "draw_requests": "cosmic.serving.serving_requests",
            "dump_design": "cosmic.design.loading",
            "dump_yaml": "cosmic.design.plain_data",
            "experts": "cosmic.search.design_answers:show_experts",
            "explain_bound": "cosmic.search.advice.design_advice",
            "export": "cosmic.search.design_answers:export_design",
            "find_improvements": "cosmic.search.advice.design_advice",
            "format_quantity": "cosmic.base.units",
            "get_field": "cosmic.design.schema",
            "import_launch": "cosmic.search.mapping.launch_import",
            "load_design": "cosmic.search.mapping.design_completion",
            "load_machine": "cosmic.design.loading",
            "network_loads": "cosmic.step.bottleneck",
            "plan_serving": "cosmic.search.advice.serving_answers",
            "profile_step": "cosmic.step.step_profile",
            "read_value": "cosmic.design.schema",
            "show": "cosmic.search.design_answers:show_design",
            "simulate_design": "cosmic.simulate.events.design_simulation",
            "simulate_load": "cosmic.serving.request_simulation",
            "sweep": "cosmic.search.design_answers:sweep_fields",
            "workload": "cosmic.search.design_answers:list_work",
            "write_value": "cosmic.design.schema",
        },
    )

__all__ = [
    "AXES",
    "BYTES",
    "BYTES_PER_S",
    "FLOP_PER_S",
    "Answer",
    "Batch",
    "BatchOutcome",
    "Collective",
    "CollectiveKind",
    "Compute",
    "DesignComparison",
    "DesignPoint",
    "Dimension",
    "ExpertLoads",
    "Fabric",
    "FabricTier",
    "Facility",
    "Fault",
    "Imported",
    "Infeasible",
    "Launch",
    "Link",
    "Load",
    "Memory",
    "Metrics",
    "Model",
    "Network",
    "NetworkCosts",
    "Node",
    "Outcome",
    "Plan",
    "ProgramModel",
    "Recommender",
    "Run",
    "ServiceAnswer",
    "Serving",
    "StepWork",
    "SweptDesign",
    "Transformer",
    "Workload",
    "accelerator_layers",
    "assign_fields",
    "batch_of",
    "compare_launches",
    "controller_dispatch_s",
    "deployment_of",
    "describe_difference",
    "design_tree",
    "diff",
    "draw_design_timeline",
    "draw_requests",
    "dump_design",
    "dump_yaml",
    "experts",
    "explain_bound",
    "export",
    "find_improvements",
    "format_quantity",
    "get_field",
    "import_launch",
    "load_design",
    "load_machine",
    "network_loads",
    "plan_serving",
    "profile_step",
    "read_value",
    "show",
    "simulate_design",
    "simulate_load",
    "sweep",
    "workload",
    "write_value",
]
