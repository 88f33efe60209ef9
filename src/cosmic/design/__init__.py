"""Designs: one frozen dataclass per layer of the stack, and the design point that composes them."""
