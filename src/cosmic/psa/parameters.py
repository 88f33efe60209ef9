"""Parameters: named choices whose values set one or more fields of a design point.

A list, a stepped range or powers of two set one field. With ``*`` there is one such parameter for each
network dimension, or a single one for all if it is ``shared``. ``workload.{dp,tp}`` sets several fields at
once. ``compute.accelerator`` sets the whole compute and memory layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import Any

from cosmic import units
from cosmic.arithmetic import splits
from cosmic.design import schema
from cosmic.design.own import Fields
from cosmic.design.paths import full_path
from cosmic.design.point import STACKS, DesignPoint
from cosmic.errors import SpecError, UnknownName, as_key, require, suggestion
from cosmic.loading.machines import accelerator_layers
from cosmic.psa.expressions import UNDEFINED, Constant, Known, exact

MAX_VALUES = 20_000
ACCELERATOR = "compute.accelerator"
SYSTEM = "system"
"""Parameter that chooses a whole machine (`cosmic.psa.systems`)."""
WHOLE = (ACCELERATOR, SYSTEM)
"""Parameters that set whole layers, but for fields that have one of their own."""


@dataclass(frozen=True)
class Parameter:
    """A parameter: agents see the index of its value, evaluation sees the fields that it sets."""

    name: str
    """The path that it sets, or a pattern of several paths."""
    paths: tuple[str, ...]
    """The fields that it sets."""
    values: tuple[tuple[Any, ...], ...]
    """For each value, the content of each of `paths`."""
    labels: tuple[Any, ...]
    """For each value, how files write it: plain data."""

    @property
    def stack(self) -> str:
        """Its layer of the stack."""
        return self.name.partition(".")[0]

    @cached_property
    def ordered(self) -> bool:
        """Whether neighbouring values are similar: numbers are, names are not."""
        return all(isinstance(part, int | float) and not isinstance(part, bool) for row in self.values for part in row)

    def only(self, kept: Callable[[str], bool]) -> Parameter:
        """Return the parameter with the same values, setting those of its fields alone that are *kept*."""
        places = [place for place, path in enumerate(self.paths) if kept(path)]
        rows = tuple(tuple(row[place] for place in places) for row in self.values)
        return Parameter(self.name, tuple(self.paths[place] for place in places), rows, self.labels)

    @cached_property
    def settings(self) -> tuple[dict[str, Known], ...]:
        """For each value, the fields that it sets, as constants of expressions."""
        return tuple(
            {path: _as_constant(part) for path, part in zip(self.paths, row, strict=True)} for row in self.values
        )


def _as_constant(value: Any) -> Known:
    """Return *value* as expressions compute with it: a list or a figure that is not known has no value there."""
    return Constant(exact(value)) if isinstance(value, bool | int | float | str) else UNDEFINED


def read_parameters(base: DesignPoint, given: Any, whole: Parameter | None = None) -> tuple[Parameter, ...]:
    """Return the parameters under ``parameters`` of a file, for designs with the fields of *base*.

    *whole* chooses the machine, if one does: it sets what no other parameter sets.
    """
    if not isinstance(given, Mapping):
        raise SpecError("parameters", given, "must map paths to their values")
    found: list[Parameter] = [] if whole is None else [whole]
    taken: dict[str, str] = {}
    for key, domain in given.items():
        where = f"parameters.{as_key(key)}"
        if not isinstance(key, str):
            raise SpecError(where, domain, "is no path")
        for parameter in _read(base, full_key(key, where, base), domain, where):
            for path in parameter.paths:
                if path in taken and ACCELERATOR not in (parameter.name, taken[path]):
                    raise SpecError(where, domain, f"sets {path}, which parameters.{taken[path]} sets too")
                taken.setdefault(path, parameter.name)
            found.append(parameter)
    return _without_overridden(found)


def full_key(key: str, where: str, base: DesignPoint | None = None) -> str:
    """Return the full path of a key of a parameter set (see `cosmic.design.paths`); an engine's own are full ones."""
    if isinstance(base, Fields):
        return key
    try:
        return full_path(key)
    except SpecError as error:
        raise type(error)(where, key, error.rule) from None


