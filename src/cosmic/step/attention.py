"""How long fused attention takes on one accelerator: forward, backward, and one query against a cache.

A fused kernel gives each SM tiles of 128 queries of one head, and walks along the keys in tiles of 128:

    t = p * Q K * ( n * m + x * l )  +  ceil(n) * ramp        (or the time to move its tensors, if that is longer)

    n  query tiles for each of M SMs, b a ceil(s/Q) / M            Q, K  128 queries, 128 keys
    m  mean number of key tiles for a query tile                   l     the largest number
    x  idle time at the end, in query tiles of l key tiles         ramp  filling and draining one tile
    p  seconds for one pair of query and key on one SM

Without a mask all query tiles are equally long, and SMs idle in the last wave: m = l, x = ceil(n) - n. With a mask
they differ, and x is a share of the longest. A tile on the diagonal is computed whole: on average half a tile more.

    p = 2 (d_qk + d_v + 2 w) / (r e)            forward: two products
    p = 2 (3 d_qk + 2 d_v + 5 w) / (r e')       backward: five products, as scores are recomputed
    r = (peak / M) (128 + w) / 128

    d_qk, d_v  widths of keys and values, filled up to a multiple of 64
    e, e'      share of the peak at width 128 on long sequences
    w          head width that takes as long as the exponentials of a pair: they make narrow heads slower

The backward pass also streams: before, the output and its gradient, to multiply them; after, the gradient of queries in
single precision (cleared, added to, and rounded). Heads wider than 128 do not fit the registers of its tiles: backward,
their products take *wide_backward* times as long.

Dao, FlashAttention-2, ICLR 2024 and Shah et al., FlashAttention-3, NeurIPS 2024 describe such kernels. The constants
are those of Hopper; `calibration/fit_kernels.py` fits the efficiencies and the ramp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cosmic.base.numeric import Condition, Numeric, where
from cosmic.design.catalog_entries import load_constants

QUERY_TILE = 128
KEY_TILE = 128
WIDTH_TILE = 64
"""Head widths are padded to a multiple of this: 80 columns take as long as 128."""
USUAL_WIDTH = 128
"""The head width at which efficiencies are stated."""
GRADIENT_STREAM_BYTES = 3 * 4
"""Gradient of queries in single precision: cleared, written, read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakShares:
    """Shares of the peak, forward and backward."""

    forward: float
    backward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConstants:
    """Constants that all accelerators have in common, stated for Hopper."""

    softmax_width: float
    """Head width whose two forward products take as long as the exponential of a pair. In one cycle an SM of Hopper
    makes 16 exponentials or 4096 flop of products: an exponential takes as long as 256 flop. Other SMs make as many
    exponentials beside other rates of products: Ampere's 2048 flop make it 32, Blackwell's 8192 make it 128."""
    hopper_flop_per_s: float
    hopper_sms: float
    exposed_tail: float
    """Share of the longest masked tile for which only the last SM is busy."""
    one_reader: float
    """Rate at which one SM can read, relative to its share of the memory's bandwidth."""
    wide_backward: float
    """Time of the backward products of heads wider than `USUAL_WIDTH`, over that of the same work in narrower ones."""
    read_alone: float
    """Rate of reading alone relative to reading and writing, which loses time to bus turnaround."""
    flash1: PeakShares
    """Shares of an A100's peak that the first FlashAttention reaches."""
    flash2: PeakShares
    """The same of FlashAttention-2."""
    earlier_flop_per_s: float
    """What the instructions of Ampere reach on one SM of a later accelerator: both generations use no others."""


CONSTANTS = load_constants("attention", AttentionConstants)


@dataclass(frozen=True, slots=True)
class Attention:
    """One call of attention on one accelerator: numbers, or arrays over a batch."""

    batch: Numeric
    heads: Numeric
    kv_heads: Numeric
    queries: Numeric
    keys: Numeric
    width: Numeric
    """Of queries and keys."""
    value_width: Numeric
    visible: Numeric = 1.0
    """Share of all pairs of query and key that are computed: about half with a causal mask."""
    element_bytes: Numeric = 2
    mla: bool = False
    """MLA: values are part of the keys, and read with them."""


