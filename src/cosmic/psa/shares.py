"""Several workloads on one system: the parameter set as each of them sees it."""

from __future__ import annotations

from dataclasses import replace

from cosmic.psa.space import ParameterSet, Share


def applies(share: Share, path: str) -> bool:
    """Return whether a searched field is one of a workload: not of a load that it lacks, nor what it states itself."""
    return path not in share.own and (share.base.serving is not None or not path.startswith("serving."))


def replace_base(space: ParameterSet, share: Share) -> ParameterSet:
    """Return *space* around the base of one of its workloads."""
    if share.base is space.base:
        return space
    if all(applies(share, path) for each in space.parameters for path in each.paths):
        return replace(space, base=share.base, workloads=(), derived={**space.derived, **share.derived})
    parameters = tuple(each.only(lambda path: applies(share, path)) for each in space.parameters)
    derived = {path: text for path, text in space.derived.items() if applies(share, path)} | dict(share.derived)
    return replace(space, base=share.base, workloads=(), parameters=parameters, derived=derived, constraints=())
