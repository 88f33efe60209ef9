"""Engines that users bring: functions or programs that evaluate designs, or points of fields of their own.

An engine is a function from a design, or from a choice of its own fields, to metrics. COSMIC does not trust it: an
answer is checked, an exception is a reason, and a study goes on. A module that registers an engine is found by an entry
point of the group `cosmic.engines`, or in a folder of `COSMIC_PATH` as ``engines/*.py``. Whatever searches, keeps,
replays or reports with COSMIC's engines does so with these.

>>> @engine("_square", version="1", metrics={"area_mm2": "less"})
... def square(design):
...     '''A doctest.'''
...     return {"area_mm2": design["side"] ** 2}
>>> engines["_square"].ask({"side": 3})
EngineAnswer(metrics={'area_mm2': 9.0}, reasons=(), failed=False)
>>> engines["_square"].ask({}).reasons
("engine failed: KeyError: 'side'",)

An engine may be a program (`external`): a point goes in as JSON on standard input, its metrics come out as JSON.

    in     {"engine": "mysim", "fields": {"workload.tp": 8, …}, "design": {…}}
    out    {"metrics": {"step_s": 1.5}}   or   {"infeasible": ["why"]}

`fields` has every field by its path, in SI units; `design`, of engines that take designs, is what a design file holds.
A program that takes too long, ends with another status than 0 or prints something else has failed: its point has a
reason, and the study goes on. Each run is a process group of its own, which is killed with all that it started.

A choice of an engine's own fields is read from a file with ``engine: NAME`` and ``fields:`` (`read_own_point`).
"""

from __future__ import annotations

import copyreg
import ctypes
import inspect
import json
import os
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Literal, NoReturn, TypeVar

from cosmic.base.caching import digest
from cosmic.base.errors import SpecError, UnknownName, as_key, check_text, describe_error, one_line, require
from cosmic.base.files import is_file
from cosmic.base.registry import Registry
from cosmic.design import catalog_entries, schema
from cosmic.design.design_point import DesignPoint, EngineFields, design_to_tree
from cosmic.simulate.metrics import BETTER, Infeasible

# ---- What an engine is, the registry of those that others bring, and what is made of their answers

F = TypeVar("F", bound=Callable[[Any], Any])
BUILT_IN = ("analytic", "event")
"""COSMIC's own engines (`cosmic.evaluation`)."""
TAKEN_NAMES = (*BUILT_IN, "ray")
LEAST_METRIC, MOST_METRIC = 1e-150, 1e150
"""A metric is 0 or between these, as those of COSMIC are: ratios and squares of it are numbers."""
LONGEST_REASON = 300
MOST_REASONS = 10
MOST_METRICS = 100
FAILED_REASON = "engine failed"
"""Begins the reason of a point that an engine gave no proper answer for."""


class EngineFailure(Exception):  # noqa: N818  the word that reasons have
    """An engine has no answer: its message is the reason."""


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """What an engine says of one point: metrics, or why it has none."""

    metrics: Mapping[str, float]
    """A number for each metric that is known."""
    reasons: tuple[str, ...] = ()
    """Why the point cannot run, or why the engine failed; none for a point that runs."""
    failed: bool = False


