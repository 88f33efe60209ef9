"""Files that a design names and that modules above this one read: programs as models, and lists of links.

`design/` knows what a program or a network is as a value, not how their files are read. It calls the readers by the
name of their module, so that it needs none of them, and a design that names no such file loads none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from cosmic.design.program_model import ProgramModel

PROGRAM_KEY = "program"
PROGRAM_MODULE = "cosmic.workload.user_programs.program_models"
"""The module that reads programs as models."""
NETWORK_MODULE = "cosmic.network.network_files.network_file"
"""The module that reads files of links."""


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


def read_links(path: Path, where: str) -> Any:
    """Return the network of links in a file."""
    return import_module(NETWORK_MODULE).read_graph(path, where)
