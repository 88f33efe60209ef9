"""Record steps of several ranks on CPUs over gloo: each rank's PyTorch execution trace and Kineto trace.

python calibration/measure_ranks.py FOLDER [NAME ...]

Needs PyTorch, no GPU. Writes NAME.RANK.et.json.gz, NAME.RANK.kineto.json.gz and steps.json: what the step of each rank
took with and without the profiler, and which operations gloo refused. `cosmic trace convert` reads the pairs.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812  the usual name
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN = 256
REFUSED: list[str] = []
"""The operations this rank's gloo does not have, each with what it answered."""


class Layer(nn.Module):
    """Two linear layers with a residual."""

    def __init__(self, hidden=HIDDEN) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


def layers(count=3):
    """Return the same small model on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(count)))


def training(model):
    """Return a function that runs one training step of a model."""
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(64, HIDDEN)

    def step():
        model(x).square().mean().backward()
        sgd.step()
        sgd.zero_grad()

    return step


def replicated():
    """Return a training step under DDP with a bucket for each layer or so."""
    return training(DistributedDataParallel(layers(), bucket_cap_mb=2))


def sharded():
    """Return a training step under FSDP2."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = layers()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return training(fully_shard(model, mesh=mesh))


def tensor_parallel():
    """Return a training step whose layers are split over the ranks by DTensor."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    model = layers()
    for layer in model:
        parallelize_module(layer, mesh, plan)
    return training(model)


def mesh():
    """Return a training step of tensor parallelism by DTensor within pairs of ranks and FSDP2 across them."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    model = layers(2)
    for layer in model:
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["dp"])
    return training(fully_shard(model, mesh=mesh["dp"]))


def calls(rank, size):
    """Return the collectives by name, each a function without arguments; no two move as many elements."""
    one = [torch.ones(1000 + 100 * n) for n in range(20)]
    some = [torch.ones(3000 + 8 * rank) for rank in range(size)]
    root = size - 1
    counts = [10 * (n + 1) for n in range(size)]
    mine = counts[rank]

    def coalesced():
        with dist._coalescing_manager(async_ops=True) as manager:
            dist.all_reduce(one[15])
            dist.all_reduce(one[16])
        manager.wait()

    return {
        "all_reduce": lambda: dist.all_reduce(one[0]),
        "all_reduce max int64": lambda: dist.all_reduce(torch.ones(700, dtype=torch.int64), dist.ReduceOp.MAX),
        "all_reduce bfloat16": lambda: dist.all_reduce(torch.ones(800, dtype=torch.bfloat16)),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.empty(size * 1100), one[1]),
        "all_gather": lambda: dist.all_gather([torch.empty(1200) for _ in range(size)], one[2]),
        "all_gather uneven": lambda: dist.all_gather([torch.empty_like(t) for t in some], some[rank]),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(one[3][:325], one[3]),
        "reduce_scatter": lambda: dist.reduce_scatter(torch.empty(350), list(one[4].chunk(size))),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.empty(1500 // size * size), one[5].clone()),
        "all_to_all_single uneven": lambda: dist.all_to_all_single(
            torch.empty(size * mine), torch.ones(sum(counts)), [mine] * size, counts
        ),
        "all_to_all": lambda: dist.all_to_all([torch.empty(400) for _ in range(size)], list(one[6].chunk(size))),
        "broadcast": lambda: dist.broadcast(one[7], 1),
        "reduce": lambda: dist.reduce(one[8], root),
        "gather": lambda: dist.gather(one[9], [torch.empty(1900) for _ in range(size)] if rank == root else None, root),
        "scatter": lambda: dist.scatter(one[10], [torch.ones(2000)] * size if rank == root else None, root),
        "barrier": dist.barrier,
        "all_gather_object": lambda: dist.all_gather_object([None] * size, {"rank": rank}),
        "all_reduce coalesced": coalesced,
        "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([one[17], one[18]]),
        "all_gather_coalesced": lambda: dist.all_gather_coalesced(
            [[torch.empty(2400), torch.empty(2500)] for _ in range(size)], [one[14], one[15]]
        ),
        "monitored_barrier": dist.monitored_barrier,
    }


