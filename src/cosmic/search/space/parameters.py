"""Parameters: named choices whose values set one or more fields of a design point.

A list, a stepped range or powers of two set one field. With ``*`` there is one such parameter for each
network dimension, or a single one for all if it is ``shared``. ``workload.{dp,tp}`` sets several fields at
once. ``compute.accelerator`` sets the whole compute and memory layers.

``system`` and ``accelerators`` of a file are one parameter, whose values are the machines that can be built: a system
of nodes of 8 has no size of 100. It sets every field of a machine in which they differ. Machines have different numbers
of network dimensions: all get as many places as the one with most, and those that a machine does not have are `ABSENT`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice
from math import prod
from typing import Any

from cosmic.base import units
from cosmic.base.errors import SpecError, UnknownName, as_key, require, suggest_names
from cosmic.base.numeric import factorizations
from cosmic.design import schema
from cosmic.design.design_point import STACK_LAYERS, DesignPoint, EngineFields, full_path
from cosmic.design.machine_layers import accelerator_layers, system_layers
from cosmic.design.network_layer import ABSENT, BY_BANDWIDTH
from cosmic.design.run_layer import Run, npu_mtbf_s
from cosmic.search.space.expressions import UNDEFINED, Constant, Known, as_exact

MAX_VALUES = 20_000
ACCELERATOR = "compute.accelerator"
SYSTEM = "system"
"""Parameter that chooses a whole machine (`cosmic.search.space.parameters`)."""
LAYER_PARAMETERS = (ACCELERATOR, SYSTEM)
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

    def only(self, keep: Callable[[str], bool]) -> Parameter:
        """Return the parameter with the same values, setting those of its fields alone that are *keep*."""
        indices = [index for index, path in enumerate(self.paths) if keep(path)]
        rows = tuple(tuple(row[position] for position in indices) for row in self.values)
        return Parameter(self.name, tuple(self.paths[position] for position in indices), rows, self.labels)

    @cached_property
    def settings(self) -> tuple[dict[str, Known], ...]:
        """For each value, the fields that it sets, as constants of expressions."""
        return tuple(
            {
                path: (Constant(as_exact(part)) if isinstance(part, bool | int | float | str) else UNDEFINED)
                for path, part in zip(self.paths, row, strict=True)
            }
            for row in self.values
        )


def read_parameters(base: DesignPoint, domains: Any, machine: Parameter | None = None) -> tuple[Parameter, ...]:
    """Return the parameters under ``parameters`` of a file, for designs with the fields of *base*.

    *machine* chooses the machine, if one does: it sets what no other parameter sets.
    """
    if not isinstance(domains, Mapping):
        raise SpecError("parameters", domains, "must map paths to their values")
    parameters: list[Parameter] = [] if machine is None else [machine]
    owners: dict[str, str] = {}
    for key, domain in domains.items():
        where = f"parameters.{as_key(key)}"
        if not isinstance(key, str):
            raise SpecError(where, domain, "is no path")
        for parameter in _read_parameter(base, full_key(key, where, base), domain, where):
            for path in parameter.paths:
                if path in owners and ACCELERATOR not in (parameter.name, owners[path]):
                    raise SpecError(where, domain, f"sets {path}, which parameters.{owners[path]} sets too")
                owners.setdefault(path, parameter.name)
            parameters.append(parameter)
    return _without_overridden(parameters)


def full_key(key: str, where: str, base: DesignPoint | None = None) -> str:
    """Return the full path of a key of a parameter set (see `cosmic.design.design_point`).

    Those of an engine's own fields are full already.
    """
    if isinstance(base, EngineFields):
        return key
    try:
        return full_path(key)
    except SpecError as error:
        raise type(error)(where, key, error.rule) from None


def _without_overridden(parameters: list[Parameter]) -> tuple[Parameter, ...]:
    """Return *parameters*; accelerator and system do not set fields that have a parameter of their own."""
    separate = {path for parameter in parameters if parameter.name not in LAYER_PARAMETERS for path in parameter.paths}
    of_accelerator = {path for parameter in parameters if parameter.name == ACCELERATOR for path in parameter.paths}
    overridden = {ACCELERATOR: separate, SYSTEM: separate | of_accelerator}
    return tuple(
        _without(parameter, overridden[parameter.name]) if parameter.name in LAYER_PARAMETERS else parameter
        for parameter in parameters
    )


def _without(parameter: Parameter, paths: set[str]) -> Parameter:
    """Return *parameter*, no longer setting the fields at *paths*."""
    return parameter.only(lambda path: path not in paths)


def _read_parameter(base: DesignPoint, key: str, domain: Any, where: str) -> Iterator[Parameter]:
    stack = key.partition(".")[0]
    if stack not in STACK_LAYERS and not isinstance(base, EngineFields):
        raise UnknownName(where, domain, f"no such layer{suggest_names(stack, STACK_LAYERS)}")
    shared = False
    if isinstance(domain, Mapping) and "shared" in domain:
        shared = schema.read_value(bool, domain["shared"], f"{where}.shared")
        domain = {name: value for name, value in domain.items() if name != "shared"}
    if key == ACCELERATOR:
        yield _read_accelerators(base, domain, where)
    elif "{" in key:
        yield _read_joint_parameter(base, key, domain, where)
    else:
        paths = expand_key(base, key, where)
        values = _read_values(base, paths[0], domain, where)
        for group in [paths] if shared else [[path] for path in paths]:
            rows = tuple((value,) * len(group) for value in values)
            labels = tuple(value_label(base, paths[0], value) for value in values)
            yield _check_parameter(base, Parameter(key if shared else group[0], tuple(group), rows, labels), where)


def expand_key(base: DesignPoint, key: str, where: str) -> list[str]:
    """Return the paths of *key*: the key itself, or one path for each list entry where it has a ``*``."""
    paths = [""]
    for part in key.split("."):
        paths = [
            f"{path}.{index}".lstrip(".")
            for path in paths
            for index in (range(len(_list_entries(base, path, where))) if part == "*" else [part])
        ]
    for path in paths:
        try:
            schema.slot_at(base, path)
        except SpecError:
            field_patterns = {re.sub(r"\.\d+", ".*", leaf) for leaf, _ in schema.leaf_fields(base)}
            raise UnknownName(where, key, f"no such field{suggest_names(key, field_patterns)}") from None
    if not paths:
        raise SpecError(where, key, "the base design has no entries there")
    return paths


def _list_entries(base: DesignPoint, path: str, where: str) -> Sequence[Any]:
    entries = schema.get_field(base, path) if path else None
    if not isinstance(entries, tuple):
        raise SpecError(where, path, "is no list: '*' stands for each entry of one")
    return entries


def value_label(base: DesignPoint, path: str, value: Any) -> Any:
    """Return *value* of the field at *path* as files write it."""
    return schema.write_value(value, schema.slot_at(base, path).dimension)


def design_label(parameter: Parameter, point: DesignPoint) -> Any:
    """Return the value of a parameter in *point* as files write it, also where the parameter does not list it.

    Several fields give one label where they are equal, and a list otherwise; an accelerator gives its name, and a
    machine that of its node with its size.
    """
    if parameter.name == SYSTEM:
        point = point.padded(1 + max(dimension_of(path) for path in parameter.paths))
    values = tuple(schema.get_field(point, path) for path in parameter.paths)
    if values in parameter.values:
        return parameter.labels[parameter.values.index(values)]
    if parameter.name == ACCELERATOR:
        return point.compute.accelerator
    if parameter.name == SYSTEM:
        return f"{point.node.name or point.compute.accelerator}:{point.network.npus}"
    labels = [value_label(point, path, value) for path, value in zip(parameter.paths, values, strict=True)]
    return labels[0] if all(label == labels[0] for label in labels) else labels


def dimension_of(path: str) -> int:
    """Return the place of the network dimension that the field at *path* is of; -1 where it is of none.

    >>> dimension_of("network.dims.2.npus"), dimension_of("compute.bf16")
    (2, -1)
    """
    parts = path.split(".")
    return int(parts[2]) if parts[:2] == ["network", "dims"] else -1


# ---- values


def _read_values(base: DesignPoint, path: str, domain: Any, where: str) -> list[Any]:
    """Return the values of *domain* as the design holds them, without duplicates; numbers are sorted."""
    slot = schema.slot_at(base, path)
    items = listed_values(domain, where, slot.dimension)
    values = [
        schema.read_value(slot.hint, item, f"{where}.{index}", slot.dimension) for index, item in enumerate(items)
    ]
    if not values:
        raise SpecError(where, domain, "has no values")
    if len(set(values)) < len(values):
        twice = next(value for index, value in enumerate(values) if value in values[:index])
        raise SpecError(where, domain, f"has {schema.write_value(twice, slot.dimension)} twice")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return sorted(values) if numbers else values


def listed_values(domain: Any, where: str, dimension: units.PhysicalDimension | None) -> list[Any]:
    """Return the values of *domain* as a list in a file would have them."""
    if isinstance(domain, list):
        return domain
    if not isinstance(domain, Mapping):
        raise SpecError(where, domain, "must be a list of values, {from, to, step} or {powers_of_two}")
    keys = set(domain)
    if keys == {"values"}:
        return listed_values(domain["values"], where, dimension)
    if keys == {"powers_of_two"}:
        return list(_read_powers_of_two(domain["powers_of_two"], f"{where}.powers_of_two"))
    if keys == {"from", "to", "step"}:
        return list(_read_range(domain, where, dimension))
    allowed = ("values", "from", "to", "step", "powers_of_two", "shared")
    for key in keys:
        if key not in allowed:
            raise UnknownName.key(f"{where}.{as_key(key)}", domain[key], allowed)
    raise SpecError(where, domain, "give values, or powers_of_two, or from, to and step")


def _read_powers_of_two(bounds: Any, where: str) -> Iterator[int]:
    if not (isinstance(bounds, list) and len(bounds) == 2):
        raise SpecError(where, bounds, "must be a list of the least and the greatest")
    low, high = (schema.read_value(int, bound, f"{where}.{index}") for index, bound in enumerate(bounds))
    if not 1 <= low <= high < 2**63:
        raise SpecError(where, bounds, "must go from at least 1 upwards")
    for exponent in range(63):
        if low <= 2**exponent <= high:
            yield 2**exponent


def _read_range(domain: Mapping[str, Any], where: str, dimension: units.PhysicalDimension | None) -> Iterator[Any]:
    low, high, step = (_read_exact(domain[key], f"{where}.{key}", dimension) for key in ("from", "to", "step"))
    if step <= 0 or low > high:
        raise SpecError(where, dict(domain), "must go upwards, by a positive step")
    count = (high - low) // step + 1
    if count > MAX_VALUES:
        raise SpecError(where, dict(domain), f"has more than {MAX_VALUES:,} values")
    for index in range(count):
        value = low + index * step
        if dimension is not None:
            yield units.format_quantity(float(value), dimension)
        else:
            yield int(value) if value.denominator == 1 else float(value)


def _read_exact(value: Any, where: str, dimension: units.PhysicalDimension | None) -> Fraction:
    if dimension is not None:
        schema.read_value(float, value, where, dimension)  # refuses a value of another dimension
        return units.parse_quantity(value).value
    return Fraction(repr(schema.read_value(float, value, where)))


def _check_parameter(base: DesignPoint, parameter: Parameter, where: str) -> Parameter:
    """Return *parameter*; values that its fields cannot hold are refused here, not during a search.

    So are names of parts whose figures are other fields, of which a search would keep those of the base.
    """
    named = next((path for path in parameter.paths if path == "node.name" or path.endswith(".fabric.switch")), "")
    require(not named, where, named, "names a part, and its figures are other fields: sweep it, or search those")
    for index, row in enumerate(parameter.values):
        try:
            schema.assign_fields(base, dict(zip(parameter.paths, row, strict=True)))
        except SpecError as error:
            raise SpecError(where, parameter.labels[index], error.rule) from None
    return parameter


# ---- several fields


def _read_joint_parameter(base: DesignPoint, key: str, domain: Any, where: str) -> Parameter:
    """Return a parameter that sets several fields at once: ``workload.{dp,tp}``."""
    match = re.fullmatch(r"([\w.]+)\.\{([\w\s,]+)\}", key)
    if not match:
        raise SpecError(where, domain, "several fields are written as workload.{dp,tp}")
    names = [name.strip() for name in match[2].split(",")]
    paths = [path for name in names for path in expand_key(base, f"{match[1]}.{name}", where)]
    if len(set(paths)) < len(paths) or len(paths) < 2:
        raise SpecError(where, names, "must name two or more different fields")
    combinations = _read_combinations(base, domain, len(paths), where)
    rows = []
    for index, item in enumerate(combinations):
        if not (isinstance(item, list | tuple) and len(item) == len(paths)):
            raise SpecError(f"{where}.{index}", item, f"must be a list of {len(paths)} values: {', '.join(names)}")
        slots = [schema.slot_at(base, path) for path in paths]
        parts = zip(slots, item, strict=True)
        rows.append(
            tuple(schema.read_value(slot.hint, part, f"{where}.{index}", slot.dimension) for slot, part in parts)
        )
    if not rows or len(set(rows)) < len(rows):
        raise SpecError(where, domain, "must list combinations, each once")
    labels = tuple([value_label(base, path, part) for path, part in zip(paths, row, strict=True)] for row in rows)
    name = f"{match[1]}.{{{','.join(names)}}}"
    return _check_parameter(base, Parameter(name, tuple(paths), tuple(rows), labels), where)


def _read_combinations(base: DesignPoint, domain: Any, width: int, where: str) -> list[Any]:
    """Return combinations of *width* values: as listed, or all factorisations of a number (``split``)."""
    if isinstance(domain, list):
        return domain
    if not (isinstance(domain, Mapping) and set(domain) <= {"split", "powers_of_two"} and "split" in domain):
        raise SpecError(where, domain, "must be a list of combinations, or {split: NUMBER, powers_of_two: true}")
    number = (
        base.network.npus
        if domain["split"] == "npus" and not isinstance(base, EngineFields)
        else schema.read_value(int, domain["split"], f"{where}.split")
    )
    binary = schema.read_value(bool, domain.get("powers_of_two", False), f"{where}.powers_of_two")
    if not 1 <= number <= 10**7:
        raise SpecError(f"{where}.split", number, "must be 'npus' or a number from 1 to 10,000,000")
    combinations: list[Any] = list(islice(factorizations(number, width, powers_of_two=binary), MAX_VALUES + 1))
    if len(combinations) > MAX_VALUES:
        raise SpecError(where, dict(domain), f"has more than {MAX_VALUES} combinations")
    return combinations


def _read_accelerators(base: DesignPoint, domain: Any, where: str) -> Parameter:
    """Return the parameter of accelerators: each sets the whole compute and memory layers."""
    if isinstance(domain, Mapping) and set(domain) == {"values"}:
        domain = domain["values"]
    if not (isinstance(domain, list) and domain):
        raise SpecError(where, domain, "must be a list of accelerators")
    rows = []
    for index, name in enumerate(domain):
        compute, memory = accelerator_layers(schema.read_value(str, name, f"{where}.{index}"), f"{where}.{index}")
        fields = dict(schema.leaf_fields(compute, "compute")) | dict(schema.leaf_fields(memory, "memory"))
        rows.append(fields)
    if len(set(domain)) < len(domain):
        raise SpecError(where, domain, "has an accelerator twice")
    paths = tuple(rows[0])
    return Parameter(ACCELERATOR, paths, tuple(tuple(row[path] for path in paths) for row in rows), tuple(domain))


# ---- Systems as a parameter: machines as they are sold, at several sizes, each with its own network, node and price

ACCELERATORS = "accelerators"
MAX_MACHINES = 4096
"""Values of the parameter: each is loaded when the set is."""


def varies_system(domains: Any) -> bool:
    """Return whether the parameters of a file vary the machine as a whole."""
    return isinstance(domains, Mapping) and (SYSTEM in domains or ACCELERATORS in domains)


def without_system(domains: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a file but for those of the machine as a whole."""
    return {key: domain for key, domain in domains.items() if key not in (SYSTEM, ACCELERATORS)}


