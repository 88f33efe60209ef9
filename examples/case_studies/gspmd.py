"""Automatic sharding: GSPMD's utilisation, XLA's collectives beside ours, and strategies that are found, not stated."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import Effort, percent, span, write_page
from gspmd_layer import CASES, Case, program, sent_by_xla

from cosmic import evaluate, load_design
from cosmic.design import Metrics, dump_yaml
from cosmic.model import Sharded, design_with, shard, strategy_tables
from cosmic.pages import Heading, Items, Part, Table, Text

PUBLISHED = (0.50, 0.62)
"""Compute utilisation, Xu et al., GSPMD, arXiv 2105.04663, abstract: up to 2,048 cores, up to a trillion parameters."""
LAYER = {"hidden": 8192, "heads": 128, "head_dim": 256, "ffn": 65536, "vocab": 32000, "gated": False}
"""The layer of the recorded programs; 32 of them are 69 billion parameters."""
SIZES = {"64B": (32, 128), "128B": (64, 256), "256B": (128, 512), "512B": (256, 1024), "1T": (512, 2048)}
"""Layers and cores; the table of the paper could not be read, so that depth follows from the number of parameters."""
MODEL, SYSTEM, DEVICES, SEQUENCE = "llama3-8b", "dgx-h100", 64, 2048
BATCHES = (8, 64, 128)


# ------------------------------------------------------------------------------------------- utilisation


@dataclass(frozen=True)
class Used:
    """One dense transformer on TPU v3 cores, with the best two-dimensional sharding."""

    name: str
    cores: int
    dp: int
    tp: int
    microbatch: int
    metrics: Metrics


def two_dimensional(effort: Effort) -> list[Used]:
    """Return GSPMD's models with weights and activations split over both axes, each at its best degrees."""
    sizes = dict(list(SIZES.items())[:2]) if effort.quick else SIZES
    return [best_of(name, layers, cores) for name, (layers, cores) in sizes.items()]


def best_of(name: str, layers: int, cores: int) -> Used:
    """Return the degrees and the microbatch at which a model uses its cores best."""
    found: list[Used] = []
    for tp in (4, 8, 16, 32):
        for microbatch in (1, 2, 4, 8):
            dp = cores // tp
            workload: dict[str, Any] = {"dp": dp, "tp": tp, "cp": 1, "pp": 1, "sequence": 1024}
            workload |= {"micro_batch": microbatch}
            workload |= {"global_batch": microbatch * dp, "weight_sharding": "zero3", "sequence_parallel": False}
            workload |= {"recompute": "full", "strategies": ["gspmd_2d"]}
            model = {"family": "decoder", "layers": layers, "norm": "layernorm", **LAYER}
            tree = {"model": model, "system": f"tpu-v3:{cores}", "workload": workload}
            outcome = evaluate(load_design(tree, plain=True))
            if isinstance(outcome, Metrics):
                found.append(Used(name, cores, dp, tp, microbatch, outcome))
    return max(found, key=lambda each: each.metrics.mfu)


# ------------------------------------------------------------------------------------------- one layer


@dataclass(frozen=True)
class Beside:
    """What XLA sends for a layer, and what ours do."""

    case: Case
    compiled: Sharded
    best: Sharded

    @property
    def xla(self) -> float:
        """Bytes that a device sends in XLA's program."""
        return sent_by_xla(self.case)


def layers(effort: Effort) -> list[Beside]:
    """Return the recorded layers, as compiled and at their best."""
    cases = [case for case in CASES if not (effort.quick and case.training)]
    return [
        Beside(
            case,
            shard(program(), "x=8,y=8", annotate=case.annotations, mode="as_compiled", training=case.training),
            shard(program(), "x=8,y=8", annotate=case.annotations, training=case.training),
        )
        for case in cases
    ]


# ------------------------------------------------------------------------------------------- strategies


@dataclass(frozen=True)
class Compared:
    """One batch: steps of known strategies, and of the one that was found."""

    batch: int
    known: Mapping[str, float | None]
    found: Sharded
    step_s: float | None


