"""Measure what a serving engine achieves on one GPU: steps of all kinds, and loads of clients.

python calibration/measure_serving.py FOLDER [SECONDS] [MODEL ...]

Needs PyTorch, Triton and CUDA; the engine is `serving_engine.py`, with random weights in bf16. Stops after so many
SECONDS, with what it has. Into FOLDER go:

    steps.csv     median milliseconds of decode, prefill and mixed steps: on the device alone, and with the host
    requests.csv  arrival, first token and end of each request of each load
    loop.csv      each step of each load: what it computed, its time on the device and with the host
    kernels.csv   kernels of some steps, by the profiler

A load is closed (each of so many clients sends a request as soon as its last one ends) or open (Poisson arrivals). Two
schedulers: `chunked` decodes first, and fills each step with chunks of prompts up to its tokens, as vLLM does; `whole`
computes whole prompts first, up to the step's tokens, and decodes otherwise, as SGLang does.
"""

from __future__ import annotations

import csv
import gc
import sys
import time
import traceback
from collections import deque
from dataclasses import astuple, fields
from pathlib import Path

import numpy as np
import torch
from serving_engine import CUDA, DEVICE, DTYPE, PAGE, TILE, TUNED_EXPERTS, TUNED_PREFILL, Engine, Model, Request
from serving_points import (
    BATCHES,
    DECODES,
    FOLLOWING,
    LOADS,
    LONGEST,
    MIXED,
    PREFILLS,
    SEQUENCES,
    SIZES,
    TINY,
    Load,
)
from torch.profiler import ProfilerActivity, profile


