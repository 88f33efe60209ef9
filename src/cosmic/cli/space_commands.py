"""The commands of a parameter set: show, count, sample, schema, and certify.

`cosmic certify` proves the optimum of a parameter set, and checks a certificate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.base.errors import SpecError, require
from cosmic.cli import value_completion
from cosmic.cli.console import Json, Limits, emit_json, emit_table, new_app, print_sentences
from cosmic.cli.evaluate_command import format_seconds
from cosmic.cli.output_streams import StatusLine, complain, doing, emit, emit_json_text
from cosmic.cli.search_output import headline_of_metrics

if TYPE_CHECKING:
    from cosmic.search.certify.certifying import Certified
    from cosmic.search.space.parameter_set import ParameterSet
    from cosmic.search.space.parameters import Parameter


# --------------------------------------------------------------------------------------
# `cosmic certify`: the proven optimum of a parameter set, and the check of a certificate
# --------------------------------------------------------------------------------------

certify_app = new_app()
NOTHING_RUNS, GAP_LEFT = 1, 3
MOST_SHOWN = 20


@certify_app.command()
def certify(  # noqa: PLR0913, PLR0917  one option each
    space: Annotated[
        str,
        typer.Argument(help="A space of the catalog or a YAML file.", autocompletion=value_completion.complete_spaces),
    ] = "",
    objective: Annotated[
        list[str],
        typer.Option(
            help="A metric to optimise; several for a Pareto front.", autocompletion=value_completion.complete_metrics
        ),
    ] = [],  # noqa: B006  typer copies it
    constraint: Limits = [],  # noqa: B006
    gap: Annotated[str, typer.Option(metavar="SHARE", help="Stop where nothing is better by more: 0.01 or 1%.")] = "0",
    within: Annotated[str, typer.Option(metavar="SHARE", help="Count the designs this near to the best: 5%.")] = "",
    limit: Annotated[str, typer.Option(metavar="TIME", help="Stop then, with the gap that is left.")] = "10min",
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    simulate: Annotated[int, typer.Option(min=0, help="Best designs to simulate with the event engine.")] = 10,
    out: Annotated[Path | None, typer.Option(help="File of the certificate.")] = None,
    check: Annotated[Path | None, typer.Option(metavar="FILE", help="Check a certificate instead.")] = None,
    json: Json = False,
) -> None:
    """Prove which design of a parameter set is best in closed form, or check the certificate of such a proof."""
    if check is not None:
        require(not space, "SPACE", space, "a certificate says what its space is: leave it out")
        _check_certificate(check, json=json)
        return
    require(bool(space), "SPACE", space, "name a space of the catalog or a YAML file")
    from cosmic.base.files import check_writable  # noqa: PLC0415
    from cosmic.search.certify.certificate import write_certificate  # noqa: PLC0415  heavy imports stay in functions
    from cosmic.search.certify.certifying import certify as prove  # noqa: PLC0415
    from cosmic.search.certify.certifying import simulate_best  # noqa: PLC0415

    if out is not None:
        check_writable(out, "--out")
    near = read_share(within, "--within") if within else None
    with StatusLine() as line:
        found = prove(
            space,
            objective,
            constraint,
            gap=read_share(gap, "--gap"),
            within=near,
            limit_s=_time_in_words(limit),
            workers=workers,
            told=line.show,
        )
        if out is not None:
            write_certificate(out, found.certificate)
        line.show("simulating the best designs")
        simulated, note = simulate_best(found, simulate) if simulate else ([], "")
    if json:
        emit_json(_certificate_data(space, found, simulated, note, out))
    else:
        _print_certificate(space, found, simulated, note, out)
    status = NOTHING_RUNS if not found.feasible and found.proven else 0 if found.proven else GAP_LEFT
    if status:
        raise typer.Exit(status)


def read_share(text: str, where: str) -> float:
    """Return a share that is written as one or in per cent.

    >>> read_share("5%", "--within"), read_share("0.05", "--within")
    (0.05, 0.05)
    """
    number = text.strip().removesuffix("%")
    try:
        found = float(number) / (100 if number != text.strip() else 1)
    except ValueError:
        found = -1.0
    require(0 <= found < 1, where, text, "is a share below 1: write 0.05 or 5%")
    return found


def _time_in_words(text: str) -> float:
    from cosmic.base import units  # noqa: PLC0415

    try:
        found = units.read_quantity(text, units.SECONDS)
    except SpecError as error:
        raise SpecError("--limit", text, error.rule) from None
    require(0 < found < 1e9, "--limit", text, "must be a time above 0")
    return found


def _check_certificate(path: Path, *, json: bool) -> None:
    from cosmic.search.certify.certificate_checker import (  # noqa: PLC0415  heavy
        Refused,
        check_certificate,
    )

    try:
        with StatusLine() as line:
            line.show("checking the certificate")
            said = check_certificate(path)
    except Refused as refused:
        if json:
            emit_json({"valid": False, "checked": [], "refused": str(refused)})
        else:
            complain([f"cosmic certify: {refused}"])
        raise typer.Exit(1) from None
    if json:
        emit_json({"valid": True, "checked": said, "refused": None})
        return
    emit([f"{path}: the certificate holds", *(f"  {each}" for each in said)])


# ------------------------------------------------------------------------------------------------ showing


def _certificate_data(space: str, found: Certified, simulated: Any, note: str, out: Path | None) -> dict[str, Any]:
    expected = _expected_of_best(found)
    return {
        "space": space,
        "designs": found.problem.space.valid,
        "objectives": list(found.problem.objectives),
        "limits": [limit.text for limit in found.problem.limits],
        "method": found.method,
        "why_enumerated": found.why or None,
        "proven": found.proven,
        "gap": found.gap,
        "front": [
            {"point": found.problem.space.labels(row), "metrics": found.results.figures(index)}
            for index, row in enumerate(found.rows)
        ],
        "within": None if found.within is None else {"share": found.within[0], "count": found.within[1]},
        "judged": found.judged,
        "elapsed_s": found.seconds,
        "certificate": None if out is None else str(out),
        "expected_error": None if expected is None else expected.expected_error,
        "expected_on": None if expected is None else expected.expected_on,
        "simulated": [
            {"point": found.problem.space.labels(each.row), "step_s": each.step_s, "simulated_step_s": each.simulated_s}
            for each in simulated
        ],
        "simulated_note": note or None,
    }


def _expected_of_best(found: Certified) -> Any:
    """Return the metrics of the best design with the error to expect; None for a mix, or where nothing runs."""
    from cosmic.evaluation import evaluate  # noqa: PLC0415
    from cosmic.simulate.metrics import Metrics  # noqa: PLC0415

    if not found.feasible or len(found.problem.shares) > 1:
        return None
    outcome = evaluate(found.problem.space.point(found.rows[0]))
    return outcome if isinstance(outcome, Metrics) else None


def _print_certificate(space: str, found: Certified, simulated: Any, note: str, out: Path | None) -> None:
    emit([_certified_verdict(space, found)])
    if found.why:
        print_sentences([f"every design was evaluated: {found.why}"])
    if found.feasible:
        _print_designs(found)
    if found.within is not None:
        part, count = found.within
        many = "it is not known how many" if count is None else f"{count:,}"
        emit([f"{many} designs are within {100 * part:g} % of the best"])
    if (expected := _expected_of_best(found)) is not None:
        from cosmic.simulate.step_evaluation import expected_in_words  # noqa: PLC0415

        print_sentences(["", f"This is proven of the closed form, whose step is {expected_in_words(expected)}."])
    if simulated:
        rows = [
            [index + 1, each.step_s, each.simulated_s, f"{100 * (each.simulated_s / each.step_s - 1):+.1f} %"]
            for index, each in enumerate(simulated)
        ]
        emit_table(
            "The best designs that were met, simulated:", ["design", "closed form_s", "simulated_s", "apart"], rows
        )
    emit([f"({note})"] if note else [])
    emit([f"certificate: {out}", f"  cosmic certify --check {out}"] if out is not None else [])


def _certified_verdict(space: str, found: Certified) -> str:
    designs = f"{found.problem.space.valid:,} designs"
    names = " and ".join(found.problem.objectives)
    took = f"{found.judged:,} evaluations, {format_seconds(found.seconds)}"
    if not found.feasible:
        return f"{space}: none of {designs} can run" if found.proven else f"{space}: nothing found that runs ({took})"
    if not found.proven:
        left = "some may be better" if found.gap is None else f"nothing is better by more than {100 * found.gap:.3g} %"
        return f"{space}: stopped with a gap: of {designs}, {left} in {names} ({took})"
    if len(found.problem.objectives) > 1:
        return f"{space}: proven: of {designs}, these {len(found.rows)} are the front of {names} ({took})"
    missed = max(found.gap or 0.0, 1e-9)
    return f"{space}: proven: of {designs}, none is better in {names} by more than a share of {missed:.2g} ({took})"


def _print_designs(found: Certified) -> None:
    space = found.problem.space
    if len(found.rows) == 1:
        emit([headline_of_metrics(found.results.figures(0)), ""])
        labels = space.labels(found.rows[0])
        width = max(map(len, labels))
        emit([f"  {name:<{width}}  {value}" for name, value in labels.items()])
        emit([""])
        return
    names = list(dict.fromkeys((*found.problem.objectives, "step_s")))
    figures = [found.results.figures(index) for index in range(min(len(found.rows), MOST_SHOWN))]
    emit_table(
        "", ["design", *names], [[index + 1, *(figure[name] for name in names)] for index, figure in enumerate(figures)]
    )
    if len(found.rows) > MOST_SHOWN:
        emit([f"… and {len(found.rows) - MOST_SHOWN} more: --json has all"])


# --------------------------------------------------------------------------------------
# `cosmic psa`: the parameter set
# --------------------------------------------------------------------------------------

space_app = new_app("The parameter set: what may vary, how many points are valid, and samples of them.")
TABLE_COLUMNS = 10
MOST_POINTS = 10**9
MOST_SEED = 2**63 - 1
"""Points that a table shows; more would not fit on a screen."""
Space = Annotated[
    str,
    typer.Argument(
        help="A space of the catalog, or the path of a YAML file.", autocompletion=value_completion.complete_spaces
    ),
]
Stacks = Annotated[
    str,
    typer.Option(
        "--stacks",
        metavar="A,B",
        help="Layers to open, all others frozen: workload,network.",
        autocompletion=value_completion.complete_stacks,
    ),
]


def _load_space(space: str, stacks: str) -> ParameterSet:
    from cosmic.search.space.space_files import load_space  # noqa: PLC0415  heavy

    doing("reading the space")
    loaded = load_space(space)
    return loaded.restrict(stack.strip() for stack in stacks.split(",")) if stacks else loaded


@space_app.command()
def show(space: Space, stacks: Stacks = "", json: Json = False) -> None:
    """Print what may vary: parameters by layer, derived fields, constraints."""
    loaded = _load_space(space, stacks)
    if json:
        parameters = [
            {"name": parameter.name, "stack": parameter.stack, "sets": parameter.paths, "values": parameter.labels}
            for parameter in loaded.parameters
        ]
        rest = {
            "derived": loaded.derived,
            "constraints": loaded.constraints,
            "limits": loaded.limits,
            "workloads": {workload.name: workload.weight for workload in loaded.workloads},
            "objective": loaded.objective,
        }
        emit_json({"name": loaded.name, "base": loaded.base.identity, "parameters": parameters, **rest})
        return
    rows = [
        [each[0].stack, alike_name(each), alike_count(each), value_text(each[0])]
        for each in group_alike(loaded.parameters)
    ]
    rows += [[path.partition(".")[0], path, "-", f"= {text}"] for path, text in loaded.derived.items()]
    emit_table(loaded.name, ["layer", "parameter", "values", ""], rows)
    emit(["", *(f"where {text}" for text in loaded.constraints)])
    emit([f"where {text} (checked by evaluation)" for text in loaded.limits])
    emit([f"runs {workload.name}, {workload.weight:g} times per round" for workload in loaded.workloads])
    emit([f"for {loaded.objective}", f"{loaded.valid:,} valid of {loaded.raw:,}"])


def group_alike(parameters: Sequence[Parameter]) -> list[list[Parameter]]:
    """Return the parameters grouped by all but their place in a list: those of all network dimensions together."""
    groups: dict[tuple[str, str], list[Parameter]] = {}
    for parameter in parameters:
        pattern = re.sub(r"\.\d+", ".*", parameter.name)
        groups.setdefault((pattern, repr(parameter.labels)), []).append(parameter)
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


@space_app.command()
def count(space: Space, stacks: Stacks = "", json: Json = False) -> None:
    """Print the number of points: raw (all combinations) and valid (those that the constraints allow)."""
    loaded = _load_space(space, stacks)
    doing("counting")
    sizes = count_by_stack(loaded)
    if json:
        emit_json({"raw": loaded.raw, "valid": loaded.valid, "by_stack": sizes})
        return
    rows = [
        [stack, size["raw"], size["valid"], format_share(size["valid"], size["raw"])] for stack, size in sizes.items()
    ]
    rows.append(["all together", loaded.raw, loaded.valid, format_share(loaded.valid, loaded.raw)])
    emit_table(loaded.name, ["layer opened", "raw", "valid", "share"], rows)


def count_by_stack(space: ParameterSet) -> dict[str, dict[str, int]]:
    """Return the size of the set that opens one layer alone, all else as in the base design, for each layer."""
    from cosmic.base.errors import SpecError  # noqa: PLC0415  heavy imports stay in functions

    sizes = {}
    for stack in space.stacks:
        opened = [parameter for parameter in space.parameters if parameter.stack == stack]
        raw = 1
        for each in opened:
            raw *= len(each.values)
        try:
            sizes[stack] = {"raw": raw, "valid": space.restrict([stack]).valid}
        except SpecError:  # the base design breaks a constraint, whatever this layer is
            sizes[stack] = {"raw": raw, "valid": 0}
    return sizes


def format_share(part: int, whole: int) -> str:
    """Return *part* of *whole* as a percentage."""
    return f"{100 * part / whole:.3g} %"


@space_app.command()
def sample(
    space: Space,
    n: Annotated[int, typer.Option("-n", "--number", min=0, max=MOST_POINTS, help="How many points.")] = 10,
    seed: Annotated[int, typer.Option("--seed", min=0, max=MOST_SEED, help="The same seed gives the same points.")] = 0,
    stacks: Stacks = "",
    json: Json = False,
) -> None:
    """Print valid points, drawn uniformly; with --json one object per line."""
    import numpy as np  # noqa: PLC0415  heavy

    from cosmic.search.space.space_files import SAMPLED_AT_ONCE, sample_json_lines  # noqa: PLC0415  heavy

    loaded = _load_space(space, stacks)
    rng = np.random.default_rng(seed)
    if json:
        emit_json_text(sample_json_lines(loaded, n, rng))
        return
    shown = min(n, TABLE_COLUMNS)
    rows = [
        loaded.labels(row) for row in loaded.sample(min(n, SAMPLED_AT_ONCE), rng)[:shown]
    ]  # the first that --json prints
    names = [*(parameter.name for parameter in loaded.parameters), *loaded.derived]
    table = [[name, *(cell(row[name]) for row in rows)] for name in names]
    emit_table(loaded.name, ["parameter", *map(str, range(shown))], table)
    if n > shown:
        emit([f"… and {n - shown:,} more: --json prints them all"])


def cell(label: Any) -> str:
    """Return a value for a table."""
    return " ".join(map(str, label)) if isinstance(label, list) else str(label)


@space_app.command()
def schema(space: Space, stacks: Stacks = "", json: Json = False) -> None:  # JSON with or without the option
    """Print the set as JSON Schema, for agents and simulators."""
    from cosmic.search.space.space_files import json_schema  # noqa: PLC0415  heavy

    emit_json(json_schema(_load_space(space, stacks)))
