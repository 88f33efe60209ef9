"""Inference: what questions and chats want, and whether one design serves both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from common import Effort, Section, front_of, percent
from scenarios_designs import (
    LARGEST,
    MODELS,
    REWARD,
    TIME,
    Answer,
    budget,
    cases,
    explore,
    full_stack,
    mappings,
    seconds,
)

from cosmic.psa.space import ParameterSet
from cosmic.reporting.charts import Axis, Mark, scatter
from cosmic.reporting.page import Figure, Part, Table, Text
from cosmic.reporting.scales import quantity


@dataclass(frozen=True)
class Requests:
    """A kind of request: what is read, what is written, and where decoding stands on average."""

    prompt: int
    written: int
    context: int


QUESTION, CHAT, BOTH = "question", "chat", "both"
KINDS = {QUESTION: Requests(1000, 200, 1100), CHAT: Requests(3000, 1000, 3500)}
SMALL, LARGE = "24 GB", "80 GB"
FARTHEST = 10
"""How many times the best a wait may be and still be drawn."""

Served = Mapping[tuple[str, str], Mapping[str, Answer]]
"""The best designs by memory and objective, and then by kind of request."""


def requests_space(kinds: Iterable[str], memory: str, name: str) -> ParameterSet:
    """Return the full stack for requests of some kinds, equally many of each."""
    shares: dict[str, Any] = {}
    for kind in kinds:
        asked = KINDS[kind]
        shares[f"{kind} prefill"] = {"workload.task": "prefill", "workload.sequence": asked.prompt}
        decode = {"workload.task": "decode", "workload.sequence": asked.context}
        shares[f"{kind} decode"] = {"weight": asked.written, **decode}
    usual = {"dp": 64, "tp": 4, "cp": 1, "pp": 4, "weight_sharding": "none"}
    workload = {"task": "prefill", "sequence": 1000, "global_batch": 256, **usual}
    return full_stack(
        1024,
        {"model": MODELS[LARGEST], "workload": workload, "memory": {"capacity": memory}},
        name,
        parameters={"workload.micro_batch": {"powers_of_two": [1, 32]}},
        constraints=["dp * micro_batch <= global_batch"],
        workloads=shares,
    )


def serve(effort: Effort) -> Served:
    """Return the best designs for questions, for chats and for both, with less and more memory."""
    wanted = {QUESTION: [QUESTION], CHAT: [CHAT], BOTH: list(KINDS)}
    best = {}
    for memory, objective in cases(effort, ((SMALL, REWARD), (LARGE, REWARD), (SMALL, TIME))):
        spaces = {name: requests_space(kinds, memory, name) for name, kinds in wanted.items()}
        best[memory, objective] = explore(spaces, budget(effort, 2400), objective)
    return best


def inference(effort: Effort) -> Section:
    """Return what questions and chats want."""
    best = serve(effort)
    reward = best[SMALL, REWARD]
    shared = {kind: reward[kind].try_out(reward[BOTH].best) for kind in KINDS}
    costs = {kind: max(0.0, each.step_s / reward[kind].best.step_s - 1) for kind, each in shared.items()}
    told = " and ".join(f"{percent(cost)} for a {kind}" for kind, cost in costs.items())
    return Section(
        "Inference: questions and chats",
        "What does inference want, and can one design serve questions and chats?",
        f"A single design for both costs {told}. What it wants is memory bandwidth, not a network.",
        body(best),
    )


def body(best: Served) -> list[Part]:
    """Return the designs, how long one waits with them, and why they are best."""
    asked, chat, quick = KINDS[QUESTION], KINDS[CHAT], best[SMALL, TIME][CHAT]
    rows = [
        [objective, memory, kind, *each.cells, *(seconds(each.metrics[key]) for key in ("ttft_s", "tpot_s", TIME))]
        for (memory, objective), found in best.items()
        for kind, each in ((kind, found[kind].best) for kind in KINDS)
    ]
    return [
        Text(
            f"""{LARGEST} serves batches of 256 on the 1,024-NPU system. A question reads {asked.prompt:,} tokens and
            writes {asked.written:,}; a chat reads {chat.prompt:,} and writes {chat.written:,}. Each is a mix of a
            prefill and as many decoding steps as tokens are written (`workloads:` with weights), with one mapping for
            both; a step of decoding is taken at {asked.context:,} and {chat.context:,} tokens."""
        ),
        Table(
            ["objective", "memory", "for", "mapping", "network", "GB/s", "TTFT", "TPOT", "whole request"],
            rows,
            "The best designs for each kind of request. TTFT: time to first token; TPOT: time per output token.",
        ),
        first_and_next(quick),
        Text(why(best)),
        Text(sooner(quick)),
    ]


def why(best: Served) -> str:
    """Return what makes the best designs the best."""
    small = best[SMALL, REWARD]
    large = best.get((LARGE, REWARD), small)
    chat, quick = small[CHAT].best, best[SMALL, TIME][CHAT].best
    more = max(large[kind].best.reward / small[kind].best.reward - 1 for kind in KINDS)
    decoded = KINDS[CHAT].written * chat.metrics["tpot_s"] / chat.step_s
    narrow, wide = (mappings(requests_space([CHAT], each, f"chat, {each}"), TIME).trials for each in (SMALL, LARGE))
    return f"""Both kinds are ruled by decoding ({percent(decoded, 0)} of a chat), and so want the same design. {SMALL}
        do not forbid it: of {narrow.evaluated:,} mappings {narrow.feasible:,} fit, and {wide.feasible:,} with {LARGE}.
        The best spreads the weights over {chat.values["workload.tp"]} NPUs (of the degrees that are searched, 32 is the
        largest that divides 96 heads), {quantity(chat.metrics["memory_bytes"], "B")} each with the keys and values of
        its chats; more memory {"gains nothing" if more < 1e-3 else f"gains {percent(more)} at most"}. Decoding reads
        all weights for every token, at 50 GB/s. That, not the network, takes the time: with {sum(quick.gb_per_s):,}
        GB/s a NPU, {sum(quick.gb_per_s) / sum(chat.gb_per_s):.1f} times as much, a chat is
        {percent(1 - quick.step_s / chat.step_s)} shorter. What helps is that many sequences share each reading: all
        that a replica has pass at once (micro-batch {chat.values["workload.micro_batch"]} on
        {chat.values["workload.dp"]} replicas)."""


def waits(answer: Answer) -> list[tuple[float, float]]:
    """Return the times to each next and to the first token of the designs that a search tried, its best first."""
    results, best = answer.found.trials.results, answer.best.metrics
    first, after = (results.columns[name][results.feasible] for name in ("ttft_s", "tpot_s"))
    near = (first <= FARTHEST * best["ttft_s"]) & (after <= FARTHEST * best["tpot_s"])
    return [(best["tpot_s"], best["ttft_s"]), *zip(after[near].tolist(), first[near].tolist(), strict=True)]


def first_and_next(answer: Answer) -> Figure:
    """Return the times to the first and to each next token as a figure."""
    best, dots = answer.best.metrics, waits(answer)
    chart = scatter(
        dots,
        x=Axis("time per output token", "s", log=True, better="lower"),
        y=Axis("time to first token", "s", log=True, better="lower"),
        title="A chat's first token and the next ones",
        front=front_of(dots),
        marks=[Mark("shortest chat", best["tpot_s"], best["ttft_s"])],
    )
    caption = f"Designs that were tried for chats with {SMALL}, up to ten times the best of each."
    return Figure(chart, "inference", caption)


def sooner(answer: Answer) -> str:
    """Return what a sooner first token costs."""
    best, (after, first) = answer.best.metrics, front_of(waits(answer))[-1]
    return f"""Who waits for the first token may want something else: of the designs that were tried, the one with the
        soonest needs {seconds(first)} instead of {seconds(best["ttft_s"])}, and {seconds(after)} instead of
        {seconds(best["tpot_s"])} for each token that follows. `ttft_s` and `tpot_s` can be objectives, or limits."""
