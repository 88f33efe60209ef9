"""How many changes of the physics the tests notice: mutants, killed or not, by package.

    python benchmarks/mutation --workers 2 --sample 8 --threshold 0.9
    python benchmarks/mutation --root ../other --only 'cost/gemm.py' --json

Every mutant is one small change of a formula (see `operators`). It is killed if a test that runs the changed code
fails, or hangs. Tests that take longer than 1.5 s are not asked, and properties are tried on few examples.

No library does this here. mutmut (3.8) forks from a process whose caches are warm, so that what stands behind an
`lru_cache` does not run again: of 251 mutants of `network/switch_tiers.py` 79 survived tests that leave 6 in 80 of a
sample of these; it changes no decorated function and no constant of a module, which are a fifth of all. cosmic-ray (8.7) starts
pytest for every mutant: 1.9 CPU-seconds before the first test, where a mutant takes 0.4 here, tests included.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from . import accepted, report
from .operators import Mutant
from .runner import BUDGET_S, Run, enter, execute
from .tree import TARGETS, TESTS, Tree


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 1 where a score is below the threshold."""
    options = _parser().parse_args(arguments)
    root = options.root.resolve()
    tree = Tree(root, root / options.package)
    options.accepted = options.accepted or root / accepted.FILE
    everything = tree.mutants(_modules(tree, options.only))
    _check(tree, options, everything)
    mutants = [mutant for mutant in everything if mutant.falls_in(options.sample)]
    if options.list:
        print("\n".join(f"{mutant.id}  {mutant.description}" for mutant in mutants))
        return 0
    enter(tree)
    began = time.perf_counter()
    run = Run(tree, mutants, _tests(tree, options.tests), options.workers, options.budget, _say)
    reasons = accepted.read(options.accepted)
    found = report.results(tree, mutants, execute(run), reasons)
    found |= {"sample": options.sample, "workers": options.workers, "elapsed_s": time.perf_counter() - began}
    _show(found, options)
    return _judge(found, options.threshold)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(), help="the tree to measure (default: this folder)")
    parser.add_argument("--package", type=Path, default=Path("src/cosmic"), help="the package, from the root")
    parser.add_argument("--only", nargs="+", metavar="GLOB", help="what to mutate, from the package; ! leaves out")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="the tests to ask, beside doctests")
    parser.add_argument("--sample", type=int, default=1, metavar="K", help="one mutant in K, always the same ones")
    parser.add_argument("--workers", type=int, default=2, help="how many mutants run at once")
    parser.add_argument("--budget", type=float, default=BUDGET_S, metavar="S", help="seconds of tests for a mutant")
    parser.add_argument("--threshold", type=float, default=0.0, help="fail where a package's score is below")
    parser.add_argument("--accepted", type=Path, metavar="FILE", help=f"accepted survivors [ROOT/{accepted.FILE}]")
    parser.add_argument("--survivors", type=Path, metavar="FILE", help="write the survivors there")
    parser.add_argument("--list", action="store_true", help="list the mutants, and run none")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _modules(tree: Tree, only: list[str] | None) -> list[str]:
    """Return the modules to mutate; say which globs match nothing, and stop if the user gave them."""
    globs = only or [glob for globs in TARGETS.values() for glob in globs]
    if missing := tree.unmatched(globs):
        said = f"no file of {tree.package} matches {', '.join(missing)}"
        if only:
            raise SystemExit(said)
        _say(f"{said}\n")
    return tree.matching(only) if only else sorted({module for found in tree.labels.values() for module in found})


def _check(tree: Tree, options: argparse.Namespace, everything: list[Mutant]) -> None:
    """Stop where an accepted survivor is no mutant any more."""
    modules = {mutant.module for mutant in everything}
    reasons = accepted.read(options.accepted)
    asked = {key: why for key, why in reasons.items() if key[0] in modules or not tree.path(key[0]).exists()}
    if stale := accepted.stale(asked, everything):
        raise SystemExit("\n  ".join([f"{options.accepted} accepts what is no mutant:", *stale]))


def _tests(tree: Tree, given: list[str] | None) -> list[str]:
    """Return the tests to ask; stop if the user gave one that is not there."""
    if given and (missing := [path for path in given if not (tree.root / path.partition("::")[0]).exists()]):
        raise SystemExit(f"no such tests: {', '.join(missing)}")
    return given or [path for path in TESTS if (tree.root / path).exists()]


def _say(text: str) -> None:
    """Show how far the run is: in place on a terminal, otherwise not at all but for whole lines."""
    if os.isatty(2):
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text.endswith("\n"):
        print(text, end="", file=sys.stderr, flush=True)


def _show(found: dict[str, Any], options: argparse.Namespace) -> None:
    if options.survivors:
        options.survivors.write_text(f"{report.survivors(found)}\n")
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(report.table(found))
    left_out = f"{len(found['tests_that_fail'])} fail and {len(found['tests_too_slow'])} are too slow"
    print(f"\n{found['tests']} tests were asked, {left_out}; {found['elapsed_s']:.0f} s")
    print("\n".join(f"accepted, but killed: {each}" for each in found["accepted_but_killed"]))
    print(report.survivors(found))


def _judge(found: dict[str, Any], threshold: float) -> int:
    """Return 1 and name the packages whose score is below the threshold, if there are any."""
    below = [f"{label} {row['score']:.1%}" for label, row in found["labels"].items() if row["score"] < threshold]
    if below:
        print(f"below {threshold:.0%}: {', '.join(below)}", file=sys.stderr)
    return int(bool(below))
