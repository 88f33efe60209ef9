"""ASTRA-sim 2.0's questions: wafer-scale against conventional networks, and a mixture's memory in a pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from astra_sim_2_designs import (
    ASSUMED,
    EQUAL,
    MAPPINGS,
    MIXTURE,
    MIXTURE_NPUS,
    NETWORKS,
    NPUS,
    PORT_GB_PER_S,
    SCHEDULINGS,
    Memories,
    all_reduce_s,
    memories,
    metrics_of,
    mixture,
    on_network,
    total_gb_per_s,
)
from common import Effort, write_page

from cosmic.design import Metrics
from cosmic.pages import Axis, Bar, BarGroup, Figure, Heading, Part, Series, Table, Text, bars, lines, stacked_bars

SOURCE = "Won et al., ASTRA-sim2.0, ISPASS 2023, arXiv 2303.14006"
PUBLISHED_WAFER, PUBLISHED_POOL = 2.51, 4.6
RATES_GB_PER_S = (25, 50, 100, 200, 400)
GIGABYTE = 1e9
WAFER, DEEP = "wafer, 1-D", "conventional, 4-D"


def _shape(network: str) -> str:
    return " · ".join(f"{topology.replace('_', ' ')} {npus} @ {rate:g}" for topology, npus, rate in NETWORKS[network])


@dataclass(frozen=True)
class Measured:
    """What one network takes, with chunks in order or levelled."""

    all_reduce_s: float
    models: Mapping[str, Metrics]

    @property
    def figures(self) -> dict[str, float]:
        """Seconds of all that networks are compared by."""
        steps = {f"step of {model}": found.step_s for model, found in self.models.items()}
        waits = {f"exposed communication of {model}": _exposed(found) for model, found in self.models.items()}
        return {"all-reduce of 1 GB": self.all_reduce_s, **steps, **waits}


def _measured(names: Iterable[str]) -> dict[tuple[str, str], Measured]:
    return {
        (name, way): Measured(
            all_reduce_s(name, GIGABYTE, way),
            {model: metrics_of(on_network(name, *MAPPINGS[model], way)) for model in MAPPINGS},
        )
        for name in names
        for way in SCHEDULINGS
    }


def _table(found: Mapping[tuple[str, str], Measured]) -> Table:
    rows = []
    for (name, way), each in found.items():
        steps = [_seconds(one.step_s) for one in each.models.values()]
        waits = [_seconds(_exposed(one)) for one in each.models.values()]
        rows.append([name, way, f"{each.all_reduce_s * 1e3:.2f}", *steps, *waits])
    heads = (*(f"step of {model}, s" for model in MAPPINGS), *(f"exposed, {model}, s" for model in MAPPINGS))
    return Table(["network", "chunks", "all-reduce of 1 GB, ms", *heads], rows)


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value >= 1 else f"{value:.4f}"


def _shapes(names: Iterable[str]) -> Table:
    return Table(["network", "dimensions: NPUs @ GB/s of each NPU"], [[name, _shape(name)] for name in names])


def _networks() -> list[Part]:
    found = _measured(EQUAL)
    reduced = {key: each.all_reduce_s for key, each in found.items()}
    chart = bars(
        [BarGroup(name, [Bar(way, reduced[name, way] * 1e3) for way in SCHEDULINGS]) for name in EQUAL],
        x=Axis("all-reduce of 1 GB", unit="ms"),
        title=f"An all-reduce among {NPUS} NPUs with 600 GB/s each",
    )
    slowest = max(reduced, key=lambda key: reduced[key])
    spread = reduced[slowest] / min(reduced.values())
    large = "Transformer-1T"
    gap = {way: found[DEEP, way].models[large].step_s / found[WAFER, way].models[large].step_s for way in SCHEDULINGS}
    return [
        Heading("A wafer, or dimensions of a conventional network"),
        Text(
            f"{NPUS} A100 with 600 GB/s each: on a wafer, all of it reaches every NPU, or a row and a column; in"
            " conventional networks most of it stays near. An all-reduce passes all dimensions: chunk after chunk in"
            " their order, or levelled, so that all of them are busy (Themis).\n\n"
            f"In order, the conventional 4-D network takes {gap['in order']:.2f} times as long as the 1-D wafer for a"
            f" step of {large}; levelled, {gap['levelled']:.2f} times. All-reduces alone are up to {spread:.2f} times"
            f" apart, the slowest on the {slowest[0]} network {slowest[1]}: two dimensions of equal bandwidth in order"
            " leave the second nearly idle."
        ),
        Figure(chart, "networks"),
        _table(found),
        _shapes(EQUAL),
    ]


def _unequal() -> list[Part]:
    found = _measured(ASSUMED)
    equal = _ratios(found, lambda one, other: total_gb_per_s(one) == total_gb_per_s(other))
    every = _ratios(found, lambda _, __: True)
    rows = [[figure, *(_ratio(each[figure]) for each in (equal, every))] for figure in every]
    top = max(every, key=lambda figure: every[figure].times)
    steps = max(each.times for figure, each in every.items() if figure.startswith("step"))
    same = max(equal, key=lambda figure: equal[figure].times)
    return [
        Heading("Networks that differ in bandwidth too"),
        Text(
            f"The paper is summed up as finding wafers up to {PUBLISHED_WAFER} times faster than conventional networks"
            f" in some cases, and that conventional networks match them with scheduling ({SOURCE}). Its networks are"
            " thought to differ in the bandwidth of an NPU. Those below are assumed, and were not checked against the"
            f" paper; nor is it known which of its figures the {PUBLISHED_WAFER} is of. So here is every pair of a 1-D"
            " wafer and another network, by an all-reduce alone, by steps, and by the communication that steps wait"
            " for.\n\n"
            f"At equal bandwidth of an NPU, the largest ratio is {equal[same].times:.2f} ({same}:"
            f" {equal[same].in_words}). With a wafer of any of these bandwidths it is {every[top].times:.2f} ({top}:"
            f" {every[top].in_words}), beside the published {PUBLISHED_WAFER}; steps are at most"
            f" {steps:.2f} times apart. Nothing was fitted, and the largest of many ratios confirms an order of"
            " magnitude, not a number."
        ),
        Table(["figure", "largest ratio at equal bandwidth", "largest ratio, any of these wafers"], rows),
        _table(found),
        _shapes(ASSUMED),
    ]


@dataclass(frozen=True)
class Ratio:
    """How many times as long as a 1-D wafer a network takes."""

    times: float
    network: str
    wafer: str
    way: str

    @property
    def in_words(self) -> str:
        """Which network, by which chunks, and which wafer."""
        return f"{self.network} GB/s {self.way}, over {self.wafer} GB/s"


def _ratio(each: Ratio) -> str:
    return f"{each.times:.2f}: {each.in_words}"


def _ratios(found: Mapping[tuple[str, str], Measured], comparable: Callable[[str, str], bool]) -> dict[str, Ratio]:
    """Return for each figure the largest ratio of a network to a 1-D wafer, both with chunks alike."""
    best: dict[str, Ratio] = {}
    wafers = [name for name in ASSUMED if name.startswith(WAFER)]
    for (name, way), each in found.items():
        for wafer in wafers:
            if name in wafers or not comparable(name, wafer):
                continue
            for figure, value in each.figures.items():
                times = value / found[wafer, way].figures[figure]
                if figure not in best or times > best[figure].times:
                    best[figure] = Ratio(times, name, wafer, way)
    return best


def _exposed(found: Metrics) -> float:
    return sum(found.breakdown[name] for name in ("tp", "ep", "dp", "weights", "cp", "pp"))


def _waits(found: Metrics) -> dict[str, float]:
    """Return what a step of the mixture waits for, and the rest."""
    parts = found.breakdown
    waits = {
        "tokens to experts": parts["ep"],
        "weights and gradients over the network": parts["weights"] + parts["dp"],
        "outer memory": parts["offload"],
    }
    return {"compute": found.step_s - sum(waits.values()), **waits}


def _pools(effort: Effort) -> list[Part]:
    ways = memories()
    found = {each.name: metrics_of(mixture(each)) for each in ways}
    waits = {name: _waits(each) for name, each in found.items()}
    exposed = {name: sum(parts.values()) - parts["compute"] for name, parts in waits.items()}
    first = ways[0].name
    chart = stacked_bars(
        [BarGroup(name, [Bar(part, value) for part, value in parts.items()]) for name, parts in waits.items()],
        x=Axis("step", unit="s"),
        title=f"A mixture of a trillion parameters on {MIXTURE_NPUS} A100",
    )
    rows = []
    for each in ways:
        simulated = metrics_of(mixture(each), engine="event").step_s
        step = found[each.name].step_s
        rows.append(
            [
                *(each.name, f"{step:.2f}", f"{simulated:.2f}", f"{exposed[each.name]:.2f}"),
                *(f"{found[first].step_s / step:.2f}", f"{exposed[first] / exposed[each.name]:.2f}"),
            ]
        )
    rates = RATES_GB_PER_S[1:4] if effort.quick else RATES_GB_PER_S
    curves = _curves(rates)
    help_ = ways[2].name
    return [
        Heading("Memory in a pool, whose switches gather and reduce"),
        Text(
            f"`{MIXTURE}` (1.03 trillion parameters, 384 experts) on {MIXTURE_NPUS} A100 in groups of 16 experts'"
            " ranks;"
            " weights, gradients and optimizer states live outside of HBM. As ZeRO-Infinity does it, every accelerator"
            f" has {PORT_GB_PER_S:g} GB/s to memory of its own, loads its shards, and gathers the others over the"
            " network."
            " A pool with as much bandwidth changes nothing by itself. Switches that gather send every shard once to"
            " all"
            " that want it, and those that reduce write one sum: neither all-gather nor reduce-scatter crosses the"
            " network"
            " between accelerators.\n\n"
            f"Exposed time shrinks {exposed[first] / exposed[help_]:.1f} times with them, and"
            f" {exposed[first] / exposed[ways[3].name]:.1f} times with ports five times as wide, which a switch that"
            f" copies can fill. The paper reports up to {PUBLISHED_POOL} times for its mixture ({SOURCE}); its system"
            " parameters differ from ours, so that the size of the effect is what compares. ASTRA-sim's public code has"
            " no"
            " such pool: its remote-memory file knows memory of each NPU, of each node, and one pool without switches,"
            " all"
            " of which `cosmic simulate --remote-memory` reads."
        ),
        Figure(chart, "pool"),
        Table(
            ["memory", "step, s", "step in the event engine, s", "exposed, s", "speed-up", "exposed, times less"],
            rows,
        ),
        Figure(
            lines(
                curves,
                x=Axis("bandwidth of memory for each accelerator", unit="GB/s", log=True),
                y=Axis("step", unit="s"),
                title="How much bandwidth a pool needs",
            ),
            "pool-bandwidth",
        ),
        Table(
            ["memory", *(f"{rate} GB/s" for rate in rates)],
            [[curve.name, *(f"{step:.2f}" for _, step in curve.points)] for curve in curves],
            "Steps in seconds, by the bandwidth of memory for each accelerator.",
        ),
    ]


def _curves(rates: tuple[int, ...]) -> list[Series]:
    by_rate: dict[int, list[Memories]] = {rate: memories(rate) for rate in rates}
    names = [each.name for each in next(iter(by_rate.values()))]
    return [
        Series(name, [(rate, metrics_of(mixture(ways[place])).step_s) for rate, ways in by_rate.items()])
        for place, name in enumerate(names)
        if name != "pool"
    ]


def page(effort: Effort) -> list[Part]:
    """Return the page."""
    return [
        Text(
            f"ASTRA-sim 2.0 ({SOURCE}) asks two questions of future machines: does a wafer beat a conventional network"
            " of"
            " several dimensions, and what does memory behind switches do for models that fit no accelerator? Both are"
            " answered here by this cost model, and the second also by the event engine."
        ),
        *_networks(),
        *_unequal(),
        *_pools(effort),
        Heading("What we learned"),
        Text(
            "At equal bandwidth of an NPU, where it goes matters less than whether all of it is busy: levelled chunks"
            " make"
            " four networks of very different shape nearly equal for collectives of all NPUs, and tensor parallelism"
            " that"
            " stays in the first dimension is quicker where that dimension is wide. A pool gains nothing by being a"
            " pool:"
            " its switches do, by taking all-gathers and reduce-scatters from the network between accelerators."
        ),
    ]


if __name__ == "__main__":
    write_page("ASTRA-sim 2.0: wafers and memory pools", "astra-sim-2", page)
