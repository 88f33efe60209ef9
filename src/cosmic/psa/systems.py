"""Systems as a parameter: machines as they are sold, at several sizes, each with its own network, node and price.

``system`` and ``accelerators`` of a file are one parameter, whose values are the machines that can be built: a system
of nodes of 8 has no size of 100. It sets every field of a machine in which they differ. Machines have different numbers
of network dimensions: all get as many places as the one with most, and those that a machine does not have are `ABSENT`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from math import prod
from typing import Any

from cosmic.arithmetic import splits
from cosmic.catalog.reliability import npu_mtbf_s
from cosmic.design import schema
from cosmic.design.fabric import BY_BANDWIDTH
from cosmic.design.network import ABSENT
from cosmic.design.point import DesignPoint
from cosmic.design.run import Run
from cosmic.errors import SpecError, require
from cosmic.loading.machines import machine_layers
from cosmic.psa.parameters import MAX_VALUES, SYSTEM, Parameter, full_key, written_values

ACCELERATORS = "accelerators"
MOST_MACHINES = 4096
"""Values of the parameter: each is loaded when the set is."""


def varies_system(given: Any) -> bool:
    """Return whether the parameters of a file vary the machine as a whole."""
    return isinstance(given, Mapping) and (SYSTEM in given or ACCELERATORS in given)


def without_system(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a file but for those of the machine as a whole."""
    return {key: domain for key, domain in given.items() if key not in (SYSTEM, ACCELERATORS)}


def read_systems(base: DesignPoint, given: Mapping[str, Any]) -> tuple[DesignPoint, Parameter]:
    """Return *base* with places for the dimensions of all machines, and the parameter that chooses among them."""
    names = _names(given.get(SYSTEM), base)
    sizes = _sizes(given)
    machines: dict[str, dict[str, Any]] = {}
    for name in names:
        found = {f"{name}:{size}": _layers(f"{name}:{size}") for size in sizes} if sizes else {name: _layers(name)}
        kept = {label: layers for label, layers in found.items() if isinstance(layers, dict)}
        if not kept:
            raise SpecError(f"parameters.{SYSTEM}", name, f"has none of the sizes: {next(iter(found.values()))}")
        machines |= kept
        require(len(machines) <= MOST_MACHINES, "parameters", len(machines), f"at most {MOST_MACHINES:,} machines")
    return _parameter(base, machines)


def split_by_size(base: DesignPoint, given: Mapping[str, Any], machines: Parameter) -> tuple[dict[str, Any], list[str]]:
    """Return parameters in which ``split: npus`` lists the factorisations of every machine's size, and their rules.

    ``{dp,tp}: {split: npus}`` of machines of 4 and 8 NPUs has the splits of both, and holds ``dp * tp == npus``.
    """
    sizes = sorted({_npus(base, machines, row) for row in machines.values})
    found, rules = dict(given), []
    for key, domain in given.items():
        match = re.fullmatch(r"(?:[\w.]+\.)?\{([\w\s,]+)\}", key) if isinstance(key, str) else None
        if match is None or not (isinstance(domain, Mapping) and domain.get("split") == "npus"):
            continue
        where, names = f"parameters.{key}", [name.strip() for name in match[1].split(",")]
        binary = schema.read(bool, domain.get("powers_of_two", False), f"{where}.powers_of_two")
        every = (each for size in sizes for each in splits(size, len(names), powers_of_two=binary))
        rows = list(islice(every, MAX_VALUES + 1))
        require(len(rows) <= MAX_VALUES, where, dict(domain), f"has more than {MAX_VALUES} combinations")
        found[key] = rows
        stem = full_key(key, where).partition("{")[0]
        rules.append(" * ".join(f"{stem}{name}" for name in names) + " == npus")
    return found, rules


def _npus(base: DesignPoint, machines: Parameter, row: tuple[Any, ...]) -> int:
    """Return the NPUs of a machine: of its dimensions, and of those in which no two differ."""
    own = dict(zip(machines.paths, row, strict=True))
    dims = enumerate(base.network.dims)
    return prod(int(own.get(f"network.dims.{place}.npus", dim.npus)) for place, dim in dims)