def collectives():
    """Return a step that calls each collective gloo has once, and two that are waited for later."""
    rank, size = dist.get_rank(), dist.get_world_size()
    known = {}
    for name, call in calls(rank, size).items():
        try:
            call()
            known[name] = call
        except Exception as error:
            REFUSED.append(f"{name}: {str(error).splitlines()[0]}")
        dist.barrier()
    a, b, c = torch.ones(5000), torch.ones(5100), torch.randn(HIDDEN, HIDDEN)

    def step():
        for name, call in known.items():
            with torch.profiler.record_function(f"calls {name}"):
                call()
        first = dist.all_reduce(a, async_op=True)
        second = dist.all_reduce(b, async_op=True)
        product = c @ c
        second.wait()
        first.wait()
        dist.barrier()
        return product + b[0]

    return step


class Copy(torch.autograd.Function):
    """The same tensor forward, the sum of gradients over a group backward."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Sum(torch.autograd.Function):
    """The sum over a group forward, the same gradient backward."""

    @staticmethod
    def forward(ctx, x, group):
        y = x.clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def subgroups():
    """Return a training step of tensor parallelism over neighbours and data parallelism across, made by hand."""
    rank = dist.get_rank()
    tensor = [dist.new_group(ranks, group_desc="tensor") for ranks in ([0, 1], [2, 3])][rank // 2]
    data = [dist.new_group(ranks, group_desc="data") for ranks in ([0, 2], [1, 3])][rank % 2]
    weights = [(torch.randn(HIDDEN, 2 * HIDDEN) * 0.02, torch.randn(2 * HIDDEN, HIDDEN) * 0.02) for _ in range(2)]
    flat = [each.requires_grad_() for pair in weights for each in pair]
    x = torch.randn(64, HIDDEN)

    def step():
        h = x
        for up, down in weights:
            h = h + Sum.apply(F.gelu(Copy.apply(h, tensor) @ up) @ down, tensor)
        h.square().mean().backward()
        for work in [dist.all_reduce(each.grad, group=data, async_op=True) for each in flat]:
            work.wait()
        for each in flat:
            each.grad = None
        dist.broadcast(torch.ones(123), 2 * (rank // 2), group=tensor)
        dist.all_gather_into_tensor(torch.empty(2 * 77), torch.ones(77), group=data)

    return step


class Stage:
    """A stage of a pipeline: receive, run and send one microbatch."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.model = layers(1)
        self.kept: dict[int, tuple] = {}
        self.sent: list = []

    def forward(self, batch):
        x = torch.randn(32, HIDDEN)
        if self.rank:
            dist.recv(x, self.rank - 1, tag=batch)
        x.requires_grad_()
        y = self.model(x)
        self.kept[batch] = (x, y)
        if self.rank < self.size - 1:
            dist.send(y.detach(), self.rank + 1, tag=batch)

    def backward(self, batch):
        x, y = self.kept.pop(batch)
        gradient = torch.ones_like(y)
        if self.rank < self.size - 1:
            dist.irecv(gradient, self.rank + 1, tag=100 + batch).wait()
        y.backward(gradient)
        if self.rank:
            self.sent.append(dist.isend(x.grad, self.rank - 1, tag=100 + batch))

    def drain(self):
        for work in self.sent:
            work.wait()
        self.sent.clear()


def exchange(rank, size):
    """Send to both neighbours and receive from them in one batch."""
    operations = []
    for other in (rank - 1, rank + 1):
        if 0 <= other < size:
            operations.append(dist.P2POp(dist.isend, torch.ones(600 + rank), other, tag=7))
            operations.append(dist.P2POp(dist.irecv, torch.empty(600 + other), other, tag=7))
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def pipeline(batches=4):
    """Return a 1F1B step of four microbatches, an exchange with both neighbours and a receive from any rank."""
    stage = Stage()
    rank, size = stage.rank, stage.size
    ahead = min(size - rank - 1, batches)

    def step():
        for batch in range(ahead):
            stage.forward(batch)
        for batch in range(batches - ahead):
            stage.forward(ahead + batch)
            stage.backward(batch)
        for batch in range(batches - ahead, batches):
            stage.backward(batch)
        stage.drain()
        exchange(rank, size)
        if rank == 0:
            dist.recv(torch.empty(50))  # from whichever rank sends
        elif rank == size - 1:
            dist.send(torch.ones(50), 0)

    return step


