"""Fit attention, streaming kernels and host copies of one H200; write them into the catalog, print the residuals.

    python calibration/fit_kernels.py

Data: `h200_*.csv` of the package (`cosmic.accuracy.rows`): one H200 (4.8 TB/s, 989 TFLOP/s in bf16), PyTorch 2.11,
attention by `scaled_dot_product_attention` (cuDNN's kernels), measured by us. Each kernel was timed alone on an idle
GPU, so the figures contain the host's launch time: each set has a fitted offset, which belongs to the measurement, not
to the kernel. Kernel times from the trace of one training step (4 layers, hidden 1024, batch 4 x 1024) have no such
offset and are fitted too (`TRACE_S`).

Errors are relative, predicted over measured; "unseen" is five-fold cross-validation. The constants in
``catalog/constants`` (attention, streaming) were chosen on the same data; the script does not refit them.

The script also predicts forward and backward passes of whole training steps and fits only the rate of their GEMMs. The
table's passes of rope and loss come from these very steps: this checks that kernels add up, it is no prediction. For
launch-bound steps, much longer than their kernels, it prints the time of each launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from fit_gemm import write_entry, write_offsets
from scipy.optimize import least_squares

from cosmic.accuracy.measured_rows import CARRIED, read_rows
from cosmic.design.machine_layers import accelerator_layers
from cosmic.step.attention import (
    Attention,
    AttentionRates,
    attention_backward_seconds,
    attention_seconds,
    decode_attention_seconds,
)
from cosmic.step.streaming import PassPhase, Stream, memory_traffic, optimizer_seconds, streaming_seconds

PEAK_FLOP_PER_S, BANDWIDTH_BYTES_PER_S = 989e12, 4.8e12
TRACE_S = {"attention": 33.8e-6, "attention_backward": 105.2e-6}
"""4 sequences, 16 heads of 64, 1024 tokens, causal; backward: 9.0 + 86 + 8.8 us of kernels and the gaps between."""
LAUNCHES = {("gpt", "fwd_ms"): 10, ("gpt", "bwd_ms"): 23, ("llama", "fwd_ms"): 24, ("llama", "bwd_ms"): 47}
"""Kernels of one layer; GPT's as in the trace, LLaMA's counted: rope takes 10 forward and 18 backward."""
Columns = dict[str, Any]
Model = Callable[[Any], Any]


def load(name: str) -> Columns:
    """Return the columns of a data file, as floats where they are numbers."""
    rows = read_rows(CARRIED / f"h200_{name}.csv")[1]
    columns: Columns = {}
    for key in rows[0]:
        values = np.array([row[key] for row in rows])
        try:
            columns[key] = values.astype(float)
        except ValueError:
            columns[key] = values
    return columns


def fitted(model: Model, measured: Any, start: list[float], sigma: Any, rows: Any = None) -> Any:
    """Return the positive parameters that fit *model* to *measured* best, relative to *sigma*, robustly."""
    rows = slice(None) if rows is None else rows

    def residual(logs: Any) -> Any:
        return (np.log(model(np.exp(logs)) / measured) / sigma)[rows]

    return np.exp(least_squares(residual, np.log(start), loss="soft_l1").x)


def unseen(model: Model, measured: Any, start: list[float], sigma: Any) -> Any:
    """Return each row's error under a fit to the other four of five folds."""
    order = np.random.default_rng(0).permutation(len(measured))
    errors = np.zeros(len(measured))
    for fold in range(5):
        out = order[fold::5]
        found = fitted(model, measured, start, sigma, np.setdiff1d(order, out))
        errors[out] = (model(found) / measured - 1)[out]
    return errors


def show(name: str, errors: Any) -> None:
    """Print one line about relative errors."""
    size = np.abs(errors)
    worst = errors[size.argmax()]
    print(
        f"  {name:44} n {len(errors):3}  mean {size.mean():5.1%}  median {np.median(size):5.1%}"
        f"  worst {worst:+6.1%}  bias {errors.mean():+5.1%}"
    )


