"""The command line: each command a thin skin over a function of the package.

The table below is all that `cosmic --help` needs; a command's module is imported when it is called, so that
help answers at once and no command pays for another's libraries.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from cosmic._version import __version__
from cosmic.cli.output import emit, spell_out
from cosmic.cli.progress import Patience, hush
from cosmic.errors import BackendError, CosmicError, one_line, suggestion

COMMANDS = {
    "demo": ("demo", "The main job, on a built-in example: a full-stack search."),
    "search": ("search", "The best design of a parameter set, and a study of all tried."),
    "ui": ("ui", "A live page: watch searches, start them, change a design."),
    "report": ("report", "A study as one page: the verdict, why, every trial, the designs."),
    "compare": ("compare", "Several studies beside each other: tables, and how they converged."),
    "tournament": ("tournament", "Agents against each other: same budget, several seeds."),
    "replay": ("replay", "A study run again, and compared with what it holds."),
    "export": ("export", "A design as launch arguments, or the trials of a study as a table."),
    "doctor": ("doctor", "A study examined, and what is whole in a damaged one saved."),
    "evaluate": ("evaluate", "One design: time, memory, cost, and what would help most."),
    "simulate": ("simulate", "Execution traces played on a cluster, from ASTRA-sim's files."),
    "diff": ("diff", "What differs between two designs, and what that is worth."),
    "sweep": ("sweep", "A design with some fields varied: table, CSV, heat map."),
    "show": ("show", "One design, complete: names resolved, defaults filled in."),
    "validate": ("validate", "Measured runs predicted: how far off, by source."),
    "workload": ("workload", "What the busiest device of a design computes, sends and keeps."),
    "trace": ("trace", "Chakra execution traces: show, stats, check, generate."),
    "psa": ("psa", "The parameter set: show, count, sample, schema."),
    "list": ("listing", "What the catalog and the registries hold."),
    "schema": ("schema", "What --json prints, as JSON Schema: every key, its unit."),
    "completion": ("completion", "A script that lets bash, zsh or fish complete what you type."),
}
OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
OPTIONS = ("--help", "--version")
COMPLETE = "__complete"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name, and exit with its status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    spell_out()
    if words[:1] == ["help"] and words[1:2]:
        words = [words[1], "--help"]
    if not words or words[0] in ("--help", "-h", "help"):
        emit([help_text()])
        status = OK
    elif words[0] in ("--version", "-V"):
        emit([f"cosmic {__version__}"])
        status = OK
    elif words[0] == COMPLETE:  # what the scripts of `cosmic completion` call, at every press of the key
        emit(import_module("cosmic.cli.completing").answer(words[1:]))
        status = OK
    elif words[0] not in COMMANDS:
        what, known = ("option", OPTIONS) if words[0].startswith("-") else ("command", (*COMMANDS, "help"))
        sys.stderr.write(f"cosmic: no {what} '{one_line(words[0])}'{suggestion(words[0], known)}\n")
        status = BAD_INPUT
    else:
        status = _run(words[0], words[1:])
    sys.exit(status)


def help_text() -> str:
    """Return what `cosmic --help` prints."""
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "Usage: cosmic COMMAND [OPTIONS]",
            "",
            "Full-stack co-design of machine-learning clusters: which accelerators, network,",
            "parallelism and collectives, and why.",
            "",
            "Commands:",
            *rows,
            "",
            "Every command takes --help and --json. Try: cosmic demo",
            "Exit codes: 0 done, 1 no feasible design, 2 bad input, 130 interrupted.",
        ]
    )


def _run(name: str, words: list[str]) -> int:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no command multiplies large matrices: threads only take time
    try:
        with Patience(name):
            status = _call(name, words)
    except KeyboardInterrupt:
        status = INTERRUPTED
    if status == INTERRUPTED:
        sys.stderr.write(f"cosmic {name}: interrupted\n")
    return status


def _call(name: str, words: list[str]) -> int:
    """Return the status with which a command ends; what it raises on purpose becomes a sentence."""
    import typer  # noqa: PLC0415  not needed for help

    app = import_module(f"cosmic.cli.{COMMANDS[name][0]}").app
    usage_error: Any = typer.BadParameter.__base__  # typer does not export it
    try:
        status = app(words, prog_name=f"cosmic {name}", standalone_mode=False)
    except usage_error as error:
        _show_usage(error)
        return BAD_INPUT
    except CosmicError as error:
        hush()
        sys.stderr.write(f"cosmic {name}: {error}\n")
        return FAILED if isinstance(error, BackendError) else BAD_INPUT
    except typer.Abort:  # older releases of typer raise, newer ones return
        return INTERRUPTED
    return status if isinstance(status, int) else OK


def _show_usage(error: Any) -> None:
    """Print how a command is used, and what is wrong with how it was: the nearest option, if it has no such one."""
    wrong, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if wrong and context is not None and hasattr(error, "possibilities"):
        known = [name for each in context.command.get_params(context) for name in each.opts if name.startswith("--")]
        error.message, error.possibilities = f"No such option '{one_line(wrong)}'{suggestion(wrong, known)}", None
    hush()
    error.show()
