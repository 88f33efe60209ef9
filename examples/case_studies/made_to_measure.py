"""Collectives and bandwidth made to measure for LLaMA-3 405B and DeepSeek-V3, on clusters of today with a bad link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common import Effort, percent, span, write_page
from made_to_measure_alone import MESH, Alone, all_alone
from made_to_measure_alone import section as collectives
from made_to_measure_bandwidth import Bought, Four, all_bought, all_four
from made_to_measure_bandwidth import section as bandwidth
from made_to_measure_cluster import EXPERTS, HEALTHY, NO_NIC, SLOW_NIC, SMALL_BATCH, Case
from made_to_measure_steps import Pair, at, mesh_pairs, mesh_section, pairs_of, remapped_pairs, seconds
from made_to_measure_steps import section as steps

from cosmic.pages import Heading, Items, Part, Text


@dataclass(frozen=True)
class Story:
    """Everything that the page shows."""

    alone: Sequence[Alone]
    pairs: Sequence[Pair]
    again: Sequence[Pair]
    mesh: Sequence[Pair]
    bought: Sequence[Bought]
    four: Sequence[Four]

    def pair(self, case: Case) -> Pair:
        """Return a case with a slow NIC."""
        slow = (case.name, SLOW_NIC.name)
        return next(pair for pair in self.pairs if (pair.case.name, pair.condition) == slow)

    @property
    def healthy_gain(self) -> float:
        """The most that synthesis gains where nothing is wrong."""
        return max(pair.gain for pair in self.pairs if pair.condition == HEALTHY.name) - 1


def told(effort: Effort) -> Story:
    """Return the contents of the page."""
    bought = all_bought(effort)
    return Story(
        all_alone(effort),
        pairs_of(effort),
        remapped_pairs(effort),
        mesh_pairs(effort),
        bought,
        all_four(effort, bought),
    )


def make(effort: Effort) -> list[Part]:
    """Return the page."""
    story = told(effort)
    return [
        *answer(story),
        *collectives(story.alone),
        *steps(story.pairs, story.again),
        *mesh_section(story.mesh),
        *bandwidth(story.bought, story.four),
        *learned(story),
        *LIMITS,
    ]


def answer(story: Story) -> list[Part]:
    """Return the question and its answer."""
    small, experts = story.pair(SMALL_BATCH), story.pair(EXPERTS)
    best = max(story.four, key=lambda each: each.gain)
    return [
        Text(
            f"""1,024 H100 train LLaMA-3 405B and DeepSeek-V3: nodes of eight on NVLink, a rail of InfiniBand NDR for
            each of the eight, and a pipeline over units of several nodes. One NIC runs at a quarter of its rate. What
            do collectives gain that are synthesised for the links as they are, and what does bandwidth gain that is
            bought for these models? The step counts, not only the collective.

            On the healthy cluster synthesis gains next to nothing: {percent(story.healthy_gain)} of a step at most.
            With the slow NIC, the best textbook takes {seconds(experts.textbook.step_s)} for a step of DeepSeek-V3,
            whose experts are on a whole unit, and synthesised collectives {seconds(experts.synthesized.step_s)}:
            {experts.gain:.2f} x. {way_round(story)}For LLaMA-3 405B with a small batch it is
            {seconds(small.textbook.step_s)} and {seconds(small.synthesized.step_s)}, {small.gain:.2f} x. With the
            network's dollars spread anew as well, {best.case.name} gains {best.gain:.2f} x over the textbook on the
            network as built."""
        ),
    ]


def way_round(story: Story) -> str:
    """Return what is gained without synthesis when the slow NIC is switched off; nothing for a quick look."""
    off = at(story.pairs, EXPERTS, NO_NIC)
    if off is None:
        return ""
    return (
        f"Most of that is to go round the NIC: with it switched off, a direct exchange that finds the way takes "
        f"{seconds(off.textbook.step_s)}. "
    )


def learned(story: Story) -> list[Part]:
    """Return what was learned."""
    ill = [each for each in story.alone if each.network != MESH and each.condition == SLOW_NIC.name]
    slow = [pair for pair in story.pairs if pair.condition == SLOW_NIC.name]
    mesh = [pair.gain for pair in story.mesh if pair.condition == "a link at a quarter"]
    dollars = [each for each in story.bought if "dollars" in each.budget]
    off = at(story.pairs, EXPERTS, NO_NIC)
    items = [
        f"""Healthy networks of switches need no synthesis: {percent(story.healthy_gain)} of a step at most. One
        dimension after the other is nearly optimal where these are even.""",
        f"""One bad link changes that. With the slow NIC, collectives by dimension take
        {span((each.dimensions_s or 0.0) / each.bound_s for each in ill)} times their bound and synthesised ones
        {span(each.synthesized_s / each.bound_s for each in ill)}. Of a step synthesis gains
        {span((100 * (pair.gain - 1) for pair in slow), ".1f")} %: little where compute hides communication, and most
        where experts are exchanged across nodes.""",
        f"""Without a switch in the node it is the same: a slow link between two MI300X costs the textbook
        {span((100 * (gain - 1) for gain in mesh), ".0f")} % of a step more than a synthesised schedule.""",
        f"""Bandwidth is bought for the model: for the same dollars the steps gain
        {span((100 * (each.found.gain - 1) for each in dollars), ".1f")} %. Dense models leave the network as it is;
        DeepSeek-V3 wants faster rails and less NVLink.""",
    ]
    if off is not None:
        items.insert(
            2,
            f"""A slow NIC is worse than none. With it switched off, a direct exchange that goes round takes
            {seconds(off.textbook.step_s)} for DeepSeek-V3, and a synthesised one {seconds(off.synthesized.step_s)}:
            most of the gain is to go round the bad link, whoever finds the way.""",
        )
    return [Heading("What was learned"), Items(items)]


LIMITS: list[Part] = [
    Heading("Limits"),
    Text(
        """All steps are in closed form. By link, a unit is one dimension that knows no nodes: a token for several
        experts of one node crosses the rails once for each of them, and not once, which makes DeepSeek-V3 slower there
        while all links work; switches do not reduce, and each call takes the rails' times, also inside a node. The
        textbook's messages take the shortest path in a step, also over a slow link; played alone (by link, in the first
        table) they take the quickest, which for an all-to-all is as good as synthesis. Messages of a pipeline stay on
        their own NIC; if that is broken, they share a neighbour's. A bad link is in one unit, and all wait for it. A
        spare node would be quicker than any schedule: this is for as long as there is none. No library runs such
        schedules on H100 as they are; `cosmic network synthesize` writes MSCCL-XML for those that can."""
    ),
]


if __name__ == "__main__":
    write_page("Made to measure: collectives and bandwidth", "made-to-measure", make)