@dataclass(frozen=True)
class UserEngine:
    """An engine: its metrics, and the function that gives them."""

    name: str
    version: str
    metrics: Mapping[str, Literal["less", "more"]]
    """Each metric that it gives, and which way it is better. The first is the usual objective."""
    function: Callable[[Any], Mapping[str, float] | Infeasible]
    fields: type[EngineFields] | None = None
    """Its own fields; None for an engine that takes designs."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What else changes its answers, such as the command that it runs."""
    sources: tuple[str, ...] | None = None
    """The files that it is made of, as far as they are known; None for the one that its function is in."""

    def __post_init__(self) -> None:
        require(self.name not in TAKEN_NAMES, "engine", self.name, "is the name of an engine of COSMIC")
        check_text(self.version, f"engine {self.name} version")
        where = f"engine {self.name}"
        require(0 < len(self.metrics) <= MOST_METRICS, where, len(self.metrics), f"give 1 to {MOST_METRICS} metrics")
        for name, better in self.metrics.items():
            require(isinstance(name, str) and name.isidentifier(), where, name, "a metric is a word, such as latency_s")
            require(better in ("less", "more"), f"{where} {name}", better, "say which is better: less or more")
            metrics_of_engines = {"": BETTER} | {
                user_engine.name: user_engine.metrics
                for user_engine in _registered_engines()
                if user_engine.name != self.name
            }
            for engine_name, metrics in metrics_of_engines.items():
                rule = f"{engine_name or 'COSMIC'} has a metric of that name, of which {metrics.get(name)} is better: rename it"
                require(metrics.get(name, better) == better, f"{where} {name}", better, rule)
        _check_fields(self)

    @property
    def __doc__(self) -> str:  # type: ignore[override]  # what `cosmic catalog list` prints
        """The docstring of its function."""
        return inspect.getdoc(self.function) or ""

    @cached_property
    def identity(self) -> str:
        """Version and a digest of what is known of the engine: studies keep it, so that a replay knows it.

        The digest has the source file of its function, or the files that its command names, as versions are forgotten.
        What else a program is made of, nobody can tell: there the version counts.
        """
        own = (
            {} if self.fields is None else {key: str(slot.hint) for key, slot in schema.slots_of(self.fields()).items()}
        )
        about = [
            self.name,
            self.version,
            dict(self.metrics),
            own,
            {key: str(setting) for key, setting in self.settings.items()},
        ]
        files = [inspect.getsourcefile(inspect.unwrap(self.function))] if self.sources is None else self.sources
        return f"{self.version} ({digest(json.dumps(about), *map(_read_source, files))[:12]})"

    def ask(self, point: Any) -> EngineAnswer:
        """Return the answer for a design, or for a choice of the engine's own fields; only Ctrl-C is raised."""
        try:
            with redirect_stdout(sys.stderr):  # what a plugin prints is no result
                answer = self.function(point)
            return self._checked(answer)
        except EngineFailure as error:
            return EngineAnswer({}, (_shorten_reason(f"{FAILED_REASON}: {error}"),), failed=True)
        except (Exception, SystemExit) as error:
            return EngineAnswer({}, (_shorten_reason(f"{FAILED_REASON}: {describe_error(error)}"),), failed=True)

    def _checked(self, answer: Any) -> EngineAnswer:
        if isinstance(answer, Infeasible):
            reasons = tuple(_shorten_reason(reason) for reason in answer.reasons[:MOST_REASONS])
            return EngineAnswer({}, reasons or ("cannot run",))
        if not isinstance(answer, Mapping):
            raise EngineFailure(f"returned {type(answer).__name__}, not metrics by name or Infeasible")
        for name in answer:
            if name not in self.metrics:
                raise EngineFailure(f"returned {name!r}, which is none of its metrics: {' '.join(self.metrics)}")
        return EngineAnswer({name: _check_number(name, value) for name, value in answer.items() if value is not None})


def _check_number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, bool | str) or not (number == 0 or LEAST_METRIC <= number <= MOST_METRIC):
        raise EngineFailure(
            f"returned {name} = {value!r}; a metric is 0 or a number from {LEAST_METRIC:g} to {MOST_METRIC:g}"
        )
    return number


def _shorten_reason(text: object) -> str:
    """Return a reason on one line; commas separate reasons, so it has none."""
    reason = one_line(str(text)).replace(", ", "; ").strip()
    return reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1]}…"


def _read_source(path: str | None) -> bytes:
    try:
        return Path(path or "").read_bytes()
    except OSError:
        return b""


# ---- the registry

engines: Registry[UserEngine] = Registry("engine", group="cosmic.engines", members=("ask", "metrics", "version"))
"""Engines that others bring, by name."""


def engine(
    name: str, *, version: str, metrics: Mapping[str, Literal["less", "more"]], fields: type[EngineFields] | None = None
) -> Callable[[F], F]:
    """Return a decorator that registers a function as an engine.

    It takes a `DesignPoint`, or one of its own *fields*, and returns a number for each of its *metrics*, in SI units,
    or `Infeasible` with reasons. Metrics that it leaves out are unknown.
    """

    def add(function: F) -> F:
        register_engine(UserEngine(name, version, dict(metrics), function, fields))
        return function

    return add


def register_engine(user_engine: UserEngine) -> None:
    """Add an engine. Workers, which do not know the module of its fields yet, get those by the engine's name."""
    engines.register(user_engine.name)(user_engine)
    if user_engine.fields is not None:
        copyreg.pickle(user_engine.fields, lambda point: (_restore_fields, (user_engine.name, point.__getstate__())))


def _restore_fields(name: str, held: Mapping[str, Any]) -> EngineFields:
    kind = engines[name].fields
    if kind is None:
        raise SpecError("engine", name, "has no fields of its own any more")
    return kind(**held)


