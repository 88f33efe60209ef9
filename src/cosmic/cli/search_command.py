"""`cosmic search`: the best design of a parameter set, or the best mapping of a design.

`searched_space` says what is searched, with what is held, varied and opened.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cosmic.base.errors import SpecError, require
from cosmic.cli import value_completion
from cosmic.cli.console import MORE, Json, Limits, Prices, Settings, emit_commands, emit_json
from cosmic.cli.output_streams import FAILED, INTERRUPTED, TERMINATED, emit
from cosmic.cli.search_output import ProgressLine, free_folder, print_search, search_summary, split_values, write_best

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cosmic.design.answer import NextCommand
    from cosmic.design.design_point import DesignPoint
    from cosmic.search.mapping.launch_import import Imported
    from cosmic.search.search_loop import Found
    from cosmic.search.space.parameter_set import ParameterSet


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The options that say what is searched."""

    settings: list[str]
    fix: list[str]
    vary: list[str]
    framework: str
    stacks: list[str]
    constraints: list[str]
    origin: str = ""
    """The format of a launch script or configuration whose mapping is searched."""
    system: str = ""
    model: str = ""
    define: tuple[str, ...] = ()
    prices: Path | None = None
    """A file of quotes."""
    engine: str = ""
    """The engine of somebody else that evaluates, if one does."""


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """What is searched."""

    space: ParameterSet
    limits: list[str]
    """Limits on metrics."""
    stacks: list[str]
    """Layers of the set that are opened; all if none is named."""
    launch: Imported | None = None
    """The launch that the base design was read from."""

    @property
    def target(self) -> str:
        """The framework of that launch."""
        return "" if self.launch is None else framework_of_format(self.launch.origin)


def framework_of_format(origin: str) -> str:
    """Return the framework that launches a format: NeMo's recipes are Megatron's."""
    return "megatron" if origin == "nemo" else origin


def searched_space(source: str, asked: SearchRequest) -> SearchTarget:
    """Return what is searched: a set as it stands, or the mappings of a design or of a launch.

    Of a design, constraints on fields are part of the set; of a set, they stand in its file.
    """
    from cosmic.search.space.space_files import load_space, names_design  # noqa: PLC0415  heavy

    launched = {"--system": asked.system, "--model": asked.model, "--define": asked.define}
    for option, value in launched.items():
        require(bool(asked.origin) or not value, option, value, "is for launch scripts: say which format, with --from")
    if asked.origin:
        return _space_of_launch(source, asked)
    if names_design(source):
        return _space_of_design(source, asked)
    options = {"--set": asked.settings, "--fix": asked.fix, "--vary": asked.vary, "--framework": asked.framework}
    options["--prices"] = str(asked.prices or "")
    for option, value in options.items():
        require(not value, option, value, "is for designs (MODEL@SYSTEM:N): a space says itself what may vary")
    return SearchTarget(load_space(source), asked.constraints, asked.stacks)


def _space_of_launch(source: str, asked: SearchRequest) -> SearchTarget:
    from cosmic.frameworks.launch_readers import parse_defines  # noqa: PLC0415  heavy
    from cosmic.search.mapping.launch_import import import_launch  # noqa: PLC0415  heavy

    imported = import_launch(
        source,
        asked.origin,
        system=asked.system,
        model=asked.model,
        overrides={
            path: value for path, value in _stated_fields(asked).items() if path != "prices"
        },  # _of_design has them
        defines=parse_defines(list(asked.define)),
    )
    searched = _space_of_design(imported.tree, asked, asked.framework or framework_of_format(asked.origin))
    return replace(searched, launch=imported)


def _space_of_design(source: str | Mapping[str, Any], asked: SearchRequest, framework: str = "") -> SearchTarget:
    from cosmic.search.space.space_files import is_limit, mapping_space  # noqa: PLC0415  heavy

    limits = [constraint for constraint in asked.constraints if is_limit(constraint, asked.engine)]
    own = [limit for limit in limits if limit.startswith("memory_bytes")]  # takes the place of ours
    space = mapping_space(
        source,
        _stated_fields(asked),
        framework=framework or asked.framework or "any",
        stacks=[stack for stack in asked.stacks if stack != "workload"],
        fix=[each for each in asked.fix if "=" not in each],
        vary=parse_varied(asked.vary),
        constraints=[constraint for constraint in asked.constraints if constraint not in limits or constraint in own],
        engine=asked.engine,
    )
    return SearchTarget(space, [limit for limit in limits if limit not in own], [])


