"""The keys of a program in YAML, and their JSON Schema."""

from __future__ import annotations

from typing import Any

KEYS = (
    "program",
    "title",
    "source",
    "dims",
    "like",
    "inputs",
    "weights",
    "operators",
    "element_bytes",
    "axes",
    "annotations",
)
BLOCK_KEYS = ("block", "repeat", "over", "carry", "state", "weights", "operators")
OPERATOR_KEYS = ("name", "weights")
DETAILS = {
    "to": "the dimensions of what it makes, where they do not follow",
    "formula": "an einsum by letters, such as bsm,mf->bsf",
    "over": "the dimensions of a norm or a softmax, or those that a reduction sums over",
    "causal": "whether a query of an attention sees the keys up to its own alone",
    "window": "rows and columns of a pooling's window",
    "strides": "steps of a window in each direction",
    "padding": "same, valid, or rows before the first in each direction",
    "dilation": "distance of a window's rows",
    "dims": "new names of dimensions, of a rename",
    "flop": "flop per element of a pointwise operator",
}
POINTWISE = ("add", "bias", "gelu", "silu", "relu", "tanh", "multiply", "rope", "dropout", "pointwise")
KINDS = {
    "einsum": "multiplies its inputs and sums over the dimensions that `to` lacks",
    "embedding": "looks up rows of a table: indices, table",
    "norm": "normalises `over` some dimensions, with a scale and an offset if they are given",
    "softmax": "exponentials `over` some dimensions, divided by their sum",
    "attention": "queries, keys and values: [batch, sequence, heads, width] each",
    "convolution": "pictures and filters [rows, columns, channels, filters]; strides, padding, dilation",
    "pooling": "the largest, or the mean, of each window",
    "reduce": "sums `over` some dimensions, or takes the largest",
    "gather": "picks rows by an index of activations: values, indices",
    "scatter": "adds rows at an index: values, indices",
    "concat": "joins tensors along a dimension, `to` new ones",
    "slice": "a part of a tensor, `to` new dimensions",
    "resize": "larger or smaller pictures, `to` other rows and columns: each is made from those in its place",
    "sort": "sorts `over` a dimension",
    "rename": "the same tensor with dimensions of other names: keys are queries' tokens seen from the other side",
    "reshape": "merges or splits dimensions, `to` new ones; moves nothing",
    "loss": "the loss of logits, over their last dimension",
    **dict.fromkeys(POINTWISE, "element by element; of several inputs, the others' dimensions are among the widest's"),
}
"""Every kind of operator with what it does."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a program in YAML.

    >>> json_schema()["required"]
    ['dims', 'operators']
    """
    names = {"type": "array", "items": {"type": "string"}}
    tensors = {
        "type": "object",
        "additionalProperties": {
            "anyOf": [
                names,
                {
                    "type": "object",
                    "properties": {"dims": names, "of": {"type": "string"}},
                    "required": ["dims", "of"],
                    "additionalProperties": False,
                },
            ]
        },
    }
    reads = {"anyOf": [{"type": "string"}, names]}
    numbers = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "array", "items": {"type": "integer"}}]}
    details: dict[str, Any] = {
        "to": names,
        "formula": {"type": "string"},
        "over": reads,
        "causal": {"type": "boolean"},
        "window": numbers,
        "strides": numbers,
        "padding": {"anyOf": [{"enum": ["same", "valid"]}, numbers]},
        "dilation": numbers,
        "dims": {"type": "object"},
        "flop": {"type": "number", "minimum": 0},
    }
    operator = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "weights": tensors,
            **{kind: {**reads, "description": about} for kind, about in KINDS.items()},
            **{key: {**details[key], "description": about} for key, about in DETAILS.items()},
        },
        "required": ["name"],
        "oneOf": [{"required": [kind]} for kind in KINDS],
        "additionalProperties": False,
    }
    block = {
        "type": "object",
        "properties": {
            "block": {"type": "string"},
            "repeat": {"type": "integer", "minimum": 1},
            "over": {"type": "string"},
            "carry": {"type": "object", "additionalProperties": {"type": "string"}},
            "state": tensors,
            "weights": tensors,
            "operators": {"type": "array", "items": operator, "minItems": 1},
        },
        "required": ["block", "operators"],
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A program of COSMIC",
        "type": "object",
        "properties": {
            "program": {"type": "string"},
            "title": {"type": "string"},
            "source": {"type": "string"},
            "dims": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
            "like": {"type": "object", "additionalProperties": {"type": "string"}},
            "inputs": tensors,
            "weights": tensors,
            "operators": {"type": "array", "items": {"anyOf": [operator, block]}, "minItems": 1},
            "element_bytes": {
                "type": "object",
                "additionalProperties": {"type": "number", "exclusiveMinimum": 0, "maximum": 16},
                "description": "bytes of an element, of tensors that are not in the format of the precision",
            },
            "axes": {
                "type": "object",
                "properties": {"tp": {"type": "string", "pattern": r"^\d+(\*\d+)+$"}},
                "additionalProperties": False,
                "description": "the parts of an axis that is cut into sub-axes: tp: 2*4 makes tp_0 and tp_1",
            },
            "annotations": {"type": "object", "additionalProperties": {"type": ["array", "object"]}},
        },
        "required": ["dims", "operators"],
        "additionalProperties": False,
    }
