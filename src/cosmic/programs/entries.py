"""What an operator of a program in YAML knows while it is read: tensors, dimensions, its own keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cosmic.design import schema
from cosmic.errors import SpecError, UnknownName, require
from cosmic.workload.graph import Operator, Tensor

Dims = tuple[str, ...]


@dataclass
class Reading:
    """The tensors and dimensions of a program that is being read."""

    sizes: dict[str, int]
    like: dict[str, str]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def dim(self, name: Any, where: str) -> str:
        """Return a dimension that is known."""
        if not isinstance(name, str) or name not in self.sizes:
            raise UnknownName.among(where, str(name), "dimension", self.sizes)
        return name

    def dims(self, tree: Any, where: str) -> Dims:
        """Return a list of dimensions that are known."""
        tree = [tree] if isinstance(tree, str) else tree
        require(isinstance(tree, list), where, tree, "must be a list of dimensions")
        found = tuple(self.dim(each, where) for each in tree)
        require(len(set(found)) == len(found), where, tree, "names a dimension twice: give one of them another name")
        return found

    def declare(self, name: str, tree: Any, role: str, where: str) -> None:
        """Read a tensor that no operator makes: an index has a dimension that it points into."""
        require(name not in self.tensors, where, name, "is declared twice")
        if isinstance(tree, Mapping):
            for key in tree:
                if key not in ("dims", "of"):
                    raise UnknownName.key(f"{where}.{key}", tree[key], ("dims", "of"))
            dims = (*self.dims(tree.get("dims"), where), self.dim(tree.get("of"), f"{where}.of"))
            self.tensors[name] = Tensor(name, dims, "index")
            return
        self.tensors[name] = Tensor(name, self.dims(tree, where), role)  # type: ignore[arg-type]  # one of four words

    def tensor(self, name: Any, where: str) -> Tensor:
        """Return a tensor that is known."""
        if not isinstance(name, str) or name not in self.tensors:
            raise UnknownName.among(where, str(name), "tensor", self.tensors)
        return self.tensors[name]

    def make(self, name: Any, dims: Dims, where: str) -> Tensor:
        """Return a new activation."""
        require(isinstance(name, str) and bool(name.strip()), f"{where}.name", name, "must be text")
        require(name not in self.tensors, f"{where}.name", name, "is another tensor's name")
        require(" " not in name, f"{where}.name", name, "must be one word")
        self.tensors[name] = Tensor(name, dims)
        return self.tensors[name]


@dataclass(frozen=True, slots=True)
class Entry:
    """One operator of the file: its keys, and what it reads."""

    state: Reading
    kind: str
    tree: Mapping[str, Any]
    where: str
    inputs: tuple[Tensor, ...]

    def operator(self, kind: str, dims: Dims, **details: Any) -> Operator:
        """Return an operator of a kind that makes a tensor of some dimensions."""
        made = self.state.make(self.tree.get("name"), dims, self.where)
        return Operator(made.name, kind, self.inputs, (made,), **details)

    def to(self, usual: Dims | None = None) -> Dims:
        """Return the dimensions of what is made: those of the key ``to``, or the usual ones."""
        if "to" in self.tree:
            return self.state.dims(self.tree["to"], f"{self.where}.to")
        if usual is None:
            raise SpecError(f"{self.where}.to", schema.Absent(), f"{self.kind} needs the dimensions that it makes")
        return usual

    def over(self, usual: Dims = ()) -> Dims:
        """Return the dimensions of the key ``over``, which its first input must have."""
        found = self.state.dims(self.tree["over"], f"{self.where}.over") if "over" in self.tree else usual
        for dim in found:
            if dim not in self.inputs[0].dims:
                raise UnknownName.among(f"{self.where}.over", dim, "dimension", self.inputs[0].dims)
        return found

    def takes(self, least: int, most: int | None = None) -> None:
        """Refuse an operator of too few or too many inputs."""
        most = least if most is None else most
        rule = f"{self.kind} reads {least if least == most else f'{least} to {most}'} tensors"
        require(least <= len(self.inputs) <= most, self.where, [each.name for each in self.inputs], rule)
