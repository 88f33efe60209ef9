"""A user's own measurements: fit a system to them, measure this machine, validate predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosmic.base.lazy_names import offer_names

if TYPE_CHECKING:
    from cosmic.accuracy.calibrate.calibration import Calibration
    from cosmic.accuracy.calibrate.calibration import calibrate as run
    from cosmic.accuracy.calibrate.probing import Probed
    from cosmic.accuracy.calibrate.probing import probe_machine as probe
    from cosmic.accuracy.measured_rows import CARRIED
    from cosmic.accuracy.validating import Validation, validate
else:
    __getattr__, __dir__ = offer_names(
        __name__,
        {
            "CARRIED": "cosmic.accuracy.measured_rows",
            "Calibration": "cosmic.accuracy.calibrate.calibration",
            "Probed": "cosmic.accuracy.calibrate.probing",
            "Validation": "cosmic.accuracy.validating",
            "probe": "cosmic.accuracy.calibrate.probing:probe_machine",
            "run": "cosmic.accuracy.calibrate.calibration:calibrate",
            "validate": "cosmic.accuracy.validating",
        },
    )

__all__ = [
    "CARRIED",
    "Calibration",
    "Probed",
    "Validation",
    "probe",
    "run",
    "validate",
]
