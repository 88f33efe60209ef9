"""The command line: each command calls one function of the package and prints what it returns.

The table below is all that `cosmic --help` needs. A command's module is imported when the command runs, so that
help answers at once and no command loads the libraries of another.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from difflib import get_close_matches
from importlib import import_module
from io import StringIO
from typing import Any

from cosmic.base._version import __version__
from cosmic.base.errors import BackendError, CosmicError, one_line, suggest_names
from cosmic.base.files import Unwritable
from cosmic.cli.exit_codes import BAD_INPUT, FAILED, INTERRUPTED, OK, PIPE_CLOSED, in_help
from cosmic.cli.output_streams import Patience, complain, emit, prepare_streams

COMMANDS = {
    "evaluate": ("evaluate_command:evaluate", "Evaluate one design: time, memory, cost, what would help."),
    "search": ("search_command:search", "Find the best design of a parameter set; keep every trial."),
    "serve": ("serve_command:serve", "Serve a model: latency under load, or the cheapest deployment."),
    "size": ("size_command:size", "Say what to buy for a budget, power limit or deadline."),
    "simulate": ("simulate_command:simulate", "Replay recorded traces, or simulate ASTRA-sim's."),
    "demo": ("demo_command:demo", "Run a full-stack search on a built-in example."),
    "ui": ("ui_command:ui", "Open a live page: watch and start searches, change a design."),
    "report": ("report_command:report", "Write a study as one page: verdict, why, trials, designs."),
    "design show": ("design_commands:show", "Print one design with all names and defaults filled in."),
    "design diff": ("design_comparison_commands:diff", "Compare two designs: what differs and what it is worth."),
    "design sweep": ("design_comparison_commands:sweep", "Vary some fields of a design: table, CSV, heat map."),
    "design workload": ("design_commands:workload", "List the operators, collectives and memory of one rank."),
    "design experts": ("design_commands:experts", "Show what uneven routing does to a mixture of experts."),
    "design import": ("design_commands:import_", "Read a launch script as a design: what does it achieve?"),
    "design export": ("design_commands:export", "Write a design as another program's arguments and files."),
    "space show": ("space_commands:show", "Print what may vary: parameters, values, constraints."),
    "space count": ("space_commands:count", "Count the points, and how many are valid."),
    "space sample": ("space_commands:sample", "Draw valid points at random."),
    "space schema": ("space_commands:schema", "Print the parameter set as JSON, as agents read it."),
    "space certify": ("space_commands:certify", "Prove that no design of a parameter set is better."),
    "study show": ("study_commands:show", "Show what was searched, learned and measured."),
    "study tell": ("study_commands:tell", "Put measured runs into a study."),
    "study compare": ("study_commands:compare", "Compare studies: best designs and convergence."),
    "study importance": ("study_commands:importance", "Show which parameters of a study matter, and how much."),
    "study replay": ("study_commands:replay", "Run a study again and compare every trial."),
    "study doctor": ("study_commands:doctor", "Check a study and repair a damaged one."),
    "study export": ("study_commands:export", "Write every trial of a study as a table."),
    "study tournament": ("study_commands:tournament", "Rank agents: same space, same budget, several seeds."),
    "study leaderboard new": ("study_commands:new_board", "Make a board for one space, objective and budget."),
    "study leaderboard enter": ("study_commands:enter_board", "Evaluate a design, or run an agent, and enter it."),
    "study leaderboard show": ("study_commands:show_board", "Evaluate every entry again, and rank them."),
    "network bound": ("network_commands:bound", "Print what no schedule of a collective can beat."),
    "network synthesize": ("network_commands:synthesize", "Make a schedule of a collective for a network."),
    "network check": ("network_commands:check", "Check a schedule: is it valid, and how fast?"),
    "network convert": ("network_commands:convert", "Write a schedule in another format."),
    "network provision": ("network_commands:provision", "Split a budget of bandwidth over a network, at its best."),
    "cluster fleet": ("cluster_commands:fleet", "Run several jobs on one cluster: who runs when, and how slow."),
    "cluster tasks": ("cluster_commands:tasks", "Share accelerators out among the tasks of one training run."),
    "model show": ("model_commands:show", "Show a model of the catalog, or a program: YAML, JAX, PyTorch."),
    "model shard": ("model_commands:shard", "Shard a program over a mesh: the best annotations, and why."),
    "model list": ("catalog_commands:list_models", "List the models of the catalog."),
    "trace show": ("trace_commands:show", "Print the nodes of one rank: table, JSON, graph or page."),
    "trace check": ("trace_commands:check", "Check that the traces of a job can run."),
    "trace generate": ("trace_commands:generate", "Write the traces of one training step of a design."),
    "trace convert": ("trace_convert_command:convert", "Convert profiles of PyTorch and others to traces."),
    "trace project": ("trace_analysis_commands:project", "Project recorded traces onto other designs."),
    "trace repair": ("trace_rewriting_commands:repair", "Repair traces that cannot run."),
    "trace stats": ("trace_analysis_commands:stats", "Print statistics of traces."),
    "trace anonymize": ("trace_rewriting_commands:anonymize", "Remove names and secrets from traces, to share them."),
    "trace diff": ("trace_analysis_commands:diff", "Compare traces or profiles: what takes longer, and why."),
    "trace synthesize": ("trace_rewriting_commands:synthesize", "Make larger traces that look like recorded ones."),
    "trace suite": ("trace_rewriting_commands:suite", "Write a suite of traces."),
    "catalog list": ("catalog_commands:list_", "List models, systems, agents and all else there is."),
    "catalog show": ("catalog_commands:show", "Print one entry with its source."),
    "calibrate run": ("calibrate_commands:run", "Fit a system to your own measurements."),
    "calibrate probe": ("calibrate_commands:probe", "Measure this machine, for 'cosmic calibrate run'."),
    "calibrate validate": ("calibrate_commands:validate", "Predict measured runs: errors by source."),
    "schema": ("schema_command:schema", "Print the JSON Schema of what --json prints."),
    "completion": ("completion_command:completion", "Print the completion script for bash, zsh or fish."),
    "run": ("run_command:run", "Run a recipe: commands with variables, grids and a memory."),
}
"""Every command: the words that name it, the module and function that run it, and a summary."""
NOUNS = {
    "design": "One design: show, compare, vary, import and export it.",
    "space": "A parameter set: what may vary, counts, samples, proofs.",
    "study": "Studies: show, compare, check, replay, export; agents ranked.",
    "network": "Collectives and bandwidth: bounds, schedules, budgets.",
    "cluster": "One cluster, several jobs or tasks: who gets what.",
    "model": "Models and programs: show, shard, list.",
    "trace": "Traces and profiles: convert, project, diff, show, share.",
    "catalog": "What there is: models, systems, agents, topologies, …",
    "calibrate": "Your measurements: take them, fit a system, compare.",
    "study leaderboard": "A kept board of agents and designs, each evaluated again.",
}
"""The words that have commands below them, with a summary."""
HEADINGS = {
    "Ask": ("evaluate", "search", "serve", "size", "simulate", "demo", "ui", "report"),
    "About a …": ("design", "space", "study", "network", "cluster", "model", "trace", "catalog", "calibrate"),
    "Self": ("schema", "completion", "run"),
}
"""The front page."""
GONE = {
    "psa": "space",
    "dse": "search",
    "explore": "search",
    "optimise": "search",
    "optimize": "search",
    "collective": "network",
    "topology": "network",
    "program": "model show",
    "list": "catalog list",
}
"""Words that a person may try, and what does that here."""
RUN_WITHOUT_TYPER = {"calibrate probe": "cosmic.accuracy.calibrate.probing"}
"""Commands that also run without any library of this package."""
OPTIONS = ("--help", "--version")
HELP = {"--help", "--help-all"}
"""Options of every command; the second lists all options, the first those that are used first."""
MOST_OFFERED = 3
"""Commands that a hint names."""
GARBAGE_THRESHOLD = 200_000
"""How many objects are made between two searches for garbage."""
COMPLETE = "_COSMIC_COMPLETE"
"""The environment variable through which the scripts of `cosmic completion` ask for candidates."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name, and exit with its status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    if COMPLETE in os.environ:
        sys.exit(_answer_shell(os.environ[COMPLETE]))
    if words[:1] == ["help"] and words[1:]:
        words = [*words[1:], "--help"]
    command, following = split_command(words)
    word, program = following[0] if following else "", f"cosmic {command}".rstrip()
    if command in COMMANDS:
        status = _run_command(command, following)
    elif word in ("", "-h", "help", *HELP):
        emit((noun_help(command) if command else front_page()).split("\n"))
        status = OK
    elif not command and word in ("--version", "-V"):
        emit([f"cosmic {__version__}"])
        status = OK
    elif word.startswith("-"):
        options = OPTIONS[:1] if command else OPTIONS
        complain([f"{program}: no option '{word}'{suggest_names(word, options)}"])
        status = BAD_INPUT
    else:
        complain([f"{program}: no command '{word}'{suggest_command(command, following)}"])
        status = BAD_INPUT
    sys.exit(status)


