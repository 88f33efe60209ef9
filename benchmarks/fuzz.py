"""Runs `fuzzing`: ``python benchmarks/fuzz.py --seconds 60 --json``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from fuzzing.command import main

    sys.exit(main())
