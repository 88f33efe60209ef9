"""A 3-D torus: rings along the three sides of a box, as in TPU pods."""

from __future__ import annotations

from cosmic.design.network_layer import topologies
from cosmic.network.topologies.grid_product import Product
from cosmic.network.topologies.ring import RingTopology


@topologies.register("torus_3d")
class Torus3D(Product):
    """Rings along the three sides of a box that is as near to a cube as the number of NPUs allows.

    >>> int(Torus3D.links(64)), int(Torus3D.diameter(64)), int(Torus3D.bisection(64))
    (6, 6, 32)
    >>> [float(Torus3D.share(members, 64, 1)) for members in (16, 32, 64)]
    [0.6666666666666666, 0.8333333333333334, 1.0]
    """

    side = RingTopology
    dimensions = 3
