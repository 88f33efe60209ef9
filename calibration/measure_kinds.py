"""Measure whole training steps of many kinds on one GPU: experts, compiled, fp8, long sequences, graphs.

python calibration/measure_kinds.py eager|graphs|compiled steps.csv kernels.csv [SECONDS]

Needs PyTorch and CUDA. Steps are pure bf16 with a fused AdamW; gradients are zeroed, not dropped. One row per step,
with its median milliseconds and its memory; the second file has the kernels of a step, by the profiler. Stops after so
many SECONDS, with the rows that it has. Fields of a row:

    execution  eager, compiled (each layer, and head with loss) or graph (the whole step is replayed)
    precision  bf16, fp8_tensor (one dynamic scale a tensor), fp8_row (one a row)
    experts    0: dense; `expert_gemm` grouped (one kernel) or loop (one GEMM per expert, sizes read by the host)
    permute    gather (scores weigh in fp32, rows are added by scatter_add) or select (index_select, index_add)
"""

from __future__ import annotations

import csv
import sys
import time
import traceback
from dataclasses import astuple, dataclass, fields, replace

import torch
import torch.nn.functional as F  # noqa: N812  the usual name
from torch import nn
from torch.utils.checkpoint import checkpoint

MADE = {"device": "cuda", "dtype": torch.bfloat16}
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
ALIGN = 8
"""Rows to which a grouped GEMM's groups are padded."""


@dataclass(frozen=True)
class Kind:
    """One training step."""

    style: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    seq: int
    micro_batch: int
    recompute: int = 0
    execution: str = "eager"
    precision: str = "bf16"
    experts: int = 0
    top_k: int = 0
    expert_gemm: str = ""
    permute: str = ""


COLUMNS = (
    *(each.name for each in fields(Kind)),
    "params",
    "fwd_ms",
    "bwd_ms",
    "opt_ms",
    "step_ms",
    "device_ms",
    "kernels",
    "imbalance",
    "peak_bytes",
    "static_bytes",
)


def experts(*sizes: int, gemm: str = "grouped", permute: str = "gather", **more) -> Kind:
    """Return a mixture: layers, hidden, heads, kv_heads, head_dim, ffn, seq, micro_batch, experts, top_k."""
    layers, hidden, heads, kv_heads, width, ffn, seq, batch, count, chosen = sizes
    return Kind(
        "llama",
        layers,
        hidden,
        heads,
        kv_heads,
        width,
        ffn,
        32000,
        seq,
        batch,
        experts=count,
        top_k=chosen,
        expert_gemm=gemm,
        permute=permute,
        **more,
    )


def dense(style: str, *sizes: int, **more) -> Kind:
    """Return a dense model: layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq, micro_batch."""
    return Kind(style, *sizes, **more)


