"""Tags by which a replay knows which collectives of ranks are the same, where their order does not say it.

The n-th collective of a group is the same on all ranks. That is wrong where ranks recorded different ones, or where it
is not recorded in which group a collective ran. Then collectives carry tags: those of a group with equal tags meet.
"""

from __future__ import annotations

from collections.abc import Sequence

from cosmic.profiles.completing import Same
from cosmic.simulation.replay import as_issued
from cosmic.traces.trace import ABSENT, RankTrace


def tag_collectives(ranks: Sequence[RankTrace], same: Same) -> None:
    """Set the tags of collectives, which hold the place of each among the communications of its rank."""
    groups: dict[str, dict[int, list[tuple[int, object]]]] = {}
    for number, rank in enumerate(ranks):
        template = rank.template
        for row in as_issued(template):
            place = int(template.group[row])
            name = "" if place == ABSENT else rank.groups[place]
            at = number, int(template.comm_tag[row])
            groups.setdefault(name, {}).setdefault(number, []).append((row, same.get(at, at)))
    for users in groups.values():
        orders = [[each for _, each in listed] for listed in users.values()]
        unknown = any(isinstance(each, tuple) and len(each) == 2 for order in orders for each in order)
        in_order = len(orders) == 1 or (not unknown and all(order == orders[0] for order in orders))
        numbers = {each: at for at, each in enumerate(dict.fromkeys(each for order in orders for each in order))}
        for number, listed in users.items():
            for row, each in listed:
                ranks[number].template.comm_tag[row] = ABSENT if in_order else numbers[each]