class Runner:
    """An engine of a model, with what was measured of it."""

    def __init__(self, name: str, folder: Path, batches: list[int]) -> None:
        self.name, self.folder, sizes = name, folder, SIZES[name]
        torch.manual_seed(1)
        weights = sizes.layers * sizes.hidden * (
            2 * (sizes.heads + sizes.kv_heads) * sizes.head_dim + 3 * max(sizes.experts, 1) * sizes.ffn
        ) + 2 * sizes.vocab * sizes.hidden  # fmt: skip
        token = 2 * 2 * sizes.layers * sizes.kv_heads * sizes.head_dim
        room = (torch.cuda.mem_get_info()[0] - 2 * weights - 16e9) if CUDA else 1e8
        pages = int(min(room / (token * PAGE), 600_000 / PAGE))
        longest = LONGEST if CUDA else 256
        self.model = Model(sizes, pages, SEQUENCES, longest)
        self.engine = Engine(self.model, SEQUENCES, pages, batches)
        self.pages = pages

    def log(self, file: str, rows: list[tuple]) -> None:
        with (self.folder / file).open("a", newline="") as out:
            csv.writer(out).writerows(rows)

    def check(self) -> tuple[float, float]:
        """Return how far a token's state by decode, alone and beside a prompt, is from that of one prefill."""
        engine, count = self.engine, 150
        held = self._hold(3, count)
        one, two, other = (each.slot for each in held)
        period = 7919 * abs(two - one)
        text = engine.pool
        engine.pool = text[:period].repeat(-(-(1 << 16) // period))[: 1 << 16].contiguous()  # prompts alike
        engine.mixed((), [(one, 0, count, True)])
        wanted = engine.found[-1].float()
        engine.mixed((), [(two, 0, 64, False)])
        engine.mixed((one,), [(two, 64, count - 1 - 64, True)])
        engine.last[two] = engine.pool[(count - 1 + 7919 * two) % (1 << 16)]
        slots = torch.tensor([two], device=DEVICE)
        alone = self.model.hidden(engine.last[slots], engine.lengths[slots], slots, None)[-1].float()
        engine.mixed((two,), [(other, 0, 40, False)])
        beside = engine.found[0].float()
        engine.pool = text  # else all requests would have the same tokens, and the same experts
        self._drop(held)
        return tuple(float((each - wanted).norm() / wanted.norm()) for each in (alone, beside))

    # ---------------------------------------------------------------- single steps
    def steps(self, until: float) -> None:
        """Time all single steps, as many as there is time for."""
        asked = [("decode", batch, context, 0, 0, 0) for batch, context in DECODES]
        asked += [("prefill", 0, 0, count, tokens, 0) for count, tokens in PREFILLS]
        asked += [("prefill", 0, 0, 1, tokens, past) for tokens, past in FOLLOWING]
        asked += [("mixed", batch, context, 1, tokens, 0) for batch, context, tokens in MIXED]
        for each in asked:
            if time.perf_counter() < until:
                self._timed(*each)

    def _prepared(self, batch: int, context: int, prompts: int, tokens: int, past: int):
        """Return the requests of a step, and what runs it."""
        decoding, filling = self._hold(batch, context), self._hold(prompts, past + tokens)
        slots = tuple(each.slot for each in decoding)
        for slot in slots:
            self.engine.lengths[slot] = context
        chunks = [(each.slot, past, tokens, True) for each in filling]
        return decoding + filling, lambda: self.engine.mixed(slots, chunks) if chunks else self.engine.decode(slots)

    def _hold(self, count: int, tokens: int) -> list[Request]:
        held = [Request(0, 0.0, tokens, 64) for _ in range(count)]
        if not all(self.engine.admit(each) for each in held):
            raise MemoryError(f"{count} sequences of {tokens} tokens do not fit")
        return held

    def _drop(self, held: list[Request]) -> None:
        for each in held:
            self.engine.release(each)

    def _timed(self, kind: str, batch: int, context: int, prompts: int, tokens: int, past: int) -> None:
        """Log the median of a step on the device, and with the host."""
        if batch * (context + 64) >= self.pages * PAGE:
            return
        held, step = self._prepared(batch, context, prompts, tokens, past)
        for _ in range(2):
            step()
        walls, devices = [], []
        for _ in range(5 if prompts else 12):
            torch.cuda.synchronize()
            began = time.perf_counter()
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            step()
            b.record()
            b.synchronize()
            walls.append(1e3 * (time.perf_counter() - began))
            devices.append(a.elapsed_time(b))
        self._drop(held)
        sizes = (batch, context, max(prompts, 1), max(prompts, 1) * tokens, past)
        row = (self.name, kind, *sizes, f"{np.median(devices):.4f}", f"{np.median(walls):.4f}")
        self.log("steps.csv", [row])
        print(*row, flush=True)

    def kernels(self, label: str, step) -> None:
        """Log the kernels of a step, by name."""
        step()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            step()
            torch.cuda.synchronize()
        rows: dict[str, list[float]] = {}
        for event in found.events():
            if event.device_type == torch.autograd.DeviceType.CUDA:
                rows.setdefault(event.name, []).append(event.device_time)
        self.log("kernels.csv", [(self.name, label, n[:120], len(t), f"{sum(t):.2f}") for n, t in rows.items()])

    def profiled(self) -> None:
        """Log the kernels of a few steps."""
        asked = [(batch, 2048, 0, 0, 0) for batch in (1, 32, 128)]
        asked += [(0, 0, 1, tokens, past) for tokens, past in ((128, 0), (1024, 0), (4096, 0), (2048, 6144))]
        for batch, context, prompts, tokens, past in asked:
            held, step = self._prepared(batch, context, prompts, tokens, past)
            self.kernels(f"prefill {tokens} after {past}" if prompts else f"decode {batch}x{context}", step)
            self._drop(held)

    # ---------------------------------------------------------------- loads
    def serve(self, number: int, load: Load) -> list[Request]:
        """Serve a load; log its requests and steps."""
        random = np.random.default_rng(number)
        lengths = [
            random.integers(round(n * (1 - load.spread)), round(n * (1 + load.spread)), load.requests, endpoint=True)
            for n in (load.isl, load.osl)
        ]
        arrivals = np.cumsum(random.exponential(1 / load.rate, load.requests)) if load.rate else np.zeros(load.requests)
        todo = deque(
            Request(i, float(a), int(n), int(m)) for i, (a, n, m) in enumerate(zip(arrivals, *lengths, strict=True))
        )
        waiting: deque[Request] = deque()
        running: list[Request] = []
        ended: list[Request] = []
        log: list[tuple] = []
        if not load.rate:
            waiting.extend(todo.popleft() for _ in range(min(load.concurrency, len(todo))))
        schedule = chunked if load.scheduler == "chunked" else whole
        gc.collect()
        gc.disable()
        begin = last = time.perf_counter()
        while len(ended) < load.requests:
            now = time.perf_counter() - begin
            while load.rate and todo and todo[0].arrival <= now:
                waiting.append(todo.popleft())
            if not running and not waiting:
                last = time.perf_counter()
                continue
            decoding, chunks = schedule(self.engine, load, waiting, running)
            took = self._step(decoding, chunks)
            end = time.perf_counter()
            context = sum(each.inputs + each.made for each in decoding)
            past = sum(each.done for each, _ in chunks)
            for each, count in chunks:
                each.done += count
                if each.done == each.inputs:
                    each.made, each.first = 1, end - begin
            for each in decoding:
                each.made += 1
            for each in [each for each in running if each.made >= each.outputs]:
                each.finish = end - begin
                running.remove(each)
                ended.append(each)
                self.engine.release(each)
                if not load.rate and todo:
                    todo[0].arrival = end - begin
                    waiting.append(todo.popleft())
            tokens = sum(count for _, count in chunks)
            log.append(
                (number, len(decoding), context, len(chunks), tokens, past, f"{took:.4f}", f"{1e3 * (end - last):.4f}")
            )
            last = end
        gc.enable()
        self.log("loop.csv", log)
        times = [(each, *(f"{at:.6f}" for at in (each.arrival, each.first, each.finish))) for each in ended]
        self.log("requests.csv", [(number, e.number, e.inputs, e.outputs, *seen) for e, *seen in times])
        return ended

    def _step(self, decoding: list[Request], chunks: list[tuple[Request, int]]) -> float:
        """Run a step to its end; return its milliseconds on the device."""
        slots = tuple(each.slot for each in decoding)
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2)) if CUDA else (None, None)
        if CUDA:
            a.record()
        if chunks:
            self.engine.mixed(
                slots, [(each.slot, each.done, count, each.done + count == each.inputs) for each, count in chunks]
            )
        else:
            self.engine.decode(slots)
        if not CUDA:
            return 0.0
        b.record()
        b.synchronize()
        return a.elapsed_time(b)


