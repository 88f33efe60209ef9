"""Two designs beside each other: what differs, what each difference is worth, and what a mapping of its own adds."""

from __future__ import annotations

from cosmic.comparing.contrast import (
    Between,
    Contrast,
    Difference,
    Fields,
    Side,
    compare_designs,
    differing_fields,
    finer_group_of,
    group_of,
)
from cosmic.comparing.remapping import Pair, Split, load_pair, mapping_in_words, split_gain, value_at
from cosmic.comparing.words import as_text, verdict, words
from cosmic.comparing.worth import EXACT, ORDERS, Group, Method, attribute, coupled, sampled, shapley

__all__ = [
    "EXACT",
    "ORDERS",
    "Between",
    "Contrast",
    "Difference",
    "Fields",
    "Group",
    "Method",
    "Pair",
    "Side",
    "Split",
    "as_text",
    "attribute",
    "compare_designs",
    "coupled",
    "differing_fields",
    "finer_group_of",
    "group_of",
    "load_pair",
    "mapping_in_words",
    "sampled",
    "shapley",
    "split_gain",
    "value_at",
    "verdict",
    "words",
]
