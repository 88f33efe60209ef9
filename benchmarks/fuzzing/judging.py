"""What must hold after every command, whatever it was given."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from .server import CPU_S, LATE_S, READ_BYTES, UNMADE, Outcome

RSS_BYTES = 2 * 10**9
STATUSES = (0, 1, 2, 3)
INTERRUPTED, PIPE_CLOSED = 130, 141
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that change what a terminal shows."""
TRACEBACK = "Traceback (most recent call last)"
SENTENCE = re.compile(r"^(cosmic( [a-z]+)*|Error|Usage): .+", re.MULTILINE)
"""What a command says on standard error: its own sentence, or Typer's."""
WARNING = re.compile(r"\b[A-Z][A-Za-z]*Warning: .*")
FRAME = re.compile(r'File "([^"]+)", line (\d+),? in (\S+)')
OURS = re.compile(r"[/\\](cosmic[/\\].+)$")
SHOWN_LINES = 12
JSON_LINES = ("space sample",)
"""Commands that print a JSON value on each line."""


@dataclass(frozen=True)
class Failure:
    """A rule that did not hold."""

    rule: str
    where: str
    """What tells it from other failures of the rule: a line of the program, or a command."""
    detail: str
    """The last lines that were printed, or a measure."""

    @property
    def key(self) -> tuple[str, str]:
        """Failures of one key are one defect."""
        return self.rule, self.where


def failures(outcome: Outcome) -> list[Failure]:
    """Return the rules that did not hold."""
    stopped = list(_stopped(outcome))
    return stopped or [*_said(outcome), *_shown(outcome), *_left(outcome)]


def _stopped(outcome: Outcome) -> Iterator[Failure]:
    """Yield why a command did not end by itself."""
    made = outcome.trial.kind != UNMADE
    where = (_location(outcome.stuck, last=False) or outcome.trial.command) if made else "the fuzzer's generator"
    if outcome.killed:
        yield Failure(outcome.killed, where, _first(outcome.stuck))
    elif outcome.cpu_s > CPU_S or outcome.status == -signal.SIGXCPU:
        yield Failure(f"takes over {CPU_S} s of processor time", where, _first(outcome.stuck))
    elif outcome.status < 0:
        yield Failure(f"is ended by signal {-outcome.status}", outcome.trial.command, _last(_text(outcome.stderr)))
    if outcome.rss_bytes > RSS_BYTES:
        yield Failure("takes over 2 GB", outcome.trial.command, f"{outcome.rss_bytes / 1e9:.1f} GB")
    if outcome.late_s is not None and outcome.late_s > LATE_S and not outcome.killed:
        yield Failure("goes on after Ctrl-C", outcome.trial.command, f"{outcome.late_s:.1f} s")


def _said(outcome: Outcome) -> Iterator[Failure]:
    """Yield what is wrong with the status and the message that comes with it."""
    errors, trial = _text(outcome.stderr), outcome.trial
    if trial.kind == UNMADE:
        yield Failure("the fuzzer made no trial", _last(errors)[-160:], _last(errors))
        return
    allowed = {*STATUSES}
    allowed |= {INTERRUPTED} if outcome.late_s is not None else set()
    allowed |= {PIPE_CLOSED} if trial.stdout == "gone" else set()
    if TRACEBACK in errors or "Exception ignored" in errors:
        yield Failure("prints a traceback", _location(errors, last=True) or trial.command, _last(errors))
        return
    if outcome.status not in allowed:
        yield Failure(f"ends with status {outcome.status}", trial.command, _last(errors))
    elif outcome.status == 2 and not (SENTENCE.search(errors) or _is_result(outcome)):
        yield Failure("ends with status 2 and no sentence", trial.command, _last(errors))
    elif outcome.status in (1, 3) and not errors.strip() and not outcome.stdout.strip():
        yield Failure(f"ends with status {outcome.status} and says nothing", trial.command, "")
    for found in WARNING.findall(errors)[:1]:
        yield Failure("prints a warning of Python", found[:80], _last(errors))


def _shown(outcome: Outcome) -> Iterator[Failure]:
    """Yield what is wrong with the text that was printed."""
    trial = outcome.trial
    for name, data in (("standard output", outcome.stdout), ("standard error", outcome.stderr)):
        try:
            text = data.decode(trial.encoding)
        except UnicodeDecodeError as error:
            if len(data) < READ_BYTES:
                yield Failure(f"writes {name} that is no {trial.encoding}", trial.command, str(error))
            continue
        found = CONTROL.search(text)
        if found:
            near = text[max(0, found.start() - 60) : found.end() + 20]
            yield Failure(f"prints a control character on {name}", trial.command, ascii(near))
    if trial.wants_json and trial.stdout == "file" and outcome.status in (0, 1) and outcome.stdout.strip():
        yield from _json(outcome)


def _is_result(outcome: Outcome) -> bool:
    """Return whether the output is a result in JSON: `trace check --json` lists there what is wrong."""
    return outcome.trial.wants_json and bool(outcome.stdout.strip()) and not any(_json(outcome))


def _json(outcome: Outcome) -> Iterator[Failure]:
    """Yield why the output is no JSON: neither one value nor a value on each line."""
    if len(outcome.stdout) >= READ_BYTES:
        return
    text = outcome.stdout.decode(outcome.trial.encoding, "replace")
    lines = text.splitlines() if outcome.trial.command in JSON_LINES else [text]
    try:
        for line in lines:
            json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        yield Failure("prints no JSON", outcome.trial.command, f"{error}: {text[:200]!a}")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _left(outcome: Outcome) -> Iterator[Failure]:
    if outcome.left:
        kinds = {name if name == "a process" else name.partition("/")[0] for name in outcome.left}
        where = f"{outcome.trial.command} ({', '.join(sorted(kinds))})"
        yield Failure("leaves something behind", where, ", ".join(outcome.left[:5]))


# ---- text


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _last(text: str) -> str:
    return "\n".join(line[:300] for line in text.strip().splitlines()[-SHOWN_LINES:])


def _first(text: str) -> str:
    return "\n".join(text.strip().splitlines()[:SHOWN_LINES])


def _location(text: str, *, last: bool) -> str:
    """Return the innermost line of the package in a traceback, and the type of the error."""
    found: list[Any] = [(OURS.search(path), line, name) for path, line, name in FRAME.findall(text)]
    ours = [(path[1], line, name) for path, line, name in found if path and "fuzzing" not in path[1]]
    if not ours:
        return ""
    path, line, name = ours[-1 if last else 0]
    error = text.strip().splitlines()[-1].partition(":")[0] if last else ""
    return f"{path}:{line} {name} {error}".strip()[:160]
