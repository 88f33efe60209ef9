"""Attacks on the command line: generated commands and files, run in forked children, and rules that must hold."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported: threads do not survive a fork
