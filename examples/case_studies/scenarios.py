"""Five further questions that COSMIC asks: inference, several models, network cost, batch sizes, faster compute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

import numpy as np
from common import Effort, find, write_page

from cosmic import catalog, load_space
from cosmic.cost.price import rates
from cosmic.exploration.problem import Problem, Results
from cosmic.exploration.searching import Found
from cosmic.psa.diagram import Indices
from cosmic.psa.space import ParameterSet
from cosmic.reporting.charts import Axis, Bar, Group, Mark, Series, bars, lines, scatter
from cosmic.reporting.page import Figure, Heading, Part, Table, Text
from cosmic.reporting.scales import quantity

REWARD, DOLLARS, TIME = "perf_per_bandwidth", "perf_per_network_cost", "step_s"
LEAST_TRIALS = 64
"""Even a quick look must find something that runs."""
TIE = 1e-6
SHORT = {"ring": "ring", "fully_connected": "full", "switch": "switch"}
DIMS = range(4)
WHOLE = 0.5
"""The share of the effort below which not all cases are looked at."""
Case = TypeVar("Case")


@dataclass(frozen=True)
class Section:
    """A question, its answer in a sentence, and what it rests on."""

    title: str
    question: str
    answer: str
    parts: Sequence[Part]


# ------------------------------------------------------------------------------------------------- designs


@dataclass(frozen=True)
class Design:
    """A design that was found, and what it achieves in the problem it is looked at in."""

    row: Indices
    values: Mapping[str, Any]
    metrics: Mapping[str, float]

    @property
    def mapping(self) -> str:
        """How the workload is spread, in one line."""
        parts = [f"{name} {self.values[f'workload.{name}']}" for name in ("tp", "sp", "dp", "pp")]
        parts += [f"micro-batch {self.values[key]}" for key in ("workload.micro_batch",) if key in self.values]
        sharding = str(self.values["workload.weight_sharding"])
        return ", ".join(parts + ([sharding] if sharding != "none" else []))

    @property
    def network(self) -> str:
        """Topology and size of each dimension, innermost first."""
        dims = [[self.values[f"network.dims.{place}.{key}"] for key in ("topology", "npus")] for place in DIMS]
        return " · ".join(f"{SHORT[topology]} {npus}" for topology, npus in dims)

    @property
    def bandwidths(self) -> list[int]:
        """GB/s of one NPU into each dimension."""
        return [int(str(self.values[f"network.dims.{place}.bandwidth"]).split()[0]) for place in DIMS]

    @property
    def cells(self) -> list[str]:
        """The design as cells of a table: mapping, network, bandwidths."""
        return [self.mapping, self.network, f"{' + '.join(map(str, self.bandwidths))} = {sum(self.bandwidths):,}"]


@dataclass(frozen=True)
class Answer:
    """What a search was asked, and its best design."""

    problem: Problem
    best: Design
    found: Found

    def try_out(self, design: Design) -> Design:
        """Return what another design does in this problem."""
        return look_at(self.problem, design.row)


def look_at(problem: Problem, row: Indices) -> Design:
    """Return a design as it does in *problem*."""
    results = problem.evaluate(row[None, :])
    if not results.feasible[0]:
        raise SystemExit(f"{problem.space.name}: a design that should run does not: {results.reasons[0]}")
    metrics = {name: float(column[0]) for name, column in results.columns.items()}
    return Design(row, problem.space.labels(row), metrics)


def best_of(problem: Problem, rows: Indices, results: Results) -> Design:
    """Return the best of designs; of those that are as good, the one with the cheapest network."""
    found = results.columns[problem.objectives[0]]
    losses = found if problem.objectives[0] == TIME else 1 / found
    if not results.feasible.any():
        raise SystemExit(f"{problem.space.name}: nothing that was tried can run: {set(results.reasons)}")
    near = np.flatnonzero(losses <= np.nanmin(losses) * (1 + TIE))
    return look_at(problem, rows[near[np.argmin(results.columns["network_usd"][near])]])


def explore(
    spaces: Mapping[str, ParameterSet], trials: int, objective: str, known: Iterable[Answer] = (), seeds: int = 1
) -> dict[str, Answer]:
    """Return the best design for each of *spaces*, which have the same parameters.

    What is found for one, or *known*, is tried on the others: so none is worse than what is known already, and a
    difference between two is one of the problems, not of the luck of the search.
    """
    found = {name: find(space, trials, objectives=[objective]) for name, space in spaces.items()}
    again = [
        find(space, trials, objectives=[objective], seed=seed)
        for space in spaces.values()
        for seed in range(2, seeds + 1)
    ]
    leaders = [_leaders(each) for each in (*found.values(), *again, *(each.found for each in known))]
    pool = np.unique(np.concatenate(leaders), axis=0)
    best = []
    for each in found.values():
        first = best_of(each.problem, pool, each.problem.evaluate(pool))
        best.append(improved(each.problem, first, trials // 100).row)
    last = np.stack(best)
    return {
        name: Answer(each.problem, best_of(each.problem, last, each.problem.evaluate(last)), each)
        for name, each in found.items()
    }


def improved(problem: Problem, best: Design, rounds: int) -> Design:
    """Return a design that no change of one parameter betters, or as far as so many *rounds* of changes come.

    A genetic search leaves loose ends; after this, two designs differ by more than one lucky value.
    """
    space = problem.space
    for _ in range(rounds):
        rows = np.repeat(best.row[None, :], 1 + sum(space.sizes), axis=0)
        changes = [(place, index) for place, size in enumerate(space.sizes) for index in range(size)]
        for number, (place, index) in enumerate(changes, start=1):
            rows[number, place] = index
        rows = space.repair(rows)
        better = best_of(problem, rows, problem.evaluate(rows))
        if (better.row == best.row).all():
            break
        best = better
    return best


def _leaders(found: Found) -> Indices:
    """Return the best designs of a search."""
    most = 4 + len(found.trials) // 40
    objective = found.problem.objectives[0]
    values = found.trials.results.columns[objective]
    ranked = np.argsort(values if objective == TIME else -values)
    return found.trials.rows[ranked[:most]]


def mappings(space: ParameterSet, objective: str) -> Found:
    """Return every mapping on the given network, evaluated: there are few enough."""
    stacks = ["workload"]
    count = space.restrict(stacks).valid
    return find(space, count, agent="exhaustive", objectives=[objective], stacks=stacks)


def best_mapping(space: ParameterSet, objective: str) -> Design:
    """Return the best mapping on the given network."""
    found = mappings(space, objective)
    return best_of(found.problem, found.trials.rows, found.trials.results)


def full_stack(npus: int, base: Mapping[str, Any], name: str, **changes: Any) -> ParameterSet:
    """Return COSMIC's space for a system, around another base design."""
    known = catalog.entry("spaces", f"cosmic-{npus}-full-stack")
    tree = {**known, "name": name, "base": {"system": f"cosmic-{npus}", **base}}
    tree["parameters"] = {**known["parameters"], **changes.pop("parameters", {})}
    tree["constraints"] = [*known["constraints"], *changes.pop("constraints", [])]
    return load_space({**tree, **changes})


