"""Precision recipes: how many bytes each kind of number takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """Bytes per parameter and per activation in training."""

    weight: float
    """The copy that matrix products read."""
    gradient: float
    """As accumulated over microbatches and reduced over replicas."""
    master: float
    """The copy that the optimizer updates, where it is another than the weight."""
    moments: float
    """Adam's two running means."""
    activation: float

    @property
    def optimizer(self) -> float:
        """What only the optimizer reads."""
        return self.master + self.moments


MIXED = Recipe(weight=2, gradient=4, master=4, moments=8, activation=2)
"""Micikevicius et al., arXiv 1710.03740, as Megatron-LM does it: gradients accumulate in fp32."""
RECIPES = {
    "fp32": Recipe(weight=4, gradient=4, master=0, moments=8, activation=4),
    "fp16": MIXED,
    "bf16": MIXED,
    "fp8": MIXED,
    "bf16_pure": Recipe(weight=2, gradient=2, master=0, moments=4, activation=2),
}