def chunked(engine: Engine, load: Load, waiting, running):
    """Decode first, then chunks of prompts, the oldest first, in what is left of a step's tokens."""
    decoding = [each for each in running if each.done == each.inputs]
    left = load.step_tokens - len(decoding)
    chunks = []
    for each in running:
        if each.done < each.inputs and left > 0:
            chunks.append((each, min(each.inputs - each.done, left)))
            left -= chunks[-1][1]
    while waiting and left > 0 and len(running) < load.sequences and engine.admit(waiting[0]):
        each = waiting.popleft()
        running.append(each)
        chunks.append((each, min(each.inputs, left)))
        left -= chunks[-1][1]
    return decoding, chunks


def whole(engine: Engine, load: Load, waiting, running):
    """Whole prompts first, as many as a step's tokens hold, at least one; decode if none waits."""
    left, chunks = load.step_tokens, []
    while waiting and len(running) < load.sequences and (waiting[0].inputs <= left or not chunks):
        if not engine.admit(waiting[0]):
            break
        each = waiting.popleft()
        running.append(each)
        chunks.append((each, each.inputs))
        left -= each.inputs
    return ([], chunks) if chunks else (list(running), [])


def summary(load: Load, done: list[Request]) -> str:
    ttft = [1e3 * (e.first - e.arrival) for e in done]
    tpot = [1e3 * (e.finish - e.first) / (e.outputs - 1) for e in done]
    rate = sum(e.outputs for e in done) / max(e.finish for e in done)
    seen = f"ttft {np.mean(ttft):.2f} p95 {np.percentile(ttft, 95):.2f} tpot {np.mean(tpot):.3f} tokens/s {rate:.1f}"
    return f"{load} {seen}"


