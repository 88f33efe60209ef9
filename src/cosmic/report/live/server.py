"""The server: one socket on the loopback address, and the application: an address for each request of the page.

Each address calls one function of this package. Studies that grow send server-sent events with counts and state only;
the page requests the trials separately.

Work runs in threads, bounded in number and time. One that takes too long is told to stop, and replaced. The threads
are daemons: one that hangs in a library does not keep the server from ending.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, TypeVar
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from cosmic.base._version import __version__
from cosmic.base.errors import CosmicError, SpecError, UnknownName, require
from cosmic.base.files import dump_json
from cosmic.design.loading import dump_design
from cosmic.report.live import access_control, request_checks, requested_designs, search_form, study_library
from cosmic.report.live.access_control import ADDRESS, AccessKeys, RequestGuard, Session
from cosmic.report.live.connections import ConnectionCrowd, Limits, Streams, connection_class
from cosmic.report.live.request_checks import BUSY, CONFLICT, NOT_FOUND, TOO_MANY, Refusal, error_sentence, status_of
from cosmic.report.live.requested_designs import requested_design
from cosmic.report.live.search_processes import SearchProcesses
from cosmic.report.live.study_library import Library, StudyPulse, blame_reading
from cosmic.report.live.study_paths import StudyRoot

WorkResult = TypeVar("WorkResult")
QUEUED, RUNNING, STOPPED, OVER = "queued", "running", "stopped", "over"
TOO_LONG = "is the longest time of this answer; ask for less, or use the command line"
AGAIN_S = 1.0
"""How often a thread is told to stop: code of others may swallow it."""


class Overdue(BaseException):
    """Raised in a thread whose time is over. No `Exception`: nobody catches it by accident."""


@dataclass(eq=False)
class ThreadJob:
    """One call, and where its result goes."""

    call: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    state: str = QUEUED
    thread: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)
    """Held to change the state: a thread is told to stop only while it is at this very job."""

    def run(self) -> bool:
        """Make the call and pass its result on; return False if it was told to stop."""
        try:
            with self.guard:
                if self.state == OVER:  # given up before it began
                    return True
                self.state, self.thread = RUNNING, threading.get_ident()
            result, failure = self._called()
            with self.guard:
                finished, self.state = self.state == RUNNING, OVER
            for _ in range(0 if finished else 100):
                time.sleep(0.01)  # it is about to be raised, and must not be raised elsewhere
        except Overdue:
            with self.guard:
                self.state = OVER
            return False
        if finished:
            with suppress(RuntimeError):  # the server has ended
                self.loop.call_soon_threadsafe(self._settle, result, failure)
        return finished

    def _called(self) -> tuple[Any, Exception | None]:
        try:
            return self.call(), None
        except Exception as error:
            return None, error

    def _settle(self, result: Any, failure: Exception | None) -> None:
        if self.future.done():
            return
        if failure is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(failure)

    def stop(self) -> bool:
        """Tell the thread of a job to stop; return whether it is at it."""
        with self.guard:
            if self.state in (QUEUED, OVER):
                self.state = OVER
                return False
            self.state = STOPPED
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), ctypes.py_object(Overdue))
            return True


class JobThreads:
    """A bounded number of threads with a bounded queue, and a time limit for each request."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[ThreadJob] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._pending = 0
        self._closed = False
        self.stuck = 0
        """Threads that were told to stop and have not ended yet."""

    async def run(self, work: Callable[..., WorkResult], *given: Any, seconds: float | None = None) -> WorkResult:
        """Call *work* in a thread and return its result; after *seconds* the thread is told to stop."""
        most = self._limits.seconds if seconds is None else seconds
        if self._pending >= self._limits.threads + self._limits.waiting:
            raise Refusal(BUSY, "requests", self._pending, "are being worked on; try again in a few seconds")
        if self.stuck >= self._limits.stuck:
            raise Refusal(BUSY, "requests", self.stuck, "do not end; end 'cosmic ui' and start it again")
        loop = asyncio.get_running_loop()
        job = ThreadJob(lambda: work(*given), loop, loop.create_future())
        self._pending += 1
        self._put(job)
        try:
            return await asyncio.wait_for(job.future, most)
        except TimeoutError:
            raise Refusal(BUSY, "seconds", most, TOO_LONG) from None
        finally:
            self._pending -= 1
            if job.state != OVER:
                self._give_up(job)

    def _put(self, job: ThreadJob) -> None:
        with self._changed:
            self._waiting.append(job)
            self._start_missing_thread()
            self._changed.notify()

    def _start_missing_thread(self) -> None:
        """Start a thread if jobs wait that no idle one takes, up to the limit of threads; the lock must be held."""
        if self._idle < len(self._waiting) and self._threads < self._limits.threads:
            self._threads += 1
            threading.Thread(target=self._work, name="cosmic-live", daemon=True).start()

    def _give_up(self, job: ThreadJob) -> None:
        """Stop a job that nobody waits for; its thread no longer counts, so that another can take its place."""
        with self._changed:
            with suppress(ValueError):
                self._waiting.remove(job)
            if job.stop():
                self._threads -= 1
                self.stuck += 1
                self._start_missing_thread()
                job.loop.call_later(AGAIN_S, self._insist, job)

    def _insist(self, job: ThreadJob) -> None:
        if job.stop() and not self._closed:
            job.loop.call_later(AGAIN_S, self._insist, job)

    def _work(self) -> None:
        """Take jobs until one was stopped, or the server ends."""
        while (job := self._next()) is not None:
            if not job.run():
                with self._changed:
                    self.stuck -= 1
                return

    def _next(self) -> ThreadJob | None:
        with self._changed:
            self._idle += 1
            while not self._waiting and not self._closed:
                self._changed.wait()
            self._idle -= 1
            return None if self._closed else self._waiting.popleft()

    def close(self) -> None:
        """Take no more work."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()


INTERVAL_S = 0.5
"""At most two events a second."""
HEARTBEAT_S = 15.0
RETRY_MS = 2000


def event_text(pulse: StudyPulse) -> str:
    r"""Return an event as it is sent.

    >>> event_text(StudyPulse(10, 0.5, "running"))
    'id: 40\ndata: {"seq": 40, "n": 10, "best": 0.5, "state": "running"}\n\n'
    """
    return f"id: {pulse.seq}\ndata: {json.dumps(pulse.event)}\n\n"


async def watch_study(
    look: Callable[[], Awaitable[StudyPulse]], streams: Streams, last: str = ""
) -> AsyncIterator[str]:
    """Yield an event whenever a study changes, until the server ends.

    *look* returns its progress, *last* is the id of the last event seen.
    """
    seen = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else None
    yield f"retry: {RETRY_MS}\n\n"
    spoke = time.monotonic()
    while not streams.closing:
        try:
            pulse = await look()
        except CosmicError:  # it was removed, or the server is busy: the page asks again
            return
        if pulse.seq != seen:
            seen, spoke = pulse.seq, time.monotonic()
            yield event_text(pulse)
        elif time.monotonic() - spoke >= HEARTBEAT_S:
            spoke = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(INTERVAL_S)


CONTAINER = "application/vnd.cosmic.container"
MOST_COMPARED = 12
Result = TypeVar("Result")


@dataclass
class LiveSite:
    """The state of the server."""

    root: StudyRoot
    keys: AccessKeys
    limits: Limits = field(default_factory=Limits)
    searches: SearchProcesses = field(init=False)
    library: Library = field(init=False)
    documents: study_library.DocumentCache = field(init=False)
    streams: Streams = field(init=False)
    pool: JobThreads = field(init=False)

    def __post_init__(self) -> None:
        self.searches = SearchProcesses(self.root)
        self.library = Library(self.root, self.searches)
        self.documents = study_library.DocumentCache(self.library)
        self.streams = Streams(self.limits.streams)
        self.pool = JobThreads(self.limits)

    async def work(self, call: Callable[..., Result], *given: Any) -> Result:
        """Call a function in a thread and return its result."""
        return await self.pool.run(call, *given)

    async def read(self, study: str, call: Callable[..., Result], *given: Any) -> Result:
        """Call a function that reads a study, which is blamed for whatever else than a sentence comes of it."""
        return await self.pool.run(blame_study(study, call), *given)

    async def draw(self, session: Session | None, study: str, call: Callable[..., Result], *given: Any) -> Result:
        """Call a function that evaluates a design: of one browser one at a time, within a shorter time."""
        mine = session or Session()
        if mine.asking > self.limits.designs:
            raise Refusal(TOO_MANY, "designs", mine.asking, "wait to be evaluated already; try again in a second")
        mine.asking += 1
        try:
            async with mine.turn:
                return await self.pool.run(blame_study(study, call), *given, seconds=self.limits.design_s)
        finally:
            mine.asking -= 1

    def close(self) -> None:
        """End streams, searches and threads."""
        self.streams.closing = True
        self.pool.close()
        self.searches.close()


def blame_study(study: str, call: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function whose unforeseen errors are those of the study that it reads, if any."""

    def asked(*given: Any) -> Result:
        with blame_reading(study) if study else nullcontext():
            return call(*given)

    return asked


