"""Trace PyTorch modules as programs, by `torch.export` on meta tensors and ATen operator by operator.

`TorchTracer` traces the operators of ATen one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from typing import Any

from cosmic.base.errors import SpecError
from cosmic.workload.user_programs.operator_tracer import (
    Atom,
    Dim,
    Tracer,
    Value,
    resolve_atoms,
    size_of_atoms,
    words_of_name,
)
from cosmic.workload.user_programs.program_graph import Program
from cosmic.workload.user_programs.traced_program import finish_program, name_dims, tie_dims

# ---- Operators of ATen, traced one by one

POINTWISE = words_of_name(
    """
    abs add sub rsub mul div pow exp exp2 expm1 log log2 log1p sqrt rsqrt sin cos tan tanh sigmoid erf neg
    reciprocal sign relu gelu silu elu leaky_relu hardtanh hardsigmoid hardswish mish softplus clamp clamp_min
    clamp_max maximum minimum where masked_fill eq ne lt le gt ge logical_and logical_or logical_not bitwise_and
    bitwise_or bitwise_not isnan isinf floor ceil round trunc remainder fmod square native_dropout dropout
    celu atan2 triu tril
    """
)
SAME = words_of_name(
    """
    _to_copy to clone alias contiguous detach lift_fresh_copy type_as
    """
)
"""Operators that return what they read, in another format or another place: they are part of what reads that."""
REDUCTIONS = words_of_name(
    """
    sum mean amax amin max min prod any all var argmax argmin logsumexp
    """
)
CONSTANTS = words_of_name(
    """
    arange full full_like zeros zeros_like ones ones_like empty empty_like scalar_tensor new_zeros new_ones new_full
    rand rand_like randn randn_like randint bernoulli triu_indices tril_indices _assert_tensor_metadata
    """
)
SILENT = ("sym_", "_assert")
"""Beginnings of the names of operators that compute nothing."""


def operator_name(target: Any) -> str:
    """Return the name of an operator without its overload."""
    packet = getattr(target, "_overloadpacket", None)
    name: str = getattr(packet, "__name__", getattr(target, "__name__", str(target)).split(".")[0])
    return name


def _resolve_axes(dims: Any, rank: int) -> list[int]:
    axes = list(range(rank)) if dims is None or dims == [] else dims if isinstance(dims, list | tuple) else [dims]
    return [axis % rank for axis in axes] if rank else []


class TorchTracer(Tracer):
    """Traces the nodes of an exported graph."""

    def call(self, node: Any, values: dict[str, Value]) -> None:
        """Trace one node, and note its value under its name; parts of tuples under ``name.0``, ``name.1``."""
        name = operator_name(node.target)
        if name == "getitem":
            source, position = node.args
            values[node.name] = values.get(f"{source.name}.{position}", values.get(source.name))  # type: ignore[assignment]
            return
        arguments = [values[argument.name] if hasattr(argument, "op") else argument for argument in node.args]
        arguments = [
            [values[e.name] if hasattr(e, "op") else e for e in a] if isinstance(a, list | tuple) else a
            for a in arguments
        ]
        keywords = {
            key: values[argument.name] if hasattr(argument, "op") else argument for key, argument in node.kwargs.items()
        }
        result = self.apply(name, node, arguments, keywords)
        if isinstance(result, list):
            values |= {f"{node.name}.{index}": part for index, part in enumerate(result)}
            values[node.name] = result[0]
        elif result is not None:
            values[node.name] = result

    def knows(self, name: str) -> bool:
        """Return whether an operator of this name can be traced."""
        listed = name in POINTWISE or name in SAME or name in REDUCTIONS or name in CONSTANTS or name == "getitem"
        return listed or name.startswith(SILENT) or self._handler(name) is not None

    def _handler(self, name: str) -> Any:
        return getattr(TorchTracer, f"_{name.strip('_')}", None) and getattr(self, f"_{name.strip('_')}")

    def apply(self, name: str, node: Any, args: list[Any], keywords: dict[str, Any]) -> Value | list[Value] | None:
        """Trace one operator of ATen."""
        value = node.meta.get("val")
        first = value[0] if isinstance(value, tuple | list) and value else value
        shape = tuple(int(size) for size in first.shape) if hasattr(first, "shape") else ()
        if name.startswith(SILENT) or not hasattr(first, "shape"):
            return self.constant(())
        read = [operand for operand in (*args, *keywords.values()) if isinstance(operand, Value)]
        if name in CONSTANTS:
            return self.constant(shape, masks=False)
        if name in SAME:
            return read[0]
        if name in POINTWISE:
            work = 8.0 if name == "gelu" else 4.0 if name in ("silu", "tanh", "sigmoid") else 1.0
            masks = name in ("tril", "triu") and not any(operand.stored for operand in read)
            traced = self.pointwise("ge" if masks else name, read, shape, work)
            return [traced, self.constant(shape)] if name == "native_dropout" else traced
        if name in REDUCTIONS and (name not in ("max", "min") or len(args) < 2 or not isinstance(args[1], Value)):
            rank = len(args[0].dims)
            axes = _resolve_axes(args[1] if len(args) > 1 else keywords.get("dim"), rank)
            keep = len(shape) == rank and rank > 0
            traced = self.reduce(args[0], axes, name, keep)
            return [traced, traced] if isinstance(value, tuple | list) else traced
        if name in ("max", "min"):
            return self.pointwise(name, read, shape)
        handler = self._handler(name)
        if handler is None:
            raise SpecError(
                "operator",
                f"aten.{name}",
                "is not known to COSMIC: write the module without it, or the program in YAML",
            )
        outputs: Value | list[Value] = handler(args, keywords, shape)
        return outputs

    # -------------------------------------------------------------------------------------------- views

    def _view(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        return self.reshape(args[0], shape)

    _reshape = _unsqueeze = _squeeze = _flatten = _unflatten = _unsafe_view = _reshape_alias = _view

    def _permute(self, args: list[Any], _: Any, shape: Any) -> Value:
        return self.transpose(args[0], [axis % len(shape) for axis in args[1]])

    def _transpose(self, args: list[Any], _: Any, shape: Any) -> Value:
        order = list(range(len(shape)))
        first, second = args[1] % len(shape), args[2] % len(shape)
        order[first], order[second] = order[second], order[first]
        return self.transpose(args[0], order)

    def _t(self, args: list[Any], _: Any, shape: Any) -> Value:
        return self.transpose(args[0], range(len(shape))[::-1])

    _numpy_T = _t  # noqa: N815  as ATen calls it

    def _expand(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        rank = len(args[0].dims)
        return self.broadcast(args[0], shape, range(len(shape) - rank, len(shape)))

    def _slice(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        axis = args[1] % len(shape) if len(args) > 1 else 0
        start = args[2] if len(args) > 2 and isinstance(args[2], int) else 0
        length = args[0].shape[axis]
        return self.sliced(args[0], axis, start % length if start < 0 else start, shape[axis])

    def _select(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        axis = args[1] % len(args[0].dims)
        picked = self.sliced(args[0], axis, args[2] % args[0].shape[axis], 1)
        return Value([dim for index, dim in enumerate(picked.dims) if index != axis], picked.stored, picked.masks)

    def _split(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        axis = (args[2] if len(args) > 2 else keywords.get("dim", 0)) % len(args[0].dims)
        total = args[0].shape[axis]
        size = args[1]
        sizes = (
            list(size)
            if isinstance(size, list | tuple)
            else [min(size, total - offset) for offset in range(0, total, size)]
        )
        starts = [sum(sizes[:index]) for index in range(len(sizes))]
        return [self.sliced(args[0], axis, start, length) for start, length in zip(starts, sizes, strict=True)]

    _split_with_sizes = _split

    def _chunk(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        axis = (args[2] if len(args) > 2 else keywords.get("dim", 0)) % len(args[0].dims)
        return self._split([args[0], -(-args[0].shape[axis] // args[1]), axis], {}, shape)

    def _unbind(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        axis = (args[1] if len(args) > 1 else keywords.get("dim", 0)) % len(args[0].dims)
        return [self._select([args[0], axis, index], {}, shape) for index in range(args[0].shape[axis])]

    def _constant_pad_nd(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        return self.padded(args[0], shape)

    def _cat(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        axis = (args[1] if len(args) > 1 else keywords.get("dim", 0)) % len(shape)
        return self.joined(args[0], axis) if len(args[0]) > 1 else args[0][0]

    def _stack(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        axis = (args[1] if len(args) > 1 else keywords.get("dim", 0)) % len(shape)
        wide = [Value([*v.dims[:axis], [], *v.dims[axis:]], v.stored, v.masks) for v in args[0]]
        return self.joined(wide, axis)

    # ----------------------------------------------------------------------------------------- products

    def _mm(self, args: list[Any], _: Any, shape: Any) -> Value:
        return self.einsum(args[0], args[1], [], [(1, 0)])

    def _bmm(self, args: list[Any], _: Any, shape: Any) -> Value:
        return self.einsum(args[0], args[1], [(0, 0)], [(2, 1)])

    def _addmm(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        return self.pointwise("add", [self._mm(args[1:], {}, shape), args[0]], shape)

    def _baddbmm(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        return self.pointwise("add", [self._bmm(args[1:], {}, shape), args[0]], shape)

    def _linear(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        product = self.einsum(args[0], args[1], [], [(len(args[0].dims) - 1, 1)])
        bias = args[2] if len(args) > 2 else keywords.get("bias")
        return product if bias is None else self.pointwise("add", [product, bias], shape)

    def _matmul(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        left, right = args[:2]
        if len(right.dims) <= 2:
            return self.einsum(left, right, [], [(len(left.dims) - 1, 0)])
        if len(left.dims) == 1:
            return self.einsum(left, right, [], [(0, len(right.dims) - 2)])
        rank = max(len(left.dims), len(right.dims))
        left, right = (
            Value([[] for _ in range(rank - len(operand.dims))] + operand.dims, operand.stored) for operand in args[:2]
        )
        return self.einsum(left, right, [(index, index) for index in range(rank - 2)], [(rank - 1, rank - 2)])

    def _convolution(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        read, weight, bias, strides, padding, dilation = args[:6]
        if len(args) > 6 and args[6]:
            raise SpecError("operator", "aten.convolution", "with transposed windows is not known to COSMIC")
        groups = args[8] if len(args) > 8 else 1
        rank = len(shape)
        axes = (list(range(rank)), list(range(rank)))
        pairs = [(pad, pad) for pad in padding]
        convolved = self.convolution(read, weight, axes, shape, strides, pairs, dilation, groups)
        return convolved if bias is None else self._biased(convolved, bias, shape)

    def _biased(self, convolved: Value, bias: Value, shape: tuple[int, ...]) -> Value:
        return self.pointwise("add", [convolved, self.broadcast(bias, shape, [1])], shape)

    def _conv2d(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        count = len(shape) - 2
        usual: list[Any] = [None, None, None, [1] * count, [0] * count, [1] * count, 1]
        for index, value in enumerate(args):
            usual[index] = value
        for position, key in enumerate(("input", "weight", "bias", "stride", "padding", "dilation", "groups")):
            usual[position] = keywords.get(key, usual[position])
        spread = [[value] * count if isinstance(value, int) else list(value) for value in usual[3:6]]
        spread = [value * count if len(value) == 1 else value for value in spread]
        return self._convolution([*usual[:3], *spread, False, [], usual[6]], {}, shape)

    _conv1d = _conv3d = _conv2d

    def _scaled_dot_product_attention(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        query, key, value = args[:3]
        mask = args[3] if len(args) > 3 else keywords.get("attn_mask")
        causal = (args[5] if len(args) > 5 else keywords.get("is_causal", False)) or (
            isinstance(mask, Value) and mask.stored is None
        )
        rank = len(query.dims)
        lead = [(index, index) for index in range(rank - 2)]
        if args[6] if len(args) > 6 else keywords.get("enable_gqa", False):
            key, value = (self._repeated(operand, rank - 3, query.shape[rank - 3]) for operand in (key, value))
        scores = self.einsum(query, key, lead, [(rank - 1, rank - 1)])
        soft = self.add_unsplit("softmax", [scores], scores.dims, resolve_atoms(scores.dims[-1]))
        if soft.stored is not None:
            self.noted[-1].masked = bool(causal)
        return self.einsum(soft, value, lead, [(rank - 1, rank - 2)])

    def _repeated(self, value: Value, axis: int, count: int) -> Value:
        """Return a view with each row of dimension *axis* so often that there are *count*: heads of a group."""
        repeats = count // value.shape[axis]
        dims = [list(dim) for dim in value.dims]
        dims[axis] += [Atom(repeats, origin="group")] if repeats > 1 else []
        return Value(dims, value.stored)

    # -------------------------------------------------------------------------------------------- others

    def _embedding(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        table, index = args[:2]
        return self.lookup(table, index, [*index.dims, *table.dims[1:]])

    def _embedding_bag(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        """Trace the sums of some rows of a table each: with indices in one line, the mean number of them each."""
        table, index = args[:2]
        bags = shape[0]
        if len(index.dims) == 1:
            count = index.shape[0]
            if count % bags:
                rule = f"has {count} indices for {bags} sums, which cannot all have as many: pad them"
                raise SpecError("operator", "aten.embedding_bag", rule)
            index = self.reshape(index, (bags, count // bags))
        looked_up = self.lookup(table, index, [index.dims[0], *table.dims[1:]])
        return [looked_up, *(self.constant(()) for _ in range(3))]

    def _index_select(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        table, axis, index = args[:3]
        axis %= len(table.dims)
        dims = [*table.dims[:axis], *index.dims, *table.dims[axis + 1 :]]
        if axis == 0:
            return self.lookup(table, index, dims)
        return self.add_unsplit("gather", [table, index], dims, resolve_atoms(table.dims[axis]), 0.0)

    def _index(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        table, indices = args[:2]
        picked = [axis for axis, index in enumerate(indices) if isinstance(index, Value)]
        read = [indices[axis] for axis in picked]
        if picked == [0]:
            return self.lookup(table, read[0], [*read[0].dims, *table.dims[1:]])
        rank = max(len(operand.dims) for operand in read)
        start = picked[0] if picked == list(range(picked[0], picked[-1] + 1)) else 0
        widest = next(operand for operand in read if len(operand.dims) == rank)
        middle = self.constant(shape[start : start + rank]).dims
        middle = [
            old if size_of_atoms(resolve_atoms(old)) == size_of_atoms(new) else new
            for old, new in zip(widest.dims, middle, strict=True)
        ]
        rest = [dim for index, dim in enumerate(table.dims) if index not in picked]
        over = [atom for axis in picked for atom in resolve_atoms(table.dims[axis])]
        return self.add_unsplit("gather", [table, *read], [*rest[:start], *middle, *rest[start:]], over, 0.0)

    def _gather(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        over = resolve_atoms(args[0].dims[args[1]])
        return self.add_unsplit("gather", [args[0], args[2]], args[2].dims, over, 0.0)

    def _scatter(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        read = [operand for operand in (*args[3:], args[2], args[0]) if isinstance(operand, Value)]
        return self.add_unsplit("scatter", read, args[0].dims, resolve_atoms(args[0].dims[args[1]]))

    _scatter_add = _scatter_reduce = _index_add = _index_copy = _scatter

    def _index_put(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        table, indices, rows = args[:3]
        axes = [axis for axis, index in enumerate(indices) if isinstance(index, Value)]
        over = [atom for axis in axes for atom in resolve_atoms(table.dims[axis])]
        return self.add_unsplit("scatter", [rows, *(indices[axis] for axis in axes), table], table.dims, over)

    def _softmax(self, args: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        return self.add_unsplit("softmax", args[:1], args[0].dims, resolve_atoms(args[0].dims[args[1]]))

    _log_softmax = _softmax

    def _layer_norm(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        value, normal = args[0], args[1]
        weights = [
            weight for weight in (*args[2:4], keywords.get("weight"), keywords.get("bias")) if isinstance(weight, Value)
        ]
        return self._normed(value, weights, list(range(len(shape) - len(normal), len(shape))))

    def _rms_norm(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        return self._layer_norm([args[0], args[1], *args[2:3]], keywords, shape)

    def _native_layer_norm(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        normed = self._layer_norm(args[:4], keywords, shape)
        return [normed, self.constant(()), self.constant(())]

    def _normed(self, value: Value, weights: Sequence[Value], axes: Sequence[int]) -> Value:
        for weight in weights:
            for value_axis, dim in zip(axes, weight.dims, strict=True):
                self._paired(value, value_axis, weight, weight.dims.index(dim))
        over: Dim = [atom for axis in axes for atom in resolve_atoms(value.dims[axis])]
        return self.add_unsplit("norm", [value, *weights], value.dims, over)

    def _batch_norm(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        weights = [weight for weight in args[1:3] if isinstance(weight, Value) and weight.stored is not None]
        for weight in weights:
            self._paired(args[0], 1, weight, 0)
        return self.add_unsplit("norm", [args[0], *weights], args[0].dims, [])

    _native_batch_norm_legit_no_training = _batch_norm

    def _group_norm(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        weights = [weight for weight in args[2:4] if isinstance(weight, Value) and weight.stored is not None]
        for weight in weights:
            self._paired(args[0], 1, weight, 0)
        over = [atom for dim in args[0].dims[1:] for atom in resolve_atoms(dim)]
        return self.add_unsplit("norm", [args[0], *weights], args[0].dims, over)

    def _max_pool2d(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        window = args[1]
        strides = args[2] if len(args) > 2 and args[2] else window
        padding = args[3] if len(args) > 3 else [0, 0]
        window, strides, padding = (
            [e, e] if isinstance(e, int) else list(e) * (2 // len(e)) for e in (window, strides, padding)
        )
        axes = [len(shape) - 2, len(shape) - 1]
        return self.pooling(args[0], axes, window, shape, strides, [(pad, pad) for pad in padding])

    _avg_pool2d = _max_pool2d

    def _max_pool2d_with_indices(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        return [self._max_pool2d(args, keywords, shape), self.constant(shape)]

    def _adaptive_avg_pool2d(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        if shape[-2:] != (1, 1):
            lengths = args[0].shape[-2:]
            window = [-(-size // count) for size, count in zip(lengths, shape[-2:], strict=True)]
            return self.pooling(args[0], [len(shape) - 2, len(shape) - 1], window, shape, window, [(0, 0)] * 2)
        return self.reduce(args[0], [len(shape) - 2, len(shape) - 1], "mean", keep=True)

    def _upsample_nearest2d(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        dims = [*args[0].dims[:2], *self.constant(shape[2:]).dims]
        old = [resolve_atoms(dim)[:1] for dim in args[0].dims[2:]]
        same = [(new[0], was[0]) for new, was in zip(dims[2:], old, strict=True) if new and was]
        return self.note("copy", [args[0]], dims, same=same)

    _upsample_bilinear2d = _upsample_nearest2d

    def _cumsum(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        return self.add_unsplit("pointwise", args[:1], args[0].dims, resolve_atoms(args[0].dims[args[1]]))

    def _topk(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        dims = [*args[0].dims[:-1], self.constant(shape[-1:]).dims[0]]
        work = max(1.0, log2(max(2, args[0].shape[-1])))
        over = [*resolve_atoms(args[0].dims[-1]), *resolve_atoms(dims[-1])]
        return self.sorted(args[:1], [dims, dims], over, work)

    def _sort(self, args: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        over = resolve_atoms(args[0].dims[args[1] if len(args) > 1 else -1])
        work = max(1.0, log2(max(2, size_of_atoms(over))))
        return self.sorted(args[:1], [args[0].dims, args[0].dims], over, work)


# ---- PyTorch modules as programs, by `torch.export` on meta tensors: no weights are made, and nothing runs


def from_torch(
    module: Any,
    *arguments: Any,
    name: str = "",
    dims: Mapping[str, str] | None = None,
) -> Program:
    """Return the program that a PyTorch *module* is when it is called with some tensors.

    Module and *arguments* may be on the device ``meta``, so that no memory is taken. *dims* names dimensions:
    ``{"batch": "0:0"}`` is the first of argument 0, ``"0:0, 1:0"`` that of argument 1 too.
    """
    try:
        import torch  # noqa: PLC0415  an extra
    except ImportError:
        raise SpecError("from_torch", "torch", "is not installed: pip install '.[torch]'") from None
    module = module.to("meta").eval()
    tensors = tuple(argument.to("meta") for argument in arguments)
    tracer = TorchTracer()
    exported = _decompose_operators(torch.export.export(module, tensors, strict=False), torch, tracer)
    traced: dict[str, Value] = {}
    values: dict[str, Value] = {}
    signature = exported.graph_signature
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    trained = set(signature.inputs_to_parameters)
    constants = {**getattr(signature, "inputs_to_lifted_tensor_constants", {})}
    shared: dict[str, Value] = {}
    nodes = sorted(exported.graph.nodes, key=lambda node: node.op != "placeholder")
    for index, node in enumerate(nodes):
        if node.op != "placeholder" and index and nodes[index - 1].op == "placeholder":
            tie_dims(values, dims or {})
        if node.op == "placeholder":
            shape, dtype = _shape_and_dtype(node)
            if node.name in trained:
                label = weights[node.name].replace(".", "_")
                shared.setdefault(label, tracer.add_input(label, shape, "weight"))
                traced[node.name] = shared[label]
            elif node.name in weights or node.name in constants:
                traced[node.name] = tracer.constant(shape, masks=dtype == "bool")
            else:
                width = None if "float" in dtype else float(_element_bytes(node))
                traced[node.name] = tracer.add_input(node.name, shape, "input", width)
                values[str(len(values) // 2)] = traced[node.name]  # by number and by name
                values[node.name] = traced[node.name]
        elif node.op == "call_function":
            tracer.call(node, traced)
        elif node.op == "get_attr":
            traced[node.name] = tracer.constant(())
        elif node.op == "output":
            results = [
                traced[leaf.name] for leaf in _flatten_tree(node.args) if hasattr(leaf, "name") and leaf.name in traced
            ]
    name_dims(values, dims or {})
    stored = [value.stored for value in results if value.stored is not None]
    return finish_program(tracer, name or type(module).__name__.lower(), stored)


def _decompose_operators(exported: Any, torch: Any, tracer: TorchTracer) -> Any:
    """Return an exported program with unknown operators decomposed into known ones.

    PyTorch's own decompositions say how: an outer product as a product, a loss as a softmax and a sum. Operators that
    write to what they read are made such that return what they make.
    """
    nodes = [node for node in exported.graph.nodes if node.op == "call_function"]
    if all(_is_traceable(operator_name(node.target), node.target, tracer) for node in nodes):
        return exported
    table = torch.export.default_decompositions()
    for operator in list(table):
        if _is_traceable(operator_name(operator), operator, tracer):
            del table[operator]
    return exported.run_decompositions(table)


def _is_traceable(name: str, target: Any, tracer: TorchTracer) -> bool:
    return tracer.knows(name) and not getattr(getattr(target, "_schema", None), "is_mutable", False)


def _shape_and_dtype(node: Any) -> tuple[tuple[int, ...], str]:
    value = node.meta.get("val")
    if value is None or not hasattr(value, "shape"):
        return (), "float32"
    return tuple(int(size) for size in value.shape), str(value.dtype).removeprefix("torch.")


def _element_bytes(node: Any) -> int:
    return int(node.meta["val"].element_size())


def _flatten_tree(tree: Any) -> list[Any]:
    if isinstance(tree, tuple | list):
        return [leaf for child in tree for leaf in _flatten_tree(child)]
    return [tree]
