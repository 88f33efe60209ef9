"""Relations within one answer: sums add up, no part is negative, nothing beats the peak of the hardware."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import numpy as np

from cosmic.design.model import Transformer, parameters, served
from cosmic.design.point import DesignPoint
from cosmic.simulation.analytic import BREAKDOWN
from cosmic.simulation.event.from_design import simulate_design
from cosmic.step.memory import COMPONENTS
from cosmic.testing.relations.memory import routed_parameters, served_bytes
from cosmic.testing.relations.relation import Answer, Finding, Relation, Violation, closed, is_small, played, violation

Check = Callable[[DesignPoint, Answer], Iterable[Finding]]
SAME_FLOP = 5e-3
"""By how much flop may differ: norms, biases and interactions, which are not counted as the model's."""
AGREEMENT = 0.15
"""By how much the engines may differ at worst."""


def of_one(name: str, sentence: str, check: Check) -> Relation:
    """Return the relation that a design's own answer satisfies a *check*."""

    def violations(point: DesignPoint, _: Random) -> list[Violation]:
        answer = closed(point, [{}])[0]
        if answer is None:
            return []
        return [violation(name, finding, point, {}, {}) for finding in check(point, answer)]

    return Relation(name, sentence, violations)


def sums(_: DesignPoint, answer: Answer) -> Iterable[Finding]:
    """Yield a finding where parts are not what they are parts of, or are negative."""
    for whole, prefix, names in (("step_s", "breakdown", BREAKDOWN), ("memory_bytes", "memory", COMPONENTS)):
        parts = {name: answer[f"{prefix}.{name}"] for name in names}
        total = sum(parts.values())
        if not abs(total - answer[whole]) <= 1e-9 * answer[whole]:
            yield Finding(f"{whole} {answer[whole]:.9g}, its parts {total:.9g}", abs(total / answer[whole] - 1))
        for name, part in parts.items():
            if not (np.isfinite(part) and part >= -1e-12 * abs(total)):
                yield Finding(f"{prefix}.{name} is {part:.6g}", abs(part / answer[whole]))


def rate(answer: Answer) -> float:
    """Return the tokens a second of an answer; of a model without tokens, its samples."""
    return answer["samples_per_s"] if np.isnan(answer["tokens_per_s"]) else answer["tokens_per_s"]


def tokens(point: DesignPoint, answer: Answer) -> Iterable[Finding]:
    """Yield a finding where tokens, or samples, a second times seconds are not those of a step."""
    workload = point.workload
    wanted = workload.global_batch * (1 if workload.task == "decode" else workload.sequence)
    found = rate(answer) * answer["step_s"]
    if abs(found / wanted - 1) > 1e-9:
        yield Finding(f"{found:.9g} tokens in a step of {wanted}", abs(found / wanted - 1))


def below_peak(_: DesignPoint, answer: Answer) -> Iterable[Finding]:
    """Yield a finding where a step has more flop than the accelerators do in its time."""
    for metric in ("mfu", "hfu"):
        if not 0 <= answer[metric] <= 1 + 1e-9:
            yield Finding(f"{metric} is {answer[metric]:.4g}", abs(answer[metric] - 1))


def enough_flop(_: DesignPoint, answer: Answer) -> Iterable[Finding]:
    """Yield a finding where the hardware does fewer flop than the model has."""
    mfu, hfu = answer["mfu"], answer["hfu"]
    if hfu < mfu * (1 - SAME_FLOP):
        yield Finding(f"hfu {hfu:.5g} is below mfu {mfu:.5g}", 1 - hfu / mfu)


def flop_once(point: DesignPoint, answer: Answer) -> Iterable[Finding]:
    """Yield a finding where the hardware does more flop than the model has, without recomputation.

    Ranks of tp all do what is not split over them: routers, keys and values of fewer heads than ranks, projections of
    MLA to its latent vectors. Those of cp all do what is done to the one token that is decoded.
    """
    mfu, hfu, workload = answer["mfu"], answer["hfu"], point.workload
    replicated = workload.tp > 1 or (workload.task == "decode" and workload.cp > 1)
    once = (workload.task != "training" or workload.recompute == "none") and not replicated
    if once and hfu > mfu * (1 + SAME_FLOP):
        yield Finding(f"hfu {hfu:.5g} is above mfu {mfu:.5g}, without recomputation", hfu / mfu - 1)


def bytes_bound(point: DesignPoint, answer: Answer) -> Iterable[Finding]:
    """Yield a finding where a decoded token takes less time than to read what it needs.

    A step reads the whole cache once, and every weight of the layers but those of routed experts, which may be idle:
    on the fullest stage at least the mean of all stages, in the narrowest format that the precision stores.
    """
    model, workload = served(point.model), point.workload
    if workload.task != "decode" or not isinstance(model, Transformer) or workload.offload:
        return
    layers = parameters(model) - routed_parameters(model) - 2 * model.hidden * model.vocab
    weights = max(0.0, layers) * served_bytes(workload.precision) / (workload.pp * workload.tp)
    least = (weights + answer["memory.kv_cache"]) / point.memory.bandwidth_bytes_per_s
    if answer["step_s"] < least * (1 - 1e-9):
        yield Finding(f"step_s {answer['step_s']:.5g}, reading takes {least:.5g}", 1 - answer["step_s"] / least)


def simulated_sums(point: DesignPoint, _: Random) -> list[Violation]:
    """Return where a rank of a simulated step is busy and idle for longer than the step, or a part is negative."""
    if not is_small(point):
        return []
    found = []
    for npu in simulate_design(point).per_npu:
        parts = {
            "idle": npu.idle_cycles,
            "exposed": npu.communication_cycles - npu.hidden_cycles,
            "computing": npu.cycles - npu.idle_cycles - npu.communication_cycles + npu.hidden_cycles,
        }
        for name, cycles in parts.items():
            if not 0 <= cycles <= npu.cycles:
                text = f"{name} {cycles} ns of {npu.cycles} ns"
                found.append(violation("sums, simulated", Finding(text, 1.0), point, {}, {}, played))
    return found[:1]


def engines_agree(point: DesignPoint, _: Random) -> list[Violation]:
    """Return where the engines differ by more than `AGREEMENT`."""
    if not is_small(point):
        return []
    first, second = closed(point, [{}])[0], played(point, [{}])[0]
    if first is None or second is None:
        return []
    ratio = second["step_s"] / first["step_s"]
    if abs(ratio - 1) <= AGREEMENT:
        return []
    text = f"event {second['step_s']:.5g} s, closed form {first['step_s']:.5g} s: ratio {ratio:.3f}"
    return [violation("engines agree", Finding(text, abs(ratio - 1)), point, {}, {}, played)]


RELATIONS: tuple[Relation, ...] = (
    of_one("sums", "Parts sum to the step and to the memory; none is negative.", sums),
    of_one("tokens", "Tokens a second times seconds are the tokens of a step.", tokens),
    of_one("peak", "No step has more flop than its accelerators do.", below_peak),
    of_one("hfu, mfu", "The hardware does at least the flop of the model.", enough_flop),
    of_one("hfu = mfu", "Without recomputation, the hardware does no other flop than those of the model.", flop_once),
    of_one("bytes", "Decoding takes no less than reading weights and cache.", bytes_bound),
    Relation("sums, simulated", "Compute, exposed communication and idle time sum to a step.", simulated_sums),
    Relation("engines agree", f"Both engines agree within {100 * AGREEMENT:.0f} %.", engines_agree),
)
