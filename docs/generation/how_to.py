"""Run the how-to pages: write their files, run their commands, and put the output below each.

A block of code is a file where a line with nothing but its path and a colon stands before it:

    `mine/agents/climber.py`:

A ``console`` block holds commands after ``$``, run by bash in the folder of the files, and their output.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parents[1] / "how-to"
FILE = re.compile(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOOK = re.compile(r" in \d+(\.\d+)?( ?m?s)\b( \([\d,.]+/s\))?")
"""Durations, which differ from run to run."""
PER_PAGE_S = 300


QUIET = {"export-a-design", "live-page", "prove-an-optimum", "replay-a-profile", "share-traces", "traces"}
"""Pages whose commands print more than a page should show; `tests/test_docs.py` runs these."""


def pages() -> list[Path]:
    """Return the how-to pages that show what their commands print, the index included."""
    return sorted(path for path in FOLDER.glob("*.md") if path.stem not in QUIET)


def files(page: str) -> dict[str, str]:
    r"""Return the files of a page, by path.

    >>> files("`mine/a.py`:\n\n```python\nx = 1\n```\n")
    {'mine/a.py': 'x = 1\n'}
    """
    return dict(FILE.findall(page))


def user_lines(page: str) -> int:
    """Return the lines of code that a reader writes: those of all files, without blank lines and comments."""
    lines = [line.strip() for text in files(page).values() for line in text.splitlines()]
    return sum(1 for line in lines if line and not line.startswith("#"))


def commands(block: str) -> list[str]:
    r"""Return the commands of a console block, without their output; a backslash continues a line.

    >>> commands("$ one\nprinted\n$ two \\\n  three\n")
    ['one', 'two \\\n  three']
    """
    found: list[str] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(line[2:])
        elif found and found[-1].endswith("\\"):
            found[-1] += f"\n{line}"
    return found


def run_page(page: str) -> str:
    """Return *page* with the current output of its commands; a command that fails raises `RuntimeError`."""
    with TemporaryDirectory() as folder:
        for path, text in files(page).items():
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        environment = _environment()

        def ran(match: re.Match[str]) -> str:
            lines = [f"$ {command}\n{_printed(command, folder, environment)}" for command in commands(match[1])]
            return "```console\n" + "".join(lines) + "```"

        return CONSOLE.sub(ran, page)


def _environment() -> dict[str, str]:
    """Return an environment without settings of the current user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COSMIC", "PYTEST"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1", "TERM": "dumb"}
    return kept | quick | {"PATH": path}


def _printed(command: str, folder: str, environment: dict[str, str]) -> str:
    """Return the output of *command*; variables that it exports are kept for later commands."""
    if match := re.fullmatch(r"export (\w+)=(\S+)", command):
        environment[match[1]] = match[2]
        return ""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PER_PAGE_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command!r} ended with {done.returncode}: {done.stderr or done.stdout}")
    lines = [TOOK.sub("", line.rstrip()) for line in done.stdout.strip("\n").splitlines()]
    return "".join(f"{line}\n" for line in lines)