LOOP = {"gemm": "loop", "permute": "select"}
MIXTURES = [
    experts(4, 2048, 16, 16, 128, 1408, 4096, 2, 64, 6),
    experts(4, 2048, 16, 16, 128, 1408, 4096, 2, 64, 6, **LOOP),
    experts(2, 4096, 32, 8, 128, 14336, 4096, 2, 8, 2),
    experts(2, 4096, 32, 8, 128, 14336, 4096, 2, 8, 2, **LOOP),
    experts(4, 2048, 32, 4, 128, 768, 4096, 2, 128, 8),
    experts(4, 2048, 32, 4, 128, 768, 4096, 2, 128, 8, **LOOP),
    experts(4, 2048, 16, 8, 128, 1024, 2048, 4, 64, 8),
    experts(4, 2048, 16, 8, 128, 1024, 2048, 4, 64, 8, permute="select"),
    experts(2, 4096, 64, 4, 128, 1536, 4096, 1, 128, 8),
    experts(4, 2048, 16, 16, 128, 8192, 2048, 2, 16, 1),
    experts(2, 5120, 40, 8, 128, 8192, 4096, 2, 16, 1),
    experts(2, 5120, 40, 8, 128, 8192, 4096, 2, 16, 1, **LOOP),
    experts(4, 2880, 64, 8, 64, 2880, 4096, 2, 32, 4),
    experts(2, 7168, 56, 8, 128, 2048, 4096, 1, 64, 8),
    experts(4, 2048, 32, 4, 128, 768, 1024, 1, 128, 8),
    experts(2, 2048, 16, 16, 128, 1408, 8192, 4, 64, 6),
    experts(2, 2048, 16, 16, 128, 1408, 8192, 4, 64, 6, permute="select"),
    experts(2, 6144, 48, 8, 128, 10752, 2048, 4, 16, 4),
    experts(4, 1024, 16, 16, 64, 512, 2048, 4, 32, 4),
    experts(4, 1024, 16, 16, 64, 2048, 8192, 4, 8, 2, **LOOP),
    experts(4, 2048, 32, 4, 128, 768, 4096, 6, 128, 8, **LOOP),
    experts(4, 2048, 16, 16, 128, 1408, 4096, 4, 64, 6, recompute=1),
    experts(2, 4096, 32, 8, 128, 14336, 4096, 4, 8, 2, recompute=1, **LOOP),
    experts(4, 3072, 24, 8, 128, 3072, 4096, 4, 16, 2),
]
DENSE = [
    # head sizes
    dense("gpt", 6, 4096, 64, 64, 64, 16384, 32000, 4096, 2),
    dense("gpt", 8, 2560, 32, 32, 80, 10240, 50304, 4096, 2),
    dense("llama", 6, 3840, 48, 48, 80, 10240, 32000, 8192, 1),
    dense("llama", 8, 3072, 32, 32, 96, 8192, 32000, 8192, 1),
    dense("gpt", 4, 5120, 32, 32, 160, 20480, 32000, 4096, 1),
    dense("llama", 8, 3072, 16, 16, 192, 8192, 32000, 8192, 1),
    dense("llama", 6, 4096, 16, 4, 256, 12288, 32000, 8192, 1),
    dense("llama", 8, 2048, 8, 1, 256, 16384, 32000, 4096, 2),
    dense("llama", 8, 2048, 32, 8, 128, 6144, 32000, 4096, 2),
    # long sequences
    dense("llama", 4, 1024, 8, 8, 128, 4096, 32000, 16384, 1),
    dense("llama", 4, 1024, 16, 4, 64, 2816, 32000, 32768, 1),
    dense("gpt", 4, 1024, 16, 16, 64, 4096, 32000, 32768, 1),
    dense("llama", 2, 1024, 8, 8, 128, 2816, 32000, 65536, 1),
    dense("llama", 4, 2048, 16, 4, 128, 5632, 32000, 65536, 1, recompute=1),
    # recomputed
    dense("llama", 8, 2048, 16, 4, 128, 5632, 32000, 4096, 4, recompute=1),
    dense("gpt", 16, 1024, 16, 16, 64, 4096, 50304, 1024, 8, recompute=1),
    dense("llama", 6, 5120, 40, 8, 128, 13824, 32000, 4096, 2, recompute=1),
    dense("llama", 8, 3072, 24, 8, 128, 8192, 128256, 8192, 1, recompute=1),
    dense("llama", 4, 6144, 48, 8, 128, 16384, 32000, 2048, 4),
]
SMALL = [
    dense("gpt", 12, 768, 12, 12, 64, 3072, 50304, 1024, 1),
    dense("gpt", 24, 1024, 16, 16, 64, 4096, 50304, 512, 2),
    dense("llama", 16, 1024, 16, 4, 64, 2816, 32000, 1024, 2),
    dense("llama", 6, 512, 8, 8, 64, 2048, 32000, 512, 4),
    dense("llama", 12, 768, 12, 12, 64, 2048, 32000, 2048, 2),
    dense("gpt", 12, 768, 12, 12, 64, 3072, 50304, 1024, 1, recompute=1),
]
GRAPHS = [each for one in SMALL for each in (one, replace(one, execution="graph"))]
LAYERED = [
    dense("llama", 8, 2048, 16, 8, 128, 5632, 32000, 2048, 4, execution="compiled"),
    dense("llama", 4, 4096, 32, 8, 128, 14336, 128256, 4096, 1, execution="compiled"),
    dense("llama", 8, 4096, 32, 8, 128, 14336, 32000, 2048, 4, execution="compiled"),
    dense("gpt", 8, 2048, 16, 16, 128, 8192, 50304, 2048, 4, execution="compiled"),
    dense("gpt", 12, 768, 12, 12, 64, 3072, 50304, 1024, 16, execution="compiled"),
    dense("llama", 8, 3072, 32, 8, 96, 8192, 32000, 4096, 2, execution="compiled", recompute=1),
    dense("llama", 4, 2048, 16, 16, 128, 5632, 32000, 16384, 1, execution="compiled"),
]
EIGHT = [
    dense("llama", 6, 2048, 16, 8, 128, 8192, 32000, 4096, 2),
    dense("llama", 4, 4096, 32, 8, 128, 14336, 32000, 4096, 2),
    dense("llama", 4, 8192, 64, 8, 128, 28672, 32000, 4096, 1),
    dense("gpt", 4, 5120, 40, 40, 128, 20480, 32000, 2048, 4),
]
COMPILED = [
    replace(EIGHT[1], execution="compiled", precision="fp8_row"),
    *(replace(each, execution="compiled", precision="fp8_tensor") for each in EIGHT),
    *LAYERED,
    *(replace(each, execution="compiled", precision="fp8_row") for each in (EIGHT[0], EIGHT[2], EIGHT[3])),
    replace(MIXTURES[0], execution="compiled"),
    replace(MIXTURES[4], execution="compiled"),
    replace(MIXTURES[10], execution="compiled"),
]
LOOPED = [each for each in MIXTURES if each.expert_gemm == "loop"]
PARTS = {"eager": [*MIXTURES, *DENSE], "loops": LOOPED, "graphs": GRAPHS, "compiled": COMPILED}


