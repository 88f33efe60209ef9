"""What a run found, as JSON and for people."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from .judging import Failure, failures
from .server import Outcome

WORST = {"cpu_s": "s", "wall_s": "s", "rss_bytes": "bytes"}


@dataclass
class Tally:
    """Counts of a run."""

    seed: int
    kinds: tuple[str, ...]
    began: float = field(default_factory=time.perf_counter)
    trials: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    cpu_by_kind: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    by_command: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    statuses_by_kind: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    worst: dict[str, tuple[float, str, int]] = field(default_factory=dict)
    found: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """What is wrong after all trials: files that changed."""

    def add(self, outcome: Outcome) -> list[Failure]:
        """Count a trial, and return the rules that it broke."""
        trial = outcome.trial
        self.trials += 1
        self.by_kind[trial.kind] += 1
        self.cpu_by_kind[trial.kind] += outcome.cpu_s
        self.by_command[trial.words[0][:20] if trial.words else ""] += 1
        self.statuses[str(outcome.status)] += 1
        self.statuses_by_kind[trial.kind][str(outcome.status)] += 1
        for name in WORST:
            measure = float(getattr(outcome, name))
            if name not in self.worst or measure > self.worst[name][0]:
                self.worst[name] = measure, trial.line(), trial.number
        wrong = failures(outcome)
        for each in wrong:
            self._add(each, outcome)
        return wrong

    def _add(self, failure: Failure, outcome: Outcome) -> None:
        trial = outcome.trial
        known = self.found.get(failure.key)
        if known is not None:
            known["times"] += 1
            known["trials"] = [*known["trials"], trial.number][:10]
            if len(trial.line()) >= len(known["command"]):
                return
        about: dict[str, Any] = {
            "rule": failure.rule,
            "where": failure.where,
            "kind": trial.kind,
            "command": trial.line(),
        }
        given = {"stdin": trial.stdin, "stdout": trial.stdout, "encoding": trial.encoding}
        usual = {"stdin": "nothing", "stdout": "file", "encoding": "utf-8"}
        about["streams"] = " ".join(f"{name}={value}" for name, value in given.items() if usual[name] != value)
        about |= {"status": outcome.status, "detail": failure.detail, "reproduce": self.reproduce(trial.number)}
        times = known["times"] if known else 1
        self.found[failure.key] = about | {"times": times, "trials": known["trials"] if known else [trial.number]}

    def reproduce(self, number: int) -> str:
        """Return the command that runs one trial again."""
        from .generation import KINDS  # noqa: PLC0415  a report needs no generators

        some = "" if self.kinds == tuple(KINDS) else f" --kinds {','.join(self.kinds)}"
        return f"python benchmarks/fuzz.py --seed {self.seed}{some} --only {number} --keep folder"

    def results(self) -> dict[str, Any]:
        """Return all counts and failures."""
        seconds = time.perf_counter() - self.began
        worst = {name: {"value": value, "command": line, "trial": n} for name, (value, line, n) in self.worst.items()}
        order = sorted(self.found.values(), key=lambda each: (-each["times"], each["rule"], each["where"]))
        return {
            "seed": self.seed,
            "trials": self.trials,
            "seconds": seconds,
            "trials_per_s": self.trials / seconds if seconds else 0.0,
            "kinds": dict(sorted(self.by_kind.items())),
            "cpu_s_by_kind": dict(sorted(self.cpu_by_kind.items())),
            "commands": dict(sorted(self.by_command.items())),
            "statuses_by_kind": {
                kind: dict(sorted(each.items())) for kind, each in sorted(self.statuses_by_kind.items())
            },
            "statuses": dict(sorted(self.statuses.items())),
            "worst": worst,
            "changed": self.faults,
            "failed_trials": sum(each["times"] for each in order),
            "failures": order,
        }


def page(found: dict[str, Any]) -> str:
    """Return the results for people."""
    lines = [f"{found['trials']:,} trials in {found['seconds']:.0f} s ({found['trials_per_s']:.1f} a second)"]
    lines += [
        f"{name}: {', '.join(f'{key} {value:,}' for key, value in found[name].items())}"
        for name in ("kinds", "statuses")
    ]
    for name, each in found["worst"].items():
        value = f"{each['value'] / 1e6:,.0f} MB" if name == "rss_bytes" else f"{each['value']:.1f} s"
        lines.append(f"worst {name.rpartition('_')[0]}: {value} by {each['command'][:160]}")
    lines += [f"changed: {each}" for each in found["changed"]]
    lines.append(f"{len(found['failures'])} defects in {found['failed_trials']:,} failures")
    for each in found["failures"]:
        lines += ["", f"## {each['rule']}: {each['where']} (× {each['times']})"]
        lines += [f"   $ {each['command']}  {each['streams']}".rstrip(), f"   {each['reproduce']}"]
        lines += [f"   | {line}" for line in each["detail"].splitlines()]
    return "\n".join(lines)
