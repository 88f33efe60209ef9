"""`cosmic completion`: scripts for shells, and what they call at every TAB.

Typer completes commands, options and values; `cosmic.cli.value_completion` knows the values. Its script for fish is
used as
it is. Those for bash and zsh are our own: Typer's breaks MODEL@SYSTEM and PATH=VALUE into words, as bash does, and
writes a space behind 'MODEL@' and 'PATH='.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cosmic.base.errors import CosmicError
from cosmic.cli.console import Json, emit_json
from cosmic.cli.dispatch import COMMANDS, COMPLETE, NOUNS, app_of, names_below
from cosmic.cli.output_streams import FAILED, emit_data
from cosmic.cli.value_completion import complete_one_of

if TYPE_CHECKING:
    from cosmic.cli.answers.study_answers import CompletionAnswer
SCRIPTS = Path(__file__).parent / "shells"
SHELLS = ("bash", "zsh", "fish")


def completion(
    shell: Annotated[
        str,
        typer.Argument(
            metavar="bash|zsh|fish", help="The shell to complete in.", autocompletion=complete_one_of(*SHELLS)
        ),
    ],
    json: Json = False,
) -> None:
    """Print a script that lets a shell complete commands, options, names and values.

    To try it: source <(cosmic completion bash). To keep it: write that line into ~/.bashrc; for zsh likewise into
    ~/.zshrc, after compinit; for fish: cosmic completion fish > ~/.config/fish/completions/cosmic.fish
    """
    from cosmic.base.errors import UnknownName  # noqa: PLC0415  heavy imports stay in functions

    if shell not in SHELLS:
        raise UnknownName.among("shell", shell, "shell", SHELLS)
    script = script_for(shell)
    if json:
        answer: CompletionAnswer = {"shell": shell, "script": script}
        emit_json(answer)
    else:
        emit_data(script.removesuffix("\n").split("\n"))


def script_for(shell: str) -> str:
    """Return the script that a *shell* reads."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # noqa: PLC0415  not at a TAB

    own = SCRIPTS / f"cosmic.{shell}"
    if own.exists():
        return own.read_text(encoding="utf-8")
    return get_completion_script(prog_name="cosmic", complete_var=COMPLETE, shell=shell) + "\n"


# ---- at a TAB


class Commands(TyperGroup):
    """The commands below a noun, or all of the front page; the module of one is imported when its options are needed."""

    noun = ""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: D102  Typer's
        return names_below(self.noun)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: D102  Typer's
        path = f"{self.noun} {cmd_name}".lstrip()
        if path in COMMANDS:
            command: Any = typer.main.get_command(app_of(path))
            command.short_help = COMMANDS[path][1]
        elif path in NOUNS:
            command = Commands(name=cmd_name, short_help=NOUNS[path])
            command.noun = path
        else:
            return None
        return command


def answer_shell(instruction: str) -> int:
    """Print the candidates for the words in the environment, as Typer's *instruction* asks; return the exit status."""
    sys.modules["rich"] = None  # type: ignore[assignment]  # Typer would draw help with it, which takes 0.2 s
    from typer.completion import completion_init, shell_complete  # type: ignore[attr-defined]  # noqa: PLC0415

    completion_init()
    root = typer.Typer(cls=Commands, add_completion=False, rich_markup_mode=None)
    root.callback()(_cosmic_options)
    try:
        return shell_complete(typer.main.get_command(root), {}, "cosmic", COMPLETE, instruction)
    except (LookupError, ValueError) as error:  # words that no shell sends
        if isinstance(error, CosmicError):
            raise
        return FAILED


def _cosmic_options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Stand for the options of ``cosmic`` itself."""
