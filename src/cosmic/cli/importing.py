"""`cosmic import`: a launch script or configuration as a design, and what it achieves."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from cosmic.cli.candidates import one_of
from cosmic.cli.console import Json, Settings, emit, emit_commands, emit_data, emit_json, new_app
from cosmic.cli.evaluate import seconds
from cosmic.files import check_writable, write_text

if TYPE_CHECKING:
    from cosmic.evaluation import Infeasible, Metrics
    from cosmic.mapping.launched import Imported

app = new_app()


@app.command()
def import_(  # noqa: PLR0913, PLR0917  its options
    file: Annotated[str, typer.Argument(metavar="FILE", help="Script or configuration. Nothing in it is run.")],
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help="megatron (script, arguments, YAML), nemo (YAML), torchtitan (TOML) or deepspeed (JSON).",
            autocompletion=one_of("deepspeed", "megatron", "nemo", "torchtitan"),
        ),
    ],
    system: Annotated[
        str, typer.Option(metavar="SYSTEM", help="What it runs on, as in dgx-h100:64; the size may be the file's.")
    ] = "",
    model: Annotated[str, typer.Option(metavar="MODEL", help="The model, where the file does not describe it.")] = "",
    settings: Settings = [],  # noqa: B006  typer copies it
    define: Annotated[
        list[str], typer.Option("--define", metavar="NAME=VALUE", help="A variable of a script. Repeatable.")
    ] = [],  # noqa: B006  typer copies it
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Write the design to this YAML file.")] = "",
    json: Json = False,
) -> None:
    """Read a launch script or configuration as a design, and print it with the step time that it achieves."""
    from cosmic.evaluation import evaluate  # noqa: PLC0415  heavy
    from cosmic.importing.launches import parse_defines  # noqa: PLC0415  heavy
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.mapping.launched import import_launch  # noqa: PLC0415  heavy

    if out:
        check_writable(out, "--out")
    found = import_launch(
        file,
        origin,
        system=system,
        model=model,
        overrides=parse_overrides(settings),
        defines=parse_defines(define),
    )
    outcome = evaluate(found.point)
    if out:
        write_text(out, found.text, "--out")
    if json:
        emit_json(_as_json(found, outcome, out))
    elif out:
        emit([*_about(found), "", *_verdict(found, outcome), "", "next:"])
        emit_commands(_commands(out, found))
    else:
        lines = [
            *_about(found),
            *_verdict(found, outcome),
            "next: add --out design.yaml, then cosmic evaluate design.yaml",
        ]
        emit_data([*(f"# {line}" for line in lines), *found.text.rstrip("\n").split("\n")])


def _about(found: Imported) -> list[str]:
    """Return what was read: the design, what was assumed, what is not modelled."""
    from cosmic.reporting.words import design_in_words  # noqa: PLC0415  heavy

    lines = [design_in_words(found.point)]
    if found.said:
        lines.append(f"accelerators: {found.said}")
    lines += [f"assumed: {each}" for each in found.assumed]
    return lines + [f"not modelled: {each.argument} ({each.why})" for each in found.not_modelled]


def _verdict(found: Imported, outcome: Metrics | Infeasible) -> list[str]:
    """Return what `cosmic evaluate` says, in two lines."""
    from cosmic.evaluation import Infeasible, expected_in_words  # noqa: PLC0415  heavy

    if isinstance(outcome, Infeasible):
        return [f"cannot run: {reason}" for reason in outcome.reasons]
    used, there = outcome.memory_bytes / 2**30, found.point.memory.capacity_bytes / 2**30
    return [
        f"{seconds(outcome.step_s)} per step · {outcome.throughput_per_s:,.0f} {outcome.counted}/s"
        f" · {100 * outcome.mfu:.1f} % MFU · fits: {used:.1f} of {there:.4g} GiB",
        expected_in_words(outcome),
    ]


def _commands(design: str, found: Imported) -> dict[str, str]:
    """Return what to do next, each with its purpose."""
    name = shlex.quote(design)
    target = "megatron" if found.origin == "nemo" else found.origin
    other = "full" if found.point.workload.recompute == "none" else "none"
    return {
        f"cosmic evaluate {name}": "what bounds it, and what would help most",
        f"cosmic sweep {name} --vary tp=1,2,4,8": "one field at a time",
        f"cosmic diff {name} {name} --set-b recompute={other}": "what a change is worth",
        f"cosmic export {name} --to {target}": "back to launch arguments",
    }


def _as_json(found: Imported, outcome: Metrics | Infeasible, out: str) -> dict[str, object]:
    from cosmic.evaluation import Infeasible  # noqa: PLC0415  heavy

    failed = isinstance(outcome, Infeasible)
    numbers = ("step_s", "tokens_per_s", "mfu", "memory_bytes")
    return {
        "from": found.origin,
        "file": found.file,
        "identity": found.point.identity,
        "design": found.tree,
        "accelerators": found.point.network.npus,
        "said": found.said,
        "assumed": list(found.assumed),
        "not_modelled": [{"argument": each.argument, "why": each.why} for each in found.not_modelled],
        "feasible": not failed,
        "reasons": list(outcome.reasons) if isinstance(outcome, Infeasible) else [],
        **{name: None if failed else getattr(outcome, name) for name in numbers},
        "out": out or None,
    }
