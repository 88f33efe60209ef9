"""The base design of a parameter set, provisioned: what a budget buys before anything is searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cosmic.base.errors import require
from cosmic.base.files import is_file
from cosmic.design import catalog_entries
from cosmic.design.systems import YAML_ENDINGS, is_model_at_system
from cosmic.search.provision.bandwidth_problem import Objective, Provisioned
from cosmic.search.provision.design_bandwidth import WeightedDesign, provision_designs
from cosmic.search.provision.libra import Loop
from cosmic.search.provision.provisioning import check_options
from cosmic.search.provision.provisioning import provision as provision_design
from cosmic.search.space.space_files import load_space


def names_space(source: str) -> bool:
    """Return whether *source* is a parameter set: a name of the catalog, or a file with a base.

    >>> names_space("cosmic-1024-paper"), names_space("gpt3-175b@cosmic-1024")
    (True, False)
    """
    path = Path(source)
    if path.suffix in YAML_ENDINGS or is_file(path):
        return "base" in catalog_entries.load_mapping(path)
    return not is_model_at_system(source) and source in catalog_entries.entry_names("spaces")


def provision_base(
    source: str,
    *,
    budget: str | None = None,
    objective: Objective | None = None,
    limits: Sequence[str] = (),
    ports: str | None = None,
    radix: int | None = None,
) -> Provisioned:
    """Return the best bandwidth for the base of a parameter set, for all its workloads together.

    What is not given is as the set's own ``provision`` says, else as much bandwidth as the base has.
    """
    space = load_space(source)
    stated = space.provisioner.provision if space.provisioner is not None else None
    designs = [WeightedDesign(share.name, share.base, share.weight) for share in space.workloads]
    if stated is not None:
        budget, limits = budget or stated.budget, [*stated.limits, *limits]
        objective = objective or stated.objective
    check_options(objective or "time", ports, radix)
    return provision_designs(
        designs or [WeightedDesign(space.name, space.base)], budget, objective or "time", limits, ports, radix
    )


def provision(  # noqa: PLR0913  the options of the command
    source: str,
    *,
    budget: str | None = None,
    objective: Objective | None = None,
    limits: Sequence[str] = (),
    workloads: Sequence[str] = (),
    communicators: Sequence[str] = (),
    cost: str | None = None,
    loop: Loop = "no_overlap",
    in_network_reduction: bool = False,
    ports: str | None = None,
    radix: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Provisioned:
    """Return the best bandwidth of every network dimension under a budget, why, and what more of it is worth.

    *source* is a design, a parameter set, or a network file of LIBRA; *workloads*, *communicators*, *cost*, *loop* and
    *in_network_reduction* are for the others than parameter sets, which say such things themselves.

    >>> import cosmic
    >>> found = cosmic.network.provision("gpt3-175b@cosmic-1024", budget="500 GB/s")
    >>> round(sum(dim.bandwidth_bytes_per_s for dim in found.dims) / 1e9)
    500
    """
    if not names_space(source):
        return provision_design(
            source,
            budget=budget,
            objective=objective or "time",
            limits=limits,
            workloads=workloads,
            communicators=communicators,
            cost=cost,
            loop=loop,
            in_network_reduction=in_network_reduction,
            ports=ports,
            radix=radix,
            overrides=settings,
        )
    for option, given in {
        "--set": ", ".join(settings or {}),
        "--workload": ", ".join(workloads),
        "--communicator": ", ".join(communicators),
        "--cost": cost or "",
        "--loop": "" if loop == "no_overlap" else loop,
        "--in-network-reduction": "yes" if in_network_reduction else "",
    }.items():
        require(not given, option, given, "goes with a design, not with a parameter set: state it there")
    return provision_base(source, budget=budget, objective=objective, limits=limits, ports=ports, radix=radix)
