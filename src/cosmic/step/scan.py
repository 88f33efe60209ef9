"""How long the scan of a state space takes on one accelerator: forward, backward, and one token of each sequence.

Mamba-2 and gated DeltaNet compute a sequence in chunks of q tokens: matrix products within a chunk, and a state of H
matrices of N by P that is passed from chunk to chunk. The kernels are small products between passes over memory, and
hide little of one behind the other:

    t = bytes / (pace B)  +  flop / (r SMs)  +  kernels * gap

    bytes / token = streams H P w  +  shared G N w  +  states 4 H P N / q  +  scores 4 S q

    r      flop per second of an SM: decays are multiplied into every operand of a product, so that the rates of single
           operations bound it, which are those of all SMs since Ampere, not that of its matrix unit
    w      bytes of an activation; states and scores are in single precision
    S      matrices of scores within a chunk: one for each group in Mamba-2, for each head in a gated DeltaNet
    streams, shared, states, scores   how often kernels read or write each, forward and backward

Mamba-1 has a decay for each channel and state, and no matrix products: a kernel steps through the tokens, with one
exponential for each channel and state.

    t = max( bytes / (pace B),  D N / (SMs * exponentials / s * e) )

A decoded token reads and writes the state of its sequence:

    t = 2 * 4 H P N / B

`catalog/constants/scan.yaml` has the passes and the rates, with their sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.catalog_entries import load_constants

STATE_BYTES = 4
"""States and scores are in single precision: so are Nemotron 3's (``mamba_ssm_cache_dtype``) and Qwen3-Next's."""
ScanKind = Literal["ssd_scan", "delta_scan", "selective_scan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTraffic:
    """What the kernels of a scan move in one pass: how often each tensor is read or written."""

    kernels: float
    streams: float
    shared: float
    states: float
    scores: float
    work: float
    """Operations over those of the forward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPasses:
    """Of both passes."""

    forward: ScanTraffic
    backward: ScanTraffic


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanConstants:
    """Constants that all accelerators have in common."""

    ssd_scan: ScanPasses
    delta_scan: ScanPasses
    selective_scan: ScanPasses
    pace: float
    """Share of the bandwidth of a copy at which chunked kernels stream."""
    sm_flop_per_s: float
    """Rate of the products of chunks on one SM, of all accelerators alike."""
    exponential_rate: float
    """Exponentials per second of one SM, of all accelerators alike."""
    exponential_efficiency: float
    """Share of it that the recurrence of Mamba-1 reaches."""


CONSTANTS = load_constants("scan", ScanConstants)


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan on one accelerator: numbers, or arrays over a batch."""

    kind: ScanKind
    sequences: Numeric
    tokens: Numeric
    """Of one sequence."""
    heads: Numeric
    head_dim: Numeric
    groups: Numeric
    state: Numeric
    chunk: Numeric
    element_bytes: Numeric = 2
    flop: Numeric = 0.0
    """Of the products of the forward pass."""

    @property
    def state_bytes(self) -> Numeric:
        """Of one sequence."""
        return STATE_BYTES * self.heads * self.head_dim * self.state


@dataclass(frozen=True, slots=True)
class ScanRates:
    """How fast an accelerator runs scans."""

    bytes_per_s: Numeric
    """Memory bandwidth of a copy."""
    sms: Numeric
    gap_s: Numeric = 0.0
    """Between two kernels."""


def scan_passes(kind: ScanKind, phase: str) -> ScanTraffic:
    """Return what the kernels of a scan move, forward or backward."""
    passes: ScanPasses = getattr(CONSTANTS, kind)
    return passes.forward if phase == "forward" else passes.backward


def scan_bytes(work: Scan, moved: ScanTraffic) -> Numeric:
    """Return the bytes that one pass moves.

    >>> one = ScanTraffic(kernels=1, streams=1, shared=1, states=1, scores=1, work=1)
    >>> float(scan_bytes(Scan("ssd_scan", 1, 128, 2, 64, 1, 16, 128), one))
    110592.0
    """
    chunk = np.minimum(work.chunk, work.tokens)
    scored = work.groups if work.kind == "ssd_scan" else work.heads
    streamed = moved.streams * work.heads * work.head_dim + moved.shared * work.groups * work.state
    bytes_per_element = work.element_bytes * streamed + moved.states * work.state_bytes / chunk
    return work.sequences * work.tokens * (bytes_per_element + STATE_BYTES * moved.scores * scored * chunk)


def scan_seconds(work: Scan, phase: str, rates: ScanRates) -> Numeric:
    """Return the seconds of one pass.

    >>> granite = Scan("ssd_scan", 1, 16384, 128, 64, 1, 128, 256, flop=16384 * 6.33e6)
    >>> float(round(scan_seconds(granite, "forward", ScanRates(3e12, 132)) * 1e3, 2))
    1.28
    """
    moved = scan_passes(work.kind, phase)
    streaming = scan_bytes(work, moved) / (CONSTANTS.pace * rates.bytes_per_s)
    if work.kind == "selective_scan":
        steps = work.sequences * work.tokens * work.heads * work.head_dim * work.state * moved.work
        rate = rates.sms * CONSTANTS.exponential_rate * CONSTANTS.exponential_efficiency
        return np.maximum(streaming, steps / rate) + moved.kernels * rates.gap_s
    return streaming + moved.work * work.flop / (CONSTANTS.sm_flop_per_s * rates.sms) + moved.kernels * rates.gap_s


def decode_scan_seconds(work: Scan, rates: ScanRates) -> Numeric:
    """Return the seconds to advance the state of every sequence by one token: it is read and written.

    >>> nano = Scan("ssd_scan", 32, 1, 64, 64, 8, 128, 128)
    >>> float(round(decode_scan_seconds(nano, ScanRates(4e12, 132)) * 1e6, 1))
    33.6
    """
    return work.sequences * 2 * work.state_bytes / rates.bytes_per_s + rates.gap_s