def _without_overridden(parameters: list[Parameter]) -> tuple[Parameter, ...]:
    """Return *parameters*; accelerator and system do not set fields that have a parameter of their own."""
    own = {path for parameter in parameters if parameter.name not in WHOLE for path in parameter.paths}
    of_accelerator = {path for parameter in parameters if parameter.name == ACCELERATOR for path in parameter.paths}
    overridden = {ACCELERATOR: own, SYSTEM: own | of_accelerator}
    return tuple(
        _without(parameter, overridden[parameter.name]) if parameter.name in WHOLE else parameter
        for parameter in parameters
    )


def _without(parameter: Parameter, paths: set[str]) -> Parameter:
    """Return *parameter*, no longer setting the fields at *paths*."""
    return parameter.only(lambda path: path not in paths)


def _read(base: DesignPoint, key: str, domain: Any, where: str) -> Iterator[Parameter]:
    stack = key.partition(".")[0]
    if stack not in STACKS and not isinstance(base, Fields):
        raise UnknownName(where, domain, f"no such layer{suggestion(stack, STACKS)}")
    shared = False
    if isinstance(domain, Mapping) and "shared" in domain:
        shared = schema.read(bool, domain["shared"], f"{where}.shared")
        domain = {rest: value for rest, value in domain.items() if rest != "shared"}
    if key == ACCELERATOR:
        yield _accelerators(base, domain, where)
    elif "{" in key:
        yield _joint(base, key, domain, where)
    else:
        paths = expand(base, key, where)
        values = _values(base, paths[0], domain, where)
        for group in [paths] if shared else [[path] for path in paths]:
            rows = tuple((value,) * len(group) for value in values)
            labels = tuple(label(base, paths[0], value) for value in values)
            yield _checked(base, Parameter(key if shared else group[0], tuple(group), rows, labels), where)


def expand(base: DesignPoint, key: str, where: str) -> list[str]:
    """Return the paths of *key*: the key itself, or one path for each list entry where it has a ``*``."""
    paths = [""]
    for part in key.split("."):
        paths = [
            f"{path}.{place}".lstrip(".")
            for path in paths
            for place in (range(len(_entries(base, path, where))) if part == "*" else [part])
        ]
    for path in paths:
        try:
            schema.slot_at(base, path)
        except SpecError:
            known = {re.sub(r"\.\d+", ".*", leaf) for leaf, _ in schema.leaves(base)}
            raise UnknownName(where, key, f"no such field{suggestion(key, known)}") from None
    if not paths:
        raise SpecError(where, key, "the base design has no entries there")
    return paths


def _entries(base: DesignPoint, path: str, where: str) -> Sequence[Any]:
    found = schema.get(base, path) if path else None
    if not isinstance(found, tuple):
        raise SpecError(where, path, "is no list: '*' stands for each entry of one")
    return found


def label(base: DesignPoint, path: str, value: Any) -> Any:
    """Return *value* of the field at *path* as files write it."""
    return schema.write(value, schema.slot_at(base, path).dimension)


def label_in(parameter: Parameter, point: DesignPoint) -> Any:
    """Return the value of a parameter in *point* as files write it, also where the parameter does not list it.

    Several fields give one label where they are equal, and a list otherwise; an accelerator gives its name, and a
    machine that of its node with its size.
    """
    if parameter.name == SYSTEM:
        point = point.padded(1 + max(dimension_of(path) for path in parameter.paths))
    held = tuple(schema.get(point, path) for path in parameter.paths)
    if held in parameter.values:
        return parameter.labels[parameter.values.index(held)]
    if parameter.name == ACCELERATOR:
        return point.compute.accelerator
    if parameter.name == SYSTEM:
        return f"{point.node.name or point.compute.accelerator}:{point.network.npus}"
    labels = [label(point, path, value) for path, value in zip(parameter.paths, held, strict=True)]
    return labels[0] if all(each == labels[0] for each in labels) else labels


