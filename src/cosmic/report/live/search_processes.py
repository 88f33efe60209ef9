"""Searches that the page started: each is a process of `cosmic search` that writes a study like any other.

Stopping one interrupts it, as Ctrl-C would: it writes its batch and can be resumed from here or from a shell. The
server knows only its process; everything else is in the study.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess  # the command is this package's own, and no shell reads it
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO

from cosmic.base.errors import require
from cosmic.base.files import write_text
from cosmic.report.live.request_checks import CONFLICT, Refusal
from cosmic.report.live.search_form import Wanted
from cosmic.report.live.study_paths import StudyRoot
from cosmic.search.search_inputs import Inputs
from cosmic.search.study.study import INPUTS, LOCK, TRIALS
from cosmic.search.study.trial_storage import holds_trials

MOST_SEARCHES = 3
"""Searches at once: a page should not take the whole machine."""
ENDING_SIGNALS = ((signal.SIGINT, 1.5), (signal.SIGTERM, 0.5), (signal.SIGKILL, 0.3))
"""The signals that end searches with the server, and how long each may take. A killed search loses its batch only."""
GOOD_STATUSES = (0, 1, 130, 143)
"""Exit statuses of `cosmic search` without an error: done, no feasible design, interrupted, terminated."""
SPACE_FILE = "space.json"
MOST_REMEMBERED = 200


@dataclass
class SearchProcess:
    """One process."""

    inputs: Inputs
    process: subprocess.Popen[bytes]
    said: IO[bytes]
    """Its standard error."""
    folder: Path
    stopped: bool = False
    failure: str | None = None


class SearchProcesses:
    """The searches of this server, by the names of their studies."""

    def __init__(self, root: StudyRoot, most: int = MOST_SEARCHES) -> None:
        self.root = root
        self.most = most
        self._searches: dict[str, SearchProcess] = {}
        self._lock = Lock()
        self._closed = False

    # --------------------------------------------------------------------------------------------- looking

    def names(self) -> list[str]:
        """Return the names of all studies that were started or resumed here."""
        return list(self._searches)

    def running(self) -> list[str]:
        """Return the names of the studies whose searches are running."""
        return [name for name in self.names() if self.is_running(name)]

    def is_running(self, name: str) -> bool:
        """Return whether a search of this server is running; the error of one that failed is kept."""
        search = self._searches.get(name)
        if search is None:
            return False
        if search.process.poll() is None:
            return True
        if not search.said.closed:
            with self._lock:
                _reap_search(search)
        return False

    def is_new(self, name: str) -> bool:
        """Return whether a search was started here and is running, or failed."""
        search = self._searches.get(name)
        return search is not None and (self.is_running(name) or search.failure is not None)

    def inputs(self, name: str) -> Inputs | None:
        """Return the inputs of a search that was started here."""
        search = self._searches.get(name)
        return search.inputs if search is not None and self.is_new(name) else None

    def failure(self, name: str) -> str | None:
        """Return why a search of this server failed, in a sentence; None if it did not."""
        search = self._searches.get(name)
        return None if search is None or self.is_running(name) else search.failure

    # -------------------------------------------------------------------------------------------- changing

    def start(self, wanted: Wanted) -> str:
        """Start a search in a new study; return the study's name."""
        with self._lock:
            self._check_room()
            folder = self.root.make(wanted.name)
            space = wanted.space
            if not isinstance(space, str):
                write_text(folder / SPACE_FILE, json.dumps(space, indent=1) + "\n")
                space = str(folder / SPACE_FILE)
            words = ["search", space, *search_arguments(wanted.inputs, folder)]
            self._searches[folder.name] = _spawn_search(words, wanted.inputs, folder)
            return folder.name

    def resume(self, name: str, inputs: Inputs, trials: int | None) -> None:
        """Continue a study that no process is writing."""
        folder = self.root.folder(name)
        wanted = inputs.trials if trials is None else trials
        rule = f"the study was started with {inputs.trials:,}: give as many or more"
        require(wanted >= inputs.trials, "trials", wanted, rule)
        with self._lock:
            before = self._searches.get(name)
            if before is not None and before.process.poll() is None:  # two requests at once: one process would be lost
                raise Refusal(CONFLICT, "study", name, "a search is writing to it already")
            self._check_room()
            if before is not None:
                _reap_search(before)
            words = ["search", "--resume", f"--out={folder}", f"--trials={wanted}", "--json"]
            self._searches[name] = _spawn_search(words, inputs, folder)

    def stop(self, name: str) -> None:
        """Interrupt a search; its study stays intact and can be resumed."""
        if not self.is_running(name):
            raise Refusal(CONFLICT, "study", name, "no search of this server is running there")
        search = self._searches[name]
        search.stopped = True
        search.process.send_signal(signal.SIGINT)

    def interrupt(self) -> None:
        """Interrupt all searches, and start no more; takes no lock, as a signal may have come while one is held."""
        self._closed = True
        self._send(signal.SIGINT, self._alive())

    def close(self) -> None:
        """End all searches: interrupt them, and after a while kill those that do not end."""
        with self._lock:
            self._closed = True
        for ending, patience in ENDING_SIGNALS:
            running = self._alive()
            again = ending != signal.SIGINT  # a second interrupt would end it before it has written its batch
            self._send(ending, [each for each in running if again or not each.stopped])
            ends = time.monotonic() + patience
            for search in running:
                with suppress(subprocess.TimeoutExpired):
                    search.process.wait(max(0.0, ends - time.monotonic()))
        for name in self.names():
            self.is_running(name)  # closes its standard error

    def kill(self) -> None:
        """End all searches at once, with the processes that they have started."""
        self._closed = True
        self._send(signal.SIGKILL, self._alive())

    def _alive(self) -> list[SearchProcess]:
        return [search for search in list(self._searches.values()) if search.process.poll() is None]

    @staticmethod
    def _send(ending: signal.Signals, searches: list[SearchProcess]) -> None:
        for search in searches:
            search.stopped = True
            with suppress(OSError):  # it has just ended
                if ending == signal.SIGKILL:
                    os.killpg(search.process.pid, ending)  # each search leads a group of its own
                else:
                    search.process.send_signal(ending)

    def _check_room(self) -> None:
        if self._closed:
            raise Refusal(CONFLICT, "searches", len(self._searches), "the server is ending")
        busy = [name for name, search in self._searches.items() if search.process.poll() is None]
        if len(busy) >= self.most:
            raise Refusal(CONFLICT, "searches", len(busy), f"{self.most} run already: stop one, or wait for one to end")
        for name in [name for name in self._searches if name not in busy][
            : max(0, len(self._searches) - MOST_REMEMBERED)
        ]:
            _reap_search(self._searches.pop(name))