def split_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command or noun that a line begins with, and the words that follow.

    >>> split_command(["study", "compare", "runs/a"]), split_command(["study"]), split_command(["nope"])
    (('study compare', ['runs/a']), ('study', []), ('', ['nope']))
    """
    command = ""
    for position, word in enumerate(words):
        longer = f"{command} {word}".lstrip()
        if command in COMMANDS or " " in word or (longer not in COMMANDS and longer not in NOUNS):
            return command, list(words[position:])
        command = longer
    return command, []


def names_below(noun: str) -> list[str]:
    """Return the words that may follow a noun; of the empty one, the words of the front page.

    >>> names_below("model"), names_below("study leaderboard")
    (['show', 'shard', 'list'], ['new', 'enter', 'show'])
    """
    if not noun:
        return [name for names in HEADINGS.values() for name in names]
    inside = (path.removeprefix(f"{noun} ") for path in COMMANDS if path.startswith(f"{noun} "))
    return list(dict.fromkeys(path.partition(" ")[0] for path in inside))


def suggest_command(noun: str, words: Sequence[str]) -> str:
    """Return a hint for a word that is no command below *noun*: where the tree has it, or the nearest one.

    >>> suggest_command("", ["validate"]), suggest_command("", ["psa", "count"]), suggest_command("study", ["compair"])
    ("; did you mean 'cosmic calibrate validate'?", "; did you mean 'cosmic space count'?", "; did you mean 'cosmic study compare'?")
    """
    tree = (*NOUNS, *COMMANDS)
    paths: dict[str, list[str]] = {}
    for path in tree:
        paths.setdefault(path.rpartition(" ")[2], []).append(path)
    own = names_below(noun)
    if noun:
        paths.pop("list", None)  # what another noun lists is not what is asked for
    paths |= {name: [f"{noun} {name}".lstrip()] for name in own}
    if not noun:
        paths |= {word: [path] for word, path in GONE.items()}
    word, *following = words
    near = [word] if word in paths else get_close_matches(word.lower(), paths, n=1, cutoff=0.6)
    if not near:
        return f"; choose from {', '.join(own)}" if noun else "; 'cosmic --help' lists them"
    offers = paths[near[0]]
    if following:
        offers = [longer if (longer := f"{path} {following[0]}") in tree else path for path in offers]
    named = " or ".join(f"'cosmic {path}'" for path in offers[:MOST_OFFERED])
    return f"; did you mean {named}?"


def front_page() -> str:
    """Return what `cosmic --help` prints."""
    rows = []
    for heading, names in HEADINGS.items():
        rows += [heading, *_table_rows({name: NOUNS[name] if name in NOUNS else COMMANDS[name][1] for name in names})]
    return "\n".join(
        [
            "Usage: cosmic COMMAND [OPTIONS]",
            "Full-stack co-design of machine-learning clusters. Try: cosmic demo",
            "",
            *rows,
            "",
            "Every command takes --help and --json.",
            *in_help(),
        ]
    )


def noun_help(noun: str) -> str:
    """Return what a noun with no command prints: its commands, each with its summary."""
    summaries = {}
    for name in names_below(noun):
        path = f"{noun} {name}"
        summaries[name] = COMMANDS[path][1] if path in COMMANDS else NOUNS[path]
    return "\n".join(
        [f"Usage: cosmic {noun} COMMAND [OPTIONS]", "", NOUNS[noun], "", "Commands:", *_table_rows(summaries)]
    )


def _table_rows(summaries: dict[str, str]) -> list[str]:
    width = max(map(len, summaries))
    return [f"  {name:<{width}}  {summary}" for name, summary in summaries.items()]


def _answer_shell(instruction: str) -> int:
    """Answer a shell; where a user's folders are at fault, there is nothing to offer."""
    try:
        status: int = import_module("cosmic.cli.completion_command").answer_shell(instruction)
    except CosmicError as error:
        complain([f"cosmic completion: {error}"])
        status = BAD_INPUT
    return status


