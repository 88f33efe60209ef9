"""Files of measurements: nccl-tests, Kineto, CSV, and what is wrong with them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from cosmic.accuracy.calibrate.calibration import calibrate
from cosmic.accuracy.calibrate.measurement_files import read_kineto, read_nccl_tests, read_tables
from cosmic.accuracy.calibrate.probing import as_csv, probe
from cosmic.base.errors import SpecError
from tests.accuracy.calibrate.fake_device import FakeDevice

REDUCE = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 268435456 step: 16(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid   1204 on   node-1 device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1205 on   node-1 device  1 [0x43] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid   1206 on   node-2 device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid   1207 on   node-2 device  1 [0x43] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    61.30   17.11   25.66      0    60.20   17.42   26.13      0
   268435456      67108864     float     sum      -1   5400.0   49.71   74.57      0   5500.0   48.81   73.21    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 50.1
"""
GATHER = """# all_gather_perf
# nThread 1 nGpus 8 minBytes 8 maxBytes 8
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
    16777216         524288     float    none      -1   120.5   139.2   121.8      0   119.0   141.0   123.4      0
"""


def test_the_output_of_nccl_tests_is_read() -> None:
    first, second = read_nccl_tests(REDUCE, "out.txt")
    assert first == {
        "collective": "all_reduce",  # as bus bandwidth is 1.5 times the algorithm's among 4 ranks
        "n_ranks": "4",
        "n_nodes": "2",
        "size_bytes": "1048576",
        "time_us": "60.2",
        "device": "NVIDIA H100 80GB HBM3",
    }
    assert second["time_us"] == "5400.0"
    (third,) = read_nccl_tests(GATHER, "out.txt")
    assert (third["collective"], third["n_ranks"], third["n_nodes"]) == ("all_gather", "8", "1")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("# size algbw busbw\n", "the header does not list its ranks"),
        (REDUCE.partition("     1048576")[0], "there is no measured size"),
        (GATHER.replace("# all_gather_perf\n", ""), "does not say its collective"),
    ],
)
def test_an_output_that_says_too_little_is_one_sentence(text: str, rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        read_nccl_tests(text, "out.txt")


def test_links_learn_from_nccl_tests(tmp_path: Path) -> None:
    (tmp_path / "reduce.txt").write_text(REDUCE)
    found = calibrate([tmp_path / "reduce.txt"])
    assert found.target.name == "dgx-h100"  # as the devices are called
    assert any(each.name.startswith("link_") for each in found.learned)
    assert not any(each.name == "matrix_rate" for each in found.learned)
    (errors,) = found.errors
    assert errors.after < errors.before


# ---- Kineto


def event(name: str, start: float, took: float, kind: str = "kernel") -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "ts": start, "dur": took}


TRACE = {
    "deviceProperties": [{"name": "NVIDIA H200"}],
    "traceEvents": [
        event("ProfilerStep#3", 100, 3000, "user_annotation"),
        event("ProfilerStep#4", 4100, 3000, "user_annotation"),
        event("ProfilerStep#3", 100, 1, "gpu_user_annotation"),
        event("nvjet_sm90_tst_256x128", 150, 2400),
        event("nvjet_sm90_tst_256x128", 4500, 2600),
        event("cudnn_generated_fort_native_sdpa_sm90_flash_fprop", 3000, 300),
        event("ncclDevKernel_AllReduce", 3000, 500),
        event("vectorized_elementwise_kernel", 7200, 900),
        event("nvjet_before_the_steps", 1, 77),
        {"ph": "M", "name": "process_name"},
        "no event",
    ],
}


def test_a_trace_has_steps_and_classes_of_kernels() -> None:
    for data in (json.dumps(TRACE).encode(), gzip.compress(json.dumps(TRACE).encode())):
        found = read_kineto(data, "trace.json")
        assert found.step_s == pytest.approx(4e-3)  # 100 to 4100, and on to the last kernel at 8100
        assert found.steps == 2
        assert found.seconds == pytest.approx(
            {"GEMMs": 2.5e-3, "attention": 0.15e-3, "collectives": 0.25e-3, "memory operators": 0.45e-3}
        )
        assert found.busy == pytest.approx(3.35 / 4)


