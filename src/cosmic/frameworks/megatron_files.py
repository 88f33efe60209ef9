"""Megatron-LM: shell scripts, argument files and YAML configurations; NeMo and Megatron-Bridge: recipes in YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cosmic.base.errors import SpecError, as_key, require, shorten
from cosmic.design.model_layer import is_moe
from cosmic.design.plain_data import parse_yaml
from cosmic.frameworks.launch_arguments import NamedArgument, NamedArguments, parse_arguments
from cosmic.frameworks.launch_readers import ImportedLayers, ImportRequest, check_decoder
from cosmic.frameworks.launch_scale import MOST_NPUS, NO_SCALE, LaunchScale, find_launch_scale
from cosmic.frameworks.megatron_arguments import READ_ARGUMENTS, nested_arguments, note_unread_arguments
from cosmic.frameworks.megatron_model import megatron_model_tree, recognise_model
from cosmic.frameworks.shell_expansion import DOUBT
from cosmic.frameworks.shell_script import LARGEST_BYTES, ShellScript, follow_script
from cosmic.frameworks.targets.megatron import DecoderShape, megatron_workload_tree

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
SIZES = ("--num-layers", "--hidden-size", "--num-attention-heads")
"""What every description of a model states."""
TOKENIZERS = {
    r"gpt2bpe|gpt2": 50257,
    r"llama-?2|llama2tokenizer|mixtral|mistral-7b": 32000,
    r"llama-?3": 128256,
    r"qwen2\.5|qwen3": 151936,
    r"deepseek-v[23]": 129280,
}
"""Vocabularies by what tokenizers are called."""


def read_megatron(request: ImportRequest) -> ImportedLayers:
    """Return the design of a script, of a file of arguments, or of a YAML file."""
    suffix = request.path.suffix.lower()
    rule = "is no shell script, file of arguments or YAML file"
    require(suffix not in (".json", ".toml", ".py"), "file", str(request.path), rule)
    text = request.text()
    if suffix in (".yaml", ".yml"):
        arguments, scale = yaml_arguments(request, text)
    else:
        require(len(text) <= LARGEST_BYTES, "file", str(request.path), f"has more than {LARGEST_BYTES:,} characters")
        arguments, scale = script_arguments(follow_script(text, request.where, request.defines))
    return design_of_arguments(request, arguments, scale)


def design_of_arguments(
    request: ImportRequest, arguments: NamedArguments, scale: LaunchScale, *, dropout: float = 0.1
) -> ImportedLayers:
    """Return the design that arguments in Megatron-LM's spelling describe."""
    system, npus = request.placed(scale, arguments.assumed)
    model = _resolve_model(request, arguments)
    decoder = check_decoder(request.resolved(model), "--model")
    workload = megatron_workload_tree(arguments, npus, DecoderShape(decoder.layers, is_moe(decoder)), dropout=dropout)
    note_unread_arguments(arguments)
    return ImportedLayers.of(model, system, workload, scale, arguments)


def _resolve_model(request: ImportRequest, arguments: NamedArguments) -> str | dict[str, Any]:
    """Return the model: the one that the user names, one of the catalog with the same sizes, or the sizes."""
    if request.model:
        if _states_model(arguments):
            megatron_model_tree(arguments)
            arguments.assume(f"{request.model} as --model says; the sizes in the file are not used")
        return request.model
    if not _states_model(arguments):
        rule = "the file does not describe the model: name it with --model"
        raise SpecError(f"{arguments.where} model", "nothing", rule)
    tree = megatron_model_tree(arguments)
    sequence = arguments.whole("--seq-length") or 0
    catalog_model = recognise_model(tree, sequence)
    if catalog_model is not None:
        if "vocab" not in tree:
            arguments.assume(f"the vocabulary of {catalog_model}")
        return catalog_model
    if "vocab" not in tree and not request.stated("model.vocab"):
        vocabulary = _tokenizer_vocabulary(arguments)
        if vocabulary is None:
            rule = "is left to the tokenizer, which is not read: give --set model.vocab=N"
            raise SpecError(f"{arguments.where} --vocab-size", "nothing", rule)
        tree["vocab"] = vocabulary[0]
        arguments.assume(f"a vocabulary of {vocabulary[0]:,}, as {vocabulary[1]} has it")
    return {"name": re.sub(r"[^\w.-]+", "-", request.path.stem)[:60] or "model", **tree}