def _stated_fields(asked: SearchRequest) -> dict[str, Any]:
    """Return the fields that options set: they are held."""
    from cosmic.design.catalog_parts import quotes_override  # noqa: PLC0415  heavy
    from cosmic.design.design_point import full_path  # noqa: PLC0415  heavy
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy

    machines = "compute" in asked.stacks or "compute.accelerator" in map(full_path, parse_varied(asked.vary))
    rule = "prices one machine: it cannot be used where accelerators are searched"
    require(asked.prices is None or not machines, "--prices", str(asked.prices), rule)

    stated = parse_overrides([*asked.settings, *(each for each in asked.fix if "=" in each)])
    return {**quotes_override(asked.prices), **stated}


def launch_changes(searched: SearchTarget | None, best: DesignPoint | None) -> list[str]:
    """Return what to change in the launch whose mapping was searched, a line for each argument."""
    from cosmic.frameworks.launch import compare_launches  # noqa: PLC0415  heavy

    if searched is None or searched.launch is None or best is None:
        return []
    return [str(compare_launch) for compare_launch in compare_launches(searched.launch.point, best, searched.target)]


def parse_varied(texts: list[str]) -> dict[str, list[Any]]:
    """Return the fields that ``--vary PATH=A,B`` names, each with its values.

    >>> parse_varied(["precision=bf16,fp8", "tp=1,2"])
    {'precision': ['bf16', 'fp8'], 'tp': [1, 2]}
    """
    from cosmic.design.design_point import full_path  # noqa: PLC0415  heavy
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415

    values_of: dict[str, list[Any]] = {}
    rule = "give a field and its values, such as tp=1,2,4"
    for text in texts:
        path, _, values = (part.strip() for part in text.partition("="))
        require(bool(path and values), "--vary", text, rule)
        require(
            full_path(path) not in map(full_path, values_of), "--vary", text, "names a field that another one varies"
        )
        values_of[path] = parse_overrides([f"{path}=[{values}]"])[path]
        require(bool(values_of[path]), "--vary", text, rule)
    return values_of


def write_space(space: ParameterSet | None, path: Path) -> None:
    """Write the set that is searched as a YAML file; `cosmic search FILE` searches the same."""
    from cosmic.base.files import write_text  # noqa: PLC0415
    from cosmic.design.plain_data import dump_yaml  # noqa: PLC0415  heavy

    if space is None or space.source is None:
        raise SpecError("--save-space", str(path), "says what is searched: name a design or a space")
    write_text(path, dump_yaml(dict(space.source)), "--save-space")


NOTHING_RUNS = FAILED
RUNS = Path("runs")
AUTO = "auto"


class SearchTerminated(KeyboardInterrupt):
    """SIGTERM: the search ends as it does with Ctrl-C."""