def test_a_trace_moves_the_rates_of_its_kernels(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(TRACE))
    with pytest.raises(SpecError, match="does not say which design it is of: name it with --on"):
        calibrate([tmp_path / "trace.json"])
    (tmp_path / "design.yaml").write_text(
        "model: {family: decoder, layers: 4, hidden: 1024, heads: 16, ffn: 4096, vocab: 32000}\n"
        "system: dgx-h200:1\n"
        "workload: {sequence: 1024, global_batch: 4, micro_batch: 4, tp: 1, cp: 1, pp: 1, execution: eager}\n"
    )
    found = calibrate([tmp_path / "trace.json"], on=str(tmp_path / "design.yaml"))
    assert {row.kind for row in found.rows} == {"steps", "kernels of steps"}
    assert any(each.name == "matrix_rate" for each in found.learned)
    slow = {**TRACE, "traceEvents": [*TRACE["traceEvents"], event("late", 90000, 1)]}  # type: ignore[misc]
    (tmp_path / "slow.json").write_text(json.dumps(slow))
    found = calibrate([tmp_path / "slow.json"], on=str(tmp_path / "design.yaml"))
    assert {row.kind for row in found.rows} == {"kernels of steps"}
    assert "as the profiler slows the host down" in found.skipped[0]


@pytest.mark.parametrize(
    ("tree", "rule"),
    [
        ({"traceEvents": []}, "there are no steps"),
        ({"traceEvents": [event("ProfilerStep#1", 0, 9, "user_annotation")]}, "there are no kernels"),
        ({"traceEvents": 5}, "has no traceEvents"),
    ],
)
def test_a_trace_without_steps_is_one_sentence(tree: Any, rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        read_kineto(json.dumps(tree).encode(), "trace.json")
    with pytest.raises(SpecError, match=r"is no valid JSON|is not a valid gzip file"):
        read_kineto(b'{"traceEvents": [', "trace.json")


# ---- CSV

DESIGN = "llama3-8b@dgx-h100:16"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "there are no rows"),
        ("design,step_s\n", "there are no rows"),
        (f"design,step_s\n{DESIGN},nan\n", "must be positive"),
        (f"design,step_s\n{DESIGN},-3\n", "must be positive"),
        (f"design,step_s\n{DESIGN},soon\n", "must be a number"),
        (f"design,step_s\n{DESIGN},1e9\n", "check its unit"),
        (f"design,step_s\n{DESIGN},\n", "give one of step_s"),
        (f"design,step_s,step_ms\n{DESIGN},1,1000\n", "give one of step_s"),
        (f"design,step_s,tpp\n{DESIGN},1,8\n", "no such field"),
        (f"design,step_s,tp\n{DESIGN},1,3\n", "row 1"),
        (f"design,step_s,n_accel\n{DESIGN},1,3\n", "write the size behind the system"),
        (f"design,step_s,gemm_efficiency\n{DESIGN},1,0.5\n", "is a field of the system"),
        (f"design,step_s,system\n{DESIGN},1,dgx-a100:16\n", "is a field of the system"),
        (f"design,step_s,step_s\n{DESIGN},1,2\n", "is there twice"),
        ("collective,n_ranks,n_nodes,size_bytes,time_us,hardware\nall_reduce,1,1,8,9,h100_sxm\n", "at least 2 ranks"),
        ("design,step_s\n,1\n", "no measurement names its system"),
        ("design,step_s\nllama9@dgx-h100:16,1\n", "no such model"),
        ("design,step_s\nllama3-8b@dgx-h900:16,1\n", "no such system"),
        (f"design,step_s\n{DESIGN},1\nllama3-8b@dgx-a100:16,2\n", "of different systems"),
        ("a,b\n1,2\n", "these columns are of no known kind"),
        ("kind,ms\nwish,1\n", "must be one of design, run"),
        ("m,n,k,dtype,ms\n8,8,8,bf16,1\n", "no measurement names its system"),
        ("m,n,k,dtype,ms,device\n8,8,8,bf17,1,NVIDIA H200\n", "dtype = 'bf17': must be one of"),
        ("kind,host_us,device\nlaunch,1,Tesla T4\n", "no measurement names its system"),
    ],
)
def test_a_wrong_table_is_one_sentence(text: str, rule: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(SpecError, match=rule) as caught:
        calibrate([tmp_path / "rows.csv"])
    assert "\n" not in str(caught.value)


def test_a_measurement_of_another_accelerator_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(f"design,step_s\n{DESIGN},20\n")
    with pytest.raises(SpecError, match="is another accelerator than that of dgx-a100: a100"):
        calibrate([tmp_path / "rows.csv"], system="dgx-a100")


@pytest.mark.long
def test_what_a_probe_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "probe.csv").write_text(as_csv(probe(FakeDevice(8), 5).rows))
    kinds = [table.observed for table in read_tables(tmp_path / "probe.csv")]
    assert len(kinds) == 6
    found = calibrate([tmp_path / "probe.csv"])
    assert found.target.name == "dgx-h200"
    learned = {each.name for each in found.learned}
    assert {"matrix_rate", "attention_rate", "host_launch", "link_rate_0"} <= learned
    assert any("launches no_grad" in each for each in found.skipped)
    launch = next(each for each in found.errors if each.kind == "launches")
    assert launch.after < launch.before
