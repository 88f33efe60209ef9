"""A GPU or a CPU measured by PyTorch, which is imported here only: `cosmic calibrate probe` needs the extra ``torch``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from time import perf_counter
from typing import Any

from cosmic.base.errors import SpecError, require

LEAST_S = 0.02
"""How long queued calls are timed, at least."""
WARM, MOST = 3, 200
"""Calls before anything is timed, and the most that are."""
STEPS = 10
LAYERS, TOKENS, HIDDEN = 12, 256, 512
"""Of the layers whose launches are timed: so small that the host is slower than the device."""


def torch_device(kind: str = "") -> TorchDevice:
    """Return the device to measure: *kind* is cuda or cpu, by default a GPU."""
    try:
        torch: Any = import_module("torch")
    except ImportError:
        rule = "is not installed: pip install '.[torch]' in a clone of COSMIC, or as pytorch.org says"
        raise SpecError("PyTorch", "torch", rule) from None
    if kind != "cpu":
        rule = "PyTorch sees no GPU here: run it on the machine to measure, or try it with --device cpu"
        require(torch.cuda.is_available(), "--device", kind or "cuda", rule)
    return TorchDevice(torch, kind or "cuda")


class TorchDevice:
    """One GPU of this process, or its CPU; with torchrun, all ranks measure collectives together."""

    def __init__(self, torch: Any, kind: str) -> None:
        self._torch, self._kind = torch, kind
        self.large = kind == "cuda"
        self.ranks = int(os.environ.get("WORLD_SIZE", "1"))
        self.nodes = max(1, self.ranks // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", str(self.ranks)))))
        self.first = int(os.environ.get("RANK", "0")) == 0
        if self.large:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        self.name = torch.cuda.get_device_name() if self.large else "CPU"
        if self.ranks > 1:
            torch.distributed.init_process_group("nccl" if self.large else "gloo")

    def close(self) -> None:
        """Leave the other ranks."""
        if self.ranks > 1:
            self._torch.distributed.barrier()
            self._torch.distributed.destroy_process_group()

    # ---------------------------------------------------------------------------------------------------- kernels

    def gemm(self, m: int, n: int, k: int, dtype: str) -> float | None:
        """Time a GEMM; in fp8 there is one scale for each tensor, and inputs are cast beforehand."""
        torch = self._torch
        x, w = self._random(m, k), self._random(n, k)
        if dtype == "bf16":
            return self._queued(lambda: torch.nn.functional.linear(x, w))
        if not self.large or torch.cuda.get_device_capability() < (8, 9) or not hasattr(torch, "_scaled_mm"):
            return None
        ones = torch.ones((), device=self._kind)
        a, b = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn).t()
        scaled = {"scale_a": ones, "scale_b": ones, "out_dtype": torch.bfloat16, "use_fast_accum": True}
        return self._queued(lambda: torch._scaled_mm(a, b, **scaled))

    def attention(self, batch: int, heads: int, kv_heads: int, seq: int, head_dim: int) -> tuple[float, float] | None:
        """Time fused causal attention, forward and backward."""
        torch = self._torch
        shapes = ((batch, heads, seq, head_dim), *[(batch, kv_heads, seq, head_dim)] * 2)
        q, k, v = (self._random(*shape).requires_grad_() for shape in shapes)
        options = {"is_causal": True, **({"enable_gqa": True} if heads != kv_heads else {})}

        def attend() -> Any:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

        with torch.no_grad():
            forward = self._queued(attend)
        out: Any = attend()
        grad = torch.randn_like(out)
        backward = self._queued(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
        return forward, backward

    def memory(self, operator: str, rows: int, cols: int) -> float | None:
        """Time an operator that streams through memory."""
        torch = self._torch
        x, y = self._random(rows, cols), self._random(rows, cols)
        functional = torch.nn.functional
        runs: dict[str, Callable[[], Any]] = {
            "copy": lambda: y.copy_(x),
            "add": lambda: torch.add(x, y),
            "gelu": lambda: functional.gelu(x),
            "layernorm": lambda: functional.layer_norm(x, (cols,)),
            "softmax": lambda: functional.softmax(x, -1),
        }
        if hasattr(functional, "rms_norm"):
            runs["rmsnorm"] = lambda: functional.rms_norm(x, (cols,))
        return self._queued(runs[operator]) if operator in runs else None

    def collective(self, kind: str, size_bytes: int) -> float | None:
        """Time a collective among all ranks."""
        torch, distributed = self._torch, self._torch.distributed
        count = max(self.ranks, size_bytes // 2 // self.ranks * self.ranks)
        buffer = torch.zeros(count, device=self._kind, dtype=torch.bfloat16)
        part = torch.zeros(count // self.ranks, device=self._kind, dtype=torch.bfloat16)
        output = torch.zeros_like(buffer)
        runs: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: distributed.all_reduce(buffer),
            "all_gather": lambda: distributed.all_gather_into_tensor(buffer, part),
            "reduce_scatter": lambda: distributed.reduce_scatter_tensor(part, buffer),
            "all_to_all": lambda: distributed.all_to_all_single(output, buffer),
        }
        run = runs[kind]
        for _ in range(WARM):
            run()
        self._wait()
        distributed.barrier()
        return self._timed(run, 20)  # as many on every rank

    # ---------------------------------------------------------------------------------------------- host, steps

    def launch(self, mode: str) -> float | None:
        """Time the host: a forward pass of layers so small that the device waits, over the kernels it launches."""
        if not self.large:
            return None
        torch = self._torch
        layers = _model(torch, ("llama", LAYERS, HIDDEN, 8, 8, 4 * HIDDEN, 1, TOKENS, 1), self._kind).layers
        x = self._random(1, TOKENS, HIDDEN).requires_grad_()

        def forward() -> Any:
            y = x
            for layer in layers:
                y = layer(y)
            return y

        with torch.set_grad_enabled(mode == "autograd"):
            for _ in range(WARM):
                forward()
            self._wait()
            kernels = self._kernels(forward)
            seconds = self._timed(forward, STEPS)
        return seconds / kernels if kernels else None

    def _kernels(self, run: Callable[[], Any]) -> int:
        """Return how many kernels a call launches."""
        torch = self._torch
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            run()
            self._wait()
        device = torch.autograd.DeviceType.CUDA
        return sum(1 for event in profile.events() if event.device_type == device)

    def step(self, shape: Sequence[Any]) -> float | None:
        """Time a training step: pure bf16, eager, fused AdamW."""
        torch = self._torch
        model = _model(torch, shape, self._kind)
        adam = torch.optim.AdamW(model.parameters(), **({"fused": True} if self.large else {}))
        tokens, labels = torch.randint(0, shape[6], (2, shape[8], shape[7]), device=self._kind)

        def run() -> None:
            adam.zero_grad(set_to_none=False)
            model(tokens, labels).backward()
            adam.step()

        for _ in range(WARM):
            run()
        self._wait()
        return self._timed(run, STEPS)

    # --------------------------------------------------------------------------------------------------- timing

    def _queued(self, run: Callable[[], Any]) -> float:
        """Return the mean of queued calls, as many as take `LEAST_S` together."""
        for _ in range(WARM):
            run()
        self._wait()
        once = max(self._timed(run, 2), 1e-7)
        return self._timed(run, int(min(MOST, max(WARM, LEAST_S / once))))

    def _timed(self, run: Callable[[], Any], calls: int) -> float:
        """Return the seconds of one of so many calls, on the device where there is one."""
        if not self.large:
            start = perf_counter()
            for _ in range(calls):
                run()
            return (perf_counter() - start) / calls
        first, last = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(calls):
            run()
        last.record()
        self._wait()
        return float(first.elapsed_time(last)) * 1e-3 / calls

    def _wait(self) -> None:
        if self.large:
            self._torch.cuda.synchronize()

    def _random(self, *shape: int) -> Any:
        return self._torch.randn(*shape, device=self._kind, dtype=self._torch.bfloat16)


def _model(torch: Any, shape: Sequence[Any], kind: str) -> Any:
    """Return a model in the style of the carried rows of one GPU: an untied head, no dropout."""
    style, layers, hidden, heads, kv_heads, ffn, vocab, tokens, _ = shape
    nn, functional = torch.nn, torch.nn.functional
    llama = style == "llama"
    tensor_options = {"device": kind, "dtype": torch.bfloat16}
    norm = nn.RMSNorm if llama else nn.LayerNorm
    width = hidden // heads

    def rotated(x: Any, cos: Any, sin: Any) -> Any:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    class Layer(nn.Module):  # type: ignore[misc,name-defined]  # its base is known at run time
        """A layer of either style."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = norm(hidden, **tensor_options), norm(hidden, **tensor_options)
            sizes = (hidden, kv_heads * width, kv_heads * width)
            if llama:
                self.q, self.k, self.v = (nn.Linear(hidden, size, bias=False, **tensor_options) for size in sizes)
                self.gate = nn.Linear(hidden, ffn, bias=False, **tensor_options)
                self.cos, self.sin = torch.rand(2, tokens, width, **tensor_options)
            else:
                self.qkv = nn.Linear(hidden, 3 * hidden, **tensor_options)
            self.out = nn.Linear(hidden, hidden, bias=not llama, **tensor_options)
            self.up = nn.Linear(hidden, ffn, bias=not llama, **tensor_options)
            self.down = nn.Linear(ffn, hidden, bias=not llama, **tensor_options)

        def forward(self, x: Any) -> Any:
            batch = x.shape[0]
            h = self.first(x)
            if llama:
                q, k, v = (f(h).view(batch, tokens, -1, width).transpose(1, 2) for f in (self.q, self.k, self.v))
                q, k = rotated(q, self.cos, self.sin), rotated(k, self.cos, self.sin)
            else:
                q, k, v = self.qkv(h).view(batch, tokens, 3, heads, width).permute(2, 0, 3, 1, 4)
            options = {"is_causal": True, **({"enable_gqa": True} if heads != kv_heads else {})}
            a = functional.scaled_dot_product_attention(q, k, v, **options)
            x = x + self.out(a.transpose(1, 2).reshape(batch, tokens, hidden))
            h = self.second(x)
            inner = functional.silu(self.gate(h)) * self.up(h) if llama else functional.gelu(self.up(h))
            return x + self.down(inner)

    class Model(nn.Module):  # type: ignore[misc,name-defined]
        """Embedding, layers, head and loss."""

        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(vocab, hidden, **tensor_options)
            self.place = None if llama else nn.Embedding(tokens, hidden, **tensor_options)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.norm = norm(hidden, **tensor_options)
            self.head = nn.Linear(hidden, vocab, bias=False, **tensor_options)

        def forward(self, given: Any, labels: Any) -> Any:
            x = self.embed(given)
            if self.place is not None:
                x = x + self.place.weight
            for layer in self.layers:
                x = layer(x)
            return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())

    return Model()