def _check_fields(user_engine: UserEngine) -> None:
    if user_engine.fields is None:
        return
    where = f"engine {user_engine.name} fields"
    is_fields = (
        isinstance(user_engine.fields, type)
        and issubclass(user_engine.fields, EngineFields)
        and is_dataclass(user_engine.fields)
    )
    require(
        is_fields,
        where,
        user_engine.fields,
        "must be a frozen dataclass that derives from cosmic.simulate.user_engines.EngineFields",
    )
    for member in fields(user_engine.fields):
        has_default = member.default is not MISSING or member.default_factory is not MISSING
        require(has_default, where, member.name, "needs a default: searches are compared with a base")
    for key in schema.slots_of(user_engine.fields()):
        require(key not in user_engine.metrics, where, key, "is one of its metrics too: rename one")


def _registered_engines() -> list[UserEngine]:
    return [engines[name] for name in engines]


def engine_of(name: str) -> UserEngine | None:
    """Return the engine *name* of somebody else; None for COSMIC's own. An unknown one raises `UnknownName`."""
    if name in BUILT_IN:
        return None
    if name not in engines and name not in engines.broken:
        raise UnknownName.among("engine", name, "engine", (*BUILT_IN, *engines))
    return engines[name]


def metrics_of(name: str) -> Mapping[str, str]:
    """Return the metrics that the engine *name* gives, each with the way in which it is better."""
    user_engine = engine_of(name)
    return BETTER if user_engine is None else user_engine.metrics


def identity_of(name: str) -> str:
    """Return the version and digest of an engine of somebody else; empty for COSMIC's own, whose version is its own."""
    user_engine = engine_of(name)
    return "" if user_engine is None else user_engine.identity


def direction(metric: str) -> str:
    """Return which way a metric is better, of COSMIC's engines or of any other: ``less`` or ``more``."""
    if metric in BETTER:
        return BETTER[metric]
    for user_engine in _registered_engines():
        if metric in user_engine.metrics:
            return user_engine.metrics[metric]
    raise SpecError("metric", metric, "no engine gives it")


# ---- Engines that are programs: a point goes in as JSON on standard input, its metrics come out as JSON

MOST_OUTPUT = 2**20
"""Most bytes that a program may print on either stream; of errors, the last are kept."""
MOST_QUOTED = 160
"""Characters of what a program printed that a reason quotes."""
DEATH_SIGNAL = 1
"""Linux: PR_SET_PDEATHSIG."""


def external(
    name: str,
    command: Sequence[str | Path],
    *,
    version: str,
    metrics: Mapping[str, Literal["less", "more"]],
    fields: type[EngineFields] | None = None,
    timeout_s: float = 600.0,
) -> None:
    """Register a program as an engine: *command* is run for each point, and killed after *timeout_s*."""
    words = [str(word) for word in command]
    is_command = bool(words) and not isinstance(command, str) and not any("\0" in word for word in words)
    require(is_command, f"engine {name} command", command, "give a program and its arguments, a list of texts")
    require(0 < timeout_s < 1e7, f"engine {name} timeout_s", timeout_s, "must be a number of seconds above 0")

    def run(point: Any) -> Mapping[str, float] | Infeasible:
        question = {"engine": name, "fields": dict(point.fields)}
        if isinstance(point, DesignPoint):
            question["design"] = design_to_tree(point)
        return _read_answer(_run_program(words, json.dumps(question).encode(), timeout_s))

    run.__doc__ = one_line(f"Runs {shlex.join(words)}")[:MOST_QUOTED]
    sources = tuple(word for word in words if word != sys.executable and os.path.isfile(word))
    named = [os.path.basename(word) if word in (*sources, sys.executable) else word for word in words]
    settings = {"command": named, "timeout_s": timeout_s}  # by their content, wherever they lie
    register_engine(UserEngine(name, version, dict(metrics), run, fields, settings, sources))


def _read_answer(output: bytes) -> Mapping[str, float] | Infeasible:
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        raise EngineFailure(f"printed no JSON: {_quote_output(output)}") from None
    kind = next(iter(answer)) if isinstance(answer, dict) and len(answer) == 1 else ""
    if kind == "metrics" and isinstance(answer[kind], dict):
        return dict(answer[kind])
    if kind == "infeasible" and isinstance(answer[kind], list):
        return Infeasible(tuple(str(reason) for reason in answer[kind]))
    raise EngineFailure(
        f'printed other JSON than {{"metrics": {{…}}}} or {{"infeasible": […]}}: {_quote_output(output)}'
    )


