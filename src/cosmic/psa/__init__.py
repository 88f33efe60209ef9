"""What may be: the parameter set, its constraints, counting, sampling and encodings."""