def fit_attention() -> tuple[AttentionRates, dict[str, float]]:
    """Fit forward and backward efficiency, ramp, and the offsets of both measurements; return rates and offsets."""
    data = load("attention")
    added = {"batch": 4, "heads": 16, "kv_heads": 16, "seq": 1024, "head_dim": 64, "causal": 1}
    rows = {key: np.append(data[key], value) for key, value in added.items()}
    sequence, width = rows["seq"], rows["head_dim"]
    visible = np.where(rows["causal"] == 1, (sequence + 1) / (2 * sequence), 1.0)
    work = Attention(rows["batch"], rows["heads"], rows["kv_heads"], sequence, sequence, width, width, visible)
    alone = np.append(np.ones(len(data["seq"])), 0)
    forward = np.append(data["fwd_ms"] * 1e-3, TRACE_S["attention"])
    backward = np.append(data["bwd_ms"] * 1e-3, TRACE_S["attention_backward"])
    measured = np.append(forward, backward)
    offset_sigma_s = np.append(10e-6 * alone, 20e-6 * alone)
    sigma = np.hypot(0.05, offset_sigma_s / measured)

    def rates(found: Any) -> AttentionRates:
        return AttentionRates(PEAK_FLOP_PER_S, 0.9 * BANDWIDTH_BYTES_PER_S, found[0], found[1], found[2] * 1e-6)

    def model(found: Any) -> Any:
        ahead = attention_seconds(work, rates(found)) + alone * found[3] * 1e-6
        back = attention_backward_seconds(work, rates(found)) + alone * found[4] * 1e-6
        return np.append(ahead, back)

    start = [0.7, 0.6, 2.0, 30.0, 80.0]
    found = fitted(model, measured, start, sigma)
    errors, left_out = model(found) / measured - 1, unseen(model, measured, start, sigma)
    count = len(forward)
    print("attention")
    print(f"  efficiency {found[0]:.3f}, backward {found[1]:.3f}, ramp {found[2]:.2f} us")
    print(f"  offsets of the measurement: {found[3]:.0f} us forward, {found[4]:.0f} us backward")
    for name, part in (("forward", slice(count)), ("backward", slice(count, None))):
        show(name, errors[part])
        show(f"{name}, unseen", left_out[part])
    long = measured > 150e-6
    show("of more than 150 us", errors[long])
    print(f"  in the trace: forward {errors[count - 1]:+.1%}, backward {errors[-1]:+.1%}")
    offsets = {"attention_forward": found[3], "attention_backward": found[4]}
    return rates(found), {name: float(f"{value:.0f}e-6") for name, value in offsets.items()}


def fit_streaming() -> tuple[Stream, dict[str, float]]:
    """Fit the copy's share of the bandwidth, the ramp, the offset, and each operator's pace; return both."""
    data = load("memory_ops")
    names = [name for name in dict.fromkeys(data["op"]) if "pinned" not in name and "adamw" not in name]
    kept = np.isin(data["op"], names)
    moved, measured = data["bytes"][kept], data["ms"][kept] * 1e-3
    kind = np.array([names.index(name) for name in data["op"][kept]])
    kernels = np.where(data["op"][kept] == "cross_entropy", 5, 1)

    def model(found: Any) -> Any:
        rate = BANDWIDTH_BYTES_PER_S * found[kind]
        return (moved + kernels * found[-2] * 1e6) / rate + found[-1] * 1e-6

    start = [0.6] * len(names) + [15.0, 8.0]
    sigma = np.hypot(0.07, 3e-6 / measured)
    found = fitted(model, measured, start, sigma)
    errors, left_out = model(found) / measured - 1, unseen(model, measured, start, sigma)
    print("streaming kernels, bytes as each tensor moved once (cross_entropy: 7 times its logits, both phases)")
    copy = found[names.index("copy")]
    print(f"  copy reaches {copy:.3f} of the bandwidth, ramp {found[-2]:.1f} MB, offset {found[-1]:.1f} us")
    for place, name in enumerate(names):
        print(f"  {name:14} pace {found[place] / copy:.2f}")
    large = moved >= 64e6
    for name, part in (("64 MB and more", large), ("less", ~large)):
        show(name, errors[part])
        show(f"{name}, unseen", left_out[part])
    for place, name in enumerate(names):
        show(f"{name}, 64 MB and more", errors[large & (kind == place)])
    stream = Stream(0.9 * BANDWIDTH_BYTES_PER_S, found[-2] * 1e6, 1.5e-6)
    return stream, {"streaming": float(f"{found[-1]:.1f}e-6")}


def fit_transfers() -> None:
    """Fit rate and latency of copies between pinned host memory and the GPU."""
    data = load("memory_ops")
    kept = np.char.endswith(data["op"], "pinned")
    moved, measured = data["bytes"][kept], data["ms"][kept] * 1e-3
    found = fitted(lambda p: moved / (p[0] * 1e9) + p[1] * 1e-6, measured, [50.0, 5.0], 0.05)
    print(f"copies to and from pinned host memory: {found[0]:.1f} GB/s after {found[1]:.1f} us")
    show("all", moved / (found[0] * 1e9) / measured + found[1] * 1e-6 / measured - 1)


