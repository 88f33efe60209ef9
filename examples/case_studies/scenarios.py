"""Five further questions that COSMIC asks: inference, several models, network cost, batch sizes, faster compute.

Each has a module of its own, which gives its section of the page.
"""

from __future__ import annotations

from common import Effort, write_page
from scenarios_batches import larger_batches
from scenarios_computing import faster_compute
from scenarios_mixture import several_models
from scenarios_prices import network_cost
from scenarios_serving import inference

from cosmic.reporting.page import Heading, Items, Part, Table, Text


def make(effort: Effort) -> list[Part]:
    """Return the page: the answers in brief, what each rests on, and what follows."""
    questions = (inference, several_models, network_cost, larger_batches, faster_compute)
    sections = [ask(effort) for ask in questions]
    parts: list[Part] = [
        Text(
            """COSMIC's studies beyond its main one, asked again with a corrected model. Each section below gives the
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
            """The rewards decide more than the workloads do. On NPUs of 10 TFLOP/s the searches by performance per
            bandwidth end at the least bandwidth that the space offers, because compute takes the time anyway; what such
            a search finds is thrift, not speed. Look at the step beside the reward, and search the front of both.""",
            """Ask what is shared. A network is bought once for all jobs; a mapping is chosen for each. Forcing one
            mapping on all costs the small models most, and teaches nothing about the network.""",
            """Weights of a mix are a decision. Equal steps give the largest model nearly all of the say; equal times
            give each the same.""",
            """Networks matter by their ratio to compute. One figure, GB/s for each TFLOP/s, says for a model and its
            mappings where a network stops being free.""",
        ]
    ),
]

DIFFERENCES: list[Part] = [
    Heading("Where this differs from the paper, and why"),
    Text(
        """The paper's figures for these studies are not compared: only its abstract and the published inputs of its
        experiments were at hand, and the simulator that they name has defects that move absolute times. What follows
        from those for each study:"""
    ),
    Items(
        [
            """Inference. In the original roofline, time is always bytes over memory bandwidth, and the peak has no
            effect. Decoding is bound by memory anyway, and suffers little; a prefill is bound by compute, and looks too
            short there. The original passes the whole batch at once; here the micro-batch is searched, and the whole
            wins.""",
            """Several models. A condition that is always true made the original add the runtimes where a mean was
            meant. For a fixed number of models the order of designs is the same; the number is four times too
            large.""",
            """Dollars. Prices are the same, and agree with the totals in the original's logs. The original counts seven
            links in a fully connected dimension whatever its size, so that the bandwidth in its reward is off for those
            of 4 and 16 NPUs; here bandwidth is what a NPU sends into a dimension.""",
            """Batches. The original has no micro-batches, so that pipeline stages never save time; here they can. With
            data parallelism of at most 512, four stages are how the smaller models fill the system. Its models have
            four layers and its memory no optimizer states (and in the final runs the limit appears to be off); here
            they are whole, and GPT3-175B needs its weights sharded.""",
            """Compute. With a peak that has no effect, a sweep of it can show none. Here eight times the peak pays
            almost in full, if memory and network keep up.""",
        ]
    ),
]


if __name__ == "__main__":
    write_page("Five further scenarios", "scenarios", make)
