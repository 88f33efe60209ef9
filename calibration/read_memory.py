"""Read reports of memory into the columns of measured rows.

python calibration/read_memory.py

`data/memory_reports.csv` has what people reported, in their words, each with its address. This writes those of training
that state all that memory follows from, and nothing that the model does not know (weights of 4 bits), to
`src/cosmic/accuracy/data/training_memory.csv`.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

REPORTS = Path(__file__).with_name("data") / "memory_reports.csv"
ROWS = Path(__file__).parents[1] / "src/cosmic/accuracy/data/training_memory.csv"
COLUMNS = (
    *("id", "set", "source", "source_loc", "url", "confidence", "model", "arch", "catalog_model", "n_layers", "hidden"),
    *(
        "n_heads",
        "n_kv_heads",
        "ffn",
        "vocab",
        "n_experts",
        "topk",
        "n_shared_experts",
        "moe_ffn",
        "seq_len",
        "accel",
        "n_accel",
        "tp",
        "pp",
        "vpp",
        "dp",
        "cp",
        "ep",
    ),
    *("zero_stage", "mbs", "gbs", "precision", "recompute", "recompute_modules", "attention", "execution", "loss"),
    *("optimizer_kernels", "fp8_recipe", "lora", "framework", "software_date", "outcome"),
    *("allocated_gib", "reserved_gib", "device_gib", "notes"),
)
ACCELERATORS = {
    "A100-SXM-80GB": "A100-SXM-80GB",
    "A800-SXM-80GB": "A100-SXM-80GB",
    "A800/A100-SXM-80GB": "A100-SXM-80GB",
    "A100-SXM-40GB": "A100-SXM-40GB",
    "H100-SXM-80GB": "H100-SXM-80GB",
    "H100-SXM-96GB": "H100-96GB-HBM2",
    "H200-SXM-141GB": "H200-SXM-141GB",
    "V100-SXM-32GB": "V100-SXM2-32GB",
    "MI300X": "MI300X",
    "B200": "B200-SXM-180GB",
    "GB200": "GB200",
    "TPU-v4": "TPU-v4",
    "TPU-v5p": "TPU-v5p",
}
"""Accelerators by how reports name them; others are left out: what they have is not known for sure."""
FRAMEWORKS = {
    "torchtitan": "torchtitan",
    "megatron-bridge": "megatron-bridge",
    "megatron": "megatron-lm",
    "nemo automodel": "automodel",
    "maxtext": "maxtext",
    "gpt-neox": "gpt-neox",
    "ms-swift (transformers": "deepspeed",
    "llama-factory + deepspeed": "deepspeed",
    "litgpt": "pytorch",
    "hf ": "pytorch",
    "torchtune": "pytorch",
    "trl": "pytorch",
    "pytorch": "pytorch",
    "llama-factory": "pytorch",
    "nanochat": "pytorch",
}
"""Frameworks by the start of their names in reports."""
USUAL_DATE = "2024-09"
SIZES = ("vocab", "ffn", "mbs", "gbs", "n_accel")
EXPERTS = re.compile(r"(\d+) x (\d+) routed.*top-(\d+) \+ (?:(\d+) )?shared")
MODULES = ("core_attn", "layernorm", "moe_act", "mlp", "moe", "mla_up_proj")
NO_OPTIMIZER_OF_OURS = ("8bit", "4bit", "in_bwd", "muon", "paged", "on cpu")


def read_report(report: dict[str, str]) -> dict[str, str] | None:
    """Return the row of a report; None where the model does not know what it says, or it does not say enough."""
    text = {key: value.lower() for key, value in report.items()}
    accelerator = next((ours for theirs, ours in ACCELERATORS.items() if report["accel"].startswith(theirs)), "")
    framework = next((ours for theirs, ours in FRAMEWORKS.items() if text["framework"].startswith(theirs)), "")
    left_out = (
        text["task"] != "training"
        or report["confidence"] == "low"
        or "not stated" in text["accel"]
        or not accelerator
        or not framework
        or bool(text["quantized"] or text["offload"])
        or "offload" in text["recompute"]
        or "not stated" in text["recompute"]
        or any(word in text["optimizer"] for word in NO_OPTIMIZER_OF_OURS)
        or not (report["catalog_model"] or report["n_layers"])
        or not (report["seq_len"] and report["mbs"])
        or (text["framework"].startswith("litgpt") and report["n_accel"] != "1")  # its peak is that of loading
    )
    if left_out:
        return None
    recompute = text["recompute"].split()[0].strip(":,") if text["recompute"] else "none"
    said = text["recompute"] if recompute == "selective" else ""
    modules = [name for name in MODULES if re.search(rf"\b{name}\b", said)]
    if recompute == "selective" and not modules:
        recompute = "alternate" if framework in ("torchtitan", "pytorch") else "selective"
    row = {name: report.get(name, "") for name in COLUMNS}
    row |= {name: number for name in SIZES if (number := leading_number(report[name])) or report[name]}
    if experts := EXPERTS.search(text["ffn"]):
        row |= dict(zip(("moe_ffn", "n_experts", "topk", "n_shared_experts"), experts.groups(), strict=True))
    row |= {
        "set": report["source"].split("/")[-1].lower(),
        "accel": accelerator,
        "framework": framework,
        "software_date": report["date"] if len(report["date"]) == 7 else USUAL_DATE,
        "precision": precision_of(text, report),
        "recompute": recompute if recompute in ("none", "full", "alternate", "selective") else "none",
        "recompute_modules": f"[{', '.join(modules)}]" if modules else "",
        "attention": attention_of(text["attention"]),
        "execution": execution_of(framework, text),
        "loss": "chunked" if "liger" in text["framework"] or "chunked" in text["flags"] else "",
        "zero_stage": re.sub(r"\D.*", "", report["zero_stage"]) or ("0" if framework == "pytorch" else ""),
        "fp8_recipe": "tensorwise" if "current" in text["precision"] else "mxfp8" if "mx" in text["precision"] else "",
        "lora": rank[1] if (rank := re.search(r"rank (\d+)", text["lora"])) else "",
        "optimizer_kernels": "foreach" if "foreach" in text["optimizer"] else "",
    }
    return row


def leading_number(words: str) -> str:
    """Return the number that a cell begins with; empty if it begins with none."""
    match = re.match(r"\d+", words)
    return match[0] if match else ""


def precision_of(text: dict[str, str], report: dict[str, str]) -> str:
    """Return the number format: weights loaded in bf16 stay so, unless FSDP keeps them in fp32."""
    words = text["precision"]
    sharded = report["zero_stage"].startswith("3")
    if "bf16: true" in words:
        return "bf16" if sharded and not report["lora"] else "bf16_pure"
    if "pure bf16" in words or "bf16-true" in words or "torch_dtype bf16" in words:
        return "bf16_pure"
    return words.split()[0]


def attention_of(words: str) -> str:
    """Return the kernels of attention; empty where the framework's practice says it."""
    if "unfused" in words or "eager" in words:
        return "unfused"
    return "flash2" if "flash" in words or "sdpa" in words or "fa2" in words else ""


def execution_of(framework: str, text: dict[str, str]) -> str:
    """Return how kernels run; empty where the framework's practice says it."""
    if framework not in ("torchtitan", "pytorch"):
        return ""
    compiled = "compile" in text["flags"] and "no compile" not in text["flags"] and "without" not in text["flags"]
    return "compiled" if compiled or "compile" in text["framework"] else "eager"


def main() -> None:
    """Write the rows."""
    with REPORTS.open() as file:
        rows = [row for report in csv.DictReader(file) if (row := read_report(report)) is not None]
    with ROWS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} rows in {ROWS.name}")


if __name__ == "__main__":
    main()
