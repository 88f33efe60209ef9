"""A study: a directory with the inputs of a search and every trial.

study.json   resolved inputs, seed and versions: everything that determines the result
trials.db    the trials (`cosmic.exploration.studies.storage`)
lock         held by the one process that writes
"""

from __future__ import annotations

import errno
import json
import os
import platform
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from cosmic._version import __version__
from cosmic.errors import SpecError, suggestion
from cosmic.exploration.inputs import Inputs
from cosmic.exploration.problem import Problem
from cosmic.exploration.studies.storage import Storage, StudyError, holds_trials, out_of_space
from cosmic.exploration.trials import Trials
from cosmic.files import write_text

FORMAT = 1
LIBRARIES = ("cmaes", "optuna", "scikit-learn", "scipy")
"""Optional libraries of agents: their versions may change what an agent proposes."""
INPUTS, TRIALS, LOCK = "study.json", "trials.db", "lock"


@dataclass(frozen=True)
class Study:
    """A study on disk, read-only."""

    path: Path
    inputs: Inputs
    written_by: Mapping[str, str]
    created: str

    @property
    def problem(self) -> Problem:
        """The problem that was searched."""
        return self.inputs.problem

    @cached_property
    def trials(self) -> Trials:
        """Every trial so far."""
        with Storage.opened(self.path / TRIALS) as storage:
            found = storage.trials()
        width = len(self.problem.space.parameters)
        return found if len(found) else Trials(np.empty((0, width), dtype=np.intp), found.results)

    @property
    def stopped(self) -> str:
        """Why its search ended, as in `Found`; ``interrupted`` where it has not ended."""
        trials = self.trials
        with Storage.opened(self.path / TRIALS) as storage:
            ended = storage.ending(len(trials))
        if trials.evaluated >= self.inputs.trials:
            return "trials"
        if len(trials) >= self.problem.space.valid:  # earlier releases did not write why a search ended
            return "exhausted"
        return "stalled" if ended == "stalled" else "interrupted"


def open_study(path: str | Path) -> Study:
    """Return the study in the directory *path*."""
    folder = Path(path)
    try:
        text = (folder / INPUTS).read_text(encoding="utf-8")
    except FileNotFoundError:
        if holds_trials(folder / TRIALS):
            raise StudyError(f"{folder}: has lost its {INPUTS}: 'cosmic doctor {folder}' restores it") from None
        raise SpecError("study", str(path), f"is no study: it has no {INPUTS}{_near(folder)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{folder / INPUTS}: cannot be read ({error}); try 'cosmic doctor {folder}'") from None
    return parse_study(folder, text)


def _near(folder: Path) -> str:
    """Return a suggestion of a study with a similar name, or inside *folder*; an empty text where there is none."""
    with suppress(OSError):
        inside = sorted(str(each.parent) for each in folder.glob(f"*/{INPUTS}"))
        beside = [str(each.parent) for each in folder.parent.glob(f"*/{INPUTS}")]
        return suggestion(str(folder), beside) or (f"; did you mean '{inside[-1]}'?" if inside else "")
    return ""


def parse_study(folder: Path, text: str) -> Study:
    """Return the study that the text of a `study.json` describes."""
    try:
        content = json.loads(text)
        written, given = content["format"], content["inputs"]
        tuples = {name: tuple(given[name]) for name in ("stacks", "objectives", "constraints")}
        study = Study(folder, Inputs(**given | tuples), content["written_by"], content["created"])
        whole = content["sha256"] == _digest(content)
    except (ValueError, KeyError, TypeError, RecursionError):
        written, whole = FORMAT, False
    if written != FORMAT:
        raise SpecError("study.format", written, f"this release reads format {FORMAT}")
    if not whole:
        rule = f"is not what was written: 'cosmic doctor {folder}' restores it from the trials"
        raise StudyError(f"{folder / INPUTS}: {rule}")
    return study


def render(inputs: Inputs, created: str = "") -> str:
    """Return the text of a `study.json`."""
    # Through JSON and back, so that a resumed search compares its inputs with exactly the same values.
    plain = json.loads(json.dumps(asdict(inputs)))
    content = {
        "format": FORMAT,
        "inputs": plain,
        "written_by": versions(),
        "created": created or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return json.dumps(content | {"sha256": _digest(content)}, indent=1, ensure_ascii=False) + "\n"


def versions() -> dict[str, str]:
    """Return the versions of all software that may change the last bit of a result."""
    return {
        "cosmic": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": platform.platform(),
        **{name: version(name) for name in LIBRARIES if _is_installed(name)},
    }


def _is_installed(name: str) -> bool:
    with suppress(PackageNotFoundError):
        return bool(version(name))
    return False


def _digest(content: Mapping[str, Any]) -> str:
    plain = {name: value for name, value in content.items() if name != "sha256"}
    return sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def keep_text(path: Path, text: str) -> None:
    """Write a file of a study atomically."""
    try:
        write_text(path, text)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise out_of_space(path) from None
        raise StudyError(f"{path}: cannot be written ({error.strerror})") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the write lock of a study; the operating system releases it however the process ends."""
    import fcntl  # noqa: PLC0415  not available on Windows, where studies can still be read

    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StudyError(f"{folder}: cannot be written ({error.strerror})") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 200).decode(errors="replace").strip() or "another process"
            raise StudyError(f"{folder}: {holder} is writing to this study; wait for it, or stop it first") from None
        with suppress(OSError):  # a full disk has no room for the name; the lock is held all the same
            os.ftruncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        os.close(handle)
