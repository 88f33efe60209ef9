"""`cosmic provision`: bandwidth that is made to measure."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli import candidates
from cosmic.cli.console import Json, Settings, emit, emit_commands, emit_json, emit_table, new_app, say
from cosmic.cli.evaluate import seconds

if TYPE_CHECKING:
    from cosmic.provisioning.problem import Binding, Price
    from cosmic.provisioning.result import Provisioned, WholePorts

app = new_app()
GIGA = 1e9
LEAST_SHOWN_S = 1e-11
"""Less than this, for a GB/s, is nothing but rounding."""


@app.command()
def provision(  # noqa: PLR0913, PLR0917  one option each
    source: Annotated[
        str,
        typer.Argument(
            metavar="DESIGN|SPACE|NETWORK",
            help="MODEL@SYSTEM:GPUS, a design file, a parameter set, or a network file of LIBRA.",
            autocompletion=candidates.designs,
        ),
    ],
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="'500 GB/s'", help="What to spend: bandwidth of an NPU, or '10 M USD'; '<= …' for at most."
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="time (default), or time_per_dollar: time multiplied by the network's cost.",
            autocompletion=candidates.one_of("time", "time_per_dollar"),
        ),
    ] = None,
    limit: Annotated[
        list[str],
        typer.Option(metavar="'B0 >= B1'", help="A limit, such as 'network.dims.0.bandwidth >= 100 GB/s'."),
    ] = [],  # noqa: B006  typer copies it
    workload: Annotated[
        list[str],
        typer.Option(
            metavar="WORKLOAD[=WEIGHT]", help="Another design on this network, or a text workload of ASTRA-sim 1.0."
        ),
    ] = [],  # noqa: B006
    communicator: Annotated[
        list[str], typer.Option(metavar="FILE", help="With LIBRA's files: the groups of each pass.")
    ] = [],  # noqa: B006
    cost: Annotated[str | None, typer.Option(metavar="FILE", help="With LIBRA's files: prices of each tier.")] = None,
    loop: Annotated[
        str,
        typer.Option(
            help="With LIBRA's files: no_overlap, or tp_dp_overlap, which hides gradients behind the backward pass.",
            autocompletion=candidates.one_of("no_overlap", "tp_dp_overlap"),
        ),
    ] = "no_overlap",
    in_network_reduction: Annotated[
        bool, typer.Option("--in-network-reduction", help="With LIBRA's files: switches reduce.")
    ] = False,
    ports: Annotated[
        str | None, typer.Option(metavar="'50 GB/s'", help="Also the best in whole ports of this bandwidth.")
    ] = None,
    radix: Annotated[int | None, typer.Option(help="With --ports: the ports of a switch.")] = None,
    settings: Settings = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Print the best bandwidth of every network dimension under a budget, why, and what more of it is worth."""
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.provisioning import provision as run  # noqa: PLC0415  heavy
    from cosmic.psa.provisioned_base import names_space, provision_base  # noqa: PLC0415  heavy

    if names_space(source):
        _refuse_of_designs(settings, workload, communicator, cost, loop, in_network_reduction)
        base = provision_base(
            source,
            budget=budget,
            objective=objective,  # type: ignore[arg-type]  # checked there
            limits=limit,
            ports=ports,
            radix=radix,
        )
        if json:
            emit_json(_data(source, base))
        else:
            say([f"the base design of {source}; the key provision has a search do this for each of its designs"])
            _print("", [], base)
        return
    found = run(
        source,
        budget=budget,
        objective=objective or "time",  # type: ignore[arg-type]  # checked there
        limits=limit,
        workloads=workload,
        communicators=communicator,
        cost=cost,
        loop=loop,  # type: ignore[arg-type]
        in_network_reduction=in_network_reduction,
        ports=ports,
        radix=radix,
        overrides=parse_overrides(settings),
    )
    if json:
        emit_json(_data(source, found))
    else:
        _print(source, settings, found)


def _refuse_of_designs(
    settings: list[str], workload: list[str], communicator: list[str], cost: str | None, loop: str, reducing: bool
) -> None:
    """Refuse what goes with designs and LIBRA's files, and not with parameter sets."""
    from cosmic.errors import SpecError  # noqa: PLC0415

    for option, given in {
        "--set": ", ".join(settings),
        "--workload": ", ".join(workload),
        "--communicator": ", ".join(communicator),
        "--cost": cost or "",
        "--loop": "" if loop == "no_overlap" else loop,
        "--in-network-reduction": "yes" if reducing else "",
    }.items():
        if given:
            raise SpecError(option, given, "goes with a design, not with a parameter set: state it there")