# ------------------------------------------------------------------------------------------------------- 8 bits


def whole(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor in 8 bits, and its one scale."""
    most = torch.finfo(dtype).max
    scale = most / x.abs().amax().float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-most, most).to(dtype), scale.reciprocal()


def by_row(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a matrix in 8 bits, and a scale for each row."""
    scale = 448.0 / x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-448.0, 448.0).to(E4M3), scale.reciprocal()


class Tensorwise(torch.autograd.Function):
    """Three GEMMs in 8 bits, each tensor scaled by its largest number; wide tensors are kept and cast again."""

    @staticmethod
    def forward(ctx, x, w):
        (x8, sx), (w8, sw) = whole(x, E4M3), whole(w, E4M3)
        ctx.save_for_backward(x, w)
        return torch._scaled_mm(x8, w8.t(), scale_a=sx, scale_b=sw, out_dtype=torch.bfloat16, use_fast_accum=True)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        (g8, sg), (x8, sx), (w8, sw) = whole(g, E5M2), whole(x, E4M3), whole(w, E4M3)
        dx = torch._scaled_mm(g8, w8.t().contiguous().t(), scale_a=sg, scale_b=sw, out_dtype=torch.bfloat16)
        gt, xt = g8.t().contiguous(), x8.t().contiguous().t()
        return dx, torch._scaled_mm(gt, xt, scale_a=sg, scale_b=sx, out_dtype=torch.bfloat16)


class Rowwise(torch.autograd.Function):
    """Three GEMMs in 8 bits, each row of an operand with its own scale."""

    @staticmethod
    def forward(ctx, x, w):
        (x8, sx), (w8, sw) = by_row(x), by_row(w)
        ctx.save_for_backward(x, w)
        return torch._scaled_mm(x8, w8.t(), scale_a=sx, scale_b=sw.t(), out_dtype=torch.bfloat16, use_fast_accum=True)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        (g8, sg), (wt8, sw) = by_row(g), by_row(w.t().contiguous())
        dx = torch._scaled_mm(g8, wt8.t(), scale_a=sg, scale_b=sw.t(), out_dtype=torch.bfloat16, use_fast_accum=True)
        (gt8, sgt), (xt8, sx) = by_row(g.t().contiguous()), by_row(x.t().contiguous())
        dw = torch._scaled_mm(gt8, xt8.t(), scale_a=sgt, scale_b=sx.t(), out_dtype=torch.bfloat16, use_fast_accum=True)
        return dx, dw


