"""NCCL: environment variables that select a design's collective algorithms.

By default NCCL chooses for each call, which is what a design's algorithm ``auto`` means. Its algorithms span two
levels: inside a host, and between hosts. src/graph/tuning.cc (github.com/NVIDIA/nccl at b6475625fbca) says which
algorithm runs which collective. NCCL_ALGO accepts algorithms by function since 2.24, and refuses one that does not run
the function.
"""

from __future__ import annotations

from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import is_moe
from cosmic.frameworks.launch import Draft, Launch, common_warnings, describe_launch, targets

AUTO = "auto"
ALL_REDUCE = {
    ("ring", "ring"): "ring",
    ("ring", "double_binary_tree"): "tree",
    ("in_network", "double_binary_tree"): "nvlstree",
    ("in_network", "in_network"): "nvls",
    ("direct", "in_network"): "collnetdirect",
    ("ring", "in_network"): "collnetchain",
}
"""NCCL's name of an all-reduce algorithm, by the design's algorithms inside a host and between hosts."""
ONE_LEVEL = {"ring": "ring", "in_network": "nvls"}
"""The same with one level."""
OTHERS = {"nvls": ("allgather", "reducescatter"), "collnetdirect": ("allgather", "reducescatter")}
"""Functions that an algorithm runs besides all-reduce."""


@targets.register("nccl")
def launch_nccl(point: DesignPoint) -> Launch:
    """Return the environment in which NCCL runs collectives as *point* has them."""
    draft = Draft()
    names = point.collective.algorithms
    environment: dict[str, str] = {}
    chosen = _algorithm(draft, names)
    if chosen is not None:
        environment["NCCL_ALGO"] = _by_function(chosen)
        draft.warn(
            "NCCL_ALGO applies to all communicators of the process and is meant for tests: compare with it unset"
        )
    if chosen in ("collnetdirect", "collnetchain") or names[1:2] == ("in_network",):
        environment["NCCL_COLLNET_ENABLE"] = "1"
        draft.warn("NCCL_COLLNET_ENABLE needs switches that reduce (SHARP), and their plugin")
    environment |= _switches(point) | _protocol(point)
    _unsupported(draft, point)
    return Launch(
        about=describe_launch(point, "NCCL's environment"),
        arguments={},
        environment=environment,
        warnings=(*draft.warnings, *common_warnings(point)),
    )


def _algorithm(draft: Draft, names: tuple[str, ...]) -> str | None:
    """Return NCCL's name for the algorithms of all dimensions; None if it has none."""
    if all(name == AUTO for name in names):
        draft.warn("NCCL chooses algorithms and protocols itself, as in the design: NCCL_ALGO stays unset")
        return None
    if AUTO in names:
        draft.warn(f"NCCL_ALGO covers all levels, but {', '.join(names)} leaves some to NCCL: it stays unset")
        return None
    algorithm = None
    if len(names) in (1, 2):
        algorithm = ONE_LEVEL.get(names[0]) if len(names) == 1 else ALL_REDUCE.get((names[0], names[1]))
    draft.warn(f"NCCL has no algorithm like {', '.join(names)}: it chooses itself", when=algorithm is None)
    return algorithm


def _by_function(name: str) -> str:
    """Return the value of NCCL_ALGO: rings run every collective, the others only some.

    >>> _by_function("ring"), _by_function("tree"), _by_function("nvls")
    ('ring', 'allreduce:tree', 'allreduce:nvls;allgather:nvls;reducescatter:nvls')
    """
    if name == "ring":
        return name
    return ";".join(f"{function}:{name}" for function in ("allreduce", *OTHERS.get(name, ())))


def _switches(point: DesignPoint) -> dict[str, str]:
    """Return whether NVLS (reduction in a host's switches) is enabled: if the design uses it, or lets NCCL choose."""
    if not point.network.dims:
        return {}
    reduces_in_switch = point.network.dims[0].transport.reduction_efficiency > 0
    inner = point.collective.algorithms[0]
    if inner == "in_network":
        return {"NCCL_NVLS_ENABLE": "1"}
    return {} if inner == AUTO and reduces_in_switch else {"NCCL_NVLS_ENABLE": "0"}


def _protocol(point: DesignPoint) -> dict[str, str]:
    """Return the protocol of large messages, if the design has none for small ones."""
    dims = point.network.dims
    plain = bool(dims) and all(dim.transport.small_efficiency == 0 for dim in dims)
    return {"NCCL_PROTO": "Simple"} if plain else {}


def _unsupported(draft: Draft, point: DesignPoint) -> None:
    collective = point.collective
    several = len(point.network.dims) > 1 and is_moe(point.model)
    draft.warn(
        "NCCL sends all-to-alls by way of the NIC nearest to the receiver: set NCCL_PXN_DISABLE=1 for flat ones",
        when=several and collective.all_to_all == "flat",
    )
    draft.warn("NCCL does not balance chunks over dimensions as Themis does", when=collective.multi_dim == "themis")
    draft.warn(
        "NCCL runs the collectives of a communicator in the order of their calls: lifo is not available",
        when=collective.scheduling == "lifo",
    )