def dimension_of(path: str) -> int:
    """Return the place of the network dimension that the field at *path* is of; -1 where it is of none.

    >>> dimension_of("network.dims.2.npus"), dimension_of("compute.bf16")
    (2, -1)
    """
    parts = path.split(".")
    return int(parts[2]) if parts[:2] == ["network", "dims"] else -1


# ------------------------------------------------------------------------------------------------ values


def _values(base: DesignPoint, path: str, domain: Any, where: str) -> list[Any]:
    """Return the values of *domain* as the design holds them, without duplicates; numbers are sorted."""
    slot = schema.slot_at(base, path)
    written = written_values(domain, where, slot.dimension)
    values = [schema.read(slot.hint, item, f"{where}.{place}", slot.dimension) for place, item in enumerate(written)]
    if not values:
        raise SpecError(where, domain, "has no values")
    if len(set(values)) < len(values):
        twice = next(value for place, value in enumerate(values) if value in values[:place])
        raise SpecError(where, domain, f"has {schema.write(twice, slot.dimension)} twice")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return sorted(values) if numbers else values


def written_values(domain: Any, where: str, dimension: units.PhysicalDimension | None) -> list[Any]:
    """Return the values of *domain* as a list in a file would have them."""
    if isinstance(domain, list):
        return domain
    if not isinstance(domain, Mapping):
        raise SpecError(where, domain, "must be a list of values, {from, to, step} or {powers_of_two}")
    keys = set(domain)
    if keys == {"values"}:
        return written_values(domain["values"], where, dimension)
    if keys == {"powers_of_two"}:
        return list(_powers_of_two(domain["powers_of_two"], f"{where}.powers_of_two"))
    if keys == {"from", "to", "step"}:
        return list(_range(domain, where, dimension))
    known = ("values", "from", "to", "step", "powers_of_two", "shared")
    for key in keys:
        if key not in known:
            raise UnknownName.key(f"{where}.{as_key(key)}", domain[key], known)
    raise SpecError(where, domain, "give values, or powers_of_two, or from, to and step")


def _powers_of_two(bounds: Any, where: str) -> Iterator[int]:
    if not (isinstance(bounds, list) and len(bounds) == 2):
        raise SpecError(where, bounds, "must be a list of the least and the greatest")
    low, high = (schema.read(int, bound, f"{where}.{place}") for place, bound in enumerate(bounds))
    if not 1 <= low <= high < 2**63:
        raise SpecError(where, bounds, "must go from at least 1 upwards")
    for exponent in range(63):
        if low <= 2**exponent <= high:
            yield 2**exponent


def _range(domain: Mapping[str, Any], where: str, dimension: units.PhysicalDimension | None) -> Iterator[Any]:
    low, high, step = (_exact(domain[key], f"{where}.{key}", dimension) for key in ("from", "to", "step"))
    if step <= 0 or low > high:
        raise SpecError(where, dict(domain), "must go upwards, by a positive step")
    count = (high - low) // step + 1
    if count > MAX_VALUES:
        raise SpecError(where, dict(domain), f"has more than {MAX_VALUES:,} values")
    for place in range(count):
        value = low + place * step
        if dimension is not None:
            yield units.show(float(value), dimension)
        else:
            yield int(value) if value.denominator == 1 else float(value)


def _exact(value: Any, where: str, dimension: units.PhysicalDimension | None) -> Fraction:
    if dimension is not None:
        schema.read(float, value, where, dimension)  # refuses a value of another dimension
        return units.parse(value).value
    return Fraction(repr(schema.read(float, value, where)))


def _checked(base: DesignPoint, parameter: Parameter, where: str) -> Parameter:
    """Return *parameter*; values that its fields cannot hold are refused here, not during a search.

    So are names of parts whose figures are other fields, of which a search would keep those of the base.
    """
    named = next((path for path in parameter.paths if path == "node.name" or path.endswith(".fabric.switch")), "")
    require(not named, where, named, "names a part, and its figures are other fields: sweep it, or search those")
    for place, row in enumerate(parameter.values):
        try:
            schema.assign(base, dict(zip(parameter.paths, row, strict=True)))
        except SpecError as error:
            raise SpecError(where, parameter.labels[place], error.rule) from None
    return parameter


