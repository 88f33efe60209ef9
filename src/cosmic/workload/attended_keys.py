"""What share of the keys queries see: causal masks, windows, packed documents, compressed keys."""

from __future__ import annotations

import numpy as np

from cosmic.base.numeric import Numeric, floats
from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import SparseAttention, Transformer
from cosmic.design.program_model import ProgramModel
from cosmic.workload.model_blocks import Block


def visible_share(batch: Batch, block: Block) -> Numeric:
    """Return the share of the keys that a query of self-attention sees, on average over positions and layers.

    Where cp ranks take one chunk of the sequence each, it is the last rank's; of packed documents, all ranks have
    about as many.
    """
    model, workload = batch.base.model, batch.base.workload
    if isinstance(model, ProgramModel):
        return causal_share(batch["workload.sequence"])
    if not isinstance(model, Transformer):
        return 1.0
    s = floats(batch["workload.sequence"])
    document = document_length(batch)
    before = 0.0 if workload.cp_balanced else s - s / batch["workload.cp"]
    decoding = workload.task == "decode"
    return attended_share(model, block.name, s, decoding=decoding, before=before, document=document)


def causal_share(sequence: Numeric) -> Numeric:
    """Return the share of the keys that a query of a causal attention sees on average, its own included.

    >>> float(causal_share(4))
    0.625
    """
    return (floats(sequence) + 1) / (2 * floats(sequence))


def document_length(batch: Batch) -> Numeric | None:
    """Return the tokens of the document that a token of a packed sequence is in, on average; None if not packed.

    Longer documents have more tokens: it is E[l²] / E[l] = E[l] (1 + spread²), and a sequence at most.
    """
    workload = batch.base.workload
    if workload.task != "training" or workload.packed_length is None:
        return None
    length = workload.packed_length * (1 + workload.packed_spread * workload.packed_spread)
    return np.minimum(length, floats(batch["workload.sequence"]))


def attended_share(
    model: Transformer,
    block: str,
    sequence: Numeric,
    *,
    decoding: bool = False,
    before: Numeric = 0.0,
    document: Numeric | None = None,
) -> Numeric:
    """Return the share of the keys that a query of self-attention sees, on average over positions and layers.

    A causal mask shows position i the i keys up to its own, a window w of them at most. Over the positions that follow
    the first *before* of s they see

        ( p(s) - p(before) ) / ( (s - before) s )        p(n) = m (m + 1) / 2 + w (n - m),  m = min(n, w)

    keys on average; w = s without a window. When decoding, the one query sees everything, or its window. A query of a
    packed sequence sees what it would in a sequence of its own, as long as its *document*.
    """
    if document is not None:
        alone = attended_share(model, block, document, decoding=decoding)
        return alone * document / floats(sequence)
    if model.family in ("encoder", "vision") or block == "encoder_layer":
        return 1.0
    s = floats(sequence)

    def seen(window: Numeric) -> Numeric:
        if decoding:
            return np.minimum(window, s) / s
        # Of a causal mask: pairs of a query and a key up to it, over all pairs of the rank's queries with all keys.
        return (_count_pairs(s, window) - _count_pairs(before, window)) / ((s - before) * s)

    if block.startswith(("window_", "sparse_", "heavy_")) and model.sparse:
        return seen(np.minimum(float(model.sparse.window), s)) + _compressed_share(
            model.sparse, block, s, decoding, before
        )
    if model.window is None:
        return seen(s)
    # Every n-th layer attends to everything, the others to their window: the mean over layers.
    full = 0.0 if model.full_attention_every is None else 1 / model.full_attention_every
    windowed = (1 - full) * seen(np.minimum(float(model.window), s))
    return windowed + full * seen(s) if full else windowed


def _compressed_share(
    sparse: SparseAttention, block: str, sequence: Numeric, decoding: bool, before: Numeric
) -> Numeric:
    """Return the compressed keys that a query reads, on average, over all tokens of its sequence.

    Position i has i / b compressed keys before it, of which a query of layers C reads k at most.
    """
    tokens = sparse.compressed(block)
    if not tokens:
        return 0.0
    most_keys = float(sparse.picked) if block.startswith("sparse_") else sequence / tokens
    if decoding:
        return np.minimum(most_keys, sequence / tokens) / sequence

    def read(queries: Numeric) -> Numeric:
        # Position i has i / b compressed keys before it: the sum grows as i^2 / 2b until a query reads its most.
        growing: Numeric = np.minimum(queries, most_keys * tokens)
        return growing * growing / (2 * tokens) + most_keys * (queries - growing)

    return (read(sequence) - read(before)) / ((sequence - before) * sequence)


def _count_pairs(queries: Numeric, window: Numeric) -> Numeric:
    """Return the keys that the first *queries* of a sequence see together, at most *window* each.

    >>> float(_count_pairs(4, 4)), float(_count_pairs(4, 2))
    (10.0, 7.0)
    """
    alone: Numeric = np.minimum(queries, window)
    return alone * (alone + 1) / 2 + window * (queries - alone)
