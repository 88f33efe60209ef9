"""Tries thousands of commands, options and files, and reports what breaks a rule.

    python benchmarks/fuzz.py --seconds 60 --json
    python benchmarks/fuzz.py --trials 10000 --seed 7
    python benchmarks/fuzz.py --seed 7 --only 4711 --keep folder

Whatever it is given, a command ends by itself, within 20 s of processor time and 2 GB, with a status that is documented
and a sentence that says what is wrong; it prints no traceback, warning or control character, its JSON is JSON, and it
leaves nothing half-written behind (`judging`). A trial follows from the seed and its number (`generation`).
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path

import cosmic

from . import stock as stocks
from .generation import KINDS, NEEDS_STUDIES, NEEDS_TRACES, make_trial
from .report import Tally, page
from .server import Outcome, Server
from .trial import Trial

TRIALS = 10_000
UNUSED = ("cosmic.__main__", "cosmic.accuracy", "cosmic.search.worker_pools")
"""Modules that no command imports, or that start what a fork does not survive."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 1 where a rule was broken."""
    options = _parser().parse_args(arguments)
    kinds = _kinds(options.kinds)
    load()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        folder, root = Path(place) / "stock", options.keep or Path(place) / "trials"
        folder.mkdir()
        root.mkdir(parents=True, exist_ok=True)
        stock = stocks.make(folder, studies=_any(kinds, NEEDS_STUDIES), traces=_any(kinds, NEEDS_TRACES))
        before = state(folder), state(Path(cosmic.__file__).parent)
        make = partial(_make, options.seed, stock, kinds)
        server = Server(make, root.resolve(), options.workers, keep=options.keep is not None)
        tally = Tally(options.seed, kinds)
        with suppress(KeyboardInterrupt):  # what was found so far is reported
            for outcome in server.run(_numbers(options)):
                tally.add(outcome)
                _say(options, tally, outcome)
        after = state(folder), state(Path(cosmic.__file__).parent)
        tally.faults = [path for old, new in zip(before, after, strict=True) for path in _changed(old, new)]
    found = tally.results()
    print(json.dumps(found, indent=2) if options.json else page(found))
    return int(bool(found["failures"] or found["changed"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, help=f"how many trials ({TRIALS:,} where no time is given)")
    parser.add_argument("--seconds", type=float, help="begin no trial after so many seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, metavar="K", help="the number of the first trial")
    parser.add_argument("--only", type=int, metavar="K", help="run one trial, and show what it printed")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"kinds of trials, of {','.join(KINDS)}")
    parser.add_argument("--workers", type=int, default=2, help="how many trials run at once")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the folders of the trials there")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _kinds(given: str) -> tuple[str, ...]:
    kinds = tuple(given.split(","))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise SystemExit(f"no such kind: {', '.join(unknown)}; choose from {', '.join(KINDS)}")
    return kinds


def _any(kinds: tuple[str, ...], among: tuple[str, ...]) -> bool:
    return any(kind in among for kind in kinds)


def _make(seed: int, stock: stocks.Stock, kinds: tuple[str, ...], number: int, folder: Path) -> Trial:
    return make_trial(seed, number, folder, stock, kinds)


def load() -> None:
    """Import all that commands import, so that a forked child need not."""
    for module in pkgutil.walk_packages(cosmic.__path__, "cosmic."):
        if not module.name.startswith(UNUSED):
            import_module(module.name)


def _numbers(options: argparse.Namespace) -> Iterator[int]:
    """Yield the numbers of the trials to run, until their time is up."""
    if options.only is not None:
        yield options.only
        return
    most = options.trials if options.trials is not None else TRIALS if options.seconds is None else sys.maxsize
    ends = time.monotonic() + options.seconds if options.seconds is not None else float("inf")
    for number in range(options.first, options.first + most):
        if time.monotonic() >= ends:
            return
        yield number


def state(folder: Path) -> dict[str, str]:
    """Return a digest of every file of a folder; Python's own cache is left out."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc")
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in files}


def _changed(old: dict[str, str], new: dict[str, str]) -> list[str]:
    return [path for path in sorted({*old, *new}) if old.get(path) != new.get(path)]


def _say(options: argparse.Namespace, tally: Tally, outcome: Outcome) -> None:
    """Show how far the run is, and all of a single trial."""
    if options.only is not None:
        print(
            f"$ {outcome.trial.line()}\n{outcome.trial}\nstatus {outcome.status}, {outcome.cpu_s:.1f} s",
            file=sys.stderr,
        )
        for data in (outcome.stdout, outcome.stderr, outcome.stuck.encode()):
            print(ascii(data.decode("utf-8", "replace")[-6000:]).replace("\\n", "\n"), file=sys.stderr)
    elif os.isatty(2):
        text = f"{tally.trials:,} trials, {len(tally.found)} defects"
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif tally.trials % 500 == 0:
        print(f"{tally.trials:,} trials, {len(tally.found)} defects", file=sys.stderr, flush=True)
