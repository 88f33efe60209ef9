"""COMET's questions: MP x DP of Transformer-1T, expanded memory, clusters beside each other, DLRM."""

from __future__ import annotations

from collections.abc import Sequence

from comet_designs import (
    BATCH,
    DEGREES,
    LOCAL_BYTES,
    MODEL,
    NPUS,
    Mapped,
    Recommended,
    baseline,
    best_of,
    design,
    even_states_bytes,
    expanded,
    fastest,
    recommended,
    unlimited,
)
from common import Effort, write_page

from cosmic.model import count_parameters
from cosmic.pages import (
    Axis,
    Bar,
    BarGroup,
    Figure,
    Heading,
    LineAcross,
    Part,
    Series,
    Table,
    Text,
    bars,
    heat_map,
    lines,
    stacked_bars,
)

CAPACITIES_GB = (64, 128, 256, 512, 1024, 2048)
BANDWIDTHS_GB_PER_S = (50, 100, 250, 500, 1000, 2000)
SYSTEMS = ("dgx-a100-40gb", "dgx-a100", "dgx-h100", "dgx-h200", "mi300x", "dgx-b200", "dgx-b300", "tpu-v4", "gaudi2")
RECOMMENDER_NPUS = (8, 16, 32, 64, 128, 256, 512, 1024)
PUBLISHED = {"clusters": 7.7, "expansion": 1.4}
SOURCE = "COMET, arXiv 2211.16648, abstract of version 2"


def _mappings() -> list[Part]:
    found = [unlimited(tp) for tp in DEGREES]
    count = count_parameters(design(1).model)
    rows = []
    for each in found:
        formula = 2 * count / each.tp + 14 * count / NPUS
        even = even_states_bytes(each.tp)
        rows.append(
            [
                each.name,
                *(f"{size / 1e9:,.0f}" for size in (formula, even, each.states_bytes, each.memory_bytes)),
                "yes" if each.memory_bytes <= LOCAL_BYTES else "no",
                f"{each.step_s:.1f}",
                *(f"{100 * part / each.step_s:.0f} %" for part in each.parts.values()),
            ]
        )
    chart = stacked_bars(
        [
            BarGroup(
                each.name, [Bar("compute", each.compute_s), Bar("exposed MP", each.mp_s), Bar("exposed DP", each.dp_s)]
            )
            for each in found[:9]
        ],
        x=Axis("step", unit="s"),
        across=LineAcross(
            "model states",
            [each.states_bytes for each in found[:9]],
            Axis("model states of a device", unit="B", log=True),
            LOCAL_BYTES,
            "80 GB",
        ),
        title=f"Transformer-1T on {NPUS:,} A100, by MP and DP",
    )
    fewest = min(found, key=lambda each: each.step_s)
    wide = next(each for each in found if each.tp == 64)
    return [
        Heading("MP and DP, and the memory line across them"),
        Text(
            f"Every mapping of `{MODEL}` (128 layers, hidden 25,600, 160 heads) as MP × DP on {NPUS:,} A100: a batch of"
            f" {BATCH:,} sequences of 2,048 tokens that each replica passes at once, ZeRO-2 with 16-bit gradients, full"
            f" recomputation, and as much HBM as it takes. Without a limit {fewest.name} is the fastest,"
            f" {fewest.step_s:.0f} s. Under the line of 80 GB are MP64 and more, {wide.step_s / fewest.step_s:.2f}"
            " times as"
            " long; smaller microbatches let MP32 fit, too (next section). MP512 and MP1024, beyond the chart, are in"
            " the"
            " table."
        ),
        Figure(chart, "mappings", "Where the step goes, and what weights, gradients and optimizer states take."),
        Table(
            [
                *("mapping", "2P/MP + 14P/(MP DP), GB", "ours, heads that divide", "ours, 160 heads padded"),
                *("with activations", "fits 80 GB", "step, s", "compute", "exposed MP", "exposed DP"),
            ],
            rows,
            "Memory of a device. The first column is the formula of the published table: 2,030, 1,022, 518, 266, 140,"
            " 77, 45, 30, 22, 18 and 16 GB. Ours has norms, biases and positions on every rank, which the formula"
            " divides: a gigabyte at MP1024. 160 heads do not divide by 64: `uneven_tp: pad` gives each rank three, 192"
            " in all, and from MP256 on one head each, most of them empty.",
        ),
    ]


