"""`cosmic completion`: scripts for shells, and the table of words that they ask.

``python -m cosmic.cli.completion`` writes the table anew; a test says when that is due.
"""

from __future__ import annotations

import json as json_module
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import ArgumentInfo

from cosmic.cli import COMMANDS
from cosmic.cli.completing import WORDS
from cosmic.cli.console import Json, emit, emit_json, new_app

app = new_app()
SCRIPTS = Path(__file__).parent / "shells"
SHELLS = ("bash", "zsh", "fish")
VALUES = {
    "a": "designs",
    "agent": "agents",
    "agents": ",agents",
    "b": "designs",
    "backend": "backends",
    "by": "columns",
    "command": "schemas",
    "constraint": "metrics",
    "design": "designs",
    "engine": "engines",
    "groups": "files",
    "file": "files",
    "kind": "kinds",
    "metric": "sweep metrics",
    "objective": "metrics",
    "out": "folders",
    "prefix": "files",
    "setting": "agent settings",
    "settings": "fields",
    "settings_b": "fields",
    "shell": "shells",
    "source": "designs",
    "space": "spaces",
    "stacks": ",stacks",
    "studies": "folders",
    "study": "folders",
    "to": "exports",
    "vary": "fields",
    "workload": "files",
}
"""What stands behind an option or argument, by the name of its parameter."""
FREE = {"address", "bandwidth", "peak"}
"""Texts of which nobody knows what they are."""


@app.command()
def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell that is to complete.")],
    json: Json = False,
) -> None:
    """Print a script that lets a shell complete commands, options, names and values.

    To try it: source <(cosmic completion bash). To keep it: write that line into ~/.bashrc; for zsh likewise into
    ~/.zshrc, after compinit; for fish: cosmic completion fish > ~/.config/fish/completions/cosmic.fish
    """
    from cosmic.errors import UnknownName  # noqa: PLC0415  heavy imports stay in functions

    if shell not in SHELLS:
        raise UnknownName.among("shell", shell, "shell", SHELLS)
    script = (SCRIPTS / f"cosmic.{shell}").read_text(encoding="utf-8")
    if json:
        emit_json({"shell": shell, "script": script})
    else:
        emit(script.splitlines())


# ------------------------------------------------------------------------------------------ the table of words


def describe() -> dict[str, Any]:
    """Return all that can be completed without looking at files."""
    commands = {name: _node(name, summary) for name, (_, summary) in COMMANDS.items()}
    return {"commands": commands, "sets": _sets(), "fields": _field_values()}


def _node(name: str, summary: str) -> dict[str, Any]:
    """Return what can be written behind one command, or behind each of its subcommands."""
    commands = import_module(f"cosmic.cli.{COMMANDS[name][0]}").app.registered_commands
    if len(commands) == 1:
        return _described(commands[0].callback, summary)
    inside = {each.callback.__name__: _described(each.callback, _first_sentence(each.callback)) for each in commands}
    return {"help": summary, "commands": inside, "options": {"--help": {}}, "arguments": []}


def _described(function: Any, summary: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    arguments: list[str] = []
    several = False
    for name, (hint, about) in _parameters(function).items():
        kind = _kind(name, hint, about.help or "")
        if isinstance(about, ArgumentInfo):
            arguments.append(kind)
            several |= "list" in str(hint)
        elif not about.hidden:
            entry = {"help": about.help or ""}
            for each in _option_names(name, hint, about):
                options[each] = entry if hint is bool else {**entry, "values": kind}
    options["--help"] = {"help": "Show this message and exit."}
    found = {"help": summary, "options": options, "arguments": arguments}
    return {**found, "several": True} if several else found


def _parameters(function: Any) -> dict[str, tuple[Any, Any]]:
    """Return the type of each parameter of a command, and what is said of it."""
    found = {}
    for name, hint in get_type_hints(function, include_extras=True).items():
        if hasattr(hint, "__metadata__"):
            found[name] = (hint.__origin__, hint.__metadata__[0])
    return found


def _option_names(name: str, hint: Any, about: Any) -> list[str]:
    """Return how an option is written: as stated, or by the name of its parameter."""
    declared = [each for each in (about.default, *(about.param_decls or ())) if isinstance(each, str)]
    stated = [part for each in declared for part in each.split("/")]
    usual = f"--{name.replace('_', '-')}"
    return stated or ([usual, usual.replace("--", "--no-", 1)] if hint is bool else [usual])


def _first_sentence(function: Any) -> str:
    return str(function.__doc__).split(":")[0].split(";")[0].rstrip(".")


def _kind(name: str, hint: Any, said: str) -> str:
    """Return what stands behind an option, or as an argument; nothing where it is a number or a free text."""
    if name in VALUES:
        return VALUES[name]
    if "Path" in str(hint):
        return "folders" if "director" in said.lower() else "files"
    return ""


def _sets() -> dict[str, list[str]]:
    from cosmic.cli.listing import listings  # noqa: PLC0415  heavy imports stay in functions
    from cosmic.cli.schema import published  # noqa: PLC0415
    from cosmic.cli.sweep import NUMBERS  # noqa: PLC0415
    from cosmic.design.point import STACKS  # noqa: PLC0415
    from cosmic.evaluation import BETTER, ENGINES  # noqa: PLC0415
    from cosmic.exploration.agent import agents, settings_of  # noqa: PLC0415
    from cosmic.launching.launch import targets  # noqa: PLC0415
    from cosmic.simulation.event.engine import BACKENDS  # noqa: PLC0415
    from cosmic.validation.rows import KINDS  # noqa: PLC0415

    return {
        "agents": sorted(agents),
        "agent settings": sorted({f"{name}=" for agent in agents for name in settings_of(agent)}),
        "backends": list(BACKENDS),
        "columns": sorted({"set", *(column for kind in KINDS for column in kind.columns)}),
        "engines": [*ENGINES, "ray"],
        "exports": sorted(targets),
        "kinds": list(listings()),
        "metrics": list(BETTER),
        "schemas": sorted({name.partition(" ")[0] for name in published()}),
        "shells": list(SHELLS),
        "stacks": list(STACKS),
        "sweep metrics": list(NUMBERS),
    }


def _field_values() -> dict[str, list[str]]:
    """Return the paths of a design's fields that one would set, each with its values where there are only some."""
    from cosmic.design import schema  # noqa: PLC0415  heavy imports stay in functions
    from cosmic.loading.designs import load_design  # noqa: PLC0415

    point = load_design("gpt3-175b@cosmic-1024")  # of four dimensions: more than most
    found = {}
    for path, _ in schema.leaves(point):
        slot = schema.slot_at(point, path)
        if ".transport." not in path:
            found[path] = ["true", "false"] if slot.hint is bool else sorted(slot.choices() or ())
    return found


def write() -> None:
    """Write the table anew."""
    from cosmic.files import write_text  # noqa: PLC0415

    write_text(WORDS, json_module.dumps(describe(), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write()
