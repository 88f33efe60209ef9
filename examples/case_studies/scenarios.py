"""Five further questions of the COSMIC paper: inference, several models, network cost, batch sizes, faster compute.

Each has its own module, which writes its section of the page.
"""

from __future__ import annotations

from common import Effort, write_page
from scenarios_batches import larger_batches
from scenarios_computing import faster_compute
from scenarios_models import several_models
from scenarios_prices import network_cost
from scenarios_serving import inference

from cosmic.pages import Heading, Items, Part, Table, Text


def make(effort: Effort) -> list[Part]:
    """Return the page: the answers in brief, the evidence for each, and what was learned."""
    questions = (inference, several_models, network_cost, larger_batches, faster_compute)
    sections = [ask(effort) for ask in questions]
    parts: list[Part] = [
        Text(
            """The paper's studies beyond its main one, repeated with a corrected model. Each section below gives the
            numbers behind one of these answers."""
        ),
        Table(["question", "answer"], [[each.question, each.answer] for each in sections]),
    ]
    for each in sections:
        parts += [Heading(each.title), *each.parts]
    return [*parts, *LEARNED, *DIFFERENCES]


LEARNED: list[Part] = [
    Heading("What was learned"),
    Items(
        [
            """The reward matters more than the workload. On NPUs of 10 TFLOP/s the searches by performance per
            bandwidth end at the lowest bandwidth of the space, because compute dominates; such a search saves
            bandwidth, not time. Look at the step beside the reward, and search the Pareto front of both.""",
            """Know what is shared. A network is bought once for all jobs; a mapping is chosen for each. Forcing one
            mapping on all costs the small models most, and says nothing about the network.""",
            """The weights of a mix are a decision. With equal steps the largest model dominates; with equal times each
            counts the same.""",
            """What matters is the ratio of network to compute. One figure, GB/s per TFLOP/s, says for a model and its
            mappings when the network becomes the bottleneck.""",
        ]
    ),
]

DIFFERENCES: list[Part] = [
    Heading("Where this differs from the paper, and why"),
    Text(
        """The paper's figures for these studies are not compared: only its abstract and the published inputs of its
        experiments were available, and the simulator that they name has defects that change absolute times. Their
        effect on each study:"""
    ),
    Items(
        [
            """Inference. In the original roofline, time is always bytes over memory bandwidth, and the peak has no
            effect. Decode is memory-bound anyway, and changes little; prefill is compute-bound, and is too short there.
            The original runs the whole batch at once; here the microbatch is searched, and the whole batch wins.""",
            """Several models. A condition that is always true makes the original add the runtimes instead of averaging
            them. For a fixed number of models the order of designs is the same; the number is four times too
            large.""",
            """Dollars. Prices are the same, and agree with the totals in the original's logs. The original counts seven
            links in a fully connected dimension of any size, so that the bandwidth in its reward is wrong for 4 and 16
            NPUs; here bandwidth is what an NPU injects into a dimension.""",
            """Batches. The original has no microbatches, so that pipeline stages never save time; here they can. With
            data parallelism of at most 512, the smaller models need four stages to fill the system. Its models have
            four layers and its memory no optimizer states (and in the final runs the limit appears to be off); here
            they are complete, and GPT3-175B needs sharded weights.""",
            """Compute. With a peak that has no effect, a sweep over it shows nothing. Here eight times the peak pays
            off almost in full, if memory and network keep up.""",
        ]
    ),
]


if __name__ == "__main__":
    write_page("Five further scenarios", "scenarios", make)
