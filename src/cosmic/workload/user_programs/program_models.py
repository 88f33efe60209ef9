"""Load programs from YAML and Python files, and turn them into models of designs and back.

A design has one as its model by ``model: {program: my.yaml}``, or by such a file in the place of a model's name.

Sources are a YAML file, a model file that holds a program, and ``FILE.py:function`` or ``FILE.py:Module``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cosmic.base.errors import CosmicError, SpecError, UnknownName, one_line, require
from cosmic.base.registry import import_file
from cosmic.design import catalog_entries, schema
from cosmic.design.loading import read_model
from cosmic.design.model_layer import count_active_parameters, count_parameters
from cosmic.design.plain_data import load_yaml, parse_yaml
from cosmic.design.program_model import (
    PROGRAM_KEY,
    ProgramAnnotation,
    ProgramCut,
    ProgramDim,
    ProgramModel,
    ProgramOperator,
    ProgramPart,
    ProgramTensor,
    is_program,
)
from cosmic.design.systems import NO_FILES_RULE
from cosmic.workload.attended_keys import causal_share
from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.operator_kinds import operator_flop, unsharded_elements
from cosmic.workload.user_programs.program_blocks import build_program_blocks, check_annotations, whole_graph
from cosmic.workload.user_programs.program_graph import Program, ProgramSection, parse_annotations, read_annotations
from cosmic.workload.user_programs.program_yaml import read_program


def model_of(program: Program) -> ProgramModel:
    """Return *program* as the model of a design: planned, priced, searched and traced like any other."""
    by_name = {operator.name: operator for operator in program.graph.operators}
    parts = program.parts or (ProgramSection(program.name, tuple(by_name)),)
    used = dict.fromkeys(dim for tensor in program.graph.tensors.values() for dim in tensor.dims)
    model = ProgramModel(
        name=program.name,
        dims=tuple(ProgramDim(name=dim, size=program.sizes[dim], like=program.like.get(dim, "")) for dim in used),
        tensors=tuple(
            ProgramTensor(
                name=tensor.name,
                dims=tensor.dims,
                role=tensor.role,  # type: ignore[arg-type]  # no gradient
                element_bytes=program.element_bytes.get(tensor.name),
            )
            for tensor in program.graph.tensors.values()
        ),
        parts=tuple(
            ProgramPart(
                name=part.name,
                operators=tuple(_program_operator(by_name[name]) for name in part.operators),
                repeat=part.repeat,
                carries=tuple(name for pair in part.carries for name in pair),
            )
            for part in parts
        ),
        annotations=tuple(
            ProgramAnnotation(tensor=name, axes=tuple(" ".join(names) for names in axes))
            for name, axes in program.annotations.items()
        ),
        cuts=tuple(ProgramCut(axis=axis, parts=parts) for axis, parts in program.cuts.items()),  # type: ignore[arg-type]
    )
    for dim in model.dims:
        if dim.like and dim.like not in used:
            raise UnknownName.among(f"like.{dim.name}", dim.like, "dimension", used)
    check_annotations(model)
    build_program_blocks(model)  # refuses what the plan does not know
    return model


def program_of(model: ProgramModel) -> Program:
    """Return the program that is the model of a design."""
    return Program(
        model.name,
        _restore_roles(model),
        dict(model.sizes),
        parts=tuple(
            ProgramSection(
                part.name,
                tuple(operator.name for operator in part.operators),
                part.repeat,
                tuple(zip(part.carries[::2], part.carries[1::2], strict=True)),
            )
            for part in model.parts
        ),
        element_bytes={
            tensor.name: tensor.element_bytes for tensor in model.tensors if tensor.element_bytes is not None
        },
        like={dim.name: dim.like for dim in model.dims if dim.like},
        cuts={cut.axis: cut.parts for cut in model.cuts},
        annotations={
            annotation.tensor: tuple(tuple(axes.split()) for axes in annotation.axes)
            for annotation in model.annotations
        },
    )


def _restore_roles(model: ProgramModel) -> Graph:
    """Return the graph of a model with the roles that its file states, also of what enters repeated parts."""
    roles = {tensor.name: tensor.role for tensor in model.tensors}

    def with_stated_roles(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(replace(tensor, role=roles[tensor.name], element_bytes=None) for tensor in tensors)

    operators = whole_graph(model).operators
    return Graph(
        tuple(
            replace(operator, inputs=with_stated_roles(operator.inputs), outputs=with_stated_roles(operator.outputs))
            for operator in operators
        )
    )


def _program_operator(operator: Operator) -> ProgramOperator:
    return ProgramOperator(
        name=operator.name,
        kind=operator.kind,
        inputs=tuple(tensor.name for tensor in operator.inputs),
        outputs=tuple(tensor.name for tensor in operator.outputs),
        same=tuple(dim for pair in operator.same for dim in pair),
        whole=operator.whole,
        halo=tuple(f"{dim} {before} {after}" for dim, before, after in operator.halo),
        serial=operator.serial,
        flop=operator.flop_per_element,
    )


MODEL_KEYS = (PROGRAM_KEY, "annotations", "name")


def model_tree(tree: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """Return the model that ``{program: FILE, annotations: {…}}`` describes, as the content of a design file."""
    for key in tree:
        if key not in MODEL_KEYS:
            raise UnknownName.key(f"model.{key}", tree[key], MODEL_KEYS)
    name = schema.read_source(tree[PROGRAM_KEY], "model.program")
    require(folder is not None, "model.program", name, NO_FILES_RULE)
    return program_tree(load_yaml((folder or Path()) / name), Path(name).stem, tree)


def program_tree(tree: Any, name: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a program's file as that of a model, with annotations beside its own."""
    require(is_program(tree), name, tree, "is no program: it lists no dims and operators")
    program = read_program(tree, name)
    if "annotations" in overrides:
        program = read_annotations(program, overrides["annotations"])
    written: dict[str, Any] = schema.write_value(model_of(program))
    return {**written, **({"name": overrides["name"]} if "name" in overrides else {})}