def threads():
    """Return a training step beside which a second thread makes the next batch."""
    model = layers()
    pool = ThreadPoolExecutor(1)

    def load():
        return torch.randn(64, 2 * HIDDEN)[:, ::2].contiguous().tanh()

    coming = [pool.submit(load)]

    def step():
        x = coming.pop().result()
        coming.append(pool.submit(load))
        model(x).square().mean().backward()
        model.zero_grad()

    return step


@dataclass(frozen=True)
class Case:
    """A step to record: how it is made, on how many ranks, which traces, of how many steps."""

    make: Callable
    ranks: int = 2
    host: bool = True
    kineto: bool = True
    active: int = 1
    all_threads: bool = False


CASES = {
    "ddp": Case(replicated),
    "collectives": Case(collectives, 4),
    "subgroups": Case(subgroups, 4),
    "pipeline": Case(pipeline, 4),
    "fsdp": Case(sharded),
    "tensor_parallel": Case(tensor_parallel),
    "mesh": Case(mesh, 4),
    "threads": Case(threads, 1),
    "threads_all": Case(threads, 1, all_threads=True),
    "ddp_kineto": Case(replicated, host=False),
    "ddp_et": Case(replicated, kineto=False),
    "ddp_steps": Case(replicated, active=3),
}


def timed(step) -> float:
    """Return the milliseconds of one step on this rank."""
    began = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - began)


def profiled(step, case: Case, host: Path, device: Path) -> list[float]:
    """Return the milliseconds of the recorded steps and write their traces."""
    observer = ExecutionTraceObserver() if case.host else None
    if observer:
        observer.register_callback(str(host))
    if not case.kineto:
        observer.start()
        took = [timed(step) for _ in range(case.active)]
        observer.stop()
        observer.unregister_callback()
        return took
    took = []
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=2, active=case.active, repeat=1),
        on_trace_ready=lambda made: made.export_chrome_trace(str(device)),
        execution_trace_observer=observer,
        experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=case.all_threads),
    ) as profiler:
        for n in range(2 + case.active):
            if n <= 2:  # the last one is in the traces: no rank ends it before all began it
                dist.barrier()
            took.append(timed(step))
            profiler.step()
    if observer:
        observer.unregister_callback()
    return took[2:]


def pack(path: Path) -> None:
    """Replace a file by its compressed form."""
    with path.open("rb") as raw, gzip.open(f"{path}.gz", "wb", 9) as packed:
        shutil.copyfileobj(raw, packed)
    path.unlink()


def run(rank: int, name: str, folder: Path, port: int) -> None:
    """Record one rank of a case."""
    case = CASES[name]
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, case.ranks, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=case.ranks, timeout=timedelta(seconds=60))
    step = case.make()
    for _ in range(4):
        step()
    unprofiled = []
    for _ in range(10):
        dist.barrier()
        unprofiled.append(timed(step))
    paths = [folder / f"{name}.{rank}.{kind}.json" for kind in ("et", "kineto")]
    took = profiled(step, case, *paths)
    for path in paths:
        if path.exists():
            pack(path)
    found = {"rank": rank, "unprofiled_ms": sorted(unprofiled), "profiled_ms": took, "refused": REFUSED}
    (folder / f"{name}.{rank}.step.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(CASES)
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    index = folder / "steps.json"
    found = json.loads(index.read_text())["steps"] if index.exists() else {}
    for name in names:
        try:
            spawn(run, (name, folder, free_port()), nprocs=CASES[name].ranks)
        except Exception:  # the others are worth having
            traceback.print_exc()
            continue
        parts = sorted(folder.glob(f"{name}.*.step.json"))
        found[name] = [json.loads(part.read_text()) for part in parts]
        for part in parts:
            part.unlink()
        print(name, [(round(each["unprofiled_ms"][5], 2), each["profiled_ms"]) for each in found[name]], flush=True)
        index.write_text(json.dumps({"torch": torch.__version__, "steps": found}, indent=1))


if __name__ == "__main__":
    main()
