"""Which deployment: the front, the cheapest within the limits, one pool beside two, confirmed by simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from cosmic.advice.sizing import Checked, Sizing, next_size
from cosmic.loading.services import Service
from cosmic.serving.candidates import Candidate, load_of, named_load
from cosmic.serving.searching import Found, search, search_in_two
from cosmic.serving.slo import Slo
from cosmic.units import SECONDS, show

__all__ = ["Checked", "Plan", "counted", "plan"]
SHORT = 1.25
"""By how many times the closed form's fewest accelerators must be too many for nothing to be simulated."""
DEARER = 2.0
"""Machines that are so many times as large as one that holds are not tried for the other kind of pools."""


@dataclass(frozen=True)
class Plan:
    """What a search for a deployment found."""

    one: Found
    """All instances do both."""
    two: Found
    """Some prefill, the others decode."""
    checked: tuple[Checked, ...]
    """The cheapest deployments in one pool and in two, as they would be built: those that hold the limits first."""
    reasons: tuple[str, ...]
    """Why there is none."""
    needed: int | None
    """Fewest accelerators that hold the limits: simulated, in closed form where nothing was; None if none do."""
    seconds: float
    untried: tuple[int, int] | None = None
    """The largest machine that failed and the one chosen, where not all sizes between them were tried."""

    @property
    def chosen(self) -> Checked | None:
        """The cheapest deployment that holds the limits in the simulation; of two as cheap, the one in one pool."""
        return next((each for each in self.checked if each.holds), None)

    def built(self, *, disaggregated: bool) -> Checked | None:
        """Return the cheapest deployment in one pool, or in two, that holds the limits in the simulation."""
        return next(
            (each for each in self.checked if each.holds and bool(each.candidate.kind.prefill) == disaggregated), None
        )

    @property
    def front(self) -> tuple[Candidate, ...]:
        """The front of both, slowest users first."""
        every = sorted((*self.one.front, *self.two.front), key=_speed_then_throughput)
        kept: list[Candidate] = []
        for each in every:
            if not kept or each.metrics.tokens_per_s_per_npu > kept[-1].metrics.tokens_per_s_per_npu:
                kept.append(each)
        return tuple(kept[::-1])


def _speed_then_throughput(each: Candidate) -> tuple[float, float]:
    return -each.metrics.tokens_per_s_per_user, -each.metrics.tokens_per_s_per_npu


def plan(
    service: Service,
    limits: Sequence[Slo],
    most: int | None = None,
    *,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Return the deployments of a service that are worth choosing, on *most* accelerators at most.

    *progress* is told what is being done.
    """
    began = time.monotonic()
    base, held = service.design, service.held
    progress("comparing deployments in one pool")
    one = search(base, limits, held)
    if not held:
        progress("comparing deployments in two pools")
    two = Found() if held else search_in_two(base, limits, most)
    tried = _confirmed(service, (one, two), limits, most, seed, progress)
    checked = [each for sizing in tried for each in sizing.checked]
    within = [each for each in checked if most is None or each.candidate.npus <= most]
    within.sort(key=lambda each: (not each.holds, each.candidate.npus, each.candidate.kind.prefill is not None))
    reasons = () if any(each.holds for each in within) else _reasons(service, (one, two), checked, limits, most)
    best = within[0] if within and within[0].holds else None
    untried = _untried(tried, best) if best else None
    needed = _needed(service, (one, two), checked)
    return Plan(one, two, tuple(within), reasons, needed, time.monotonic() - began, untried)


def _untried(tried: Sequence[Sizing], best: Checked) -> tuple[int, int] | None:
    """Return the sizes between which not all were tried, of the search that found the best."""
    npus = best.candidate.npus
    sizing = next(each for each in tried if best in each.checked)
    return (max(each for each in sizing.sizes if each < npus), npus) if sizing.untried(npus) else None


def _confirmed(
    service: Service,
    parts: Sequence[Found],
    limits: Sequence[Slo],
    most: int | None,
    seed: int,
    progress: Callable[[str], None],
) -> list[Sizing]:
    """Return what was tried in one pool and in two: deployments as they would be built, until one of each holds.

    What is tried does not depend on *most*, except that nothing is where it is far too few.
    """
    found: list[Sizing] = []
    bound = inf
    for part in sorted((each for each in parts if each.cheapest), key=lambda each: each.cheapest[0].npus):
        if most is not None and part.cheapest[0].npus > SHORT * most:
            continue
        sizing = Sizing(service, part.cheapest, limits, seed, progress)
        smallest = sizing.smallest(bound)
        found.append(sizing)
        bound = min(bound, DEARER * smallest.candidate.npus) if smallest else bound
    return found


def _needed(service: Service, parts: Sequence[Found], checked: Sequence[Checked]) -> int | None:
    """Return the fewest accelerators that hold the limits in the simulation; in closed form where none was found."""
    confirmed = [each.candidate.npus for each in checked if each.holds]
    priced = [each.cheapest[0].npus for each in parts if each.cheapest]
    sizes = confirmed or [size for npus in priced if (size := next_size(service, npus)) is not None] or priced
    return min(sizes, default=None)


def _reasons(
    service: Service, parts: Sequence[Found], checked: Sequence[Checked], limits: Sequence[Slo], most: int | None
) -> tuple[str, ...]:
    """Return why no deployment holds, on *most* accelerators at most."""
    one, base = parts[0], service.design
    if one.kinds == 0:
        return (f"no instance of up to {counted(base.network.npus)} has memory for the weights and a request",)
    said = " and ".join(f"{each.metric.upper()} {each}" for each in limits)
    needed = _needed(service, parts, checked)
    if needed is None:
        return (f"no deployment holds {said}, however many accelerators: {_fastest(one, limits)}",)
    name, whole = named_load(load_of(base))
    load = f"{whole:,.4g} requests/s" if name == "rate" else f"{whole:,.0f} requests in flight"
    asked = f"{load}{f' within {said}' if said else ''}"
    if most is not None and needed > most:
        by = "simulated" if any(each.holds for each in checked) else "in closed form"
        return (f"{asked} take {counted(needed)} ({by}), more than {most:,}",)
    if not checked:
        own = base.network.npus
        return (f"{asked} take {counted(needed)}, and there is no such machine: {service.source} has {own:,}",)
    return (f"{asked}: no deployment holds in the simulation, of {len(checked)} that do in closed form or nearly",)


def counted(npus: int) -> str:
    """Return a number of accelerators in words.

    >>> counted(1), counted(1024)
    ('1 accelerator', '1,024 accelerators')
    """
    return f"{npus:,} accelerator{'' if npus == 1 else 's'}"


def _fastest(one: Found, limits: Sequence[Slo]) -> str:
    """Return what comes nearest to each limit."""
    parts = []
    for each in limits:
        best = min((float(each.value(candidate.metrics)) for candidate in one.front), default=float("nan"))
        parts.append(f"the least {each.metric.upper()} ({each.statistic}) is {show(float(f'{best:.3g}'), SECONDS)}")
    return ", ".join(parts) or "none bears the load"
