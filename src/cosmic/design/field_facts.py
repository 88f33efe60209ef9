"""What is declared of a field beside it: what it touches, when it has an effect, and how frameworks are told of it.

A field says in its metadata what other modules would have to name it for:

    tp_overlap: bool = declared(
        False,
        idle=unless("tp", above_one),                   # without tensor parallelism it means nothing
        flags={"megatron": Flag("--tp-comm-overlap"),   # read both ways: design to script, script to design
               "deepspeed": lacks({True: "DeepSpeed does not overlap tensor-parallel communication"})},
    )

Type, unit, default and bounds are those of the dataclass (`cosmic.design.schema`). Rules of mappings, exporters,
importers, spaces, advice and words read this declaration. A field that only a framework knows needs no more than it, and
the physics that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal

ModelKind = Literal["transformer", "recommender", "program"]
ALL_KINDS: frozenset[ModelKind] = frozenset({"transformer", "recommender", "program"})
NO_RECOMMENDERS = ALL_KINDS - {"recommender"}
NO_PROGRAMS = ALL_KINDS - {"program"}
TRANSFORMERS: frozenset[ModelKind] = frozenset({"transformer"})
Use = Literal["searched", "switch", "remapped"]
"""What searches do with a field of a mapping: choose it where a design states none (*searched*), as a *switch* that has
a plain value; and choose it again for another machine (*remapped*)."""
Idle = Callable[[Any], str]
"""Why a field of a layer has no effect, given the layer; nothing where it has one."""
OTHER: Any = "(any other value)"
"""Stands for each value that is not the framework's default and has no spelling."""


@dataclass(frozen=True, slots=True)
class Flag:
    """How one framework is told the value of a field, and what it does with values that it has not."""

    name: str = ""
    """The argument or key that has the value; of a field that is true or false, the switch itself."""
    spelled: Mapping[Any, Any] = field(default_factory=dict)
    """What the framework calls each value. A value that is not listed is not written; all are where none is."""
    sets: Mapping[Any, Mapping[str, Any]] = field(default_factory=dict, kw_only=True)
    """Several arguments at once, by value."""
    beside: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """Arguments that go with it wherever it is written."""
    otherwise: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """The arguments where `when` does not hold."""
    template: str = field(default="", kw_only=True)
    """The value as part of a text, in the place of ``{value}``."""
    default: Any = field(default=None, kw_only=True)
    """The value that the framework has where it is told nothing."""
    when: Callable[[Any], bool] | None = field(default=None, kw_only=True)
    """In which layers it is written; where the field has an effect if not given."""
    experts: bool = field(default=False, kw_only=True)
    """Whether it is an argument of models with experts alone."""
    lacks: Mapping[Any, str | Callable[[Any], str]] = field(default_factory=dict, kw_only=True)
    """What is to be said of a value that the framework has not; fields are named in braces, the value is ``{value}``. A
    function of the layer says it where that depends on other fields."""
    read: bool = field(default=True, kw_only=True)
    """Whether a reader takes the value as it stands. Of others it looks at several arguments, and says more."""


def lacks(values: Mapping[Any, str | Callable[[Any], str]], **about: Any) -> Flag:
    """Return that a framework has no argument for a field, and what is to be said of values that it does not do."""
    return Flag(lacks=values, **about)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldFacts:
    """What is declared of a field."""

    number: bool = False
    """Whether it is a number among sizes. All others are switches: designs that differ in one have different graphs."""
    training: bool = False
    """Whether only a step of training reads it."""
    single_step: bool = False
    """Whether it is of a single step, which a load of requests decides where there is one."""
    models: frozenset[ModelKind] = ALL_KINDS
    """Models that have a use for it."""
    experts: bool = False
    """Whether it means nothing without experts."""
    idle: Idle = lambda _: ""
    outer_states: frozenset[str] = frozenset()
    """Classes of state one of which must be outside HBM: else, it is idle as `idle` says, if that gives a reason."""
    uses: frozenset[Use] = frozenset()
    launched: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """The values that each framework can launch, in the order in which searches try them; ``any`` stands for what one of
    them can, or a researcher's branch of one."""
    launched_anyhow: Callable[[Any], bool] | None = None
    """In which layers frameworks launch every value alike; where the field has no effect if not given."""
    fastest: Any = None
    """The value with which a step takes least whatever the rest is; None where no value is declared to."""
    label: str = ""
    """The field in words, where its name is none."""
    flags: Mapping[str, Flag] = field(default_factory=dict)
    """How it is told to each framework, by target; ``training`` and ``serving`` have what is said of all of a kind."""


NOTHING = FieldFacts()


def facts(*, least: int | None = None, most: float | None = None, names: Any = None, **about: Any) -> dict[str, Any]:
    """Return the metadata of a field: its facts, and what the reader of files needs to know."""
    limits = {"least": least, "most": most, "names": names}
    return {"facts": FieldFacts(**about)} | {key: limit for key, limit in limits.items() if limit is not None}


def declared(default: Any, **about: Any) -> Any:
    """Return a field with a default and what is declared of it, as `facts` takes it."""
    return field(default=default, metadata=facts(**about))


@cache
def facts_of(layer: type) -> dict[str, FieldFacts]:
    """Return what is declared of each field of a layer, in the order of the fields."""
    return {each.name: each.metadata.get("facts", NOTHING) for each in fields(layer)}


