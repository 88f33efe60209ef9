"""What there is: models, accelerators, systems, spaces, and the variants of every registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.base.lazy_names import offer_names

if TYPE_CHECKING:
    from cosmic.base.errors import UnknownName
    from cosmic.design.catalog_entries import load_mapping
    from cosmic.search.catalog_listing import list_entries as list
    from cosmic.search.catalog_listing import show_entry as show
else:
    __getattr__, __dir__ = offer_names(
        __name__,
        {
            "UnknownName": "cosmic.base.errors",
            "list": "cosmic.search.catalog_listing:list_entries",
            "load_mapping": "cosmic.design.catalog_entries",
            "show": "cosmic.search.catalog_listing:show_entry",
        },
    )

__all__ = [
    "UnknownName",
    "list",
    "load_mapping",
    "show",
]
