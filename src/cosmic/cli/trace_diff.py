"""`cosmic trace diff`: what differs between two traces, operator by operator."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from cosmic.cli.console import Json, doing, emit, emit_json, emit_table, say
from cosmic.errors import one_line, require

if TYPE_CHECKING:
    from cosmic.profiles.contrasting import By, Row, TraceContrast
    from cosmic.profiles.sides import Amount, TraceSide

MOST_PARTS = 6
"""Parts of a difference that the headline names."""
SMALL = 0.005
"""Share of the difference below which the headline leaves a part out."""
SHOWN_CHARACTERS = 56
_TEMPLATE = re.compile(r"<[^<>]*>|\([^()]*\)")
_SCOPE = re.compile(r"(?:\w+::)+")
_FUNCTOR = re.compile(r"(\w+(?:Functor\w*|KernelImpl|Op)\b|CUDAFunctor_\w+|func_wrapper\w*)")
Side = Annotated[
    str, typer.Argument(help="Prefix of traces (PREFIX.<rank>.et), or a design: MODEL@SYSTEM:GPUS or a YAML file.")
]


def diff(  # noqa: PLR0913, PLR0917  one option each
    a: Side,
    b: Side,
    groups_a: Annotated[
        str, typer.Option("--groups-a", metavar="FILE", help='Communicator groups of A: {"1": [0, 1], …}.')
    ] = "",
    groups_b: Annotated[str, typer.Option("--groups-b", metavar="FILE", help="The same of B.")] = "",
    by: Annotated[
        str,
        typer.Option("--by", metavar="name|kernel|type|class", help="What a row is; chosen by the sides if not given."),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=0, max=10**9, help="Rows to show.")] = 20,
    json: Json = False,
) -> None:
    """Print what differs between two traces, or a trace and a design: the time of operators, overlap and idle time."""
    from cosmic.profiles.contrasting import BYS  # noqa: PLC0415  heavy
    from cosmic.profiles.traced import compare_traces  # noqa: PLC0415  heavy

    require(not by or by in BYS, "--by", by, f"must be one of {', '.join(BYS)}")
    doing("reading and comparing traces")
    found = compare_traces(a, b, groups_a, groups_b, cast("By", by) if by else None)
    if json:
        emit_json(_data(found))
        return
    say([headline(found)])
    if not found.identical:
        _print(found, limit)


# --------------------------------------------------------------------------------------------------------- text


def headline(found: TraceContrast) -> str:
    """Return the difference in one sentence: how much, and which parts explain it."""
    if found.identical:
        return "no difference"
    a, b = found.totals
    if not a and not b:
        return "no node says how long it takes: operators are compared by number and bytes"
    unit, worth = _unit([a, b])
    what = "takes" if found.spans is not None else "has operators that take"
    change = b - a
    if abs(change) < 1e-9 * max(a, b):
        lead = f"B {what} as long as A, {_number(a / worth)} {unit}"
    else:
        share = f" ({100 * change / a:+.1f} %)" if a else ""
        more = "more than the" if change > 0 else "less of"
        lead = f"B {what} {_number(abs(change) / worth)} {unit} {more} {_number(a / worth)} {unit}{share}"
    changes = sorted(((b - a, name) for name, (a, b) in found.parts.items()), key=lambda each: -abs(each[0]))
    told = [(each, name) for each, name in changes if abs(each) > SMALL * max(abs(change), abs(changes[0][0]))]
    rest = sum(each for each, _ in changes) - sum(each for each, _ in told[:MOST_PARTS])
    texts = [f"{name} {_signed(each / worth)}" for each, name in told[:MOST_PARTS]]
    if texts and abs(rest) > SMALL * max(abs(change), abs(changes[0][0])):
        texts.append(f"others {_signed(rest / worth)}")
    return f"{lead}: {', '.join(texts)}" if texts else lead


def _unit(values: Sequence[float]) -> tuple[str, float]:
    from cosmic.units import SECONDS, readable_unit  # noqa: PLC0415  heavy

    return readable_unit(values, SECONDS)


def _number(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.1f}"


def _signed(value: float) -> str:
    """Return a change with its sign.

    >>> _signed(-3.14159), _signed(12.0), _signed(0.0)
    ('-3.14', '+12', '0')
    """
    return f"{'+' if value > 0 else ''}{_number(value)}"


def _print(found: TraceContrast, limit: int) -> None:
    emit(["", f"A  {_side_text(found.a)}", f"B  {_side_text(found.b)}", ""])
    _, worth = _unit(found.totals)
    unit = _unit(found.totals)[0]
    emit_table("", [f"time, {unit}", "A", "B", "B - A"], list(_totals(found, worth)))
    rows = [row for row in found.rows if row.differs]
    if limit and rows:
        emit([""])
        scale = _unit([each for row in rows[:limit] for each in (row.a.seconds, row.b.seconds)])
        emit_table("", _heads(found, scale[0]), [_cells(found, row, scale[1]) for row in rows[:limit]])
    if left := len(rows) - limit:
        emit([f"… and {left:,} more: --limit {len(rows)} shows them all"] if left > 0 else [])
    emit([""])
    say(_sentences(found))


def _side_text(side: TraceSide) -> str:
    words = {"recorded": "recorded", "generated": "not recorded", "design": "predicted"}[side.kind]
    structure = side.structure
    if structure is None:
        return f"{side.name} ({words})"
    waits = structure.data_dependencies + structure.control_dependencies
    ranks = f"{structure.ranks:,} rank{'s' if structure.ranks != 1 else ''}"
    return f"{side.name} ({words}): {ranks}, {structure.nodes:,} nodes, {waits:,} dependencies"


def _totals(found: TraceContrast, worth: float) -> Iterator[list[Any]]:
    """Yield the rows of the first table: kernels, communication, overlap and idle time add up to the span."""
    a, b = found.a, found.b
    rows = [
        ("kernels", a.sum_s(communicated=False), b.sum_s(communicated=False)),
        ("communication", a.sum_s(communicated=True), b.sum_s(communicated=True)),
    ]
    rows += [(name, *pair) for name, pair in found.parts.items() if name == "overlap" or name.startswith("idle: ")]
    if found.spans is not None:
        rows.append(("span", *found.spans))
    for name, one, other in rows:
        if one or other or name == "span":
            yield [name, *(f"{each / worth:,.3f}" for each in (one, other)), f"{(other - one) / worth:+,.3f}"]


def _heads(found: TraceContrast, unit: str) -> list[str]:
    first = {"name": ["operator", "class", "work"], "kernel": ["kernel", "class"], "type": ["type"], "class": ["class"]}
    times = [f"A, {unit}", f"B, {unit}", f"B - A, {unit}"]
    return [*first[found.by], "count A", "count B", *times, "FLOP/s A", "FLOP/s B", "bytes/s A", "bytes/s B"]


def _cells(found: TraceContrast, row: Row, worth: float) -> list[Any]:
    name = short_name(row.name)
    first: list[Any] = {
        "name": [name, row.of, row.work],
        "kernel": [row.work or name or row.of, row.of],
        "type": [row.name],
        "class": [row.of],
    }[found.by]
    rates = [_rate(each.flop_per_s) for each in (row.a, row.b)] + [_rate(each.bytes_per_s) for each in (row.a, row.b)]
    counts = [round(each.count, 2) for each in (row.a, row.b)]
    times = [f"{each.seconds / worth:,.3f}" for each in (row.a, row.b)]
    return [*first, *counts, *times, f"{row.difference_s / worth:+,.3f}", *rates]


def _rate(value: float | None) -> str:
    """Return a rate for a person to read.

    >>> _rate(7.41e14), _rate(4.2e12), _rate(None)
    ('741 T', '4.2 T', '-')
    """
    if value is None:
        return "-"
    for prefix, worth in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= worth:
            return f"{value / worth:.3g} {prefix}"
    return f"{value:.3g}"


def short_name(name: str) -> str:
    """Return the name of a kernel without namespaces, templates and parameters, with the functor that it runs.

    >>> short_name("void at::native::elementwise_kernel<8, at::native::GeluCUDAKernelImpl(x)::{lambda()#1}>(int)")
    'elementwise_kernel GeluCUDAKernelImpl'
    >>> short_name("nvjet_sm90_tst_256x128")
    'nvjet_sm90_tst_256x128'
    """
    plain = one_line(name).removeprefix("void ").replace("(anonymous namespace)::", "")
    functor = _FUNCTOR.search(plain)
    while plain != (shorter := _TEMPLATE.sub("", plain)):
        plain = shorter
    plain = _SCOPE.sub("", plain).split("<")[0].strip() or one_line(name)
    found = f"{plain} {functor[1]}" if functor is not None and functor[1] not in plain else plain
    return found if len(found) <= SHOWN_CHARACTERS else f"{found[: SHOWN_CHARACTERS - 1]}…"


def _sentences(found: TraceContrast) -> Iterator[str]:
    """Yield what else is to be said: what is on one side only, the order, critical paths, and notes."""
    unit, worth = _unit(found.totals)
    if not any(row.differs for row in found.rows):
        yield "all operators are the same: the graphs differ in ids, dependencies, starts, or nodes of the host"
    if found.spans is not None:
        change = found.spans[1] - found.spans[0]
        beside = found.beside_operators_s
        whole, own, rest = (_signed(each / worth) for each in (change, change - beside, beside))
        yield f"of the difference of {whole} {unit}, operators explain {own} and overlap and idle time {rest}"
    for side, name in (("a", "A"), ("b", "B")):
        only = found.only_in(cast(Literal["a", "b"], side))
        if only:
            took = sum(getattr(row, side).seconds for row in only)
            count = sum(getattr(row, side).count for row in only)
            yield f"only in {name}: {count:,.0f} nodes of {len(only):,} kinds, {_number(took / worth)} {unit}"
    if found.order is not None and (found.order.a or found.order.b):
        order = found.order
        yield f"in the same order: {order.same:,} of {order.a:,} operators of A and {order.b:,} of B (rank 0)"
    for name, side_ in (("A", found.a), ("B", found.b)):
        if (path := side_.path) is not None:
            parts = {"compute": path.compute_s, "communication": path.communication_s, "host": path.host_s}
            parts["delays"] = path.delay_s
            told = ", ".join(f"{what} {_number(each / worth)}" for what, each in parts.items() if each)
            yield (
                f"critical path of {name}: {path.nodes:,} nodes, {told} {unit}"
                if told
                else f"critical path of {name}: none"
            )
    if {found.a.kind, found.b.kind} == {"design", "recorded"}:
        yield "a profiler slows the host down: a run without it is less idle than the recorded one"
    if "generated" in (found.a.kind, found.b.kind) and found.by == "class":
        yield "generated nodes hold several operators: name the design itself to compare operators"
    yield from (*found.a.notes, *found.b.notes)


# --------------------------------------------------------------------------------------------------------- JSON


def _data(found: TraceContrast) -> dict[str, Any]:
    spans = found.spans
    return {
        "headline": headline(found),
        "identical": found.identical,
        "by": found.by,
        "a": _side(found.a),
        "b": _side(found.b),
        "span_difference_s": None if spans is None else spans[1] - spans[0],
        "beside_operators_s": None if spans is None else found.beside_operators_s,
        "parts": {name: {"a_s": a, "b_s": b, "difference_s": b - a} for name, (a, b) in found.parts.items()},
        "order": None if found.order is None else asdict(found.order),
        "rows": [
            {
                "class": row.of,
                "name": row.name,
                "work": row.work,
                "a": _amount(row.a),
                "b": _amount(row.b),
                "difference_s": row.difference_s,
            }
            for row in found.rows
        ],
    }


def _side(side: TraceSide) -> dict[str, Any]:
    return {
        "name": side.name,
        "kind": side.kind,
        "steps": side.steps,
        "span_s": side.span_s,
        "kernels_s": side.sum_s(communicated=False),
        "communication_s": side.sum_s(communicated=True),
        "overlap_s": side.overlap_s,
        "idle": asdict(side.idle),
        "critical_path": None if side.path is None else asdict(side.path),
        "structure": None if side.structure is None else asdict(side.structure),
        "notes": list(side.notes),
    }


def _amount(amount: Amount) -> dict[str, Any]:
    return {**asdict(amount), "flop_per_s": amount.flop_per_s, "bytes_per_s": amount.bytes_per_s}
