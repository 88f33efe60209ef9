"""The application: an address for each request of the page. Each calls one function of this package."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from cosmic._version import __version__
from cosmic.errors import CosmicError, UnknownName, require
from cosmic.live import bodies, forms, pages, requested_designs, views
from cosmic.live.events import watch
from cosmic.live.guard import Guard
from cosmic.live.keys import Keys, Session
from cosmic.live.library import Library, Pulse, reading
from cosmic.live.limits import Limits, Streams
from cosmic.live.paths import Root
from cosmic.live.refusals import CONFLICT, NOT_FOUND, TOO_MANY, Refusal, sentence, status_of
from cosmic.live.searches import Searches
from cosmic.live.work import Pool
from cosmic.loading.designs import dump_design
from cosmic.strict_json import json_text

CONTAINER = "application/vnd.cosmic.container"
MOST_COMPARED = 12
T = TypeVar("T")


@dataclass
class Site:
    """The state of the server."""

    root: Root
    keys: Keys
    limits: Limits = field(default_factory=Limits)
    searches: Searches = field(init=False)
    library: Library = field(init=False)
    documents: views.Documents = field(init=False)
    streams: Streams = field(init=False)
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        self.searches = Searches(self.root)
        self.library = Library(self.root, self.searches)
        self.documents = views.Documents(self.library)
        self.streams = Streams(self.limits.streams)
        self.pool = Pool(self.limits)

    async def work(self, call: Callable[..., T], *given: Any) -> T:
        """Call a function in a thread and return its result."""
        return await self.pool.run(call, *given)

    async def read(self, study: str, call: Callable[..., T], *given: Any) -> T:
        """Call a function that reads a study, which is blamed for whatever else than a sentence comes of it."""
        return await self.pool.run(blamed(study, call), *given)

    async def draw(self, session: Session | None, study: str, call: Callable[..., T], *given: Any) -> T:
        """Call a function that evaluates a design: of one browser one at a time, within a shorter time."""
        mine = session or Session()
        if mine.asking > self.limits.designs:
            raise Refusal(TOO_MANY, "designs", mine.asking, "wait to be evaluated already; try again in a second")
        mine.asking += 1
        try:
            async with mine.turn:
                return await self.pool.run(blamed(study, call), *given, seconds=self.limits.design_s)
        finally:
            mine.asking -= 1

    def close(self) -> None:
        """End streams, searches and threads."""
        self.streams.closing = True
        self.pool.close()
        self.searches.close()


def blamed(study: str, call: Callable[..., T]) -> Callable[..., T]:
    """Return a function whose unforeseen errors are those of the study that it reads, if any."""

    def asked(*given: Any) -> T:
        with reading(study) if study else nullcontext():
            return call(*given)

    return asked


class Answer(JSONResponse):
    """JSON in ASCII, as a study may hold text that cannot be encoded, with null for NaN and infinity."""

    def render(self, content: Any) -> bytes:
        """Return *content* as JSON."""
        return json_text(content).encode()


class Stream(StreamingResponse):
    """A stream of server-sent events; it counts against the limit of streams."""

    def __init__(self, site: Site, study: str, last: str) -> None:
        async def look() -> Pulse:
            return await site.read(study, site.library.pulse, study)

        super().__init__(watch(look, site.streams, last), media_type="text/event-stream")
        self._streams = site.streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until one side disconnects."""
        with self._streams.place():
            await super().__call__(scope, receive, send)


