"""What a search is of: a parameter set, or the mapping of a design, with what is held, varied and opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cosmic.errors import SpecError, require

if TYPE_CHECKING:
    from pathlib import Path

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


def searched_space(source: str, asked: Asked) -> tuple[ParameterSet, list[str], list[str]]:
    """Return the set that is searched, the limits on metrics, and which layers of the set are opened.

    Of a design, constraints on fields are part of the set; of a set, they stand in its file.
    """
    from cosmic.psa.files import is_limit, load_space, mapping_space, names_design  # noqa: PLC0415  heavy

    if not names_design(source):
        given = {"--set": asked.settings, "--fix": asked.fix, "--vary": asked.vary, "--framework": asked.framework}
        for option, value in given.items():
            require(not value, option, value, "is for designs (MODEL@SYSTEM:N): a space says itself what may vary")
        return load_space(source), asked.constraints, asked.stacks
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415

    held = [each for each in asked.fix if "=" not in each]
    stated = parse_overrides([*asked.settings, *(each for each in asked.fix if "=" in each)])
    limits = [each for each in asked.constraints if is_limit(each)]
    space = mapping_space(
        source,
        stated,
        framework=asked.framework or "any",
        stacks=[each for each in asked.stacks if each != "workload"],
        fix=held,
        vary=varied(asked.vary),
        constraints=[each for each in asked.constraints if each not in limits],
    )
    return space, limits, []


def varied(texts: list[str]) -> dict[str, list[Any]]:
    """Return the fields that ``--vary PATH=A,B`` names, each with its values.

    >>> varied(["precision=bf16,fp8", "tp=1,2"])
    {'precision': ['bf16', 'fp8'], 'tp': [1, 2]}
    """
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415  heavy

    found: dict[str, list[Any]] = {}
    for each in texts:
        path, _, values = (part.strip() for part in each.partition("="))
        rule = "give a field and its values, such as precision=bf16,fp8"
        require(bool(path and values), "--vary", each, rule)
        if path in found:
            raise SpecError("--vary", each, "names a field that another one varies")
        found[path] = parse_overrides([f"{path}=[{values}]"])[path]
    return found


def write_space(space: ParameterSet | None, path: Path) -> None:
    """Write the set that is searched as a YAML file; `cosmic search FILE` searches the same."""
    from cosmic.catalog.yaml_files import dump_yaml  # noqa: PLC0415  heavy
    from cosmic.files import write_text  # noqa: PLC0415

    if space is None or space.source is None:
        raise SpecError("--save-space", str(path), "says what is searched: name a design or a space")
    write_text(path, dump_yaml(dict(space.source)), "--save-space")