def tune(runner: Runner) -> None:
    """Choose the tile of the prefill kernel: the least time over two prompts."""
    model, best = runner.model, {}
    s = model.sizes
    for block, warps, stages in ((64, 8, 3), (128, 8, 2), (64, 4, 3), (64, 4, 2)):
        TUNED_PREFILL.update(block=block, warps=warps, stages=stages)
        times = []
        for tokens, past in ((1024, 0), (4096, 0), (2048, 6144)):
            held = runner._hold(1, tokens + past)
            tiles = [(at, min(TILE, tokens - at), past + at, held[0].slot) for at in range(0, tokens, TILE)]
            tiles = torch.tensor(np.ravel(tiles[::-1]), device=DEVICE)
            qkv = torch.randn(tokens, (s.heads + 2 * s.kv_heads) * s.head_dim, device=DEVICE, dtype=DTYPE)
            out = torch.empty(tokens, s.heads * s.head_dim, device=DEVICE, dtype=DTYPE)
            found = []
            for _ in range(5):
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                a.record()
                for number in range(8):
                    model.prefill_attention(qkv, tiles, number, out)
                b.record()
                b.synchronize()
                found.append(a.elapsed_time(b) / 8)
            flop = 4 * s.heads * s.head_dim * tokens * (past + tokens / 2)
            times.append(min(found))
            print("tile", block, warps, stages, tokens, past, f"{flop / min(found) / 1e9:.0f} TFLOP/s", flush=True)
            runner._drop(held)
        best[block, warps, stages] = float(np.prod(times))
    block, warps, stages = min(best, key=best.get)
    TUNED_PREFILL.update(block=block, warps=warps, stages=stages)
    print("chosen", TUNED_PREFILL, flush=True)


def tune_experts(runner: Runner) -> None:
    """Choose the tile of experts in a decode step: the least time over two batches."""
    model, best = runner.model, {}
    for tile in ((64, 128, 4, 4), (64, 64, 4, 5), (128, 64, 4, 4), (32, 256, 4, 3), (64, 256, 4, 3)):
        TUNED_EXPERTS[:] = tile
        times = []
        for batch in (4, 32):
            x = torch.randn(batch, model.sizes.hidden, device=DEVICE, dtype=DTYPE)

            def run(x=x):
                model.counts.zero_()
                for number in range(16):
                    model._experts(x, model.layers[number], number)

            run()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                run()
            found = []
            for _ in range(4):
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                a.record()
                graph.replay()
                b.record()
                b.synchronize()
                found.append(a.elapsed_time(b) / 16)
            times.append(min(found))
        print("experts", *tile, *(f"{1e3 * t:.1f} us" for t in times), flush=True)
        best[tile] = float(np.prod(times))
    TUNED_EXPERTS[:] = min(best, key=best.get)
    print("chosen", TUNED_EXPERTS, flush=True)


HEADERS = {
    "steps.csv": "model,kind,batch,context,prompts,tokens,past,device_ms,ms",
    "requests.csv": "load,request,isl,osl,arrival_s,first_s,finish_s",
    "loop.csv": "load,decodes,context,chunks,tokens,past,device_ms,ms",
    "kernels.csv": "model,step,kernel,count,us",
    "loads.csv": "load," + ",".join(each.name for each in fields(Load)),
}


def measure(name: str, folder: Path, until: float) -> None:
    """Measure all of a model: its steps, then its loads, as many as there is time for."""
    runner = Runner(name, folder, BATCHES)
    print(name, "state differs by", runner.check(), flush=True)
    if CUDA:
        tune(runner)
        if SIZES[name].experts:
            tune_experts(runner)
        runner.engine.capture()
        runner.profiled()
        runner.steps(until)
    for number, load in enumerate(LOADS if CUDA else TINY):
        if load.model == name and time.perf_counter() < until:
            print(number, summary(load, runner.serve(number, load)), flush=True)


def main() -> None:
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 600.0
    until = time.perf_counter() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    for file, header in HEADERS.items():
        (folder / file).write_text(header + "\n")
    with (folder / "loads.csv").open("a", newline="") as out:
        csv.writer(out).writerows((i, *astuple(load)) for i, load in enumerate(LOADS if CUDA else TINY))
    for name in sys.argv[3:] or ["llama3-8b", "llama3.2-3b", "qwen3-30b-a3b"]:
        try:
            measure(name, folder, until)
        except Exception:  # the other models are worth measuring
            traceback.print_exc()
        gc.collect()
        if CUDA:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