class AsciiJsonResponse(JSONResponse):
    """JSON in ASCII, as a study may hold text that cannot be encoded, with null for NaN and infinity."""

    def render(self, content: Any) -> bytes:
        """Return *content* as JSON."""
        return dump_json(content).encode()


class EventStream(StreamingResponse):
    """A stream of server-sent events; it counts against the limit of streams."""

    def __init__(self, site: LiveSite, study: str, last: str) -> None:
        async def look() -> StudyPulse:
            return await site.read(study, site.library.pulse, study)

        super().__init__(watch_study(look, site.streams, last), media_type="text/event-stream")
        self._streams = site.streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until one side disconnects."""
        with self._streams.hold():
            await super().__call__(scope, receive, send)


def make_application(site: LiveSite) -> FastAPI:
    """Return the application without its guard: all addresses, and the answers to errors."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.site = site
    app.add_exception_handler(CosmicError, partial(_answer_error, site))
    app.add_exception_handler(HTTPException, _answer_missing)
    for add in (_add_pages, _add_studies, _add_trials, _add_searches):
        add(app, site)
    return app


def make_guarded_application(site: LiveSite) -> RequestGuard:
    """Return the application as it is served."""
    return RequestGuard(make_application(site), site.keys, site.limits)


async def _answer_error(site: LiveSite, request: Request, error: Exception) -> Response:
    """Answer with the sentence of one of our errors."""
    if not isinstance(error, CosmicError):
        raise error
    status = status_of(error)
    headers = {"Retry-After": "1"} if status in (429, 503) else None
    return AsciiJsonResponse({"error": error_sentence(error, site.root.path)}, status, headers)


