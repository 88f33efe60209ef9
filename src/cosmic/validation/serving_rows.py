"""Measured serving: TTFT and TPOT of engines, as aiconfigurator publishes them.

A row names engine, model, system, precision, mapping, ISL, OSL and concurrency, and gives two times: its verdicts are
``id:ttft`` and ``id:tpot``. Most rows are SemiAnalysis' InferenceMAX (now InferenceX): lengths are drawn from 0.8 to 1
times the stated ISL and OSL, and ten requests are sent for each one in flight. The others state exact lengths.

    serving_mappings      what the columns of a mapping mean
    serving_recipes       how the engine was set, by documented practice
    serving_reading       a row as a deployment and its load
    serving_prediction    its times

The package carries the middle one of every five rows, in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cosmic.validation.rows import Row, Verdict
from cosmic.validation.serving_prediction import predict
from cosmic.validation.serving_reading import Served, ServedPools, understood


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Return two verdicts for each row: TTFT and TPOT."""
    found: list[Verdict] = []
    read = [understood(row) for row in rows]
    times = iter(predict([each for each in read if not isinstance(each, Verdict)]))
    for each in read:
        if isinstance(each, Verdict):
            found += [replace(each, id=f"{each.id}:{name}", set=f"{each.set} {name}") for name in ("ttft", "tpot")]
            continue
        ttft_s, tpot_s = next(times)
        found.append(_verdict(each, "ttft", each.ttft_s, ttft_s))
        found.append(_verdict(each, "tpot", each.tpot_s, tpot_s))
    return found


def _verdict(each: Served | ServedPools, name: str, measured_s: float, predicted_s: float) -> Verdict:
    alike = ("backend", "model_path", "system", "isl", "osl", "concurrency")
    return Verdict(
        id=f"{each.id}:{name}",
        set=f"{each.set} {name}",
        row=each.row,
        measured_s=measured_s,
        predicted_s=predicted_s,
        assumed=each.assumed,
        group=(name, *(each.row.get(key, "") for key in alike), str(each.npus)),
        design=each.shown,
    )
