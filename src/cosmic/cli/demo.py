"""`cosmic demo`: the main job on embedded defaults."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Json, brief, emit, emit_json, emit_table, new_app
from cosmic.cli.evaluate import seconds

if TYPE_CHECKING:
    from numpy.random import Generator

    from cosmic.psa.space import ParameterSet

app = new_app()
SPACE = "cosmic-1024-full-stack"
BATCH = 10_000


@app.command()
def demo(
    n: Annotated[int, typer.Option("-n", "--number", min=1, help="How many designs to draw.")] = 50_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same designs.")] = 1,
    json: Json = False,
) -> None:
    """Tour a full-stack parameter set: what may vary, what of it is valid, and the best of many designs drawn."""
    tour = take_tour(n, seed)
    if json:
        emit_json(tour)
        return
    emit([f"{tour['space']}: one model, four layers of the stack, one search space", ""])
    rows = [[stack, size["parameters"], size["raw"], size["valid"]] for stack, size in tour["by_stack"].items()]
    opened = sum(size["parameters"] for size in tour["by_stack"].values())
    rows.append(["full stack", opened, tour["raw"], tour["valid"]])
    emit_table("", ["opened", "parameters", "combinations", "valid designs"], rows)
    emit(
        [
            "",
            f"Drawn blindly, {100 * tour['blind_share']:.1f} % of the combinations are valid. COSMIC draws from the"
            " valid ones only, all equally likely:",
            f"{tour['drawn']:,} designs drawn and evaluated in {tour['elapsed_s']:.1f} s,"
            f" {brief(int(tour['points_per_s']))} a second on one core.",
            "",
            f"{tour['feasible']:,} of them can run. The base design takes {seconds(tour['base_step_s'])} a step;"
            f" of those drawn, the worst takes {seconds(tour['worst_step_s'])},",
            f"the median {seconds(tour['median_step_s'])}, and the best {seconds(tour['best_step_s'])}:"
            f" {tour['base_step_s'] / tour['best_step_s']:.2f}× over the base.",
            "",
            f"# {tour['best_identity']}: bounded by {tour['bottleneck']}",
            tour["design"].rstrip(),
            "",
            "Next:  cosmic evaluate llama3-70b@dgx-h100:512     a real machine: time, memory, cost, what would help",
            "       cosmic psa show cosmic-1024-full-stack      what may vary",
            "       cosmic list models                          what there is to choose from",
        ]
    )


def take_tour(n: int, seed: int) -> dict[str, Any]:
    """Return what the demo shows: sizes, how fast and how validly points are drawn and evaluated, and the best."""
    import numpy as np  # noqa: PLC0415  heavy

    from cosmic.advice import bottleneck  # noqa: PLC0415  heavy
    from cosmic.cli.psa import count_by_stack  # noqa: PLC0415  heavy
    from cosmic.evaluation import Metrics, evaluate  # noqa: PLC0415  heavy
    from cosmic.loading.designs import dump_design  # noqa: PLC0415  heavy
    from cosmic.psa.files import load_space  # noqa: PLC0415  heavy

    space = load_space(SPACE)
    rng = np.random.default_rng(seed)
    blind = space.contains(rng.integers(np.array(space.sizes), size=(100_000, len(space.sizes))))
    start = time.perf_counter()
    rows, steps = _draw(space, n, rng)
    elapsed = time.perf_counter() - start
    running = steps[np.isfinite(steps)]
    best = space.point(rows[int(steps.argmin())])
    found, base = evaluate(best), evaluate(space.base)
    sizes = count_by_stack(space)
    open_parameters = {stack: sum(each.stack == stack for each in space.parameters) for stack in sizes}
    return {
        "space": space.name,
        "raw": space.raw,
        "valid": space.valid,
        "by_stack": {stack: {"parameters": open_parameters[stack], **size} for stack, size in sizes.items()},
        "blind_share": float(blind.mean()),
        "drawn": n,
        "seed": seed,
        "elapsed_s": elapsed,
        "points_per_s": n / elapsed,
        "feasible": len(running),
        "base_step_s": base.step_s if isinstance(base, Metrics) else None,
        "best_step_s": float(running.min()),
        "median_step_s": float(np.median(running)),
        "worst_step_s": float(running.max()),
        "best_identity": best.identity,
        "bottleneck": bottleneck(found) if isinstance(found, Metrics) else None,
        "design": dump_design(best),
    }


def _draw(space: ParameterSet, n: int, rng: Generator) -> tuple[Any, Any]:
    """Return *n* points and the seconds of their steps, infinite for those that cannot run."""
    import numpy as np  # noqa: PLC0415  heavy

    from cosmic.design.batch import Batch  # noqa: PLC0415  heavy
    from cosmic.evaluation import evaluate_batch  # noqa: PLC0415  heavy

    rows = space.sample(n, rng)
    steps = np.empty(n)
    for start in range(0, n, BATCH):
        chunk = slice(start, start + BATCH)
        outcome = evaluate_batch(Batch(space.base, space.columns(rows[chunk])))
        steps[chunk] = np.where(outcome.feasible, outcome.columns["step_s"], np.inf)
    return rows, steps
