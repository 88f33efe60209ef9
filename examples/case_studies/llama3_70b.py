"""LLaMA-3 70B on 512 H100: which mapping to train with, against the one that NVIDIA publishes.

The whole space is gone through, so that what is said of its best is said of all of it.
"""

from __future__ import annotations

from common import Effort, percent, write_page
from llama3_70b_mappings import NPUS, SAFE, TASK, Story, told
from llama3_70b_optimum import close, flatness, mappings, memory
from llama3_70b_trust import trust

from cosmic.reporting.page import Heading, Items, Part, Text


def make(effort: Effort) -> list[Part]:
    """Return the page."""
    story = told(effort)
    return [
        *answer(story),
        *mappings(story),
        *flatness(story),
        *memory(story),
        *trust(story),
        *learned(story),
        *CAVEATS,
    ]


def answer(story: Story) -> list[Part]:
    """Return the question and its answer."""
    best, nvidia, chosen, trials = story.best, story.nvidia, story.chosen, story.found.trials
    return [
        Text(
            f"""LLaMA-3 70B is to be trained in bf16 on {NPUS} H100 (64 nodes of eight, InfiniBand NDR between them),
            with sequences of 8,192 tokens and {TASK["workload.global_batch"]:,} of them a step. Which mapping should
            one begin with, and what is lost with the one that NVIDIA publishes for this model?

            Begin with `{chosen.mapping}`: {chosen.step} a step, {chosen.tokens_per_s:,.0f} tokens/s/GPU, {chosen.mfu}
            of the peak, {chosen.memory}. Of {len(trials):,} mappings, {trials.feasible:,} fit. The fastest,
            `{best.mapping}`, takes {best.step} and {best.memory}; the one to begin with has no more parts a stage than
            NVIDIA's, fills {chosen.filled} of the memory and is {percent(chosen.longer(best))} slower.

            NVIDIA's mapping, `{nvidia.mapping}`, takes {percent(nvidia.longer(chosen))} longer in closed
            form{when_played(story)}. Predictions of such runs are off by {percent(best.metrics.expected_error, 0)} on
            average ({best.metrics.expected_on}). Part of such an error is common to all mappings and does not change
            their order, but how much was not measured: the difference says what to try first, not what to believe."""
        ),
    ]


def when_played(story: Story) -> str:
    """Return the same difference by the other engine; nothing for a quick look, which does not play both."""
    if story.nvidia not in story.played:
        return ""
    longer = story.played_s[story.nvidia.name] / story.played_s[story.chosen.name] - 1
    return f", {percent(longer)} when both are played"


def learned(story: Story) -> list[Part]:
    """Return what was learned."""
    best, nvidia, plain, chosen, shallow = story.best, story.nvidia, story.plain, story.chosen, story.shallow
    feasible = story.found.trials.feasible
    near, nearly = (close(story.found, share)[0] for share in (0.05, 0.10))
    thumb = "; ".join(f"{each.name}, {percent(each.longer(best), 0)}" for each in story.named[1:])
    return [
        Heading("What was learned"),
        Items(
            [
                f"""The published mapping is a good one: {percent(nvidia.longer(best))} from the best of the whole
                space, less than the error to be expected. The rules of thumb are further away: {thumb}.""",
                f"""The optimum is flat and small. {near:,} mappings are within 5 % and {nearly:,} within 10 % of the
                best, of {feasible:,} that fit: {percent(nearly / feasible)} of them. Among those, choose by what the
                framework does well; a search pays by keeping one out of the rest.""",
                f"""What the better mappings share is less tensor parallelism, with the memory that takes paid for by
                sequence parallelism across GPUs and by spreading gradients (ZeRO-2). Where the framework has ZeRO-1
                only, there is `{plain.mapping}` at {plain.step}. The fastest fill the memory ({shallow.filled} for the
                best of few parts), which is closer than a model of memory should be trusted.""",
                f"""Headroom is affordable: in {SAFE}, with at most five parts a stage, a step takes
                {percent(chosen.longer(best))} longer than the shortest of all, and still
                {percent(-chosen.longer(nvidia))} less than with NVIDIA's mapping, which needs {nvidia.memory}.""",
                f"""Two engines are better than one: stages of {best.point.workload.virtual_stages} parts look best in
                closed form, and lose to those of {shallow.point.workload.virtual_stages} when they are played.""",
            ]
        ),
    ]


CAVEATS: list[Part] = [
    Heading("What this does not say"),
    Text(
        """The efficiencies of the H100 in the catalog are estimates, not calibrated for this model; networks have not
        been checked against measured runs of this size. A mapping that is 2 % better here may be worse there. Overlap
        of tensor-parallel collectives, uneven nodes, stragglers and the time to restart are not modelled. The paper has
        no such study: it is here to ask of the tool what one would ask of it first."""
    ),
]


if __name__ == "__main__":
    write_page("LLaMA-3 70B on 512 H100", "llama3-70b", make)
