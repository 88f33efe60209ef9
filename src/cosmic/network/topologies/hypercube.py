"""A hypercube: NPUs joined to those whose number differs in one digit."""

from __future__ import annotations

from functools import cache

from cosmic.base.numeric import divisors
from cosmic.design.network_layer import topologies
from cosmic.network.topologies.fully_connected import FullyConnected
from cosmic.network.topologies.grid_product import Product


@topologies.register("hypercube")
class Hypercube(Product):
    """Links to all NPUs whose number differs in one digit: log2 p links for a power of two, p.

    For other numbers the digits count up to their prime factors, and NPUs that differ in one digit only are fully
    connected (the generalised hypercube: Bhuyan & Agrawal, IEEE Trans. Computers 33(4), 1984). Aligned groups are
    smaller hypercubes with links of their own: their share is links(members) / links(npus), whatever the step.

    >>> int(Hypercube.links(16)), int(Hypercube.diameter(16)), int(Hypercube.bisection(16))
    (4, 4, 8)
    >>> float(Hypercube.share(4, 16, 1)), float(Hypercube.share(4, 16, 4))
    (0.5, 0.5)
    """

    algorithm = "halving_doubling"
    side = FullyConnected

    @staticmethod
    @cache
    def split(npus: int) -> tuple[int, ...]:
        """Return the prime factors of *npus*, smallest first.

        >>> Hypercube.split(12)
        (2, 2, 3)
        """
        primes: list[int] = []
        while npus > 1:
            primes.append(divisors(npus)[1])
            npus //= primes[-1]
        return tuple(primes) or (1,)