# ----------------------------------------------------------------------------------------- several fields


def _joint(base: DesignPoint, key: str, domain: Any, where: str) -> Parameter:
    """Return a parameter that sets several fields at once: ``workload.{dp,tp}``."""
    match = re.fullmatch(r"([\w.]+)\.\{([\w\s,]+)\}", key)
    if not match:
        raise SpecError(where, domain, "several fields are written as workload.{dp,tp}")
    names = [name.strip() for name in match[2].split(",")]
    paths = [path for name in names for path in expand(base, f"{match[1]}.{name}", where)]
    if len(set(paths)) < len(paths) or len(paths) < 2:
        raise SpecError(where, names, "must name two or more different fields")
    written = _tuples(base, domain, len(paths), where)
    rows = []
    for place, item in enumerate(written):
        if not (isinstance(item, list | tuple) and len(item) == len(paths)):
            raise SpecError(f"{where}.{place}", item, f"must be a list of {len(paths)} values: {', '.join(names)}")
        slots = [schema.slot_at(base, path) for path in paths]
        parts = zip(slots, item, strict=True)
        rows.append(tuple(schema.read(slot.hint, part, f"{where}.{place}", slot.dimension) for slot, part in parts))
    if not rows or len(set(rows)) < len(rows):
        raise SpecError(where, domain, "must list combinations, each once")
    labels = tuple([label(base, path, part) for path, part in zip(paths, row, strict=True)] for row in rows)
    name = f"{match[1]}.{{{','.join(names)}}}"
    return _checked(base, Parameter(name, tuple(paths), tuple(rows), labels), where)


def _tuples(base: DesignPoint, domain: Any, width: int, where: str) -> list[Any]:
    """Return combinations of *width* values: as listed, or all factorisations of a number (``split``)."""
    if isinstance(domain, list):
        return domain
    if not (isinstance(domain, Mapping) and set(domain) <= {"split", "powers_of_two"} and "split" in domain):
        raise SpecError(where, domain, "must be a list of combinations, or {split: NUMBER, powers_of_two: true}")
    number = (
        base.network.npus
        if domain["split"] == "npus" and not isinstance(base, Fields)
        else schema.read(int, domain["split"], f"{where}.split")
    )
    binary = schema.read(bool, domain.get("powers_of_two", False), f"{where}.powers_of_two")
    if not 1 <= number <= 10**7:
        raise SpecError(f"{where}.split", number, "must be 'npus' or a number from 1 to 10,000,000")
    found: list[Any] = list(islice(splits(number, width, powers_of_two=binary), MAX_VALUES + 1))
    if len(found) > MAX_VALUES:
        raise SpecError(where, dict(domain), f"has more than {MAX_VALUES} combinations")
    return found


def _accelerators(base: DesignPoint, domain: Any, where: str) -> Parameter:
    """Return the parameter of accelerators: each sets the whole compute and memory layers."""
    if isinstance(domain, Mapping) and set(domain) == {"values"}:
        domain = domain["values"]
    if not (isinstance(domain, list) and domain):
        raise SpecError(where, domain, "must be a list of accelerators")
    rows = []
    for place, name in enumerate(domain):
        compute, memory = accelerator_layers(schema.read(str, name, f"{where}.{place}"), f"{where}.{place}")
        fields = dict(schema.leaves(compute, "compute")) | dict(schema.leaves(memory, "memory"))
        rows.append(fields)
    if len(set(domain)) < len(domain):
        raise SpecError(where, domain, "has an accelerator twice")
    paths = tuple(rows[0])
    return Parameter(ACCELERATOR, paths, tuple(tuple(row[path] for path in paths) for row in rows), tuple(domain))
