"""Relations of work: more of it is never faster, and what a step says of its work agrees with its seconds.

Within one answer sums add up, no part is negative, and nothing beats the peak of the hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import numpy as np

from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Transformer, count_parameters, served_model
from cosmic.design.program_model import ProgramModel
from cosmic.simulate.analytic_step import BREAKDOWN
from cosmic.simulate.events.design_simulation import simulate_design
from cosmic.step.device_memory import COMPONENTS, TENSORS
from tests.relations.memory_relations import routed_parameters, served_bytes
from tests.relations.metamorphic import (
    PLAYED_ROUNDING,
    Changes,
    Finding,
    RelatedAnswer,
    Relation,
    Variants,
    Violation,
    answer_by_events,
    answer_in_closed_form,
    at_least,
    at_most,
    comparison,
    is_small,
    make_violation,
)

Check = Callable[[DesignPoint, RelatedAnswer], Iterable[Finding]]
SAME_FLOP = 5e-3
"""By how much flop may differ: norms, biases and interactions, which are not counted as the model's."""
AGREEMENT = 0.15
"""By how much the engines may differ at worst."""


def relation_of_one(name: str, sentence: str, check: Check) -> Relation:
    """Return the relation that a design's own answer satisfies a *check*."""

    def violations(point: DesignPoint, _: Random) -> list[Violation]:
        answer = answer_in_closed_form(point, [{}])[0]
        if answer is None:
            return []
        return [make_violation(name, finding, point, {}, {}) for finding in check(point, answer)]

    return Relation(name, sentence, violations)


def sums(_: DesignPoint, answer: RelatedAnswer) -> Iterable[Finding]:
    """Yield a finding where parts are not what they are parts of, or are negative."""
    for total_metric, prefix, names in (
        ("step_s", "breakdown", BREAKDOWN),
        ("memory_bytes", "memory", TENSORS),
        ("memory_used_bytes", "memory", COMPONENTS),
    ):
        parts = {name: answer[f"{prefix}.{name}"] for name in names}
        total = sum(parts.values())
        if not abs(total - answer[total_metric]) <= 1e-9 * answer[total_metric]:
            yield Finding(
                f"{total_metric} {answer[total_metric]:.9g}, its parts {total:.9g}",
                abs(total / answer[total_metric] - 1),
            )
        for name, part in parts.items():
            if not (np.isfinite(part) and part >= -1e-12 * abs(total)):
                yield Finding(f"{prefix}.{name} is {part:.6g}", abs(part / answer[total_metric]))


def rate(answer: RelatedAnswer) -> float:
    """Return the tokens a second of an answer; of a model without tokens, its samples."""
    return answer["samples_per_s"] if np.isnan(answer["tokens_per_s"]) else answer["tokens_per_s"]


def tokens(point: DesignPoint, answer: RelatedAnswer) -> Iterable[Finding]:
    """Yield a finding where tokens, or samples, a second times seconds are not those of a step."""
    workload = point.workload
    expected = workload.global_batch * (1 if workload.task == "decode" else workload.sequence)
    processed = rate(answer) * answer["step_s"]
    if abs(processed / expected - 1) > 1e-9:
        yield Finding(f"{processed:.9g} tokens in a step of {expected}", abs(processed / expected - 1))


def below_peak(_: DesignPoint, answer: RelatedAnswer) -> Iterable[Finding]:
    """Yield a finding where a step has more flop than the accelerators do in its time."""
    for metric in ("mfu", "hfu"):
        if not 0 <= answer[metric] <= 1 + 1e-9:
            yield Finding(f"{metric} is {answer[metric]:.4g}", abs(answer[metric] - 1))


def enough_flop(_: DesignPoint, answer: RelatedAnswer) -> Iterable[Finding]:
    """Yield a finding where the hardware does fewer flop than the model has."""
    mfu, hfu = answer["mfu"], answer["hfu"]
    if hfu < mfu * (1 - SAME_FLOP):
        yield Finding(f"hfu {hfu:.5g} is below mfu {mfu:.5g}", 1 - hfu / mfu)


def flop_once(point: DesignPoint, answer: RelatedAnswer) -> Iterable[Finding]:
    """Yield a finding where the hardware does more flop than the model has, without recomputation.

    Ranks of tp all do what is not split over them: routers, keys and values of fewer heads than ranks, projections of
    MLA to its latent vectors. Those of cp all do what is done to the one token that is decoded.
    """
    mfu, hfu, workload = answer["mfu"], answer["hfu"], point.workload
    replicated = workload.tp > 1 or (workload.task == "decode" and workload.cp > 1)
    once = (workload.task != "training" or workload.recompute == "none") and not replicated
    if once and hfu > mfu * (1 + SAME_FLOP):
        yield Finding(f"hfu {hfu:.5g} is above mfu {mfu:.5g}, without recomputation", hfu / mfu - 1)


