"""The page lets nobody in: who has no key, comes from elsewhere, or sends too much."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from cosmic.report.live.access_control import (
    CONTENT_POLICY,
    ENTRANCE_ADDRESS,
    LAUNCHED,
    MOST_SESSIONS,
    PUBLIC_ADDRESSES,
    AccessKeys,
    RequestGuard,
)
from cosmic.report.live.connections import Limits, Rates
from cosmic.report.live.server import LiveSite, make_application
from cosmic.report.live.study_paths import StudyRoot
from tests.report.live.asking import ORIGIN, PORT, Answer, Client, site_at, tell, token_of

HOSTS = (
    "evil.com",
    f"evil.com:{PORT}",
    "127.0.0.1",
    "localhost",
    "127.0.0.1:80",
    "localhost:80",
    f"127.0.0.1:{PORT + 1}",
    f"127.0.0.1:0{PORT}",
    f"127.0.0.1:{PORT}0",
    "127.0.0.1:",
    f":{PORT}",
    f"127.0.0.1.evil.com:{PORT}",
    f"evil.com.127.0.0.1:{PORT}",
    f"127.0.0.1evil.com:{PORT}",
    f"localhost:{PORT}",
    f"localhost.:{PORT}",
    f"localhost.evil.com:{PORT}",
    f"evil-localhost:{PORT}",
    f"LOCALHOST:{PORT}",
    f"localhost.localdomain:{PORT}",
    f"127.0.0.1.:{PORT}",
    f"[::1]:{PORT}",
    "[::1]",
    "::1",
    f"[::ffff:127.0.0.1]:{PORT}",
    f"0.0.0.0:{PORT}",
    f"0:{PORT}",
    f"127.1:{PORT}",
    f"127.0.1:{PORT}",
    f"127.0.0.2:{PORT}",
    f"2130706433:{PORT}",
    f"0x7f000001:{PORT}",
    f"0x7f.0.0.1:{PORT}",
    f"0177.0.0.1:{PORT}",
    f"127.000.000.001:{PORT}",
    f"user@127.0.0.1:{PORT}",
    f"127.0.0.1:{PORT}@evil.com",
    f"127.0.0.1:{PORT}#evil.com",
    f"127.0.0.1:{PORT}/",
    f" 127.0.0.1:{PORT}",
    f"127.0.0.1:{PORT} ",
    f"127.0.0.1:{PORT},evil.com",
    f"http://127.0.0.1:{PORT}",
    f"127.0.0.1%00:{PORT}",
    f"１２７.0.0.1:{PORT}",
    "",
    "null",
    "*",
)
ORIGINS = (
    "",
    "null",
    "http://evil.com",
    f"http://127.0.0.1:{PORT}.evil.com",
    f"http://127.0.0.1:{PORT}/",
    f"http://127.0.0.1:{PORT + 1}",
    "http://127.0.0.1",
    f"https://127.0.0.1:{PORT}",
    f"http://localhost:{PORT}",
    f"HTTP://127.0.0.1:{PORT}",
    f"http://evil.com/127.0.0.1:{PORT}",
    f"http://127.0.0.1:{PORT} http://evil.com",
    "file://",
)


def enter(client: Client, token: str, **changes: str) -> Answer:
    """Return the answer to a page that has a token."""
    headers = {"host": f"127.0.0.1:{PORT}", "origin": ORIGIN, "sec-fetch-site": "same-origin", "x-cosmic": token}
    return client.ask("POST", ENTRANCE_ADDRESS, [*(headers | changes).items()])


def test_another_host_is_refused(client: Client) -> None:
    assert len(HOSTS) >= 40
    for host in HOSTS:
        for target in ("/", "/api/studies", "/app.js", "/nothing"):
            answer = client.ask("GET", target, [("host", host), ("x-cosmic", client.key)])
            assert answer.status == 403, (host, target)
        token = token_of(client.site.keys.address())
        assert enter(client, token, host=host, origin=f"http://{host}").status == 403, host
    tell(f"{len(HOSTS)} hosts")


def test_a_host_is_named_once(client: Client) -> None:
    ours = ("host", f"127.0.0.1:{PORT}")
    for hosts in ([], [ours, ours], [ours, ("host", "evil.com")], [("host", "evil.com"), ours]):
        assert client.ask("GET", "/api/studies", [*hosts, ("x-cosmic", client.key)]).status == 403
    assert client.ask("GET", "/api/studies", [ours, ("x-cosmic", client.key)]).status == 200
    said = client.ask("GET", "/api/studies", [("host", f"localhost:{PORT}")]).error
    assert said.endswith(f"which is http://127.0.0.1:{PORT}")  # another may listen at ::1, which is localhost too


def test_a_token_lets_one_browser_in_once(client: Client) -> None:
    keys = client.site.keys
    token = token_of(keys.address())
    assert len(token) >= 43  # 256 bits in base64
    assert token not in repr(client.site)
    answer = enter(client, token)
    key = answer.json["key"]
    assert answer.status == 200
    assert answer.header("set-cookie") is None  # a cookie would reach every port of this machine
    assert key not in (token, client.key)
    assert token not in str(answer.headers)
    for known in (key, client.key):
        assert client.ask("GET", "/api/session", [("host", f"127.0.0.1:{PORT}"), ("x-cosmic", known)]).status == 200
    again = enter(client, token)
    assert again.status == 403
    assert "was used, or is too old: press Enter where 'cosmic ui' runs" in again.error
    assert enter(client, key).status == enter(client, "").status == 403


def test_a_new_address_replaces_the_one_before_in_its_place_and_may_end(runs: Path) -> None:
    now, used = 0.0, []
    keys = AccessKeys(PORT, lambda: now)
    with Client(LiveSite(StudyRoot.resolve(runs), keys)) as client:
        first, second = keys.address(), keys.address()
        launched = keys.address(LAUNCHED, 60.0, lambda: used.append(1))
        assert enter(client, token_of(first)).status == 403
        assert enter(client, token_of(second)).status == 200
        assert enter(client, token_of(launched)).status == 200
        assert used == [1]
        late = keys.address(LAUNCHED, 60.0, lambda: used.append(2))
        now += 61.0
        assert enter(client, token_of(late)).status == 403
        assert used == [1]
        for _ in range(MOST_SESSIONS):
            assert enter(client, token_of(keys.address())).status == 200
        assert client.get("/api/session").status == 403, "the oldest session is dropped for a new one"


def test_a_token_is_taken_from_this_page_only(client: Client) -> None:
    token = token_of(client.site.keys.address())
    for origin in ORIGINS:
        assert enter(client, token, origin=origin).status == 403, origin
    assert enter(client, token, **{"sec-fetch-site": "cross-site"}).status == 403
    for method in ("GET", "PUT", "HEAD"):
        headers = [("host", f"127.0.0.1:{PORT}"), ("origin", ORIGIN), ("x-cosmic", token)]
        assert client.ask(method, ENTRANCE_ADDRESS, headers).status in (403, 405)
    for query in (f"/?token={token}", f"{ENTRANCE_ADDRESS}?token={token}"):
        assert "key" not in client.ask("GET", query, [("host", f"127.0.0.1:{PORT}")]).body.decode()
    assert enter(client, token).status == 200, "none of these has used it up"


@pytest.mark.parametrize("token", ["", "x", "TOKEN", "%00", "é", "x" * 5000])
def test_another_token_opens_nothing(client: Client, token: str) -> None:
    assert enter(client, token).status == 403


def test_without_a_key_there_are_only_the_files_of_the_front_end(client: Client) -> None:
    host = ("host", f"127.0.0.1:{PORT}")
    for target in PUBLIC_ADDRESSES:
        answer = client.ask("GET", target, [host, ("sec-fetch-site", "cross-site")])  # from the file that opens it
        assert answer.status == 200
        assert target != "/" or b"study" not in answer.body
    assert client.ask("GET", "/nothing", [host]).status == 404
    assert client.ask("POST", "/", [host]).status == 404
    routes = [route for route in make_application(client.site).routes if isinstance(route, APIRoute)]
    token = token_of(client.site.keys.address())
    wrong = [
        [],
        [("x-cosmic", "")],
        [("x-cosmic", "1")],
        [("x-cosmic", token)],
        [("x-cosmic", client.key + "x")],
        [("x-cosmic", client.key[:-1])],
        [("x-cosmic", client.key), ("x-cosmic", client.key)],
        [("x-cosmic", "\xff\xfe")],
        [("cookie", f"cosmic-{PORT}={client.key}")],
        [("authorization", f"Bearer {client.key}")],
    ]
    asked = 0
    for route in routes:
        if route.path in PUBLIC_ADDRESSES:
            continue
        target = re.sub(r"{\w+}", "study", route.path)
        for method in route.methods or ():
            for headers in wrong:
                own = [host, ("origin", ORIGIN), ("content-type", "application/json")]
                answer = client.ask(method, target, [*own, *headers], b"{}")
                assert answer.status == 403, (method, target, headers)
                asked += 1
    assert asked > 150


def test_a_change_comes_from_the_page_itself(client: Client) -> None:
    own = {"origin": ORIGIN, "content-type": "application/json"}
    target, body = "/api/designs", json.dumps({"design": "gpt3-125m@dgx-h100:8"}).encode()

    def status(changes: dict[str, str | None]) -> int:
        headers = {**dict(client.usual), **own, **changes}
        return client.ask("POST", target, [(k, v) for k, v in headers.items() if v is not None], body).status

    assert status({}) == 200
    assert status({"content-type": "application/json; charset=utf-8"}) == 200
    for origin in (None, *ORIGINS):
        assert status({"origin": origin}) == 403, origin
    for site in ("cross-site", "same-site", "none", "", "SAME-ORIGIN"):
        assert status({"sec-fetch-site": site}) == 403, site
    for mark in (None, "", "0", "1", "true"):
        assert status({"x-cosmic": mark}) == 403, mark
    kinds = (None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx")
    for kind in kinds:
        assert status({"content-type": kind}) == 415, kind


def test_nothing_changes_by_anything_but_a_post(client: Client) -> None:
    posts = [r for r in make_application(client.site).routes if isinstance(r, APIRoute) and "POST" in (r.methods or ())]
    assert len(posts) >= 6
    for route in posts:
        target = route.path.replace("{study}", "study")
        assert client.get(target).status in (404, 405), target
        for method in ("HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "FOO", "get"):
            answer = client.ask(method, target, [*client.usual, ("origin", ORIGIN)], b"{}")
            assert answer.status == 405, (method, target)
            assert not any(name.startswith("access-control") for name, _ in answer.headers)


def test_another_site_cannot_read(client: Client) -> None:
    for header in (("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"), ("origin", "http://evil.com")):
        headers = [("host", f"127.0.0.1:{PORT}"), ("x-cosmic", client.key), header]
        assert client.ask("GET", "/api/studies", headers).status == 403


def test_every_answer_is_protected(client: Client) -> None:
    stranger = [("host", f"127.0.0.1:{PORT}")]
    answers = [
        client.get("/"),
        client.get("/app.js"),
        client.get("/nothing"),
        client.get("/api/studies"),
        client.get("/api/studies/study"),
        client.get("/api/nothing"),
        client.get("/api/studies/study/events"),
        client.post("/api/designs", {}),
        client.ask("GET", "/", stranger),
        enter(client, token_of(client.site.keys.address())),
        enter(client, "x"),
        client.ask("GET", "/", [("host", "evil.com")]),
    ]
    for answer in answers:
        assert answer.header("content-security-policy") == CONTENT_POLICY
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("cross-origin-opener-policy") == "same-origin"
        assert answer.header("cross-origin-resource-policy") == "same-origin"
        assert answer.header("referrer-policy") == "no-referrer"
        assert answer.header("cache-control") == "no-store"
        assert answer.header("x-frame-options") == "DENY"
        assert not any(name.lower().startswith("access-control") for name, _ in answer.headers)
    assert "unsafe" not in CONTENT_POLICY


def test_what_is_unknown_is_said_as_json_or_as_a_page(client: Client) -> None:
    api, page = client.get("/api/nothing"), client.get("/nothing")
    assert (api.status, page.status) == (404, 404)
    assert api.error == "address = '/api/nothing': nothing is at this address"
    assert page.header("content-type") == "text/html; charset=utf-8"
    assert b"nothing is at this address" in page.body
    assert client.get("/docs").status == client.get("/openapi.json").status == 404


def test_a_long_body_address_or_head_is_refused(client: Client) -> None:
    assert client.post("/api/designs", b"x" * (client.site.limits.body_bytes + 1)).status == 413
    claimed = [*client.usual, ("origin", ORIGIN), ("content-type", "application/json")]
    assert client.ask("POST", "/api/designs", [*claimed, ("content-length", "9" * 11)], b"{}").status == 413
    assert client.ask("POST", "/api/designs", [*claimed, ("content-length", "-1")], b"{}").status == 413
    assert client.get("/api/studies?" + "x" * 9000).status == 414
    assert client.get("/api/studies", [("x-a", "x" * 20_000)]).status == 431
    assert client.get("/api/studies", [("x-a", "x")] * 100).status == 431


def test_requests_that_come_too_fast_are_refused(runs: Path) -> None:
    now = 0.0
    site = site_at(runs)
    limits = Limits(requests_per_s=10, posts_per_s=2, strangers_per_s=5, burst_s=1)
    guard = RequestGuard(make_application(site), site.keys, limits, Rates(limits, lambda: now))
    stranger = [("host", f"127.0.0.1:{PORT}")]
    with Client(site, guard) as client:
        assert [client.ask("GET", "/api/studies", stranger).status for _ in range(6)] == [403] * 5 + [429]
        assert client.ask("GET", "/", stranger).status == 200, "the page itself always comes"
        assert enter(client, "x").status == 429
        assert enter(client, token_of(site.keys.address())).status == 200, "who has a token does not wait for strangers"
        assert [client.get("/api/session").status for _ in range(11)] == [200] * 10 + [429]
        now += 1.0
        assert [client.post("/api/designs", {}).status for _ in range(3)] == [422, 422, 429]
        assert client.ask("GET", "/api/studies", stranger).status == 403


def test_streams_are_bounded(runs: Path) -> None:
    with Client(site_at(runs, streams=0)) as client:
        answer = client.get("/api/studies/study/events")
    assert answer.status == 429
    assert "is the most that can be watched at once" in answer.error
    assert answer.header("retry-after") == "1"


def test_a_websocket_is_closed(client: Client) -> None:
    sent = []

    async def send(message: object) -> None:
        sent.append(message)

    async def receive() -> dict[str, object]:
        return {}

    client.loop.run_until_complete(client.guard({"type": "websocket", "path": "/", "headers": []}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
