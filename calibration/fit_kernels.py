"""Fit what one H200 reaches in attention, in streaming kernels and in the optimizer; print it with what is left.

    python calibration/fit_kernels.py

Data, `h200_*.csv` of those that the package carries (`cosmic.validation`): one H200 (4.8 TB/s, 989 Tflop/s in bf16),
PyTorch 2.11, attention by `scaled_dot_product_attention` (cuDNN's kernels), measured by us. Each kernel was timed
alone, from an idle device, so that the host's time until the launch is in the figure: an offset is fitted for each set
and belongs to the measurement, not to the kernel. Kernel times of the trace of one training step (4 layers, hidden
1024, batch 4 x 1024) have no such offset and are fitted along; they are in `TRACE_S`.

Errors are relative, predicted over measured; "unseen" is five-fold cross-validation of what is fitted here. The
constants in ``catalog/constants`` (attention, streaming) were settled on the same data by hand; they are not fitted
here.

The script also runs all of it together, as forward and backward passes of whole training steps, with nothing but the
rate of matrix products left to fit. Passes of rope and loss in the table are what these steps take beside their
products, so this shows that the parts add up, not that they were foreseen. Steps that take much longer than their
kernels wait for the host: it prints the time that each launch then took.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fit_gemm import write_entry
from scipy.optimize import least_squares

from cosmic.cost.attention import (
    Attention,
    AttentionRates,
    attention_backward_seconds,
    attention_seconds,
    decode_attention_seconds,
)
from cosmic.cost.streaming import PassPhase, Stream, memory_traffic, optimizer_seconds, streaming_seconds
from cosmic.loading.designs import accelerator_layers
from cosmic.validation.rows import CARRIED, read_rows

PEAK_FLOP_PER_S, BANDWIDTH_BYTES_PER_S = 989e12, 4.8e12
TRACE_S = {"attention": 33.8e-6, "attention_backward": 105.2e-6}
"""4 sequences, 16 heads of 64, 1024 tokens, causal; backward: 9.0 + 86 + 8.8 us of kernels and the gaps between."""
LAUNCHES = {("gpt", "fwd_ms"): 10, ("gpt", "bwd_ms"): 23, ("llama", "fwd_ms"): 24, ("llama", "bwd_ms"): 47}
"""Kernels of one layer; GPT's as in the trace, LLaMA's counted: rope takes 10 forward and 18 backward."""
Columns = dict[str, Any]
Model = Callable[[Any], Any]


def load(name: str) -> Columns:
    """Return the columns of a data file; those that are numbers as floats."""
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
    """Return the positive parameters with which *model* is nearest to *measured*, relative to *sigma*, robustly."""
    rows = slice(None) if rows is None else rows

    def residual(logs: Any) -> Any:
        return (np.log(model(np.exp(logs)) / measured) / sigma)[rows]

    return np.exp(least_squares(residual, np.log(start), loss="soft_l1").x)


def unseen(model: Model, measured: Any, start: list[float], sigma: Any) -> Any:
    """Return the errors of rows that were left out of the fit, in five folds."""
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


def fit_attention() -> AttentionRates:
    """Fit efficiency forward and backward, ramp, and the offsets of both measurements."""
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
    straggler_slack = np.append(10e-6 * alone, 20e-6 * alone)  # of the offsets, in seconds
    sigma = np.hypot(0.05, straggler_slack / measured)

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
    return rates(found)


def fit_streaming() -> Stream:
    """Fit the copy's share of the bandwidth, the ramp, the offset, and the pace of each operator."""
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
    return Stream(0.9 * BANDWIDTH_BYTES_PER_S, found[-2] * 1e6, 1.5e-6)


def fit_transfers() -> None:
    """Fit rate and latency of copies between pinned host memory and the device."""
    data = load("memory_ops")
    kept = np.char.endswith(data["op"], "pinned")
    moved, measured = data["bytes"][kept], data["ms"][kept] * 1e-3
    found = fitted(lambda p: moved / (p[0] * 1e9) + p[1] * 1e-6, measured, [50.0, 5.0], 0.05)
    print(f"copies to and from pinned host memory: {found[0]:.1f} GB/s after {found[1]:.1f} us")
    show("all", moved / (found[0] * 1e9) / measured + found[1] * 1e-6 / measured - 1)


