"""Files that commands read and write: their contents, and where these are defined."""

from __future__ import annotations

from importlib import import_module

from cosmic.accuracy.measured_rows import KINDS
from cosmic.search.space.parameter_set import FORMAT
from cosmic.search.study.study import FORMAT as STUDY_FORMAT
from generation.text import page, prose, source_link, table

INTRODUCTION = """
Text is UTF-8. YAML holds plain data only, JSON is read where a file ends in `.json`, and a repeated key is refused in
both. Files are written under a temporary name and then renamed, so that no reader sees half a file.
"""
FILES = [
    [
        "a design",
        "YAML",
        "`evaluate`, `show`, `export`, …",
        "`search` (`best.yaml`), `show`",
        "[keys](keys.md#a-design)",
    ],
    ["a parameter set", "YAML or JSON", "`search`, `psa`", "", "[keys](keys.md#a-parameter-set)"],
    ["a list of jobs", "YAML", "`fleet`", "", "[share a cluster](../how-to/share-a-cluster.md)"],
    ["an entry of the catalog", "YAML", "all", "", "[keys](keys.md#entries-of-the-catalog)"],
    ["a Hugging Face model", "`config.json`", "all that take a design", "", "[a design](../explanation/designs.md)"],
    ["a study", "a directory", "`compare`, `replay`, `export`, …", "`search`", "[below](#a-study)"],
    ["trials", "CSV, JSON lines or Parquet", "", "`study export STUDY --to FILE`", "[below](#tables-of-trials)"],
    [
        "execution traces",
        "Chakra, `NAME.RANK.et`",
        "`simulate`, `trace`",
        "`trace generate`",
        "[traces](../how-to/traces.md)",
    ],
    ["communicator groups", "JSON", "`simulate`, `trace`", "`trace generate`", "[traces](../how-to/traces.md)"],
    [
        "ASTRA-sim's inputs",
        "JSON, YAML",
        "`simulate`",
        "`design export --to astra-sim`",
        "[event engine](../explanation/event-engine.md)",
    ],
    [
        "a network of links",
        "CSV, YAML, JSON, GraphML, text",
        "`network`",
        "",
        "[below](#networks-of-links)",
    ],
    [
        "a schedule of a collective",
        "CSV, MSCCL-XML, TACOS' logs",
        "`network check`, `network convert`",
        "`network synthesize`",
        "[below](#schedules-of-collectives)",
    ],
    [
        "a timeline",
        "Chrome trace JSON",
        "Perfetto",
        "`--timeline FILE`",
        "[event engine](../explanation/event-engine.md)",
    ],
    ["measured rows", "CSV", "`calibrate validate`", "", "[below](#measured-rows)"],
    ["what `--json` prints", "JSON", "programs", "every command", "`cosmic schema COMMAND`"],
    [
        "launch arguments",
        "shell, TOML, JSON",
        "other software",
        "`design export DESIGN --to NAME`",
        "[exporting](../how-to/export-a-design.md)",
    ],
]
EXPORTED = {
    "trial": "Its number, from 0.",
    "batch": "The batch in which it was proposed, from 0.",
    "workload.dp, network.dims.0.bandwidth_bytes_per_s, …": "Each field that a parameter sets, or that is derived. A "
    "parameter that sets several fields has a column for each. Numbers are in SI units, and the name ends in the unit. "
    "Names are text; a value that is a list is JSON; an accelerator is its name.",
    "feasible": "Whether it can run.",
    "counted": "Whether it counts against the budget: an invalid mapping does not.",
    "reasons": "Why it cannot run; empty if it can.",
    "step_s, mfu, …": "Every [metric](metrics.md); empty where the design has none.",
    "step_s.gemm, step_s.dp, …": "The seconds of the step by part, which add up to `step_s`. Of several workloads: "
    "`step_s.NAME.gemm`, weighted. Not for the event engine, which leaves no such parts.",
    "memory_bytes.weights, …": "The bytes of the fullest accelerator by part, which add up to `memory_bytes`; also of "
    "a trial that needs too much. Of several workloads: `memory_bytes.NAME.weights`.",
}
DESCRIBED = (
    ("A study", "search.study.study"),
    ("Trials", "search.study.trial_storage"),
    ("Tables of trials", "search.study.trial_table"),
    ("Measured rows", "accuracy.measured_rows"),
    ("ASTRA-sim's inputs", "simulate.events.astra_sim_inputs"),
    ("Networks of links", "network.network_files.network_file"),
    ("Networks of other tools", "network.network_files.network_formats"),
    ("Schedules of collectives", "network.schedules.schedule_tables"),
    ("MSCCL-XML", "network.schedules.msccl_xml"),
    ("Units", "base.units"),
)


def make() -> str:
    """Return the page."""
    parts = [INTRODUCTION, table(["file", "format", "read by", "written by", "described"], FILES)]
    parts += [
        f"Parameter sets have format {FORMAT}, and studies format {STUDY_FORMAT}. Any other is refused, with both numbers."
    ]
    for title, name in DESCRIBED:
        module = import_module(f"cosmic.{name}")
        parts += [f"## {title}", prose(module.__doc__), _rest(title), f"Defined in {source_link(module)}."]
    return page("File formats", *parts)


def _rest(title: str) -> str:
    """Return the tables that a module's docstring leaves to its constants."""
    if title == "Trials":
        return "`cosmic study export` writes them as a [table](#tables-of-trials) for other programs."
    if title == "Tables of trials":
        return table(["column", "meaning"], [[f"`{name}`", text] for name, text in EXPORTED.items()])
    if title == "Measured rows":
        rows = [[kind.name, ", ".join(f"`{name}`" for name in sorted(kind.columns))] for kind in KINDS]
        return table(["rows of", "required columns; others are kept"], rows)
    return ""