def _run_command(name: str, words: list[str]) -> int:
    # A command makes many objects that stay: to look through them again and again, and once more at the end, takes time.
    gc.set_threshold(GARBAGE_THRESHOLD)
    atexit.register(gc.freeze)
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
    usage_error: Any = typer.BadParameter.__base__  # typer does not export it
    try:
        status = _print_help(name, words) if HELP.intersection(words) else _start_command(name, words)
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


def function_of(name: str) -> Any:
    """Return the function of a command; its module is imported now."""
    module, _, function = COMMANDS[name][0].partition(":")
    return getattr(import_module(f"cosmic.cli.{module}"), function)


def app_of(name: str) -> Any:
    """Return the Typer application of a command: plain help, errors left to this module."""
    import typer  # noqa: PLC0415  not needed for help

    from cosmic.cli.plain_arguments import StrictCommand  # noqa: PLC0415  the same

    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(cls=StrictCommand)(function_of(name))
    return app


def _call_without_typer(name: str, words: list[str]) -> int:
    """Run a command where this package's own dependencies are missing, as on a machine that is only to be measured."""
    try:
        status: int = import_module(RUN_WITHOUT_TYPER[name]).main(words)
    except CosmicError as error:
        complain([f"cosmic {name}: {error}"])
        return BAD_INPUT
    return status


