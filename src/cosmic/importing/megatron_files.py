"""Megatron-LM: shell scripts, argument files and YAML configurations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cosmic.catalog.yaml_files import parse_yaml
from cosmic.design.model import is_moe
from cosmic.errors import SpecError, require, shorten
from cosmic.importing.arguments import Argument, Arguments, parse_words
from cosmic.importing.launches import Reading, Request, check_layers
from cosmic.importing.megatron import Shape, workload_tree
from cosmic.importing.megatron_model import describes_model, model_tree, tokenizer_vocabulary
from cosmic.importing.megatron_names import READ, finish
from cosmic.importing.recognition import recognised
from cosmic.importing.scale import NONE, Scale, scale_of
from cosmic.importing.shell import LARGEST_BYTES, Script, script_of
from cosmic.importing.shell_values import DOUBT

OTHER_PROGRAMS = {
    "pretrain_bert": "encoders",
    "pretrain_t5": "encoder-decoders",
    "pretrain_mamba": "state-space layers",
    "pretrain_hybrid": "state-space layers",
    "pretrain_retro": "retrieval",
    "pretrain_vlm": "vision towers",
    "pretrain_ict": "retrieval",
    "pretrain_vision": "vision transformers",
}
"""Programs of Megatron-LM whose models are others."""
SECTIONS = ("MODEL_ARGS", "model_args", "args", "arguments")
"""Keys under which YAML files list arguments."""


def read(request: Request) -> Reading:
    """Return the design of a script, of a file of arguments, or of a YAML file."""
    suffix = request.path.suffix.lower()
    rule = "is no shell script, file of arguments or YAML file"
    require(suffix not in (".json", ".toml", ".py"), "file", str(request.path), rule)
    text = request.text()
    if suffix in (".yaml", ".yml"):
        arguments, scale = from_yaml(request, text)
    else:
        require(len(text) <= LARGEST_BYTES, "file", str(request.path), f"has more than {LARGEST_BYTES:,} characters")
        arguments, scale = from_script(script_of(text, request.where, request.defines))
    return design(request, arguments, scale)


def design(request: Request, arguments: Arguments, scale: Scale, *, dropout: float = 0.1) -> Reading:
    """Return the design that arguments in Megatron-LM's spelling describe."""
    system, npus = request.placed(scale, arguments.assumed)
    model = _model(request, arguments)
    whole = check_layers(request.resolved(model), "--model")
    workload = workload_tree(arguments, npus, Shape(whole.layers, is_moe(whole)), dropout=dropout)
    finish(arguments)
    return Reading.of(model, system, workload, scale, arguments)


def _model(request: Request, arguments: Arguments) -> str | dict[str, Any]:
    """Return the model: the one that the user names, one of the catalog with the same sizes, or the sizes."""
    if request.model:
        if describes_model(arguments):
            model_tree(arguments)
            arguments.assume(f"{request.model} as --model says; the sizes in the file are not used")
        return request.model
    if not describes_model(arguments):
        rule = "the file does not describe the model: name it with --model"
        raise SpecError(f"{arguments.where} model", "nothing", rule)
    tree = model_tree(arguments)
    sequence = arguments.whole("--seq-length") or 0
    known = recognised(tree, sequence)
    if known is not None:
        if "vocab" not in tree:
            arguments.assume(f"the vocabulary of {known}")
        return known
    if "vocab" not in tree and not request.stated("model.vocab"):
        found = tokenizer_vocabulary(arguments)
        if found is None:
            rule = "is left to the tokenizer, which is not read: give --set model.vocab=N"
            raise SpecError(f"{arguments.where} --vocab-size", "nothing", rule)
        tree["vocab"] = found[0]
        arguments.assume(f"a vocabulary of {found[0]:,}, as {found[1]} has it")
    return {"name": re.sub(r"[^\w.-]+", "-", request.path.stem)[:60] or "model", **tree}


# ------------------------------------------------------------------------------------------------------- scripts


def from_script(script: Script) -> tuple[Arguments, Scale]:
    """Return the arguments of the one launch in a script, and its accelerators."""
    launches = [(command.words, command.line) for command in script.commands if _is_launch(command.words)]
    loose = [words for words, _ in launches if words[0].startswith("--")]
    if loose and len(loose) == len(launches):  # a file of arguments, a line for some of them each
        launches = [(tuple(word for words in loose for word in words), launches[0][1])]
    if not launches:
        launches = [(_of_variables(script), 0)]
    programs = {_split(words)[1]: line for words, line in reversed(launches)}
    if len(programs) > 1:
        lines = ", ".join(str(line) for line in sorted(programs.values()))
        raise SpecError(script.where, f"{len(programs)} launches", f"lines {lines} launch different jobs: keep one")
    launcher, program = _split(launches[0][0])
    for word in launcher:
        other = OTHER_PROGRAMS.get(word.rpartition("/")[2].removesuffix(".py"))
        if other:
            raise SpecError(script.where, word, f"trains models with {other}: only decoders are read")
    arguments = parse_words(program, script.where, script.state.reasons)
    if not arguments.given:
        raise _nothing(script.where, script.sourced)
    if script.sourced:
        files = ", ".join(map(arguments.readable, script.sourced))
        arguments.assume(f"nothing of what {files} sets, which is not read")
    return arguments, scale_of(script, launcher)


