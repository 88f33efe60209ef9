"""One evaluation, counted: how many modules it touches, how many calls it makes, and between which packages.

    python benchmarks/walk.py [DESIGN ...] [--json]

Each design is evaluated once before it is counted, so that plans and catalog files are known, as in a search.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import cosmic
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.step_evaluation import _evaluate_directly  # by the physics itself: a program is one call

ROOT = str(Path(cosmic.__file__).parent)
DESIGNS = ("llama3-70b@dgx-h100:512", "deepseek-v3@dgx-h100:256", "gpt3-175b@cosmic-1024")


def module_of(frame: FrameType | None) -> str | None:
    """Return the module of the package that a frame belongs to, as a path below it; None for code from elsewhere."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(ROOT):
            return path[len(ROOT) + 1 : -len(".py")]
        frame = frame.f_back
    return None


def walk(run: Callable[[], Any]) -> dict[str, Any]:
    """Return what a call of *run* touches."""
    modules: Counter[str] = Counter()
    edges: Counter[str] = Counter()

    def seen(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(ROOT):
            return
        here, before = module_of(frame), module_of(frame.f_back)
        modules[str(here)] += 1
        if before is not None and package_of(str(here)) != package_of(before):
            edges[f"{package_of(before)} -> {package_of(str(here))}"] += 1

    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(None)
    return {
        "modules": len(modules),
        "calls": modules.total(),
        "between": dict(edges.most_common()),
        "names": sorted(modules),
    }


def package_of(module: str) -> str:
    """Return the package, or the single module, that a module belongs to."""
    return module.partition("/")[0]


def main(arguments: list[str]) -> None:
    """Print what the evaluation of each design touches."""
    designs = [each for each in arguments if not each.startswith("--")] or list(DESIGNS)
    found = {}
    for name in designs:
        point = load_design(name)
        _evaluate_directly(point)
        found[name] = walk(lambda point=point: _evaluate_directly(point))  # type: ignore[misc]
    if "--json" in arguments:
        print(json.dumps(found, indent=1))
        return
    for name, each in found.items():
        print(f"{name}: {each['modules']} modules, {each['calls']:,} calls")
        for edge, count in each["between"].items():
            print(f"    {count:>6,}  {edge}")


if __name__ == "__main__":
    main(sys.argv[1:])
