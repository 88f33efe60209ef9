"""What to run after a search: commands that report, evaluate, launch, export, replay and continue it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from cosmic.design.answer import NextCommand

if TYPE_CHECKING:
    from cosmic.design.design_point import DesignPoint
    from cosmic.search.search_loop import Found

REPORTED = "why, every trial, its timeline and cluster"
BEST = "best.yaml"


def resume_command(found: Found) -> str:
    """Return the command that continues a study: to its end, or to ten times as many trials if it has ended."""
    wanted = found.inputs.trials * (1 if found.stopped == "interrupted" else 10)
    return f"cosmic search --resume --out {shlex.quote(str(found.path))} -n {wanted}"


def launch_commands(found: Found, best: DesignPoint | None) -> list[NextCommand]:
    """Return the commands that write the launch of the best design of a study, by a framework that can launch it."""
    from cosmic.search.mapping.mapping_space import launchable_frameworks  # noqa: PLC0415  imports this room's searches

    if found.path is None or best is None:
        return []
    path = shlex.quote(str(found.path / BEST))
    return [
        NextCommand(f"cosmic design export {path} --to {name}", "its launch arguments")
        for name in launchable_frameworks(best)[:1]
    ]


def commands_after(found: Found, best: DesignPoint | None) -> list[NextCommand]:
    """Return what to run after a search whose trials are kept, with the launch of its *best* design; else nothing."""
    if found.path is None:
        return []
    folder = shlex.quote(str(found.path))
    brought = f" --engine {shlex.quote(found.problem.engine)}" if found.problem.user_engine is not None else ""
    commands = [NextCommand(f"cosmic report {folder}", "one page: " + ("every trial" if brought else REPORTED))]
    if found.best is not None:
        about = "the best design alone" if brought else "the best design, and what bounds it"
        commands.append(NextCommand(f"cosmic evaluate {shlex.quote(str(found.path / BEST))}{brought}", about))
    commands += launch_commands(found, best)
    commands += [
        NextCommand(f"cosmic study export {folder} --to trials.csv", "every trial, for a spreadsheet or pandas"),
        NextCommand(f"cosmic study importance {folder}", "which parameters matter"),
        NextCommand(f"cosmic study replay {folder} --check", "run it again and compare bit for bit"),
    ]
    if found.stopped != "exhausted":
        purpose = "continue" if found.stopped == "interrupted" else "more trials"
        commands.append(NextCommand(resume_command(found), purpose))
    return commands