def annotate_model(model: ProgramModel, tree: Any) -> ProgramModel:
    """Return *model* with further annotations."""
    return model_of(read_annotations(program_of(model), tree))


def usual_workload(model: ProgramModel) -> dict[str, Any]:
    """Return the workload that a program's own sizes say: its sequence, and its batch as the global one."""
    workload: dict[str, Any] = {"sequence": model.sizes.get("sequence", 1)}
    return workload | ({"global_batch": model.sizes["batch"]} if "batch" in model.sizes else {})


ARGUMENTS = "arguments"
"""The function of a Python file that returns the arguments of its other functions, where no shapes are given."""
TYPES = ("bf16", "f16", "f32", "int32", "int64", "bool")
JAX = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


def load_program(
    source: str | Path,
    *,
    shapes: Sequence[str] = (),
    dims: Mapping[str, str] | None = None,
    weights: Sequence[int] | None = None,
) -> Program:
    """Return the program that *source* names: ``my.yaml``, ``FILE.py:function`` or ``FILE.py:Module``.

    A Python file is run. *shapes* are the arguments: ``8x1024``, ``int32 8x1024``, or a tree, ``{w1: 64x64}``.
    """
    text = str(source)
    path, colon, function = text.rpartition(":")
    if colon and path.endswith(".py"):
        try:
            return _from_python(Path(path), function, shapes, dims or {}, weights)
        except CosmicError:
            raise
        except Exception as error:  # whatever a user's file raises
            rule = f"cannot be traced: {type(error).__name__}: {one_line(str(error))}"
            raise SpecError("program", text, rule) from None
    require(not (shapes or dims or weights), "--shape", text, "only a function of a Python file takes shapes and dims")
    tree = load_yaml(Path(text))
    if (
        isinstance(tree, Mapping)
        and isinstance(tree.get("model"), Mapping)
        and tree["model"].get("family") == "program"
    ):
        model: ProgramModel = schema.read_value(ProgramModel, tree["model"], "model")
        return program_of(model)
    require(is_program(tree), text, "a file", "is no program: it lists no dims and operators")
    return read_program(tree, Path(text).stem)


