"""The results: a table by label, and the survivors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from .accepted import EQUIVALENT, Key
from .operators import Mutant
from .runner import Found, Judged
from .tree import Tree

SHOWN = 150
"""Letters of a description at most; the JSON has all of it."""


def results(tree: Tree, mutants: list[Mutant], found: Found, reasons: Mapping[Key, str]) -> dict[str, Any]:
    """Return everything a run found, as JSON has it."""
    rows = [_row(tree, mutant, found.verdicts[mutant.id], reasons.get(mutant.key, "")) for mutant in mutants]
    labels = sorted({row["label"] for row in rows})
    return {
        "labels": {label: score([row for row in rows if row["label"] == label]) for label in labels},
        "total": score(rows),
        "tests": len(found.surveyed.tests),
        "tests_that_fail": found.surveyed.failed,
        "tests_too_slow": found.surveyed.slow,
        "survivors": [row for row in rows if row["verdict"] != "killed"],
        "killed_by": {row["id"]: row["killed_by"] for row in rows if row["verdict"] == "killed"},
        "accepted_but_killed": [row["id"] for row in rows if row["why"] and row["verdict"] == "killed"],
    }


def _row(tree: Tree, mutant: Mutant, judged: Judged, why: str) -> dict[str, Any]:
    return {
        "id": mutant.id,
        "label": tree.label(mutant.module),
        "module": mutant.module,
        "line": mutant.line,
        "text": mutant.text,
        "mutant": mutant.key[2],
        "verdict": judged.verdict,
        "tests": judged.asked,
        "killed_by": judged.by,
        "why": why,
    }


def score(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many mutants there are of each verdict, and the share that is killed.

    >>> score([{"verdict": "killed", "why": ""}, {"verdict": "survived", "why": "equivalent: of course"}])["score"]
    1.0
    """
    equivalent = [row for row in rows if row["verdict"] != "killed" and row["why"].startswith(EQUIVALENT)]
    counts = Counter(row["verdict"] for row in rows)
    counted = len(rows) - len(equivalent)
    return {
        "mutants": len(rows),
        "killed": counts["killed"],
        "survived": counts["survived"],
        "no_coverage": counts["no coverage"],
        "equivalent": len(equivalent),
        "score": counts["killed"] / counted if counted else 1.0,
    }


def table(found: Mapping[str, Any]) -> str:
    """Return the scores as a table for a terminal."""
    heads = f"{'mutants':>8}{'killed':>8}{'survived':>10}{'no coverage':>13}{'equivalent':>12}{'score':>8}"
    lines = [f"{'package':<14}{heads}"]
    for label, row in (*found["labels"].items(), ("all", found["total"])):
        counts = f"{row['mutants']:>8}{row['killed']:>8}{row['survived']:>10}{row['no_coverage']:>13}"
        lines.append(f"{label:<14}{counts}{row['equivalent']:>12}{row['score']:>8.1%}")
    return "\n".join(lines)


def survivors(found: Mapping[str, Any]) -> str:
    """Return the survivors as text: those that nobody accepted, then the accepted ones with their reasons."""
    open_, known = ([row for row in found["survivors"] if bool(row["why"]) == accepted] for accepted in (False, True))
    lines = [_line(row) for row in open_]
    if known:
        lines += ["", "accepted:", *(f"{_line(row)}  # {row['why']}" for row in known)]
    return "\n".join(lines)


def _line(row: Mapping[str, Any]) -> str:
    said = row["mutant"] if len(row["mutant"]) <= SHOWN else f"{row['mutant'][:SHOWN]}…"
    covered = "" if row["verdict"] == "survived" else "  (no coverage)"
    return f"{row['module']}:{row['line']}  {said}{covered}"
