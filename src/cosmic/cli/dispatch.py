"""The command line: each command calls one function of the package and prints what it returns.

The table below is all that `cosmic --help` needs. A command's module is imported when the command runs, so that
help answers at once and no command loads the libraries of another.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from typing import Any

from cosmic.base._version import __version__
from cosmic.base.errors import BackendError, CosmicError, one_line, suggest_names
from cosmic.base.files import Unwritable
from cosmic.cli.exit_codes import BAD_INPUT, FAILED, INTERRUPTED, OK, PIPE_CLOSED, in_help
from cosmic.cli.output_streams import Patience, complain, emit, prepare_streams

COMMANDS = {
    "demo": ("demo_command", "Run a full-stack search on a built-in example."),
    "search": ("search_command", "Find the best design of a parameter set; keep every trial."),
    "ui": ("ui_command", "Open a live page: watch and start searches, change a design."),
    "report": ("report_command", "Write a study as one page: verdict, why, trials, designs."),
    "certify": ("space_commands:certify_app", "Prove that no design of a parameter set is better."),
    "study": ("study_commands:study_app", "Put measured runs into a study; show them beside predictions."),
    "compare": ("study_commands:compare_app", "Compare studies: best designs and convergence."),
    "importance": ("study_commands:importance_app", "Show which parameters of a study matter, and how much."),
    "tournament": ("tournament_commands:tournament_app", "Rank agents: same space, same budget, several seeds."),
    "leaderboard": ("tournament_commands:leaderboard_app", "Keep a board of agents and designs, each evaluated again."),
    "run": ("run_command", "Run a recipe: commands with variables, grids and a memory."),
    "replay": ("study_commands:replay_app", "Run a study again and compare every trial."),
    "export": ("design_commands:export_app", "Write a design as launch arguments, or a study as a table."),
    "import": ("design_commands:import_app", "Read a launch script as a design: what does it achieve?"),
    "doctor": ("study_commands:doctor_app", "Check a study and repair a damaged one."),
    "evaluate": ("evaluate_command", "Evaluate one design: time, memory, cost, what would help."),
    "serve": ("serve_command", "Serve a model: latency under load, or the cheapest deployment."),
    "simulate": ("simulate_command", "Replay recorded traces, or simulate ASTRA-sim's."),
    "size": ("size_command", "Say what to buy for a budget, power limit or deadline."),
    "diff": ("design_comparison_commands:diff_app", "Compare two designs: what differs and what it is worth."),
    "sweep": ("design_comparison_commands:sweep_app", "Vary some fields of a design: table, CSV, heat map."),
    "experts": ("design_commands:experts_app", "Show what uneven routing does to a mixture of experts."),
    "tasks": ("cluster_commands:tasks_app", "Share accelerators out among the tasks of one training run."),
    "fleet": ("cluster_commands:fleet_app", "Run several jobs on one cluster: who runs when, and how slow."),
    "provision": ("network_commands:provision_app", "Split a budget of bandwidth over a network, at its best."),
    "shard": ("model_commands:shard_app", "Shard a program over a mesh: the best annotations, and why."),
    "show": ("design_commands:show_app", "Print one design with all names and defaults filled in."),
    "validate": ("calibrate_commands:validate_app", "Predict measured runs: errors by source."),
    "calibrate": ("calibrate_commands:calibrate_app", "Fit a system to your own measurements."),
    "probe": ("calibrate_commands:probe_app", "Measure this machine, for 'cosmic calibrate'."),
    "workload": ("design_commands:workload_app", "List the operators, collectives and memory of one rank."),
    "program": ("model_commands:program_app", "Bring a program: YAML, JAX or PyTorch, as a model."),
    "collective": ("network_commands:network_app", "Bound, synthesize and check collectives on any network."),
    "trace": ("trace_commands", "Traces and profiles: convert, project, diff, show, share."),
    "psa": ("space_commands:space_app", "The parameter set: show, count, sample, schema."),
    "list": ("catalog_commands", "List models, systems, agents and all else there is."),
    "schema": ("schema_command", "Print the JSON Schema of what --json prints."),
    "completion": ("completion_command", "Print the completion script for bash, zsh or fish."),
}
RUN_WITHOUT_TYPER = {"probe": "cosmic.accuracy.calibrate.probing"}
"""Commands that also run without any library of this package."""
OPTIONS = ("--help", "--version")
GARBAGE_THRESHOLD = 50_000
"""How many objects are made between two searches for garbage."""
COMPLETE = "_COSMIC_COMPLETE"
"""The environment variable through which the scripts of `cosmic completion` ask for candidates."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name, and exit with its status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    if COMPLETE in os.environ:
        sys.exit(_answer_shell(os.environ[COMPLETE]))
    if words[:1] == ["help"] and words[1:2]:
        words = [words[1], "--help"]
    if not words or words[0] in ("--help", "-h", "help"):
        emit(help_text().split("\n"))
        status = OK
    elif words[0] in ("--version", "-V"):
        emit([f"cosmic {__version__}"])
        status = OK
    elif words[0] not in COMMANDS:
        what, known = ("option", OPTIONS) if words[0].startswith("-") else ("command", (*COMMANDS, "help"))
        complain([f"cosmic: no {what} '{words[0]}'{suggest_names(words[0], known)}"])
        status = BAD_INPUT
    else:
        status = _run_command(words[0], words[1:])
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
            *in_help(),
        ]
    )