def bytes_bound(point: DesignPoint, answer: RelatedAnswer) -> Iterable[Finding]:
    """Yield a finding where a decoded token takes less time than to read what it needs.

    A step reads the whole cache once, and every weight of the layers but those of routed experts, which may be idle:
    on the fullest stage at least the mean of all stages, in the narrowest format that the precision stores.
    """
    model, workload = served_model(point.model), point.workload
    if workload.task != "decode" or not isinstance(model, Transformer) or workload.offload:
        return
    layers = count_parameters(model) - routed_parameters(model) - 2 * model.hidden * model.vocab
    weights = max(0.0, layers) * served_bytes(workload.precision) / (workload.pp * workload.tp)
    least = (weights + answer["memory.kv_cache"]) / point.memory.bandwidth_bytes_per_s
    if answer["step_s"] < least * (1 - 1e-9):
        yield Finding(f"step_s {answer['step_s']:.5g}, reading takes {least:.5g}", 1 - answer["step_s"] / least)


def simulated_sums(point: DesignPoint, _: Random) -> list[Violation]:
    """Return where a rank of a simulated step is busy and idle for longer than the step, or a part is negative."""
    if not is_small(point):
        return []
    findings = []
    for npu in simulate_design(point).per_npu:
        parts = {
            "idle": npu.idle_cycles,
            "exposed": npu.communication_cycles - npu.hidden_cycles,
            "computing": npu.cycles - npu.idle_cycles - npu.communication_cycles + npu.hidden_cycles,
        }
        for name, cycles in parts.items():
            if not 0 <= cycles <= npu.cycles:
                text = f"{name} {cycles} ns of {npu.cycles} ns"
                findings.append(make_violation("sums, simulated", Finding(text, 1.0), point, {}, {}, answer_by_events))
    return findings[:1]


def engines_agree(point: DesignPoint, _: Random) -> list[Violation]:
    """Return where the engines differ by more than `AGREEMENT`."""
    if not is_small(point):
        return []
    first, second = answer_in_closed_form(point, [{}])[0], answer_by_events(point, [{}])[0]
    if first is None or second is None:
        return []
    ratio = second["step_s"] / first["step_s"]
    if abs(ratio - 1) <= AGREEMENT:
        return []
    text = f"event {second['step_s']:.5g} s, closed form {first['step_s']:.5g} s: ratio {ratio:.3f}"
    return [make_violation("engines agree", Finding(text, abs(ratio - 1)), point, {}, {}, answer_by_events)]


ANSWER_RELATIONS: tuple[Relation, ...] = (
    relation_of_one("sums", "Parts sum to the step and to the memory; none is negative.", sums),
    relation_of_one("tokens", "Tokens a second times seconds are the tokens of a step.", tokens),
    relation_of_one("peak", "No step has more flop than its accelerators do.", below_peak),
    relation_of_one("hfu, mfu", "The hardware does at least the flop of the model.", enough_flop),
    relation_of_one(
        "hfu = mfu", "Without recomputation, the hardware does no other flop than those of the model.", flop_once
    ),
    relation_of_one("bytes", "Decoding takes no less than reading weights and cache.", bytes_bound),
    Relation("sums, simulated", "Compute, exposed communication and idle time sum to a step.", simulated_sums),
    Relation("engines agree", f"Both engines agree within {100 * AGREEMENT:.0f} %.", engines_agree),
)


NO_EASIER = (at_least("step_s"), at_least("memory_bytes"))


def more_sequences(point: DesignPoint, _: Random) -> list[Changes]:
    """Return twice the sequences: in twice the microbatches, and in microbatches of twice the size."""
    workload = point.workload
    twice = {"workload.global_batch": 2 * workload.global_batch}
    return [twice, {**twice, "workload.micro_batch": 2 * workload.micro_batch}]


def longer_sequence(point: DesignPoint, _: Random) -> list[Changes]:
    """Return sequences of twice the tokens, where the model does not fix them."""
    model = point.model
    free = isinstance(model, Transformer) and model.image is None
    return [{"workload.sequence": 2 * point.workload.sequence}] if free else []