def check_optimizer(stream: Stream) -> None:
    """Compare the optimizer with training steps."""
    data = load("training")
    measured = data["opt_ms"] * 1e-3
    predicted = optimizer_seconds(data["params"], 14, stream)
    print("fused AdamW in training steps, 14 bytes a parameter")
    show("all", predicted / measured - 1)
    print(f"  pace that would leave no bias: {np.median(data['params'] * 14 / stream.bytes_per_s / measured):.3f}")


def check_decode(attention: AttentionRates) -> None:
    """Compare what a longer context adds to a decode step with the time to read its KV cache, at equal batch size."""
    data = load("inference")
    print("decode: what a longer context adds, per layer")
    keys = ("layers", "hidden", "batch")
    decode = [i for i, phase in enumerate(data["phase"]) if phase == "decode"]
    for short in decode:
        for long in decode:
            same = all(data[key][short] == data[key][long] for key in keys)
            if same and data["context"][short] < data["context"][long]:
                heads, kv = data["heads"][long], data["kv_heads"][long]
                width = data["hidden"][long] / heads
                more = data["context"][long] - data["context"][short]
                work = Attention(data["batch"][long], heads, kv, 1, more, width, width)
                predicted = (
                    decode_attention_seconds(work, replace(attention, splits_keys=heads == kv)) - attention.ramp_s
                )
                measured = (data["ms"][long] - data["ms"][short]) * 1e-3 / data["layers"][long]
                print(
                    f"  heads {heads:.0f}/{kv:.0f} batch {work.batch:3.0f} keys +{more:5.0f}:"
                    f" {measured * 1e6:6.1f} us, predicted {predicted * 1e6:6.1f}"
                )


def check_steps(attention: AttentionRates, stream: Stream) -> None:
    """Predict forward and backward passes of training steps; fit only the rate of GEMMs in each.

    Recomputation stops before a layer's last GEMM and sum, as PyTorch's checkpoints stop early: the backward pass
    reads nothing after them.
    """
    data = load("training")
    style = data["style"]
    llama, vision, again = style == "llama", style == "vit", data["recompute"] == 1
    layers, hidden, ffn, vocab = data["layers"], data["hidden"], data["ffn"], data["vocab"]
    tokens, sequence = data["micro_batch"] * data["seq"], data["seq"]
    width = hidden / data["heads"]
    kv = data["kv_heads"] * width
    visible = np.where(vision, 1.0, (sequence + 1) / (2 * sequence))
    work = Attention(data["micro_batch"], data["heads"], data["kv_heads"], sequence, sequence, width, width, visible)

    def streamed(kind: str, phase: PassPhase, elements: Any) -> Any:
        return streaming_seconds(memory_traffic(kind, phase), elements, 2, stream)

    def layer(phase: PassPhase) -> Any:
        wide, narrow = tokens * ffn, tokens * hidden
        common = 2 * streamed("norm", phase, narrow) + 2 * streamed("add", phase, narrow)
        gated = streamed("silu", phase, wide) + streamed("multiply", phase, wide) + 3 * streamed("fan", phase, narrow)
        plain = streamed("gelu", phase, wide) + streamed("bias", phase, wide) + streamed("bias", phase, 5 * narrow)
        gated = gated + streamed("rope", phase, tokens * (hidden + kv))
        return common + np.where(llama, gated, plain + streamed("join", phase, 3 * narrow))

    inside = np.where(llama, 2 * hidden * (hidden + kv) + 3 * hidden * ffn, 4 * hidden**2 + 2 * hidden * ffn)
    head_flop, layer_flop = 2 * tokens * hidden * vocab, 2 * tokens * layers * inside
    ahead = layers * (layer("forward") + attention_seconds(work, attention))
    repeated = ahead - layers * streamed("add", "forward", tokens * hidden)
    back = layers * (layer("backward") + attention_backward_seconds(work, attention)) + again * repeated
    repeated_flop = 2 * tokens * layers * (inside - hidden * ffn)
    cases = {
        "fwd_ms": (ahead + streamed("loss", "forward", tokens * vocab), head_flop + layer_flop, 25e-3),
        "bwd_ms": (
            back + streamed("loss", "backward", tokens * vocab),
            2 * (head_flop + layer_flop) + again * repeated_flop,
            50e-3,
        ),
    }
    print("training steps, one rate of GEMMs for all")
    for key, (rest, flop, least) in cases.items():
        measured = data[key] * 1e-3
        sigma = np.where(measured > least, 0.05, 1e3)  # shorter ones are launch-bound
        start = [600.0]

        def model(found: Any, rest: Any = rest, flop: Any = flop) -> Any:
            return rest + flop / (found[0] * 1e12)

        found = fitted(model, measured, start, sigma)
        errors = model(found) / measured - 1
        print(f"  {key[:3]}: GEMMs at {found[0]:.0f} TFLOP/s")
        show(f"{key[:3]} of {least * 1e3:.0f} ms and more", errors[measured > least])
        show(f"{key[:3]}, shorter", errors[measured <= least])
        show_host(data, key, measured, errors)


