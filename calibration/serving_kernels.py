"""Kernels of `serving_engine.py`, in Triton: norms, rotation, paged attention and experts.

Arguments in capitals are constants of a compiled kernel, as is usual in Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, residual, weight, out, width, EPS: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    real = at < width
    value = tl.load(residual + row * width + at, mask=real, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(x + row * width + at, mask=real, other=0.0).to(tl.float32)
        tl.store(residual + row * width + at, value, mask=real)
    scale = tl.rsqrt(tl.sum(value * value) / width + EPS)
    tl.store(out + row * width + at, value * scale * tl.load(weight + at, mask=real, other=0.0), mask=real)


@triton.jit
def silu_kernel(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = at < width
    gate = tl.load(x + row * 2 * width + at, mask=real, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * width + width + at, mask=real, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, gate * tl.sigmoid(gate) * up, mask=real)


@triton.jit
def rotate_kernel(
    qkv, positions, slots, table, cos, sin, keys, values, stride, table_stride,
    HEADS: tl.constexpr, KV: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, KV_ROWS: tl.constexpr,
    PAGE: tl.constexpr,
):  # fmt: skip
    """Rotate queries and keys in place; write keys and values to their page."""
    token = tl.program_id(0).to(tl.int64)
    position, slot = tl.load(positions + token), tl.load(slots + token)
    half: tl.constexpr = WIDTH // 2
    head, at = tl.arange(0, ROWS)[:, None], tl.arange(0, half)[None, :]
    real = (head < HEADS + KV) & (at < half)
    base = qkv + token * stride + head * WIDTH + at
    a, b = tl.load(base, mask=real, other=0.0).to(tl.float32), tl.load(base + half, mask=real, other=0.0).to(tl.float32)
    c, s = tl.load(cos + position * half + at), tl.load(sin + position * half + at)
    x, y = a * c - b * s, b * c + a * s
    tl.store(base, x, mask=real)
    tl.store(base + half, y, mask=real)
    row = tl.load(table + slot * table_stride + position // PAGE).to(tl.int64) * PAGE + position % PAGE
    key = real & (head >= HEADS)
    to = keys + row * (KV * WIDTH) + (head - HEADS) * WIDTH + at
    tl.store(to, x, mask=key)
    tl.store(to + half, y, mask=key)
    head, at = tl.arange(0, KV_ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    real = (head < KV) & (at < WIDTH)
    value = tl.load(qkv + token * stride + (HEADS + KV + head) * WIDTH + at, mask=real)
    tl.store(values + row * (KV * WIDTH) + head * WIDTH + at, value, mask=real)


@triton.jit
def decode_kernel(
    qkv, positions, slots, table, keys, values, out, part, lse, limit, scale, stride, table_stride,
    SPLITS: tl.constexpr, KV: tl.constexpr, WIDTH: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, PAGE: tl.constexpr, LIMITED: tl.constexpr,
):  # fmt: skip
    """Attend of one sequence's token, for the heads of one KV head, to a part of its context."""
    one, kv, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    if LIMITED:
        if one >= tl.load(limit):
            return
    tokens, slot = (tl.load(positions + one) + 1).to(tl.int32), tl.load(slots + one)
    share = tl.cdiv(tl.cdiv(tokens, SPLITS), BLOCK) * BLOCK
    first = split * share
    last = tl.minimum(first + share, tokens)
    group, at = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    head = kv * GROUP + group
    real = (group < GROUP)[:, None] & (at < WIDTH)[None, :]
    q = tl.load(qkv + one * stride + head[:, None] * WIDTH + at[None, :], mask=real, other=0.0)
    most = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in range(first, last, BLOCK):
        token = start + tl.arange(0, BLOCK)
        there = token < last
        page = tl.load(table + slot * table_stride + token // PAGE, mask=there, other=0).to(tl.int64)
        place = (page * PAGE + token % PAGE)[:, None] * (KV * WIDTH) + kv * WIDTH + at[None, :]
        k = tl.load(keys + place, mask=there[:, None], other=0.0)
        score = tl.dot(q, tl.trans(k)) * scale
        score = tl.where(there[None, :], score, -float("inf"))
        higher = tl.maximum(most, tl.max(score, 1))
        p = tl.exp2(score - higher[:, None])
        fade = tl.exp2(most - higher)
        v = tl.load(values + place, mask=there[:, None], other=0.0)
        total = total * fade + tl.sum(p, 1)
        sums = sums * fade[:, None] + tl.dot(p.to(v.dtype), v)
        most = higher
    heads: tl.constexpr = KV * GROUP
    if SPLITS == 1:
        tl.store(out + (one * heads + head[:, None]) * WIDTH + at[None, :], sums / total[:, None], mask=real)
    else:
        place = (one * heads + head) * SPLITS + split
        if first < last:
            tl.store(part + place[:, None] * WIDTH + at[None, :], sums / total[:, None], mask=real)
            tl.store(lse + place, most + tl.log2(total), mask=group < GROUP)
        else:
            tl.store(lse + place, most, mask=group < GROUP)


@triton.jit
def join_kernel(
    part, lse, out, limit, HEADS: tl.constexpr, SPLITS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    LIMITED: tl.constexpr,
):  # fmt: skip
    """Join the parts of a head's attention."""
    one = tl.program_id(0).to(tl.int64)
    if LIMITED:
        if one >= tl.load(limit) * HEADS:
            return
    split, at = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    weight = tl.load(lse + one * SPLITS + split, mask=split < SPLITS, other=-float("inf"))
    weight = tl.exp2(weight - tl.max(weight, 0))
    some = (weight > 0)[:, None] & (at < WIDTH)[None, :]
    parts = tl.load(part + (one * SPLITS + split)[:, None] * WIDTH + at[None, :], mask=some, other=0.0)
    tl.store(out + one * WIDTH + at, tl.sum(parts * weight[:, None], 0) / tl.sum(weight, 0))


@triton.jit
def route_kernel(logits, chosen, weights, counts, ranks, EXPERTS: tl.constexpr, TOP: tl.constexpr):
    """Choose the experts of a token; count the tokens of each."""
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, EXPERTS)
    score = tl.load(logits + token * EXPERTS + at).to(tl.float32)
    score = tl.exp(score - tl.max(score, 0))
    total = 0.0
    for place in tl.static_range(TOP):
        best = tl.argmax(score, 0)
        value = tl.max(score, 0)
        total += value
        tl.store(chosen + token * TOP + place, best)
        tl.store(weights + token * TOP + place, value)
        tl.store(ranks + token * TOP + place, tl.atomic_add(counts + best, 1))
        score = tl.where(at == best, -1.0, score)
    places = tl.arange(0, TOP)
    tl.debug_barrier()
    found = tl.load(weights + token * TOP + places)
    tl.store(weights + token * TOP + places, found / total)


