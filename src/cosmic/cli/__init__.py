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
from cosmic.cli.output import emit
from cosmic.errors import BackendError, CosmicError, suggestion

COMMANDS = {
    "demo": ("demo", "The main job on embedded defaults: a full-stack search, beside searches of one layer."),
    "search": ("search", "The best design of a parameter set, and a study of all that were tried."),
    "compare": ("compare", "Several studies beside each other: tables, and how they converged."),
    "tournament": ("tournament", "Agents against each other: same budget, several seeds, winners evaluated again."),
    "replay": ("replay", "A study run again, and compared with what it holds."),
    "export": ("export", "A design as launch arguments, or the trials of a study as a table."),
    "doctor": ("doctor", "A study examined, and what is whole in a damaged one saved."),
    "evaluate": ("evaluate", "One design: time, utilisation, memory, cost, and what would help most."),
    "simulate": ("simulate", "Execution traces played on a cluster: ASTRA-sim's job, on its files."),
    "diff": ("diff", "What differs between two designs, and what each difference is worth."),
    "sweep": ("sweep", "A design with some fields varied: table, CSV, heat map."),
    "show": ("show", "One design, complete: every name resolved, every default filled in."),
    "validate": ("validate", "Measured runs predicted: how far off, by source."),
    "workload": ("workload", "What the busiest device of a design computes, sends and keeps."),
    "trace": ("trace", "Chakra execution traces: show, stats, check, generate."),
    "psa": ("psa", "The parameter set: show, count, sample, schema."),
    "list": ("listing", "What the catalog and the registries hold."),
}
OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name, and exit with its status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("--help", "-h", "help"):
        emit([help_text()])
        status = OK
    elif words[0] in ("--version", "-V"):
        emit([f"cosmic {__version__}"])
        status = OK
    elif words[0] not in COMMANDS:
        sys.stderr.write(f"cosmic: no command '{words[0]}'{suggestion(words[0], COMMANDS)}\n")
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
        ]
    )


def _run(name: str, words: list[str]) -> int:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no command multiplies large matrices: threads only take time
    import typer  # noqa: PLC0415  not needed for help

    app = import_module(f"cosmic.cli.{COMMANDS[name][0]}").app
    usage_error: Any = typer.BadParameter.__base__  # typer does not export it
    try:
        status = app(words, prog_name=f"cosmic {name}", standalone_mode=False)
    except usage_error as error:
        error.show()
        return BAD_INPUT
    except CosmicError as error:
        sys.stderr.write(f"cosmic {name}: {error}\n")
        return FAILED if isinstance(error, BackendError) else BAD_INPUT
    except (typer.Abort, KeyboardInterrupt):  # older releases of typer raise, newer ones return
        status = INTERRUPTED
    if status == INTERRUPTED:
        sys.stderr.write(f"cosmic {name}: interrupted\n")
    return status if isinstance(status, int) else OK