async def _answer_missing(request: Request, error: Exception) -> Response:
    """Answer to an unknown address or method."""
    status = error.status_code if isinstance(error, HTTPException) else NOT_FOUND
    path = request.url.path
    rule = "nothing is at this address" if status == NOT_FOUND else f"does not take {request.method}"
    said = str(Refusal(status, "address", path, rule))
    if path.startswith("/api"):
        return AsciiJsonResponse({"error": said}, status)
    return HTMLResponse(access_control.problem_page(status, said), status)


async def _read_body(request: Request) -> dict[str, Any]:
    return request_checks.parse_body(await request.body())


def _session_of(request: Request) -> Session | None:
    """Return whose request it is."""
    found: Session | None = request.state.session
    return found


def _read_query(request: Request, allowed: tuple[str, ...] = (), several: str = "") -> dict[str, list[str]]:
    return request_checks.read_query(request.query_params.multi_items(), allowed, several)


def _container_response(content: bytes) -> Response:
    return Response(content, media_type=CONTAINER)


def _file_response(content: bytes, kind: str, name: str) -> Response:
    """Answer with a file to download; its name is quoted, as a study's may hold any character."""
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return Response(content, media_type=kind, headers=headers)


# ---- addresses


def _add_pages(app: FastAPI, site: LiveSite) -> None:
    @app.get("/")
    async def page() -> Response:
        return HTMLResponse(access_control.application_page())

    for address, kind in access_control.FRONT_FILES.items():

        @app.get(address)
        async def front(address: str = address, kind: str = kind) -> Response:
            return Response(access_control.front_file(address), media_type=kind)

    @app.get("/api/session")
    async def session(request: Request) -> Response:
        _read_query(request)
        limits = {"body_bytes": site.limits.body_bytes, "trials_most": search_form.MOST_TRIALS}
        return AsciiJsonResponse(
            {
                "version": __version__,
                "directory": site.root.path.name,
                "searches": {"running": len(site.searches.running()), "most": site.searches.most},
                "limits": limits | {"events_most": site.limits.streams},
            }
        )

    @app.get("/api/catalog")
    async def offered(request: Request) -> Response:
        _read_query(request)
        return AsciiJsonResponse(await site.work(search_form.form_choices))

    @app.get("/api/spaces/{space}")
    async def space(request: Request, space: str) -> Response:
        asked = _read_query(request, ("stacks", "task"))
        opened, task = (asked.get(name, [""])[0] for name in ("stacks", "task"))
        stacks = tuple(each.strip() for each in opened.split(",") if each.strip())
        try:
            searched_space = await site.work(search_form.space_of, space, stacks, task)
        except UnknownName as error:
            raise Refusal(NOT_FOUND, error.where, error.value, error.rule) from None
        return AsciiJsonResponse(await site.work(search_form.schema_of, searched_space))


