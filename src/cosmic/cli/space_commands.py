"""The commands of a parameter set: show, count, sample, schema, and certify.

`cosmic space certify` proves the optimum of a parameter set, and checks a certificate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cosmic.base.errors import SpecError, require
from cosmic.cli import value_completion
from cosmic.cli.console import Json, Limits, emit_json, emit_table, format_seconds, print_sentences
from cosmic.cli.output_streams import StatusLine, complain, doing, emit, emit_json_text
from cosmic.cli.search_output import headline_of_metrics

if TYPE_CHECKING:
    from cosmic.cli.answers.study_answers import (
        CertificateCheckAnswer,
        ProofAnswer,
        ProvenDesign,
        SpaceShowAnswer,
    )
    from cosmic.search.certify.certifying import Certified
    from cosmic.search.space.parameter_set import ParameterSet
    from cosmic.search.space.parameters import Parameter


NOTHING_RUNS, GAP_LEFT = 1, 3
MOST_SHOWN = 20


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
        certified = prove(
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
            write_certificate(out, certified.certificate)
        line.show("simulating the best designs")
        simulated, note = simulate_best(certified, simulate) if simulate else ([], "")
    if json:
        emit_json(_certificate_data(space, certified, simulated, note, out))
    else:
        _print_certificate(space, certified, simulated, note, out)
    status = NOTHING_RUNS if not certified.feasible and certified.proven else 0 if certified.proven else GAP_LEFT
    if status:
        raise typer.Exit(status)


def read_share(text: str, where: str) -> float:
    """Return a share that is written as one or in per cent.

    >>> read_share("5%", "--within"), read_share("0.05", "--within")
    (0.05, 0.05)
    """
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if number != text.strip() else 1)
    except ValueError:
        share = -1.0
    require(0 <= share < 1, where, text, "is a share below 1: write 0.05 or 5%")
    return share


def _time_in_words(text: str) -> float:
    from cosmic.base import units  # noqa: PLC0415

    try:
        seconds = units.read_quantity(text, units.SECONDS)
    except SpecError as error:
        raise SpecError("--limit", text, error.rule) from None
    require(0 < seconds < 1e9, "--limit", text, "must be a time above 0")
    return seconds


def _check_certificate(path: Path, *, json: bool) -> None:
    from cosmic.search.certify.certificate import read_certificate  # noqa: PLC0415  heavy
    from cosmic.search.certify.certificate_checker import Refused, check_certificate  # noqa: PLC0415  heavy

    try:
        with StatusLine() as line:
            line.show("checking the certificate")
            content = read_certificate(path)
            verdict = check_certificate(content)
    except Refused as refused:
        if json:
            refusal: CertificateCheckAnswer = {
                "valid": False,
                "proven": None,
                "gap": None,
                "slack": None,
                "checked": [],
                "refused": str(refused),
            }
            emit_json(refusal)
        else:
            complain([f"cosmic space certify: {refused}"])
        raise typer.Exit(1) from None
    if json:
        answer: CertificateCheckAnswer = {
            "valid": True,
            "proven": content["proven"],
            "gap": content["gap"],
            "slack": content["slack"],
            "checked": verdict,
            "refused": None,
        }
        emit_json(answer)
        return
    emit([f"{path}: the certificate holds", *(f"  {each}" for each in verdict)])


# ---- showing


def _certificate_data(space: str, certified: Certified, simulated: Any, note: str, out: Path | None) -> ProofAnswer:
    expected = _expected_of_best(certified)
    return {
        "space": space,
        "designs": certified.problem.space.valid,
        "objectives": list(certified.problem.objectives),
        "limits": [limit.text for limit in certified.problem.limits],
        "method": certified.method,
        "why_enumerated": certified.why or None,
        "proven": certified.proven,
        "gap": certified.gap,
        "front": [
            cast(
                "ProvenDesign",
                {"point": certified.problem.space.labels(row), "metrics": certified.results.figures(index)},
            )
            for index, row in enumerate(certified.rows)
        ],
        "within": None if certified.within is None else {"share": certified.within[0], "count": certified.within[1]},
        "judged": certified.judged,
        "elapsed_s": certified.seconds,
        "certificate": None if out is None else str(out),
        "expected_error": None if expected is None else expected.expected_error,
        "expected_on": None if expected is None else expected.expected_on,
        "simulated": [
            {
                "point": certified.problem.space.labels(each.row),
                "step_s": each.step_s,
                "simulated_step_s": each.simulated_s,
            }
            for each in simulated
        ],
        "simulated_note": note or None,
    }


def _expected_of_best(certified: Certified) -> Any:
    """Return the metrics of the best design with the error to expect; None for a mix, or where nothing runs."""
    from cosmic.evaluation import evaluate  # noqa: PLC0415
    from cosmic.simulate.metrics import Metrics  # noqa: PLC0415

    if not certified.feasible or len(certified.problem.shares) > 1:
        return None
    outcome = evaluate(certified.problem.space.point(certified.rows[0]))
    return outcome if isinstance(outcome, Metrics) else None


def _print_certificate(space: str, certified: Certified, simulated: Any, note: str, out: Path | None) -> None:
    emit([_certified_verdict(space, certified)])
    if certified.why:
        print_sentences([f"every design was evaluated: {certified.why}"])
    if certified.feasible:
        _print_designs(certified)
    if certified.within is not None:
        part, count = certified.within
        many = "it is not known how many" if count is None else f"{count:,}"
        emit([f"{many} designs are within {100 * part:g} % of the best"])
    if (expected := _expected_of_best(certified)) is not None:
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
    emit([f"certificate: {out}", f"  cosmic space certify --check {out}"] if out is not None else [])


def _certified_verdict(space: str, certified: Certified) -> str:
    designs = f"{certified.problem.space.valid:,} designs"
    names = " and ".join(certified.problem.objectives)
    took = f"{certified.judged:,} evaluations, {format_seconds(certified.seconds)}"
    if not certified.feasible:
        return (
            f"{space}: none of {designs} can run" if certified.proven else f"{space}: nothing found that runs ({took})"
        )
    if not certified.proven:
        gap_text = (
            "some may be better"
            if certified.gap is None
            else f"nothing is better by more than {100 * certified.gap:.3g} %"
        )
        return f"{space}: stopped with a gap: of {designs}, {gap_text} in {names} ({took})"
    if len(certified.problem.objectives) > 1:
        return f"{space}: proven: of {designs}, these {len(certified.rows)} are the front of {names} ({took})"
    missed = max(certified.gap or 0.0, 1e-9)
    return f"{space}: proven: of {designs}, none is better in {names} by more than a share of {missed:.2g} ({took})"


def _print_designs(certified: Certified) -> None:
    space = certified.problem.space
    if len(certified.rows) == 1:
        emit([headline_of_metrics(certified.results.figures(0)), ""])
        labels = space.labels(certified.rows[0])
        width = max(map(len, labels))
        emit([f"  {name:<{width}}  {value}" for name, value in labels.items()])
        emit([""])
        return
    names = list(dict.fromkeys((*certified.problem.objectives, "step_s")))
    figures = [certified.results.figures(index) for index in range(min(len(certified.rows), MOST_SHOWN))]
    emit_table(
        "", ["design", *names], [[index + 1, *(figure[name] for name in names)] for index, figure in enumerate(figures)]
    )
    if len(certified.rows) > MOST_SHOWN:
        emit([f"… and {len(certified.rows) - MOST_SHOWN} more: --json has all"])


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


def show(space: Space, stacks: Stacks = "", json: Json = False) -> None:
    """Print what may vary: parameters by layer, derived fields, constraints."""
    from cosmic.search.space.space_answers import show_space  # noqa: PLC0415  heavy

    loaded = _load_space(space, stacks)
    if json:
        answer = cast("SpaceShowAnswer", show_space(loaded))
        emit_json(answer)
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


def count(space: Space, stacks: Stacks = "", json: Json = False) -> None:
    """Print the number of points: raw (all combinations) and valid (those that the constraints allow)."""
    from cosmic.search.space.space_answers import count_points  # noqa: PLC0415  heavy

    loaded = _load_space(space, stacks)
    doing("counting")
    size = count_points(loaded)
    if json:
        emit_json(size)
        return
    rows = [[stack, part.raw, part.valid, format_share(part.valid, part.raw)] for stack, part in size.by_stack.items()]
    rows.append(["all together", loaded.raw, loaded.valid, format_share(loaded.valid, loaded.raw)])
    emit_table(loaded.name, ["layer opened", "raw", "valid", "share"], rows)


def format_share(part: int, total: int) -> str:
    """Return *part* of *total* as a percentage."""
    return f"{100 * part / total:.3g} %"


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


def schema(space: Space, stacks: Stacks = "", json: Json = False) -> None:  # JSON with or without the option
    """Print the set as JSON Schema, for agents and simulators."""
    from cosmic.search.space.space_files import json_schema  # noqa: PLC0415  heavy

    emit_json(json_schema(_load_space(space, stacks)))
