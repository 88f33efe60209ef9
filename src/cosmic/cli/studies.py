"""How commands show searches: progress while they run, and what they found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cosmic.cli.console import StatusLine, brief, emit, emit_table
from cosmic.cli.evaluate import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cosmic.design.point import DesignPoint
    from cosmic.exploration.searching import Found, Progress

_SHOWN = ("step_s", "ttft_s", "tpot_s", "tokens_per_s", "mfu", "memory_bytes", "network_usd")


class ProgressLine(StatusLine):
    """The line of a search; it remembers how far the search was when it was last told."""

    def __init__(self, *, shown: bool | None = None) -> None:
        super().__init__(shown=shown)
        self.last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        """Draw the line, unless it was drawn just now."""
        self.last = progress
        self.show(progress_text(progress))


def progress_text(progress: Progress) -> str:
    """Return how far a search is: share, speed, best so far, feasible share, time left."""
    rate = progress.computed / progress.elapsed_s if progress.elapsed_s else 0.0
    left = (progress.trials - progress.evaluated) / rate if rate else 0.0
    found = progress.best < float("inf")
    best = f"best {figure(progress.objective, _metric(progress))}" if found else "none can run yet"
    feasible = 100 * progress.feasible / max(1, progress.seen)
    return (
        f"{progress.evaluated:,} of {progress.trials:,} trials · {rate:,.0f}/s · {best}"
        f" · {feasible:.0f} % can run · {seconds(left) if left >= 1 else '< 1 s'} left"
    )


def _metric(progress: Progress) -> float | None:
    from cosmic.exploration.comparison import value_of  # noqa: PLC0415  heavy

    return value_of(progress.objective, progress.best)


def headline(metrics: Mapping[str, float | None]) -> str:
    """Return what a design achieves on one line."""
    return " · ".join(figure(name, metrics[name]) for name in _SHOWN if metrics[name] is not None)


def figure(name: str, value: float | None) -> str:
    """Return a metric with its name and unit, for a person to read.

    >>> figure("step_s", 12.345), figure("mfu", 0.4), figure("tokens_per_s", 1234.5)
    ('step 12.35 s', 'MFU 40.0 %', '1,234 tokens/s')
    """
    if name == "tokens_per_s":
        return f"{worth(name, value)} tokens/s"
    shown = name.upper() if name in ("mfu", "hfu") else re.sub("_(s|bytes|usd|j)$", "", name)
    return f"{shown} {worth(name, value)}"


def worth(name: str, value: float | None) -> str:
    """Return a metric's value with its unit, for a person to read.

    >>> worth("memory_bytes", 2**34), worth("network_usd", 1e6), worth("perf_per_bandwidth", 1.2345e-14)
    ('16.0 GiB', '1,000,000 USD', '1.235e-14')
    """
    if value is None:
        return "-"
    if name in ("mfu", "hfu"):
        return f"{100 * value:.1f} %"
    if name == "tokens_per_s":
        return f"{value:,.0f}"
    for suffix, text in (("_s", seconds), ("_bytes", _gib), ("_usd", _usd)):
        if name.endswith(suffix):
            return text(value)
    return f"{value:.4g}"


def _gib(value: float) -> str:
    return f"{value / 2**30:.1f} GiB"


def _usd(value: float) -> str:
    return f"{value:,.0f} USD"


# ---------------------------------------------------------------------------------------------- what was found


def summary(found: Found) -> dict[str, Any]:
    """Return what a search found, for programs."""
    from cosmic.exploration.objectives import losses  # noqa: PLC0415  heavy

    problem, trials = found.problem, found.trials
    base = problem.base()
    runs = bool(base.feasible[0])
    best = found.best
    gain = None
    if runs and best is not None:
        before = losses(problem.objectives[:1], base.columns)[0, 0]
        gain = float(before / losses(problem.objectives[:1], trials.results.columns)[best["trial"], 0])
    front = found.front
    return {
        "space": problem.space.name,
        "agent": found.inputs.agent,
        "seed": found.inputs.seed,
        "objectives": list(problem.objectives),
        "constraints": [each.text for each in problem.limits],
        "best": best,
        "front": front,
        "hypervolume": trials.hypervolume(problem) if len(problem.objectives) > 1 else None,
        "base": base.figures(0) if runs else None,
        "gain_over_base": gain,
        "trials": trials.evaluated,
        "feasible": trials.feasible,
        "refused": len(trials) - trials.evaluated,
        "reasons": trials.reasons(),
        "stopped": found.stopped,
        "computed": found.computed,
        "elapsed_s": found.elapsed_s,
        "evaluations_per_s": found.computed / found.elapsed_s if found.elapsed_s else None,
        "study": None if found.path is None else str(found.path),
    }


def show(found: Found) -> None:
    """Print what a search found."""
    facts = summary(found)
    space, best = found.problem.space, facts["best"]
    wanted = " and ".join(facts["objectives"])
    emit([f"{space.name} · {facts['agent']} · for {wanted} · seed {facts['seed']}"])
    emit([_effort(facts), ""])
    if best is None:
        emit(["No design that was tried can run. What stood in the way:"])
        emit([f"  {reason}: {count:,} designs" for reason, count in facts["reasons"].items()])
        return
    metrics = best["metrics"]
    gain = "" if facts["gain_over_base"] is None else f": {facts['gain_over_base']:.4g}× the base design"
    first = facts["objectives"][0]
    emit([f"best design (trial {best['trial']:,}): {figure(first, metrics[first])}{gain}"])
    emit([headline(metrics), *_bounds(found), ""])
    emit_table("", ["parameter", "base", "best"], best_rows(found, best))
    if len(facts["objectives"]) > 1:
        names = facts["objectives"]
        shown = [(each["trial"], each["metrics"]) for each in facts["front"][:20]]
        rows = [[trial, *(worth(name, achieved[name]) for name in names)] for trial, achieved in shown]
        more = f", the first 20 of {len(facts['front'])}" if len(facts["front"]) > 20 else ""
        emit([""])
        emit_table(
            f"Pareto front{more}, hypervolume {facts['hypervolume']:.4f}",
            ["trial", *(name.replace("_", " ") for name in names)],
            rows,
        )


def best_point(found: Found) -> DesignPoint | None:
    """Return the best design, complete; None where nothing can run, or where it is to serve several workloads."""
    place = found.trials.best(found.problem)
    space = found.problem.space
    return None if place is None or space.workloads else space.point(found.trials.rows[place])


def _bounds(found: Found) -> list[str]:
    """Return a line that says what bounds the best design, and how far off its step is expected to be."""
    from cosmic.advice import bottleneck  # noqa: PLC0415  heavy
    from cosmic.evaluation import Metrics, evaluate  # noqa: PLC0415  heavy

    point = best_point(found)
    metrics = None if point is None else evaluate(point)
    if not isinstance(metrics, Metrics):
        return []
    off = f"expected to be off by {100 * metrics.expected_error:.0f} % ({metrics.provenance})"
    return [f"bounded by {bottleneck(metrics)}; {off}"]


def _effort(facts: dict[str, Any]) -> str:
    rate = facts["evaluations_per_s"] or 0.0
    share = 100 * facts["feasible"] / max(1, facts["trials"])
    afresh = "" if facts["computed"] >= facts["trials"] else f", {facts['computed']:,} of them now"
    said = f"{facts['trials']:,} designs evaluated{afresh}, in {seconds(facts['elapsed_s'])} ({rate:,.0f}/s)"
    said += f"; {share:.0f} % can run"
    if facts["refused"]:
        said += f"; {facts['refused']:,} more {'does' if facts['refused'] == 1 else 'do'} not fit together"
    endings = {"exhausted": "; that is every valid design", "stalled": "; the agent has nothing new to propose"}
    return said + endings.get(facts["stopped"], "")


def best_rows(found: Found, best: dict[str, Any]) -> list[list[Any]]:
    """Return for each parameter and derived field what the base has and what the best design has."""
    from cosmic.design import schema  # noqa: PLC0415  heavy
    from cosmic.psa.parameters import label  # noqa: PLC0415  heavy

    space = found.problem.space
    paths = {each.name: each.paths for each in space.parameters} | {path: (path,) for path in space.derived}
    rows = []
    for name, value in best["point"].items():
        base = [label(space.base, path, schema.get(space.base, path)) for path in paths[name]]
        rows.append([name, _cell(base[0] if len(base) == 1 else base), _cell(value)])
    return rows


def _cell(value: Any) -> str:
    return ", ".join(map(brief, value)) if isinstance(value, list) else brief(value)


def separate(text: str) -> list[str]:
    """Return the words of an option that takes several.

    >>> separate("workload, network")
    ['workload', 'network']
    """
    return [each.strip() for each in text.split(",") if each.strip()]


def free_folder(root: Path, name: str) -> Path:
    """Return a directory in *root* that is not there yet: *name*, or that with a number."""
    count, path = 1, root / name
    while path.exists():
        count += 1
        path = root / f"{name}-{count}"
    return path