def larger_model(point: DesignPoint, rng: Random) -> list[Changes]:
    """Return a larger model, in one way: layers, vocabulary, width of the feed-forward network; rows of tables.

    Every stage gets another layer: a single one more may move several from the last stage, with the head, to others.
    Layers of a decoder move those of the encoder to other stages.
    """
    model = point.model
    if isinstance(model, ProgramModel):
        return []
    if not isinstance(model, Transformer):
        return [{"model.tables.0": 2 * model.tables[0]}]
    larger: list[Changes] = [{"model.vocab": 2 * model.vocab}, {"model.ffn": 2 * model.ffn}]
    if point.workload.pp == 1 or not model.encoder_layers:
        larger += [{"model.layers": model.layers + point.workload.pp}, {"model.layers": 2 * model.layers}]
    if model.experts:
        larger.append({"model.experts.ffn": 2 * model.experts.ffn})
    return [rng.choice(larger)]


def played_work(point: DesignPoint, rng: Random) -> list[Changes]:
    """Return more work of one kind, for a design that the event engine plays at once."""
    if not is_small(point):
        return []
    return [*more_sequences(point, rng), *longer_sequence(point, rng)]


def recomputed(point: DesignPoint, _: Random) -> list[Changes]:
    """Return every way to recompute, without first; none where not everything stays on the device.

    Less to offload may be faster than less to compute: no law orders these. Nor whole layers, of which some are
    recomputed, and parts of all layers.
    """
    workload = point.workload
    if workload.task != "training" or workload.offload or workload.recompute_num_layers is not None:
        return []
    return [{"workload.recompute": mode} for mode in ("none", "selective", "alternate", "full")]


def recomputed_to_end(point: DesignPoint, _: Random) -> list[Changes]:
    """Return recomputation that stops early, and that runs to the end of a layer."""
    if point.workload.task != "training" or point.workload.recompute == "none" or point.workload.offload:
        return []
    return [{"workload.recompute_to_end": to_end} for to_end in (False, True)]


def overlapped(key: str, of_training: bool) -> Variants:
    """Return the function that switches an overlap off and on."""

    def variants(point: DesignPoint, _: Random) -> list[Changes]:
        if of_training and point.workload.task != "training":
            return []
        return [{f"workload.{key}": on} for on in (False, True)]

    return variants


def played_overlap(point: DesignPoint, rng: Random) -> list[Changes]:
    """Return an overlap off and on, for a design that the event engine plays at once."""
    if not is_small(point):
        return []
    return list(overlapped(rng.choice(("dp_overlap", "tp_overlap", "ep_overlap")), of_training=False)(point, rng))


def same_tokens(before: RelatedAnswer, after: RelatedAnswer) -> Iterable[Finding]:
    """Yield a finding where tokens a second times seconds are not the tokens of the step, twice as many."""
    tokens_before, tokens_after = (rate(answer) * answer["step_s"] for answer in (before, after))
    if abs(tokens_after - 2 * tokens_before) > 1e-9 * tokens_after:
        yield Finding(
            f"tokens {tokens_before:.9g} -> {tokens_after:.9g}, not twice as many",
            abs(tokens_after / (2 * tokens_before) - 1),
        )


TWO: tuple[tuple[int, int], ...] = ((0, 1),)

WORK_RELATIONS: tuple[Relation, ...] = (
    comparison("more sequences", "Twice the sequences are never faster.", more_sequences, *NO_EASIER, same_tokens),
    comparison("longer sequence", "Twice the tokens are never faster.", longer_sequence, *NO_EASIER),
    comparison("larger model", "A larger model is never faster.", larger_model, *NO_EASIER),
    comparison(
        "recompute time",
        "Recomputation never makes a step faster, whole layers cost most.",
        recomputed,
        at_least("step_s"),
        between=((0, 1), (0, 2), (1, 3), (2, 3)),
    ),
    comparison(
        "recompute to the end",
        "Recomputing what no one reads is never faster.",
        recomputed_to_end,
        at_least("step_s"),
        between=TWO,
    ),
    *(
        comparison(
            key.replace("_", " "),
            "Communication that overlaps compute is never slower than communication that does not.",
            overlapped(key, of_training=key == "dp_overlap"),
            at_most("step_s"),
            between=TWO,
        )
        for key in ("dp_overlap", "tp_overlap", "ep_overlap")
    ),
    comparison(
        "work, simulated",
        "More work is never faster in the event engine.",
        played_work,
        at_least("step_s", PLAYED_ROUNDING),
        engine=answer_by_events,
    ),
    comparison(
        "overlap, simulated",
        "Overlap is never slower in the event engine.",
        played_overlap,
        at_most("step_s", PLAYED_ROUNDING),
        engine=answer_by_events,
        between=TWO,
    ),
)
