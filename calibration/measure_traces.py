"""Record steps on one GPU as pairs of a PyTorch execution trace and a Kineto trace, and time the same steps unprofiled.

python calibration/measure_traces.py FOLDER [NAME ...]

Needs PyTorch and CUDA. Writes NAME.et.json.gz, NAME.kineto.json.gz and steps.json: what each step took with and without
the profiler. `cosmic trace convert` reads the pairs.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812  the usual name
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule
from torchvision.models import resnet50

sys.path.insert(0, str(Path(__file__).parent))
import measure_other_steps as other_steps
from measure_steps import Model

GPT = (12, 2048, 16, 16, 8192, 50304, 2048, 4, "gpt", 0)
LLAMA = (8, 4096, 32, 8, 14336, 32000, 2048, 2, "llama", 0)
SMALL = (4, 768, 12, 12, 3072, 32000, 512, 4, "gpt", 0)
LONG = (4, 2048, 16, 4, 5632, 32000, 32768, 1, "llama", 0)
BF16 = {"device": "cuda", "dtype": torch.bfloat16}


def training(row, *, compiled=None, autocast=False, wrap=None, optimizer=True):
    """Return a function that runs one training step of a model."""
    model = Model(row)
    model = model.float() if autocast else model
    model = wrap(model) if wrap else model
    adam = torch.optim.AdamW(model.parameters(), fused=True)
    tokens, labels = torch.randint(0, row[5], (2, row[7], row[6]), device="cuda")
    run = torch.compile(model, **compiled) if compiled is not None else model

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = run(tokens, labels)
        loss.backward()
        if optimizer:
            adam.step()
            adam.zero_grad(set_to_none=not (compiled or {}).get("keep"))

    return step


def graphed(make):
    """Return a function that replays a step captured as one CUDA graph."""

    def build():
        step = make()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    return build


class Experts(nn.Module):
    """A mixture of experts: top-2 of 16, tokens sorted, one GEMM an expert."""

    def __init__(self, hidden=2048, ffn=4096, experts=16) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, experts, bias=False, **BF16)
        self.up = nn.Parameter(torch.randn(experts, hidden, ffn, **BF16) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, ffn, hidden, **BF16) * 0.02)

    def forward(self, x):
        flat = x.flatten(0, 1)
        share, chosen = self.router(flat).softmax(-1, dtype=torch.float32).topk(2, -1)
        order = chosen.flatten().argsort()
        rows = flat[order // 2]
        counts = torch.bincount(chosen.flatten(), minlength=self.up.shape[0]).tolist()
        parts = [
            F.silu(part @ up) @ down for part, up, down in zip(rows.split(counts), self.up, self.down, strict=True)
        ]
        weighted = torch.cat(parts) * share.flatten()[order].unsqueeze(-1).to(x.dtype)
        return x + torch.zeros_like(flat).index_add(0, order // 2, weighted).view_as(x)


def experts():
    """Return a training step of four layers of experts with attention."""
    row = (1, 2048, 16, 16, 2048, 32000, 2048, 4, "gpt", 0)
    layers = nn.ModuleList([Model(row).layers[0] for _ in range(4)])
    mixed = nn.ModuleList([Experts() for _ in range(4)])
    adam = torch.optim.AdamW([*layers.parameters(), *mixed.parameters()], fused=True)
    x = torch.randn(4, 2048, 2048, **BF16)

    def step():
        h = x
        for layer, mix in zip(layers, mixed, strict=True):
            h = mix(layer(h))
        h.float().square().mean().backward()
        adam.step()
        adam.zero_grad()

    return step


def recomputed(row):
    """Return a training step whose layers are recomputed."""
    return training((*row[:-1], 1))


def prefill(row, *, compiled=False):
    """Return a forward pass without gradients."""
    model = Model(row)
    run = torch.compile(model) if compiled else model
    tokens, labels = torch.randint(0, row[5], (2, row[7], row[6]), device="cuda")

    def step():
        with torch.no_grad():
            run(tokens, labels)

    return step


def decode(batch=32):
    """Return one decoding step: a token for each of many sequences over a cache of keys and values."""
    layers, hidden, heads, kv, ffn, context, vocab = 16, 4096, 32, 8, 14336, 4096, 32000
    width = hidden // heads
    weights = [
        [
            torch.randn(n, m, **BF16) * 0.02
            for n, m in ((hidden + 2 * kv * width, hidden), (hidden, hidden), (2 * ffn, hidden), (hidden, ffn))
        ]
        for _ in range(layers)
    ]
    norms = torch.ones(2 * layers + 1, hidden, **BF16)
    caches = [torch.randn(2, batch, kv, context, width, **BF16) for _ in range(layers)]
    head = torch.randn(vocab, hidden, **BF16) * 0.02
    x0 = torch.randn(batch, 1, hidden, **BF16)

    def step():
        x = x0
        with torch.no_grad():
            for n, (qkv, out, up, down) in enumerate(weights):
                h = F.rms_norm(x, (hidden,), norms[2 * n])
                q, k, v = F.linear(h, qkv).split([hidden, kv * width, kv * width], -1)
                keys, values = caches[n]
                keys[:, :, -1:] = k.view(batch, 1, kv, width).transpose(1, 2)
                values[:, :, -1:] = v.view(batch, 1, kv, width).transpose(1, 2)
                q = q.view(batch, 1, heads, width).transpose(1, 2)
                a = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
                x = x + F.linear(a.transpose(1, 2).reshape(batch, 1, hidden), out)
                gate, inner = F.linear(F.rms_norm(x, (hidden,), norms[2 * n + 1]), up).chunk(2, -1)
                x = x + F.linear(F.silu(gate) * inner, down)
            return F.linear(F.rms_norm(x, (hidden,), norms[-1]), head).argmax(-1)

    return step


def streams():
    """Return a step with two chains of GEMMs on two streams that meet."""
    a, b = torch.randn(2, 4096, 4096, **BF16)
    side = torch.cuda.Stream()

    def step():
        c = a @ b
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            d = c
            for _ in range(6):
                d = torch.tanh(d + 1)
        e = c
        for _ in range(4):
            e = e @ b
        torch.cuda.current_stream().wait_stream(side)
        return (d + e).sum().item()

    return step


def recommender():
    """Return a training step of a small recommender: embedding bags and GEMMs."""
    tables = nn.ModuleList([nn.EmbeddingBag(200_000, 64, mode="sum", device="cuda") for _ in range(16)])
    bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 64)).cuda()
    top = nn.Sequential(nn.Linear(64 * 17, 1024), nn.ReLU(), nn.Linear(1024, 1)).cuda()
    sgd = torch.optim.SGD([*tables.parameters(), *bottom.parameters(), *top.parameters()], lr=0.1)
    dense = torch.randn(8192, 13, device="cuda")
    index = torch.randint(0, 200_000, (16, 8192, 20), device="cuda")

    def step():
        parts = [bottom(dense), *(table(each) for table, each in zip(tables, index, strict=True))]
        top(torch.cat(parts, 1)).square().mean().backward()
        sgd.step()
        sgd.zero_grad()

    return step


def joined():
    """Start NCCL with one process."""
    if not dist.is_initialized():
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
        dist.init_process_group("nccl", rank=0, world_size=1, device_id=torch.device("cuda:0"))


def sharded():
    """Return a training step under FSDP2 over one process."""
    joined()

    def wrap(model):
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
        return model

    return training(GPT, wrap=wrap)


def replicated():
    """Return a training step under DDP over one process, with several collectives beside."""
    joined()
    step = training(GPT, wrap=lambda model: DistributedDataParallel(model, bucket_cap_mb=50))
    x = torch.randn(1 << 22, **BF16)

    def whole():
        step()
        dist.all_gather_into_tensor(torch.empty_like(x), x)
        dist.reduce_scatter_tensor(torch.empty_like(x), x)
        dist.all_to_all_single(torch.empty_like(x), x)
        dist.broadcast(x, 0)

    return whole


STEPS = {
    "gpt_eager": lambda: training(GPT),
    "gpt_layers": lambda: training((24, *GPT[1:])),
    "gpt_batch": lambda: training((*GPT[:7], 8, *GPT[8:])),
    "llama_layers": lambda: training((16, *LLAMA[1:])),
    "prefill_batch": lambda: prefill((16, 4096, 32, 8, 14336, 32000, 4096, 4, "llama", 0)),
    "decode_batch": lambda: decode(batch=64),
    "llama_eager": lambda: training(LLAMA),
    "small_eager": lambda: training(SMALL),
    "llama_compiled": lambda: training(LLAMA, compiled={}),
    "gpt_compiled": lambda: training(GPT, compiled={}),
    "gpt_autocast": lambda: training(GPT, autocast=True),
    "gpt_recompute": lambda: recomputed(GPT),
    "llama_graph": graphed(lambda: training(LLAMA, optimizer=False)),
    "small_reduce_overhead": lambda: training(SMALL, compiled={"mode": "reduce-overhead"}),
    "experts_eager": experts,
    "long_eager": lambda: training(LONG),
    "prefill_eager": lambda: prefill((16, 4096, 32, 8, 14336, 32000, 4096, 2, "llama", 0)),
    "prefill_compiled": lambda: prefill((16, 4096, 32, 8, 14336, 32000, 4096, 2, "llama", 0), compiled=True),
    "decode_eager": decode,
    "decode_graph": graphed(decode),
    "streams_eager": streams,
    "resnet_eager": lambda: other_steps.pictures(resnet50),
    "recommender_eager": recommender,
    "gpt_fsdp": sharded,
    "gpt_ddp": replicated,
    **other_steps.STEPS,
}
SYNCED = ("streams_eager", "gpt_ddp", "gpt_fsdp")
"""Recorded a second time with the profiler's events of synchronisation."""


