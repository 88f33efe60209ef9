"""Errors as the server answers them: an HTTP status and one sentence, without paths or stack traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cosmic.errors import BackendError, CosmicError, SpecError, one_line

BAD_REQUEST, FORBIDDEN, NOT_FOUND, BAD_METHOD, CONFLICT = 400, 403, 404, 405, 409
TOO_LARGE, LONG_ADDRESS, BAD_TYPE, BAD_VALUE, TOO_MANY, LONG_HEADERS, BUSY = 413, 414, 415, 422, 429, 431, 503
PACKAGE = Path(__file__).parents[1]
LONGEST = 400
"""Characters of a sentence, which quotes the request."""


class Refusal(CosmicError):  # noqa: N818  its base says that it is an error
    """A request that is refused.

    >>> print(Refusal(404, "study", "../x", "no such study"))
    study = '../x': no such study
    """

    def __init__(self, status: int, where: str, value: Any, rule: str) -> None:
        super().__init__(str(SpecError(where, value, rule)))
        self.status = status


def status_of(error: CosmicError) -> int:
    """Return the HTTP status of an error: whether the request or the state of a study is at fault."""
    if isinstance(error, Refusal):
        return error.status
    return CONFLICT if isinstance(error, BackendError) else BAD_VALUE


def sentence(error: CosmicError, root: Path) -> str:
    """Return the sentence of an error without paths of this machine: a study is known by its name.

    >>> sentence(CosmicError("/somewhere/runs/demo: its trials are damaged"), Path("/somewhere/runs"))
    'demo: its trials are damaged'
    """
    text = str(error)
    for place in (root, PACKAGE, Path.cwd(), Path.home()):
        if len(place.parts) > 1:  # a root of "/" would take every slash
            text = text.replace(f"{place}/", "").replace(str(place), "the directory")
    text = one_line(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
