"""A 2-D mesh: a grid of NPUs with links to their neighbours, without links around the edge."""

from __future__ import annotations

from cosmic.design.network_layer import topologies
from cosmic.network.topologies.grid_product import Line, Product


@topologies.register("mesh_2d")
class Mesh2D(Product):
    """Lines along the two sides of a grid that is as square as the number of NPUs allows.

    NPUs at the edge leave some of their injection bandwidth unused, and a corner, with half as many links as the
    middle, is the bottleneck of the whole: the share of all NPUs is 1/2 (1 if no side is longer than 2).

    >>> int(Mesh2D.links(16)), int(Mesh2D.diameter(16)), int(Mesh2D.bisection(16))
    (4, 6, 4)
    >>> [float(Mesh2D.share(members, 16, 1)) for members in (2, 4, 8, 16)]
    [0.25, 0.25, 0.5, 0.5]
    """

    side = Line
    dimensions = 2