NARROW = {"fp8_tensor": Tensorwise, "fp8_row": Rowwise}


class Linear(nn.Linear):
    """A linear layer in the precision of a row."""

    def __init__(self, inner: int, outer: int, bias: bool, precision: str) -> None:
        super().__init__(inner, outer, bias=bias, **MADE)
        self.narrow = NARROW.get(precision)

    def forward(self, x):
        if self.narrow is None:
            return F.linear(x, self.weight, self.bias)
        y = self.narrow.apply(x.reshape(-1, x.shape[-1]), self.weight).reshape(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


# ------------------------------------------------------------------------------------------------------ experts


class Experts(nn.Module):
    """A router and gated experts; no token is dropped."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind
        self.router = nn.Linear(kind.hidden, kind.experts, bias=False, **MADE)
        shapes = ((kind.ffn, kind.hidden), (kind.ffn, kind.hidden), (kind.hidden, kind.ffn))
        made = [nn.Parameter(torch.randn(kind.experts, *shape, **MADE) * 0.02) for shape in shapes]
        if kind.expert_gemm == "loop":  # weights of their own, or the gradient of one is as large as that of all
            made = [nn.Parameter(w.detach().clone()) for each in made for w in each]
        self.weights = nn.ParameterList(made)
        self.register_buffer("counts", torch.zeros(kind.experts, device="cuda"), persistent=False)

    def grouped(self, x, counts):
        """One GEMM over all experts. Their rows are padded to whole multiples of ALIGN."""
        many, slots = self.kind.experts, x.shape[0]
        padded = (counts + ALIGN - 1) // ALIGN * ALIGN
        ends = torch.cumsum(padded, 0)
        starts = torch.cumsum(counts, 0) - counts
        owner = torch.repeat_interleave(torch.arange(many, device="cuda"), counts, output_size=slots)
        place = torch.arange(slots, device="cuda") - starts[owner] + (ends - padded)[owner]
        held = slots + many * ALIGN
        source = torch.full((held,), slots, device="cuda").scatter_(0, place, torch.arange(slots, device="cuda"))
        rows = torch.cat((x, x.new_zeros(1, x.shape[1]))).index_select(0, source)
        offsets = ends.to(torch.int32)
        gate, up, down = (w.transpose(-2, -1) for w in self.weights)
        h = F.silu(torch._grouped_mm(rows, gate, offs=offsets)) * torch._grouped_mm(rows, up, offs=offsets)
        y = torch._grouped_mm(h, down, offs=offsets)
        return y.index_select(0, place)

    def looped(self, x, counts):
        """A GEMM for each expert: the host reads their sizes."""
        many, weights, made = self.kind.experts, list(self.weights), []
        gate, up, down = weights[:many], weights[many : 2 * many], weights[2 * many :]
        for number, rows in enumerate(x.split(counts.tolist())):
            h = F.silu(F.linear(rows, gate[number])) * F.linear(rows, up[number])
            made.append(F.linear(h, down[number]))
        return torch.cat(made)

    def forward(self, x):
        kind, shape = self.kind, x.shape
        x = x.reshape(-1, kind.hidden)
        scores = F.softmax(self.router(x).float(), dim=-1)
        best, chosen = torch.topk(scores, kind.top_k, dim=-1)
        best = best / best.sum(-1, keepdim=True)
        order = torch.argsort(chosen.flatten(), stable=True)
        counts = torch.histc(chosen.flatten().float(), bins=kind.experts, min=0, max=kind.experts - 1).long()
        self.counts.copy_(counts)
        tokens = order // kind.top_k
        weight = best.flatten()[order].unsqueeze(1)
        run = self.grouped if kind.expert_gemm == "grouped" else self.looped
        if kind.permute == "gather":
            place = tokens.unsqueeze(1).expand(-1, kind.hidden)
            y = run(torch.gather(x, 0, place), counts)
            y = (y.float() * weight).to(x.dtype)
            out = torch.zeros_like(x).scatter_add(0, place, y)
        else:
            y = run(x.index_select(0, tokens), counts) * weight.to(x.dtype)
            out = torch.zeros_like(x).index_add(0, tokens, y)
        return out.reshape(shape)


# ------------------------------------------------------------------------------------------------------- models


class Layer(nn.Module):
    """A layer of any kind."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind, llama = kind, kind.style == "llama"
        norm = nn.RMSNorm if llama else nn.LayerNorm
        self.first, self.second = norm(kind.hidden, **MADE), norm(kind.hidden, **MADE)
        q, kv = kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim
        made = lambda a, b: Linear(a, b, not llama, kind.precision)  # noqa: E731
        if llama:
            self.q, self.k, self.v = (made(kind.hidden, n) for n in (q, kv, kv))
        else:
            self.qkv = made(kind.hidden, 3 * q)
        self.out = made(q, kind.hidden)
        if kind.experts:
            self.experts = Experts(kind)
            return
        if llama:
            self.gate = made(kind.hidden, kind.ffn)
        self.up, self.down = made(kind.hidden, kind.ffn), made(kind.ffn, kind.hidden)

    def rotated(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, x, cos, sin):
        kind, (batch, tokens, _) = self.kind, x.shape
        llama = kind.style == "llama"
        h = self.first(x)
        if llama:
            q, k, v = (f(h).view(batch, tokens, -1, kind.head_dim).transpose(1, 2) for f in (self.q, self.k, self.v))
            q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
        else:
            q, k, v = self.qkv(h).view(batch, tokens, 3, kind.heads, kind.head_dim).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kind.heads != kind.kv_heads)
        x = x + self.out(a.transpose(1, 2).reshape(batch, tokens, -1))
        h = self.second(x)
        if kind.experts:
            return x + self.experts(h)
        return x + self.down(F.silu(self.gate(h)) * self.up(h) if llama else F.gelu(self.up(h)))