def _answer_shell(instruction: str) -> int:
    """Answer a shell; where a user's folders are at fault, there is nothing to offer."""
    try:
        status: int = import_module("cosmic.cli.completion_command").answer_shell(instruction)
    except CosmicError as error:
        complain([f"cosmic completion: {error}"])
        status = BAD_INPUT
    return status


def _run_command(name: str, words: list[str]) -> int:
    gc.set_threshold(
        GARBAGE_THRESHOLD
    )  # a command makes many objects that stay: to look through them again and again takes time
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no command multiplies large matrices: threads only take time
    try:
        with Patience(name):
            status = call_command(name, words)
    except KeyboardInterrupt:
        status = INTERRUPTED
    if status == INTERRUPTED:
        complain([f"cosmic {name}: interrupted"])
    return status


def call_command(name: str, words: list[str]) -> int:
    """Run a command and return its exit status; an error of ours is printed as one sentence."""
    try:
        import typer  # noqa: PLC0415  not needed for help
    except ImportError:
        if name not in RUN_WITHOUT_TYPER:
            raise
        return _call_without_typer(name, words)
    app = app_of(name)
    usage_error: Any = typer.BadParameter.__base__  # typer does not export it
    try:
        status = _print_help(app, name, words) if "--help" in words else _start_app(app, name, words)
    except usage_error as error:
        _show_usage(error)
        return BAD_INPUT
    except CosmicError as error:
        if isinstance(error, Unwritable) and error.unread:
            return PIPE_CLOSED
        complain(f"cosmic {name}: {error}".split("\n"))  # what a simulator prints may have lines
        return FAILED if isinstance(error, BackendError) else BAD_INPUT
    except typer.Abort:  # older releases of typer raise, newer ones return
        return INTERRUPTED
    except MemoryError:
        complain([f"cosmic {name}: there is not enough memory for this"])
        return FAILED
    return status if isinstance(status, int) else OK


def app_of(name: str) -> Any:
    """Return the Typer application of a command; its module is imported now."""
    module, _, app = COMMANDS[name][0].partition(":")
    return getattr(import_module(f"cosmic.cli.{module}"), app or "app")


def _call_without_typer(name: str, words: list[str]) -> int:
    """Run a command where this package's own dependencies are missing, as on a machine that is only to be measured."""
    try:
        status: int = import_module(RUN_WITHOUT_TYPER[name]).main(words)
    except CosmicError as error:
        complain([f"cosmic {name}: {error}"])
        return BAD_INPUT
    return status


def _start_app(app: Any, name: str, words: list[str]) -> Any:
    done, status = import_module("cosmic.cli.plain_arguments").start_command(app, words)
    return status if done else app(words, prog_name=f"cosmic {name}", standalone_mode=False)


def _print_help(app: Any, name: str, words: list[str]) -> Any:
    """Print the help of a command as commands print: Typer has its own ways with a closed pipe."""
    with redirect_stdout(StringIO()) as text:
        status = _start_app(app, name, words)
    emit(text.getvalue().removesuffix("\n").split("\n"))
    return status


def _show_usage(error: Any) -> None:
    """Print the usage of a command and what was wrong; for an unknown option, the nearest one."""
    wrong, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if wrong and context is not None and hasattr(error, "possibilities"):
        known = [
            name
            for get_param in context.command.get_params(context)
            for name in get_param.opts
            if name.startswith("--")
        ]
        error.message, error.possibilities = f"No such option '{wrong}'{suggest_names(wrong, known)}", None
    error.message = one_line(error.message)
    text = StringIO()
    error.show(text)
    complain(text.getvalue().removesuffix("\n").split("\n"))