def _add_studies(app: FastAPI, site: LiveSite) -> None:
    library = site.library

    @app.get("/api/studies")
    async def studies(request: Request) -> Response:
        _read_query(request)
        return AsciiJsonResponse({"studies": await site.work(library.rows)})

    @app.get("/api/studies/{study}/status")
    async def status(request: Request, study: str) -> Response:
        _read_query(request)
        return AsciiJsonResponse(await site.read(study, library.row, study))

    @app.get("/api/studies/{study}")
    async def document(request: Request, study: str) -> Response:
        _read_query(request)
        return _container_response(await site.read(study, site.documents.document, study))

    @app.get("/api/studies/{study}/report.html")
    async def report(request: Request, study: str) -> Response:
        _read_query(request)
        return _file_response(
            await site.read(study, site.documents.report, study), "text/html; charset=utf-8", f"{study}.html"
        )

    @app.get("/api/studies/{study}/schema")
    async def schema(request: Request, study: str) -> Response:
        _read_query(request)
        return AsciiJsonResponse(
            await site.read(study, lambda: search_form.schema_of(library.study(study).problem.space))
        )

    @app.get("/api/studies/{study}/block")
    async def block(request: Request, study: str) -> Response:
        after = request_checks.read_number(_read_query(request, ("after",)).get("after", ["0"])[0], "after")
        pulse = await site.read(study, library.pulse, study)
        tag = f'"{pulse.seq}-{after}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        answer = _container_response(await site.read(study, study_library.pack_trials, library, study, after))
        answer.headers["ETag"] = tag
        return answer

    @app.get("/api/studies/{study}/events")
    async def events(request: Request, study: str) -> Response:
        _read_query(request)
        await site.read(study, library.pulse, study)  # refuse a missing study before anything is sent
        return EventStream(site, study, request.headers.get("last-event-id", ""))

    @app.get("/api/compare")
    async def compare(request: Request) -> Response:
        names = list(dict.fromkeys(_read_query(request, ("study",), "study").get("study", [])))
        require(1 <= len(names) <= MOST_COMPARED, "study", len(names), f"name 1 to {MOST_COMPARED} studies")
        return AsciiJsonResponse(await site.read(", ".join(names), study_library.compare_studies, library, names))


