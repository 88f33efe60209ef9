"""XML from outside: parsed without entities, which could expand without end or name files."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from cosmic.errors import SpecError, require

_DOCTYPE = re.compile(r"<!(DOCTYPE|ENTITY)", re.IGNORECASE)


def parse_xml(text: str, where: str) -> ElementTree.Element:
    """Return the root element of *text*; refuse a DOCTYPE, without which there are no entities.

    >>> parse_xml("<algo ngpus='2'/>", "a.xml").get("ngpus")
    '2'
    """
    require(not _DOCTYPE.search(text), where, "<!DOCTYPE", "a document type and entities are not read")
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # an unknown encoding is a LookupError
        raise SpecError(where, text[:40], f"is no valid XML: {error}") from None