def search_arguments(inputs: Inputs, folder: Path) -> list[str]:
    """Return the options of `cosmic search` for *inputs*; each is one word, so that no value can become an option."""
    return [
        f"--out={folder}",
        f"--agent={inputs.agent}",
        f"--trials={inputs.trials}",
        f"--seed={inputs.seed}",
        f"--engine={inputs.engine}",
        *(f"--objective={name}" for name in inputs.objectives),
        *(f"--constraint={constraint}" for constraint in inputs.constraints),
        *(f"--setting={name}={json.dumps(value)}" for name, value in inputs.settings.items()),
        *([f"--stacks={','.join(inputs.stacks)}"] if inputs.stacks else []),
        "--json",
    ]


def _spawn_search(words: list[str], inputs: Inputs, folder: Path) -> SearchProcess:
    errors = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the process may write
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "cosmic", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,  # Ctrl-C in the terminal reaches the server only, which interrupts its searches
        env={**os.environ, "NO_COLOR": "1"},
    )
    return SearchProcess(inputs, process, errors, folder)


def _reap_search(search: SearchProcess) -> None:
    """Keep the last error line of a failed search; remove the folder of one that ended before it wrote a trial."""
    if search.said.closed:
        return
    status = search.process.wait()
    search.said.seek(max(0, search.said.seek(0, os.SEEK_END) - 4096))
    lines = search.said.read().decode(errors="replace").strip().splitlines()
    search.said.close()
    crashed = any(line.startswith("Traceback ") for line in lines)  # its status is 1, as without a feasible design
    if (status not in GOOD_STATUSES or crashed) and not search.stopped:
        search.failure = lines[-1] if lines else f"the search ended with status {status}"
    if not (search.folder / INPUTS).exists() and not holds_trials(search.folder / TRIALS):
        for name in (SPACE_FILE, LOCK, TRIALS, f"{TRIALS}-wal", f"{TRIALS}-shm"):
            with suppress(OSError):
                (search.folder / name).unlink()
        with suppress(OSError):
            search.folder.rmdir()
