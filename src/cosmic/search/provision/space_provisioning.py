"""The base design of a parameter set, provisioned: what a budget buys before anything is searched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cosmic.base.files import is_file
from cosmic.design import catalog_entries
from cosmic.design.systems import YAML_ENDINGS, is_model_at_system
from cosmic.search.provision.bandwidth_problem import Objective, Provisioned
from cosmic.search.provision.design_bandwidth import WeightedDesign, provision_designs
from cosmic.search.provision.provisioning import check_options
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
    own_provision = space.provisioner.provision if space.provisioner is not None else None
    designs = [WeightedDesign(share.name, share.base, share.weight) for share in space.workloads]
    if own_provision is not None:
        budget, limits = budget or own_provision.budget, [*own_provision.limits, *limits]
        objective = objective or own_provision.objective
    check_options(objective or "time", ports, radix)
    return provision_designs(
        designs or [WeightedDesign(space.name, space.base)], budget, objective or "time", limits, ports, radix
    )
