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

# --------------------------------------------------------------------------------------
# Operators of ATen, traced one by one
# --------------------------------------------------------------------------------------

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


def _axes(given: Any, rank: int) -> list[int]:
    axes = list(range(rank)) if given is None or given == [] else given if isinstance(given, list | tuple) else [given]
    return [axis % rank for axis in axes] if rank else []


class TorchTracer(Tracer):
    """Traces the nodes of an exported graph."""

    def call(self, node: Any, known: dict[str, Value]) -> None:
        """Trace one node, and note its value under its name; parts of tuples under ``name.0``, ``name.1``."""
        name = operator_name(node.target)
        if name == "getitem":
            source, place = node.args
            known[node.name] = known.get(f"{source.name}.{place}", known.get(source.name))  # type: ignore[assignment]
            return
        arguments = [known[argument.name] if hasattr(argument, "op") else argument for argument in node.args]
        arguments = [
            [known[e.name] if hasattr(e, "op") else e for e in a] if isinstance(a, list | tuple) else a
            for a in arguments
        ]
        keywords = {key: known[each.name] if hasattr(each, "op") else each for key, each in node.kwargs.items()}
        found = self.apply(name, node, arguments, keywords)
        if isinstance(found, list):
            known |= {f"{node.name}.{index}": each for index, each in enumerate(found)}
            known[node.name] = found[0]
        elif found is not None:
            known[node.name] = found

    def knows(self, name: str) -> bool:
        """Return whether an operator of this name can be traced."""
        listed = name in POINTWISE or name in SAME or name in REDUCTIONS or name in CONSTANTS or name == "getitem"
        return listed or name.startswith(SILENT) or self._handler(name) is not None

    def _handler(self, name: str) -> Any:
        return getattr(TorchTracer, f"_{name.strip('_')}", None) and getattr(self, f"_{name.strip('_')}")

    def apply(self, name: str, node: Any, given: list[Any], keywords: dict[str, Any]) -> Value | list[Value] | None:
        """Trace one operator of ATen."""
        value = node.meta.get("val")
        first = value[0] if isinstance(value, tuple | list) and value else value
        shape = tuple(int(size) for size in first.shape) if hasattr(first, "shape") else ()
        if name.startswith(SILENT) or not hasattr(first, "shape"):
            return self.constant(())
        read = [each for each in (*given, *keywords.values()) if isinstance(each, Value)]
        if name in CONSTANTS:
            return self.constant(shape, masks=False)
        if name in SAME:
            return read[0]
        if name in POINTWISE:
            work = 8.0 if name == "gelu" else 4.0 if name in ("silu", "tanh", "sigmoid") else 1.0
            masks = name in ("tril", "triu") and not any(each.stored for each in read)
            made = self.pointwise("ge" if masks else name, read, shape, work)
            return [made, self.constant(shape)] if name == "native_dropout" else made
        if name in REDUCTIONS and (name not in ("max", "min") or len(given) < 2 or not isinstance(given[1], Value)):
            rank = len(given[0].dims)
            axes = _axes(given[1] if len(given) > 1 else keywords.get("dim"), rank)
            keep = len(shape) == rank and rank > 0
            made = self.reduce(given[0], axes, name, keep)
            return [made, made] if isinstance(value, tuple | list) else made
        if name in ("max", "min"):
            return self.pointwise(name, read, shape)
        handler = self._handler(name)
        if handler is None:
            raise SpecError(
                "operator",
                f"aten.{name}",
                "is not known to COSMIC: write the module without it, or the program in YAML",
            )
        found: Value | list[Value] = handler(given, keywords, shape)
        return found

    # -------------------------------------------------------------------------------------------- views

    def _view(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        return self.reshape(given[0], shape)

    _reshape = _unsqueeze = _squeeze = _flatten = _unflatten = _unsafe_view = _reshape_alias = _view

    def _permute(self, given: list[Any], _: Any, shape: Any) -> Value:
        return self.transpose(given[0], [place % len(shape) for place in given[1]])

    def _transpose(self, given: list[Any], _: Any, shape: Any) -> Value:
        order = list(range(len(shape)))
        one, other = given[1] % len(shape), given[2] % len(shape)
        order[one], order[other] = order[other], order[one]
        return self.transpose(given[0], order)

    def _t(self, given: list[Any], _: Any, shape: Any) -> Value:
        return self.transpose(given[0], range(len(shape))[::-1])

    _numpy_T = _t  # noqa: N815  as ATen calls it

    def _expand(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        rank = len(given[0].dims)
        return self.broadcast(given[0], shape, range(len(shape) - rank, len(shape)))

    def _slice(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        axis = given[1] % len(shape) if len(given) > 1 else 0
        start = given[2] if len(given) > 2 and isinstance(given[2], int) else 0
        whole = given[0].shape[axis]
        return self.sliced(given[0], axis, start % whole if start < 0 else start, shape[axis])

    def _select(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        axis = given[1] % len(given[0].dims)
        picked = self.sliced(given[0], axis, given[2] % given[0].shape[axis], 1)
        return Value([dim for index, dim in enumerate(picked.dims) if index != axis], picked.stored, picked.masks)

    def _split(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        axis = (given[2] if len(given) > 2 else keywords.get("dim", 0)) % len(given[0].dims)
        whole = given[0].shape[axis]
        size = given[1]
        sizes = (
            list(size) if isinstance(size, list | tuple) else [min(size, whole - at) for at in range(0, whole, size)]
        )
        starts = [sum(sizes[:index]) for index in range(len(sizes))]
        return [self.sliced(given[0], axis, start, length) for start, length in zip(starts, sizes, strict=True)]

    _split_with_sizes = _split

    def _chunk(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        axis = (given[2] if len(given) > 2 else keywords.get("dim", 0)) % len(given[0].dims)
        return self._split([given[0], -(-given[0].shape[axis] // given[1]), axis], {}, shape)

    def _unbind(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        axis = (given[1] if len(given) > 1 else keywords.get("dim", 0)) % len(given[0].dims)
        return [self._select([given[0], axis, index], {}, shape) for index in range(given[0].shape[axis])]

    def _constant_pad_nd(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        return self.padded(given[0], shape)

    def _cat(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        axis = (given[1] if len(given) > 1 else keywords.get("dim", 0)) % len(shape)
        return self.joined(given[0], axis) if len(given[0]) > 1 else given[0][0]

    def _stack(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        axis = (given[1] if len(given) > 1 else keywords.get("dim", 0)) % len(shape)
        wide = [Value([*v.dims[:axis], [], *v.dims[axis:]], v.stored, v.masks) for v in given[0]]
        return self.joined(wide, axis)

    # ----------------------------------------------------------------------------------------- products

    def _mm(self, given: list[Any], _: Any, shape: Any) -> Value:
        return self.einsum(given[0], given[1], [], [(1, 0)])

    def _bmm(self, given: list[Any], _: Any, shape: Any) -> Value:
        return self.einsum(given[0], given[1], [(0, 0)], [(2, 1)])

    def _addmm(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        return self.pointwise("add", [self._mm(given[1:], {}, shape), given[0]], shape)

    def _baddbmm(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        return self.pointwise("add", [self._bmm(given[1:], {}, shape), given[0]], shape)

    def _linear(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        made = self.einsum(given[0], given[1], [], [(len(given[0].dims) - 1, 1)])
        bias = given[2] if len(given) > 2 else keywords.get("bias")
        return made if bias is None else self.pointwise("add", [made, bias], shape)

    def _matmul(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        left, right = given[:2]
        if len(right.dims) <= 2:
            return self.einsum(left, right, [], [(len(left.dims) - 1, 0)])
        if len(left.dims) == 1:
            return self.einsum(left, right, [], [(0, len(right.dims) - 2)])
        rank = max(len(left.dims), len(right.dims))
        left, right = (Value([[] for _ in range(rank - len(each.dims))] + each.dims, each.stored) for each in given[:2])
        return self.einsum(left, right, [(index, index) for index in range(rank - 2)], [(rank - 1, rank - 2)])

    def _convolution(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        read, weight, bias, strides, padding, dilation = given[:6]
        if len(given) > 6 and given[6]:
            raise SpecError("operator", "aten.convolution", "with transposed windows is not known to COSMIC")
        groups = given[8] if len(given) > 8 else 1
        rank = len(shape)
        places = (list(range(rank)), list(range(rank)))
        pairs = [(each, each) for each in padding]
        made = self.convolution(read, weight, places, shape, strides, pairs, dilation, groups)
        return made if bias is None else self._biased(made, bias, shape)

    def _biased(self, made: Value, bias: Value, shape: tuple[int, ...]) -> Value:
        return self.pointwise("add", [made, self.broadcast(bias, shape, [1])], shape)

    def _conv2d(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        count = len(shape) - 2
        usual: list[Any] = [None, None, None, [1] * count, [0] * count, [1] * count, 1]
        for index, each in enumerate(given):
            usual[index] = each
        for place, key in enumerate(("input", "weight", "bias", "stride", "padding", "dilation", "groups")):
            usual[place] = keywords.get(key, usual[place])
        spread = [[each] * count if isinstance(each, int) else list(each) for each in usual[3:6]]
        spread = [each * count if len(each) == 1 else each for each in spread]
        return self._convolution([*usual[:3], *spread, False, [], usual[6]], {}, shape)

    _conv1d = _conv3d = _conv2d

    def _scaled_dot_product_attention(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        query, key, value = given[:3]
        mask = given[3] if len(given) > 3 else keywords.get("attn_mask")
        causal = (given[5] if len(given) > 5 else keywords.get("is_causal", False)) or (
            isinstance(mask, Value) and mask.stored is None
        )
        rank = len(query.dims)
        lead = [(index, index) for index in range(rank - 2)]
        if given[6] if len(given) > 6 else keywords.get("enable_gqa", False):
            key, value = (self._repeated(each, rank - 3, query.shape[rank - 3]) for each in (key, value))
        scores = self.einsum(query, key, lead, [(rank - 1, rank - 1)])
        soft = self.whole("softmax", [scores], scores.dims, resolve_atoms(scores.dims[-1]))
        if soft.stored is not None:
            self.noted[-1].masked = bool(causal)
        return self.einsum(soft, value, lead, [(rank - 1, rank - 2)])

    def _repeated(self, value: Value, place: int, count: int) -> Value:
        """Return a view with each row of dimension *place* so often that there are *count*: heads of a group."""
        more = count // value.shape[place]
        dims = [list(dim) for dim in value.dims]
        dims[place] += [Atom(more, origin="group")] if more > 1 else []
        return Value(dims, value.stored)

    # -------------------------------------------------------------------------------------------- others

    def _embedding(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        table, index = given[:2]
        return self.lookup(table, index, [*index.dims, *table.dims[1:]])

    def _embedding_bag(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        """Trace the sums of some rows of a table each: with indices in one line, the mean number of them each."""
        table, index = given[:2]
        bags = shape[0]
        if len(index.dims) == 1:
            count = index.shape[0]
            if count % bags:
                rule = f"has {count} indices for {bags} sums, which cannot all have as many: pad them"
                raise SpecError("operator", "aten.embedding_bag", rule)
            index = self.reshape(index, (bags, count // bags))
        made = self.lookup(table, index, [index.dims[0], *table.dims[1:]])
        return [made, *(self.constant(()) for _ in range(3))]

    def _index_select(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        table, axis, index = given[:3]
        axis %= len(table.dims)
        dims = [*table.dims[:axis], *index.dims, *table.dims[axis + 1 :]]
        if axis == 0:
            return self.lookup(table, index, dims)
        return self.whole("gather", [table, index], dims, resolve_atoms(table.dims[axis]), 0.0)

    def _index(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        table, indices = given[:2]
        picked = [place for place, index in enumerate(indices) if isinstance(index, Value)]
        read = [indices[place] for place in picked]
        if picked == [0]:
            return self.lookup(table, read[0], [*read[0].dims, *table.dims[1:]])
        rank = max(len(each.dims) for each in read)
        start = picked[0] if picked == list(range(picked[0], picked[-1] + 1)) else 0
        widest = next(each for each in read if len(each.dims) == rank)
        middle = self.constant(shape[start : start + rank]).dims
        middle = [
            old if size_of_atoms(resolve_atoms(old)) == size_of_atoms(new) else new
            for old, new in zip(widest.dims, middle, strict=True)
        ]
        rest = [dim for index, dim in enumerate(table.dims) if index not in picked]
        over = [atom for place in picked for atom in resolve_atoms(table.dims[place])]
        return self.whole("gather", [table, *read], [*rest[:start], *middle, *rest[start:]], over, 0.0)

    def _gather(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        over = resolve_atoms(given[0].dims[given[1]])
        return self.whole("gather", [given[0], given[2]], given[2].dims, over, 0.0)

    def _scatter(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        read = [each for each in (*given[3:], given[2], given[0]) if isinstance(each, Value)]
        return self.whole("scatter", read, given[0].dims, resolve_atoms(given[0].dims[given[1]]))

    _scatter_add = _scatter_reduce = _index_add = _index_copy = _scatter

    def _index_put(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        made, indices, rows = given[:3]
        places = [place for place, index in enumerate(indices) if isinstance(index, Value)]
        over = [atom for place in places for atom in resolve_atoms(made.dims[place])]
        return self.whole("scatter", [rows, *(indices[place] for place in places), made], made.dims, over)

    def _softmax(self, given: list[Any], _: Any, shape: tuple[int, ...]) -> Value:
        return self.whole("softmax", given[:1], given[0].dims, resolve_atoms(given[0].dims[given[1]]))

    _log_softmax = _softmax

    def _layer_norm(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        value, normal = given[0], given[1]
        weights = [
            each for each in (*given[2:4], keywords.get("weight"), keywords.get("bias")) if isinstance(each, Value)
        ]
        return self._normed(value, weights, list(range(len(shape) - len(normal), len(shape))))

    def _rms_norm(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        return self._layer_norm([given[0], given[1], *given[2:3]], keywords, shape)

    def _native_layer_norm(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        made = self._layer_norm(given[:4], keywords, shape)
        return [made, self.constant(()), self.constant(())]

    def _normed(self, value: Value, weights: Sequence[Value], axes: Sequence[int]) -> Value:
        for weight in weights:
            for place, dim in zip(axes, weight.dims, strict=True):
                self._paired(value, place, weight, weight.dims.index(dim))
        over: Dim = [atom for axis in axes for atom in resolve_atoms(value.dims[axis])]
        return self.whole("norm", [value, *weights], value.dims, over)

    def _batch_norm(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        weights = [each for each in given[1:3] if isinstance(each, Value) and each.stored is not None]
        for weight in weights:
            self._paired(given[0], 1, weight, 0)
        return self.whole("norm", [given[0], *weights], given[0].dims, [])

    _native_batch_norm_legit_no_training = _batch_norm

    def _group_norm(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        weights = [each for each in given[2:4] if isinstance(each, Value) and each.stored is not None]
        for weight in weights:
            self._paired(given[0], 1, weight, 0)
        over = [atom for dim in given[0].dims[1:] for atom in resolve_atoms(dim)]
        return self.whole("norm", [given[0], *weights], given[0].dims, over)

    def _max_pool2d(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        window = given[1]
        strides = given[2] if len(given) > 2 and given[2] else window
        padding = given[3] if len(given) > 3 else [0, 0]
        window, strides, padding = (
            [e, e] if isinstance(e, int) else list(e) * (2 // len(e)) for e in (window, strides, padding)
        )
        places = [len(shape) - 2, len(shape) - 1]
        return self.pooling(given[0], places, window, shape, strides, [(each, each) for each in padding])

    _avg_pool2d = _max_pool2d

    def _max_pool2d_with_indices(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        return [self._max_pool2d(given, keywords, shape), self.constant(shape)]

    def _adaptive_avg_pool2d(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        if shape[-2:] != (1, 1):
            whole = given[0].shape[-2:]
            window = [-(-size // made) for size, made in zip(whole, shape[-2:], strict=True)]
            return self.pooling(given[0], [len(shape) - 2, len(shape) - 1], window, shape, window, [(0, 0)] * 2)
        return self.reduce(given[0], [len(shape) - 2, len(shape) - 1], "mean", keep=True)

    def _upsample_nearest2d(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        dims = [*given[0].dims[:2], *self.constant(shape[2:]).dims]
        old = [resolve_atoms(dim)[:1] for dim in given[0].dims[2:]]
        same = [(new[0], was[0]) for new, was in zip(dims[2:], old, strict=True) if new and was]
        return self.note("copy", [given[0]], dims, same=same)

    _upsample_bilinear2d = _upsample_nearest2d

    def _cumsum(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> Value:
        return self.whole("pointwise", given[:1], given[0].dims, resolve_atoms(given[0].dims[given[1]]))

    def _topk(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        dims = [*given[0].dims[:-1], self.constant(shape[-1:]).dims[0]]
        work = max(1.0, log2(max(2, given[0].shape[-1])))
        over = [*resolve_atoms(given[0].dims[-1]), *resolve_atoms(dims[-1])]
        return self.sorted(given[:1], [dims, dims], over, work)

    def _sort(self, given: list[Any], keywords: Any, shape: tuple[int, ...]) -> list[Value]:
        over = resolve_atoms(given[0].dims[given[1] if len(given) > 1 else -1])
        work = max(1.0, log2(max(2, size_of_atoms(over))))
        return self.sorted(given[:1], [given[0].dims, given[0].dims], over, work)


# --------------------------------------------------------------------------------------
# PyTorch modules as programs, by `torch.export` on meta tensors: no weights are made, and nothing runs
# --------------------------------------------------------------------------------------


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
    known: dict[str, Value] = {}
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
            shape, dtype = _meta(node)
            if node.name in trained:
                label = weights[node.name].replace(".", "_")
                shared.setdefault(label, tracer.given(label, shape, "weight"))
                known[node.name] = shared[label]
            elif node.name in weights or node.name in constants:
                known[node.name] = tracer.constant(shape, masks=dtype == "bool")
            else:
                width = None if "float" in dtype else float(_bytes(node))
                known[node.name] = tracer.given(node.name, shape, "input", width)
                values[str(len(values) // 2)] = known[node.name]  # by number and by name
                values[node.name] = known[node.name]
        elif node.op == "call_function":
            tracer.call(node, known)
        elif node.op == "get_attr":
            known[node.name] = tracer.constant(())
        elif node.op == "output":
            results = [
                known[each.name] for each in _flatten_tree(node.args) if hasattr(each, "name") and each.name in known
            ]
    name_dims(values, dims or {})
    stored = [value.stored for value in results if value.stored is not None]
    return finish_program(tracer, name or type(module).__name__.lower(), stored)


def _decompose_operators(exported: Any, torch: Any, tracer: TorchTracer) -> Any:
    """Return an exported program with the operators that COSMIC does not know written as those that it does.

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


def _meta(node: Any) -> tuple[tuple[int, ...], str]:
    value = node.meta.get("val")
    if value is None or not hasattr(value, "shape"):
        return (), "float32"
    return tuple(int(size) for size in value.shape), str(value.dtype).removeprefix("torch.")


def _bytes(node: Any) -> int:
    return int(node.meta["val"].element_size())


def _flatten_tree(tree: Any) -> list[Any]:
    if isinstance(tree, tuple | list):
        return [leaf for each in tree for leaf in _flatten_tree(each)]
    return [tree]
