"""NCCL: environment variables that hold it to a design's collective algorithms.

NCCL chooses by itself for each call, which is what a design's algorithm ``auto`` means; then nothing is to be set. Its
own algorithms span two levels: inside a host, and between hosts. Which algorithm runs which collective is in
src/graph/tuning.cc (github.com/NVIDIA/nccl at b6475625fbca); NCCL_ALGO by function is known since 2.24, and refuses
what does not run a function.
"""

from __future__ import annotations

from cosmic.design.point import DesignPoint
from cosmic.launching.launch import Draft, Launch, about, common_warnings, targets

AUTO = "auto"
SUMS = {
    ("ring", "ring"): "ring",
    ("ring", "double_binary_tree"): "tree",
    ("in_network", "double_binary_tree"): "nvlstree",
    ("in_network", "in_network"): "nvls",
    ("direct", "in_network"): "collnetdirect",
    ("ring", "in_network"): "collnetchain",
}
"""NCCL's name of an all-reduce, by the algorithm inside a host and between hosts."""
ALONE = {"ring": "ring", "in_network": "nvls"}
"""The same where there is one level only."""
OTHERS = {"nvls": ("allgather", "reducescatter"), "collnetdirect": ("allgather", "reducescatter")}
"""What else an algorithm runs, besides all-reduces."""


@targets.register("nccl")
def nccl(point: DesignPoint) -> Launch:
    """Return the environment in which NCCL runs collectives as *point* has them."""
    draft = Draft()
    names = point.collective.algorithms
    environment: dict[str, str] = {}
    chosen = _algorithm(draft, names)
    if chosen is not None:
        environment["NCCL_ALGO"] = _by_function(chosen)
        draft.warn("NCCL_ALGO binds every communicator of the process and is meant for tests: compare with none set")
    if chosen in ("collnetdirect", "collnetchain") or names[1:2] == ("in_network",):
        environment["NCCL_COLLNET_ENABLE"] = "1"
        draft.warn("NCCL_COLLNET_ENABLE needs switches that reduce, and the plugin that drives them")
    environment |= _switches(point) | _protocol(point)
    _unsaid(draft, point)
    return Launch(
        about=about(point, "NCCL's environment"),
        arguments={},
        environment=environment,
        warnings=(*draft.warnings, *common_warnings(point)),
    )


def _algorithm(draft: Draft, names: tuple[str, ...]) -> str | None:
    """Return NCCL's name for the algorithms of all dimensions, if it has one."""
    if all(name == AUTO for name in names):
        draft.warn("NCCL chooses algorithms and protocols by itself, as the design has it: NCCL_ALGO stays unset")
        return None
    if AUTO in names:
        draft.warn(f"NCCL_ALGO is one for all levels, and {', '.join(names)} leave some open: it stays unset")
        return None
    found = ALONE.get(names[0]) if len(names) == 1 else SUMS.get((names[0], names[1])) if len(names) == 2 else None
    draft.warn(f"NCCL has no algorithm like {', '.join(names)}: it chooses by itself", when=found is None)
    return found


def _by_function(name: str) -> str:
    """Return the value of NCCL_ALGO: rings run everything, others only some collectives.

    >>> _by_function("ring"), _by_function("tree"), _by_function("nvls")
    ('ring', 'allreduce:tree', 'allreduce:nvls;allgather:nvls;reducescatter:nvls')
    """
    if name == "ring":
        return name
    return ";".join(f"{function}:{name}" for function in ("allreduce", *OTHERS.get(name, ())))


def _switches(point: DesignPoint) -> dict[str, str]:
    """Return whether switches between the NPUs of a host may add: where the design has them add, or may choose to."""
    if not point.network.dims:
        return {}
    able = point.network.dims[0].transport.reduction_efficiency > 0
    inner = point.collective.algorithms[0]
    if inner == "in_network":
        return {"NCCL_NVLS_ENABLE": "1"}
    return {} if inner == AUTO and able else {"NCCL_NVLS_ENABLE": "0"}


def _protocol(point: DesignPoint) -> dict[str, str]:
    """Return the protocol for large messages alone, where the design knows none for small ones."""
    dims = point.network.dims
    plain = bool(dims) and all(dim.transport.small_efficiency == 0 for dim in dims)
    return {"NCCL_PROTO": "Simple"} if plain else {}


def _unsaid(draft: Draft, point: DesignPoint) -> None:
    collective = point.collective
    draft.warn("NCCL does not balance chunks over dimensions as Themis does", when=collective.multi_dim == "themis")
    draft.warn(
        "NCCL runs collectives of a communicator in the order of their calls, the newest first is not to be had",
        when=collective.scheduling == "lifo",
    )
