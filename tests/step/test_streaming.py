"""Kernels that stream take the time that an H200 took, and fusing them never costs."""

import csv
from typing import Any, get_args

import numpy as np
import pytest

from cosmic.accuracy.measured_rows import carried_files
from cosmic.step.streaming import (
    TRAFFIC,
    MemoryTraffic,
    PassPhase,
    Stream,
    memory_traffic,
    optimizer_bytes_per_parameter,
    optimizer_seconds,
    streaming_seconds,
)
from cosmic.workload.operator_kinds import kinds

DATA = carried_files()[0].parent
H200 = Stream(bytes_per_s=4.32e12, ramp_bytes=9.5e6, launch_s=1.5e-6)
OFFSET_S = 9e-6
"""Until the host launched the kernel: each was timed from an idle device."""
MEASURED = {
    "copy": MemoryTraffic(1, 2),
    "add": memory_traffic("add", "forward"),
    "gelu": memory_traffic("gelu", "forward"),
    "layernorm": memory_traffic("norm", "forward"),
    "rmsnorm": memory_traffic("norm", "forward"),
    "softmax": memory_traffic("softmax", "forward"),
}


def columns(name: str) -> dict[str, Any]:
    with (DATA / f"h200_{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


def errors(data: dict[str, Any], rows: Any, seconds: Any) -> Any:
    return seconds / (data["ms"][rows].astype(float) * 1e-3) - 1


def test_measured_kernels_are_met_within_a_tenth_if_large_and_a_quarter_if_small() -> None:
    data = columns("memory_ops")
    size = data["bytes"].astype(float)
    found = {True: [], False: []}  # type: dict[bool, list[float]]
    for name, moved in MEASURED.items():
        rows = data["op"] == name
        elements = data["rows"][rows].astype(float) * data["cols"][rows].astype(float)
        seconds = streaming_seconds(moved, elements, 2, H200) + OFFSET_S
        for large, error in zip(size[rows] >= 64e6, errors(data, rows, seconds), strict=True):
            found[bool(large)].append(abs(error))

    assert np.mean(found[True]) < 0.10
    assert np.mean(found[False]) < 0.25


def test_both_phases_of_a_loss_are_met() -> None:
    data = columns("memory_ops")
    rows = (data["op"] == "cross_entropy") & (data["bytes"].astype(float) >= 64e6)
    elements = data["rows"][rows].astype(float) * data["cols"][rows].astype(float)
    both = sum(streaming_seconds(memory_traffic("loss", phase), elements, 2, H200) for phase in get_args(PassPhase))

    assert np.abs(errors(data, rows, both + OFFSET_S)).mean() < 0.15


@pytest.mark.parametrize(
    ("kind", "phase", "elements", "measured_us"),
    [
        # From the trace of a training step: 4096 tokens, hidden 1024, 4096 wide inside, 8192 words.
        ("norm", "forward", 4096 * 1024, 11.6),
        ("norm", "backward", 4096 * 1024, 10.5 + 13.9),
        ("add", "forward", 4096 * 1024, 6.2),
        ("gelu", "forward", 4096 * 4096, 24.7),
        ("gelu", "backward", 4096 * 4096, 31.4),
        ("bias", "backward", 4096 * 4096, 19.2),
        ("join", "backward", 3 * 4096 * 1024, 12.5),
        ("loss", "forward", 4096 * 8192, 109.2 + 17.5),
        ("loss", "backward", 4096 * 8192, 20.7 + 10.4 + 52.9),
    ],
)
def test_kernels_of_a_training_step_are_met(kind: str, phase: PassPhase, elements: int, measured_us: float) -> None:
    moved = memory_traffic(kind, phase)
    seconds = streaming_seconds(moved, elements, 2, Stream(H200.bytes_per_s, H200.ramp_bytes))

    assert seconds * 1e6 == pytest.approx(measured_us, rel=0.3)


def test_fusing_never_costs() -> None:
    elements = np.array([1e5, 1e7, 1e9])
    for kind in (*kinds, *TRAFFIC):
        for phase in get_args(PassPhase):
            eager, fused = (
                streaming_seconds(memory_traffic(kind, phase, style), elements, 2, H200) for style in ("eager", "fused")
            )

            assert np.all(fused <= eager), (kind, phase)


def test_kinds_that_are_not_listed_read_one_tensor_and_write_one() -> None:
    assert memory_traffic("relu", "forward") == MemoryTraffic(1, 2)
    assert memory_traffic("view", "forward") == MemoryTraffic()


def test_small_kernels_are_ramp_and_large_ones_bandwidth() -> None:
    add = memory_traffic("add", "forward")

    assert streaming_seconds(add, 0, 2, H200) == pytest.approx(9.5e6 / 4.32e12 + 1.5e-6)
    assert streaming_seconds(add, 1e12, 2, H200) == pytest.approx(6e12 / 4.32e12, rel=1e-4)


def test_the_optimizer_of_measured_steps_is_met() -> None:
    data = columns("training")
    moved = optimizer_bytes_per_parameter(2, 2, 2, 0)
    seconds = optimizer_seconds(data["params"].astype(float), moved, H200)
    error = np.abs(seconds / (data["opt_ms"].astype(float) * 1e-3) - 1)

    assert np.median(error) < 0.03
    assert error.mean() < 0.06