def read_systems(base: DesignPoint, domains: Mapping[str, Any]) -> tuple[DesignPoint, Parameter]:
    """Return *base* with places for the dimensions of all machines, and the parameter that chooses among them."""
    names = _read_system_names(domains.get(SYSTEM), base)
    sizes = _read_machine_sizes(domains)
    machines: dict[str, dict[str, Any]] = {}
    for name in names:
        layers_by_label = (
            {f"{name}:{size}": _load_system_layers(f"{name}:{size}") for size in sizes}
            if sizes
            else {name: _load_system_layers(name)}
        )
        existing = {label: layers for label, layers in layers_by_label.items() if isinstance(layers, dict)}
        if not existing:
            raise SpecError(
                f"parameters.{SYSTEM}", name, f"has none of the sizes: {next(iter(layers_by_label.values()))}"
            )
        machines |= existing
        require(len(machines) <= MAX_MACHINES, "parameters", len(machines), f"at most {MAX_MACHINES:,} machines")
    return _system_parameter(base, machines)


def split_by_size(
    base: DesignPoint, domains: Mapping[str, Any], machines: Parameter
) -> tuple[dict[str, Any], list[str]]:
    """Return parameters in which ``split: npus`` lists the factorisations of every machine's size, and their rules.

    ``{dp,tp}: {split: npus}`` of machines of 4 and 8 NPUs has the splits of both, and holds ``dp * tp == npus``.
    """
    sizes = sorted({_count_npus(base, machines, row) for row in machines.values})
    split_domains, rules = dict(domains), []
    for key, domain in domains.items():
        match = re.fullmatch(r"(?:[\w.]+\.)?\{([\w\s,]+)\}", key) if isinstance(key, str) else None
        if match is None or not (isinstance(domain, Mapping) and domain.get("split") == "npus"):
            continue
        where, names = f"parameters.{key}", [name.strip() for name in match[1].split(",")]
        binary = schema.read_value(bool, domain.get("powers_of_two", False), f"{where}.powers_of_two")
        combinations = (
            factorization for size in sizes for factorization in factorizations(size, len(names), powers_of_two=binary)
        )
        rows = list(islice(combinations, MAX_VALUES + 1))
        require(len(rows) <= MAX_VALUES, where, dict(domain), f"has more than {MAX_VALUES} combinations")
        split_domains[key] = rows
        stem = full_key(key, where).partition("{")[0]
        rules.append(" * ".join(f"{stem}{name}" for name in names) + " == npus")
    return split_domains, rules


