"""Runs `fuzzing`: ``python benchmarks/fuzz.py --seconds 60 --json``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    benchmarks = Path(__file__).resolve().parent
    sys.path[:0] = [str(benchmarks), str(benchmarks.parent)]  # `fuzzing`, and the random designs of the tests
    from fuzzing.command import main

    sys.exit(main())
