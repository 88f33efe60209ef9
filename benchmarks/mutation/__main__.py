"""Runs the command: ``python benchmarks/mutation`` or ``python -m benchmarks.mutation``."""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    sys.path[:] = [*(path for path in sys.path if Path(path).resolve() != here), str(here.parent)]
    sys.exit(import_module("mutation.command").main())