@dataclass(frozen=True, slots=True)
class AttentionRates:
    """How fast an accelerator runs attention kernels."""

    peak_flop_per_s: Numeric
    bytes_per_s: Numeric
    """Memory bandwidth that streaming kernels reach."""
    efficiency: Numeric
    backward_efficiency: Numeric
    ramp_s: Numeric = 0.0
    """Filling and draining of one tile in the forward pass; backward 2.5 times as long, for five products, not two."""
    sms: Numeric = 0
    """SMs, each of which works on one tile at a time; 0 where not known: then the number of Hopper counts."""
    splits_keys: Condition = True
    """Whether kernels that decode split the keys of a sequence over SMs."""

    @property
    def softmax_width(self) -> Numeric:
        """The head width that takes as long as the exponentials."""
        hopper_sm_flop_per_s = CONSTANTS.hopper_flop_per_s / CONSTANTS.hopper_sms
        return CONSTANTS.softmax_width * self.peak_flop_per_s / self.sms_or_hopper / hopper_sm_flop_per_s

    @property
    def sms_or_hopper(self) -> Numeric:
        """The SMs, or those of Hopper where their number is not known."""
        return where(np.asanyarray(self.sms) > 0, self.sms, CONSTANTS.hopper_sms)


def limit_to_generation(rates: AttentionRates, generation: str) -> AttentionRates:
    """Return the rates of an earlier generation of kernels, flash1 or flash2, where it is slower.

    Its share of the peak falls as far as an SM's peak is above what the instructions of its time reach.

    >>> h100 = AttentionRates(989.4e12, 3e12, efficiency=0.704, backward_efficiency=0.614, sms=132)
    >>> [float(round(limit_to_generation(h100, each).efficiency, 2)) for each in ("flash1", "flash2", "fused")]
    [0.21, 0.37, 0.7]
    """
    if generation not in ("flash1", "flash2"):
        return rates
    shares = CONSTANTS.flash1 if generation == "flash1" else CONSTANTS.flash2
    used = np.minimum(1.0, CONSTANTS.earlier_flop_per_s * rates.sms_or_hopper / rates.peak_flop_per_s)
    return replace(
        rates,
        efficiency=np.minimum(rates.efficiency, shares.forward * used),
        backward_efficiency=np.minimum(rates.backward_efficiency, shares.backward * used),
    )


def attention_seconds(work: Attention, rates: AttentionRates) -> Numeric:
    """Return the seconds of the forward kernel.

    >>> h200 = AttentionRates(989e12, 4.3e12, efficiency=0.7, backward_efficiency=0.6, ramp_s=2e-6)
    >>> float(round(attention_seconds(Attention(1, 32, 32, 8192, 8192, 128, 128), h200) * 1e3, 2))
    1.67
    """
    width, values = _padded_width(work.width), _padded_width(work.value_width)
    pair_flop = 2 * (width + values + 2 * rates.softmax_width)
    reached = _without_softmax(rates.efficiency, rates)
    computing = _tiles_seconds(work, rates, pair_flop / reached, rates.ramp_s)
    return np.maximum(computing, _tensor_bytes(work) / rates.bytes_per_s)


