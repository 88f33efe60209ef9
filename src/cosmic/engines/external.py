"""Engines that are programs: a point goes in as JSON on standard input, its metrics come out as JSON.

    in     {"engine": "mysim", "fields": {"workload.tp": 8, …}, "design": {…}}
    out    {"metrics": {"step_s": 1.5}}   or   {"infeasible": ["why"]}

`fields` has every field by its path, in SI units; `design`, of engines that take designs, is what a design file holds.
A program that takes too long, ends with another status than 0 or prints something else has failed: its point has a
reason, and the study goes on. Each run is a process group of its own, which is killed with all that it started.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Literal, NoReturn

from cosmic.design.own import Fields
from cosmic.design.point import DesignPoint, to_tree
from cosmic.engines.engine import Engine, EngineFailure, register
from cosmic.errors import one_line, require
from cosmic.metrics import Infeasible

MOST_OUTPUT = 2**20
"""Most bytes that a program may print on either stream; of errors, the last are kept."""
SHOWN = 160
"""Characters of what a program printed that a reason quotes."""
DEATH_SIGNAL = 1
"""Linux: PR_SET_PDEATHSIG."""


def external(
    name: str,
    command: Sequence[str | Path],
    *,
    version: str,
    metrics: Mapping[str, Literal["less", "more"]],
    fields: type[Fields] | None = None,
    timeout_s: float = 600.0,
) -> None:
    """Register a program as an engine: *command* is run for each point, and killed after *timeout_s*."""
    words = [str(word) for word in command]
    known = bool(words) and not isinstance(command, str) and not any("\0" in word for word in words)
    require(known, f"engine {name} command", command, "give a program and its arguments, a list of texts")
    require(0 < timeout_s < 1e7, f"engine {name} timeout_s", timeout_s, "must be a number of seconds above 0")

    def run(point: Any) -> Mapping[str, float] | Infeasible:
        return _answer(_output(words, json.dumps(_question(name, point)).encode(), timeout_s))

    run.__doc__ = one_line(f"Runs {shlex.join(words)}")[:SHOWN]
    sources = tuple(word for word in words if word != sys.executable and os.path.isfile(word))
    named = [os.path.basename(word) if word in (*sources, sys.executable) else word for word in words]
    settings = {"command": named, "timeout_s": timeout_s}  # by their content, wherever they lie
    register(Engine(name, version, dict(metrics), run, fields, settings, sources))


def _question(name: str, point: Any) -> dict[str, Any]:
    found = {"engine": name, "fields": dict(point.fields)}
    return found | ({"design": to_tree(point)} if isinstance(point, DesignPoint) else {})


def _answer(output: bytes) -> Mapping[str, float] | Infeasible:
    try:
        found = json.loads(output)
    except (ValueError, RecursionError):
        raise EngineFailure(f"printed no JSON: {_quoted(output)}") from None
    kind = next(iter(found)) if isinstance(found, dict) and len(found) == 1 else ""
    if kind == "metrics" and isinstance(found[kind], dict):
        return dict(found[kind])
    if kind == "infeasible" and isinstance(found[kind], list):
        return Infeasible(tuple(str(each) for each in found[kind]))
    raise EngineFailure(f'printed other JSON than {{"metrics": {{…}}}} or {{"infeasible": […]}}: {_quoted(output)}')


def _quoted(output: bytes) -> str:
    text = one_line(output.decode(errors="replace").strip())
    return (text if len(text) <= SHOWN else f"…{text[-SHOWN:]}") or "nothing"


# ----------------------------------------------------------------------------------------------- the process


def _output(command: list[str], question: bytes, timeout_s: float) -> bytes:
    """Return what *command* prints; whatever goes wrong is an `EngineFailure`."""
    try:
        with _killed_at_the_end(command) as process:
            printed, errors = _exchange(process, question, time.monotonic() + timeout_s)
            status = process.wait()
    except TimeoutError:
        raise EngineFailure(f"took longer than {timeout_s:g} s") from None
    except OSError as error:
        raise EngineFailure(f"{command[0]} cannot be run: {error.strerror}") from None
    if status < 0:
        raise EngineFailure(f"was killed by {signal.Signals(-status).name}: {_quoted(errors)}")
    if status:
        raise EngineFailure(f"ended with status {status}: {_quoted(errors)}")
    return printed


@contextmanager
def _killed_at_the_end(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run *command* in a group of its own; all that is left of the group at the end is killed, however this ends.

    A worker that is told to end (SIGTERM) kills it, too. Of one that cannot any more, Linux kills the program itself.
    """
    pipe = subprocess.PIPE
    prepare = _prepare(os.getpid())  # takes no lock that another thread could hold
    process = subprocess.Popen(
        command,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509
    )

    def end(*_: object) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    try:
        with _on_termination(end):
            yield process
    finally:
        end()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        process.wait()


@contextmanager
def _on_termination(end: Callable[[], None]) -> Iterator[None]:
    """Call *end* before SIGTERM ends this process; where the program handles it itself, that is left to it."""
    ours = current_thread() is main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not ours:
        yield
        return

    def terminate(number: int, _: FrameType | None) -> NoReturn:
        end()
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _prepare(parent: int) -> Callable[[], None]:
    """Return what a new process does first: it hears Ctrl-C, which workers ignore, and ends with its parent."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if library is not None:
            library.prctl(DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() != parent:  # it died before that
                os._exit(1)

    return prepare


def _exchange(process: subprocess.Popen[bytes], question: bytes, until: float) -> tuple[bytes, bytes]:
    """Return what a program prints, and its errors, after it was given *question*."""
    left, kept = memoryview(question), {"out": bytearray(), "err": bytearray()}
    with selectors.DefaultSelector() as selector:
        for pipe, what in ((process.stdin, "in"), (process.stdout, "out"), (process.stderr, "err")):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_WRITE if what == "in" else selectors.EVENT_READ, what)
        while selector.get_map():
            ready = selector.select(max(0.0, until - time.monotonic()))
            if not ready and time.monotonic() >= until:
                raise TimeoutError
            for key, _ in ready:
                stream: Any = key.fileobj
                if key.data == "in":
                    left, done = _write(stream, left)
                else:
                    done = _read(stream, kept[key.data], key.data)
                if done:
                    selector.unregister(stream)
                    stream.close()
    while process.poll() is None:  # it has closed its streams, and goes on
        if time.monotonic() >= until:
            raise TimeoutError
        time.sleep(0.005)
    return bytes(kept["out"]), bytes(kept["err"])


def _write(stream: Any, left: memoryview) -> tuple[memoryview, bool]:
    """Return what is left to write, and whether that is nothing; a program need not read its input."""
    try:
        left = left[os.write(stream.fileno(), left) :]
    except BrokenPipeError:
        return left, True
    return left, not left


def _read(stream: Any, kept: bytearray, what: str) -> bool:
    """Add what a program has printed, and return whether that was all."""
    some = os.read(stream.fileno(), 2**16)
    kept += some
    if len(kept) > MOST_OUTPUT and what == "out":
        raise EngineFailure(f"printed more than {MOST_OUTPUT // 2**20} MiB")
    del kept[:-MOST_OUTPUT]
    return not some