def application(site: Site) -> FastAPI:
    """Return the application without its guard: all addresses, and the answers to errors."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.site = site
    app.add_exception_handler(CosmicError, partial(_refused, site))
    app.add_exception_handler(HTTPException, _missing)
    for add in (_add_pages, _add_studies, _add_trials, _add_searches):
        add(app, site)
    return app


def guarded(site: Site) -> Guard:
    """Return the application as it is served."""
    return Guard(application(site), site.keys, site.limits)


async def _refused(site: Site, request: Request, error: Exception) -> Response:
    """Answer with the sentence of one of our errors."""
    if not isinstance(error, CosmicError):
        raise error
    status = status_of(error)
    headers = {"Retry-After": "1"} if status in (429, 503) else None
    return Answer({"error": sentence(error, site.root.path)}, status, headers)


async def _missing(request: Request, error: Exception) -> Response:
    """Answer to an unknown address or method."""
    status = error.status_code if isinstance(error, HTTPException) else NOT_FOUND
    path = request.url.path
    rule = "nothing is at this address" if status == NOT_FOUND else f"does not take {request.method}"
    said = str(Refusal(status, "address", path, rule))
    if path.startswith("/api"):
        return Answer({"error": said}, status)
    return HTMLResponse(pages.problem(status, said), status)


async def _body(request: Request) -> dict[str, Any]:
    return bodies.parse(await request.body())


def _session(request: Request) -> Session | None:
    """Return whose request it is."""
    found: Session | None = request.state.session
    return found


def _query(request: Request, known: tuple[str, ...] = (), several: str = "") -> dict[str, list[str]]:
    return bodies.query(request.query_params.multi_items(), known, several)


def _container(content: bytes) -> Response:
    return Response(content, media_type=CONTAINER)


def _attachment(content: bytes, kind: str, name: str) -> Response:
    """Answer with a file to download; its name is quoted, as a study's may hold any character."""
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return Response(content, media_type=kind, headers=headers)


# -------------------------------------------------------------------------------------------------- addresses


def _add_pages(app: FastAPI, site: Site) -> None:
    @app.get("/")
    async def page() -> Response:
        return HTMLResponse(pages.application())

    for address, kind in pages.FRONT.items():

        @app.get(address)
        async def front(address: str = address, kind: str = kind) -> Response:
            return Response(pages.front(address), media_type=kind)

    @app.get("/api/session")
    async def session(request: Request) -> Response:
        _query(request)
        limits = {"body_bytes": site.limits.body_bytes, "trials_most": forms.MOST_TRIALS}
        return Answer(
            {
                "version": __version__,
                "directory": site.root.path.name,
                "searches": {"running": len(site.searches.running()), "most": site.searches.most},
                "limits": limits | {"events_most": site.limits.streams},
            }
        )

    @app.get("/api/catalog")
    async def offered(request: Request) -> Response:
        _query(request)
        return Answer(await site.work(forms.offered))

    @app.get("/api/spaces/{space}")
    async def space(request: Request, space: str) -> Response:
        asked = _query(request, ("stacks", "task"))
        given, task = (asked.get(name, [""])[0] for name in ("stacks", "task"))
        stacks = tuple(each.strip() for each in given.split(",") if each.strip())
        try:
            found = await site.work(forms.space_of, space, stacks, task)
        except UnknownName as error:
            raise Refusal(NOT_FOUND, error.where, error.value, error.rule) from None
        return Answer(await site.work(forms.schema_of, found))


def _add_studies(app: FastAPI, site: Site) -> None:
    library = site.library

    @app.get("/api/studies")
    async def studies(request: Request) -> Response:
        _query(request)
        return Answer({"studies": await site.work(library.rows)})

    @app.get("/api/studies/{study}/status")
    async def status(request: Request, study: str) -> Response:
        _query(request)
        return Answer(await site.read(study, library.row, study))

    @app.get("/api/studies/{study}")
    async def document(request: Request, study: str) -> Response:
        _query(request)
        return _container(await site.read(study, site.documents.document, study))

    @app.get("/api/studies/{study}/report.html")
    async def report(request: Request, study: str) -> Response:
        _query(request)
        return _attachment(
            await site.read(study, site.documents.report, study), "text/html; charset=utf-8", f"{study}.html"
        )

    @app.get("/api/studies/{study}/schema")
    async def schema(request: Request, study: str) -> Response:
        _query(request)
        return Answer(await site.read(study, lambda: forms.schema_of(library.study(study).problem.space)))

    @app.get("/api/studies/{study}/block")
    async def block(request: Request, study: str) -> Response:
        after = bodies.number(_query(request, ("after",)).get("after", ["0"])[0], "after")
        pulse = await site.read(study, library.pulse, study)
        tag = f'"{pulse.seq}-{after}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        answer = _container(await site.read(study, views.block, library, study, after))
        answer.headers["ETag"] = tag
        return answer

    @app.get("/api/studies/{study}/events")
    async def events(request: Request, study: str) -> Response:
        _query(request)
        await site.read(study, library.pulse, study)  # refuse a missing study before anything is sent
        return Stream(site, study, request.headers.get("last-event-id", ""))

    @app.get("/api/compare")
    async def compare(request: Request) -> Response:
        names = list(dict.fromkeys(_query(request, ("study",), "study").get("study", [])))
        require(1 <= len(names) <= MOST_COMPARED, "study", len(names), f"name 1 to {MOST_COMPARED} studies")
        return Answer(await site.read(", ".join(names), views.comparison, library, names))


