"""Steps: textbook collectives and synthesised ones, at the same mapping and re-mapped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from common import Effort, percent
from made_to_measure_cluster import (
    CASES,
    CONDITIONS,
    EXPERTS,
    HEALTHY,
    LONG_CONTEXT,
    NO_NIC,
    SLOW_NIC,
    SMALL_BATCH,
    SYNTHESIZED,
    TEXTBOOK,
    Case,
    Condition,
    Step,
    fastest,
    mapping_of,
    remapped,
    synthesized_step,
    textbook_step,
)

from cosmic.design import Fault
from cosmic.pages import Axis, Bar, BarGroup, Figure, Heading, Part, Table, Text, bars

QUICK_CASES = (SMALL_BATCH, EXPERTS)
QUICK_CONDITIONS = (HEALTHY, SLOW_NIC)


@dataclass(frozen=True)
class Pair:
    """A case under a condition, with the best textbook and with synthesised collectives."""

    case: Case
    condition: str
    mapping: str
    textbook: Step
    synthesized: Step

    @property
    def gain(self) -> float:
        """What synthesis gains."""
        return self.textbook.step_s / self.synthesized.step_s

    @property
    def cells(self) -> list[str]:
        """The two steps, what of them is exposed, and the gain."""
        return [
            seconds(self.textbook.step_s),
            self.textbook.how,
            seconds(self.synthesized.step_s),
            self.synthesized.described,
            f"{seconds(self.textbook.exposed_s)} → {seconds(self.synthesized.exposed_s)}",
            f"{self.gain:.3f} x",
        ]


COLUMNS = ["textbook", "which", "synthesised", "which", "exposed", "gain"]


def seconds(value: float) -> str:
    """Return seconds with three digits or more."""
    return f"{value:.1f} s" if value >= 100 else f"{value:.2f} s"


def pair_of(case: Case, condition: Condition) -> Pair:
    """Return both steps with the mapping of the healthy cluster."""
    point = case.point
    return Pair(
        case, condition.name, mapping_of(point), textbook_step(point, condition), synthesized_step(point, condition)
    )


def remapped_pair(case: Case, condition: Condition) -> Pair:
    """Return both steps with the mapping that a quick search finds for the library's choice on the degraded cluster."""
    point = remapped(case, condition)
    return Pair(
        case, condition.name, mapping_of(point), textbook_step(point, condition), synthesized_step(point, condition)
    )


def pairs_of(effort: Effort) -> list[Pair]:
    """Return all cases under all conditions, or for a quick look four."""
    cases: Sequence[Case] = CASES
    conditions: Sequence[Condition] = CONDITIONS
    if effort.quick:
        cases = tuple(each.smaller() for each in QUICK_CASES)
        conditions = tuple(each.smaller() for each in QUICK_CONDITIONS)
    return [pair_of(case, condition) for case in cases for condition in conditions]


def remapped_pairs(effort: Effort) -> list[Pair]:
    """Return the same with a slow NIC, re-mapped; for a quick look none."""
    if effort.quick:
        return []
    return [remapped_pair(case, SLOW_NIC) for case in CASES]


# ------------------------------------------------------------------------------------------------ the page


def section(pairs: Sequence[Pair], again: Sequence[Pair]) -> list[Part]:
    """Return the section on steps."""
    cases = list(dict.fromkeys(pair.case.name for pair in pairs))
    first = {name: next(pair for pair in pairs if pair.case.name == name) for name in cases}
    return [
        Heading("Steps, not only collectives"),
        Table(
            ["case", "why", "mapping"],
            [[name, each.case.why, f"`{each.mapping}`"] for name, each in first.items()],
            "Mappings are the best of a quick search on the healthy cluster, with a pipeline stage on each unit.",
        ),
        Table(
            ["case", "condition", *COLUMNS],
            [[pair.case.name, pair.condition, *pair.cells] for pair in pairs],
            f"The shortest step with any of {', '.join(TEXTBOOK)}, by dimension or by link, and with synthesised "
            "collectives; the communication that compute does not hide; all at the same mapping.",
        ),
        Figure(
            bars(
                [
                    BarGroup(
                        f"{pair.case.name}, {pair.condition}",
                        [
                            Bar("textbook", _longer(pair.textbook, pairs)),
                            Bar("synthesised", _longer(pair.synthesized, pairs)),
                        ],
                    )
                    for pair in pairs
                    if pair.condition != HEALTHY.name
                ],
                x=Axis("step over that of the healthy cluster", better="lower"),
                title="What a bad link costs",
            ),
            "steps",
            "Steps with bad links, over the textbook's on the healthy cluster.",
        ),
        Text(said(pairs)),
        *(mapped_again(pairs, again) if again else ()),
    ]


def mapped_again(pairs: Sequence[Pair], again: Sequence[Pair]) -> list[Part]:
    """Return what mapping again changes."""
    return [
        Table(
            ["case", "mapping", *COLUMNS],
            [[pair.case.name, f"`{pair.mapping}`", *pair.cells] for pair in again],
            f"With {SLOW_NIC.name}, when the textbook may choose its mapping again, with nothing held; synthesised "
            "collectives take the mapping that it chose.",
        ),
        Text(said_again(pairs, again)),
    ]


def _longer(step: Step, pairs: Sequence[Pair]) -> float:
    """Return a step over the textbook's on the healthy cluster."""
    own = next(pair for pair in pairs if step in (pair.textbook, pair.synthesized))
    base = next(pair for pair in pairs if pair.case == own.case and pair.condition == HEALTHY.name)
    return step.step_s / base.textbook.step_s


