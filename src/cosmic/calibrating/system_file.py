"""A calibrated system as a file that every command takes: MODEL@my-system.yaml:64."""

from __future__ import annotations

from datetime import date
from typing import Any

from cosmic._version import __version__
from cosmic.calibrating.calibrating import Calibration
from cosmic.calibrating.target import dimensions
from cosmic.catalog.yaml_files import dump_yaml
from cosmic.design import schema

MOST_ROWS = 50
"""Measurements that a file names."""


def system_text(found: Calibration) -> str:
    """Return the content of the system's file."""
    return dump_yaml(system_tree(found))


def system_tree(found: Calibration) -> dict[str, Any]:
    """Return the system's file as plain data: what it was, with what was learned, and where that comes from."""
    target = found.target
    tree = {key: value for key, value in target.entry.items() if key != "calibration"}
    tree["title"] = f"{tree.get('title') or target.name or 'a design'}, calibrated on {len(found.rows)} measurements"
    tree["network"] = {**tree["network"], "dims": [dict(each) for each in dimensions(target)]}
    compute = dict(tree.get("compute", {}))
    for path, value in found.changes(target.machine).items():
        written = _written(target.machine, path, value)
        layer, _, key = path.partition(".")
        if layer == "compute":
            compute[key] = written
        elif layer == "network":
            _, place, *keys = key.split(".")
            _put(tree["network"]["dims"][int(place)], keys, written)
        else:
            tree[layer] = {**tree.get(layer, {}), key: written}
    compute["provenance"] = "calibrated"
    if found.residual_sd is not None:
        compute |= {"calibration_sd": _short(found.residual_sd), "calibration_rows": found.steps}
    return tree | {"compute": compute, "calibration": _provenance(found)}


def _provenance(found: Calibration) -> dict[str, Any]:
    """Return what the file says about its calibration."""
    return {
        "made_by": f"cosmic calibrate, {__version__}",
        "date": date.today().isoformat(),
        "base": found.target.name or "a design file",
        "files": list(found.files),
        "residual_log_sd": None if found.residual_sd is None else _short(found.residual_sd),
        "steps": found.steps,
        "time_factor": _short(found.factor),
        "errors": {
            each.kind: {
                "rows": each.rows,
                "before": _short(each.before),
                "after": _short(each.after),
                "left_out": None if each.left_out is None else _short(each.left_out),
            }
            for each in found.errors()
        },
        "prior_scale": found.prior_scale,
        "learned": {
            each.name: {
                "factor": _short(each.factor),
                "prior_sd": _short(each.prior_sd),
                "posterior_sd": _short(each.posterior_sd),
                "by": list(each.by),
            }
            for each in found.learned
        },
        "rows": [row.name for row in found.rows[:MOST_ROWS]],
    }


def _written(machine: Any, path: str, value: float) -> Any:
    """Return a field's value as files write it, with its unit."""
    return schema.write(_short(value), schema.slot_at(machine, path).dimension)


def _short(value: float) -> float:
    """Return a number with four digits: measurements give no more."""
    return float(f"{value:.4g}")


def _put(tree: dict[str, Any], keys: list[str], value: Any) -> None:
    *outer, last = keys
    for key in outer:
        tree[key] = dict(tree.get(key, {}))
        tree = tree[key]
    tree[last] = value
