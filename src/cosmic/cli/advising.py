"""Changes of a design for people to read, each with the command that tries it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cosmic.cli.console import say, terminal_columns
from cosmic.cli.evaluate import seconds
from cosmic.cli.output import emit, is_terminal

if TYPE_CHECKING:
    from cosmic.advice import Advised, Change
    from cosmic.design.point import DesignPoint
    from cosmic.evaluation import Metrics

INDENT = "         "
"""Before what belongs to the line above."""


def as_data(source: str, changes: Iterable[Advised]) -> list[dict[str, Any]]:
    """Return changes as JSON has them."""
    return [
        {
            "kind": change.kind,
            "changes": change.settings,
            "settings": settings,
            "condition": change.condition,
            "speedup": change.speedup,
            "step_s": change.step_s,
            "tokens_per_s": change.tokens_per_s,
            "samples_per_s": change.samples_per_s,
            "memory_bytes": change.memory_bytes,
            "command": " ".join(command(source, settings)),
        }
        for change, settings in changes
    ]


def print_advice(source: str, point: DesignPoint, changes: Sequence[Advised], base: Metrics | None) -> None:
    """Print what to do, then what to buy."""
    done, bought = ([each for each in changes if each[0].kind == kind] for kind in ("action", "purchase"))
    runs = base is not None
    if done:
        emit(["what would help most" if runs else "what would make it run, fastest first"])
        _print(source, point, done, base)
    else:
        what = "what would help most: no move, nor two together, is faster"
        say([what if runs else "no move, nor two together, makes it run"])
    if bought:
        emit(["", "what to buy"])
        _print(source, point, bought, base)


def _print(source: str, point: DesignPoint, changes: Iterable[Advised], base: Metrics | None) -> None:
    for change, settings in changes:
        number = seconds(change.step_s) if change.speedup is None else f"{change.speedup:.2f}×"
        said = f"{number.ljust(len(INDENT) - 2)}  {in_words(point, change)}"
        say([said + (f" ({_condition(change, base)})" if change.condition else "")])
        emit(broken(command(source, settings), terminal_columns() if is_terminal() else None))


def _condition(change: Change, base: Metrics | None) -> str:
    """Return the condition of a change; for latency, with what becomes of it."""
    if base is None or "latency" not in change.condition:
        return change.condition
    return f"{change.condition}: {seconds(base.step_s)} → {seconds(change.step_s)} per token"


def in_words(point: DesignPoint, change: Change) -> str:
    """Return what a change changes, each field with both values."""
    from cosmic.advice import written  # noqa: PLC0415  heavy
    from cosmic.design import schema  # noqa: PLC0415  heavy

    rates = [path for path in change.settings if path.startswith("compute.")]
    parts = []
    for path, value in change.settings.items():
        if path not in rates[1:]:  # all rates grow alike
            old = written(point, path, schema.get(point, path))
            parts.append(f"{_label(path)} {_said(old)} → {_said(value)}")
    return ", ".join(parts)


def _label(path: str) -> str:
    """Return what a field is called: as it is written, or where it is.

    >>> _label("workload.micro_batch"), _label("network.dims.0.bandwidth"), _label("memory.bandwidth")
    ('micro_batch', 'bandwidth of dimension 1:', 'memory bandwidth')
    """
    from cosmic.reporting.words import path_label  # noqa: PLC0415  heavy

    layer, _, name = path.partition(".")
    if layer == "workload":
        return name
    label = path_label(path)
    return f"{label}:" if label[-1].isdecimal() and "dimension" in label else f"{layer} {label}"


def _said(value: Any) -> str:
    return "auto" if value is None else _text(value)


def command(source: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the words of the command that evaluates a design with some settings, quoted for a shell.

    >>> command("llama3-8b@dgx-h100:8", {"workload.tp_overlap": True, "memory.capacity": "160 GiB"})
    ['cosmic', 'evaluate', 'llama3-8b@dgx-h100:8', '--set tp_overlap=true', "--set 'memory.capacity=160 GiB'"]
    """
    options = [f"--set {shlex.quote(setting(path, value))}" for path, value in settings.items()]
    return ["cosmic", "evaluate", shlex.quote(source), *options]


def setting(path: str, value: Any) -> str:
    """Return a field and its value as ``--set`` takes them.

    >>> setting("workload.tp", 8), setting("serving.prefill.tp", 4)
    ('tp=8', 'prefill.tp=4')
    """
    return f"{_short(path)}={_text(value)}"


def _short(path: str) -> str:
    """Return the shortest name of a field."""
    from cosmic.design.paths import full_path  # noqa: PLC0415  heavy
    from cosmic.errors import SpecError  # noqa: PLC0415

    parts = path.split(".")
    for size in range(1, len(parts)):
        with suppress(SpecError):
            if full_path(name := ".".join(parts[-size:])) == path:
                return name
    return path


def _text(value: Any) -> str:
    """Return the value of a field as an option takes it: YAML on one line."""
    from cosmic.catalog.yaml_files import parse_yaml  # noqa: PLC0415  heavy
    from cosmic.errors import SpecError  # noqa: PLC0415
    from cosmic.strict_json import json_text  # noqa: PLC0415

    names = isinstance(value, list) and all(isinstance(each, str) for each in value)
    plain = f"[{','.join(value)}]" if names else value
    with suppress(SpecError):
        if isinstance(plain, str) and parse_yaml(plain, "") == value:
            return plain
    return json_text(value)


def broken(words: Sequence[str], room: int | None) -> list[str]:
    r"""Return a command on lines that fit into *room*, if given: broken between options, as a shell takes it.

    >>> broken(["cosmic", "evaluate", "a@b", "--set tp=2", "--set pp=4"], 36)
    ['         cosmic evaluate a@b \\', '           --set tp=2 --set pp=4']
    """
    lines = [INDENT + " ".join(words[:3])]
    for word in words[3:]:
        longer = f"{lines[-1]} {word}"
        if room is None or len(longer) + len(" \\") <= room:
            lines[-1] = longer
        else:
            lines[-1] += " \\"
            lines.append(f"{INDENT}  {word}")
    return lines