class Tail(nn.Module):
    """The last norm, the head and the loss."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.norm = (nn.RMSNorm if kind.style == "llama" else nn.LayerNorm)(kind.hidden, **MADE)
        self.head = nn.Linear(kind.hidden, kind.vocab, bias=False, **MADE)

    def forward(self, x, labels):
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


class Model(nn.Module):
    """Embedding, layers, head and loss."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.again, llama = bool(kind.recompute), kind.style == "llama"
        self.embed = nn.Embedding(kind.vocab, kind.hidden, **MADE)
        self.place = None if llama else nn.Embedding(kind.seq, kind.hidden, **MADE)
        self.layers = nn.ModuleList(Layer(kind) for _ in range(kind.layers))
        self.tail = Tail(kind)
        self.cos, self.sin = torch.rand(2, kind.seq, kind.head_dim, **MADE)
        if kind.execution == "compiled":
            for layer in self.layers:
                layer.compile()
            self.tail.compile()

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        if self.place is not None:
            x = x + self.place.weight
        for layer in self.layers:
            if self.again:
                x = checkpoint(layer, x, self.cos, self.sin, use_reentrant=False)
            else:
                x = layer(x, self.cos, self.sin)
        return self.tail(x, labels)


# -------------------------------------------------------------------------------------------------- measurement


