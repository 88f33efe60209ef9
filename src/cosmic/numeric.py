"""The numbers of the physics: one, or an array with one for each design of a batch."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Numeric: TypeAlias = float | npt.NDArray[np.float64]
"""A number, or an array over a batch; every formula takes either."""
