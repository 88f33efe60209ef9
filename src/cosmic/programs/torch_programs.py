"""PyTorch modules as programs, by `torch.export` on meta tensors: no weights are made, and nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosmic.errors import SpecError
from cosmic.programs.finishing import finish, name_dims, tie_dims
from cosmic.programs.program import Program
from cosmic.programs.torch_operators import TorchTracer, name_of
from cosmic.programs.tracing import Value


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
    tensors = tuple(each.to("meta") for each in arguments)
    tracer = TorchTracer()
    exported = _spelled_out(torch.export.export(module, tensors, strict=False), torch, tracer)
    known: dict[str, Value] = {}
    values: dict[str, Value] = {}
    signature = exported.graph_signature
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    trained = set(signature.inputs_to_parameters)
    constants = {**getattr(signature, "inputs_to_lifted_tensor_constants", {})}
    shared: dict[str, Value] = {}
    nodes = sorted(exported.graph.nodes, key=lambda node: node.op != "placeholder")
    for place, node in enumerate(nodes):
        if node.op != "placeholder" and place and nodes[place - 1].op == "placeholder":
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
            results = [known[each.name] for each in _flat(node.args) if hasattr(each, "name") and each.name in known]
    name_dims(values, dims or {})
    stored = [value.stored for value in results if value.stored is not None]
    return finish(tracer, name or type(module).__name__.lower(), stored)


def _spelled_out(exported: Any, torch: Any, tracer: TorchTracer) -> Any:
    """Return an exported program with the operators that COSMIC does not know written as those that it does.

    PyTorch's own decompositions say how: an outer product as a product, a loss as a softmax and a sum. Operators that
    write to what they read are made such that return what they make.
    """
    nodes = [node for node in exported.graph.nodes if node.op == "call_function"]
    if all(_stays(name_of(node.target), node.target, tracer) for node in nodes):
        return exported
    table = torch.export.default_decompositions()
    for operator in list(table):
        if _stays(name_of(operator), operator, tracer):
            del table[operator]
    return exported.run_decompositions(table)


def _stays(name: str, target: Any, tracer: TorchTracer) -> bool:
    return tracer.knows(name) and not getattr(getattr(target, "_schema", None), "is_mutable", False)


def _meta(node: Any) -> tuple[tuple[int, ...], str]:
    value = node.meta.get("val")
    if value is None or not hasattr(value, "shape"):
        return (), "float32"
    return tuple(int(size) for size in value.shape), str(value.dtype).removeprefix("torch.")


def _bytes(node: Any) -> int:
    return int(node.meta["val"].element_size())


def _flat(tree: Any) -> list[Any]:
    if isinstance(tree, tuple | list):
        return [leaf for each in tree for leaf in _flat(each)]
    return [tree]
