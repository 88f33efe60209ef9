"""Whatever is sent, the answer is a sentence and a status below 500."""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice

import pytest

from cosmic.report.live.server import make_application
from tests.report.live.asking import Client, tell
from tests.report.live.malformed import requests

REQUESTS = 10_000


@pytest.mark.long
def test_ten_thousand_malformed_requests_fail_nothing(client: Client) -> None:
    statuses: Counter[int] = Counter()
    slowest = 0.0
    for asked in islice(requests(make_application(client.site).routes, client.key, seed=8), REQUESTS):
        began = time.perf_counter()
        answer = client.ask(asked.method, asked.target, [*asked.headers], asked.body)
        slowest = max(slowest, time.perf_counter() - began)
        statuses[answer.status] += 1
        assert 200 <= answer.status < 500, asked
        assert b"Traceback" not in answer.body, asked
        if answer.status >= 400 and asked.target.startswith("/api"):
            assert str(client.site.root.path) not in answer.error, asked
            assert "/site-packages/" not in answer.error, asked
            assert "\n" not in answer.error, asked
    tell(f"{REQUESTS} requests: {dict(sorted(statuses.items()))}, slowest {slowest:.2f} s")
    assert sum(count for status, count in statuses.items() if status >= 400) > REQUESTS / 2
    assert statuses[200] > REQUESTS / 50, "some get through, or nothing behind the guard was tried"
    assert slowest < client.site.limits.seconds