def check_optimizer(stream: Stream) -> None:
    """Compare the optimizer with training steps: nothing is fitted but a constant, the launches."""
    data = load("training")
    measured = data["opt_ms"] * 1e-3
    predicted = optimizer_seconds(data["params"], 14, stream)
    print("fused AdamW in training steps, 14 bytes a parameter")
    show("all", predicted / measured - 1)
    print(f"  pace that would leave no bias: {np.median(data['params'] * 14 / stream.bytes_per_s / measured):.3f}")


def check_decode(attention: AttentionRates) -> None:
    """Compare what a longer context adds to a decoding step, at one batch size, with the time to read its cache."""
    data = load("inference")
    print("decoding: what a longer context adds, per layer")
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
                predicted = decode_attention_seconds(work, attention, split=heads == kv) - attention.ramp_s
                measured = (data["ms"][long] - data["ms"][short]) * 1e-3 / data["layers"][long]
                print(
                    f"  heads {heads:.0f}/{kv:.0f} batch {work.batch:3.0f} keys +{more:5.0f}:"
                    f" {measured * 1e6:6.1f} us, predicted {predicted * 1e6:6.1f}"
                )


def check_steps(attention: AttentionRates, stream: Stream) -> None:
    """Predict forward and backward passes of training steps; fit only the rate of matrix products in each.

    Recomputation stops before a layer's last product and sum: nothing that the backward pass reads comes after
    (PyTorch's checkpoints stop early).
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
    print("training steps, one rate of products for all")
    for key, (rest, flop, least) in cases.items():
        measured = data[key] * 1e-3
        sigma = np.where(measured > least, 0.05, 1e3)  # shorter ones wait for the host
        start = [600.0]

        def model(found: Any, rest: Any = rest, flop: Any = flop) -> Any:
            return rest + flop / (found[0] * 1e12)

        found = fitted(model, measured, start, sigma)
        errors = model(found) / measured - 1
        print(f"  {key[:3]}: products at {found[0]:.0f} Tflop/s")
        show(f"{key[:3]} of {least * 1e3:.0f} ms and more", errors[measured > least])
        show(f"{key[:3]}, shorter", errors[measured <= least])
        show_host(data, key, measured, errors)


def show_host(data: Columns, key: str, measured: Any, errors: Any) -> None:
    """Print what each launch took at most in steps whose kernels account for less than 85 % of their time."""
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
"""Shares of the peak that attention reaches, forward and backward, where it was not fitted: on A100 as Dao,
FlashAttention-2 (ICLR 2024) reports for width 128, 72 % and 63 % at best; on B200 and MI300X an estimate from what
libraries' release notes state."""
OWN = "h200-sxm-141gb"
OLDER = ("a100-sxm-80gb", "a100-sxm-40gb", "a100-pcie-80gb", "v100-sxm2-32gb")
HOST_LAUNCH = {OWN: "28 us"} | dict.fromkeys(OLDER, "44 us")
"""Of the machine on which steps were measured, and of hosts of A100, on which vTrain measured 424 small models;
elsewhere `USUAL_LAUNCH`, which small microbatches of mixtures of experts in Megatron-Bridge ask for."""
USUAL_LAUNCH = "25 us"


def write(attention: AttentionRates, stream: Stream) -> None:
    """Put what was found into the catalog, the times that kernels need to start being the same everywhere."""
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
            other = f"as on the H200; shares of attention are those of {family}: not measured"
            write_entry(name, fields, {"kernels": text if own else other}, "kernels")


def main() -> None:
    """Fit and check everything."""
    attention = fit_attention()
    stream = fit_streaming()
    write(attention, stream)
    fit_transfers()
    check_optimizer(stream)
    check_decode(attention)
    check_steps(attention, stream)


if __name__ == "__main__":
    main()
