"""LLaMA-3 70B on 512 H100: which mapping to train with, compared with the one that NVIDIA publishes.

The search is exhaustive, so that its best is the optimum of the space.
"""

from __future__ import annotations

from common import Effort, percent, write_page
from llama3_70b_mappings import NPUS, SAFE, TASK, Story, told
from llama3_70b_optimum import close, flatness, mappings, memory
from llama3_70b_trust import trust

from cosmic.pages import Heading, Items, Part, Text


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
            f"""LLaMA-3 70B is trained in bf16 on {NPUS} H100 (64 nodes of eight, InfiniBand NDR between them), with
            sequences of 8,192 tokens and a global batch of {TASK["global_batch"]:,}. Which mapping should one start
            with, and what is lost with the one that NVIDIA publishes for this model?

            Start with `{chosen.mapping}`: {chosen.step} a step, {chosen.tokens_per_s:,.0f} tokens/s/GPU, {chosen.mfu}
            MFU, {chosen.memory}. Of {len(trials):,} mappings, {trials.feasible:,} fit in memory. The fastest,
            `{best.mapping}`, takes {best.step} and {best.memory}; the recommended one has no more virtual stages than
            NVIDIA's, fills {chosen.filled} of the memory and is {percent(chosen.longer(best))} slower.

            NVIDIA's mapping, `{nvidia.mapping}`, takes {percent(nvidia.longer(chosen))} longer in closed
            form{when_simulated(story)}. The expected error of such predictions is
            {percent(best.metrics.expected_error or 0.0, 0)} ({best.metrics.expected_on}). Part of that error is common
            to all mappings and does not change their order, but how much was not measured: take the difference as a
            hint of what to try first."""
        ),
    ]


def when_simulated(story: Story) -> str:
    """Return the same difference by the event engine; nothing for a quick look, which does not simulate both."""
    if story.nvidia not in story.simulated:
        return ""
    longer = story.simulated_s[story.nvidia.name] / story.simulated_s[story.chosen.name] - 1
    return f", {percent(longer)} when simulated"


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
                f"""The published mapping is good: {percent(nvidia.longer(best))} from the optimum of the space, where
                the expected error is {percent(best.metrics.expected_error or 0.0, 0)}. The rules of thumb are further
                away: {thumb}.""",
                f"""The optimum is flat and small. {near:,} mappings are within 5 % and {nearly:,} within 10 % of the
                best, of {feasible:,} that fit: {percent(nearly / feasible)} of them. Among those, choose by what the
                framework does well; the value of a search is to avoid the rest.""",
                f"""The better mappings have less tensor parallelism; context parallelism and sharded gradients (ZeRO-2)
                make up for the memory. Where the framework has only ZeRO-1, there is `{plain.mapping}` at {plain.step}.
                The fastest fill the memory ({shallow.filled} for the best with few virtual stages), which is closer
                than a model of memory should be trusted.""",
                f"""Headroom is affordable: in {SAFE}, with at most five virtual stages, a step takes
                {percent(chosen.longer(best))} longer than the shortest of all, and still
                {percent(-chosen.longer(nvidia))} less than with NVIDIA's mapping, which needs {nvidia.memory}.""",
                f"""Two engines are better than one: {best.point.workload.virtual_stages} virtual stages look best in
                closed form, and lose to {shallow.point.workload.virtual_stages} when simulated.""",
            ]
        ),
    ]


CAVEATS: list[Part] = [
    Heading("Limits"),
    Text(
        """The kernels of the H100 are fitted on measurements, the links between nodes are estimates. A mapping that is
        2 % better here may be worse on a real cluster. Tensor-parallel collectives do not overlap here (`tp_overlap` is
        off); uneven nodes, stragglers beyond a fixed slack and restarts are not modelled. The paper has no such study;
        it is the first question that a user of the tool would ask."""
    ),
]


if __name__ == "__main__":
    write_page("LLaMA-3 70B on 512 H100", "llama3-70b", make)
