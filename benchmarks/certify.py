"""How long proofs of the catalog's spaces take, and their checks: prints JSON.

python benchmarks/certify.py [--spaces cosmic-512-full-stack …] [--workers 2]
"""

from __future__ import annotations

import argparse
import json
import sys
from time import perf_counter, process_time
from typing import Any

from cosmic.search.certify.certificate_checker import check_certificate
from cosmic.search.certify.certifying import certify

SPACES = ("cosmic-512-full-stack", "cosmic-1024-full-stack", "cosmic-2048-full-stack")
OBJECTIVES = (("perf_per_bandwidth",), ("step_s",), ("perf_per_network_cost",), ("step_s", "network_usd"))


def measure(space: str, objectives: tuple[str, ...], workers: int, within: float | None) -> dict[str, Any]:
    """Return what one proof and its check took."""
    started, used = perf_counter(), process_time()
    found = certify(space, objectives, within=within, workers=workers)
    proved, proving = perf_counter(), process_time()
    check_certificate(found.certificate)
    return {
        "space": space,
        "objectives": objectives,
        "designs": found.problem.space.valid,
        "proven": found.proven,
        "method": found.method,
        "judged": found.judged,
        "front": len(found.rows),
        "best": found.losses[0].tolist() if found.feasible else None,
        "within": found.within,
        "prove_s": round(proved - started, 2),
        "prove_cpu_s": round(proving - used, 2),
        "check_s": round(perf_counter() - proved, 2),
        "check_cpu_s": round(process_time() - proving, 2),
        "certificate_bytes": len(json.dumps(found.certificate)),
    }


def main() -> None:
    """Print a row for each space and objective."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spaces", nargs="*", default=SPACES)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--within", type=float, default=None)
    given = parser.parse_args()
    rows = []
    for space in given.spaces:
        for objectives in OBJECTIVES:
            within = given.within if len(objectives) == 1 else None
            rows.append(measure(space, objectives, given.workers, within))
            sys.stderr.write(f"{json.dumps(rows[-1])}\n")
    sys.stdout.write(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