@triton.jit
def offsets_kernel(counts, starts, tiles, EXPERTS: tl.constexpr, ROWS: tl.constexpr):
    """Say where the rows of each expert begin, and its tiles of so many rows end."""
    at = tl.arange(0, EXPERTS)
    count = tl.load(counts + at)
    tl.store(starts + at, tl.cumsum(count, 0) - count)
    tl.store(tiles + at, tl.cumsum((count + ROWS - 1) // ROWS, 0))


@triton.jit
def sorted_kernel(chosen, ranks, starts, order, total, BLOCK: tl.constexpr):
    """Say which token, and which of its experts, each row is of."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < total
    expert = tl.load(chosen + at, mask=real, other=0)
    row = tl.load(starts + expert, mask=real, other=0) + tl.load(ranks + at, mask=real, other=0)
    tl.store(order + row, at, mask=real)


@triton.jit
def expert_kernel(
    x, w, out, order, starts, counts, tiles, weights, width, columns,
    EXPERTS: tl.constexpr, TOP: tl.constexpr, GATHER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Multiply a tile of an expert's rows: gathered from their tokens, or weighed and put back where they came from."""
    tile, at = tl.program_id(0), tl.arange(0, EXPERTS)
    ends = tl.load(tiles + at)
    expert = tl.sum((ends <= tile).to(tl.int32), 0)
    if expert >= EXPERTS:
        return
    before = tl.sum(
        tl.where(at < expert, ends - tl.where(at > 0, tl.load(tiles + at - 1, mask=at > 0, other=0), 0), 0), 0
    )
    first = (tile - before) * ROWS
    m, k = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    real = first + m < tl.load(counts + expert)
    row = tl.load(starts + expert) + first + m
    source = tl.load(order + row, mask=real, other=0)
    inputs = (source // TOP if GATHER else row).to(tl.int64)
    a_at = x + inputs[:, None] * width + k[None, :]
    b_at = w + expert.to(tl.int64) * width * columns + n[:, None].to(tl.int64) * width + k[None, :]
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for _ in range(0, width, BLOCK):
        a = tl.load(a_at, mask=real[:, None], other=0.0)
        sums = tl.dot(a, tl.trans(tl.load(b_at)), sums)
        a_at += BLOCK
        b_at += BLOCK
    if GATHER:
        to = row.to(tl.int64)
    else:
        to = source.to(tl.int64)
        sums = sums * tl.load(weights + source, mask=real, other=0.0)[:, None]
    tl.store(out + to[:, None] * columns + n[None, :], sums, mask=real[:, None])


@triton.jit
def prefill_kernel(
    qkv, tiles, table, keys, values, out, scale, stride, table_stride,
    HEADS: tl.constexpr, KV: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
    PAGE: tl.constexpr,
):  # fmt: skip
    """Attend of a tile of a prompt's tokens, for one head, to all before them."""
    tile, head = tl.program_id(1), tl.program_id(0)
    row, rows = tl.load(tiles + 4 * tile), tl.load(tiles + 4 * tile + 1).to(tl.int32)
    position, slot = tl.load(tiles + 4 * tile + 2).to(tl.int32), tl.load(tiles + 4 * tile + 3)
    if rows == 0:
        return
    kv = head // (HEADS // KV)
    m, at, n = tl.arange(0, TILE), tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    real = (m < rows)[:, None] & (at < WIDTH)[None, :]
    q = tl.load(qkv + (row + m)[:, None] * stride + head * WIDTH + at[None, :], mask=real, other=0.0)
    most = tl.full([TILE], -float("inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    sums = tl.zeros([TILE, WIDTH], tl.float32)
    pages = table + slot * table_stride
    seen = (position + 1) // BLOCK * BLOCK  # all of the tile's tokens attend to these
    for start in range(0, seen, BLOCK):
        token = start + n
        page = tl.load(pages + token // PAGE).to(tl.int64)
        place = (page * PAGE + token % PAGE)[:, None] * (KV * WIDTH) + kv * WIDTH + at[None, :]
        score = tl.dot(q, tl.trans(tl.load(keys + place))) * scale
        higher = tl.maximum(most, tl.max(score, 1))
        p = tl.exp2(score - higher[:, None])
        fade = tl.exp2(most - higher)
        v = tl.load(values + place)
        total = total * fade + tl.sum(p, 1)
        sums = tl.dot(p.to(v.dtype), v, sums * fade[:, None])
        most = higher
    for start in range(seen, position + rows, BLOCK):
        token = start + n
        there = token < position + rows
        page = tl.load(pages + token // PAGE, mask=there, other=0).to(tl.int64)
        place = (page * PAGE + token % PAGE)[:, None] * (KV * WIDTH) + kv * WIDTH + at[None, :]
        score = tl.dot(q, tl.trans(tl.load(keys + place, mask=there[:, None], other=0.0))) * scale
        score = tl.where((position + m)[:, None] >= token[None, :], score, -float("inf"))
        higher = tl.maximum(most, tl.max(score, 1))
        p = tl.exp2(score - higher[:, None])
        fade = tl.exp2(most - higher)
        v = tl.load(values + place, mask=there[:, None], other=0.0)
        total = total * fade + tl.sum(p, 1)
        sums = tl.dot(p.to(v.dtype), v, sums * fade[:, None])
        most = higher
    tl.store(out + (row + m)[:, None] * (HEADS * WIDTH) + head * WIDTH + at[None, :], sums / total[:, None], mask=real)
