"""Inference: the best designs for questions and chats, and whether one design serves both."""

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

from cosmic.pages import Axis, Figure, Mark, Part, Table, Text, quantity, scatter
from cosmic.space import ParameterSet


@dataclass(frozen=True)
class Requests:
    """A kind of request: ISL, OSL, and the mean context length of decode."""

    isl: int
    osl: int
    context: int


QUESTION, CHAT, BOTH = "question", "chat", "both"
KINDS = {QUESTION: Requests(1000, 200, 1100), CHAT: Requests(3000, 1000, 3500)}
SMALL, LARGE = "24 GB", "80 GB"
FARTHEST = 10
"""Designs are drawn up to this factor over the best TTFT and TPOT."""

Served = Mapping[tuple[str, str], Mapping[str, Answer]]
"""The best designs by memory and objective, and then by kind of request."""


def requests_space(kinds: Iterable[str], memory: str, name: str) -> ParameterSet:
    """Return the full-stack space for requests of some kinds, the same number of each."""
    shares: dict[str, Any] = {}
    for kind in kinds:
        request = KINDS[kind]
        shares[f"{kind} prefill"] = {"task": "prefill", "sequence": request.isl}
        shares[f"{kind} decode"] = {"weight": request.osl, "task": "decode", "sequence": request.context}
    usual = {"dp": 64, "tp": 4, "cp": 1, "pp": 4, "weight_sharding": "none"}
    workload = {"task": "prefill", "sequence": 1000, "global_batch": 256, **usual}
    return full_stack(
        1024,
        {"model": MODELS[LARGEST], "workload": workload, "memory": {"capacity": memory}},
        name,
        parameters={"micro_batch": {"powers_of_two": [1, 32]}},
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
    """Return the best designs for questions and chats."""
    best = serve(effort)
    reward = best[SMALL, REWARD]
    shared = {kind: reward[kind].try_out(reward[BOTH].best) for kind in KINDS}
    costs = {kind: max(0.0, each.step_s / reward[kind].best.step_s - 1) for kind, each in shared.items()}
    told = " and ".join(f"{percent(cost)} for a {kind}" for kind, cost in costs.items())
    return Section(
        "Inference: questions and chats",
        "What does inference need, and can one design serve questions and chats?",
        f"A single design for both costs {told}. Inference needs memory bandwidth, not network bandwidth.",
        body(best),
    )


def body(best: Served) -> list[Part]:
    """Return the designs, their TTFT and TPOT, and why they are best."""
    question, chat, quick = KINDS[QUESTION], KINDS[CHAT], best[SMALL, TIME][CHAT]
    rows = [
        [objective, memory, kind, *each.cells, *(seconds(each.metrics[key]) for key in ("ttft_s", "tpot_s", TIME))]
        for (memory, objective), found in best.items()
        for kind, each in ((kind, found[kind].best) for kind in KINDS)
    ]
    return [
        Text(
            f"""{LARGEST} serves batches of 256 on the 1,024-NPU system. A question has an ISL of {question.isl:,}
            tokens and an OSL of {question.osl:,}; a chat {chat.isl:,} and {chat.osl:,}. Each is a mix of one prefill
            and one decode step per output token (`workloads:` with weights), with one mapping for both; decode is
            evaluated at a context of {question.context:,} and {chat.context:,} tokens."""
        ),
        Table(
            ["objective", "memory", "for", "mapping", "network", "GB/s", "TTFT", "TPOT", "whole request"],
            rows,
            "The best designs for each kind of request.",
        ),
        first_and_next(quick),
        Text(why(best)),
        Text(sooner(quick)),
    ]


def why(best: Served) -> str:
    """Return why the best designs are best."""
    small = best[SMALL, REWARD]
    large = best.get((LARGE, REWARD), small)
    chat, quick = small[CHAT].best, best[SMALL, TIME][CHAT].best
    more = max(large[kind].best.reward / small[kind].best.reward - 1 for kind in KINDS)
    decoded = KINDS[CHAT].osl * chat.metrics["tpot_s"] / chat.step_s
    narrow, wide = (mappings(requests_space([CHAT], each, f"chat, {each}"), TIME).trials for each in (SMALL, LARGE))
    return f"""Decode dominates both kinds ({percent(decoded, 0)} of a chat), so that the same design is best for both.
        {SMALL} are enough: of {narrow.evaluated:,} mappings {narrow.feasible:,} fit, and {wide.feasible:,} with
        {LARGE}. The best splits the weights over {chat.values["workload.tp"]} NPUs (32 is the largest searched degree
        that divides 96 heads), {quantity(chat.metrics["memory_bytes"], "B")} each with the KV cache; more memory
        {"gains nothing" if more < 1e-3 else f"gains {percent(more)} at most"}. Decode reads all weights for every
        token, at 50 GB/s. That, not the network, takes the time: with {sum(quick.gb_per_s):,} GB/s per NPU,
        {sum(quick.gb_per_s) / sum(chat.gb_per_s):.1f} times as much, a chat is
        {percent(1 - quick.step_s / chat.step_s)} shorter. Large batches help, because many sequences share each read of
        the weights: a replica runs all its sequences at once (microbatch {chat.values["workload.micro_batch"]} on
        {chat.values["workload.dp"]} replicas)."""


def latencies(answer: Answer) -> list[tuple[float, float]]:
    """Return TPOT and TTFT of the trials of a search, its best first."""
    results, best = answer.found.trials.results, answer.best.metrics
    first, after = (results.columns[name][results.feasible] for name in ("ttft_s", "tpot_s"))
    near = (first <= FARTHEST * best["ttft_s"]) & (after <= FARTHEST * best["tpot_s"])
    return [(best["tpot_s"], best["ttft_s"]), *zip(after[near].tolist(), first[near].tolist(), strict=True)]


def first_and_next(answer: Answer) -> Figure:
    """Return TTFT and TPOT of the trials as a figure."""
    best, dots = answer.best.metrics, latencies(answer)
    chart = scatter(
        dots,
        x=Axis("time per output token", "s", log=True, better="lower"),
        y=Axis("time to first token", "s", log=True, better="lower"),
        title="TTFT and TPOT of a chat",
        front=front_of(dots),
        marks=[Mark("shortest chat", best["tpot_s"], best["ttft_s"])],
    )
    caption = f"Trials for chats with {SMALL}, up to ten times the best of each."
    return Figure(chart, "inference", caption)


def sooner(answer: Answer) -> str:
    """Return the cost of a shorter TTFT."""
    best, (after, first) = answer.best.metrics, front_of(latencies(answer))[-1]
    return f"""For a short TTFT another design is best: the lowest of all trials is {seconds(first)} instead of
        {seconds(best["ttft_s"])}, with a TPOT of {seconds(after)} instead of {seconds(best["tpot_s"])}. `ttft_s` and
        `tpot_s` can be objectives, or bound in constraints."""
