"""Make the tables that the package carries of what `measure_serving.py` wrote.

python calibration/serving_tables.py OUT FOLDER [FOLDER ...]

Writes h200_serving.csv (a row for each load, over all its requests) and h200_serving_steps.csv (a row for each step)
into OUT, such as src/cosmic/accuracy/data. Of a load or a step that several folders have, the last one counts.

Of mixtures only steps of one token are kept. When the package's rows were measured, requests repeated each other's
tokens (32 of them had 4 different ones), so they chose the same experts; loads and larger steps say nothing of others.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

SIZES = {
    "llama3-8b": (32, 4096, 32, 8, 128, 14336, 128256, "", ""),
    "llama3.2-3b": (28, 3072, 24, 8, 128, 8192, 128256, "", ""),
    "qwen3-30b-a3b": (48, 2048, 32, 4, 128, 768, 151936, 128, 8),
}
OF_MODEL = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts", "top_k")
ASKED = ("scheduler", "max_num_batched_tokens", "max_num_seqs", "isl", "osl", "spread", "concurrency", "rate")
SEEN = ("ttft_mean_ms", "ttft_p50_ms", "ttft_p95_ms", "tpot_mean_ms", "tpot_p95_ms", "tokens_per_s")
OF_STEP = ("step", "batch", "context", "prompts", "tokens", "past", "device_ms", "ms")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def load_row(load: dict[str, str], requests: list[dict[str, str]]) -> list[Any]:
    """Return a load with what its requests saw."""
    arrival, first, finish = (
        np.array([float(each[f"{name}_s"]) for each in requests]) for name in ("arrival", "first", "finish")
    )
    tokens = np.array([int(each["osl"]) for each in requests])
    ttft, tpot = 1e3 * (first - arrival), 1e3 * (finish - first) / (tokens - 1)
    closed = load["concurrency"] != "0"
    who = f"c{load['concurrency']}" if closed else f"r{float(load['rate']):g}"
    name = f"{load['model']}-{load['scheduler']}-{load['step_tokens']}-{load['isl']}-{load['osl']}-{who}"
    asked = [load[key] for key in ("scheduler", "step_tokens", "sequences", "isl", "osl", "spread")]
    asked += [load["concurrency"], ""] if closed else ["", load["rate"]]
    seen = [ttft.mean(), np.median(ttft), np.percentile(ttft, 95), tpot.mean(), np.percentile(tpot, 95)]
    rate = tokens.sum() / finish.max()
    numbers = [f"{value:.4f}" for value in seen] + [f"{rate:.1f}"]
    return [name, load["model"], *SIZES[load["model"]], "bf16", *asked, len(requests), load["load"], *numbers]


def main() -> None:
    loads, steps = {}, {}
    for folder in map(Path, sys.argv[2:]):
        served = defaultdict(list)
        for each in rows_of(folder / "requests.csv"):
            served[each["load"]].append(each)
        for load in rows_of(folder / "loads.csv"):
            if load["load"] in served and not SIZES[load["model"]][-1]:
                loads[int(load["load"])] = load_row(load, served[load["load"]])
        for each in rows_of(folder / "steps.csv"):
            tokens = int(each["batch"]) + int(each["tokens"])
            if SIZES[each["model"]][-1] and tokens > 1:
                continue
            what = [each[name] for name in ("kind", "batch", "context", "prompts", "tokens", "past")]
            steps[each["model"], *what] = [
                each["model"],
                *SIZES[each["model"]],
                "bf16",
                *what,
                each["device_ms"],
                each["ms"],
            ]
    head = ["id", "model", *OF_MODEL, "precision", *ASKED, "requests", "seed", *SEEN]
    for name, header, rows in (
        ("h200_serving.csv", head, [loads[key] for key in sorted(loads)]),
        ("h200_serving_steps.csv", ["model", *OF_MODEL, "precision", *OF_STEP], list(steps.values())),
    ):
        with (Path(sys.argv[1]) / name).open("w", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow(header)
            out.writerows(rows)


if __name__ == "__main__":
    main()
