"""Which of two designs is faster and why, in one sentence."""

from __future__ import annotations

from math import isclose
from typing import Any

from cosmic.comparing.contrast import Contrast, Difference, Side
from cosmic.units import SECONDS, show

WORDS = {
    "workload.tp": "tensor parallelism",
    "workload.pp": "pipeline stages",
    "workload.cp": "context parallelism",
    "workload.ep": "expert parallelism",
    "workload.etp": "expert tensor parallelism",
    "workload.dp": "data parallelism",
    "workload.micro_batch": "microbatch",
    "workload.first_stage_layers": "layers of the first stage",
    "workload.last_stage_layers": "layers of the last stage",
    "workload.stage_layers": "how layers are cut into stages",
    "compute.accelerator": "accelerator",
    "model.name": "model",
}
NAMES = {"model.name": ("model",), "compute.accelerator": ("compute", "memory")}
"""Names that stand for all fields of some layers: the verdict mentions the name only."""
NAMED = 2
"""How many fields of a difference the verdict names."""
OF_SERVED = {"ttft_s": "TTFT", "tpot_s": "TPOT", "tokens_per_s_per_npu": "tokens/s an accelerator"}
"""What of designs that serve a load is compared."""
EQUAL = 5e-4
"""Steps whose times differ by a smaller share are equal to three digits."""


def verdict(contrast: Contrast) -> str:
    """Return a sentence that says which design is faster, and why."""
    if not contrast.differences:
        return "A and B are the same design"
    for name, side in (("A", contrast.a), ("B", contrast.b)):
        if not side.metrics:
            what = "step has no time" if side.point.serving is None else "requests have no time"
            return f"{name} has an invalid mapping, so its {what}: {side.reasons[0]}"
    if contrast.serves:
        return _served(contrast)
    (a, tokens_a), (b, tokens_b) = (_pace(side) for side in (contrast.a, contrast.b))
    if abs(b / a - 1) < EQUAL:
        return f"A and B take equally long for a step{_opposed(contrast) if len(contrast.differences) > 1 else ''}"
    if isclose(a * tokens_a, b * tokens_b):
        said = f"B is {times(a / b)} as fast as A" if b < a else f"A is {times(b / a)} as fast as B"
    else:
        counted = "tokens/s" if contrast.a.metrics["tokens_per_s"] else "samples/s"
        said = f"a step of B takes {times(b / a)} as long as one of A, at {times(tokens_b / tokens_a)} the {counted}"
    return said + _mostly(contrast)


def _served(contrast: Contrast) -> str:
    """Return the same of two designs that serve a load: how long tokens take, and how many an accelerator makes."""
    said = []
    for name, label in OF_SERVED.items():
        a, b = contrast.a.metrics.get(name), contrast.b.metrics.get(name)
        if a and b:
            said.append(f"{times(b / a)} the {label}" if abs(b / a - 1) >= EQUAL else f"the same {label}")
    sentence = f"B has {', '.join(said[:-1])} and {said[-1]} of A" if len(said) > 1 else "B cannot be compared with A"
    a, b = contrast.a.metrics.get(contrast.measured), contrast.b.metrics.get(contrast.measured)
    if not a or not b or abs(b / a - 1) < EQUAL:
        return sentence
    return sentence + _mostly(contrast).replace("of that is", "of the change of TPOT is")


def _mostly(contrast: Contrast) -> str:
    """Return the end of a sentence that names what explains most of a change."""
    share = contrast.differences[0].worth_share
    if len(contrast.differences) == 1:
        return f"; all of that is {words(contrast.differences[0])}"
    if share is None or not 0 < share <= 1:
        return _opposed(contrast)
    return f"; {100 * share:.0f} % of that is {words(contrast.differences[0])}"


def words(difference: Difference) -> str:
    """Return the first few fields of a difference, with both values.

    >>> words(Difference("mapping", {"workload.tp": 8, "workload.dp": 2}, {"workload.tp": 4, "workload.dp": 4}))
    'tensor parallelism 8 → 4 with data parallelism 2 → 4'
    """
    renamed = {layer for path, layers in NAMES.items() if path in difference.a for layer in layers}
    paths = [path for path in difference.a if path in NAMES or path.partition(".")[0] not in renamed]
    paths.sort(key=lambda path: path not in WORDS)
    names = {path: WORDS.get(path, path.removeprefix("workload.")) for path in paths[:NAMED]}
    parts = [f"{name} {as_text(difference.a[path])} → {as_text(difference.b[path])}" for path, name in names.items()]
    return " with ".join(parts) + (f" and {len(paths) - NAMED} more" if len(paths) > NAMED else "")


def as_text(value: Any) -> str:
    """Return the value of a field on one line, as in ``--set``; a dash for None.

    >>> as_text(["tp", "dp"]), as_text(True), as_text(None)
    ('[tp, dp]', 'true', '-')
    """
    if isinstance(value, list):
        return f"[{', '.join(map(as_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value is None else str(value)


def times(ratio: float) -> str:
    """Return a ratio with enough digits to tell it from 0 and from 1."""
    return f"{ratio:.2g}×" if ratio < 0.1 else f"{ratio:.2f}×" if abs(ratio - 1) >= 0.01 else f"{ratio:.4f}×"


def _pace(side: Side) -> tuple[float, float]:
    return side.metrics["step_s"] or 0.0, side.metrics["tokens_per_s"] or side.metrics.get("samples_per_s") or 0.0


def _opposed(contrast: Contrast) -> str:
    """Return the end of a sentence that names the difference that saves most and the one that adds most."""
    rated = sorted(((each.worth_s or 0.0, each) for each in contrast.differences), key=lambda pair: pair[0])
    step = contrast.a.metrics[contrast.measured] or 0.0
    said = [
        f"{words(each)} {verb} {show(float(f'{abs(part):.3g}'), SECONDS)}"
        for (part, each), verb, sign in ((rated[0], "saves", -1), (rated[-1], "adds", 1))
        if sign * part > EQUAL * step
    ]
    return "; " + ", and ".join(said) if said else ""
