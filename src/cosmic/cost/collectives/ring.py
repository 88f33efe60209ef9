"""Ring: a reduce-scatter, then an all-gather, both passing parts round a ring."""

from cosmic.design.collective import algorithms


@algorithms.register("ring")
class Ring:
    """Meets the bandwidth bound with only neighbours talking (Patarasuk & Yuan, JPDC 69(2), 2009)."""

    @staticmethod
    def steps(npus: int) -> float:
        """Return 2 (p - 1) for p NPUs: once round for the sum, once for its copies."""
        return 2 * (npus - 1)

    @staticmethod
    def traffic(npus: int) -> float:
        """Return 2 (p - 1) / p: in every step one p-th part is sent.

        >>> Ring.traffic(4)
        1.5
        """
        return 2 * (npus - 1) / npus
