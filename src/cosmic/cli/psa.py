"""`cosmic psa`: the parameter set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli import candidates
from cosmic.cli.console import Json, doing, emit, emit_json, emit_json_text, emit_table, new_app

if TYPE_CHECKING:
    from cosmic.psa.parameters import Parameter
    from cosmic.psa.space import ParameterSet

app = new_app("The parameter set: what may vary, how many points are valid, and samples of them.")
TABLE_COLUMNS = 10
MOST_POINTS = 10**9
MOST_SEED = 2**63 - 1
"""Points that a table shows; more would not fit on a screen."""
Space = Annotated[
    str, typer.Argument(help="A space of the catalog, or the path of a YAML file.", autocompletion=candidates.spaces)
]
Stacks = Annotated[
    str,
    typer.Option(
        "--stacks",
        metavar="A,B",
        help="Layers to open, all others frozen: workload,network.",
        autocompletion=candidates.stacks,
    ),
]


def _load(space: str, stacks: str) -> ParameterSet:
    from cosmic.psa.files import load_space  # noqa: PLC0415  heavy

    doing("reading the space")
    loaded = load_space(space)
    return loaded.restrict(stack.strip() for stack in stacks.split(",")) if stacks else loaded


@app.command()
def show(space: Space, stacks: Stacks = "", json: Json = False) -> None:
    """Print what may vary: parameters by layer, derived fields, constraints."""
    loaded = _load(space, stacks)
    if json:
        parameters = [
            {"name": each.name, "stack": each.stack, "sets": each.paths, "values": each.labels}
            for each in loaded.parameters
        ]
        rest = {
            "derived": loaded.derived,
            "constraints": loaded.constraints,
            "limits": loaded.limits,
            "workloads": {each.name: each.weight for each in loaded.workloads},
            "objective": loaded.objective,
        }
        emit_json({"name": loaded.name, "base": loaded.base.identity, "parameters": parameters, **rest})
        return
    rows = [
        [each[0].stack, alike_name(each), alike_count(each), value_text(each[0])] for each in alike(loaded.parameters)
    ]
    rows += [[path.partition(".")[0], path, "-", f"= {text}"] for path, text in loaded.derived.items()]
    emit_table(loaded.name, ["layer", "parameter", "values", ""], rows)
    emit(["", *(f"where {text}" for text in loaded.constraints)])
    emit([f"where {text} (checked by evaluation)" for text in loaded.limits])
    emit([f"runs {each.name}, {each.weight:g} times per round" for each in loaded.workloads])
    emit([f"for {loaded.objective}", f"{loaded.valid:,} valid of {loaded.raw:,}"])


def alike(parameters: Sequence[Parameter]) -> list[list[Parameter]]:
    """Return the parameters grouped by all but their place in a list: those of all network dimensions together."""
    groups: dict[tuple[str, str], list[Parameter]] = {}
    for each in parameters:
        pattern = re.sub(r"\.\d+", ".*", each.name)
        groups.setdefault((pattern, repr(each.labels)), []).append(each)
    return list(groups.values())


def alike_name(group: list[Parameter]) -> str:
    """Return the name of a group: that of its one parameter, or the pattern of several."""
    return group[0].name if len(group) == 1 else re.sub(r"\.\d+", ".*", group[0].name)


def alike_count(group: list[Parameter]) -> str:
    """Return how many values each parameter of a group has, and how many parameters there are."""
    return f"{len(group[0].values):,}" + (f" each, × {len(group)}" if len(group) > 1 else "")


def value_text(parameter: Parameter, shown: int = 6) -> str:
    """Return the values of *parameter* on one line; of many, the first and the last."""
    texts = ["·".join(map(str, label)) if isinstance(label, list) else str(label) for label in parameter.labels]
    return ", ".join(texts if len(texts) <= shown else [*texts[:3], "…", *texts[-2:]])


@app.command()
def count(space: Space, stacks: Stacks = "", json: Json = False) -> None:
    """Print the number of points: raw (all combinations) and valid (those that the constraints allow)."""
    loaded = _load(space, stacks)
    doing("counting")
    sizes = count_by_stack(loaded)
    if json:
        emit_json({"raw": loaded.raw, "valid": loaded.valid, "by_stack": sizes})
        return
    rows = [[stack, size["raw"], size["valid"], share(size["valid"], size["raw"])] for stack, size in sizes.items()]
    rows.append(["all together", loaded.raw, loaded.valid, share(loaded.valid, loaded.raw)])
    emit_table(loaded.name, ["layer opened", "raw", "valid", "share"], rows)


def count_by_stack(space: ParameterSet) -> dict[str, dict[str, int]]:
    """Return the size of the set that opens one layer alone, all else as in the base design, for each layer."""
    from cosmic.errors import SpecError  # noqa: PLC0415  heavy imports stay in functions

    sizes = {}
    for stack in space.stacks:
        opened = [each for each in space.parameters if each.stack == stack]
        raw = 1
        for each in opened:
            raw *= len(each.values)
        try:
            sizes[stack] = {"raw": raw, "valid": space.restrict([stack]).valid}
        except SpecError:  # the base design breaks a constraint, whatever this layer is
            sizes[stack] = {"raw": raw, "valid": 0}
    return sizes


def share(part: int, whole: int) -> str:
    """Return *part* of *whole* as a percentage."""
    return f"{100 * part / whole:.3g} %"


@app.command()
def sample(
    space: Space,
    n: Annotated[int, typer.Option("-n", "--number", min=0, max=MOST_POINTS, help="How many points.")] = 10,
    seed: Annotated[int, typer.Option("--seed", min=0, max=MOST_SEED, help="The same seed gives the same points.")] = 0,
    stacks: Stacks = "",
    json: Json = False,
) -> None:
    """Print valid points, drawn uniformly; with --json one object per line."""
    import numpy as np  # noqa: PLC0415  heavy

    from cosmic.psa.stream import BATCH, json_lines  # noqa: PLC0415  heavy

    loaded = _load(space, stacks)
    rng = np.random.default_rng(seed)
    if json:
        emit_json_text(json_lines(loaded, n, rng))
        return
    shown = min(n, TABLE_COLUMNS)
    rows = [loaded.labels(row) for row in loaded.sample(min(n, BATCH), rng)[:shown]]  # the first that --json prints
    names = [*(each.name for each in loaded.parameters), *loaded.derived]
    table = [[name, *(cell(row[name]) for row in rows)] for name in names]
    emit_table(loaded.name, ["parameter", *map(str, range(shown))], table)
    if n > shown:
        emit([f"… and {n - shown:,} more: --json prints them all"])


def cell(label: Any) -> str:
    """Return a value for a table."""
    return " ".join(map(str, label)) if isinstance(label, list) else str(label)


@app.command()
def schema(space: Space, stacks: Stacks = "", json: Json = False) -> None:  # JSON with or without the option
    """Print the set as JSON Schema, for agents and simulators."""
    from cosmic.psa.files import json_schema  # noqa: PLC0415  heavy

    emit_json(json_schema(_load(space, stacks)))