def _expansion(effort: Effort) -> tuple[list[Part], float]:
    capacities = CAPACITIES_GB[2:4] if effort.quick else CAPACITIES_GB
    rates = BANDWIDTHS_GB_PER_S[3:5] if effort.quick else BANDWIDTHS_GB_PER_S
    start = baseline()
    grid = [[best_of(expanded(tp, size, rate) for tp in DEGREES[:8]) for rate in rates] for size in capacities]
    gains = [[None if each is None else start.step_s / each.step_s for each in line] for line in grid]
    chart = heat_map(
        [f"{size:,} GB" for size in capacities],
        [f"{rate:,} GB/s" for rate in rates],
        gains,
        value=Axis("speed-up over 80 GB alone"),
        title="What expanded memory buys Transformer-1T",
        names=("capacity", "bandwidth of the expansion"),
    )
    most = max(gain for line in gains for gain in line if gain is not None)
    rows = [
        [f"{size:,} GB", *(each.name if each else "-" for each in line)]
        for size, line in zip(capacities, grid, strict=True)
    ]
    shapes = []
    for tp in (8, 16, 32):
        at = {way: expanded(tp, 512, 500, way) for way in ("serial", "parallel")}
        steps = [f"{each.step_s:.1f}" if each else "-" for each in at.values()]
        shapes.append([f"MP{tp} DP{NPUS // tp}", *steps, f"{unlimited(tp).step_s:.1f}"])
    told: list[Part] = [
        Heading("What would more memory buy?"),
        Text(
            f"With 80 GB alone the fastest mapping is {start.name}, {start.step_s:.0f} s. A tier that kernels load from"
            " and store to (CXL) lets fewer ranks share a model. Of a footprint F that exceeds HBM, a share f lies"
            " outside, and every byte that a kernel moves is outside with that share: t = bytes (f / B_tier + (1 - f) /"
            " B_HBM), or the larger of both where they are read at the same time (`memory.expansion: parallel`).\n\n"
            f"COMET finds up to {PUBLISHED['expansion']} times ({SOURCE}); here it is up to {most:.2f} times. What is"
            " gained is MP beyond a node of eight, over InfiniBand at 25 GB/s; what is lost is little, since the GEMMs"
            " of"
            " such layers are bound by compute. The paper's own clusters were not at hand."
        ),
        Figure(chart, "expansion"),
        Table(["capacity", *(f"{rate:,} GB/s" for rate in rates)], rows, "The fastest mapping with each expansion."),
        Table(
            ["mapping", "serial, s", "parallel, s", "all HBM, s"],
            shapes,
            "512 GB at 500 GB/s, read after HBM or beside it.",
        ),
    ]
    return told, most


def _clusters(effort: Effort) -> list[Part]:
    names = SYSTEMS[1:3] if effort.quick else SYSTEMS
    found: dict[str, Mapped | None] = {name: best_of(fastest(tp, name) for tp in DEGREES[:9]) for name in names}
    found["dgx-a100 + 512 GB at 500 GB/s"] = best_of(expanded(tp, 512, 500) for tp in DEGREES[:8])
    steps = {name: each.step_s for name, each in found.items() if each is not None}
    slowest = max(steps.values())
    ordered = sorted(steps.items(), key=lambda item: item[1])
    chart = bars(
        [BarGroup(name, [Bar("speed-up", slowest / step)]) for name, step in ordered],
        x=Axis("speed-up over the slowest"),
        title=f"Transformer-1T on {NPUS:,} accelerators of each kind",
    )
    rows = [
        [name, each.name, f"{each.step_s:.1f}", f"{slowest / each.step_s:.2f}"]
        if each
        else [name, "fits none", "-", "-"]
        for name, each in sorted(found.items(), key=lambda item: item[1].step_s if item[1] else float("inf"))
    ]
    return [
        Heading("Clusters beside each other"),
        Text(
            f"{NPUS:,} accelerators of each kind, MP × DP only, each with its fastest mapping:"
            f" {slowest / ordered[0][1]:.1f} times between the slowest and the fastest. COMET compares clusters of its"
            f" own, up to {PUBLISHED['clusters']} times apart ({SOURCE}); ours are other machines, so that only the"
            " size"
            " of the spread can be compared. HBM is the machine's own (80 GiB for `dgx-a100`), and 80 GB with"
            " expansion."
        ),
        Figure(chart, "clusters"),
        Table(["cluster", "mapping", "step, s", "speed-up"], rows),
    ]


