"""Where programs come from: a YAML file, a model file that holds one, or a function or module of a Python file."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cosmic.catalog.yaml_files import load_yaml, parse_yaml
from cosmic.design import schema
from cosmic.design.program import ProgramModel
from cosmic.errors import CosmicError, SpecError, one_line, require
from cosmic.loading.readers import is_program
from cosmic.programs.models import program_of
from cosmic.programs.program import Program
from cosmic.programs.reading import read_program
from cosmic.registry import import_file

ARGUMENTS = "arguments"
"""The function of a Python file that returns the arguments of its other functions, where no shapes are given."""
TYPES = ("bf16", "f16", "f32", "int32", "int64", "bool")
JAX = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


def load(
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
        model: ProgramModel = schema.read(ProgramModel, tree["model"], "model")
        return program_of(model)
    require(is_program(tree), text, "a file", "is no program: it lists no dims and operators")
    return read_program(tree, Path(text).stem)


def parse_dims(texts: Sequence[str]) -> dict[str, str]:
    """Return the names of dimensions that texts such as ``batch=0:0`` give.

    >>> parse_dims(["batch=0:0", "sequence=0:1", "batch=1:0"])
    {'batch': '0:0, 1:0', 'sequence': '0:1'}
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        require(bool(equals and name), "--dim", text, "write NAME=ARGUMENT:DIMENSION, such as batch=0:0")
        before = f"{found[name.strip()]}, " if name.strip() in found else ""
        found[name.strip()] = before + place.strip()
    return found


def _from_python(
    path: Path, name: str, shapes: Sequence[str], dims: Mapping[str, str], weights: Sequence[int] | None
) -> Program:
    module = import_file(path, "program")
    found = getattr(module, name, None)
    require(found is not None, "program", f"{path}:{name}", "the file has nothing of this name")
    given = [_tree(text) for text in shapes]
    torch = sys.modules.get("torch")
    if torch is not None and (isinstance(found, torch.nn.Module) or _is_module(found, torch)):
        return _of_torch(found, torch, given, module, name, dims)
    from cosmic.programs.jax_programs import from_jax  # noqa: PLC0415  an extra

    arguments = [_jax(each) for each in given] if given else _stated(module)
    return from_jax(found, *arguments, name=name, dims=dims, weights=weights)  # type: ignore[arg-type]  # a function


def _is_module(found: Any, torch: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, torch.nn.Module)


def _of_torch(found: Any, torch: Any, given: list[Any], module: Any, name: str, dims: Mapping[str, str]) -> Program:
    from cosmic.programs.torch_programs import from_torch  # noqa: PLC0415  an extra

    with torch.device("meta"):
        built = found() if inspect.isclass(found) else found
        arguments = [_torch(each, torch) for each in given] if given else _stated(module)
    return from_torch(built, *arguments, name=name.lower(), dims=dims)


def _stated(module: Any) -> Sequence[Any]:
    """Return the arguments that a file of a user states."""
    make = getattr(module, ARGUMENTS, None)
    rule = f"give --shape for each argument, or a function {ARGUMENTS} in the file that returns them"
    require(callable(make), "--shape", schema.Absent(), rule)
    found = make()  # type: ignore[misc]  # callable, as was checked
    return found if isinstance(found, tuple | list) else (found,)


def _tree(text: str) -> Any:
    return parse_yaml(text, "--shape") if text.lstrip().startswith(("{", "[")) else text


def _leaf(text: Any) -> tuple[str, tuple[int, ...]]:
    """Return the type and the sizes of an argument.

    >>> _leaf("int32 8x1024"), _leaf("64")
    (('int32', (8, 1024)), ('bf16', (64,)))
    """
    words = str(text).split()
    kind, sizes = (words[0], words[1]) if len(words) == 2 else ("bf16", words[0] if words else "")
    parts = sizes.split("x") if sizes else []
    good = kind in TYPES and len(words) <= 2 and all(part.isdecimal() and int(part) > 0 for part in parts)
    require(good, "--shape", text, f"write sizes such as 8x1024, after one of {', '.join(TYPES)} if need be")
    return kind, tuple(int(part) for part in parts)


def _jax(tree: Any) -> Any:
    import jax  # noqa: PLC0415  an extra

    if isinstance(tree, Mapping):
        return {key: _jax(each) for key, each in tree.items()}
    if isinstance(tree, list):
        return [_jax(each) for each in tree]
    kind, sizes = _leaf(tree)
    return jax.ShapeDtypeStruct(sizes, JAX.get(kind, kind))


def _torch(text: Any, torch: Any) -> Any:
    kind, sizes = _leaf(text)
    dtype = getattr(torch, {"bf16": "float32", "f16": "float16", "f32": "float32"}.get(kind, kind))
    return torch.empty(sizes, dtype=dtype, device="meta")
