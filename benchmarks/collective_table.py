"""Runs `collectives`: ``python benchmarks/collective_table.py --page docs/reference/collectives.md``, or with ``--json``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from collectives.command import main

    main()
