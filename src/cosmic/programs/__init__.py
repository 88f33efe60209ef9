"""Programs that users bring: graphs of operators from files, JAX functions and PyTorch modules."""

from __future__ import annotations

from cosmic.programs.annotating import read_annotations
from cosmic.programs.jax_programs import from_jax
from cosmic.programs.models import model_of, program_of
from cosmic.programs.program import Part, Program
from cosmic.programs.reading import read_program
from cosmic.programs.sources import load
from cosmic.programs.torch_programs import from_torch

__all__ = [
    "Part",
    "Program",
    "from_jax",
    "from_torch",
    "load",
    "model_of",
    "program_of",
    "read_annotations",
    "read_program",
]