def attention_backward_seconds(work: Attention, rates: AttentionRates) -> Numeric:
    """Return the seconds of the backward kernels: the gradients of queries, keys and values.

    >>> h200 = AttentionRates(989e12, 4.3e12, efficiency=0.7, backward_efficiency=0.6, ramp_s=2e-6)
    >>> float(round(attention_backward_seconds(Attention(1, 32, 32, 8192, 8192, 128, 128), h200) * 1e3, 2))
    5.0
    """
    width, values = _padded_width(work.width), _padded_width(work.value_width)
    narrow = np.minimum(work.width, work.value_width) <= USUAL_WIDTH
    slower = where(narrow, 1.0, CONSTANTS.wide_backward)
    pair_flop = 2 * (3 * width + 2 * values + 5 * rates.softmax_width) * slower
    reached = _without_softmax(rates.backward_efficiency, rates)
    computing = _tiles_seconds(work, rates, pair_flop / reached, 2.5 * rates.ramp_s)
    rows = work.batch * work.heads * work.queries
    streamed = rows * (2 * work.value_width * work.element_bytes + work.width * (GRADIENT_STREAM_BYTES + 2))
    return np.maximum(computing, 2 * _tensor_bytes(work) / rates.bytes_per_s) + streamed / rates.bytes_per_s


def decode_attention_seconds(work: Attention, rates: AttentionRates) -> Numeric:
    """Return the seconds of attention of few queries to a long KV cache: mostly the time to read the cache.

        t = max(cache / (B min(1, readers * 1.25 / M)), 2 pairs (d_qk + d_v) / (e peak))  +  ramp

    The products take longer than the read where many heads share one KV head, as in MLA.

    Kernels that split the keys of a sequence over SMs use the whole bandwidth B. Without a split, one SM reads each
    KV head of a sequence, and a few sequences leave most of the bandwidth idle. Query heads of a group share a read.

    >>> h200 = AttentionRates(989e12, 4.2e12, efficiency=0.7, backward_efficiency=0.6, ramp_s=2e-6)
    >>> one = Attention(1, 64, 8, 1, 4096, 128, 128)
    >>> [float(round(decode_attention_seconds(one, replace(h200, splits_keys=split)) * 1e6, 1)) for split in (True, False)]
    [5.8, 52.2]
    """
    widths, visible_keys = work.width + work.value_width, work.batch * work.keys * work.visible
    cache = work.kv_heads * visible_keys * (work.width if work.mla else widths) * work.element_bytes
    computing = 2 * work.heads * work.queries * visible_keys * widths / (rates.efficiency * rates.peak_flop_per_s)
    readers = np.where(rates.splits_keys, rates.sms_or_hopper, work.batch * work.kv_heads)
    share = np.minimum(1.0, readers * CONSTANTS.one_reader / rates.sms_or_hopper)
    return np.maximum(cache / (rates.bytes_per_s * CONSTANTS.read_alone * share), computing) + rates.ramp_s


def _padded_width(width: Numeric) -> Numeric:
    return np.ceil(width / WIDTH_TILE) * WIDTH_TILE


def _without_softmax(efficiency: Numeric, rates: AttentionRates) -> Numeric:
    """Return the efficiency of the products alone, given that of products and exponentials at the usual width."""
    return efficiency * (USUAL_WIDTH + rates.softmax_width) / USUAL_WIDTH


def _tiles_seconds(work: Attention, rates: AttentionRates, pair_flop: Numeric, ramp_s: Numeric) -> Numeric:
    """Return the seconds until the busiest SM has finished its tiles; *pair_flop* is flop at the full peak."""
    sms = rates.sms_or_hopper
    key_tiles: Numeric = np.ceil(work.keys / KEY_TILE)
    load: Numeric = work.batch * work.heads * np.ceil(work.queries / QUERY_TILE) / sms
    waves: Numeric = np.ceil(load)
    masked = work.visible < 1
    mean = np.minimum(key_tiles * work.visible + 0.5 * masked, key_tiles)
    longest = key_tiles * np.minimum(1.0, 2 * work.visible)
    waiting = np.where(masked, CONSTANTS.exposed_tail, waves - load) * longest
    tile_s = QUERY_TILE * KEY_TILE * pair_flop * sms / rates.peak_flop_per_s
    return tile_s * (load * mean + waiting) + waves * ramp_s


def _tensor_bytes(work: Attention) -> Numeric:
    """Return the bytes of queries, keys, values and output, each moved once."""
    widths = work.width + work.value_width
    rows = work.heads * work.queries + work.kv_heads * work.keys
    return work.batch * rows * widths * work.element_bytes