def search(  # noqa: PLR0913, PLR0917  one option each
    space: Annotated[
        str,
        typer.Argument(
            metavar="[DESIGN|SPACE]",
            help="MODEL@SYSTEM:N or a design file: its mapping; a space of the catalog or a YAML file; "
            "none to --resume.",
            autocompletion=value_completion.complete_designs_and_spaces,
        ),
    ] = "",
    agent: Annotated[
        str,
        typer.Option(
            help="An agent ('cosmic catalog list agents'); auto: every design, where they are few.",
            autocompletion=value_completion.complete_agents,
        ),
    ] = AUTO,
    trials: Annotated[
        int | None, typer.Option("-n", "--trials", min=1, help="Designs to evaluate [all, or 10000 of many].")
    ] = None,
    objective: Annotated[
        list[str],
        typer.Option(
            help="A metric to optimise; several for a Pareto front.", autocompletion=value_completion.complete_metrics
        ),
    ] = [],  # noqa: B006  typer copies it
    constraint: Limits = [],  # noqa: B006
    stacks: Annotated[
        str,
        typer.Option(
            help="Of a space, the layers to search, all others frozen: workload,network. Of a design, what to open "
            "besides its mapping: collective,network,compute.",
            autocompletion=value_completion.complete_stacks,
            rich_help_panel=MORE,
        ),
    ] = "",
    settings: Settings = [],  # noqa: B006
    prices: Prices = None,
    fix: Annotated[
        list[str],
        typer.Option(
            "--fix", metavar="PATH[=VALUE]", help="Of a design: hold a field of its mapping.", rich_help_panel=MORE
        ),
    ] = [],  # noqa: B006
    vary: Annotated[
        list[str],
        typer.Option(
            "--vary",
            metavar="PATH=A,B,…",
            help="Of a design: search a field too, such as precision=bf16,fp8.",
            rich_help_panel=MORE,
        ),
    ] = [],  # noqa: B006
    framework: Annotated[
        str,
        typer.Option(
            help="Of a design: only what megatron, torchtitan or deepspeed can launch.",
            autocompletion=value_completion.complete_one_of("megatron", "torchtitan", "deepspeed", "any"),
            rich_help_panel=MORE,
        ),
    ] = "",
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help="The argument is a launch script or configuration: megatron, nemo, torchtitan or deepspeed.",
            autocompletion=value_completion.complete_one_of("deepspeed", "megatron", "nemo", "torchtitan"),
            rich_help_panel=MORE,
        ),
    ] = "",
    system: Annotated[
        str,
        typer.Option(metavar="SYSTEM", help="Of a launch: what it runs on, as in dgx-h100:64.", rich_help_panel=MORE),
    ] = "",
    model: Annotated[
        str,
        typer.Option(metavar="MODEL", help="Of a launch: the model, where its file has none.", rich_help_panel=MORE),
    ] = "",
    define: Annotated[
        list[str],
        typer.Option(
            "--define", metavar="NAME=VALUE", help="Of a launch: a variable of its script.", rich_help_panel=MORE
        ),
    ] = [],  # noqa: B006
    save_space: Annotated[
        Path | None,
        typer.Option(
            "--save-space", metavar="FILE", help="Write what is searched as a YAML space.", rich_help_panel=MORE
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same search.", rich_help_panel=MORE)] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.", rich_help_panel=MORE)] = 1,
    engine: Annotated[
        str,
        typer.Option(
            help="analytic, event, ray (closed forms on a Ray cluster), or an engine that you bring.",
            autocompletion=value_completion.complete_engines("ray"),
            rich_help_panel=MORE,
        ),
    ] = "analytic",
    address: Annotated[
        str, typer.Option(help="Ray cluster to evaluate on; 'local' starts one here.", rich_help_panel=MORE)
    ] = "",
    batch: Annotated[
        int, typer.Option(min=0, help="Designs per batch; 0: the agent's own batch size.", rich_help_panel=MORE)
    ] = 0,
    setting: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="A setting of the agent.", rich_help_panel=MORE)
    ] = [],  # noqa: B006
    learn: Annotated[
        list[str],
        typer.Option(
            "--learn",
            metavar="STUDY|CSV",
            help="Start from what an earlier study or a CSV file of measured runs teaches; may be repeated.",
            rich_help_panel=MORE,
        ),
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Directory of the study [a new one in runs/].")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the study in --out.")] = False,
    json: Json = False,
) -> None:
    """Search for the best mapping of a design, or the best design of a space, and keep every trial in a study."""
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.search.search_loop import PoolOptions, read_interrupted, resume_study  # noqa: PLC0415  heavy
    from cosmic.search.search_loop import search as run  # noqa: PLC0415  heavy
    from cosmic.search.search_verdict import best_point, commands_after  # noqa: PLC0415  heavy

    require(bool(space) or resume, "SPACE", space, "name MODEL@SYSTEM:N, a space of the catalog or a YAML file")
    require(not resume or out is not None, "--resume", resume, "say which study: --out DIR")
    options: dict[str, Any] = {
        "agent": agent,
        "trials": trials,
        "objectives": objective,
        "seed": seed,
        "batch": batch or None,
        "settings": parse_overrides(setting, "--setting"),
        "engine": "analytic" if engine == "ray" else engine,
        "learn": learn,
    }
    require(bool(space) or not learn, "--learn", learn, "is kept in the study that is resumed: leave it out")
    asked = SearchRequest(
        settings,
        fix,
        vary,
        framework,
        split_values(stacks),
        constraint,
        origin,
        system,
        model,
        tuple(define),
        prices,
        engine if engine not in ("analytic", "event", "ray") else "",
    )
    searched = searched_space(space, asked) if space else None
    options |= {"constraints": searched.limits, "stacks": searched.stacks} if searched else {}
    if save_space is not None:
        write_space(searched.space if searched else None, save_space)
    address = address or ("local" if engine == "ray" else "")
    folder = out or free_folder(
        RUNS, f"{_study_stem(space)}-{_agent_for_space(searched.space if searched else None, options)}-{seed}"
    )
    before = signal.signal(signal.SIGTERM, _terminate)
    line, status = ProgressLine(), 0
    outcome: Found | None
    try:
        pool = PoolOptions(workers, address or None)
        if searched is not None:
            options |= {"out": folder, "resume": resume, "workers": workers, "address": pool.address}
            outcome = run(searched.space, **options, watch=line)
        else:
            outcome = resume_study(folder, trials, pool, line)
    except KeyboardInterrupt as ended:
        outcome = read_interrupted(folder, line.last) if line.last is not None else None  # else there is nothing new
        status = TERMINATED if isinstance(ended, SearchTerminated) else INTERRUPTED
    finally:
        line.clear()
        signal.signal(signal.SIGTERM, before)
    best = None if outcome is None else best_point(outcome)
    changes = launch_changes(searched, best) if origin else []
    if outcome is not None and json:
        write_best(outcome)
        emit_json(search_summary(outcome, changes if origin else None))
    elif outcome is not None and status and outcome.problem.engine != "analytic":
        emit(_found_so_far(outcome))  # a verdict would simulate designs again, and who interrupts does not wait
        _print_next_commands(outcome, commands_after(outcome, best))
    elif outcome is not None:
        print_search(outcome)
        if origin:
            emit(["", f"what to change in {space}:" if changes else f"nothing to change in {space}", *changes])
        _print_next_commands(outcome, outcome.answer.next)
    if not status and outcome is not None and outcome.best is None:
        status = NOTHING_RUNS
    if status:
        raise typer.Exit(status)


