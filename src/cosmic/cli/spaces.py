"""What a search is of: a parameter set, or the mapping of a design, with what is held, varied and opened."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cosmic.errors import SpecError, require

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cosmic.design.point import DesignPoint
    from cosmic.mapping.launched import Imported
    from cosmic.psa.space import ParameterSet


@dataclass(frozen=True, slots=True)
class Asked:
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
class Searched:
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
        return "" if self.launch is None else target_of(self.launch.origin)


def target_of(origin: str) -> str:
    """Return the framework that launches a format: NeMo's recipes are Megatron's."""
    return "megatron" if origin == "nemo" else origin


def searched_space(source: str, asked: Asked) -> Searched:
    """Return what is searched: a set as it stands, or the mappings of a design or of a launch.

    Of a design, constraints on fields are part of the set; of a set, they stand in its file.
    """
    from cosmic.psa.files import load_space, names_design  # noqa: PLC0415  heavy

    launched = {"--system": asked.system, "--model": asked.model, "--define": asked.define}
    for option, value in launched.items():
        require(bool(asked.origin) or not value, option, value, "is for launch scripts: say which format, with --from")
    if asked.origin:
        return _of_launch(source, asked)
    if names_design(source):
        return _of_design(source, asked)
    given = {"--set": asked.settings, "--fix": asked.fix, "--vary": asked.vary, "--framework": asked.framework}
    given["--prices"] = str(asked.prices or "")
    for option, value in given.items():
        require(not value, option, value, "is for designs (MODEL@SYSTEM:N): a space says itself what may vary")
    return Searched(load_space(source), asked.constraints, asked.stacks)


def _of_launch(source: str, asked: Asked) -> Searched:
    from cosmic.importing.launches import parse_defines  # noqa: PLC0415  heavy
    from cosmic.mapping.launched import import_launch  # noqa: PLC0415  heavy

    found = import_launch(
        source,
        asked.origin,
        system=asked.system,
        model=asked.model,
        overrides={path: value for path, value in _stated(asked).items() if path != "prices"},  # _of_design has them
        defines=parse_defines(list(asked.define)),
    )
    searched = _of_design(found.tree, asked, asked.framework or target_of(asked.origin))
    return replace(searched, launch=found)


def _of_design(source: str | Mapping[str, Any], asked: Asked, framework: str = "") -> Searched:
    from cosmic.psa.files import is_limit, mapping_space  # noqa: PLC0415  heavy

    limits = [each for each in asked.constraints if is_limit(each, asked.engine)]
    own = [each for each in limits if each.startswith("memory_bytes")]  # takes the place of ours
    space = mapping_space(
        source,
        _stated(asked),
        framework=framework or asked.framework or "any",
        stacks=[each for each in asked.stacks if each != "workload"],
        fix=[each for each in asked.fix if "=" not in each],
        vary=varied(asked.vary),
        constraints=[each for each in asked.constraints if each not in limits or each in own],
        engine=asked.engine,
    )
    return Searched(space, [each for each in limits if each not in own], [])


def _stated(asked: Asked) -> dict[str, Any]:
    """Return the fields that options set: they are held."""
    from cosmic.design.paths import full_path  # noqa: PLC0415  heavy
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.loading.prices import quotes_in  # noqa: PLC0415  heavy

    machines = "compute" in asked.stacks or "compute.accelerator" in map(full_path, varied(asked.vary))
    rule = "prices one machine: it cannot be used where accelerators are searched"
    require(asked.prices is None or not machines, "--prices", str(asked.prices), rule)

    stated = parse_overrides([*asked.settings, *(each for each in asked.fix if "=" in each)])
    return {**quotes_in(asked.prices), **stated}


def launch_changes(searched: Searched | None, best: DesignPoint | None) -> list[str]:
    """Return what to change in the launch whose mapping was searched, a line for each argument."""
    from cosmic.launching.difference import difference  # noqa: PLC0415  heavy

    if searched is None or searched.launch is None or best is None:
        return []
    return [str(each) for each in difference(searched.launch.point, best, searched.target)]


def varied(texts: list[str]) -> dict[str, list[Any]]:
    """Return the fields that ``--vary PATH=A,B`` names, each with its values.

    >>> varied(["precision=bf16,fp8", "tp=1,2"])
    {'precision': ['bf16', 'fp8'], 'tp': [1, 2]}
    """
    from cosmic.design.paths import full_path  # noqa: PLC0415  heavy
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415

    found: dict[str, list[Any]] = {}
    rule = "give a field and its values, such as tp=1,2,4"
    for each in texts:
        path, _, values = (part.strip() for part in each.partition("="))
        require(bool(path and values), "--vary", each, rule)
        require(full_path(path) not in map(full_path, found), "--vary", each, "names a field that another one varies")
        found[path] = parse_overrides([f"{path}=[{values}]"])[path]
        require(bool(found[path]), "--vary", each, rule)
    return found


def write_space(space: ParameterSet | None, path: Path) -> None:
    """Write the set that is searched as a YAML file; `cosmic search FILE` searches the same."""
    from cosmic.catalog.yaml_files import dump_yaml  # noqa: PLC0415  heavy
    from cosmic.files import write_text  # noqa: PLC0415

    if space is None or space.source is None:
        raise SpecError("--save-space", str(path), "says what is searched: name a design or a space")
    write_text(path, dump_yaml(dict(space.source)), "--save-space")
