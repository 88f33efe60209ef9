"""`cosmic probe` for a machine that has PyTorch, and none of this package's own dependencies."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from cosmic.calibrating.probing import as_csv, probe
from cosmic.calibrating.torch_device import torch_device
from cosmic.files import check_writable, write_text


def main(words: Sequence[str]) -> int:
    """Measure this machine as the command line says, and return the exit status."""
    parser = argparse.ArgumentParser("cosmic probe", description="Measure this machine, for 'cosmic calibrate'.")
    parser.add_argument("--out", type=Path, default=Path("measured.csv"), help="The file to write.")
    parser.add_argument("--minutes", type=float, default=5.0, help="Stop after about so many minutes.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    given = parser.parse_args(list(words))
    check_writable(given.out, "--out")
    device = torch_device(given.device)
    found = probe(device, given.minutes)
    device.close()
    if device.first:
        write_text(given.out, as_csv(found.rows), "--out")
    return 0