def _draw(library: Library, study: str, trial: str) -> bytes:
    one = requested_designs.chosen(library, study, trial)
    return views.design(one.named, one.study.problem.engine, one.study.problem.limits)


def _what_if(library: Library, body: dict[str, Any]) -> bytes:
    return views.design(requested_designs.requested(library, body))


def _add_trials(app: FastAPI, site: Site) -> None:
    library = site.library

    @app.get("/api/studies/{study}/trials/{trial}")
    async def trial(request: Request, study: str, trial: str) -> Response:
        _query(request)
        return _container(await site.draw(_session(request), study, _draw, library, study, trial))

    @app.get("/api/studies/{study}/trials/{trial}/values")
    async def values(request: Request, study: str, trial: str) -> Response:
        _query(request)
        return Answer(
            await site.read(study, lambda: requested_designs.values(requested_designs.chosen(library, study, trial)))
        )

    @app.get("/api/studies/{study}/trials/{trial}/design.yaml")
    async def trial_yaml(request: Request, study: str, trial: str) -> Response:
        _query(request)
        found = await site.read(study, lambda: dump_design(requested_designs.chosen(library, study, trial).point))
        return _attachment(found.encode(), "application/yaml", f"{study}-{trial}.yaml")

    @app.post("/api/designs")
    async def what_if(request: Request) -> Response:
        _query(request)
        body = await _body(request)
        return _container(await site.draw(_session(request), str(body.get("study", "")), _what_if, library, body))

    @app.post("/api/designs/design.yaml")
    async def what_if_yaml(request: Request) -> Response:
        _query(request)
        body = await _body(request)
        found = await site.draw(
            _session(request),
            str(body.get("study", "")),
            lambda: dump_design(requested_designs.requested(library, body).point),
        )
        return _attachment(found.encode(), "application/yaml", "design.yaml")


def _add_searches(app: FastAPI, site: Site) -> None:
    library, searches = site.library, site.searches

    @app.post("/api/count")
    async def count(request: Request) -> Response:
        _query(request)
        space = await site.work(forms.narrowed, await _body(request))
        sizes = await site.work(lambda: {"raw": forms.countable(space.raw), "valid": forms.countable(space.valid)})
        return Answer(sizes)

    @app.post("/api/searches")
    async def start(request: Request) -> Response:
        _query(request)
        wanted = await site.work(forms.search_of, await _body(request))
        return Answer({"study": await site.work(searches.start, wanted)}, 201)

    @app.post("/api/studies/{study}/stop")
    async def stop(request: Request, study: str) -> Response:
        _query(request)
        bodies.only(await _body(request), ())
        site.root.folder(study)
        searches.stop(study)
        return Answer(await site.read(study, library.row, study), 202)

    @app.post("/api/studies/{study}/resume")
    async def resume(request: Request, study: str) -> Response:
        _query(request)
        body = await _body(request)
        bodies.only(body, ("trials",))
        trials = bodies.integer(body, "trials", None, (1, forms.MOST_TRIALS)) if "trials" in body else None
        row = await site.read(study, library.row, study)
        if row["state"] == "running":
            raise Refusal(CONFLICT, "study", study, "a search is writing to it already")
        inputs = (await site.read(study, library.study, study)).inputs
        await site.work(searches.resume, study, inputs, trials)
        return Answer(await site.read(study, library.row, study), 202)
