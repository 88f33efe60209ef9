"""What a page holds, read back from its file."""

from __future__ import annotations

import gzip
import re
from base64 import b64decode
from typing import Any

from tests.report.publishing.unpacking import unpack_container


def held_by(page: str) -> tuple[dict[str, Any], bytes]:
    """Return the document of a page, and the numbers that it points to."""
    found = re.search(r'id="cosmic-document">([^<]*)<', page)
    assert found
    return unpack_container(gzip.decompress(b64decode(found[1])))