def _states_model(arguments: NamedArguments) -> bool:
    """Return whether the arguments state the sizes of a model."""
    return any(name in arguments for name in SIZES)


def _tokenizer_vocabulary(arguments: NamedArguments) -> tuple[int, str] | None:
    """Return the size of a vocabulary by the name of its tokenizer, and that name; None if it tells nothing."""
    for name in ("--tokenizer-model", "--tokenizer-type"):
        argument = arguments.given.get(name)
        called = arguments.readable(" ".join(argument.values)).lower() if argument else ""
        for pattern, size in TOKENIZERS.items():
            if called and re.search(pattern, called):
                return size, arguments.shown(name)
    return None


# ---- scripts


def script_arguments(script: ShellScript) -> tuple[NamedArguments, LaunchScale]:
    """Return the arguments of the one launch in a script, and its accelerators."""
    launches = [(command.words, command.line) for command in script.commands if _is_launch(command.words)]
    loose = [words for words, _ in launches if words[0].startswith("--")]
    if loose and len(loose) == len(launches):  # a file of arguments, a line for some of them each
        launches = [(tuple(word for words in loose for word in words), launches[0][1])]
    if not launches:
        launches = [(_variable_arguments(script), 0)]
    programs = {_split_launch(words)[1]: line for words, line in reversed(launches)}
    if len(programs) > 1:
        lines = ", ".join(str(line) for line in sorted(programs.values()))
        raise SpecError(script.where, f"{len(programs)} launches", f"lines {lines} launch different jobs: keep one")
    launcher, program = _split_launch(launches[0][0])
    for word in launcher:
        other_program = OTHER_PROGRAMS.get(word.rpartition("/")[2].removesuffix(".py"))
        if other_program:
            raise SpecError(script.where, word, f"trains models with {other_program}: only decoders are read")
    arguments = parse_arguments(program, script.where, script.state.reasons)
    if not arguments.given:
        raise _no_launch_error(script.where, script.sourced)
    if script.sourced:
        files = ", ".join(map(arguments.readable, script.sourced))
        arguments.assume(f"nothing of what {files} sets, which is not read")
    return arguments, find_launch_scale(script, launcher)


def _no_launch_error(where: str, sourced: list[str]) -> SpecError:
    also = f"; {', '.join(sourced)} is not read" if sourced else ""
    return SpecError(where, "no launch", f"has no argument of Megatron-LM, such as --num-layers{also}")


def _is_launch(words: tuple[str, ...]) -> bool:
    return any(_argument_name(word) in READ_ARGUMENTS for word in words)


def _argument_name(word: str) -> str:
    return DOUBT.sub("", word).partition("=")[0].replace("_", "-")


