"""Children, forked from a parent that has imported everything: each runs one trial in a folder of its own."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from cosmic.cli.dispatch import main

from .trial import Trial

CPU_S = 20
WALL_S = 60.0
MEMORY_BYTES = 3 * 2**30
"""What a child may map beside what it has from its parent; more than it may use, so that use is measured."""
LARGEST_FILE_BYTES = 2**30
PROCESSES = 24
DISK_BYTES = 2 * 2**30
LATE_S = 3.0
"""How long a command may take to end after Ctrl-C."""
READ_BYTES = 16 * 2**20
WATCH_S = 0.5
GRACE_S = 1.0
NO_TRIAL, UNMADE = 99, "none"
"""Exit status of a child whose generator failed, and the kind of its trial."""
Make = Callable[[int, Path], Trial]


@dataclass
class Outcome:
    """What came of a trial."""

    trial: Trial
    status: int
    """The exit status; minus the number of the signal that ended it."""
    cpu_s: float
    rss_bytes: int
    wall_s: float
    stdout: bytes
    stderr: bytes
    stuck: str = ""
    """Where it was when its time was up."""
    killed: str = ""
    """Why the parent ended it."""
    late_s: float | None = None
    """How long it went on after Ctrl-C."""
    left: tuple[str, ...] = ()
    """What it should have removed: temporary files, processes."""


@dataclass
class _Running:
    number: int
    root: Path
    ready: IO[bytes]
    began: float
    trial: Trial | None = None
    interrupt_at: float | None = None
    interrupted: float | None = None
    killed: str = ""
    kill_at: float | None = None
    watch_at: float = 0.0
    said: bytes = field(default=b"")


class Server:
    """Runs trials, several at once."""

    def __init__(self, make: Make, folder: Path, workers: int = 2, keep: bool = False) -> None:
        self._make, self._folder, self._workers, self._keep = make, folder, workers, keep
        self._running: dict[int, _Running] = {}
        self._selector = selectors.DefaultSelector()
        self._silence = os.pipe()  # nobody ever writes to it

    def run(self, numbers: Iterable[int]) -> Iterator[Outcome]:
        """Yield what comes of each trial, in the order in which they end."""
        waiting = iter(numbers)
        more = True
        gc.freeze()  # or a child that collects garbage would copy the memory of its parent
        try:
            while more or self._running:
                while more and len(self._running) < self._workers:
                    number = next(waiting, None)
                    more = number is not None
                    if number is not None:
                        self._start(number)
                yield from self._ended()
        finally:
            self._close()

    def _close(self) -> None:
        """End what still runs."""
        gc.unfreeze()
        for child in self._running:
            _kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self._selector.close()
        for handle in self._silence:
            os.close(handle)

    # ------------------------------------------------------------------------------------------------ parent

    def _start(self, number: int) -> None:
        root = Path(tempfile.mkdtemp(prefix=f"{number}-", dir=self._folder))
        ours, theirs = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if not child:
            try:
                os.close(ours)
                _live(self._make, number, root, theirs, self._silence[0])
            finally:
                os._exit(NO_TRIAL)
        os.close(theirs)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(child, child)
        running = _Running(number, root, os.fdopen(ours, "rb", buffering=0), time.monotonic())
        self._running[child] = running
        self._selector.register(os.pidfd_open(child), selectors.EVENT_READ, ("ended", child))
        self._selector.register(running.ready, selectors.EVENT_READ, ("ready", child))

    def _ended(self) -> Iterator[Outcome]:
        """Wait for something to happen; yield the trials that ended."""
        for key, _ in self._selector.select(self._patience()):
            what, child = key.data
            if what == "ready":
                if child in self._running:  # or it has ended, and was heard to the end
                    self._hear(child)
            else:
                self._selector.unregister(key.fileobj)
                os.close(key.fd)
                yield self._collect(child)
        for child in list(self._running):
            self._watch(child, self._running[child])

    def _patience(self) -> float:
        now = time.monotonic()
        times = [each for one in self._running.values() for each in (one.interrupt_at, one.kill_at) if each]
        return max(0.0, min([now + WATCH_S, *times]) - now)

    def _hear(self, child: int) -> None:
        """Read what a child says of its trial."""
        running = self._running[child]
        some = running.ready.read(65536)
        if some:
            running.said += some
            return
        self._selector.unregister(running.ready)
        running.ready.close()
        if running.said.endswith(b"\n"):
            running.trial = Trial.from_json(running.said.decode())
            running.began = time.monotonic()
            delay = running.trial.interrupt_s
            running.interrupt_at = None if delay is None else running.began + delay

    def _watch(self, child: int, running: _Running) -> None:
        """Interrupt a child whose time it is; end one that takes too long or too much."""
        now = time.monotonic()
        if running.interrupt_at is not None and now >= running.interrupt_at:
            running.interrupt_at, running.interrupted = None, now
            _kill(child, signal.SIGINT)
        if running.kill_at is not None and now >= running.kill_at:
            _kill(child, signal.SIGKILL)
        elif running.kill_at is None and now >= running.watch_at:
            running.watch_at = now + WATCH_S
            running.killed = self._verdict(child, running, now)
            if running.killed:
                running.kill_at = now + GRACE_S
                _kill(child, signal.SIGXCPU)  # it writes where it is

    def _verdict(self, child: int, running: _Running, now: float) -> str:
        """Return why a child must end; empty if it may go on."""
        if running.interrupted is not None and now > running.interrupted + LATE_S * _load():
            return "goes on after Ctrl-C"
        if now > running.began + WALL_S * _load():
            return "hangs"
        if now < running.began + WATCH_S:
            return ""
        group = _group(child)
        if len(group) > PROCESSES:
            return "starts many processes"
        if sum(rss for _, rss in group) > 2 * MEMORY_BYTES:
            return "takes much memory"
        if _size(running.root) > DISK_BYTES:
            return "writes much"
        return ""

    def _collect(self, child: int) -> Outcome:
        _, status, usage = os.wait4(child, 0)
        ended = time.monotonic()
        if not self._running[child].ready.closed:
            self._drain(child)
        running = self._running.pop(child)
        if running.trial is None:  # its generator failed, which its standard error says
            running.trial = Trial(running.number, UNMADE, ())
        left = (*_processes(child), *(() if running.killed else _temporary(running.root)))
        found = Outcome(
            running.trial,
            os.waitstatus_to_exitcode(status),
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss * 1024,
            ended - running.began,
            _read(running.root / "stdout"),
            _read(running.root / "stderr"),
            _tail(running.root / "stuck"),
            running.killed,
            None if running.interrupted is None else ended - running.interrupted,
            left,
        )
        if not self._keep:
            shutil.rmtree(running.root, ignore_errors=True)
        return found

    def _drain(self, child: int) -> None:
        """Read the rest of what an ended child has said."""
        while not self._running[child].ready.closed:
            self._hear(child)


def _load() -> float:
    """Return how much slower a busy machine is."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _kill(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _group(group: int) -> list[tuple[int, int]]:
    """Return the processes of a group with the memory of each."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] != "Z":
                    found.append((int(entry.name), int(fields[21]) * resource.getpagesize()))
    return found


def _processes(group: int) -> list[str]:
    """Return a word for processes that outlive their command, and end them."""
    for _ in range(20):
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return []
        if not _group(group):
            return []
        time.sleep(0.05)
    _kill(group, signal.SIGKILL)
    return ["a process"]


def _size(folder: Path) -> int:
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(where, name)).st_blocks * 512
    return total


def _temporary(root: Path) -> list[str]:
    """Return the files that an ended command should have removed or renamed."""
    found = [f"{place}/{each.name}" for place in ("tmp", "home") for each in (root / place).iterdir()]
    for where, _, names in os.walk(root / "work"):
        for name in names:
            parts = name.rsplit(".", 1)
            if name.startswith(".") and len(parts[1]) == 12 and set(parts[1]) <= set("0123456789abcdef"):
                found.append(os.path.relpath(os.path.join(where, name), root))
    return found


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(READ_BYTES)


def _tail(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")[-20_000:] if path.exists() else ""


# ---- children


def _live(make: Make, number: int, root: Path, ready: int, silence: int) -> None:
    """Make a trial and run it: the life of a child, which never returns."""
    os.setpgid(0, 0)
    for name in ("work", "tmp", "home"):
        (root / name).mkdir()
    for name, stream in (("stdout", 1), ("stderr", 2)):
        handle = os.open(root / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(handle, stream)
        os.close(handle)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "wb", closefd=False), "utf-8", "backslashreplace", write_through=True)
    os.chdir(root / "work")
    try:
        trial = make(number, root / "work")
    except BaseException:
        traceback.print_exc()
        os._exit(NO_TRIAL)
    _confine(root)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _streams(trial, silence)
    os.write(ready, trial.to_json().encode() + b"\n")
    os.close(ready)
    os._exit(_status(trial.words))


def _confine(root: Path) -> None:
    """Limit what this process takes, and set where it keeps temporary files."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 2))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE_BYTES, LARGEST_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stuck = (root / "stuck").open("w")
    faulthandler.register(signal.SIGXCPU, file=stuck, all_threads=False, chain=True)
    _KEPT.append(stuck)
    os.environ |= {"TMPDIR": str(root / "tmp"), "HOME": str(root / "home"), "BROWSER": "true", "COLUMNS": "100"}
    os.environ["COSMIC_CACHE"] = str(root.parent / "cache")  # of all trials: what one keeps, others find
    tempfile.tempdir = None
    bare = types.ModuleType("__main__")  # workers would import the fuzzer
    sys.modules["__main__"], sys.argv = bare, ["cosmic"]


_KEPT: list[Any] = []  # a file that is collected is closed


def _streams(trial: Trial, silence: int) -> None:
    """Give this process the standard streams of its trial."""
    if trial.stdin == "closed":
        os.close(0)
        sys.stdin = None
    else:
        os.dup2(silence if trial.stdin == "silent" else os.open(os.devnull, os.O_RDONLY), 0)
    raw_errors = io.FileIO(2, "wb", closefd=False)
    sys.stderr = io.TextIOWrapper(raw_errors, trial.encoding, "backslashreplace", write_through=True)
    if trial.stdout == "closed":
        os.close(1)
        sys.stdout = None
        return
    if trial.stdout == "gone":
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
    elif trial.stdout == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    raw = io.BufferedWriter(io.FileIO(1, "wb", closefd=False))
    sys.stdout = io.TextIOWrapper(raw, trial.encoding, "strict")


def _status(words: tuple[str, ...]) -> int:
    """Run the command as Python would, and return its exit status."""
    status = 0
    try:
        main(words)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        traceback.print_exc()
        status = 130
    except BaseException:
        traceback.print_exc()
        status = 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        traceback.print_exc()
        status = 120
    return status
