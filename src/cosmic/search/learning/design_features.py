"""What a model may know of designs of any space: their fields, arithmetic on them, and what a closed form says.

    fields       every searched and derived field by its path: numbers as base-2 logarithms, names as themselves
    arithmetic   microbatches, bubble, tokens of a pass, share of the memory that weights take: fields alone
    memory       what a device needs over what it has: a sum of tensors, which no run has to tell
    physics      flop, bytes by axis, headroom of memory, bubble and parts of the step: the closed form, evaluated

Designs of different models and machines are comparable by the last three, and by fields of the same path.

Points of one space are encoded as coordinates in which similar points are near each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import count_parameters
from cosmic.evaluation import evaluate_batch
from cosmic.search.agent import Flags, Floats
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.parameters import Parameter
from cosmic.simulate.analytic_step import BREAKDOWN
from cosmic.step.communication import breakdown_part
from cosmic.step.device_memory import COMPONENTS
from cosmic.step.process_memory import left_bytes, needed_bytes
from cosmic.step.step_profile import bounding_stages, profile_step
from cosmic.workload.mesh_sizes import microbatches, structural_paths

WEIGHT_BYTES = 2
"""Of a parameter in 16 bits, for the share of the memory that weights take."""
TINY = 1e-30
SHARE = "share of "
"""How the names of features begin that are parts of a step, as shares of it."""


@dataclass(frozen=True)
class Features:
    """Features of some designs by name: numbers, or names."""

    columns: Mapping[str, Floats | tuple[str, ...]]
    rows: int

    def of(self, names: Iterable[str]) -> Features:
        """Return the features with these *names*."""
        return Features({name: self.columns[name] for name in names}, self.rows)

    def __or__(self, other: Features) -> Features:
        """Return the features of both, of the same designs."""
        return Features({**self.columns, **other.columns}, self.rows)


@dataclass(frozen=True)
class Encoding:
    """How features become coordinates: those that both sides have, and that are of one kind."""

    numbers: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]
    """Each feature that is a name, with the names that the model has seen."""

    @property
    def parts(self) -> tuple[int, ...]:
        """The columns of coordinates that are shares of a step."""
        return tuple(index for index, name in enumerate(self.numbers) if name.startswith(SHARE))

    def __call__(self, features: Features) -> Floats:
        """Return coordinates, a row for each design; a name that was not seen is none of the known."""
        encoded = [np.asarray(features.columns[name], dtype=float)[:, None] for name in self.numbers]
        for name, seen_names in self.names.items():
            names = np.array(features.columns[name], dtype=object)
            encoded.append(np.stack([(names == seen_name).astype(float) for seen_name in seen_names], axis=1))
        return np.concatenate([np.empty((features.rows, 0)), *encoded], axis=1)


def encoding_of(seen: Features, shared: Iterable[str]) -> Encoding:
    """Return how the *shared* features are encoded, of which *seen* has those that the model learns from."""
    columns = {name: seen.columns[name] for name in shared if name in seen.columns}
    numbers = tuple(name for name, column in columns.items() if isinstance(column, np.ndarray))
    names = {name: tuple(sorted(set(column))) for name, column in columns.items() if isinstance(column, tuple)}
    return Encoding(numbers, names)


def join_features(parts: Sequence[Features]) -> Features:
    """Return features of several groups of designs as those of one: what all have, of one kind."""
    names = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
    joined: dict[str, Floats | tuple[str, ...]] = {}
    for name in names:
        columns = [part.columns[name] for part in parts]
        if all(isinstance(column, np.ndarray) for column in columns):
            joined[name] = np.concatenate([np.asarray(column) for column in columns])
        else:
            joined[name] = tuple(
                text
                for column in columns
                for text in (column if isinstance(column, tuple) else tuple(f"{value:g}" for value in column.tolist()))
            )
    return Features(joined, sum(part.rows for part in parts))


def field_features(batch: Batch, paths: Iterable[str]) -> Features:
    """Return the fields of designs at *paths*."""
    features: dict[str, Floats | tuple[str, ...]] = {}
    for path in paths:
        values = batch[path]
        listed = values.tolist() if hasattr(values, "tolist") and path in batch.columns else [values] * batch.size
        features[path] = _column(listed)
    return Features(features, batch.size)


def _column(values: Sequence[Any]) -> Floats | tuple[str, ...]:
    """Return numbers above zero as base-2 logarithms, truth values as 0 and 1, and anything else as text."""
    if all(isinstance(value, bool) for value in values):
        return np.array(values, dtype=float)
    if all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values):
        return np.asarray(np.log2(np.array(values, dtype=float)))
    return tuple(map(str, values))


def arithmetic_features(batch: Batch) -> Features:
    """Return what follows from the fields of training designs by arithmetic alone, in base-2 logarithms.

    What a step waits for pipeline stages is their bubble, (pp - 1) / (v m), over 1: v virtual stages, m microbatches.
    """
    fields = {
        name: batch[f"workload.{name}"] for name in ("tp", "cp", "pp", "virtual_stages", "micro_batch", "sequence")
    }
    passes = microbatches(batch)
    weights = (
        WEIGHT_BYTES * count_parameters(batch.base.model) / (fields["tp"] * fields["pp"] * batch["memory.capacity"])
    )
    features = {
        "replicas": batch["workload.dp"],
        "microbatches": passes,
        "bubble": 1 + (fields["pp"] - 1) / (fields["virtual_stages"] * passes),
        "tokens of a pass": fields["micro_batch"] * fields["sequence"] / fields["cp"],
        "weights over memory": weights,
    }
    return Features(
        {name: _widen_numbers(np.log2(np.maximum(value, TINY)), batch) for name, value in features.items()}, batch.size
    )


def memory_features(batch: Batch) -> Floats:
    """Return the bytes that must fit into the fullest device of each design, over those left there; NaN if unknown."""
    columns = evaluate_batch(batch).columns
    parts = {name: _widen_numbers(columns[f"memory.{name}"], batch) for name in COMPONENTS}
    needed = np.empty(batch.size)
    for rows, alike in batch.groups(structural_paths(batch)):  # alike in how surely they must fit, and in what runs
        needed[rows] = needed_bytes(alike.base, {name: sizes[rows] for name, sizes in parts.items()})
    return _widen_numbers(needed / left_bytes(batch), batch)


def derived_features(batch: Batch) -> Features:
    """Return what is known of training designs without any run: arithmetic on fields, and memory as a logarithm."""
    with np.errstate(invalid="ignore", divide="ignore"):
        features = np.log2(memory_features(batch))
    return arithmetic_features(batch) | Features({"memory": np.where(np.isfinite(features), features, 0.0)}, batch.size)


def _widen_numbers(value: Any, batch: Batch) -> Floats:
    return np.array(np.broadcast_to(np.asarray(value, dtype=float), (batch.size,)))


def physics_features(batch: Batch) -> tuple[Features, Flags]:
    """Return what the closed form says of designs, and which of them have a valid mapping; zeros for the others.

    Seconds and bytes are logarithms; parts of the step are shares of it.
    """
    outcome = evaluate_batch(batch)
    valid = np.array(np.broadcast_to(np.isfinite(outcome.excess), (batch.size,)))
    column = {name: _widen_numbers(values, batch) for name, values in outcome.columns.items()}
    with np.errstate(invalid="ignore", divide="ignore"):
        step = column["step_s"]
        features = {
            "closed form": np.log(step),
            "flop": np.log(np.maximum(column["hfu"] * step, TINY)),  # of a device, in seconds at its peak
            "headroom": np.log(np.maximum(column["memory_bytes"], 1.0) / left_bytes(batch)),
        }
        if batch.base.serving is None:
            features |= {f"{SHARE}{part}": column[f"breakdown.{part}"] / step for part in BREAKDOWN}
            features |= {f"bytes of {part}": np.log1p(feature) for part, feature in sent_bytes(batch, valid).items()}
    return Features(
        {name: np.where(valid & np.isfinite(feature), feature, 0.0) for name, feature in features.items()}, batch.size
    ), valid


def sent_bytes(batch: Batch, valid: Flags) -> dict[str, Floats]:
    """Return the payload of all collectives of a device in a step, by the part of the step that waits for them."""
    bytes_by_part: dict[str, Floats] = {}
    rows = np.flatnonzero(valid)
    if not len(rows):
        return bytes_by_part
    valid_batch = batch.take(rows, {}) if batch.columns else batch
    for positions, part in valid_batch.groups(structural_paths(valid_batch)):
        profile = profile_step(part, bounding_stages(part)[0])
        for use in profile.collectives:
            sent = np.asarray(use.bytes * use.calls * (use.group > 1), dtype=float)
            into = bytes_by_part.setdefault(breakdown_part(use.role, use.phase), np.zeros(batch.size))
            into[rows[positions]] += sent
        part.known.clear()
    return bytes_by_part


# ---- Points encoded for models: as coordinates in which similar points are near each other


def encode_coordinates(space: ParameterSet) -> Callable[[Indices], Floats]:
    """Return a function that encodes points as coordinates in which similar points are near each other.

    A number becomes its rank among the values, scaled to 0..1, so that powers of two are evenly spaced. A parameter
    that sets several numbers has a coordinate for each. A name is one-hot, and any two names are a distance of 1 apart.
    """
    tables = [
        _ranks(parameter) if parameter.ordered else _corners(len(parameter.values)) for parameter in space.parameters
    ]

    def encode(rows: Indices) -> Floats:
        return np.concatenate([table[rows[:, index]] for index, table in enumerate(tables)], axis=1)

    return encode


def _ranks(parameter: Parameter) -> Floats:
    """Return the scaled rank of each value; a column for each number that the parameter sets."""
    columns = []
    for part in zip(*parameter.values, strict=True):
        distinct = np.unique(np.array(part, dtype=float))
        columns.append(np.searchsorted(distinct, part) / max(len(distinct) - 1, 1))
    return np.stack(columns, axis=1)


def _corners(size: int) -> Floats:
    """Return *size* points that are all a distance of 1 apart; two need one coordinate only."""
    return np.arange(size, dtype=float)[:, None] if size <= 2 else np.eye(size) / np.sqrt(2)
