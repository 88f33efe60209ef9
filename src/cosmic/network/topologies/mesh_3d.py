"""A 3-D mesh: a box of NPUs with links to their neighbours, without links around the outside."""

from __future__ import annotations

from cosmic.design.network_layer import topologies
from cosmic.network.topologies.grid_product import Line, Product


@topologies.register("mesh_3d")
class Mesh3D(Product):
    """Lines along the three sides of a box that is as near to a cube as the number of NPUs allows.

    NPUs at the surface leave some of their injection bandwidth unused, and a corner, with half as many links as the
    middle, is the bottleneck of the whole: the share of all NPUs is 1/2 (1 if no side is longer than 2).

    >>> int(Mesh3D.links(64)), int(Mesh3D.diameter(64)), int(Mesh3D.bisection(64))
    (6, 9, 16)
    >>> float(Mesh3D.share(64, 64, 1)), float(Mesh3D.share(8, 8, 1))
    (0.5, 1.0)
    """

    side = Line
    dimensions = 3