def at(pairs: Sequence[Pair], case: Case, condition: Condition) -> Pair | None:
    """Return a case under a condition, if the page has it."""
    return next((each for each in pairs if (each.case.name, each.condition) == (case.name, condition.name)), None)


def said(pairs: Sequence[Pair]) -> str:
    """Return what the table shows."""
    well = [pair for pair in pairs if pair.condition == HEALTHY.name]
    most = max(pairs, key=lambda pair: pair.gain)
    slow = [pair for pair in pairs if pair.condition == SLOW_NIC.name]
    gains = "; ".join(f"{pair.case.name}, {percent(pair.gain - 1)}" for pair in slow)
    text = f"""On the healthy cluster synthesis gains {percent(max(pair.gain for pair in well) - 1)} at most: NVLink and
        rails are a product of two switches, for which BlueConnect is nearly as fast as any schedule. With
        {SLOW_NIC.name} of its rate it gains: {gains}. By dimension all that a GPU gets from its rail must pass its own
        NIC; by link a schedule takes it over NVLink from seven others. The most is {most.gain:.2f} x, for
        {most.case.name} with {most.condition}, where experts' tokens cross the rails in every layer."""
    off, on = (at(pairs, EXPERTS, condition) for condition in (NO_NIC, SLOW_NIC))
    if off is not None and on is not None:
        text += f"""

        A NIC that is slow costs more than one that is off. Without it, messages go round: a direct exchange then takes
        {seconds(off.textbook.step_s)} for {EXPERTS.name}, where the best took {seconds(on.textbook.step_s)}, and
        synthesis gains {percent(off.gain - 1)} over that. Whoever cannot synthesise should switch a slow NIC off, if
        their library goes round it; collectives that go through the rails one by one cannot run at all."""
    long = at(pairs, LONG_CONTEXT, SLOW_NIC)
    if long is not None:
        text += f""" What stays with {LONG_CONTEXT.name} is the pipeline, whose messages no collective algorithm
        re-routes: {seconds(long.synthesized.metrics.breakdown["pp"])} of {seconds(long.synthesized.exposed_s)}."""
    return text


def said_again(pairs: Sequence[Pair], again: Sequence[Pair]) -> str:
    """Return what mapping again changes."""
    parts = []
    for pair in again:
        own = at(pairs, pair.case, SLOW_NIC)
        if own is not None:
            textbook = min(own.textbook.step_s, pair.textbook.step_s)
            best = min(own.synthesized.step_s, pair.synthesized.step_s)
            parts.append(f"{pair.case.name}, {percent(textbook / best - 1)}")
    return f"""The better of both mappings against the better of both, synthesis gains: {"; ".join(parts)}. Some of
        what a slow NIC costs can be mapped away, as more stages need less of the network."""


# ------------------------------------------------------------------------------------------------ another fabric


MESH_CASES = (SMALL_BATCH, replace(EXPERTS, task={"sequence": 4096, "global_batch": 3072, "cp": 1, "precision": "fp8"}))
PAIRS = {"healthy": 1.0, "a link at a quarter": 0.25, "a link broken": 0.0}


def mesh_pair(case: Case, condition: str) -> Pair:
    """Return both steps on MI300X, where the link of the first two GPUs of a node is slow or broken."""
    point = case.loaded("mi300x", pp=STAGES_OF_MESH[case.model])
    faults = () if PAIRS[condition] == 1 else (Fault(npu=0, dim=0, peer=1, speed=PAIRS[condition]),)

    def made(algorithm: str) -> Step:
        collective = replace(point.collective, algorithms=(algorithm,) * len(point.network.dims))
        network = replace(point.network, faults=faults)
        return fastest({(algorithm, "by dimension"): replace(point, network=network, collective=collective)})

    textbook = min((made(name) for name in TEXTBOOK), key=lambda step: step.step_s)
    return Pair(case, condition, mapping_of(point), textbook, made(SYNTHESIZED))


STAGES_OF_MESH = {"llama3-405b": 16, "deepseek-v3": 8}


def mesh_pairs(effort: Effort) -> list[Pair]:
    """Return both cases under all conditions, or for a quick look one."""
    if effort.quick:
        return [mesh_pair(SMALL_BATCH, "a link at a quarter")]
    return [mesh_pair(case, condition) for case in MESH_CASES for condition in PAIRS]


def mesh_section(pairs: Sequence[Pair]) -> list[Part]:
    """Return the section on a fabric without switches in the node."""
    slow = {pair.case.name: pair for pair in pairs if PAIRS[pair.condition] not in (0.0, 1.0)}
    gains = "; ".join(f"{name}, {percent(pair.gain - 1)}" for name, pair in slow.items())
    return [
        Heading("A node without a switch"),
        Text(
            """On 1,024 MI300X the eight GPUs of a node are joined each to each, and NICs make rails between nodes. One
            of the 28 links of one node is slow, or broken; dimensions are as in the catalog, as the fault is inside
            one. Here links are many and thin, and a direct exchange waits for the slowest."""
        ),
        Table(
            ["case", "mapping", "condition", *COLUMNS],
            [[pair.case.name, f"`{pair.mapping}`", pair.condition, *pair.cells] for pair in pairs],
            "Steps on 1,024 MI300X.",
        ),
        Text(
            f"""With a link at a quarter of its rate synthesis gains: {gains}. A schedule sends around the slow link
            through six other GPUs, and loses no more than the two GPUs lost: three quarters of one of their seven
            links. `docs/reference/collectives.md` has more networks, a hybrid cube mesh among them."""
        ),
    ]
