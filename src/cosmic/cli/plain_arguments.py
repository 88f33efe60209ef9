"""Read plain command lines without Typer's machinery, whose types alone take longer to load than a design to evaluate.

Only what can mean one thing is read here: words, options that are spelled in full, each at most once unless it is a
list, with a value of its own. Everything else (help, mistakes, numbers, a value after an equals sign) is left to Typer,
so that there is one place that refuses, and both ways call a command alike.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption
from typer.models import ArgumentInfo, OptionInfo

_PLAIN: dict[Any, Callable[[str], Any]] = {str: str, str | None: str, Path: Path, Path | None: Path}
"""How a word is read, by the type of its parameter."""
_UNUSUAL = ("callback", "click_type", "default_factory", "envvar", "exists", "parser", "prompt", "resolve_path")
"""What sets, changes or checks a value in ways of its own."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter of a command."""

    name: str
    kind: Any
    info: ArgumentInfo | OptionInfo
    default: Any

    @property
    def spellings(self) -> tuple[str, ...]:
        """The words that name an option: in an annotation, the first stands where a default would."""
        stated = (self.info.default, *(self.info.param_decls or ()))
        return tuple(each for each in stated if isinstance(each, str)) or (f"--{self.name.replace('_', '-')}",)

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
        return self.default is inspect.Parameter.empty

    def unset(self) -> Any:
        """Return its value where it is not given."""
        return list(self.default) if isinstance(self.default, list) else self.default


class StrictCommand(TyperCommand):
    """A command whose options of one value are stated once: Typer would keep the last, and drop the others unsaid."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of a command line."""
        _, _, stated = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in stated:
            single = isinstance(parameter, TyperOption) and not parameter.multiple and not parameter.is_flag
            if single and stated.count(parameter) > 1:
                raise typer.BadParameter("it is given more than once", ctx=ctx, param_hint=f"'{parameter.opts[0]}'")
        return super().parse_args(ctx, args)


def start_command(function: Callable[..., Any], words: list[str]) -> tuple[bool, Any]:
    """Return whether a command line was read here, and what its command returned: None, or an exit status."""
    values = read_arguments(function, words)
    if values is None:
        return False, None
    try:
        return True, function(**values)
    except typer.Exit as done:
        return True, done.exit_code


def read_arguments(function: Callable[..., Any], words: list[str]) -> dict[str, Any] | None:
    """Return the arguments of *function* that *words* state; None if Typer shall read them."""
    parameters = _parameters(function)
    if parameters is None:
        return None
    options = {
        word: parameter
        for parameter in parameters
        if isinstance(parameter.info, OptionInfo)
        for word in parameter.spellings
    }
    values: dict[str, Any] = {}
    free: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if not _is_plain_word(word):
            option = options.get(word)
            if option is None or not _take_option(option, remaining, values):
                return None
        else:
            free.append(word)
    arguments = [parameter for parameter in parameters if isinstance(parameter.info, ArgumentInfo)]
    if len(free) > len(arguments) or any(argument.kind not in _PLAIN for argument in arguments):
        return None
    values |= {argument.name: _PLAIN[argument.kind](word) for argument, word in zip(arguments, free, strict=False)}
    return _fill_defaults(parameters, values)


def _parameters(function: Callable[..., Any]) -> list[_Parameter] | None:
    """Return the parameters of a command; None if one of them is unusual."""
    hints = get_type_hints(function, include_extras=True)
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind, *about = get_args(hints[name]) or (hints[name],)
        if len(about) != 1 or not isinstance(about[0], ArgumentInfo | OptionInfo):
            return None
        if any(getattr(about[0], each, None) for each in _UNUSUAL):
            return None
        parameters.append(_Parameter(name, kind, about[0], parameter.default))
    return parameters


def _is_plain_word(word: str) -> bool:
    """Return whether a word is a value: no option, and text that every type takes as it is."""
    return bool(word) and word.isascii() and word.isprintable() and not word.startswith("-")


def _take_option(option: _Parameter, remaining: Any, values: dict[str, Any]) -> bool:
    """Read an option and its value into *given*; return whether that could be done."""
    name, kind = option.name, option.kind
    if kind is bool and option.default is False and not any("/" in spelling for spelling in option.spellings):
        first, values[name] = name not in values, True
        return first
    value = next(remaining, "")
    if not _is_plain_word(value):
        return False
    if kind == list[str]:
        values.setdefault(name, []).append(value)
        return True
    if name in values or kind not in _PLAIN:
        return False
    values[name] = _PLAIN[kind](value)
    return True


def _fill_defaults(parameters: list[_Parameter], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the value of each parameter; None if a required one is missing."""
    if any(parameter.is_required and parameter.name not in values for parameter in parameters):
        return None
    return {
        parameter.name: values[parameter.name] if parameter.name in values else parameter.unset()
        for parameter in parameters
    }
