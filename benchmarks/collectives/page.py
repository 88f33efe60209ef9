"""The page of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import geometric_mean
from textwrap import fill
from typing import Any

from collectives.algorithms import CHUNKS, COLUMNS, TEXTBOOK

ABOUT = """# Collectives beside their bound

An all-reduce of 1 GiB on {count} networks of up to {most} NPUs: the bound of a reduce-scatter and then an all-gather,
in milliseconds, and beside it the time of every algorithm over that bound. 1.00 is as fast as the two can be in turn;
2.00 takes twice as long. A link holds one transfer at a time, for its latency and the transfer's bytes over its
bandwidth.

```bash
python benchmarks/collective_table.py --page docs/reference/collectives.md
```

"""
READING = """
R is a ring, FC a fully connected group and SW a switch, with their NPUs @ the GiB/s of each, innermost first; a switch
of degree d1 is unwound into a link to the next NPU, one of degree d3 into links to the next three, which share its
bandwidth. Links of the other networks have 50 GiB/s where nothing is said; latencies are 0.3 to 2 µs.

## What the columns are

- **bound**: what must cross the tightest cut of the network, for a reduce-scatter and then an all-gather. ForestColl
  (Zhao et al., 2024) packs spanning trees that reach it with chunks as small as one likes: its optimum is 1.00 by
  definition, and has no column.
- **least**: what no all-reduce of any making can beat, by cuts and by parts of the network. Where it is less than the
  bound, as on meshes, sums that flow up and down the same trees at once could be faster than anything here.
- **ring**, **two-way ring**: along links where a ring through all NPUs over them was found, or in the order of the
  NPUs' numbers, whichever is faster. The two-way ring sends half of the bytes each way.
- **direct**: everyone sends to everyone at once. **halving-doubling**: Thakur et al. (2005), in the order of numbers.
  Messages take the quickest paths; equally quick ones share the load. These four and the trees are played in the event
  engine, with congestion on every link.
- **double tree**: two binary trees (Sanders et al., 2009), as in NCCL; **C-Cube** (Cho et al., HPCA 2023) sends chunks
  down while others are still on their way up. In the order of numbers, with the best of 1 to 64 chunks.
- **MultiTree** (Huang et al., ISCA 2021): a tree from every NPU over the links. It counts all links as equally fast.
- **BlueConnect** (Cho et al., MLSys 2019) goes through the dimensions of a product one after the other; **Themis**
  (Rashidi et al., ISCA 2022) lets every chunk begin where least has been carried so far. Both by a closed form, which
  assumes that chunks pipeline perfectly over dimensions whose bandwidth is used in full, and with the best of
  {fewest} to {most} chunks.
- **LP optimum**: the linear program over all mixtures of orders of dimensions, without latency and with chunks as
  small as one likes: no choice of orders does better. It is a bound, not a schedule.
- **TACOS** (Won et al., MICRO 2024): the best that its public code (v1.3.0) found with up to 8 chunks an NPU; where
  links differ, with its replacement of chunks made causal, as some of its schedules send what has not arrived.
  Recorded: `benchmarks/collectives/tacos_recorded.csv` says where from.
- **COSMIC**: `cosmic network synthesize`, with its own choice of chunks. All {count} schedules pass the independent
  check, and take the same nanoseconds in the event engine as they say.