def _draw_trial(library: Library, study: str, trial: str) -> bytes:
    design = requested_designs.choose_design(library, study, trial)
    return study_library.pack_design(design.named, design.study.problem.engine, design.study.problem.limits)


def _what_if(library: Library, body: dict[str, Any]) -> bytes:
    return study_library.pack_design(requested_designs.requested_design(library, body))


def _add_trials(app: FastAPI, site: LiveSite) -> None:
    library = site.library

    @app.get("/api/studies/{study}/trials/{trial}")
    async def trial(request: Request, study: str, trial: str) -> Response:
        _read_query(request)
        return _container_response(await site.draw(_session_of(request), study, _draw_trial, library, study, trial))

    @app.get("/api/studies/{study}/trials/{trial}/values")
    async def values(request: Request, study: str, trial: str) -> Response:
        _read_query(request)
        return AsciiJsonResponse(
            await site.read(
                study,
                lambda: requested_designs.parameter_values(requested_designs.choose_design(library, study, trial)),
            )
        )

    @app.get("/api/studies/{study}/trials/{trial}/design.yaml")
    async def trial_yaml(request: Request, study: str, trial: str) -> Response:
        _read_query(request)
        answer = await site.read(
            study, lambda: dump_design(requested_designs.choose_design(library, study, trial).point)
        )
        return _file_response(answer.encode(), "application/yaml", f"{study}-{trial}.yaml")

    @app.post("/api/designs")
    async def what_if(request: Request) -> Response:
        _read_query(request)
        body = await _read_body(request)
        return _container_response(
            await site.draw(_session_of(request), str(body.get("study", "")), _what_if, library, body)
        )

    @app.post("/api/designs/design.yaml")
    async def what_if_yaml(request: Request) -> Response:
        _read_query(request)
        body = await _read_body(request)
        answer = await site.draw(
            _session_of(request),
            str(body.get("study", "")),
            lambda: dump_design(requested_designs.requested_design(library, body).point),
        )
        return _file_response(answer.encode(), "application/yaml", "design.yaml")


def _add_searches(app: FastAPI, site: LiveSite) -> None:
    library, searches = site.library, site.searches

    @app.post("/api/count")
    async def count(request: Request) -> Response:
        _read_query(request)
        space = await site.work(search_form.narrowed_space, await _read_body(request))
        sizes = await site.work(
            lambda: {"raw": search_form.exact_count(space.raw), "valid": search_form.exact_count(space.valid)}
        )
        return AsciiJsonResponse(sizes)

    @app.post("/api/searches")
    async def start(request: Request) -> Response:
        _read_query(request)
        wanted = await site.work(search_form.search_of, await _read_body(request))
        return AsciiJsonResponse({"study": await site.work(searches.start, wanted)}, 201)

    @app.post("/api/studies/{study}/stop")
    async def stop(request: Request, study: str) -> Response:
        _read_query(request)
        request_checks.check_keys(await _read_body(request), ())
        site.root.folder(study)
        searches.stop(study)
        return AsciiJsonResponse(await site.read(study, library.row, study), 202)

    @app.post("/api/studies/{study}/resume")
    async def resume(request: Request, study: str) -> Response:
        _read_query(request)
        body = await _read_body(request)
        request_checks.check_keys(body, ("trials",))
        trials = (
            request_checks.read_integer(body, "trials", None, (1, search_form.MOST_TRIALS))
            if "trials" in body
            else None
        )
        row = await site.read(study, library.row, study)
        if row["state"] == "running":
            raise Refusal(CONFLICT, "study", study, "a search is writing to it already")
        inputs = (await site.read(study, library.study, study)).inputs
        await site.work(searches.resume, study, inputs, trials)
        return AsciiJsonResponse(await site.read(study, library.row, study), 202)