def given_gb_per_s(system: str) -> list[float]:
    """Return the bandwidths of a system of the catalog, innermost first."""
    return [float(dim["bandwidth"].split()[0]) for dim in catalog.entry("systems", system)["network"]["dims"]]


def pareto(dots: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that none is better than in both."""
    kept: list[tuple[float, float]] = []
    for dot in sorted(dots):
        if not kept or dot[1] < kept[-1][1]:
            kept.append(dot)
    return kept


def budget(effort: Effort, whole: int) -> int:
    """Return how many designs to try in one search."""
    return max(LEAST_TRIALS, effort.trials(whole))


def cases(effort: Effort, every: Iterable[Case]) -> tuple[Case, ...]:
    """Return all of them, or for a quick look the first and the last."""
    first, *between, last = every
    return (first, *between, last) if effort.share >= WHOLE else (first, last)


def percent(share: float, digits: int = 1) -> str:
    """Return a share for a reader."""
    return f"{100 * share:.{digits}f} %"


def seconds(value: float) -> str:
    """Return seconds for a reader."""
    return quantity(value, "s")


def dollars(value: float) -> str:
    """Return dollars for a reader."""
    return quantity(value, "USD")


# ------------------------------------------------------------------------------------------------- inference


@dataclass(frozen=True)
class Requests:
    """A kind of request: what is read, what is written, and where decoding stands on average."""

    prompt: int
    written: int
    context: int


KINDS = {"question": Requests(1000, 200, 1100), "chat": Requests(3000, 1000, 3500)}
BOTH, SMALL, LARGE = "both", "24 GB", "80 GB"


def inference_space(kinds: Iterable[str], memory: str, name: str) -> ParameterSet:
    """Return the full stack for requests of some kinds, equally many of each."""
    shares: dict[str, Any] = {}
    for kind in kinds:
        asked = KINDS[kind]
        shares[f"{kind} prefill"] = {"workload.task": "prefill", "workload.sequence": asked.prompt}
        decode = {"workload.task": "decode", "workload.sequence": asked.context}
        shares[f"{kind} decode"] = {"weight": asked.written, **decode}
    usual = {"dp": 64, "tp": 4, "sp": 1, "pp": 4, "weight_sharding": "none"}
    workload = {"task": "prefill", "sequence": 1000, "global_batch": 256, **usual}
    return full_stack(
        1024,
        {"model": "gpt3-175b", "workload": workload, "memory": {"capacity": memory}},
        name,
        parameters={"workload.micro_batch": {"powers_of_two": [1, 32]}},
        constraints=["dp * micro_batch <= global_batch"],
        workloads=shares,
    )


def inference(effort: Effort) -> Section:
    """Return what questions and chats want."""
    wanted = {"question": ["question"], "chat": ["chat"], BOTH: list(KINDS)}
    best: dict[tuple[str, str], dict[str, Answer]] = {}
    for memory, objective in cases(effort, ((SMALL, REWARD), (LARGE, REWARD), (SMALL, TIME))):
        spaces = {name: inference_space(kinds, memory, name) for name, kinds in wanted.items()}
        best[memory, objective] = explore(spaces, budget(effort, 2400), objective)
    rows = [
        [objective, memory, kind, *each.cells, *(seconds(each.metrics[key]) for key in ("ttft_s", "tpot_s", TIME))]
        for (memory, objective), found in best.items()
        for kind, each in ((kind, found[kind].best) for kind in KINDS)
    ]
    reward = best[SMALL, REWARD]
    costs = {
        kind: max(0.0, reward[kind].try_out(reward[BOTH].best).metrics[TIME] / reward[kind].best.metrics[TIME] - 1)
        for kind in KINDS
    }
    told = " and ".join(f"{percent(cost)} for a {kind}" for kind, cost in costs.items())
    asked, chat = KINDS["question"], KINDS["chat"]
    return Section(
        "Inference: questions and chats",
        "What does inference want, and can one design serve questions and chats?",
        f"A single design for both costs {told}. What it wants is memory bandwidth, not a network.",
        [
            Text(
                f"""GPT3-175B serves batches of 256 on the 1,024-NPU system. A question reads {asked.prompt:,} tokens
                and writes {asked.written:,}; a chat reads {chat.prompt:,} and writes {chat.written:,}. Each is a mix of
                a prefill and as many decoding steps as tokens are written (`workloads:` with weights), with one mapping
                for both; a step of decoding is taken at {asked.context:,} and {chat.context:,} tokens."""
            ),
            Table(
                ["objective", "memory", "for", "mapping", "network", "GB/s", "TTFT", "TPOT", "whole request"],
                rows,
                "The best designs for each kind of request. TTFT: time to first token; TPOT: time per output token.",
            ),
            first_and_next(best[SMALL, TIME]["chat"]),
            Text(inference_text(best)),
            Text(waiting_text(best[SMALL, TIME]["chat"])),
        ],
    )


def waits(answer: Answer) -> list[tuple[float, float]]:
    """Return the times to each next and to the first token of the designs that a search tried."""
    results, best = answer.found.trials.results, answer.best.metrics
    first, after = (results.columns[name][results.feasible] for name in ("ttft_s", "tpot_s"))
    near = (first <= 10 * best["ttft_s"]) & (after <= 10 * best["tpot_s"])
    own = (best["tpot_s"], best["ttft_s"])
    return [own, *zip(after[near].tolist(), first[near].tolist(), strict=True)]


def waiting_text(answer: Answer) -> str:
    """Return what a sooner first token costs."""
    best, (after, first) = answer.best.metrics, pareto(waits(answer))[-1]
    return f"""Who waits for the first token may want something else: of the designs that were tried, the one with the
        soonest needs {seconds(first)} instead of {seconds(best["ttft_s"])}, and {seconds(after)} instead of
        {seconds(best["tpot_s"])} for each token that follows. `ttft_s` and `tpot_s` can be objectives, or limits."""


def first_and_next(answer: Answer) -> Figure:
    """Return the times to the first and to each next token as a figure."""
    best, dots = answer.best.metrics, waits(answer)
    chart = scatter(
        dots,
        x=Axis("time per output token", "s", log=True, better="lower"),
        y=Axis("time to first token", "s", log=True, better="lower"),
        title="A chat's first token and the next ones",
        front=pareto(dots),
        marks=[Mark("shortest chat", best["tpot_s"], best["ttft_s"])],
    )
    return Figure(chart, "inference", "Designs that were tried for chats with 24 GB, up to ten times the best of each.")


def inference_text(best: Mapping[tuple[str, str], Mapping[str, Answer]]) -> str:
    """Return what the table says."""
    small = best[SMALL, REWARD]
    large = best.get((LARGE, REWARD), small)
    chat, quick = small["chat"].best, best[SMALL, TIME]["chat"].best
    rooms = [large[kind].best.metrics[REWARD] / small[kind].best.metrics[REWARD] - 1 for kind in KINDS]
    room = "gains nothing" if max(rooms) < 1e-3 else f"gains {percent(max(rooms))} at most"
    decoded = KINDS["chat"].written * chat.metrics["tpot_s"] / chat.metrics[TIME]
    less, more = (mappings(inference_space(["chat"], each, f"chat, {each}"), TIME).trials for each in (SMALL, LARGE))
    wider = sum(quick.bandwidths) / sum(chat.bandwidths)
    return f"""Both kinds are ruled by decoding ({percent(decoded, 0)} of a chat), and so want the same design. {SMALL}
        do not forbid it: of {less.evaluated:,} mappings {less.feasible:,} fit, and {more.feasible:,} with {LARGE}. The
        best spreads the weights over {chat.values["workload.tp"]} NPUs (of the degrees that are searched, 32 is the
        largest that divides 96 heads), {quantity(chat.metrics["memory_bytes"], "B")} each with the keys and values of
        its chats; more memory {room}. Decoding reads all weights for every token, at 50 GB/s. That, not the network,
        takes the time: with {sum(quick.bandwidths):,} GB/s a NPU, {wider:.1f} times as much, a chat is
        {percent(1 - quick.metrics[TIME] / chat.metrics[TIME])} shorter. What helps is that many sequences share each
        reading: all that a replica has pass at once (micro-batch {chat.values["workload.micro_batch"]} on
        {chat.values["workload.dp"]} replicas)."""


# ------------------------------------------------------------------------------------------------- several models

MODELS = {
    "GPT3-175B": "gpt3-175b",
    "GPT3-13B": "gpt3-13b",
    "ViT-Base": "cosmic-vit-base",
    "ViT-Large": "cosmic-vit-large",
}
LARGEST = "GPT3-175B"
STEPS, TIMES = "equal steps", "equal times"


def tokens(model: str) -> int:
    """Return the length of a sequence: pictures have 256 patches."""
    return 256 if model.startswith("ViT") else 2048


def models_space(weights: Mapping[str, float], name: str) -> ParameterSet:
    """Return the full stack for models that a system trains in turns."""
    shares = {
        model: {"weight": weight, "model": MODELS[model], "workload.sequence": tokens(model)}
        for model, weight in weights.items()
    }
    return full_stack(1024, {"model": MODELS[LARGEST]}, name, workloads=shares)


def several(effort: Effort) -> Section:
    """Return one design for four models, against one for each."""
    trials = budget(effort, 2000)
    models = cases(effort, MODELS)
    spaces = {model: models_space({model: 1.0}, model) for model in models}
    spaces[STEPS] = models_space(dict.fromkeys(models, 1.0), STEPS)
    found = explore(spaces, trials, REWARD)
    alone = {model: found[model].best for model in models}
    # Steps in inverse proportion to their own best time: each model then counts the same.
    often = {model: alone[LARGEST].metrics[TIME] / each.metrics[TIME] for model, each in alone.items()}
    found |= explore({TIMES: models_space(often, TIMES)}, trials, REWARD, list(found.values()))
    mixes = {name: found[name].best for name in (STEPS, TIMES)}
    lost = {
        model: {
            name: max(0.0, 1 - found[model].try_out(each).metrics[REWARD] / alone[model].metrics[REWARD])
            for name, each in mixes.items()
        }
        for model in models
    }
    share = alone[LARGEST].metrics[TIME] / sum(each.metrics[TIME] for each in alone.values())
    worst = max(models, key=lambda model: lost[model][STEPS])
    return Section(
        "Several models on one system",
        "Can one design train four models, and what does each lose?",
        f"It becomes the design of the largest, and {worst} loses {percent(lost[worst][STEPS], 0)} of its performance.",
        [
            Text(
                """Four models are trained in turns on 1,024 NPUs with one design: the same network, collectives and
                mapping for all. In one mix each makes as many steps as the others (the mean of their times, as the
                paper means it); in the other each takes as long, so that each counts the same."""
            ),
            Table(
                ["for", "mapping", "network", "GB/s", "step"],
                [[model, *each.cells, seconds(each.metrics[TIME])] for model, each in alone.items()]
                + [[name, *each.cells, None] for name, each in mixes.items()],
                "The best design for each model alone and for the mixes, by performance per bandwidth; of networks that"
                " do as well, the cheapest that was tried.",
            ),
            Figure(
                bars(
                    [
                        Group(model, [Bar(name, round(100 * each, 1)) for name, each in both.items()])
                        for model, both in lost.items()
                    ],
                    x=Axis("performance lost", "%", better="lower"),
                    title="What each model loses on a design for all",
                ),
                "models",
                "Performance per bandwidth, against the best design for the model alone.",
            ),
            Text(several_text(lost, mixes, share)),
        ],
    )


def several_text(lost: Mapping[str, Mapping[str, float]], mixes: Mapping[str, Design], share: float) -> str:
    """Return what the models lose."""
    worst = {name: max(lost, key=lambda model: lost[model][name]) for name in mixes}
    return f"""With equal steps {LARGEST} takes {percent(share, 0)} of the time and gets what it wants (it loses
        {percent(lost[LARGEST][STEPS])}); {worst[STEPS]} loses most, {percent(lost[worst[STEPS]][STEPS], 0)}. With
        equal times the design moves to `{mixes[TIMES].mapping}`; the worst loss is that of {worst[TIMES]},
        {percent(lost[worst[TIMES]][TIMES], 0)}. All of them want the least bandwidth that the space offers, so it is
        the mapping that they quarrel about: what must divide the 12 heads of ViT-Base and the 40 of GPT3-13B, and split
        the {tokens("ViT-Base")} tokens of a picture, leaves little choice. But a mapping belongs to a job and costs
        nothing to change; only what is bought must be shared. One mapping for all is a rule of the study, not of the
        machine."""


# ------------------------------------------------------------------------------------------------- network cost

NEAR = 1.1
CALLED = {TIME: "shortest step", REWARD: "per bandwidth", DOLLARS: "per dollar"}


def cost(effort: Effort) -> Section:
    """Return what changes when dollars count instead of bandwidth."""
    space = full_stack(1024, {"model": MODELS[LARGEST]}, "network cost")
    trials = budget(effort, 3000)
    found = {name: find(space, trials, objectives=[name]) for name in (TIME, REWARD, DOLLARS)}
    searches = [*found.values(), find(space, 2 * trials, objectives=[TIME, "network_usd"])]
    rows = np.concatenate([each.trials.rows for each in searches])
    results = Results.join(each.trials.results for each in searches)
    best = {
        name: improved(each.problem, best_of(each.problem, rows, results), trials // 100)
        for name, each in found.items()
    }
    usd, step = results.columns["network_usd"], results.columns[TIME]
    near = results.feasible & (step <= NEAR * np.nanmin(step))
    dots = list(zip(usd[near].tolist(), step[near].tolist(), strict=True))
    front = pareto(dots)
    marks = [Mark(CALLED[name], each.metrics["network_usd"], each.metrics[TIME]) for name, each in best.items()]
    inner, outer = (rates("price")[tier] for tier in ("chiplet", "pod"))
    wide, cheap = (best[name].metrics for name in (REWARD, DOLLARS))
    less = 1 - cheap["network_usd"] / wide["network_usd"]
    return Section(
        "Bandwidth or dollars",
        "What changes if the network is paid for in dollars?",
        f"The network gets {percent(less, 0)} cheaper and a step {percent(cheap[TIME] / wide[TIME] - 1)} longer.",
        [
            Text(
                f"""{LARGEST} is trained on 1,024 NPUs. What a GB/s costs depends on the tier and on what it goes
                through: a link is {inner.link:g} USD on a chiplet and {outer.link:g} USD in a pod, where a switch port
                adds {outer.switch_port:g} USD and a card {outer.nic:g} USD (`catalog/prices.yaml`). COSMIC's two
                rewards see this differently."""
            ),
            Table(
                ["objective", "mapping", "network", "GB/s", "step", "price"],
                [
                    [name, *each.cells, seconds(each.metrics[TIME]), dollars(each.metrics["network_usd"])]
                    for name, each in best.items()
                ],
                "The best designs by time, by performance per bandwidth, and by performance per dollar of network.",
            ),
            Figure(
                scatter(
                    dots,
                    x=Axis("price of the network", "USD", log=True, better="lower"),
                    y=Axis("step", "s", better="lower"),
                    title="Time of a step and price of the network",
                    front=front,
                    marks=marks,
                ),
                "cost",
                f"Designs that were tried and take at most {percent(NEAR - 1, 0)} more than the shortest step.",
            ),
            Text(cost_text(best, front)),
        ],
    )


def cost_text(best: Mapping[str, Design], front: Sequence[tuple[float, float]]) -> str:
    """Return what the front says."""
    fast, wide, cheap = (best[name].metrics for name in (TIME, REWARD, DOLLARS))
    low, high = front[0], front[-1]
    return f"""To performance per bandwidth a GB/s is a GB/s: it pays {dollars(wide["network_usd"])} for
        {best[REWARD].network}, and its step is {percent(1 - wide[TIME] / cheap[TIME])} shorter than with
        {best[DOLLARS].network} at {dollars(cheap["network_usd"])}, which performance per dollar prefers. For the same
        bandwidth of a NPU, rings and fully connected dimensions cost the same; switches and their cards are what is
        dear. The shortest step is {percent(1 - fast[TIME] / cheap[TIME])} shorter than that and costs
        {fast["network_usd"] / cheap["network_usd"]:.1f} times as much. The front has {len(front)} designs, from
        {dollars(low[0])} and {seconds(low[1])} to {dollars(high[0])} and {seconds(high[1])}: NPUs of 10 TFLOP/s compute
        for most of the step, and time is hardly for sale."""


# ------------------------------------------------------------------------------------------------- batch sizes

SCALED = {"GPT3-175B": "gpt3-175b", "LLaMA-7B": "llama-7b", "ViT-Large": "cosmic-vit-large"}
BATCHES = (1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True)
class Pair:
    """The best mapping on the given network, and the best design of the whole stack."""

    alone: Design
    whole: Design

    @property
    def gain(self) -> float:
        """How much better the latter is."""
        return self.whole.metrics[REWARD] / self.alone.metrics[REWARD]

    @property
    def cells(self) -> list[Any]:
        """Both as cells of a table."""
        _, _, wires = self.whole.cells
        times = [seconds(each.metrics[TIME]) for each in (self.alone, self.whole)]
        return [self.alone.mapping, times[0], self.whole.mapping, wires, times[1], f"{self.gain:.2f}×"]


def batches(effort: Effort) -> Section:
    """Return how gains scale with the batch, on 2,048 NPUs."""
    pairs = {}
    for model in cases(effort, SCALED):
        spaces = {}
        for batch in cases(effort, BATCHES):
            workload = {"global_batch": batch, "sequence": tokens(model)}
            spaces[str(batch)] = full_stack(2048, {"model": SCALED[model], "workload": workload}, f"{model} {batch}")
        found = explore(spaces, budget(effort, 1200), REWARD, seeds=effort.seeds(3))
        for batch in cases(effort, BATCHES):
            pairs[model, batch] = Pair(best_mapping(spaces[str(batch)], REWARD), found[str(batch)].best)
    given = sum(given_gb_per_s("cosmic-2048"))
    return Section(
        "Larger batches on 2,048 NPUs",
        "Does the full stack gain more or less as the batch grows?",
        batches_answer(pairs),
        [
            Text(
                """GPT3-175B, LLaMA-7B and ViT-Large with batches from 1,024 to 16,384 on the system of 2,048 NPUs of
                900 TFLOP/s. What does searching the whole stack gain over searching the mapping on the given
                network?"""
            ),
            Table(
                ["model", "batch", "mapping alone", "step", "mapping, full stack", "GB/s", "step, full stack", "gain"],
                [[model, batch, *pair.cells] for (model, batch), pair in pairs.items()],
                f"The gain is the ratio of performance per bandwidth. The given network has {given:,.1f} GB/s a NPU.",
            ),
            Figure(
                lines(
                    [Series(model, gains) for model, gains in gains_of(pairs).items()],
                    x=Axis("batch", "sequences", log=True),
                    y=Axis("gain of the full stack", "×", better="higher"),
                    title="Full stack over mapping alone, by batch",
                ),
                "batches",
                "Performance per bandwidth of the best design of the whole stack over that of the best mapping.",
            ),
            Text(batches_text(pairs)),
        ],
    )


def batches_answer(pairs: Mapping[tuple[str, int], Pair]) -> str:
    """Return the gains in a sentence."""
    spans = []
    for model, points in gains_of(pairs).items():
        gains = [gain for _, gain in points]
        low, high = f"{min(gains):.1f}", f"{max(gains):.1f}"
        spans.append(f"{low if low == high else f'{low} to {high}'} times for {model}")
    return f"The model matters more than the batch: at least {', '.join(spans)}."


def gains_of(pairs: Mapping[tuple[str, int], Pair]) -> dict[str, list[tuple[float, float]]]:
    """Return the batches and gains of each model."""
    found: dict[str, list[tuple[float, float]]] = {}
    for (model, batch), pair in pairs.items():
        found.setdefault(model, []).append((float(batch), pair.gain))
    return found


def batches_text(pairs: Mapping[tuple[str, int], Pair]) -> str:
    """Return how the gains go."""
    told, split, growth = [], [], []
    for model in gains_of(pairs):
        first, last = pairs[model, BATCHES[0]], pairs[model, BATCHES[-1]]
        way = "rises" if last.gain > first.gain else "falls"
        move = f"{way} from {first.gain:.1f} to {last.gain:.1f}"
        told.append(
            f"for {model} it {move if abs(last.gain / first.gain - 1) > 0.03 else f'stays at {first.gain:.1f}'}"
        )
        faster = last.alone.metrics[TIME] / last.whole.metrics[TIME]
        split.append(f"{faster:.2f} and {last.gain / faster:.2f} for {model}")
        growth.append(f"{last.whole.metrics[TIME] / first.whole.metrics[TIME]:.1f} times for {model}")
    times = BATCHES[-1] // BATCHES[0]
    least = min(given_gb_per_s("cosmic-2048"))
    return f"""The gain with the batch: {"; ".join(told)}. It has two factors, speed and thrift: at {BATCHES[-1]:,},
        {"; ".join(split)}. Only where the first is above 1 does the full stack train faster; elsewhere it buys less
        bandwidth and accepts a longer step, as the reward asks. The mapping alone is searched whole, the full stack is
        not: its gains are lower bounds, and differences of some percent between batches mean nothing. In the given
        network one dimension has {least:g} GB/s; the least that the search can choose is 50.

        With a batch {times} times as large a step takes {", ".join(growth)}. Where that is less than {times}, part of
        the step does not grow with the batch: gradients to reduce, the fill of the pipeline."""


# ------------------------------------------------------------------------------------------------- faster compute

PEAKS = (10, 20, 40, 80)
NETWORKS = {"a tenth": 0.1, "a third": 1 / 3, "as given": 1.0, "tenfold": 10.0}
FIXED, GROWN = "50 GB/s", "grown"


@dataclass(frozen=True)
class Sweep:
    """The best mapping for each memory, peak and network."""

    designs: Mapping[tuple[str, int, str], Design]

    def step(self, memory: str, peak: int, wires: str) -> float:
        """Return the shortest step."""
        return self.designs[memory, peak, wires].metrics[TIME]

    def lost(self, memory: str, peak: int, wires: str) -> float:
        """Return how much longer it is than with ten times the given bandwidth."""
        return self.step(memory, peak, wires) / self.step(memory, peak, "tenfold") - 1


def compute_space(peak: int, memory: float, wires: float) -> ParameterSet:
    """Return the mappings of GPT3-175B on NPUs of another speed, their network changed by a factor."""
    given = catalog.entry("systems", "cosmic-1024")["network"]["dims"]
    widths = [f"{each * wires:g} GB/s" for each in given_gb_per_s("cosmic-1024")]
    base = {
        "model": MODELS[LARGEST],
        "compute": {"accelerator": "cosmic-10tf", "bf16": f"{peak} TFLOP/s"},
        "memory": {"bandwidth": f"{memory:g} GB/s"},
        "network": {"dims": [{**dim, "bandwidth": width} for dim, width in zip(given, widths, strict=True)]},
    }
    return full_stack(1024, base, f"{peak} TFLOP/s")


def faster(effort: Effort) -> Section:
    """Return from which speed of compute on the network matters."""
    designs = {}
    peaks = cases(effort, PEAKS)
    policies = [*product((GROWN,), peaks), *product((FIXED,), peaks[1:])]  # at the first peak they are the same
    for (policy, peak), (wires, factor) in product(policies, NETWORKS.items()):
        memory = 50.0 if policy == FIXED else 5.0 * peak
        designs[policy, peak, wires] = best_mapping(compute_space(peak, memory, factor), TIME)
    sweep, given = Sweep(designs), sum(given_gb_per_s("cosmic-1024"))
    rows = []
    for policy, peak in policies:
        here = designs[policy, peak, "as given"]
        times = [seconds(sweep.step(policy, peak, wires)) for wires in NETWORKS]
        memory_text = FIXED if policy == FIXED else f"{5 * peak} GB/s"
        rows.append([peak, memory_text, *times, percent(here.metrics["mfu"]), here.mapping])
    shown = [(wires, factor) for wires, factor in NETWORKS.items() if wires != "tenfold"]
    curves = [
        Series(
            f"{peak} TFLOP/s",
            [(given * factor / peak, 100 * sweep.lost(GROWN, peak, wires)) for wires, factor in shown],
        )
        for peak in peaks
    ]
    return Section(
        "Faster compute",
        "From which speed of compute on does the network matter?",
        f"With {given:g} GB/s a NPU hardly up to {PEAKS[-1]} TFLOP/s"
        f" ({percent(sweep.lost(GROWN, PEAKS[-1], 'as given'))} of a step); it does below 10 GB/s for each TFLOP/s.",
        [
            Text(
                f"""{LARGEST} on 1,024 NPUs of 10, 20, 40 and 80 TFLOP/s. The mapping is chosen anew for each, from all
                there are; the network is the given one ({given:g} GB/s a NPU over four dimensions), a tenth or a third
                of it, or ten times as much. Memory grows with the compute, or keeps its {FIXED} as in the original."""
            ),
            Table(
                ["TFLOP/s", "memory", *(f"step, {name}" for name in NETWORKS), "MFU, as given", "mapping, as given"],
                rows,
                "The shortest step of any mapping, by the bandwidth of the network.",
            ),
            Figure(
                lines(
                    curves,
                    x=Axis("network bandwidth for compute", "GB/s a TFLOP/s", log=True),
                    y=Axis("longer than with ten times the given network", "%", log=True, better="lower"),
                    title="What the network costs, by bandwidth for compute",
                ),
                "compute",
                "Memory grows with compute. Curves of different peaks lie close: it is the ratio that counts.",
            ),
            Text(faster_text(sweep, peaks)),
        ],
    )


def faster_text(sweep: Sweep, peaks: Sequence[int]) -> str:
    """Return when the network begins to matter."""
    low, high = peaks[0], peaks[-1]
    slowest = sweep.step(GROWN, low, "as given")
    fixed, grown = (slowest / sweep.step(each, high, "as given") for each in (FIXED, GROWN))
    tenth = {peak: sweep.lost(GROWN, peak, "a tenth") for peak in peaks}
    return f"""If memory grows too, the given network costs {percent(sweep.lost(GROWN, low, "as given"))} of the step at
        {low} TFLOP/s and {percent(sweep.lost(GROWN, high, "as given"))} at {high}. A tenth of it at {low} TFLOP/s,
        nearly the same bandwidth for each TFLOP/s as the latter, costs {percent(tenth[low])}, and
        {percent(tenth[peaks[1]], 0)} at {peaks[1]} TFLOP/s, {percent(tenth[high], 0)} at {high}: below 4 GB/s for each
        TFLOP/s it rules the step. With memory at {FIXED} something else comes
        first: {high // low} times the peak makes a step {fixed:.1f} times as fast, against {grown:.1f} if memory grows,
        as NPUs wait for their own memory."""


# ------------------------------------------------------------------------------------------------- the page


def make(effort: Effort) -> list[Part]:
    """Return the page."""
    sections = [study(effort) for study in (inference, several, cost, batches, faster)]
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
    Text(
        """The rewards decide more than the workloads do. On NPUs of 10 TFLOP/s the searches by performance per
        bandwidth end at the least bandwidth that the space offers, because compute takes the time anyway; what such a
        search finds is thrift, not speed. Look at the step beside the reward, and search the front of both.

        Ask what is shared. A network is bought once for all jobs; a mapping is chosen for each. Forcing one mapping on
        all costs the small models most, and teaches nothing about the network.

        Weights of a mix are a decision. Equal steps give the largest model nearly all of the say; equal times give each
        the same.

        Networks matter by their ratio to compute. One figure, GB/s for each TFLOP/s, says for a model and its mappings
        where a network stops being free."""
    ),
]

DIFFERENCES: list[Part] = [
    Heading("Where this differs from the paper, and why"),
    Text(
        """The paper's figures for these studies are not compared: only its abstract and the published inputs of its
        experiments were at hand, and the simulator that they name has defects that move absolute times. What follows
        from those for each study:

        Inference. In the original roofline, time is always bytes over memory bandwidth, and the peak has no effect.
        Decoding is bound by memory anyway, and suffers little; a prefill is bound by compute, and looks too short
        there. The original passes the whole batch at once; here the micro-batch is searched, and the whole wins.

        Several models. A condition that is always true made the original add the runtimes where a mean was meant. For a
        fixed number of models the order of designs is the same; the number is four times too large.

        Dollars. Prices are the same, and agree with the totals in the original's logs. The original counts seven links
        in a fully connected dimension whatever its size, so that the bandwidth in its reward is off for those of 4 and
        16 NPUs; here bandwidth is what a NPU sends into a dimension.

        Batches. The original has no micro-batches, so that pipeline stages never save time; here they can. With data
        parallelism of at most 512, four stages are how the smaller models fill the system. Its models have four layers
        and its memory no optimizer states (and in the final runs the limit appears to be off); here they are whole, and
        GPT3-175B needs its weights sharded.

        Compute. With a peak that has no effect, a sweep of it can show none. Here eight times the peak pays almost in
        full, if memory and network keep up."""
    ),
]


if __name__ == "__main__":
    write_page("Five further scenarios", "scenarios", make)
