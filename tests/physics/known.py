"""Relations that some designs contradict, and why. A relation that holds is not listed."""

from __future__ import annotations

FLOP = "model flop ignore windows"
COVER = "weights hide behind exposed collectives, but not behind hidden ones: what overlaps counts twice"
HOST = "a launch-bound pass stretches every operator by one factor"

KNOWN: dict[str, str] = {
    "peak": FLOP,
    "hfu, mfu": FLOP,
    "hfu = mfu": "hardware flop are those of the fullest stage; experts are repeated over tp",
    "network bandwidth": "Themis levels loads by bandwidth alone",
    "tp overlap": COVER,
    "ep overlap": COVER,
    "placement": "experts over the ranks of cp are placed as those of dp",
    "whole model": "memory is that of the first or the last stage",
    "recompute memory": "alternate adds a whole layer to what it keeps; selective never counts the recomputed core",
    "recompute time": "weights of recomputed and other operators are gathered in two calls where layers alternate",
    "engines agree": "the event engine ignores overlap switches and offloading",
    "hardware, simulated": HOST,
    "work, simulated": HOST,
    "overlap, simulated": HOST,
}
"""Reasons by the name of a relation."""
