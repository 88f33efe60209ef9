"""`cosmic certify`: the proven optimum of a parameter set, and the check of a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli import candidates
from cosmic.cli.console import Json, Limits, StatusLine, complain, emit, emit_json, emit_table, new_app, say
from cosmic.cli.evaluate import seconds
from cosmic.cli.studies import headline
from cosmic.errors import SpecError, require

if TYPE_CHECKING:
    from cosmic.certifying.certifying import Certified

app = new_app()
NOTHING_RUNS, GAP_LEFT = 1, 3
MOST_SHOWN = 20


@app.command()
def certify(  # noqa: PLR0913, PLR0917  one option each
    space: Annotated[
        str, typer.Argument(help="A space of the catalog or a YAML file.", autocompletion=candidates.spaces)
    ] = "",
    objective: Annotated[
        list[str],
        typer.Option(help="A metric to optimise; several for a Pareto front.", autocompletion=candidates.metrics),
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
        _check(check, json=json)
        return
    require(bool(space), "SPACE", space, "name a space of the catalog or a YAML file")
    from cosmic.certifying.certificate import write_certificate  # noqa: PLC0415  heavy imports stay in functions
    from cosmic.certifying.certifying import certify as prove  # noqa: PLC0415
    from cosmic.certifying.simulated import simulate_best  # noqa: PLC0415
    from cosmic.files import check_writable  # noqa: PLC0415

    if out is not None:
        check_writable(out, "--out")
    near = share(within, "--within") if within else None
    with StatusLine() as line:
        found = prove(
            space,
            objective,
            constraint,
            gap=share(gap, "--gap"),
            within=near,
            limit_s=_time(limit),
            workers=workers,
            told=line.show,
        )
        if out is not None:
            write_certificate(out, found.certificate)
        line.show("simulating the best designs")
        simulated, note = simulate_best(found, simulate) if simulate else ([], "")
    if json:
        emit_json(_data(space, found, simulated, note, out))
    else:
        _show(space, found, simulated, note, out)
    status = NOTHING_RUNS if not found.feasible and found.proven else 0 if found.proven else GAP_LEFT
    if status:
        raise typer.Exit(status)


def share(text: str, where: str) -> float:
    """Return a share that is written as one or in per cent.

    >>> share("5%", "--within"), share("0.05", "--within")
    (0.05, 0.05)
    """
    number = text.strip().removesuffix("%")
    try:
        found = float(number) / (100 if number != text.strip() else 1)
    except ValueError:
        found = -1.0
    require(0 <= found < 1, where, text, "is a share below 1: write 0.05 or 5%")
    return found


def _time(text: str) -> float:
    from cosmic import units  # noqa: PLC0415

    try:
        found = units.read(text, units.SECONDS)
    except SpecError as error:
        raise SpecError("--limit", text, error.rule) from None
    require(0 < found < 1e9, "--limit", text, "must be a time above 0")
    return found


def _check(path: Path, *, json: bool) -> None:
    from cosmic.certifying.checking import check_certificate  # noqa: PLC0415
    from cosmic.certifying.checking_parts import Refused  # noqa: PLC0415

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


def _data(space: str, found: Certified, simulated: Any, note: str, out: Path | None) -> dict[str, Any]:
    expected = _expected(found)
    return {
        "space": space,
        "designs": found.problem.space.valid,
        "objectives": list(found.problem.objectives),
        "limits": [each.text for each in found.problem.limits],
        "method": found.method,
        "why_enumerated": found.why or None,
        "proven": found.proven,
        "gap": found.gap,
        "front": [
            {"point": found.problem.space.labels(row), "metrics": found.results.figures(place)}
            for place, row in enumerate(found.rows)
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


def _expected(found: Certified) -> Any:
    """Return the metrics of the best design with the error to expect; None for a mix, or where nothing runs."""
    from cosmic.evaluation import Metrics, evaluate  # noqa: PLC0415

    if not found.feasible or len(found.problem.shares) > 1:
        return None
    outcome = evaluate(found.problem.space.point(found.rows[0]))
    return outcome if isinstance(outcome, Metrics) else None


def _show(space: str, found: Certified, simulated: Any, note: str, out: Path | None) -> None:
    emit([_verdict(space, found)])
    if found.why:
        say([f"every design was evaluated: {found.why}"])
    if found.feasible:
        _show_designs(found)
    if found.within is not None:
        part, count = found.within
        many = "it is not known how many" if count is None else f"{count:,}"
        emit([f"{many} designs are within {100 * part:g} % of the best"])
    if (expected := _expected(found)) is not None:
        from cosmic.evaluation import expected_in_words  # noqa: PLC0415

        say(["", f"This is proven of the closed form, whose step is {expected_in_words(expected)}."])
    if simulated:
        rows = [
            [place + 1, each.step_s, each.simulated_s, f"{100 * (each.simulated_s / each.step_s - 1):+.1f} %"]
            for place, each in enumerate(simulated)
        ]
        emit_table(
            "The best designs that were met, simulated:", ["design", "closed form_s", "simulated_s", "apart"], rows
        )
    emit([f"({note})"] if note else [])
    emit([f"certificate: {out}", f"  cosmic certify --check {out}"] if out is not None else [])


def _verdict(space: str, found: Certified) -> str:
    designs = f"{found.problem.space.valid:,} designs"
    names = " and ".join(found.problem.objectives)
    took = f"{found.judged:,} evaluations, {seconds(found.seconds)}"
    if not found.feasible:
        return f"{space}: none of {designs} can run" if found.proven else f"{space}: nothing found that runs ({took})"
    if not found.proven:
        left = "some may be better" if found.gap is None else f"nothing is better by more than {100 * found.gap:.3g} %"
        return f"{space}: stopped with a gap: of {designs}, {left} in {names} ({took})"
    if len(found.problem.objectives) > 1:
        return f"{space}: proven: of {designs}, these {len(found.rows)} are the front of {names} ({took})"
    missed = max(found.gap or 0.0, 1e-9)
    return f"{space}: proven: of {designs}, none is better in {names} by more than a share of {missed:.2g} ({took})"


def _show_designs(found: Certified) -> None:
    space = found.problem.space
    if len(found.rows) == 1:
        emit([headline(found.results.figures(0)), ""])
        labels = space.labels(found.rows[0])
        width = max(map(len, labels))
        emit([f"  {name:<{width}}  {value}" for name, value in labels.items()])
        emit([""])
        return
    names = list(dict.fromkeys((*found.problem.objectives, "step_s")))
    figures = [found.results.figures(place) for place in range(min(len(found.rows), MOST_SHOWN))]
    emit_table(
        "", ["design", *names], [[place + 1, *(each[name] for name in names)] for place, each in enumerate(figures)]
    )
    if len(found.rows) > MOST_SHOWN:
        emit([f"… and {len(found.rows) - MOST_SHOWN} more: --json has all"])
