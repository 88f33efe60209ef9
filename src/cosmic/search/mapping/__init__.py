"""How a model is laid on a machine: what may be chosen, what frameworks can launch, and a good first choice."""