def _data(source: str, found: Provisioned) -> dict[str, Any]:
    return {
        "source": source,
        "objective": found.objective,
        "headline": found.headline(),
        "time_s": found.time_s,
        "base_time_s": found.base_time_s,
        "cost_usd": found.cost_usd,
        "base_cost_usd": found.base_cost_usd,
        "value": found.value,
        "gain": found.gain,
        "bound": found.bound,
        "duality_gap": found.duality_gap,
        "bandwidth_bytes_per_s": [dim.bandwidth_bytes_per_s for dim in found.dims],
        "dims": [asdict(dim) for dim in found.dims],
        "workloads": [asdict(load) for load in found.loads],
        "shadow_prices": [
            {
                "limit": price.limit.text,
                "sense": price.limit.sense,
                "value": price.limit.value,
                "binds": price.binds,
                "worth_per_unit": price.per_unit,
            }
            for price in found.prices
        ],
        "bindings": [
            {
                "workload": each.load,
                "collective": each.traffic,
                "time_s": each.seconds,
                "dims": list(each.dims),
                "shares": list(each.shares),
            }
            for each in found.bindings
        ],
        "ports": None if found.ports is None else asdict(found.ports),
    }


def _print(source: str, settings: list[str], found: Provisioned) -> None:
    say([found.headline()])
    emit_table(
        "",
        ["dimension", "topology", "NPUs", "before, GB/s", "GB/s", "USD", "busiest with", "another GB/s saves"],
        [
            [
                str(place),
                dim.topology,
                str(dim.npus),
                f"{dim.base_bytes_per_s / GIGA:.4g}",
                f"{dim.bandwidth_bytes_per_s / GIGA:.4g}",
                f"{dim.cost_usd:,.0f}",
                dim.busiest or "nothing",
                _saved(dim.worth_s_per_bytes_per_s * GIGA),
            ]
            for place, dim in enumerate(found.dims)
        ],
    )
    emit([""])
    names = [f"{each.name}: {seconds(each.base_time_s)} → {seconds(each.time_s)}" for each in found.loads]
    say([*names, f"network, priced by bandwidth: {found.base_cost_usd:,.0f} → {found.cost_usd:,.0f} USD"])
    said = [_binding(each, several=len(found.loads) > 1) for each in found.bindings if each.dims]
    say(dict.fromkeys(said))
    say([_priced(price, found.objective) for price in found.prices if price.binds])
    if found.duality_gap is not None:
        say([f"proven: no bandwidth within the limits is better by more than {max(found.duality_gap, 1e-12):.1g}"])
    if found.ports is not None:
        _print_ports(found.ports)
    if found.bound is None and source:
        rates = [
            f"network.dims.{place}.bandwidth={dim.bandwidth_bytes_per_s / GIGA!r} GB/s"
            for place, dim in enumerate(found.dims)
        ]
        words = [word for each in (*settings, *rates) for word in ("--set", each)]
        emit([""])
        emit_commands({f"cosmic evaluate {shlex.join([source, *words])}": "what it achieves, and what would help next"})


def _saved(worth_s: float) -> str:
    return seconds(worth_s) if worth_s > LEAST_SHOWN_S else "nothing"


def _binding(each: Binding, *, several: bool) -> str:
    names = ", ".join(map(str, each.dims))
    which = f"dimension {names} binds" if len(each.dims) == 1 else f"dimensions {names} bind"
    return f"{which} {each.traffic}" + (f" of {each.load}" if several else "")


def _priced(price: Price, objective: str) -> str:
    """Return what a limit costs in words: for a GB/s, or for a thousand dollars."""
    dollars = "USD" in price.limit.text
    unit, size = ("1,000 USD", 1e3) if dollars else ("GB/s", GIGA)
    worth = price.per_unit * size
    moved = f"{unit} less" if price.limit.sense == ">=" else f"another {unit}"
    amount = seconds(abs(worth)) if objective == "time" else f"{abs(worth):.3g} s·USD"
    if abs(worth) < LEAST_SHOWN_S:
        return f"{price.limit.text}: {moved} is worth nothing"
    return f"{price.limit.text}: {moved} {'saves' if worth > 0 else 'costs'} {amount}"


def _print_ports(whole: WholePorts) -> None:
    rates = " / ".join(f"{rate / GIGA:.4g}" for rate in whole.bandwidth_bytes_per_s)
    counts = " / ".join(map(str, whole.ports))
    say(
        [
            f"in whole ports of {whole.port}: {counts}, that is {rates} GB/s, {seconds(whole.time_s)}, "
            f"{whole.cost_usd:,.0f} USD: {100 * whole.gap:.2g} % above the best bandwidth"
        ]
    )