def _agent_for_space(space: ParameterSet | None, options: dict[str, Any]) -> str:
    """Return the agent of a search by its name, also where it is chosen by the size of the set."""
    from cosmic.search.search_inputs import Options, make_inputs  # noqa: PLC0415  heavy

    return str(options["agent"]) if space is None else make_inputs(space, Options(**options)).agent


def _study_stem(space: str) -> str:
    """Return the name of a study's folder, from what is searched."""
    return re.sub(r"[^\w.@-]", "-", space if "@" in space else Path(space).stem)


def _terminate(*_: object) -> NoReturn:
    raise SearchTerminated


def _found_so_far(outcome: Found) -> list[str]:
    """Return what an interrupted search has, as far as its trials say."""
    from cosmic.search.design_wording import metric_text  # noqa: PLC0415  heavy

    best, objective = outcome.best, outcome.problem.objectives[0]
    reached = (
        f"best design (trial {best['trial']:,}): {metric_text(objective, best['metrics'][objective])}" if best else ""
    )
    return [f"{outcome.trials.evaluated:,} of {outcome.inputs.trials:,} trials", *filter(None, [reached])]


def _print_next_commands(outcome: Found, commands: Iterable[NextCommand]) -> None:
    """Print where the study is, and what to run next; the best design is written into it."""
    write_best(outcome)
    emit(["", f"study: {outcome.path}"])
    emit_commands({each.command: each.purpose for each in commands})