def _split_launch(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what stands before the arguments of the program, its name included, and the arguments."""
    first = next((index for index, word in enumerate(words) if _argument_name(word) in READ_ARGUMENTS), len(words))
    program = next((index for index in range(first) if DOUBT.sub("", words[index]).endswith(".py")), None)
    if program is not None:
        return words[: program + 1], words[program + 1 :]
    module = next((index + 1 for index in range(first - 1) if words[index] == "-m"), None)
    if module is not None and not words[module].startswith("torch.distributed"):
        return words[: module + 1], words[module + 1 :]
    start = first if not words[0].startswith("--") else 0
    return words[:start], words[start:]


def _variable_arguments(script: ShellScript) -> tuple[str, ...]:
    """Return the arguments that variables hold, in a script that launches nothing itself."""
    words_of_arguments: list[str] = []
    for value in script.state.variables.values():
        words = value.split() if isinstance(value, str) else [part for word in value for part in word.split()]
        new = _is_launch(tuple(words)) and not set(words) <= set(words_of_arguments)
        words_of_arguments += words if new and words[0].startswith("--") else []
    if not words_of_arguments:
        raise _no_launch_error(script.where, script.sourced)
    return tuple(words_of_arguments)


# ---- YAML


def yaml_arguments(request: ImportRequest, text: str) -> tuple[NamedArguments, LaunchScale]:
    """Return the arguments of a YAML file: nested as for --yaml-cfg, or under their own names (--bf16: true)."""
    tree = parse_yaml(text, request.where)
    require(isinstance(tree, dict), request.where, tree, "must be a mapping of arguments to values")
    inner = next((tree[key] for key in SECTIONS if isinstance(tree.get(key), Mapping)), None)
    if inner is not None or any(str(key).startswith("--") for key in tree):
        return _listed_arguments(request, inner or tree), _yaml_scale(request)
    return nested_arguments(tree, request), _yaml_scale(request)


def _yaml_scale(request: ImportRequest) -> LaunchScale:
    world = request.defines.get("WORLD_SIZE", "")
    return LaunchScale(int(world), f"WORLD_SIZE={world}") if re.fullmatch(r"[1-9]\d{0,7}", world) else NO_SCALE


def _listed_arguments(request: ImportRequest, tree: Mapping[str, Any]) -> NamedArguments:
    """Return arguments that a mapping lists; variables of a shell in values are the user's to define."""
    values_by_name: dict[str, list[Any]] = {}
    for key, value in tree.items():
        require(isinstance(key, str), request.where, key, "must be the name of an argument")
        if value is not None and value is not False:
            values_by_name[key] = [] if value is True else value if isinstance(value, list) else [value]
    require(bool(values_by_name), request.where, shorten(dict(tree)), "has no argument of Megatron-LM")
    lines = [
        f"{_variable_name(index, position)}={_quote_double(str(word))}"
        for index, position, word in _number_values(values_by_name)
    ]
    state = follow_script("\n".join(lines), request.where, request.defines).state
    arguments = NamedArguments(request.where, reasons=state.reasons)
    for index, (key, words) in enumerate(values_by_name.items()):
        values = tuple(str(state.variables[_variable_name(index, position)]) for position in range(len(words)))
        arguments.given[f"--{key.lstrip('-').replace('_', '-')}"] = NamedArgument(values, key)
    return arguments


def _number_values(values_by_name: Mapping[str, list[Any]]) -> list[tuple[int, int, Any]]:
    return [
        (index, position, word)
        for index, words in enumerate(values_by_name.values())
        for position, word in enumerate(words)
    ]


def _variable_name(index: int, position: int) -> str:
    return f"_argument_{index}_{position}"


def _quote_double(text: str) -> str:
    escaped = re.sub(r'(["\\`])', r"\\\1", text)
    return f'"{escaped}"'


# ---- Recipes of NeMo and Megatron-Bridge

NODES = ("num_nodes", "nnodes")
PER_NODE = ("devices", "num_gpus_per_node", "gpus_per_node", "nproc_per_node", "ntasks_per_node")
TOTAL = ("num_gpus", "world_size")


def read_nemo(request: ImportRequest) -> ImportedLayers:
    """Return the design of a recipe."""
    suffix = request.path.suffix.lower()
    require(suffix in (".yaml", ".yml", ".json"), "file", str(request.path), "is no YAML file, which recipes are")
    tree = parse_yaml(request.text(), request.where)
    require(isinstance(tree, dict), request.where, tree, "must be a mapping of keys to values")
    arguments = nested_arguments(tree, request)
    require(bool(arguments.given), request.where, tree, "has no key of a recipe, such as model.num_layers")
    return design_of_arguments(request, arguments, nemo_scale(tree), dropout=0.0)


def nemo_scale(tree: Mapping[Any, Any]) -> LaunchScale:
    """Return the accelerators of a recipe: nodes by devices.

    >>> nemo_scale({"trainer": {"num_nodes": 4, "devices": 8}}).npus
    32
    """
    counts = dict(_find_counts(tree, ()))
    total = next((entry for entry in counts.items() if entry[0].rpartition(".")[2] in TOTAL), None)
    if total is not None:
        return LaunchScale(total[1], f"{total[0]} {total[1]}")
    nodes = next((entry for entry in counts.items() if entry[0].rpartition(".")[2] in NODES), None)
    devices = next((entry for entry in counts.items() if entry[0].rpartition(".")[2] in PER_NODE), None)
    if nodes is None or devices is None:
        return NO_SCALE
    return LaunchScale(nodes[1] * devices[1], f"{nodes[0]} {nodes[1]} × {devices[0]} {devices[1]}")


def _find_counts(tree: Mapping[Any, Any], path: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers that count nodes or devices."""
    for key, value in tree.items():
        key_path = (*path, as_key(key))
        if isinstance(value, Mapping):
            yield from _find_counts(value, key_path)
        elif key_path[-1] in (*NODES, *PER_NODE, *TOTAL) and type(value) is int and 1 <= value <= MOST_NPUS:
            yield ".".join(key_path), value
