"""`cosmic demo`: the main job on embedded defaults."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from cosmic.cli.console import Json, brief, emit, emit_json, emit_table, new_app

app = new_app()
SPACE = "cosmic-1024-full-stack"


@app.command()
def demo(
    n: Annotated[int, typer.Option("-n", "--number", min=1, help="How many designs to draw.")] = 100_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same designs.")] = 1,
    json: Json = False,
) -> None:
    """Tour a full-stack parameter set: what may vary, how much of it is valid, and a design drawn from it."""
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
            f"Drawn blindly, {100 * tour['blind_share']:.1f} % of {tour['drawn']:,} combinations are valid; "
            "COSMIC draws from the valid ones only,",
            f"all equally likely, {brief(int(tour['points_per_s']))} designs a second on one core. One of them:",
            "",
            tour["design"].rstrip(),
            "",
            "Next:  cosmic psa show cosmic-1024-full-stack      what may vary",
            "       cosmic show llama3-70b@dgx-h100:512         a design of the catalog, complete",
            "       cosmic list models                          what there is to choose from",
        ]
    )


def take_tour(n: int, seed: int) -> dict[str, Any]:
    """Return what the demo shows: sizes, how fast and how validly points are drawn, and one of them."""
    import numpy as np  # noqa: PLC0415  heavy

    from cosmic.cli.psa import count_by_stack  # noqa: PLC0415  heavy
    from cosmic.loading.designs import dump_design  # noqa: PLC0415  heavy
    from cosmic.psa.files import load_space  # noqa: PLC0415  heavy

    space = load_space(SPACE)
    rng = np.random.default_rng(seed)
    space.sample(1, rng)  # what is worked out once is not timed
    start = time.perf_counter()
    rows = space.sample(n, rng)
    space.columns(rows)
    elapsed = time.perf_counter() - start
    blind = rng.integers(np.array(space.sizes), size=rows.shape)
    sizes = count_by_stack(space)
    open_parameters = {stack: sum(each.stack == stack for each in space.parameters) for stack in sizes}
    return {
        "space": space.name,
        "raw": space.raw,
        "valid": space.valid,
        "by_stack": {stack: {"parameters": open_parameters[stack], **size} for stack, size in sizes.items()},
        "drawn": n,
        "seed": seed,
        "points_per_s": n / elapsed,
        "blind_share": float(space.contains(blind).mean()),
        "design": dump_design(space.point(rows[0])),
    }