def known_designs(batch: int) -> dict[str, dict[str, Any]]:
    """Return strategies that people state."""
    both = {"sequence": SEQUENCE, "global_batch": batch, "pp": 1, "cp": 1, "recompute": "none"}
    two = {"dp": 8, "tp": 8, "micro_batch": batch // 8}
    return {
        "Megatron, tp 8": {**both, **two, "weight_sharding": "none", "sequence_parallel": True},
        "FSDP": {**both, "dp": 64, "tp": 1, "micro_batch": max(1, batch // 64), "weight_sharding": "zero3"},
        "2D": {
            **both,
            **two,
            "weight_sharding": "zero3",
            "sequence_parallel": False,
            "strategies": ["gspmd_2d"],
        },
    }


def compared(effort: Effort) -> list[Compared]:
    """Return the step of each strategy, evaluated in the same way."""
    rows = []
    for batch in BATCHES[:2] if effort.quick else BATCHES:
        known = {name: step_of(tree) for name, tree in known_designs(batch).items()}
        found = shard(MODEL, "dp=8,tp=8", system=SYSTEM, batch=batch, sequence=SEQUENCE, memory="80 GB")
        rows.append(Compared(batch, known, found, evaluated(found)))
    return rows


def evaluated(found: Sharded) -> float | None:
    """Return the seconds of a step with what was found as a strategy of the design, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        tables = strategy_tables(found, f"found_{Path(folder).name}")
        (Path(folder) / "strategies").mkdir()
        for name, table in tables.items():
            (Path(folder) / "strategies" / f"{name}.yaml").write_text(dump_yaml(table))
        before = os.environ.get("COSMIC_PATH")
        os.environ["COSMIC_PATH"] = folder
        try:
            outcome = evaluate(load_design(design_with(found, list(tables))))
        finally:
            os.environ.pop("COSMIC_PATH") if before is None else os.environ.__setitem__("COSMIC_PATH", before)
    return outcome.step_s if isinstance(outcome, Metrics) else None


def step_of(workload: Mapping[str, Any]) -> float | None:
    """Return the seconds of a step; None if it does not fit, or has fewer sequences than replicas."""
    if workload["global_batch"] < workload["dp"]:
        return None
    tree = {"model": MODEL, "system": f"{SYSTEM}:{DEVICES}", "workload": workload}
    outcome = evaluate(load_design(tree, plain=True))
    return outcome.step_s if isinstance(outcome, Metrics) else None


# ------------------------------------------------------------------------------------------- the page


def make(effort: Effort) -> list[Part]:
    """Return the page."""
    used, beside, rows = two_dimensional(effort), layers(effort), compared(effort)
    return [*_learned(used, beside, rows), *_utilisation(used), *_layers(beside), *_strategies(rows), *LIMITS]


def _learned(used: Sequence[Used], beside: Sequence[Beside], rows: Sequence[Compared]) -> list[Part]:
    shares = [each.metrics.mfu for each in used]
    inside = sum(PUBLISHED[0] <= share <= PUBLISHED[1] for share in shares)
    less = sum(each.best.value <= each.xla for each in beside)
    best = sum(row.step_s is not None and row.step_s <= 1.01 * min(_steps(row)) for row in rows)
    return [
        Heading("What was learned"),
        Items(
            [
                f"""Dense transformers with two-dimensional sharding use
                {span([100 * each for each in shares], ".0f")} % of TPU v3 cores; GSPMD reports 50 to 62 %.
                {inside} of {len(used)} sizes are inside.""",
                f"""With the same annotations, {less} of {len(beside)} layers send no more than XLA's program does. As
                compiled by the rules of XLA, forward passes send the same bytes exactly.""",
                f"""At a small batch automatic sharding splits heads over tp and tokens between them, as Megatron does;
                at large ones it splits weights and batch over all devices, as FSDP does. It is the fastest of all, or
                within 1 % of it, at {best} of {len(rows)} batch sizes.""",
            ]
        ),
    ]


def _steps(row: Compared) -> list[float]:
    return [each for each in row.known.values() if each is not None]


def _utilisation(used: Sequence[Used]) -> list[Part]:
    return [
        Heading("Utilisation"),
        Text(
            """Models are layers of width 8,192 with feed-forward networks of 65,536, as many as the parameters ask for.
            Weights and the residual stream are split over both axes (`gspmd_2d`, `zero3`), all activations are
            recomputed, and degrees and microbatch are the best of a grid. MFU counts the model's flop, HFU also
            those that are recomputed; the abstract does not say which of them its 50 to 62 % are."""
        ),
        Table(
            ["parameters", "cores", "dp", "tp", "microbatch", "MFU", "HFU", "GSPMD reports"],
            [
                [
                    each.name,
                    each.cores,
                    each.dp,
                    each.tp,
                    each.microbatch,
                    percent(each.metrics.mfu),
                    percent(each.metrics.hfu),
                    "50 to 62 %",
                ]
                for each in used
            ],
        ),
    ]


def _layers(beside: Sequence[Beside]) -> list[Part]:
    def mega(value: float) -> str:
        return f"{value / 1e6:,.0f}"

    return [
        Heading("One layer, beside XLA"),
        Text(
            """Megabytes that a device of an 8 x 8 mesh sends, with bandwidth-optimal algorithms. XLA is jax 0.10.2 with
            Shardy, read after partitioning and before backend passes fuse an all-reduce and a slice into a
            reduce-scatter; its programs of gradients return no output, so that one all-reduce of the forward pass is
            missing in them. Best has the same annotations, and chooses the rest."""
        ),
        Table(
            ["sharding", "pass", "XLA", "as compiled", "best", "XLA over best"],
            [
                [
                    each.case.name,
                    "both" if each.case.training else "forward",
                    mega(each.xla),
                    mega(each.compiled.value),
                    mega(each.best.value),
                    f"{each.xla / each.best.value:.2f} x",
                ]
                for each in beside
            ],
        ),
    ]


def _strategies(rows: Sequence[Compared]) -> list[Part]:
    names = list(rows[0].known)

    def shown(value: float | None) -> str:
        return "cannot run" if value is None else f"{1e3 * value:,.0f} ms"

    return [
        Heading("Found, beside stated"),
        Text(
            f"""A step of {MODEL} on {DEVICES} H100 by batch, sequences of {SEQUENCE:,}, without recomputation. All are
            evaluated by `cosmic evaluate`; what was found is a strategy of that design. Gap is between its compute
            and collectives and a bound for any annotations."""
        ),
        Table(
            ["batch", *names, "found", "gap", "stream", "w_q", "w_ffn_up"],
            [
                [
                    row.batch,
                    *(shown(row.known[name]) for name in names),
                    shown(row.step_s),
                    percent(row.found.gap),
                    str(row.found.sharding("x", "layer")),
                    str(row.found.sharding("w_q")),
                    str(row.found.sharding("w_ffn_up")),
                ]
                for row in rows
            ],
        ),
    ]


LIMITS: list[Part] = [
    Heading("Limits"),
    Text(
        """The search adds up kernels and collectives; a step also has launches, the optimizer and overlap in detail, so
        that the best sum need not be the best step. Backward operators are split as forward ones are. TPU v3 kernels
        were never measured here: its efficiencies are estimates. One of the recorded matrix products sends 6 % less in
        XLA, which cuts an axis in two and swaps it with another."""
    ),
]


if __name__ == "__main__":
    write_page("GSPMD, and sharding without annotations", "gspmd", make)