# ---- the server


ACCEPTED = 64
"""Connections that are accepted in one go, before room is made for them."""
BACKLOG = 2048
"""Connections that the operating system holds ready: a browser that finds no place there tries again a second later."""
ANSWERING_S = 1
"""How long answers may take to end once the server is interrupted."""
ENDING_S = 2.8
"""How long everything may take to end."""
INTERRUPTED = 130
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


class LoopbackServer(uvicorn.Server):
    """Uvicorn that ends in time whatever is going on: it would wait for streams, threads and silent connections."""

    def __init__(self, config: uvicorn.Config, opened: ListeningServer) -> None:
        super().__init__(config)
        self._opened = opened

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen with a long queue, and take signals from here on."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
        asyncio.get_running_loop().set_exception_handler(_ignore_lost_connections)
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams and searches, then the server; the second time at once."""
        if self.should_exit:
            self._opened.abandon(INTERRUPTED)
        self._opened.site.streams.closing = True
        threading.Thread(target=self._see_to_it, daemon=True).start()
        super().handle_exit(sig, frame)

    def _see_to_it(self) -> None:
        """Interrupt the searches, and end the process if it has not ended in time."""
        self._opened.site.searches.interrupt()
        time.sleep(ENDING_S)
        self._opened.abandon(0)


@dataclass(frozen=True)
class ListeningServer:
    """A server that is ready to run."""

    site: LiveSite
    listening: socket.socket
    endings: list[Callable[[], None]] = field(default_factory=list)
    """Called when it ends."""

    def run(self) -> None:
        """Serve until interrupted; then interrupt the searches that were started here."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it would print bytes of refused requests
        server = self.server()
        signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)  # until the server has its handlers
        warming = threading.Thread(target=warm_up, args=(self.site,), daemon=True)
        warming.start()
        try:
            server.run(sockets=[self.listening])
        finally:
            self.close()
            warming.join(ENDING_S)  # libraries abort where the process ends while a thread is inside them

    def server(self) -> LoopbackServer:
        """Return the server, which is not running yet."""
        limits = self.site.limits
        config = uvicorn.Config(
            make_guarded_application(self.site),
            http=connection_class(ConnectionCrowd(limits)),
            loop="asyncio",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            backlog=ACCEPTED,
            h11_max_incomplete_event_size=limits.header_bytes + limits.address_bytes,
            timeout_keep_alive=int(limits.idle_s) + 1,  # a connection looks after itself
            timeout_graceful_shutdown=ANSWERING_S,
        )
        return LoopbackServer(config, self)

    def close(self) -> None:
        """End everything that was begun."""
        for ending in self.endings:
            ending()
        self.listening.close()
        self.site.close()

    def abandon(self, status: int) -> None:
        """End the process without waiting for anything."""
        self.site.searches.kill()
        for ending in self.endings:
            ending()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _ignore_lost_connections(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say nothing of connections that failed: whoever caused it is not at this terminal."""
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)


def open_server(root: StudyRoot, port: int = 0, limits: Limits | None = None) -> ListeningServer:
    """Return a listening server, on a free port if *port* is 0."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((ADDRESS, port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or "is no port"
        raise SpecError("--port", port, f"cannot be listened on ({reason}); 0 takes one that is free") from None
    listening.set_inheritable(False)
    keys = AccessKeys(listening.getsockname()[1])
    return ListeningServer(LiveSite(root, keys, limits or Limits()), listening)


def warm_up(site: LiveSite) -> None:
    """Load registries and catalog and evaluate a design, so that the first request does not wait for it."""
    steps: tuple[Callable[[], Any], ...] = (
        search_form.form_choices,
        lambda: study_library.pack_design(requested_design(site.library, {"design": "gpt3-175b@cosmic-1024"})),
    )
    for step in steps:
        step()