@cache
def fields_used(layer: type, use: Use) -> tuple[str, ...]:
    """Return the fields with which searches do something."""
    return tuple(name for name, about in facts_of(layer).items() if use in about.uses)


# ---- When a field has an effect


def above_one(value: Any) -> bool:
    """Return whether a degree is above 1."""
    return bool(value > 1)


def one_of(*values: Any) -> Callable[[Any], bool]:
    """Return a test whether a value is one of some."""
    return lambda value: value in values


def none_of(*values: Any) -> Callable[[Any], bool]:
    """Return a test whether a value is none of some."""
    return lambda value: value not in values


def is_given(value: Any) -> bool:
    """Return whether a field that may be left out is there."""
    return value is not None


def unless(name: str, test: Callable[[Any], bool]) -> Idle:
    """Return that a field is idle unless another one passes a test; the reason is the other one's value.

    >>> from types import SimpleNamespace
    >>> unless("tp", above_one)(SimpleNamespace(tp=1)), unless("tp", above_one)(SimpleNamespace(tp=2))
    ('tp is 1', '')
    """

    def reason(layer: Any) -> str:
        value = getattr(layer, name)
        if test(value):
            return ""
        return f"{name} is not given" if value is None else f"{name} is {value}"

    return reason


# ---- What a framework is told


def flags_of(layer: type, target: str) -> Iterator[tuple[str, Flag]]:
    """Yield the fields of a layer of which a target is told, or has something to say."""
    return ((name, about.flags[target]) for name, about in facts_of(layer).items() if target in about.flags)


def fields_told(layer: type, target: str, argument: str, spelled: Any) -> dict[str, Any]:
    """Return the field that an argument of a framework means, and its value; nothing where it has no such value.

    An argument that is not there, *spelled* None, means the framework's default.

    >>> from cosmic.design.workload_layer import Workload
    >>> fields_told(Workload, "deepspeed", "zero_optimization.stage", 2)
    {'weight_sharding': 'zero2'}
    """
    for name, flag in flags_of(layer, target):
        values = [*flag.spelled.items()] if flag.name == argument else _values_setting(flag, argument)
        if values and spelled is None:
            return {name: flag.default}
        for value, word in values:
            if word == spelled:
                return {name: value}
    return {}


def spellings(layer: type, target: str, argument: str) -> tuple[Any, ...]:
    """Return the values that an argument of a framework may have, as the framework spells them."""
    flags = [flag for _, flag in flags_of(layer, target)]
    words = [word for flag in flags if flag.name == argument for word in flag.spelled.values()]
    return tuple(dict.fromkeys(words + [word for flag in flags for _, word in _values_setting(flag, argument)]))


def _values_setting(flag: Flag, argument: str) -> list[tuple[Any, Any]]:
    return [(value, arguments[argument]) for value, arguments in flag.sets.items() if argument in arguments]


def value_in_words(value: Any) -> str:
    """Return the value of a field as sentences have it.

    >>> value_in_words(("core_attn", "mlp")), value_in_words(1536.0), value_in_words(2)
    ('core_attn, mlp', '1536', '2')
    """
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def arguments_of(flag: Flag, value: Any) -> Mapping[str, Any]:
    """Return the arguments that tell a framework the value of a field.

    >>> arguments_of(Flag("--cp-comm-type", {"ring": "p2p"}), "ring"), arguments_of(Flag("--dropout"), False)
    ({'--cp-comm-type': 'p2p'}, {})
    """
    if flag.sets:
        return flag.sets.get(value, {})
    if not flag.name or value is False or value is None:
        return {}
    if flag.spelled and value not in flag.spelled:
        return {}
    text = flag.template.format(value=value) if flag.template else flag.spelled.get(value, value)
    return {**flag.beside, flag.name: text}


def tells(name: str, flag: Flag, layer: Any) -> bool:
    """Return whether a framework is told of a field in a layer."""
    cls: Any = type(layer)
    return flag.when(layer) if flag.when else not facts_of(cls)[name].idle(layer)


def written_arguments(layer: Any, target: str, *, moe: bool) -> dict[str, Any]:
    """Return the arguments that tell a framework the fields of a layer; *moe*, of a model with experts."""
    arguments: dict[str, Any] = {}
    for name, flag in flags_of(type(layer), target):
        if moe or not flag.experts:
            arguments |= arguments_of(flag, getattr(layer, name)) if tells(name, flag, layer) else flag.otherwise
    return arguments


def unsupported_fields(layer: Any, target: str, *, moe: bool) -> Iterator[str]:
    """Yield what is to be said of each field whose value a framework has not, one sentence each."""
    for name, flag in flags_of(type(layer), target):
        if (moe or not flag.experts) and tells(name, flag, layer):
            sentence = _lacking(flag, layer, getattr(layer, name))
            if sentence:
                yield sentence


def _lacking(flag: Flag, layer: Any, value: Any) -> str:
    known = value == flag.default or value in flag.spelled or value in flag.sets
    sentence = flag.lacks.get(value) or ("" if known else flag.lacks.get(OTHER, ""))
    if callable(sentence):
        return sentence(layer)
    words = {each.name: value_in_words(getattr(layer, each.name)) for each in fields(layer)} if "{" in sentence else {}
    return sentence.format(**words | {"value": value_in_words(value)}) if words else sentence
