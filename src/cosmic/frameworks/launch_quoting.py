"""Text as a launch script and its files hold it: data, whatever is in it.

Names from files are printable (`cosmic.base.errors.check_text`), but a design can also be built in Python. What is
unprintable is written as its escape, as in messages: so a script has no line and no character that it does not show.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

import yaml

from cosmic.base.errors import SpecError, one_line, require

ArgumentValue = str | int | float | list[str] | list[list[str]]
"""Value of an argument; True marks a flag without a value. Lists of lists are for files only."""
END_OF_FILE = "END_OF_FILE"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


# ---- shells


def quote_comment(text: str) -> str:
    r"""Return *text* as a comment of a shell, which is one line.

    >>> print(quote_comment("llama\nreboot"))
    # llama\nreboot
    """
    return f"# {one_line(text)}"


def quote_word(text: str) -> str:
    r"""Return *text* as one word of a shell.

    >>> print(quote_word("8"), quote_word("$(reboot)"), quote_word("a\nb"))
    8 '$(reboot)' 'a\nb'
    """
    return shlex.quote(one_line(text))


def quote_export(name: str, value: str) -> str:
    """Return the line that sets a variable of the environment.

    >>> quote_export("NCCL_ALGO", "allreduce:tree;allgather:ring")
    "export NCCL_ALGO='allreduce:tree;allgather:ring'"
    """
    rule = "must have letters, digits and underscores only, and begin with no digit"
    require(_VARIABLE.fullmatch(name) is not None, "environment", name, rule)
    return f"export {name}={quote_word(value)}"


def quote_options(arguments: Mapping[str, ArgumentValue], *, equals: bool = False) -> list[str]:
    """Return arguments quoted for a shell, each with its value behind a blank, or with *equals* behind that sign.

    >>> quote_options({"--bf16": True, "--cp-comm-type": ["p2p"], "--moe-layer-freq": "([0]*3+[1]*58)"})
    ['--bf16', '--cp-comm-type p2p', "--moe-layer-freq '([0]*3+[1]*58)'"]
    >>> quote_options({"--tag": "-x"}), quote_options({"--system": "a b"}, equals=True)
    (['--tag=-x'], ["--system='a b'"])
    """
    return [_quote_option(name, value, equals) for name, value in arguments.items()]


def _quote_option(name: str, value: ArgumentValue, equals: bool) -> str:
    if value is True:
        return quote_word(name)
    if isinstance(value, list):
        words = [element if isinstance(element, str) else ",".join(element) for element in value]
        for word in words:
            require(not word.startswith("-"), name, word, "would be taken for an option")
        return " ".join(map(quote_word, (name, *words)))
    text = str(value)
    return f"{quote_word(name)}{'=' if equals or text.startswith('-') else ' '}{quote_word(text)}"


def quote_here_document(name: str, text: str) -> Iterator[str]:
    """Yield the lines that write *text* to the file *name*; no line of the text ends it early.

    >>> list(quote_here_document("a.txt", "END_OF_FILE"))
    ["cat > a.txt <<'END_OF_FILE_'", 'END_OF_FILE', 'END_OF_FILE_']
    """
    lines = text.removesuffix("\n").split("\n")
    end = END_OF_FILE
    while end in lines:
        end += "_"
    yield f"cat > {quote_word(name)} <<'{end}'"
    yield from lines
    yield end


# ---- TOML


def dump_toml(keys: Mapping[str, ArgumentValue]) -> str:
    """Return dotted keys as TOML, with a table for each first key.

    >>> print(dump_toml({"training.steps": 50, "training.compile": True, "model.converters": ["float8"]}), end="")
    [training]
    steps = 50
    compile = true
    <BLANKLINE>
    [model]
    converters = ["float8"]
    """
    tables: dict[str, list[str]] = {}
    for key, value in keys.items():
        table, _, name = key.partition(".")
        tables.setdefault(table, []).append(f"{_toml_key(name)} = {_toml_value(value, key)}")
    return "\n\n".join("\n".join([f"[{_toml_key(table)}]", *lines]) for table, lines in tables.items()) + "\n"


def _toml_key(text: str) -> str:
    return text if _BARE_KEY.fullmatch(text) else _toml_text(text)


def _toml_value(value: ArgumentValue, where: str) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(element, where) for element in value)}]"
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, float) and not isfinite(value):
        raise SpecError(where, value, "must be finite")
    return json.dumps(value)


def _toml_text(text: str) -> str:
    r"""Return *text* as a basic string.

    >>> print(_toml_text('a "b" \\ Zoë'))
    "a \"b\" \\ Zoë"
    """
    return json.dumps(one_line(text), ensure_ascii=False)


# ---- YAML


def dump_launch_yaml(tree: Any) -> str:
    """Return *tree* as YAML, a line for each key, in their order.

    >>> print(dump_launch_yaml({"kv_cache_config": {"dtype": "fp8"}, "urls": ["localhost:8001"]}), end="")
    kv_cache_config:
      dtype: fp8
    urls:
    - localhost:8001
    """
    return str(yaml.dump(tree, Dumper=_NoAliasDumper, sort_keys=False, default_flow_style=False, width=120))


class _NoAliasDumper(yaml.SafeDumper):
    """A dumper that writes repeated values in full, without anchors and aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: no value gets an alias."""
        return True
