"""Embedding tables of a recommender on one device: what a step touches of them, and what training keeps.

A step looks up few of the rows, so gradients are sparse: those of the rows that some sample of the global batch looks
up. Tables are trained as DLRM's frameworks (TorchRec, HugeCTR) train them, by row-wise Adagrad: one sum of squares in
fp32 for each row, no moments for each weight and no master copy. The optimizer streams the touched rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from cosmic.base.numeric import Numeric
from cosmic.design.design_batch import Batch
from cosmic.design.model_layer import Recommender
from cosmic.step.activations import weight_elements
from cosmic.workload.block_plans import plan_of
from cosmic.workload.mesh_sizes import sizes_of
from cosmic.workload.precision import Recipe, recipe_of
from cosmic.workload.recommender_blocks import touched_rows

TABLES = frozenset(("w_tables",))
ROW_STATE_BYTES = 4
"""Of the sum of squares that row-wise Adagrad keeps for a row."""


@dataclass(frozen=True, slots=True)
class TableUse:
    """The tables that one device holds; all zero where there are none."""

    elements: Numeric = 0.0
    rows: Numeric = 0.0
    touched: Numeric = 0.0
    """Rows that the step looks up."""
    width: float = 0.0
    """Elements of a row."""
    recipe: Recipe | None = None

    @property
    def weight_bytes(self) -> Numeric:
        """Bytes of all rows."""
        return self.elements * self.recipe.weight if self.recipe else 0.0

    @property
    def gradient_bytes(self) -> Numeric:
        """Bytes of the gradients of the touched rows."""
        return self.touched * self.width * self.recipe.gradient if self.recipe else 0.0

    @property
    def state_bytes(self) -> Numeric:
        """Bytes that the optimizer keeps for all rows."""
        return ROW_STATE_BYTES * self.rows

    @property
    def update_bytes(self) -> Numeric:
        """Bytes that the optimizer streams: gradients read, rows and their states read and written."""
        written = self.touched * self.width * self.recipe.weight if self.recipe else 0.0
        return self.gradient_bytes + 2 * written + 2 * ROW_STATE_BYTES * self.touched


def table_use(batch: Batch) -> TableUse:
    """Return the tables of the device that holds most of them, for designs that share one plan."""
    model = batch.base.model
    if not isinstance(model, Recommender):
        return TableUse()
    (block,) = plan_of(batch)
    elements = weight_elements(block, sizes_of(batch), False, only=TABLES)
    rows = elements / model.embedding
    share = rows / sum(model.tables)
    return TableUse(
        elements=elements,
        rows=rows,
        touched=share * touched_rows(model, batch["workload.global_batch"]),
        width=model.embedding,
        recipe=recipe_of(batch.base.workload.precision, batch.base.workload.task),
    )