def _nothing(where: str, sourced: list[str]) -> SpecError:
    also = f"; {', '.join(sourced)} is not read" if sourced else ""
    return SpecError(where, "no launch", f"has no argument of Megatron-LM, such as --num-layers{also}")


def _is_launch(words: tuple[str, ...]) -> bool:
    return any(_name(word) in READ for word in words)


def _name(word: str) -> str:
    return DOUBT.sub("", word).partition("=")[0].replace("_", "-")


def _split(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what stands before the arguments of the program, its name included, and the arguments."""
    first = next((place for place, word in enumerate(words) if _name(word) in READ), len(words))
    program = next((place for place in range(first) if DOUBT.sub("", words[place]).endswith(".py")), None)
    if program is not None:
        return words[: program + 1], words[program + 1 :]
    module = next((place + 1 for place in range(first - 1) if words[place] == "-m"), None)
    if module is not None and not words[module].startswith("torch.distributed"):
        return words[: module + 1], words[module + 1 :]
    start = first if not words[0].startswith("--") else 0
    return words[:start], words[start:]


def _of_variables(script: Script) -> tuple[str, ...]:
    """Return the arguments that variables hold, in a script that launches nothing itself."""
    found: list[str] = []
    for value in script.state.variables.values():
        words = value.split() if isinstance(value, str) else [part for word in value for part in word.split()]
        new = _is_launch(tuple(words)) and not set(words) <= set(found)
        found += words if new and words[0].startswith("--") else []
    if not found:
        raise _nothing(script.where, script.sourced)
    return tuple(found)


# ---------------------------------------------------------------------------------------------------------- YAML


def from_yaml(request: Request, text: str) -> tuple[Arguments, Scale]:
    """Return the arguments of a YAML file: nested as for --yaml-cfg, or under their own names (--bf16: true)."""
    from cosmic.importing.nested import arguments_of  # noqa: PLC0415  NeMo's reader imports this module

    tree = parse_yaml(text, request.where)
    require(isinstance(tree, dict), request.where, tree, "must be a mapping of arguments to values")
    inner = next((tree[key] for key in SECTIONS if isinstance(tree.get(key), Mapping)), None)
    if inner is not None or any(str(key).startswith("--") for key in tree):
        return _flat(request, inner or tree), _yaml_scale(request)
    return arguments_of(tree, request), _yaml_scale(request)


def _yaml_scale(request: Request) -> Scale:
    world = request.defines.get("WORLD_SIZE", "")
    return Scale(int(world), f"WORLD_SIZE={world}") if re.fullmatch(r"[1-9]\d{0,7}", world) else NONE


def _flat(request: Request, tree: Mapping[str, Any]) -> Arguments:
    """Return arguments that a mapping lists; variables of a shell in values are the user's to define."""
    given: dict[str, list[Any]] = {}
    for key, value in tree.items():
        require(isinstance(key, str), request.where, key, "must be the name of an argument")
        if value is not None and value is not False:
            given[key] = [] if value is True else value if isinstance(value, list) else [value]
    require(bool(given), request.where, shorten(dict(tree)), "has no argument of Megatron-LM")
    lines = [f"{_variable(place, turn)}={_quoted(str(word))}" for place, turn, word in _numbered(given)]
    state = script_of("\n".join(lines), request.where, request.defines).state
    found = Arguments(request.where, reasons=state.reasons)
    for place, (key, words) in enumerate(given.items()):
        values = tuple(str(state.variables[_variable(place, turn)]) for turn in range(len(words)))
        found.given[f"--{key.lstrip('-').replace('_', '-')}"] = Argument(values, key)
    return found


def _numbered(given: Mapping[str, list[Any]]) -> list[tuple[int, int, Any]]:
    return [(place, turn, word) for place, words in enumerate(given.values()) for turn, word in enumerate(words)]


def _variable(place: int, turn: int) -> str:
    return f"_argument_{place}_{turn}"


def _quoted(text: str) -> str:
    escaped = re.sub(r'(["\\`])', r"\\\1", text)
    return f'"{escaped}"'
