"""The layer whose compiled programs were recorded: its operators, its shardings, and the collectives of XLA."""

from __future__ import annotations

from dataclasses import dataclass

from cosmic.model import Graph, Operator, Program, Tensor, WireCollective, wire_share

SIZES = {"batch": 64, "sequence": 1024, "context": 1024, "hidden": 8192, "ffn": 65536, "heads": 128, "head_dim": 256}
GROUP = 8
"""Devices along an axis: every collective of these programs is over one of them, or over both."""
STREAM, INNER = ("batch", "sequence", "hidden"), ("batch", "sequence", "ffn")
HEADS, SCORES = ("batch", "sequence", "heads", "head_dim"), ("batch", "heads", "sequence", "context")
A, W, F = 134_217_728, 67_108_864, 134_217_728
"""Bytes on a device: an activation, a weight of attention and one of the feed-forward network, each split once."""


@dataclass(frozen=True)
class Case:
    """Annotations of a layer, and what XLA's program sends with them."""

    name: str
    training: bool
    annotations: dict[str, list[str]]
    sent: tuple[tuple[WireCollective, int, int, int], ...]
    """Kind, bytes on a device, devices in a group, and how many."""


def program() -> Program:
    """Return the layer: attention and a feed-forward network with residuals, without norms and biases."""

    def made(kind: str, name: str, dims: tuple[str, ...], *read: Tensor, **details: tuple[object, ...]) -> Tensor:
        out = Tensor(name, dims)
        found.append(Operator(name, kind, read, (out,), **details))  # type: ignore[arg-type]
        return out

    def weight(name: str, *dims: str) -> Tensor:
        return Tensor(name, dims, "weight")

    found: list[Operator] = []
    project, there = ("hidden", "heads", "head_dim"), (("sequence", "context"),)
    keys = tuple("context" if dim == "sequence" else dim for dim in HEADS)
    x = Tensor("x", STREAM)
    q = made("einsum", "q", HEADS, x, weight("w_q", *project))
    k = made("einsum", "k", keys, x, weight("w_k", *project), same=there)
    v = made("einsum", "v", keys, x, weight("w_v", *project), same=there)
    shares = made("softmax", "shares", SCORES, made("einsum", "scores", SCORES, q, k), whole=("context",))
    seen = made("einsum", "seen", HEADS, shares, v)
    attended = made("einsum", "attended", STREAM, seen, weight("w_o", "heads", "head_dim", "hidden"))
    between = made("add", "between", STREAM, x, attended)
    inner = made("relu", "inner", INNER, made("einsum", "up", INNER, between, weight("w_up", "hidden", "ffn")))
    down = made("einsum", "down", STREAM, inner, weight("w_down", "ffn", "hidden"))
    made("add", "out", STREAM, between, down)
    return Program("layer", Graph(tuple(found)), SIZES)


def _annotated(project: str, back: str, up: str, down: str, stream: str, *, held: bool = False) -> dict[str, list[str]]:
    found = {name: project.split() for name in ("w_q", "w_k", "w_v")}
    found |= {"w_o": back.split(), "w_up": up.split(), "w_down": down.split(), "x": stream.split()}
    if held:
        found |= {name: stream.split() for name in ("attended", "between", "down", "out")}
        found |= {name: ["x", "_", "y", "_"] for name in ("q", "k", "v", "seen")}
        found |= {name: ["x", "_", "y"] for name in ("up", "inner")}
    return found


MEGATRON = _annotated("_ y _", "y _ _", "_ y", "y _", "x _ _")
TWO_D = _annotated("x y _", "y _ x", "x y", "y x", "x _ y", held=True)
ATTEMPT = _annotated("x y _", "y _ x", "x y", "y x", "x _ _", held=True)
SPREAD = _annotated("x+y _ _", "_ _ x+y", "x+y _", "_ x+y", "x _ _")
CASES = (
    Case("Megatron, dp 8 and tp 8", False, MEGATRON, (("all_reduce", A, 8, 2),)),
    Case("Megatron, dp 8 and tp 8", True, MEGATRON, (("all_reduce", A, 8, 7), ("all_reduce", W, 8, 4))),
    Case("GSPMD's 2D", False, TWO_D, (("all_gather", A, 8, 4), ("all_gather", W, 8, 4), ("all_reduce", A, 8, 2))),
    Case(
        "GSPMD's 2D",
        True,
        TWO_D,
        (("all_gather", A, 8, 9), ("all_gather", W, 8, 4), ("all_reduce", A, 8, 7), ("all_reduce", W, 8, 4)),
    ),
    Case(
        "2D, stream over one axis",
        False,
        ATTEMPT,
        (("all_gather", W, 8, 4), ("all_gather", F, 8, 2), ("all_reduce", A, 8, 2)),
    ),
    Case(
        "2D, stream over one axis",
        True,
        ATTEMPT,
        (("all_gather", W, 8, 4), ("all_gather", F, 8, 2), ("all_reduce", A, 8, 7), ("all_reduce", W, 8, 4)),
    ),
    Case(
        "weights over all, batch over one axis",
        False,
        SPREAD,
        (("all_gather", 8 * W, 64, 4), ("all_gather", 8 * F, 64, 2)),
    ),
    Case(
        "weights over all, batch over one axis",
        True,
        SPREAD,
        (
            ("all_gather", 8 * W, 64, 4),
            ("all_gather", 8 * F, 64, 2),
            ("all_gather", 64 * A, 8, 1),
            ("all_reduce", 8 * F, 8, 1),
            ("all_reduce", 8 * W, 8, 4),
        ),
    ),
)


def sent_by_xla(case: Case) -> float:
    """Return the bytes that a device sends in XLA's program."""
    return sum(count * size * float(wire_share(kind, group)) for kind, size, group, count in case.sent)