def _count_npus(base: DesignPoint, machines: Parameter, row: tuple[Any, ...]) -> int:
    """Return the NPUs of a machine: of its dimensions, and of those in which no two differ."""
    fields = dict(zip(machines.paths, row, strict=True))
    dims = enumerate(base.network.dims)
    return prod(int(fields.get(f"network.dims.{index}.npus", dim.npus)) for index, dim in dims)


def _read_system_names(domain: Any, base: DesignPoint) -> list[str]:
    """Return the systems to choose from: those of the file, or the one that the base design is."""
    where = f"parameters.{SYSTEM}"
    if isinstance(domain, Mapping) and set(domain) == {"values"}:
        domain = domain["values"]
    if domain is None:
        require(bool(base.node.name), where, schema.Absent(), "say which systems: the base is none of the catalog")
        return [base.node.name]
    if not (isinstance(domain, list) and domain):
        raise SpecError(where, domain, "must be a list of systems, such as [dgx-h200, dgx-b200]")
    names = [schema.read_value(str, name, f"{where}.{index}") for index, name in enumerate(domain)]
    require(len(set(names)) == len(names), where, domain, "has a system twice")
    return names


def _read_machine_sizes(domains: Mapping[str, Any]) -> list[int]:
    """Return the numbers of accelerators; none where the systems state theirs."""
    if ACCELERATORS not in domains:
        return []
    where, domain = f"parameters.{ACCELERATORS}", domains[ACCELERATORS]
    if isinstance(domain, str) and ".." in domain:  # 1024..16384: powers of two
        low, _, high = domain.partition("..")
        require(low.strip().isdecimal() and high.strip().isdecimal(), where, domain, "write it as 1024..16384")
        domain = {"powers_of_two": [int(low), int(high)]}
    sizes = [
        schema.read_value(int, size, f"{where}.{index}")
        for index, size in enumerate(listed_values(domain, where, None))
    ]
    require(bool(sizes), where, domain, "has no values")
    require(len(set(sizes)) == len(sizes) and min(sizes) >= 2, where, domain, "must be different numbers, from 2 on")
    return sorted(sizes)