def _recommender(effort: Effort) -> list[Part]:
    counts = RECOMMENDER_NPUS[:3] if effort.quick else RECOMMENDER_NPUS
    found = {batch: [recommended(npus, batch) for npus in counts] for batch in (65_536, 1_048_576)}
    series = [
        Series(f"batch {batch:,}", [(each.npus, batch / each.step_s / each.npus) for each in line if each])
        for batch, line in found.items()
    ]
    chart = lines(
        series,
        x=Axis("A100", log=True),
        y=Axis("samples per second and accelerator", log=True),
        title="DLRM on more accelerators",
    )
    return [
        Heading("DLRM, whose tables are updated row by row"),
        Text(
            "Tables are spread over all accelerators (model parallel), the perceptrons are copied (data parallel); an"
            " all-to-all turns one into the other. A step looks up few rows: gradients, row-wise Adagrad's sums and the"
            " weights of these alone are read and written, R (1 - (1 - 1/R)^L) of a table of R rows under L lookups."
            " More accelerators hold fewer rows each, but wait longer for each other: memory decides how few are"
            " enough."
        ),
        Figure(chart, "recommender"),
        Table(
            [
                *("A100", "batch", "step, ms", "exchanges, ms", "memory of a device, GB"),
                *("update moves, MB", "if all rows moved, MB"),
            ],
            [_recommender_row(each) for line in found.values() for each in line if each is not None],
        ),
    ]


def _recommender_row(each: Recommended) -> Sequence[object]:
    return [
        each.npus,
        each.batch,
        f"{each.step_s * 1e3:.2f}",
        f"{each.exchange_s * 1e3:.2f}",
        f"{each.memory_bytes / 1e9:.1f}",
        f"{each.update_bytes / 1e6:.1f}",
        f"{each.whole_bytes / 1e6:,.0f}",
    ]


def page(effort: Effort) -> list[Part]:
    """Return the page."""
    expansion, most = _expansion(effort)
    return [
        Text(
            "COMET (Kadiyala et al., arXiv 2211.16648) asks how to balance compute, memory and network of a training"
            " cluster. These are its questions, answered by this cost model: bars of compute and exposed communication"
            " by MP × DP, the memory line across them, and what expanded memory would buy. Of the paper, the abstract's"
            " numbers and the footprint formula are compared; its clusters are not published in a form that could be"
            " run here."
        ),
        *_mappings(),
        *expansion,
        *_clusters(effort),
        *_recommender(effort),
        Heading("What we learned"),
        Text(
            "Capacity decides the mapping, and the mapping the step: memory that is ten times slower than HBM still"
            " pays,"
            " because it moves MP from InfiniBand into a node, while a layer's GEMMs hardly notice it. From MP64 on,"
            " half"
            " of a step is exposed communication, and heads that do not divide cost a tenth more weights on top. A"
            f" recommender is the other way round: its update is rows, not tables. Up to {most:.2f} times from"
            " expansion is"
            f" ours, {PUBLISHED['expansion']} times the paper's."
        ),
    ]


if __name__ == "__main__":
    write_page("COMET: memory, mappings and clusters", "comet", page)