def _names(given: Any, base: DesignPoint) -> list[str]:
    """Return the systems to choose from: those of the file, or the one that the base design is."""
    where = f"parameters.{SYSTEM}"
    if isinstance(given, Mapping) and set(given) == {"values"}:
        given = given["values"]
    if given is None:
        require(bool(base.node.name), where, schema.Absent(), "say which systems: the base is none of the catalog")
        return [base.node.name]
    if not (isinstance(given, list) and given):
        raise SpecError(where, given, "must be a list of systems, such as [dgx-h200, dgx-b200]")
    names = [schema.read(str, name, f"{where}.{place}") for place, name in enumerate(given)]
    require(len(set(names)) == len(names), where, given, "has a system twice")
    return names


def _sizes(given: Mapping[str, Any]) -> list[int]:
    """Return the numbers of accelerators; none where the systems state theirs."""
    if ACCELERATORS not in given:
        return []
    where, domain = f"parameters.{ACCELERATORS}", given[ACCELERATORS]
    if isinstance(domain, str) and ".." in domain:  # 1024..16384: powers of two
        low, _, high = domain.partition("..")
        require(low.strip().isdecimal() and high.strip().isdecimal(), where, domain, "write it as 1024..16384")
        domain = {"powers_of_two": [int(low), int(high)]}
    sizes = [
        schema.read(int, size, f"{where}.{place}") for place, size in enumerate(written_values(domain, where, None))
    ]
    require(bool(sizes), where, domain, "has no values")
    require(len(set(sizes)) == len(sizes) and min(sizes) >= 2, where, domain, "must be different numbers, from 2 on")
    return sorted(sizes)


def _layers(name: str) -> dict[str, Any] | str:
    """Return the layers of a machine, or why there is none of its size."""
    try:
        return machine_layers(name)
    except SpecError as error:
        if error.where != "system" or type(error) is not SpecError:
            raise SpecError(f"parameters.{SYSTEM}", name, error.rule) from None
        return error.rule


def _parameter(base: DesignPoint, machines: Mapping[str, dict[str, Any]]) -> tuple[DesignPoint, Parameter]:
    dims = max(len(layers["network"].dims) for layers in machines.values())
    base = base.compact.padded(dims)
    rows = []
    for label, layers in machines.items():
        _check_prices(label, layers, dims)
        point = replace(base.compact, **layers, run=_run(base, layers)).padded(len(base.network.dims))
        rows.append({path: value for path, value in point.fields.items() if path.partition(".")[0] in (*layers, "run")})
    paths = [path for path in rows[0] if all(path in row for row in rows)]
    for place, row in enumerate(rows):
        extra = next((path for path in {*row, *rows[0]} if path not in row or path not in rows[0]), None)
        require(extra is None, f"parameters.{SYSTEM}", list(machines)[place], f"{extra}: not all systems have it")
    differing = [path for path in paths if len({row[path] for row in rows} | {base.fields.get(path)}) > 1]
    kept = tuple(path for path in paths if path in differing or path == "network.dims.0.npus")
    return base, Parameter(SYSTEM, kept, tuple(tuple(row[path] for path in kept) for row in rows), tuple(machines))


def _run(base: DesignPoint, layers: Mapping[str, Any]) -> Run:
    """Return the run on another machine: it is interrupted as often as is published of it, unless that is stated."""
    stated = base.run.npu_mtbf_s != npu_mtbf_s(base.compute.accelerator)[0]
    return base.run if stated else replace(base.run, npu_mtbf_s=npu_mtbf_s(layers["compute"].accelerator)[0])


def _check_prices(label: str, layers: Mapping[str, Any], dims: int) -> None:
    """Refuse a machine that is priced by the number of its dimensions where others have more."""
    own = layers["network"].dims
    plain = any(dim.fabric.build == BY_BANDWIDTH and dim.topology != ABSENT for dim in own)
    rule = "its network is priced by bandwidth and its number of dimensions, and other systems have more"
    require(not plain or len(own) == dims, f"parameters.{SYSTEM}", label, rule)
