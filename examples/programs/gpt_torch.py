"""A GPT as a PyTorch module, for `cosmic model show examples/programs/gpt_torch.py:GPT`."""

# mypy: ignore-errors
# PyTorch is an extra: its types are not there where it is not installed.

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  as everybody calls it

LAYERS, BATCH, SEQUENCE, HIDDEN, HEADS, HEAD_DIM, FFN, VOCAB = 24, 64, 2048, 2048, 16, 128, 8192, 50304


class Layer(nn.Module):
    """One layer."""

    def __init__(self):
        super().__init__()
        inner = HEADS * HEAD_DIM
        self.n1, self.n2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.q, self.k, self.v = (nn.Linear(HIDDEN, inner, bias=False) for _ in range(3))
        self.out = nn.Linear(inner, HIDDEN, bias=False)
        self.up, self.down = nn.Linear(HIDDEN, FFN, bias=False), nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        """Mix tokens, then widths."""
        batch, tokens, _ = x.shape
        entering = self.n1(x)
        q, k, v = (
            made(entering).view(batch, tokens, HEADS, HEAD_DIM).transpose(1, 2) for made in (self.q, self.k, self.v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.out(mixed.reshape(batch, tokens, HEADS * HEAD_DIM))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class GPT(nn.Module):
    """An embedding, layers, and a head."""

    def __init__(self, layers=LAYERS):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens):
        """Return the logarithm of the sum of each token's exponentials: as much work as a loss."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return torch.logsumexp(self.head(self.norm(x)), -1)


def arguments():
    """Return the shape of a batch of tokens: nothing is allocated."""
    return (torch.empty((BATCH, SEQUENCE), dtype=torch.int64),)
