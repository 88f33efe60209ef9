"""Which design: agents that search a parameter set."""