def parse_dims(texts: Sequence[str]) -> dict[str, str]:
    """Return the names of dimensions in texts such as ``batch=0:0``.

    >>> parse_dims(["batch=0:0", "sequence=0:1", "batch=1:0"])
    {'batch': '0:0, 1:0', 'sequence': '0:1'}
    """
    dims: dict[str, str] = {}
    for text in texts:
        name, equals, position = text.partition("=")
        require(bool(equals and name), "--dim", text, "write NAME=ARGUMENT:DIMENSION, such as batch=0:0")
        before = f"{dims[name.strip()]}, " if name.strip() in dims else ""
        dims[name.strip()] = before + position.strip()
    return dims


def _from_python(
    path: Path, name: str, shapes: Sequence[str], dims: Mapping[str, str], weights: Sequence[int] | None
) -> Program:
    module = import_file(path, "program")
    candidate = getattr(module, name, None)
    require(candidate is not None, "program", f"{path}:{name}", "the file has nothing of this name")
    parsed = [_parse_argument(text) for text in shapes]
    torch = sys.modules.get("torch")
    if torch is not None and (isinstance(candidate, torch.nn.Module) or _is_module(candidate, torch)):
        return _of_torch(candidate, torch, parsed, module, name, dims)
    from cosmic.workload.user_programs.jax_programs import from_jax  # noqa: PLC0415  an extra

    arguments = [_jax_argument(shape) for shape in parsed] if parsed else _stated_arguments(module)
    return from_jax(candidate, *arguments, name=name, dims=dims, weights=weights)  # type: ignore[arg-type]  # a function


def _is_module(candidate: Any, torch: Any) -> bool:
    return inspect.isclass(candidate) and issubclass(candidate, torch.nn.Module)


def _of_torch(
    candidate: Any, torch: Any, parsed: list[Any], module: Any, name: str, dims: Mapping[str, str]
) -> Program:
    from cosmic.workload.user_programs.torch_programs import from_torch  # noqa: PLC0415  an extra

    with torch.device("meta"):
        built = candidate() if inspect.isclass(candidate) else candidate
        arguments = [_torch_argument(shape, torch) for shape in parsed] if parsed else _stated_arguments(module)
    return from_torch(built, *arguments, name=name.lower(), dims=dims)


def _stated_arguments(module: Any) -> Sequence[Any]:
    """Return the arguments that a file of a user states."""
    make = getattr(module, ARGUMENTS, None)
    rule = f"give --shape for each argument, or a function {ARGUMENTS} in the file that returns them"
    require(callable(make), "--shape", schema.Absent(), rule)
    arguments = make()  # type: ignore[misc]  # callable, as was checked
    return arguments if isinstance(arguments, tuple | list) else (arguments,)


def _parse_argument(text: str) -> Any:
    return parse_yaml(text, "--shape") if text.lstrip().startswith(("{", "[")) else text


def _parse_shape(text: Any) -> tuple[str, tuple[int, ...]]:
    """Return the type and the sizes of an argument.

    >>> _parse_shape("int32 8x1024"), _parse_shape("64")
    (('int32', (8, 1024)), ('bf16', (64,)))
    """
    words = str(text).split()
    kind, sizes = (words[0], words[1]) if len(words) == 2 else ("bf16", words[0] if words else "")
    parts = sizes.split("x") if sizes else []
    good = kind in TYPES and len(words) <= 2 and all(part.isdecimal() and int(part) > 0 for part in parts)
    require(good, "--shape", text, f"write sizes such as 8x1024, after one of {', '.join(TYPES)} if need be")
    return kind, tuple(int(part) for part in parts)