def _start_command(name: str, words: list[str]) -> Any:
    done, status = import_module("cosmic.cli.plain_arguments").start_command(function_of(name), words)
    return status if done else app_of(name)(words, prog_name=f"cosmic {name}", standalone_mode=False)


def _print_help(name: str, words: list[str]) -> Any:
    """Print the help of a command as commands print: Typer has its own ways with a closed pipe."""
    import typer  # noqa: PLC0415  not needed for the front page

    from cosmic.cli.console import MORE  # noqa: PLC0415  not needed for the front page

    command: Any = typer.main.get_command(app_of(name))
    more = (
        []
        if "--help-all" in words
        else [each for each in command.params if getattr(each, "rich_help_panel", "") == MORE]
    )
    for parameter in more:
        parameter.hidden = True
    plain = ["--help" if word == "--help-all" else word for word in words]
    with redirect_stdout(StringIO()) as text:
        status = command.main(plain, prog_name=f"cosmic {name}", standalone_mode=False)
    hint = ["", f"More options: cosmic {name} --help-all"] if more else []
    emit([*text.getvalue().removesuffix("\n").split("\n"), *hint])
    return status


def _suggest_option(wrong: str, spellings: Sequence[str]) -> str:
    """Return a hint for an unknown option: a field of a design is set with --set."""
    if "--set" in spellings:
        from cosmic.design.design_point import full_path  # noqa: PLC0415  only where an option is wrong

        name = wrong.removeprefix("--").replace("-", "_")
        with suppress(CosmicError):
            if "." in full_path(name):
                return f": it is a field of a design, '--set {name}=VALUE'"
    return suggest_names(wrong, spellings)


def _show_usage(error: Any) -> None:
    """Print the usage of a command and what was wrong; for an unknown option, the nearest one."""
    wrong, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if wrong and context is not None and hasattr(error, "possibilities"):
        spellings = [
            name
            for get_param in context.command.get_params(context)
            for name in get_param.opts
            if name.startswith("--")
        ]
        error.message, error.possibilities = f"No such option '{wrong}'{_suggest_option(wrong, spellings)}", None
    error.message = one_line(error.message)
    text = StringIO()
    error.show(text)
    complain(text.getvalue().removesuffix("\n").split("\n"))
