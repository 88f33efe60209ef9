"""A GPT as a JAX function of its weights and tokens, for `cosmic model show examples/programs/gpt_jax.py:gpt`."""

# mypy: ignore-errors
# JAX is an extra: its types are not there where it is not installed.

import jax
import jax.numpy as jnp

LAYERS, BATCH, SEQUENCE, HIDDEN, HEADS, HEAD_DIM, FFN, VOCAB = 24, 64, 2048, 2048, 16, 128, 8192, 50304


def norm(x, scale, offset):
    """Normalise the last dimension."""
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + offset


def layer(x, w):
    """Run one layer, in the form that `jax.lax.scan` takes."""
    tokens = x.shape[:2]
    entering = norm(x, w["n1"], w["b1"])
    q, k, v = ((entering @ w[name]).reshape(*tokens, HEADS, HEAD_DIM) for name in ("wq", "wk", "wv"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(HEAD_DIM)
    place = jnp.arange(tokens[1])
    scores = jnp.where(place[:, None] >= place[None, :], scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
    x = x + mixed.reshape(*tokens, HEADS * HEAD_DIM) @ w["wo"]
    return x + jax.nn.gelu(norm(x, w["n2"], w["b2"]) @ w["w1"]) @ w["w2"], None


def gpt(weights, tokens):
    """Return the logarithm of the sum of each token's exponentials: as much work as a loss."""
    x = weights["embedding"][tokens]
    x, _ = jax.lax.scan(layer, x, weights["layers"])
    logits = norm(x, weights["nf"], weights["bf"]) @ weights["head"].T
    return jax.nn.logsumexp(logits, axis=-1)


def arguments():
    """Return the shapes of weights and tokens: nothing is allocated."""

    def of(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16)

    inner = HEADS * HEAD_DIM
    layers = {name: of(LAYERS, HIDDEN) for name in ("n1", "b1", "n2", "b2")}
    layers |= {name: of(LAYERS, HIDDEN, inner) for name in ("wq", "wk", "wv")}
    layers |= {"wo": of(LAYERS, inner, HIDDEN), "w1": of(LAYERS, HIDDEN, FFN), "w2": of(LAYERS, FFN, HIDDEN)}
    ends = {"embedding": of(VOCAB, HIDDEN), "head": of(VOCAB, HIDDEN), "nf": of(HIDDEN), "bf": of(HIDDEN)}
    return {**ends, "layers": layers}, jax.ShapeDtypeStruct((BATCH, SEQUENCE), jnp.int32)
