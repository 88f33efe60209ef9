"""Evaluation, recorded once for each structure and run as a flat program.

    record(batch, metrics) ──▶ Tape ──▶ Program ──▶ Plan ──▶ results of a batch
       tape.py                  program.py           plan.py    running.py (C, or NumPy)

The physics is run once on arrays that note what is done to them (`Recorded`). What comes out is a list of operations
on columns: equal ones are one, and those that no result needs are gone. The same functions are so the only source of
every number; a reader who changes a formula need not know that this package exists.
"""