def _load_system_layers(name: str) -> dict[str, Any] | str:
    """Return the layers of a machine, or why there is none of its size."""
    try:
        return system_layers(name)
    except SpecError as error:
        if error.where != "system" or type(error) is not SpecError:
            raise SpecError(f"parameters.{SYSTEM}", name, error.rule) from None
        return error.rule


def _system_parameter(base: DesignPoint, machines: Mapping[str, dict[str, Any]]) -> tuple[DesignPoint, Parameter]:
    dims = max(len(layers["network"].dims) for layers in machines.values())
    base = base.compact.padded(dims)
    rows = []
    for label, layers in machines.items():
        # Refuse a machine that is priced by the number of its dimensions where others have more.
        network_dims = layers["network"].dims
        priced_by_bandwidth = any(dim.fabric.build == BY_BANDWIDTH and dim.topology != ABSENT for dim in network_dims)
        rule = "its network is priced by bandwidth and its number of dimensions, and other systems have more"
        require(not priced_by_bandwidth or len(network_dims) == dims, f"parameters.{SYSTEM}", label, rule)
        point = replace(base.compact, **layers, run=_run_on_machine(base, layers)).padded(len(base.network.dims))
        rows.append({path: value for path, value in point.fields.items() if path.partition(".")[0] in (*layers, "run")})
    paths = [path for path in rows[0] if all(path in row for row in rows)]
    for index, row in enumerate(rows):
        extra = next((path for path in {*row, *rows[0]} if path not in row or path not in rows[0]), None)
        require(extra is None, f"parameters.{SYSTEM}", list(machines)[index], f"{extra}: not all systems have it")
    differing = [path for path in paths if len({row[path] for row in rows} | {base.fields.get(path)}) > 1]
    set_paths = tuple(path for path in paths if path in differing or path == "network.dims.0.npus")
    return base, Parameter(
        SYSTEM, set_paths, tuple(tuple(row[path] for path in set_paths) for row in rows), tuple(machines)
    )


def _run_on_machine(base: DesignPoint, layers: Mapping[str, Any]) -> Run:
    """Return the run on another machine: it is interrupted as often as is published of it, unless that is stated."""
    custom = base.run.npu_mtbf_s != npu_mtbf_s(base.compute.accelerator)[0]
    return base.run if custom else replace(base.run, npu_mtbf_s=npu_mtbf_s(layers["compute"].accelerator)[0])