def _quote_output(output: bytes) -> str:
    text = one_line(output.decode(errors="replace").strip())
    return (text if len(text) <= MOST_QUOTED else f"…{text[-MOST_QUOTED:]}") or "nothing"


# ---- the process


def _run_program(command: list[str], question: bytes, timeout_s: float) -> bytes:
    """Return the output of *command*; whatever goes wrong is an `EngineFailure`."""
    try:
        with _kill_at_the_end(command) as process:
            printed, errors = _exchange_streams(process, question, time.monotonic() + timeout_s)
            status = process.wait()
    except TimeoutError:
        raise EngineFailure(f"took longer than {timeout_s:g} s") from None
    except OSError as error:
        raise EngineFailure(f"{command[0]} cannot be run: {error.strerror}") from None
    if status < 0:
        raise EngineFailure(f"was killed by {signal.Signals(-status).name}: {_quote_output(errors)}")
    if status:
        raise EngineFailure(f"ended with status {status}: {_quote_output(errors)}")
    return printed


@contextmanager
def _kill_at_the_end(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run *command* in a group of its own; all that is left of the group at the end is killed, however this ends.

    A worker that is told to end (SIGTERM) kills it, too. Of one that cannot any more, Linux kills the program itself.
    """
    pipe = subprocess.PIPE
    prepare = _prepare_child(os.getpid())  # takes no lock that another thread could hold
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
        with _kill_on_termination(end):
            yield process
    finally:
        end()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        process.wait()


@contextmanager
def _kill_on_termination(end: Callable[[], None]) -> Iterator[None]:
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


def _prepare_child(parent: int) -> Callable[[], None]:
    """Return the function that a new process runs first, so that it hears Ctrl-C and ends with its parent."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if library is not None:
            library.prctl(DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() != parent:  # it died before that
                os._exit(1)

    return prepare


def _exchange_streams(process: subprocess.Popen[bytes], question: bytes, until: float) -> tuple[bytes, bytes]:
    """Return the output of a program, and its errors, after it has read *question*."""
    unsent, printed = memoryview(question), {"out": bytearray(), "err": bytearray()}
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
                    unsent, done = _write_input(stream, unsent)
                else:
                    done = _read_outputs(stream, printed[key.data], key.data)
                if done:
                    selector.unregister(stream)
                    stream.close()
    while process.poll() is None:  # it has closed its streams, and goes on
        if time.monotonic() >= until:
            raise TimeoutError
        time.sleep(0.005)
    return bytes(printed["out"]), bytes(printed["err"])


def _write_input(stream: Any, unsent: memoryview) -> tuple[memoryview, bool]:
    """Return the unsent rest, and whether there is none; a program need not read its input."""
    try:
        unsent = unsent[os.write(stream.fileno(), unsent) :]
    except BrokenPipeError:
        return unsent, True
    return unsent, not unsent


def _read_outputs(stream: Any, printed: bytearray, stream_name: str) -> bool:
    """Add what a program has printed, and return whether that was all."""
    some = os.read(stream.fileno(), 2**16)
    printed += some
    if len(printed) > MOST_OUTPUT and stream_name == "out":
        raise EngineFailure(f"printed more than {MOST_OUTPUT // 2**20} MiB")
    del printed[:-MOST_OUTPUT]
    return not some


# ---- Choices of an engine's own fields, as files write them: ``engine: NAME`` and ``fields:``


def read_own_point(engine: UserEngine, design: str, overrides: Mapping[str, Any]) -> Any:
    """Return a choice of the engine's own fields: of a file, or its defaults where *design* is the engine's name."""
    values: Any = {}
    if design != engine.name:
        rule = f"give {engine.name} for its defaults, or a file with engine: {engine.name} and fields:"
        require(is_file(Path(design)), "design", design, rule)
        tree = catalog_entries.load_mapping(Path(design))
        for key in tree:
            if key not in ("engine", "fields"):
                raise UnknownName.key(as_key(key), tree[key], ("engine", "fields"))
        require(tree.get("engine") == engine.name, "engine", tree.get("engine"), f"the file is not for {engine.name}")
        values = tree.get("fields", {})
    if not isinstance(values, Mapping):
        raise SpecError("fields", values, "must map fields to values")
    point = schema.read_value(engine.fields, values, "fields")
    changes = {}
    for path, value in overrides.items():
        slot = schema.slot_at(point, path)
        changes[path] = schema.read_value(slot.hint, value, path, slot.dimension)
    return schema.assign_fields(point, changes)