def show_host(data: Columns, key: str, measured: Any, errors: Any) -> None:
    """Print the most that a launch took, in steps whose kernels account for less than 85 % of their time."""
    for row in np.flatnonzero(errors < -0.15):
        style, again = str(data["style"][row]), int(data["recompute"][row])
        family = "llama" if style == "llama" else "gpt"
        launches = LAUNCHES[family, key] + (LAUNCHES[family, "fwd_ms"] * again if key == "bwd_ms" else 0)
        each_s = measured[row] / (data["layers"][row] * launches)
        print(
            f"    {style:5} {data['layers'][row]:.0f} x {data['hidden'][row]:.0f} recompute {again}: kernels"
            f" {1 + errors[row]:.0%} of {measured[row] * 1e3:.1f} ms, at most {each_s * 1e6:.0f} us for each launch"
        )


FAMILIES = {
    "Hopper": (("h100-sxm-80gb", "h100-pcie-80gb", "h200-sxm-141gb", "h800-sxm-80gb", "gh200-96gb"), None),
    "Ampere and Volta": (("a100-sxm-80gb", "a100-sxm-40gb", "a100-pcie-80gb", "l40s", "v100-sxm2-32gb"), (0.70, 0.60)),
    "Blackwell": (("b200-sxm-180gb", "b300-sxm", "gb200", "gb300", "rubin-vr200"), (0.58, 0.45)),
    "CDNA": (("mi250x", "mi300x", "mi325x", "mi355x"), (0.40, 0.30)),
}
"""Shares of the peak that attention reaches, forward and backward, where not fitted. A100: Dao, FlashAttention-2 (ICLR
2024), at best 72 % and 63 % with head dimension 128. B200 and MI300X: estimates from libraries' release notes."""
OWN = "h200-sxm-141gb"
OLDER = ("a100-sxm-80gb", "a100-sxm-40gb", "a100-pcie-80gb", "v100-sxm2-32gb")
HOST_LAUNCH = dict.fromkeys(OLDER, "30 us")
"""Time to launch a kernel on the A100 hosts on which vTrain measured 424 small models. Elsewhere `USUAL_LAUNCH`,
chosen between estimates of 22 to 46 us for hosts of our H200."""
USUAL_LAUNCH = "25 us"


def write(attention: AttentionRates, stream: Stream) -> None:
    """Write what was found into the catalog. Kernels need the same time to start on every accelerator."""
    ramp_s = stream.ramp_bytes / stream.bytes_per_s
    share = float(stream.bytes_per_s) / BANDWIDTH_BYTES_PER_S
    for family, (names, stated_shares) in FAMILIES.items():
        ahead, back = stated_shares or (float(attention.efficiency), float(attention.backward_efficiency))
        for name in names:
            _, memory = accelerator_layers(name, "accelerator")
            fields = {
                "attention_efficiency": f"{ahead:.3g}",
                "attention_backward_efficiency": f"{back:.3g}",
                "attention_ramp": f"{1e6 * float(attention.ramp_s):.2g} us",
                "memory_efficiency": f"{share:.2g}",
                "stream_ramp": f"{ramp_s * share * memory.bandwidth_bytes_per_s / 1e6:.2g} MB",
                "host_launch": HOST_LAUNCH.get(name, USUAL_LAUNCH),
            }
            own = name == OWN
            text = "fitted by calibration/fit_kernels.py on our own kernels"
            other = f"as on the H200; attention shares as on {family}: not measured"
            write_entry(name, fields, {"kernels": text if own else other}, "kernels")


def main() -> None:
    """Fit and check everything."""
    attention, attention_offsets = fit_attention()
    stream, streaming_offset = fit_streaming()
    write(attention, stream)
    write_offsets(attention_offsets | streaming_offset)
    fit_transfers()
    check_optimizer(stream)
    check_decode(attention)
    check_steps(attention, stream)


if __name__ == "__main__":
    main()
