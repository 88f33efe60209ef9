"""The one reader and writer: every kind of field, both ways, and every mistake in one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.registry import Registry
from cosmic.design import schema
from cosmic.design.network_layer import Dimension, Network

colours: Registry[str] = Registry("colour")
colours.register("red")("#f00")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A part that others hold."""

    spokes: int
    width_bytes: float = 8.0

    def __post_init__(self) -> None:
        require(self.spokes >= 2, "spokes", self.spokes, "a wheel has at least 2 spokes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cart:
    """One field of every kind."""

    family: Literal["cart"] = "cart"
    name: str
    load: float = 1.0
    limit: float | None = None
    seats: int = 2
    covered: bool = False
    pace: Literal["walk", "trot"] = "walk"
    delay_s: float = 0.0
    price_usd: float | None = None
    wheels: tuple[Wheel, ...] = ()
    spare: Wheel | None = None
    paint: tuple[str, ...] = field(default=(), metadata={"names": colours})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sled:
    """What may stand where a cart does."""

    family: Literal["sled"] = "sled"
    runners: int = 2


CART = Cart(
    name="hay",
    load=2.5,
    limit=3.0,
    seats=1,
    covered=True,
    pace="trot",
    delay_s=7e-07,
    price_usd=50.0,
    wheels=(Wheel(spokes=8), Wheel(spokes=6, width_bytes=1024.0)),
    spare=Wheel(spokes=4),
    paint=("red",),
)
TREE: dict[str, Any] = {
    "family": "cart",
    "name": "hay",
    "load": 2.5,
    "limit": 3.0,
    "seats": 1,
    "covered": True,
    "pace": "trot",
    "delay": "700 ns",
    "price": "50 USD",
    "wheels": [{"spokes": 8, "width": "8 B"}, {"spokes": 6, "width": "1 KiB"}],
    "spare": {"spokes": 4, "width": "8 B"},
    "paint": ["red"],
}


def refusal(hint: Any, tree: Any, where: str = "") -> str:
    """Return what is said of a *tree* that describes no *hint*."""
    with pytest.raises(SpecError) as caught:
        schema.read_value(hint, tree, where)
    return str(caught.value)


def test_every_kind_of_field_is_read() -> None:
    assert schema.read_value(Cart, TREE, "") == CART


def test_every_kind_of_field_is_written_under_its_key_with_its_unit() -> None:
    assert schema.write_value(CART) == TREE


def test_a_brief_tree_leaves_out_defaults_but_the_family() -> None:
    assert schema.write_value(Cart(name="hay", wheels=(Wheel(spokes=8),)), brief=True) == {
        "family": "cart",
        "name": "hay",
        "wheels": [{"spokes": 8}],
    }


def test_a_full_tree_leaves_out_only_what_is_none() -> None:
    written = schema.write_value(Cart(name="hay"))
    assert {"limit", "price", "spare"}.isdisjoint(written)
    assert (written["covered"], written["delay"], written["wheels"]) == (False, "0 s", [])


@pytest.mark.parametrize("brief", [False, True])
def test_what_is_written_reads_back_the_same(brief: bool) -> None:
    for cart in (CART, Cart(name="")):
        assert schema.read_value(Cart, schema.write_value(cart, brief=brief), "") == cart


def test_what_is_not_given_has_its_default() -> None:
    assert schema.read_value(Cart, {"name": "hay"}, "") == Cart(name="hay")


def test_a_whole_number_where_a_float_belongs_is_read_and_written_as_a_float() -> None:
    cart = schema.read_value(Cart, {"name": "hay", "load": 3}, "")
    assert type(cart.load) is float
    assert repr(schema.write_value(Cart(name="hay", load=3, limit=4))["load"]) == "3.0"
    assert repr(schema.write_value(Cart(name="hay", load=3, limit=4))["limit"]) == "4.0"


def test_null_is_read_where_nothing_may_stand() -> None:
    assert schema.read_value(Cart, {"name": "hay", "price": None, "spare": None}, "") == Cart(name="hay")


def test_the_family_selects_one_of_several_classes() -> None:
    assert schema.read_value(Cart | Sled, {"family": "sled", "runners": 3}, "") == Sled(runners=3)
    assert schema.families(Cart) == ("cart",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sets": 4}, "cart.sets = 4: no such key; did you mean 'seats'?"),
        ({7: 4}, "cart.7 = 4: no such key; choose from "),
        ({10**5000: 4}, "cart.<int> = 4: no such key; "),
        ({"name": 5}, "cart.name = 5: must be text"),
        ({"name": None}, "cart.name = None: must be text"),
        ({"seats": "two"}, "cart.seats = 'two': must be a whole number"),
        ({"seats": 2.0}, "cart.seats = 2.0: must be a whole number"),
        ({"seats": True}, "cart.seats = True: must be a whole number"),
        ({"seats": None}, "cart.seats = None: must be a whole number"),
        ({"seats": 2**63}, "cart.seats = 9223372036854775808: is too large"),
        ({"seats": -(2**63)}, "cart.seats = -9223372036854775808: is too large"),
        ({"seats": 10**5000}, "cart.seats = <int>: is too large"),
        ({"load": "heavy"}, "cart.load = 'heavy': must be a finite number"),
        ({"load": True}, "cart.load = True: must be a finite number"),
        ({"load": math.nan}, "cart.load = nan: must be a finite number"),
        ({"load": math.inf}, "cart.load = inf: must be a finite number"),
        ({"load": 10**400}, "cart.load = 100000000000000000...0000000000000000000: must be a finite number"),
        ({"covered": 1}, "cart.covered = 1: must be true or false"),
        ({"covered": "yes"}, "cart.covered = 'yes': must be true or false"),
        ({"pace": "trto"}, "cart.pace = 'trto': no such choice; did you mean 'trot'?"),
        ({"pace": ["trot"]}, "cart.pace = ['trot']: no such choice; did you mean 'trot'?"),
        ({"pace": 5}, "cart.pace = 5: no such choice; choose from trot, walk"),
        ({"delay": 5}, "cart.delay = 5: write a number with its unit, such as '700 ns'"),
        ({"delay": "5 GB"}, "cart.delay = '5 GB': is byte; wanted s, such as '700 ns'"),
        ({"price": "5 EUR"}, "cart.price = '5 EUR': 'EUR' is no unit; "),
        ({"wheels": {"spokes": 4}}, "cart.wheels = {'spokes': 4}: must be a list"),
        ({"wheels": "wheel"}, "cart.wheels = 'wheel': must be a list"),
        ({"wheels": [{"spokes": 4}, 3]}, "cart.wheels.1 = 3: must be a mapping of keys to values"),
        ({"wheels": [{"spokes": 4}, {}]}, "cart.wheels.1.spokes = (missing): is required"),
        ({"wheels": [{"spokes": 1}]}, "cart.wheels.0.spokes = 1: a wheel has at least 2 spokes"),
        ({"spare": []}, "cart.spare = []: must be a mapping of keys to values"),
        ({"paint": [3]}, "cart.paint.0 = 3: must be text"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_mistake_is_named_with_its_place_and_the_rule(change: dict[Any, Any], message: str) -> None:
    said = refusal(Cart, {"name": "hay", **change}, "cart")
    assert said == message or (message.endswith(" ") and said.startswith(message))


def test_a_missing_key_is_named() -> None:
    assert refusal(Cart, {}, "cart") == "cart.name = (missing): is required"


def test_what_is_no_mapping_is_refused() -> None:
    assert refusal(Cart, [1], "cart") == "cart = [1]: must be a mapping of keys to values"
    assert refusal(Cart | Sled, 5, "ride") == "ride = 5: must be a mapping of keys to values"


def test_an_unknown_family_is_refused() -> None:
    assert refusal(Cart | Sled, {}, "ride") == "ride.family = (missing): no such family; choose from cart, sled"
    assert refusal(Cart | Sled, {"family": "slad"}, "ride").endswith("'slad': no such family; did you mean 'sled'?")
    assert refusal(Cart | Sled, {"family": ["cart"]}, "ride").startswith("ride.family = ['cart']: no such family")


def test_a_dimension_of_one_is_refused_as_the_design_says() -> None:
    dim = {"topology": "ring", "npus": 4, "bandwidth": "50 GB/s", "latency": "500 ns"}
    said = refusal(Network, {"dims": [dim, {**dim, "npus": 1}]}, "network")
    assert said == "network.dims.1.npus = 1: a dimension joins at least 2 NPUs"


# ---- paths


def test_leaves_are_all_fields_that_hold_no_further_ones() -> None:
    assert list(schema.leaf_fields(Cart(name="hay", wheels=(Wheel(spokes=8),), paint=("red",)), "cart")) == [
        ("cart.family", "cart"),
        ("cart.name", "hay"),
        ("cart.load", 1.0),
        ("cart.limit", None),
        ("cart.seats", 2),
        ("cart.covered", False),
        ("cart.pace", "walk"),
        ("cart.delay", 0.0),
        ("cart.price", None),
        ("cart.wheels.0.spokes", 8),
        ("cart.wheels.0.width", 8.0),
        ("cart.spare", None),
        ("cart.paint.0", "red"),
    ]


def test_a_path_leads_to_its_content() -> None:
    assert schema.get_field(CART, "wheels.1.spokes") == 6
    assert schema.get_field(CART, "spare") == Wheel(spokes=4)
    assert schema.get_field(CART, "delay") == 7e-07


def test_a_slot_knows_type_unit_and_names() -> None:
    assert schema.slot_at(CART, "wheels.1.spokes").hint is int
    assert schema.slot_at(CART, "wheels.1").hint is Wheel
    assert str(schema.slot_at(CART, "delay").dimension) == "s"
    assert schema.slot_at(CART, "pace").choices() == frozenset(("walk", "trot"))
    assert schema.slot_at(CART, "paint.0").choices() == frozenset(("red",))
    assert schema.slot_at(CART, "name").choices() is None


def test_assigning_changes_what_it_names_and_nothing_else() -> None:
    changed = schema.assign_fields(CART, {"seats": 4, "wheels.1.spokes": 9, "wheels.1.width": 3.0, "spare.spokes": 5})
    assert changed.seats == 4
    assert changed.wheels == (Wheel(spokes=8), Wheel(spokes=9, width_bytes=3.0))
    assert changed.spare == Wheel(spokes=5)
    assert schema.assign_fields(changed, {"seats": 1, "wheels": CART.wheels, "spare": CART.spare}) == CART
    assert CART.seats == 1


def test_assigning_a_place_of_a_list_replaces_its_entry() -> None:
    assert schema.assign_fields(CART, {"wheels.0": Wheel(spokes=3)}).wheels[0].spokes == 3


def test_assigning_checks_the_rules() -> None:
    with pytest.raises(SpecError, match=r"^wheels.0.spokes = 1: a wheel has at least 2 spokes$"):
        schema.assign_fields(CART, {"wheels.0.spokes": 1})


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("seat", "path = 'seat': no such field; did you mean 'seats'?"),
        ("spare.spoke", "path = 'spare.spoke': no such field; did you mean "),
        ("seats.x", "path = 'seats.x': no such field"),
        ("wheels.2", "path = 'wheels.2': '2' is none of the 2 places, which count from 0"),
        ("wheels.-1", "path = 'wheels.-1': '-1' is none of the 2 places, which count from 0"),
        ("wheels.x.spokes", "path = 'wheels.x"),
        ("", "path = '': no such field"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path: str, message: str) -> None:
    for attempt in (
        lambda: schema.get_field(CART, path),
        lambda: schema.slot_at(CART, path),
        lambda: schema.assign_fields(CART, {path: 1}),
    ):
        with pytest.raises(SpecError) as caught:
            attempt()
        assert str(caught.value).startswith(message)


def test_a_path_of_many_digits_is_refused_like_any_other() -> None:
    for attempt in (schema.get_field, schema.slot_at):
        with pytest.raises(SpecError, match="is none of the 2 places"):
            attempt(CART, "wheels." + "9" * 5000)


def test_the_suggested_path_differs_in_the_part_that_is_wrong() -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'wheels\.0\.spokes'"):
        schema.get_field(CART, "wheels.0.spoke")


def test_a_field_is_not_assigned_as_a_whole_and_in_part() -> None:
    with pytest.raises(SpecError, match=r"^path = 'spare': is set as a whole, and 'spare.spokes' too$"):
        schema.assign_fields(CART, {"spare": Wheel(spokes=3), "spare.spokes": 4})


def test_the_keys_of_a_class_are_its_fields_without_units() -> None:
    assert list(schema.slots(Dimension)) == [
        "topology",
        "npus",
        "bandwidth",
        "latency",
        "oversubscription",
        "transport",
        "fabric",
        "links",
    ]


@pytest.mark.parametrize(
    "letter", ["\n", "\r", "\t", "\0", "\x1b", "\x7f", "\x85", "\u2028", "\u202e", "\ud800", "\xa0"]
)
def test_text_that_is_not_printable_is_refused(letter: str) -> None:
    for change in ({"name": f"a{letter}b"}, {"paint": [letter]}):
        with pytest.raises(SpecError, match="must be printable text on one line"):
            schema.read_value(Cart, {**TREE, **change}, "cart")


def test_text_has_a_length() -> None:
    assert schema.read_value(Cart, {**TREE, "name": "é" * 200}, "cart").name == "é" * 200
    with pytest.raises(SpecError, match=r"^cart.name = .* has 201 characters, more than the 200 that it may have$"):
        schema.read_value(Cart, {**TREE, "name": "é" * 201}, "cart")
    assert schema.read_source("a/" * 2000, "model") == "a/" * 2000
    for wrong in (3, "a" * 4097, "a\n"):
        with pytest.raises(SpecError, match=r"^model = "):
            schema.read_source(wrong, "model")