def median(values) -> float:
    found = sorted(values)
    return found[len(found) // 2]


def measure(kind: Kind) -> tuple[dict, list]:
    """Return what one kind of step takes, and its kernels."""
    torch._dynamo.reset()
    model = Model(kind)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True, capturable=kind.execution == "graph")
    tokens, labels = torch.randint(0, kind.vocab, (2, kind.micro_batch, kind.seq), device="cuda")
    events = lambda: [torch.cuda.Event(enable_timing=True) for _ in range(4)]  # noqa: E731

    def step(mark):
        adam.zero_grad(set_to_none=False)
        mark[0].record()
        loss = model(tokens, labels)
        mark[1].record()
        loss.backward()
        mark[2].record()
        adam.step()
        mark[3].record()

    for _ in range(3):
        step(events())
    torch.cuda.synchronize()
    started = time.monotonic()
    step(events())
    torch.cuda.synchronize()
    repeats = int(min(max(2.0 / (time.monotonic() - started), 5), 20))
    torch.cuda.reset_peak_memory_stats()
    found = {}
    if kind.execution == "graph":
        found["step_ms"], run = replayed(model, adam, tokens, labels)
    else:
        marks = [events() for _ in range(repeats)]
        for mark in marks:
            step(mark)
        torch.cuda.synchronize()
        for place, name in enumerate(("fwd_ms", "bwd_ms", "opt_ms")):
            found[name] = median(m[place].elapsed_time(m[place + 1]) for m in marks)
        found["step_ms"] = median(m[0].elapsed_time(m[3]) for m in marks)
        run = lambda: step(events())  # noqa: E731
    found["peak_bytes"], found["static_bytes"] = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
    found["params"] = sum(each.numel() for each in model.parameters())
    if kind.experts:
        counts = model.layers[-1].experts.counts
        found["imbalance"] = float(counts.max() / counts.float().mean())
    kernels = seen(run)
    found["kernels"], found["device_ms"] = sum(k[1] for k in kernels), sum(k[2] for k in kernels) / 1e3
    return found, kernels


def replayed(model, adam, tokens, labels):
    """Return the milliseconds of a step that is replayed from a graph, and what replays it."""
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            adam.zero_grad(set_to_none=False)
            model(tokens, labels).backward()
            adam.step()
    torch.cuda.current_stream().wait_stream(side)
    adam.zero_grad(set_to_none=False)
    with torch.cuda.graph(graph):
        model(tokens, labels).backward()
        adam.step()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(20)]
    graph.replay()
    torch.cuda.synchronize()
    for a, b in marks:
        adam.zero_grad(set_to_none=False)
        a.record()
        graph.replay()
        b.record()
    torch.cuda.synchronize()
    return median(a.elapsed_time(b) for a, b in marks), graph.replay


def seen(run) -> list:
    """Return name, count and microseconds of the kernels of one run."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize()
    kept = [(each.key, each.count, each.self_device_time_total) for each in profiled.key_averages()]
    return sorted((each for each in kept if each[2] > 0), key=lambda each: -each[2])


def main() -> None:
    part, steps, kernels = sys.argv[1:4]
    until = time.monotonic() + (float(sys.argv[4]) if len(sys.argv) > 4 else 3600)
    with open(steps, "w", newline="") as file, open(kernels, "w", newline="") as seen_file:
        out, names = csv.DictWriter(file, COLUMNS, restval=""), csv.writer(seen_file)
        out.writeheader()
        names.writerow(("row", "kernel", "count", "us"))
        for number, kind in enumerate(PARTS[part]):
            if time.monotonic() > until:
                print("out of time at", number, flush=True)
                return
            try:
                found, listed = measure(kind)
            except Exception as problem:  # go on with the others
                print(kind, type(problem).__name__, str(problem)[:600], traceback.format_exc()[-700:], flush=True)
                torch.cuda.empty_cache()
                continue
            row = dict(zip(COLUMNS, astuple(kind), strict=False))
            row |= {key: f"{value:.4f}" if isinstance(value, float) else value for key, value in found.items()}
            out.writerow(row)
            names.writerows((number, name[:150], count, f"{us:.1f}") for name, count, us in listed)
            file.flush(), seen_file.flush()
            print(number, astuple(kind), {k: row[k] for k in ("step_ms", "device_ms", "kernels")}, flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
