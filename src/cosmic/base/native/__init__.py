"""Inner loops in C, where a compiler was at hand: plain functions of one shared library, called through `ctypes`.

Nothing needs it: where there is no library, its callers do the same in Python, to the same bits.
"""