def _jax_argument(tree: Any) -> Any:
    import jax  # noqa: PLC0415  an extra

    if isinstance(tree, Mapping):
        return {key: _jax_argument(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_jax_argument(value) for value in tree]
    kind, sizes = _parse_shape(tree)
    return jax.ShapeDtypeStruct(sizes, JAX.get(kind, kind))


def _torch_argument(text: Any, torch: Any) -> Any:
    kind, sizes = _parse_shape(text)
    dtype = getattr(torch, {"bf16": "float32", "f16": "float16", "f32": "float32"}.get(kind, kind))
    return torch.empty(sizes, dtype=dtype, device="meta")


BF16_BYTES = 2


def show_model(
    source: str, *, shapes: Sequence[str] = (), dims: Sequence[str] = (), annotate: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the shape of a model of the catalog, or the operators of a program with their flop; and its parameters.

    A program is a YAML file, ``FILE.py:function`` or ``FILE.py:Module``. Of a function, *shapes* are its arguments,
    such as "8x1024", and *dims* name dimensions, such as "batch=0:0". *annotate* splits tensors: "w1: [_, tp]".

    >>> import cosmic
    >>> cosmic.model.show("llama3-8b")["parameters"]
    8030261248
    """
    if names_program(source):
        return show_program(source, shapes, dims, annotate)
    for option, value in {"shapes": shapes, "dims": dims, "annotate": annotate}.items():
        require(not value, option, list(value), f"is for programs; {source} is no YAML file or FILE.py:function")
    return show_catalog_model(source)


def names_program(source: str) -> bool:
    """Return whether *source* is a program, not a model of the catalog."""
    return Path(source).suffix in (".yaml", ".yml") or Path(source.rpartition(":")[0]).suffix == ".py"


def show_catalog_model(name: str) -> dict[str, Any]:
    """Return the shape of a model of the catalog, its parameters and the bytes of its weights."""
    entry = catalog_entries.read_entry("models", name)
    name = catalog_entries.resolve_name("models", name) or name
    model = read_model(entry, name)
    shape = {key: value for key, value in schema.write_value(model, brief=True).items() if key != "name"}
    parameters = count_parameters(model)
    return {
        "name": name,
        "family": model.family,
        "parameters": parameters,
        "active_parameters": count_active_parameters(model),
        "bf16_bytes": BF16_BYTES * parameters,
        "sequence": entry.get("workload", {}).get("sequence"),
        "shape": shape,
        "source": entry.get("source", ""),
    }


def show_program(
    program: str | Path, shapes: Sequence[str], dims: Sequence[str], annotate: Sequence[str]
) -> dict[str, Any]:
    """Return the operators of a program with their flop, its dimensions and parameters."""
    loaded = load_program(program, shapes=shapes, dims=parse_dims(list(dims)))
    annotated = read_annotations(loaded, parse_annotations(annotate))
    rows, work = describe_operators(annotated)
    parameters = model_of(annotated).parameters
    return {
        "name": annotated.name,
        "flop": work,
        "parameters": parameters,
        "dims": dict(annotated.sizes),
        "operators": rows,
    }


def describe_operators(found: Program) -> tuple[list[dict[str, Any]], float]:
    """Return every operator with its flop, in its part, and the flop of all of them."""
    sizes: dict[str, Any] = {**found.sizes, "visible": float(causal_share(found.sizes.get("sequence", 1)))}
    part_of = {name: part for part in found.parts for name in part.operators}
    rows, total = [], 0.0
    for operator in found.graph.operators:
        part = part_of.get(operator.name)
        work = float(operator_flop(operator, unsharded_elements(sizes), sizes))
        total += work * (part.repeat if part else 1)
        rows.append(
            {
                "part": "" if part is None else part.name if part.repeat == 1 else f"{part.name} × {part.repeat}",
                "name": operator.name,
                "kind": operator.kind,
                "reads": ", ".join(f"{input_.name}[{' '.join(input_.stored_dims)}]" for input_ in operator.inputs),
                "makes": " ".join(operator.outputs[0].dims),
                "flop": work,
            }
        )
    return rows, total
