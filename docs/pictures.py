"""Pictures of the concept pages, drawn from the package's own numbers: `python docs/pictures.py` writes them all.

Counts, groups and times come from functions that a reader can call, so that pictures and program agree.
`tests/docs/test_reading.py` draws them again and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import atan2, cos, log10, sin
from pathlib import Path

import numpy as np

import cosmic
from cosmic.design import draw_design_timeline
from cosmic.network import Span, axis_spans, axis_strides
from cosmic.pages import Point
from cosmic.report.charts.drawing import (
    EDGE,
    WIDTH,
    Entry,
    coordinate_text,
    draw_heading,
    draw_label,
    draw_notes,
    draw_rule,
    svg_document,
)
from cosmic.simulate.step_timeline import CLASSES, Timeline

FOLDER = Path(__file__).parent / "explanation"
STYLE = (
    "<style>.cc-edge{fill:none;stroke-width:1.3}.cc-thick{fill:none;stroke-width:2.6}.cc-way{stroke-width:1.5}"
    ".cc-tip{fill:#57606a}.cc .cc-name{font-weight:600}.cc-cut{stroke-width:.5}"
    "@media screen and (prefers-color-scheme:dark){.cc-tip{fill:#a3adb8}}</style>"
)
"""Styles beyond those of charts: frames, arrows, bold names."""
TAILS = ((0.45, 9.0), (-0.45, 9.0))


# ---------------------------------------------------------------------------------------------------------- strokes


def drawing(title: str, description: str, height: float, body: Iterable[str]) -> str:
    """Return a whole picture; title and description are for screen readers."""
    return svg_document(title, description, height, [STYLE, *body])


def bar(at: Point, size: Point, classes: str, text: str = "") -> str:
    """Return a rectangle; *text* shows on hovering."""
    corner = f'x="{coordinate_text(at[0])}" y="{coordinate_text(at[1])}"'
    extent = f'width="{coordinate_text(max(size[0], 0.3))}" height="{coordinate_text(size[1])}"'
    return f'<rect {corner} {extent} class="{classes}">' + (f"<title>{text}</title>" if text else "") + "</rect>"


def box(at: Point, size: Point, lines: Sequence[str], hue: int = 5) -> list[str]:
    """Return a tinted box: its first line is a name, the others explain it."""
    parts = [bar(at, size, f"cc-band cc-f{hue}"), bar(at, size, f"cc-edge cc-s{hue}")]
    first = at[1] + size[1] / 2 - 8.5 * (len(lines) - 1) + 4.5
    for place, line in enumerate(lines):
        style = "cc-muted cc-small" if place else "cc-name"
        parts.append(draw_label((at[0] + size[0] / 2, first + 17 * place), line, style, "middle", 1.3 * size[0]))
    return parts


def arrow(*points: Point) -> str:
    """Return a line through *points* with a head at its end."""
    (x0, y0), (x, y) = points[-2:]
    angle = atan2(y - y0, x - x0)
    wings = [(x - reach * cos(angle + turn), y - reach * sin(angle + turn)) for turn, reach in TAILS]
    line, head = (
        "M" + "L".join(f"{coordinate_text(a)} {coordinate_text(b)}" for a, b in each)
        for each in (points, [(x, y), *wings])
    )
    return f'<path class="cc-axis cc-way" d="{line}"/><path class="cc-tip" d="{head}Z"/>'


def patch(classes: str) -> str:
    """Return a sample for a legend."""
    return bar((0, -6), (22, 12), classes)


# ------------------------------------------------------------------------------------------------- the parameter set

SPACE = "cosmic-1024-full-stack"
EVALUATED = 50_000
"""Designs of the full stack that `cosmic demo` evaluates by default."""
POWERS = {0: "1", 3: "10³", 6: "10⁶", 9: "10⁹", 12: "10¹²", 15: "10¹⁵"}


def parameter_set() -> str:
    """Return the number of designs by searched layer, on a logarithmic scale."""
    whole = cosmic.load_space(SPACE)
    sets = {name: whole.restrict([name]) for name in whole.stacks} | {"all together": whole}
    entries = [
        Entry("all combinations", patch("cc-edge cc-s5")),
        Entry("valid", patch("cc-f0")),
        Entry(f"evaluated by cosmic demo: {EVALUATED:,}", '<path class="cc-line cc-s1" d="M11 -9V9"/>'),
    ]
    parts, top = draw_heading("Number of designs, by layer of the stack that is searched", entries)
    left, row_height, first = 112.0, 46.0, top + 16
    unit, bottom = (WIDTH - left - 44) / 15, first + row_height * len(sets)
    for power, text in POWERS.items():
        across = left + unit * power
        parts.append(draw_rule((across, first - 8), (across, bottom), "cc-grid"))
        parts.append(draw_label((across, bottom + 18), text, "cc-muted", "middle"))
    for place, (name, space) in enumerate(sets.items()):
        row = first + row_height * place
        parts.append(draw_label((left - 12, row + 14), name, "", "end"))
        parts.append(bar((left, row), (unit * log10(space.valid), 18), "cc-f0"))
        parts.append(bar((left, row), (unit * log10(space.raw), 18), "cc-edge cc-s5"))
        parts.append(draw_label((left + 4, row + 32), f"{space.valid:,} of {space.raw:,}", "cc-muted cc-small cc-over"))
    across, row = left + unit * log10(EVALUATED), first + row_height * (len(sets) - 1)
    for style in ("cc-halo", "cc-line cc-s1"):
        parts.append(
            f'<path class="{style}" d="M{coordinate_text(across)} {coordinate_text(row - 5)}V{coordinate_text(row + 18)}"/>'
        )
    below, end = draw_notes([f"cosmic space count {SPACE}; grid lines are a factor of 1,000 apart."], bottom + 28)
    words = "; ".join(f"{name}: {space.valid:,} valid of {space.raw:,}" for name, space in sets.items())
    return drawing(
        "Designs: all combinations, valid, evaluated", f"On a logarithmic scale. {words}.", end + 8, parts + below
    )


# ---------------------------------------------------------------------------------------------- a mesh on a network

PLACEMENT = ("tp", "dp", "pp")
DEGREES = {"tp": 4, "dp": 4, "pp": 2}
NETWORK = (8, 4)
HUES = {"tp": 0, "dp": 2, "pp": 1}


def mesh() -> str:
    """Return 32 GPUs in four nodes, and the groups of rank 0 on each axis."""
    steps = axis_strides(PLACEMENT, DEGREES)
    side, pitch, left, top = 42.0, 50.0, 84.0, 54.0
    parts = [draw_label((EDGE, 26), "tp 4 × dp 4 × pp 2 on 4 nodes of 8 GPUs, tp innermost", "cc-title")]
    for node in range(NETWORK[1]):
        row = top + node * 64
        parts.append(bar((left - 7, row - 7), (8 * pitch + 6, side + 14), "cc-grid"))
        parts.append(draw_label((left - 16, row + 26), f"node {node}", "cc-muted", "end"))
        for place in range(NETWORK[0]):
            at = (left + place * pitch, row)
            parts += _gpu(at, side, node * NETWORK[0] + place, steps)
    right = left + 8 * pitch + 22
    for place, axis in enumerate(PLACEMENT):
        row = top - 7 + place * 84
        far = "neighbours" if steps[axis] == 1 else f"{steps[axis]} ranks apart"
        parts.append(bar((right, row), (8, 70), f"cc-f{HUES[axis]}"))
        parts.append(draw_label((right + 18, row + 16), f"{axis} {DEGREES[axis]}: {far}", "cc-name"))
        for dimension, part in enumerate(axis_spans(NETWORK, steps[axis], DEGREES[axis])):
            at = (right + 18, row + 38 + 18 * dimension)
            parts.append(draw_label(at, _share(dimension, part), "cc-muted cc-small"))
    sentence = "Frames: ranks in a group with rank 0. Dimension 0 is the node, 1 connects nodes."
    below, end = draw_notes([sentence], top + 4 * 64 - 4)
    words = "Rank 0 is in a tp group with ranks 1 to 3, in a dp group with 4, 8 and 12, and in a pp group with 16."
    return drawing("A mesh on a network", words, end + 8, parts + below)


def _gpu(at: Point, side: float, rank: int, steps: dict[str, int]) -> list[str]:
    """Return one GPU, with a frame for each axis on which it shares a group with rank 0."""
    parts = [bar(at, (side, side), "cc-edge cc-s5", f"rank {rank}")]
    for place, axis in enumerate(PLACEMENT):
        if rank % steps[axis] == 0 and rank < steps[axis] * DEGREES[axis]:
            inset = 3 + 4.5 * place
            corner = (at[0] + inset, at[1] + inset)
            parts.append(bar(corner, (side - 2 * inset, side - 2 * inset), f"cc-thick cc-s{HUES[axis]}"))
    return [*parts, draw_label((at[0] + side / 2, at[1] + side / 2 + 4.5), str(rank), "cc-small", "middle")]


def _share(dimension: int, part: Span) -> str:
    """Return the extent of a group in a dimension, in words."""
    members, apart = int(part.members), int(part.step)
    if members == 1:
        return f"not in dimension {dimension}"
    return f"{members} of {NETWORK[dimension]} in dimension {dimension}" + (f", {apart} apart" if apart > 1 else "")


# ---------------------------------------------------------------------------------------------------- two engines


def engines() -> str:
    """Return what both engines share, and where they differ."""
    parts = [draw_label((EDGE, 26), "Two engines, one physics", "cc-title")]
    parts += box((16, 56), (150, 56), ["design", "a model on a machine"])
    parts += box((216, 56), (178, 56), ["plan", "compute, traffic, memory"])
    parts += box((444, 56), (260, 56), ["cost model", "seconds of each kernel and collective"], 4)
    parts += box((444, 156), (260, 44), ["catalog", "fitted on measured kernels and links"], 4)
    parts += box((16, 246), (300, 74), ["analytic engine", "a step in closed form", "100,000 designs a second"], 0)
    parts += box((404, 246), (300, 74), ["event engine", "traces simulated node by node", "one design in seconds"], 1)
    parts += box((16, 372), (688, 44), ["metrics, breakdown, timeline", "the same for both engines"], 2)
    parts += [
        arrow((166, 84), (214, 84)),
        arrow((394, 84), (442, 84)),
        arrow((574, 156), (574, 114)),
        arrow((500, 112), (500, 134), (166, 134), (166, 244)),
        arrow((500, 134), (422, 134), (422, 244)),
        arrow((166, 320), (166, 370)),
        arrow((554, 320), (554, 370)),
        draw_label((178, 226), "the schedule's formula", "cc-muted cc-small"),
        draw_label((434, 226), "dependencies and queues", "cc-muted cc-small"),
    ]
    words = "Both engines share design, plan and cost model; one adds the costs up in closed form, the other simulates."
    return drawing("Two engines, one physics", words, 432, parts)


# ---------------------------------------------------------------------------------------------------- anatomy of a step

MACHINE = "llama3-8b@dgx-h100:32"
PIPELINE = {"tp": 4, "pp": 4, "global_batch": 16}
SHARDED = {"tp": 1, "pp": 1, "global_batch": 64, "weight_sharding": "zero3"}
KINDS = {"compute": 0, "exposed": 1, "hidden": 2, "optimizer": 4}
LEGEND = {
    "compute": "compute",
    "exposed": "exposed communication",
    "hidden": "overlapped communication",
    "optimizer": "optimizer",
}


def step() -> str:
    """Return two steps on one machine: a pipeline of four stages, and sharded weights without a pipeline."""
    entries = [Entry(LEGEND[name], patch(f"cc-f{hue}")) for name, hue in KINDS.items()]
    parts, top = draw_heading(f"Two steps of {MACHINE}", entries)
    timelines = [
        draw_design_timeline(cosmic.load_design(MACHINE, settings, plain=True)) for settings in (PIPELINE, SHARDED)
    ]
    titles = ("dp 2 × tp 4 × pp 4, 8 microbatches", "dp 32, weights sharded (zero3), 2 microbatches")
    sentences = []
    for title, timeline in zip(titles, timelines, strict=True):
        total = timeline.totals
        text = f"{title}: {1e3 * timeline.duration_s:,.0f} ms"
        text += f", {1e3 * total.exposed_s:,.0f} exposed and {1e3 * total.idle_s:,.0f} idle"
        sentences.append(text)
        parts.append(draw_label((EDGE, top + 20), text, "cc-name"))
        more, top = _rows(timeline, top + 30)
        parts += more
    below, end = draw_notes(["Time runs from left to right, each step on its own scale. Blank is idle."], top)
    words = ". ".join(sentences)
    return drawing("Timelines of two steps", f"{words}, on the stage that bounds it.", end + 8, parts + below)


def _rows(timeline: Timeline, top: float) -> tuple[list[str], float]:
    """Return a row of compute and exposed communication and one of overlapped communication for each process."""
    parts: list[str] = []
    left = 84.0
    unit = (WIDTH - left - EDGE) / timeline.duration_ns
    spans = timeline.spans
    owner = np.array([track.process for track in timeline.tracks])[spans.track]
    for place, process in enumerate(timeline.processes):
        row = top + 40 * place
        parts.append(draw_label((left - 10, row + 17), f"{process.name}", "cc-muted cc-small", "end"))
        parts.append(draw_rule((left, row + 33), (WIDTH - EDGE, row + 33), "cc-grid"))
        for index in np.flatnonzero(owner == place):
            name = CLASSES[spans.kind[index]]
            if name not in KINDS:
                continue
            offset, height = (23.0, 8.0) if name == "hidden" else (0.0, 22.0)
            at = (left + unit * spans.start_ns[index], row + offset)
            size = (unit * spans.duration_ns[index], height)
            parts.append(bar(at, size, f"cc-f{KINDS[name]}", timeline.names[spans.name[index]]))
    return parts, top + 40 * len(timeline.processes) + 4


# ------------------------------------------------------------------------------------------------- studies and agents


def study() -> str:
    """Return the loop of a search, and the study that keeps it."""
    parts = [draw_label((EDGE, 26), "A search asks, evaluates, tells, and keeps every trial", "cc-title")]
    parts += box((16, 60), (190, 60), ["agent", "genetic, surrogate, yours …"], 1)
    parts += box((266, 60), (188, 60), ["batch of designs", "valid, none twice"])
    parts += box((514, 60), (190, 60), ["evaluation", "metrics, or infeasible: why"], 0)
    parts += box((266, 190), (188, 60), ["study", "inputs, then batch by batch"], 2)
    parts += box((16, 190), (190, 60), ["--resume", "ask and tell again"])
    parts += box((514, 190), (190, 60), ["report, compare, export", "at any time"])
    parts += [
        arrow((206, 90), (264, 90)),
        arrow((454, 90), (512, 90)),
        arrow((609, 120), (609, 156), (360, 156), (360, 188)),
        arrow((360, 156), (111, 156), (111, 122)),
        arrow((266, 220), (208, 220)),
        arrow((454, 220), (512, 220)),
        draw_label((235, 82), "ask", "cc-muted cc-small", "middle"),
        draw_label((235, 148), "tell", "cc-muted cc-small", "middle"),
        draw_label((372, 178), "keep", "cc-muted cc-small"),
        arrow((40, 190), (40, 122)),
        draw_label((48, 178), "known results", "cc-muted cc-small"),
    ]
    words = "The agent proposes a batch; it is evaluated, kept in the study and reported to the agent."
    return drawing("A search and its study", f"{words} Resuming repeats this with known results.", 270, parts)


PICTURES: dict[str, Callable[[], str]] = {
    "parameter-set.svg": parameter_set,
    "mesh-on-network.svg": mesh,
    "two-engines.svg": engines,
    "step.svg": step,
    "studies.svg": study,
}


def main() -> None:
    """Write every picture."""
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
