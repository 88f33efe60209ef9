"""A 2-D torus: rings along the rows and the columns of a grid."""

from __future__ import annotations

from cosmic.design.network_layer import topologies
from cosmic.network.topologies.grid_product import Product
from cosmic.network.topologies.ring import RingTopology


@topologies.register("torus_2d")
class Torus2D(Product):
    """Rings along the two sides of a grid that is as square as the number of NPUs allows; a prime number is one ring.

    >>> int(Torus2D.links(16)), int(Torus2D.diameter(16)), int(Torus2D.bisection(16))
    (4, 4, 8)
    >>> [float(Torus2D.share(members, 16, 1)) for members in (2, 4, 8, 16)]
    [0.25, 0.5, 0.75, 1.0]
    """

    side = RingTopology
    dimensions = 2