def timed(step, times=10) -> list[float]:
    """Return the milliseconds of steps without the profiler, each from start to the end of its kernels."""
    found = []
    for _ in range(times):
        torch.cuda.synchronize()
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - began))
    return sorted(found)


def record(step, folder: Path, name: str, synced: bool = False) -> None:
    """Write both traces of one step."""
    host, device = folder / f"{name}.et.json", folder / f"{name}.kineto.json"
    observer = ExecutionTraceObserver()
    observer.register_callback(str(host))
    options = {}
    if synced:
        options["experimental_config"] = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=2, active=1, repeat=1),
        on_trace_ready=lambda made: made.export_chrome_trace(str(device)),
        execution_trace_observer=observer,
        **options,
    ) as profiler:
        for _ in range(3):
            step()
            torch.cuda.synchronize()
            profiler.step()
    observer.unregister_callback()
    for path in (host, device):
        with path.open("rb") as raw, gzip.open(f"{path}.gz", "wb", 9) as packed:
            shutil.copyfileobj(raw, packed)
        path.unlink()


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(STEPS)
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in names:
        began = time.perf_counter()
        try:
            step = STEPS[name]()
            for _ in range(4):
                step()
            times = timed(step)
            record(step, folder, name)
            if name in SYNCED:
                record(step, folder, f"{name}_synced", synced=True)
            found[name] = {"unprofiled_ms": times}
            print(name, [round(each, 3) for each in times[:3]], f"{time.perf_counter() - began:.1f} s", flush=True)
        except Exception:  # the others are worth having
            traceback.print_exc()
        step = None
        torch.cuda.empty_cache()
        torch._dynamo.reset()
        (folder / "steps.json").write_text(json.dumps({"torch": torch.__version__, "steps": found}, indent=1))


if __name__ == "__main__":
    main()