"""
IDEAL = ("blueconnect", "themis", "best_orders")
"""Closed forms, which have no schedule."""
OTHERS = tuple(name for name in COLUMNS if name not in (*IDEAL, "cosmic"))
NEAR = 1.01
WIDTH = 120


def page(found: Sequence[dict[str, Any]]) -> str:
    """Return the page that compares algorithms with the bound."""
    most = max(row["npus"] for row in found)
    about = ABOUT.format(count=len(found), most=most)
    reading = READING.format(count=len(found), fewest=CHUNKS[0], most=CHUNKS[-1])
    return "".join([about, *(f"{line}\n" for line in table(found)), reading, summary(found), notes(found)])


def table(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| network | NPUs | least, ms | bound, ms | {' | '.join(COLUMNS.values())} |"
    yield f"|---|{'---:|' * (len(COLUMNS) + 3)}"
    for row in found:
        yield line_of(row)
    means = [f"{mean(found, name):.2f}" for name in COLUMNS]
    yield f"| **geometric mean** | | | | {' | '.join(means)} |"


def line_of(row: dict[str, Any]) -> str:
    """Return a network's line of the table."""
    cells = ["–" if value is None else f"{value:.2f}" for value in row["over_bound"].values()]
    limits = [f"{1e3 * row[name]:.3f}" for name in ("least_s", "bound_s")]
    return f"| {row['label']} | {row['npus']} | {' | '.join([*limits, *cells])} |"


def mean(found: Sequence[dict[str, Any]], name: str, where: str = "") -> float:
    """Return the geometric mean of a column, over the networks which have a value there, and *where*."""
    values = (row["over_bound"] for row in found)
    return geometric_mean(each[name] for each in values if each[name] is not None and each[where or name] is not None)


def gain(row: dict[str, Any]) -> tuple[float, str]:
    """Return how much faster the synthesised schedule is than the best other, and which that is."""
    times = {name: row["over_bound"][name] for name in OTHERS if row["over_bound"][name] is not None}
    best = min(times, key=times.__getitem__)
    return times[best] / row["over_bound"]["cosmic"], COLUMNS[best]


def summary(found: Sequence[dict[str, Any]]) -> str:
    """Return what the table says, in words."""
    means = ", ".join(f"{label} {mean(found, name):.2f}" for name, label in COLUMNS.items())
    pairs = ", ".join(
        f"{COLUMNS[name]} {mean(found, name):.3f} and COSMIC {mean(found, 'cosmic', name):.3f}"
        for name in ("multitree", "blueconnect", "themis", "tacos")
    )
    ranked = sorted(found, key=gain)
    (little, other), (much, best) = gain(ranked[0]), gain(ranked[-1])
    far = max(found, key=lambda row: row["over_bound"]["cosmic"])
    taught = [row["label"] for row in found if min(row["over_bound"][name] or NEAR for name in TEXTBOOK) < NEAR]
    paragraphs = [
        f"Geometric means, each over the networks where the algorithm applies: {means}. On the same networks: {pairs}.",
        "Against the best other algorithm with a schedule, so without the closed forms, the synthesised one gains most "
        f"on {ranked[-1]['label']}, where {best} takes {much:.2f} times as long. It gains least on "
        f"{ranked[0]['label']}, where {other} takes {little:.3f} times as long. It is farthest from the bound on "
        f"{far['label']}, by {100 * (far['over_bound']['cosmic'] - 1):.1f} %.",
        f"A ring, direct exchange or halving and doubling comes within {100 * (NEAR - 1):.0f} % of the bound on "
        f"{len(taught)} of the networks: {'; '.join(taught)}.",
    ]
    return "\n\n".join(["## What it says", *(fill(each, WIDTH, break_on_hyphens=False) for each in paragraphs)]) + "\n"


def notes(found: Sequence[dict[str, Any]]) -> str:
    """Return why cells are empty."""
    why: dict[tuple[str, str], list[str]] = {}
    for row in found:
        for name, reason in row["missing"].items():
            why.setdefault((reason, row["label"]), []).append(COLUMNS[name])
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (reason, label), names in why.items():
        grouped.setdefault((reason, tuple(names)), []).append(label)
    lines = [
        fill(
            f"- {', '.join(names)}: {reason} ({'; '.join(labels)}).",
            WIDTH,
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
        for (reason, names), labels in grouped.items()
    ]
    return "\n".join(["", "Cells with – do not apply:", "", *lines]) + "\n"
