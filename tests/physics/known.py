"""Relations that some designs contradict, and why. A relation that holds is not listed."""

from __future__ import annotations

FLOP = "model flop ignore windows; hardware flop are those of the fullest stage, not of the mean device"
COVER = "the same compute hides ring attention, gradients and launches; zero-bubble where the host binds"
HOST = "a launch-bound pass stretches every operator, recomputed ones and the head's too, by one factor"
STAGES = "memory is that of the first or the last stage"

KNOWN: dict[str, str] = {
    "peak": FLOP,
    "hfu, mfu": FLOP,
    "hfu = mfu": FLOP,
    "network bandwidth": "Themis levels loads by bandwidth, whatever the latency",
    "flop": COVER,
    "kernel efficiency": COVER,
    "launches": COVER,
    "memory bandwidth": COVER,
    "more sequences": COVER,
    "longer sequence": COVER,
    "larger model": STAGES,
    "whole model": STAGES,
    "recompute memory": "alternate adds a whole layer to what it keeps; selective never counts the recomputed core",
    "recompute time": "weights of recomputed and other operators are gathered in two calls where layers alternate",
    "engines agree": "the event engine ignores overlap switches and offloading, and stretches launch-bound passes",
    "hardware, simulated": HOST,
    "work, simulated": HOST,
    "overlap, simulated": HOST,
}
"""Reasons by the name of a relation."""
