"""LIBRA's model: how long a training step takes, and what its network costs, given each dimension's bandwidth.

Bandwidth only: chunks are so many that all dimensions work at once, latency is nothing, and nothing overlaps.

Source: Won et al., "LIBRA: enabling workload-aware multi-dimensional network topology optimization for distributed
training of large AI models", ISPASS 2024 (arXiv:2109.11762), and its published code; sizes are as there: an all-gather
is given the shard of one NPU, the others the whole buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cosmic.design.collective import Kind
from cosmic.errors import SpecError, require

GB_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Phase:
    """What one phase of a layer computes, and which collective follows (none if *kind* is None)."""

    compute_s: float
    kind: Kind | None = None
    size_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its three phases, each with its own group of NPUs."""

    forward: Phase
    input_gradient: Phase
    weight_gradient: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Who communicates after each phase: members in every network dimension, 1 where it is not used."""

    forward: tuple[int, ...]
    input_gradient: tuple[int, ...]
    weight_gradient: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars per GB/s of one NPU's bandwidth, in one dimension."""

    link: float
    switch: float | None = None
    nic: float | None = None

    def of(self, topology: str) -> float:
        """Return what a GB/s costs in a dimension of *topology*: links, and for a switch its ports and NICs too.

        >>> Price(link=4.0, switch=13.0).of("ring"), Price(link=8.0, switch=18.0, nic=32.0).of("switch")
        (4.0, 58.0)
        """
        if topology != "switch":
            return self.link
        if self.switch is None or self.nic is None:
            raise SpecError("topology", topology, "this dimension has no price for switches and NICs")
        return self.link + self.switch + self.nic


def messages_bytes(kind: Kind, size_bytes: float, group: Sequence[int]) -> tuple[float, ...]:
    """Return the bytes that one NPU sends in each dimension.

        all-reduce      m = 2 S (p - 1) / p, next S is S / p      all-gather  m = S (p - 1), next S is S p, backwards
        reduce-scatter  m = S (p - 1) / p,   next S is S / p      all-to-all  m = S (p - 1) / p, S stays

    S  bytes on entering the dimension, innermost first    p  members of the group there; 1 skips it

    >>> messages_bytes("all_reduce", 64, (4, 2)), messages_bytes("all_gather", 8, (4, 2))
    ((96.0, 16.0), (48.0, 8.0))
    """
    if kind == "all_gather":
        return tuple(reversed(_gathered(size_bytes, group)))
    sent, size = [], size_bytes
    for p in group:
        sent.append((2 if kind == "all_reduce" else 1) * size * (p - 1) / p)
        size = size if kind == "all_to_all" else size / p
    return tuple(sent)


def _gathered(size: float, group: Sequence[int]) -> list[float]:
    sent = []
    for p in reversed(group):
        sent.append(float(size * (p - 1)))
        size *= p
    return sent


def collective_s(kind: Kind, size_bytes: float, group: Sequence[int], bandwidths_bytes_per_s: Sequence[float]) -> float:
    """Return the time of the dimension that is busy longest: t = max over d of m_d / B_d.

    m  bytes that one NPU sends    B  what it can send per second

    >>> collective_s("all_reduce", 64e9, (4, 2), (96e9, 8e9))
    2.0
    """
    sent = messages_bytes(kind, size_bytes, group)
    return max(m / bandwidth for m, bandwidth in zip(sent, bandwidths_bytes_per_s, strict=True))


def step_s(layers: Iterable[Layer], groups: Groups, bandwidths_bytes_per_s: Sequence[float]) -> float:
    """Return the time of a step: every phase computes, then communicates.

    >>> layer = Layer(Phase(1.0), Phase(1.0), Phase(1.0, "all_reduce", 64e9))
    >>> step_s([layer], Groups(forward=(1, 1), input_gradient=(1, 1), weight_gradient=(4, 2)), (96e9, 8e9))
    5.0
    """
    total = 0.0
    for layer in layers:
        for phase, group in (
            (layer.forward, groups.forward),
            (layer.input_gradient, groups.input_gradient),
            (layer.weight_gradient, groups.weight_gradient),
        ):
            total += phase.compute_s
            if phase.kind is not None:
                total += collective_s(phase.kind, phase.size_bytes, group, bandwidths_bytes_per_s)
    return total


def network_usd(
    npus: int, topologies: Sequence[str], prices: Sequence[Price], bandwidths_bytes_per_s: Sequence[float]
) -> float:
    """Return the price of the network: sum over d of N B_d (link [+ switch + NIC where there is a switch]).

    N  NPUs of the whole network    B  bandwidth of one NPU into the dimension

    A ring has 2 n links of B / 2, a fully connected group n (n - 1) of B / (n - 1): both come to n B.

    >>> network_usd(4, ["ring", "switch"], [Price(link=4.0), Price(link=8.0, switch=18.0, nic=32.0)], [10e9, 1e9])
    392.0
    """
    require(npus >= 1, "npus", npus, "must be at least 1")
    dimensions = zip(topologies, prices, bandwidths_bytes_per_s, strict=True)
    return sum(npus * (bandwidth / GB_PER_S) * price.of(topology) for topology, price, bandwidth in dimensions)
