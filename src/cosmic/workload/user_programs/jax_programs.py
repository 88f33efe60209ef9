"""JAX functions as programs, by their jaxpr: no weights are made, and nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import log2
from typing import Any

from cosmic.base.errors import SpecError
from cosmic.workload.user_programs.operator_tracer import (
    Dim,
    Stored,
    Tracer,
    Twins,
    Value,
    resolve_atoms,
    size_of_atoms,
    unify_atoms,
    words_of_name,
)
from cosmic.workload.user_programs.program_graph import Program
from cosmic.workload.user_programs.traced_program import finish_program, name_dims, tie_dims

POINTWISE = words_of_name(
    """
    abs add add_any and acos asin atan atan2 cbrt ceil clamp cos cosh digamma div
    eq erf erf_inv erfc exp exp2 expm1 floor ge gt imag integer_pow is_finite le lgamma log log1p logistic lt max
    min mul ne neg nextafter not or pow real rem round rsqrt select_n shift_left
    shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub tan tanh xor
    """
)
REDUCTIONS = words_of_name(
    """
    reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin
    """
)
INLINED = words_of_name(
    """
    pjit jit closed_call core_call custom_jvp_call custom_vjp_call custom_jvp_call_jaxpr custom_vjp_call_jaxpr
    custom_lin remat remat2 checkpoint core_closed_call
    """
)
CUMULATIVE = words_of_name("cumsum cumprod cummax cummin cumlogsumexp")
SAME = words_of_name("convert_element_type copy copy_p optimization_barrier reduce_precision stop_gradient")
"""Primitives that return what they read, in another format or another place: they are part of what reads that."""
CONSTANTS = words_of_name(
    """
    iota rng_bit_generator random_bits random_seed random_wrap random_unwrap random_fold_in
    """
)
MOST_EQUATIONS = 20_000
"""The most equations that the runs of a scan are written out as."""


def from_jax(
    function: Callable[..., Any],
    *arguments: Any,
    name: str = "",
    dims: Mapping[str, str] | None = None,
    weights: Sequence[int] | None = None,
) -> Program:
    """Return the program that a JAX *function* of some arguments is.

    *arguments* are arrays or `jax.ShapeDtypeStruct`s, or trees of them. Arguments that are trees are weights, unless
    *weights* names the arguments that are. *dims* names dimensions: ``{"batch": "1:0"}`` is the first of argument 1,
    ``"1:0, 2:0"`` that of argument 2 too.
    """
    try:
        import jax  # noqa: PLC0415  an extra
    except ImportError:
        raise SpecError("from_jax", "jax", "is not installed: pip install '.[jax]'") from None
    closed = jax.make_jaxpr(function)(*arguments)
    tracer = _Jax()
    values: dict[str, Value] = {}
    traced: list[Value] = []
    for index, argument in enumerate(arguments):
        leaves, _ = jax.tree_util.tree_flatten_with_path(argument)
        alone = len(leaves) == 1 and not leaves[0][0]
        weight = (index in weights) if weights is not None else not alone
        for path, leaf in leaves:
            label = "_".join(_key_text(step) for step in path) or f"argument_{index}"
            width = None if "float" in str(leaf.dtype) else float(leaf.dtype.itemsize)
            value = tracer.add_input(label, leaf.shape, "weight" if weight else "input", width)
            traced.append(value)
            values[f"{index}.{label}" if path else str(index)] = value
    tie_dims(values, dims or {})
    constants = [tracer.captured(const, number) for number, const in enumerate(closed.consts)]
    results = tracer.run(closed.jaxpr, constants, traced)
    name_dims(values, dims or {})
    stored = [value.stored for value in results if value.stored is not None]
    return finish_program(tracer, name or getattr(function, "__name__", "program"), stored)


def _key_text(key: Any) -> str:
    for field in ("key", "name", "idx"):
        if hasattr(key, field):
            return str(getattr(key, field))
    return str(key)


class _Jax(Tracer):
    """Traces the equations of a jaxpr."""

    def captured(self, array: Any, number: int) -> Value:
        """Return an array that a function has from around it: weights, unless they are whole numbers or truths."""
        if "float" in str(array.dtype):
            return self.add_input(f"constant_{number}", array.shape, "weight")
        return self.constant(array.shape, masks=str(array.dtype) == "bool")

    def run(self, jaxpr: Any, constants: Sequence[Value], arguments: Sequence[Value]) -> list[Value]:
        """Trace the equations of *jaxpr*; return its results."""
        values: dict[Any, Value] = {}
        values |= dict(zip(jaxpr.constvars, constants, strict=True))
        values |= dict(zip(jaxpr.invars, arguments, strict=True))

        def value(atom: Any) -> Value:
            if hasattr(atom, "val"):
                return self.constant(getattr(atom.val, "shape", ()))
            return values[atom]

        for equation in jaxpr.eqns:
            inputs = [value(atom) for atom in equation.invars]
            outputs = self.apply(equation, inputs)
            values |= dict(zip(equation.outvars, outputs, strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    def apply(self, equation: Any, inputs: list[Value]) -> list[Value]:
        """Trace one equation."""
        name, params = equation.primitive.name, equation.params
        shape = tuple(equation.outvars[0].aval.shape) if equation.outvars else ()
        if name in INLINED:
            return self._inline(params, inputs)
        if name in POINTWISE:
            return [self.pointwise("pow" if name == "integer_pow" else name, inputs, shape)]
        if name in SAME:
            return list(inputs)
        if name in REDUCTIONS:
            return [self.reduce(inputs[0], params["axes"], name.removeprefix("reduce_"))]
        if name in CONSTANTS:
            return [self.constant(tuple(outvar.aval.shape), masks=False) for outvar in equation.outvars]
        if name in CUMULATIVE:
            over = resolve_atoms(inputs[0].dims[params["axis"]])
            return [self.add_unsplit("pointwise", inputs[:1], inputs[0].dims, over)]
        handler = getattr(self, f"_{name.replace('-', '_')}", None)
        if handler is None:
            raise SpecError(
                "operator", name, "is not known to COSMIC: write the function without it, or the program in YAML"
            )
        result = handler(params, inputs, shape, equation)
        return result if isinstance(result, list) else [result]

    def _inline(self, params: Mapping[str, Any], inputs: list[Value]) -> list[Value]:
        inner = next(params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params)
        closed = hasattr(inner, "consts")
        constants = [self.constant(getattr(const, "shape", ())) for const in inner.consts] if closed else []
        return self.run(inner.jaxpr if closed else inner, constants, inputs)

    # -------------------------------------------------------------------------------------------- views

    def _transpose(self, params: Any, inputs: list[Value], *_: Any) -> Value:
        return self.transpose(inputs[0], params["permutation"])

    def _reshape(self, params: Any, inputs: list[Value], shape: tuple[int, ...], *_: Any) -> Value:
        return self.reshape(inputs[0], shape)

    def _squeeze(self, params: Any, inputs: list[Value], shape: tuple[int, ...], *_: Any) -> Value:
        return self.reshape(inputs[0], shape)

    def _expand_dims(self, params: Any, inputs: list[Value], shape: tuple[int, ...], *_: Any) -> Value:
        return self.reshape(inputs[0], shape)

    def _broadcast_in_dim(self, params: Any, inputs: list[Value], shape: tuple[int, ...], *_: Any) -> Value:
        return self.broadcast(inputs[0], shape, params["broadcast_dimensions"])

    def _rev(self, params: Any, inputs: list[Value], *_: Any) -> Value:
        return inputs[0]

    def _slice(self, params: Any, inputs: list[Value], shape: tuple[int, ...], *_: Any) -> Value:
        value = inputs[0]
        for axis, (start, length) in enumerate(zip(params["start_indices"], shape, strict=True)):
            value = self.sliced(value, axis, start, length)
        return value

    def _split(self, params: Any, inputs: list[Value], shape: tuple[int, ...], *_: Any) -> list[Value]:
        parts, start = [], 0
        for length in params["sizes"]:
            parts.append(self.sliced(inputs[0], params["axis"], start, length))
            start += length
        return parts

    def _dynamic_slice(self, params: Any, inputs: list[Value], shape: tuple[int, ...], *_: Any) -> Value:
        value = inputs[0]
        for axis, length in enumerate(shape):
            value = self.sliced(value, axis, 0, length)
        return value

    def _dynamic_update_slice(self, params: Any, inputs: list[Value], *_: Any) -> Value:
        over = [atom for dim in inputs[0].dims for atom in resolve_atoms(dim)]
        return self.add_unsplit("copy", inputs[:2], inputs[0].dims, over, 0.0)

    def _concatenate(self, params: Any, inputs: list[Value], *_: Any) -> Value:
        return self.joined(inputs, params["dimension"]) if len(inputs) > 1 else inputs[0]

    def _pad(self, params: Any, inputs: list[Value], shape: tuple[int, ...], *_: Any) -> Value:
        return self.padded(inputs[0], shape)

    # ---------------------------------------------------------------------------------------- operators

    def _dot_general(self, params: Any, inputs: list[Value], *_: Any) -> Value:
        (left, right), (left_batch, right_batch) = params["dimension_numbers"]
        return self.einsum(
            inputs[0],
            inputs[1],
            list(zip(left_batch, right_batch, strict=True)),
            list(zip(left, right, strict=True)),
        )

    def _conv_general_dilated(self, params: Any, inputs: list[Value], shape: tuple[int, ...], *_: Any) -> Value:
        numbers = params["dimension_numbers"]
        if any(factor != 1 for factor in params["lhs_dilation"]):
            raise SpecError(
                "operator", "conv_general_dilated", "with lhs_dilation (a transposed convolution) is not known"
            )
        if params["batch_group_count"] != 1:
            raise SpecError("operator", "conv_general_dilated", "with batch_group_count is not known")
        out = numbers.out_spec
        ordered = tuple(shape[axis] for axis in out)
        convolved = self.convolution(
            inputs[0],
            inputs[1],
            (numbers.lhs_spec, numbers.rhs_spec),
            ordered,
            params["window_strides"],
            params["padding"],
            params["rhs_dilation"],
            params["feature_group_count"],
        )
        order = [out.index(index) for index in range(len(out))]
        return self.transpose(convolved, order)

    def _window(self, params: Any, inputs: list[Value], shape: tuple[int, ...], *_: Any) -> Value:
        window = params["window_dimensions"]
        axes = [index for index, size in enumerate(window) if size > 1]
        padding = [params["padding"][axis] for axis in axes]
        strides = [params["window_strides"][axis] for axis in axes]
        return self.pooling(inputs[0], axes, [window[axis] for axis in axes], shape, strides, padding)

    _reduce_window_sum = _reduce_window_max = _reduce_window_min = _window

    def _gather(self, params: Any, inputs: list[Value], shape: tuple[int, ...], *_: Any) -> Value:
        table, index = inputs
        numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
        offsets, picked = tuple(numbers.offset_dims), tuple(numbers.start_index_map)
        fresh = self.constant(shape)
        slice_axes = [axis for axis in range(len(table.dims)) if axis not in numbers.collapsed_slice_dims]
        slice_axes = [axis for axis in slice_axes if axis not in getattr(numbers, "operand_batching_dims", ())]
        dims = list(fresh.dims)
        for out, axis in zip(offsets, slice_axes, strict=False):
            if sizes[axis] == table.shape[axis]:
                dims[out] = table.dims[axis]
        looked = [axis for axis in range(len(shape)) if axis not in offsets]
        for out, dim in zip(looked, index.dims, strict=False):
            if resolve_atoms(dim):
                dims[out] = dim
        if picked == (0,) and tuple(numbers.collapsed_slice_dims) == (0,) and table.stored is not None:
            source = index if index.stored is not None else self.constant(())
            return self.lookup(table, source, dims)
        over = [atom for axis in picked for atom in resolve_atoms(table.dims[axis])]
        return self.add_unsplit("gather", [table, index], dims, over, 0.0)

    def _scatter(self, params: Any, inputs: list[Value], *_: Any) -> Value:
        operand, index, updates = inputs
        axes = params["dimension_numbers"].scatter_dims_to_operand_dims
        over = [atom for axis in axes for atom in resolve_atoms(operand.dims[axis])]
        return self.add_unsplit("scatter", [updates, index, operand], operand.dims, over)

    _scatter_add = _scatter_mul = _scatter_max = _scatter_min = _scatter

    def _sort(self, params: Any, inputs: list[Value], shape: tuple[int, ...], *_: Any) -> list[Value]:
        axis = params["dimension"]
        over = resolve_atoms(inputs[0].dims[axis])
        work = max(1.0, log2(max(2, shape[axis])))
        return self.sorted(inputs, [value.dims for value in inputs], over, work)

    def _top_k(self, params: Any, inputs: list[Value], shape: tuple[int, ...], *_: Any) -> list[Value]:
        value = inputs[0]
        dims = [*value.dims[:-1], self.constant((params["k"],)).dims[0]]
        over = resolve_atoms(value.dims[-1])
        work = max(1.0, log2(max(2, value.shape[-1])))
        return self.sorted([value], [dims, dims], [*over, *resolve_atoms(dims[-1])], work)

    # -------------------------------------------------------------------------------------------- loops

    def _scan(self, params: Any, inputs: list[Value], shape: Any, equation: Any) -> list[Value]:
        constants, carried, length = params["num_consts"], params["num_carry"], int(params["length"])
        held, entering, stacked = (
            inputs[:constants],
            inputs[constants : constants + carried],
            inputs[constants + carried :],
        )
        # Three kinds of scan: over stacked weights (layers), over activations (a recurrence), and with weights that all
        # runs share, which must be written out, as a repeated part has weights of its own for each run.
        layered = bool(stacked) and any(value.stored is not None and value.stored.role == "weight" for value in stacked)
        shared = any(value.stored is not None and value.stored.role == "weight" for value in held)
        if shared and (layered or not stacked):
            return self._written_out(params["jaxpr"], held, entering, stacked, length)
        if layered or not stacked:
            return self._layers(params["jaxpr"], held, entering, stacked, length)
        return self._steps(params["jaxpr"], held, entering, stacked)

    def _written_out(
        self, closed: Any, held: list[Value], entering: list[Value], stacked: list[Value], length: int
    ) -> list[Value]:
        """Trace a scan whose runs share weights: run by run, as a repeated part would have weights of its own."""
        count = length * len(closed.jaxpr.eqns)
        if count > MOST_EQUATIONS:
            rule = f"shares weights between its runs, which are {count:,} equations, more than {MOST_EQUATIONS:,}"
            raise SpecError("operator", f"scan of {length:,} runs", f"{rule}: stack the weights, or trace fewer runs")
        carried, stacked_results = list(entering), []
        for index in range(length):
            rows = []
            for value in stacked:
                row = self.sliced(value, 0, index, 1)
                rows.append(Value(row.dims[1:], row.stored, row.masks))
            constants = [self.constant(const.shape) for const in closed.consts]
            results = self.run(closed.jaxpr, constants, [*held, *carried, *rows])
            carried = results[: len(entering)]
            stacked_results.append([Value([[], *value.dims], value.stored) for value in results[len(entering) :]])
        return [*carried, *(self.joined(values, 0) for values in zip(*stacked_results, strict=True))]

    def _layers(
        self, closed: Any, held: list[Value], entering: list[Value], stacked: list[Value], length: int
    ) -> list[Value]:
        """Trace a scan over stacked weights: a part that is repeated, with weights of its own for each run."""
        if self.part:
            raise SpecError("operator", "scan", "over weights inside another such scan is not known")
        self.parts += 1
        self.part, self.repeats[self.parts] = self.parts, length
        sliced = []
        for value in stacked:
            if value.stored is not None and value.stored.role == "weight":
                stored = Stored(value.stored.name, "weight", value.dims[1:], length, value.stored.bytes)
                sliced.append(Value(value.dims[1:], stored))
            else:
                sliced.append(self._row(value))
        results = self.run(
            closed.jaxpr, [self.constant(const.shape) for const in closed.consts], [*held, *entering, *sliced]
        )
        carried = results[: len(entering)]
        for enters, leaves in zip(entering, carried, strict=True):
            for entered_dim, left_dim in zip(enters.dims, leaves.dims, strict=True):
                if resolve_atoms(entered_dim) != resolve_atoms(left_dim):
                    self._tie(entered_dim, left_dim)
            if enters.stored is not None and leaves.stored is not None:
                self.carries.setdefault(self.part, []).append((enters.stored, leaves.stored))
        self.part = 0
        return [*carried, *(self._stacked(value, length) for value in results[len(entering) :])]

    def _tie(self, first: Dim, second: Dim) -> None:
        """Make two dimensions one, unless they are two sides of one already."""
        with suppress(Twins):
            unify_atoms(first, second)

    def _row(self, value: Value) -> Value:
        """Return one of the values that are stacked along the first dimension."""
        row = self.sliced(value, 0, 0, 1)
        return Value(row.dims[1:], row.stored, row.masks)

    def _stacked(self, value: Value, length: int) -> Value:
        return Value([self.constant((length,)).dims[0], *value.dims], value.stored)

    def _steps(self, closed: Any, held: list[Value], entering: list[Value], stacked: list[Value]) -> list[Value]:
        """Trace a scan over activations: its operators have the dimension of the steps, which they run through."""
        time = next((value.dims[0] for value in stacked if resolve_atoms(value.dims[0])), [])
        for value in stacked[1:]:
            self._tie(time, value.dims[0])
        before = list(self.serial)
        self.serial = [*before, *resolve_atoms(time)]
        carried = []
        for value in entering:
            state = self.add_input(
                self.name("state"), [size_of_atoms(resolve_atoms(dim)) for dim in value.dims], "activation"
            )
            for first, second in zip(state.dims, value.dims, strict=True):
                self._tie(first, second)
            if state.stored is not None:
                state.stored.dims = [time, *state.dims]
            carried.append(state)
        inner = [Value(value.dims[1:], value.stored) for value in stacked]
        results = self.run(
            closed.jaxpr, [self.constant(const.shape) for const in closed.consts], [*held, *carried, *inner]
        )
        self.serial = before
        self._put_in_time(time)
        return [
            *results[: len(entering)],
            *(Value([time, *value.dims], value.stored) for value in results[len(entering) :]),
        ]

    def _put_in_time(self, time: Dim) -> None:
        """Give every tensor that was made inside a loop the dimension of its steps."""
        steps = resolve_atoms(time)[:1]
        for operator in self.noted:
            if steps and steps[0] in resolve_atoms(operator.serial):
                for tensor in operator.outputs:
                    if steps[0] not in tensor.atoms:
                        tensor.dims = [time, *tensor.dims]

    def _while(self, params: Any, *_: Any) -> list[Value]:
        raise SpecError(
            "operator", "while", "says not how often it runs: write it as a scan, or a fori_loop of fixed bounds"
        )

    def _cond(self, params: Any, inputs: list[Value], *_: Any) -> list[Value]:
        raise SpecError("operator", "cond", "has branches of which only one runs: trace the one that does")
