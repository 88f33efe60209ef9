"""A program as a model: its operators as data, so that a design that runs it says all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from cosmic.base.errors import require

WHOLE = {"whole": True}
MOST_CUTS = 3
MOST_BYTES = 16
"""Of one element: a complex number of two doubles."""
TensorRole = Literal["input", "index", "weight", "activation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramDim:
    """A dimension and its size."""

    name: str
    size: int = field(metadata={"most": 2**40})
    """Its size as the program was written; those of batch and sequence come from the workload."""
    like: str = ""
    """A dimension that it is as long as: keys are as many as queries."""

    def __post_init__(self) -> None:
        require(1 <= self.size <= 2**40, "size", self.size, "must be from 1 to 2^40")


def check_width(name: str, role: str, width: float) -> None:
    """Raise an error if no tensor of a *role* can have elements of so many bytes."""
    where = f"element_bytes.{name}"
    require(role != "weight", where, width, "weights have the format of the workload's precision: state it there")
    require(0 < width <= MOST_BYTES, where, width, f"must be above 0, up to {MOST_BYTES}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTensor:
    """A tensor and its dimensions."""

    name: str
    dims: tuple[str, ...]
    role: TensorRole = "activation"
    element_bytes: float | None = None
    """Bytes of an element; None for those of the precision, which weights always have."""

    def __post_init__(self) -> None:
        if self.element_bytes is not None:
            check_width(self.name, self.role, self.element_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOperator:
    """An operator, by the names of its tensors."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    same: tuple[str, ...] = ()
    """Pairs of dimensions that are one inside it, one after the other."""
    whole: tuple[str, ...] = ()
    """Dimensions that no axis may split."""
    halo: tuple[str, ...] = ()
    """Dimensions along which a window slides, each with the rows that it reads before and after a shard: height 1 1."""
    serial: tuple[str, ...] = ()
    """Dimensions that it runs through step by step."""
    flop: float | None = None
    """Flop per element; None for those of its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPart:
    """Operators that run in sequence, repeated with separate weights."""

    name: str
    operators: tuple[ProgramOperator, ...] = field(metadata=WHOLE)
    repeat: int = 1
    carries: tuple[str, ...] = ()
    """Pairs of what enters it and what it hands to its next run, one after the other."""

    def __post_init__(self) -> None:
        require(1 <= self.repeat <= 1_000_000, "repeat", self.repeat, "must be from 1 to 1,000,000")
        require(bool(self.operators), "operators", "[]", f"{self.name} must have some")
        require(len(self.carries) % 2 == 0, "carries", list(self.carries), "must be pairs of tensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramAnnotation:
    """The mesh axes over which a tensor is split."""

    tensor: str
    axes: tuple[str, ...]
    """For each dimension its axes, separated by spaces; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCut:
    """A mesh axis cut into sub-axes, which may split different dimensions: tp of 8 into tp_0 of 2 and tp_1 of 4."""

    axis: Literal["tp"]
    parts: tuple[int, ...]
    """Their sizes, the outermost first."""

    def __post_init__(self) -> None:
        where = f"axes.{self.axis}"
        many = f"must have 2 to {MOST_CUTS} parts, such as 2*4"
        require(2 <= len(self.parts) <= MOST_CUTS, where, "*".join(map(str, self.parts)), many)
        fits = all(1 <= part <= 2**20 for part in self.parts)
        require(fits, where, "*".join(map(str, self.parts)), "must have parts from 1 to 2^20")

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each sub-axis."""
        return {f"{self.axis}_{index}": size for index, size in enumerate(self.parts)}


@dataclass(frozen=True, kw_only=True)
class ProgramModel:
    """A model that is a user's program: operators over tensors with named dimensions."""

    name: str = ""
    family: Literal["program"] = "program"
    dims: tuple[ProgramDim, ...]
    """Every dimension with its size."""
    tensors: tuple[ProgramTensor, ...] = field(metadata=WHOLE)
    """Every tensor with its dimensions."""
    parts: tuple[ProgramPart, ...] = field(metadata=WHOLE)
    """The operators, in the order in which data passes through them."""
    annotations: tuple[ProgramAnnotation, ...] = field(default=(), metadata=WHOLE)
    """How some tensors are split over the axes of the mesh; the rest follows."""
    cuts: tuple[ProgramCut, ...] = field(default=(), metadata=WHOLE)
    """Axes of the mesh that are cut into sub-axes."""

    def __hash__(self) -> int:
        return self._digest

    @cached_property
    def _digest(self) -> int:
        return hash((self.name, self.dims, self.tensors, self.parts, self.annotations, self.cuts))

    def __post_init__(self) -> None:
        require(bool(self.parts), "parts", "[]", "must list some")

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The size of each dimension."""
        return {dim.name: dim.size for dim in self.dims}

    @cached_property
    def parameters(self) -> int:
        """Elements of all weights, those of repeated parts as often as they are repeated."""
        weights = {tensor.name: tensor for tensor in self.tensors if tensor.role == "weight"}
        counted: dict[str, int] = {}
        for part in self.parts:
            for operator in part.operators:
                for name in operator.inputs:
                    if name in weights:
                        counted[name] = max(counted.get(name, 1), part.repeat)
        return sum(times * prod(self.sizes[dim] for dim in weights[name].dims) for name, times in counted.items())

    @cached_property
    def layers(self) -> int:
        """How many parts a pipeline can be cut into: every run of a repeated part is one."""
        return sum(part.repeat for part in self.parts[self.begins : self.ends])

    @cached_property
    def begins(self) -> int:
        """The number of the first part that counts as a layer: one that looks up rows alone comes before them."""
        plain = all(operator.kind in LOOKUPS for operator in self.parts[0].operators)
        return int(plain and len(self.parts) > 1)

    @cached_property
    def ends(self) -> int:
        """The number of the part after the layers: one that runs once, after repeated ones."""
        last = len(self.parts) - 1
        return last if last > self.begins and self.parts[last].repeat == 1 else last + 1

    @cached_property
    def axes(self) -> frozenset[str]:
        """Every mesh axis that annotations name, or a sub-axis of."""
        cut = {name: cut.axis for cut in self.cuts for name in cut.sizes}
        named = (axis for annotation in self.annotations for axes in annotation.axes for axis in axes.split())
        return frozenset(cut.get(axis, axis) for axis in named)

    @cached_property
    def cut_sizes(self) -> dict[str, int]:
        """The size of each sub-axis."""
        return {name: size for cut in self.cuts for name, size in cut.sizes.items()}

    def written(self, axis: str) -> tuple[str, ...]:
        """Return the axes that an annotation means by a name: the sub-axes of one that is cut."""
        return next((tuple(cut.sizes) for cut in self.cuts if cut.axis == axis), (axis,))

    def cut_to(self, axis: str) -> int | None:
        """Return how many devices an axis must have, if it is cut."""
        return next((prod(cut.parts) for cut in self.cuts if cut.axis == axis), None)

    def split_sizes(self, axis: str) -> tuple[int, ...]:
        """Return the sizes of the dimensions that annotations split over *axis*; if it is cut, the devices it has."""
        if (devices := self.cut_to(axis)) is not None:
            return (devices,)
        dims = {tensor.name: tensor.dims for tensor in self.tensors}
        return tuple(
            self.sizes[dim]
            for annotation in self.annotations
            for dim, axes in zip(dims[annotation.tensor], annotation.axes, strict=True)
            if axis in axes.split()
        )


LOOKUPS = frozenset(("embedding", "view", "add", "rename"))
"""Kinds that keep nothing for their backward pass."""


PROGRAM_KEY = "program"
PROGRAM_MODULE = "cosmic.workload.user_programs.program_models"
"""The module that reads programs as models."""


class ProgramReader(Protocol):
    """What the module of programs offers."""

    def model_tree(self, given: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
        """Return the model that ``{program: FILE, annotations: {…}}`` describes."""

    def program_tree(self, tree: Any, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of a program's file as that of a model."""

    def annotate_model(self, model: ProgramModel, tree: Any) -> ProgramModel:
        """Return a model with further annotations."""

    def usual_workload(self, model: ProgramModel) -> dict[str, Any]:
        """Return the workload that a program's own sizes say."""


def is_program(tree: Any) -> bool:
    """Return whether the content of a file is a program: it lists operators."""
    return isinstance(tree, Mapping) and "operators" in tree and ("dims" in tree or "program" in tree)


def load_program_reader() -> ProgramReader:
    """Return the module that reads programs as models."""
    return cast(ProgramReader, import_module(PROGRAM_MODULE))
