"""The parameter set (PSA): what may vary around a base design; its constraints, counting, sampling and encodings."""
