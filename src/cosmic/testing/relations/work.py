"""Relations of work: more of it is never faster, and what a step says of its work agrees with its seconds."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from cosmic.design.model import Transformer
from cosmic.design.point import DesignPoint
from cosmic.design.program import ProgramModel
from cosmic.testing.relations.answers import rate
from cosmic.testing.relations.relation import (
    PLAYED_ROUNDING,
    Answer,
    Changes,
    Finding,
    Relation,
    Variants,
    at_least,
    at_most,
    comparison,
    is_small,
    played,
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
    more: list[Changes] = [{"model.vocab": 2 * model.vocab}, {"model.ffn": 2 * model.ffn}]
    if point.workload.pp == 1 or not model.encoder_layers:
        more += [{"model.layers": model.layers + point.workload.pp}, {"model.layers": 2 * model.layers}]
    if model.experts:
        more.append({"model.experts.ffn": 2 * model.experts.ffn})
    return [rng.choice(more)]


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
    return [{"workload.recompute": way} for way in ("none", "selective", "alternate", "full")]


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


def same_tokens(before: Answer, after: Answer) -> Iterable[Finding]:
    """Yield a finding where tokens a second times seconds are not the tokens of the step, twice as many."""
    one, other = (rate(answer) * answer["step_s"] for answer in (before, after))
    if abs(other - 2 * one) > 1e-9 * other:
        yield Finding(f"tokens {one:.9g} -> {other:.9g}, not twice as many", abs(other / (2 * one) - 1))


TWO: tuple[tuple[int, int], ...] = ((0, 1),)

RELATIONS: tuple[Relation, ...] = (
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
        engine=played,
    ),
    comparison(
        "overlap, simulated",
        "Overlap is never slower in the event engine.",
        played_overlap,
        at_most("step_s", PLAYED_ROUNDING),
        engine=played,
        between=TWO,
    ),
)
