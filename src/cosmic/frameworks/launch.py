"""A launch: the arguments, environment and files with which a framework, library or simulator runs a design.

A target is one module of `cosmic.frameworks.targets` that registers a function from a design to a `Launch`. A warning
says what the target cannot express; nothing is dropped silently. A design that makes no sense for the target is a
`SpecError`.

Text stands in scripts and their files as data, whatever is in it. Names from files are printable
(`cosmic.base.errors.check_text`), but a design can also be built in Python. What is unprintable is written as its
escape, as in messages: so a script has no line and no character that it does not show.

Two launches are compared argument by argument, in the syntax of their target. For frameworks that train, this module
also says which state a design keeps outside its accelerators: on the host, or on NVMe.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from cosmic.base.errors import SpecError, one_line, require
from cosmic.base.files import exists, make_folder, write_all
from cosmic.base.registry import Registry
from cosmic.design import catalog_entries
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint, model_title
from cosmic.design.field_facts import unsupported_fields
from cosmic.design.memory_layer import HBM
from cosmic.design.model_layer import Transformer, is_moe
from cosmic.step.device_memory import memory_of
from cosmic.step.state_placement import is_state_placed, state_tiers

if TYPE_CHECKING:
    from cosmic.traces.trace import TraceSet


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


# ---- launches


SCRIPT_NAME = "launch.sh"
TRACE_PREFIX = "trace"
"""Prefix of trace files."""
LARGEST_HOST = 8
"""Most NPUs of one host; a larger innermost dimension is a rack."""
FRAMEWORKS = ("deepspeed", "megatron", "torchtitan")
"""Targets that train."""
ENGINES = ("dynamo", "sglang", "trtllm", "vllm")
"""Targets that serve."""
NCCL_VENDORS = ("NVIDIA", "AMD")
"""Vendors whose accelerators NCCL or RCCL, and the frameworks built on them, support."""
ENGINE_VENDORS = {"trtllm": ("TensorRT-LLM", "NVIDIA")}
"""Engines that run on the accelerators of one vendor alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A design as the input of a target."""

    about: str
    """One line: which design, for which target."""
    command: tuple[str, ...] = ()
    """Lines of the shell command, quoted (`cosmic.frameworks.launch`); empty if there is nothing to run."""
    body: tuple[str, ...] = ()
    """Lines of a script that starts several processes, quoted. It runs in place of `command`, which starts one."""
    arguments: Mapping[str, ArgumentValue] = field(default_factory=dict)
    pools: Mapping[str, Mapping[str, ArgumentValue]] = field(default_factory=dict)
    """Arguments of the servers of each pool, where the design is served."""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the command reads, by name."""
    warnings: tuple[str, ...] = ()
    """How the target differs from the design, and what remains to be done by hand."""
    traces: TraceSet | None = None
    """Execution traces to write beside the files."""


targets: Registry[Callable[[DesignPoint], Launch]] = Registry(
    "target", "cosmic.frameworks.targets", "cosmic.targets", ("__call__",)
)


class Draft:
    """A launch under construction: arguments in order, and warnings.

    Arguments that tell the fields of a design as they are declared come with it, to be taken in the order that reads best.
    """

    def __init__(self, declared: Mapping[str, ArgumentValue] | None = None) -> None:
        self.arguments: dict[str, ArgumentValue] = {}
        self.warnings: list[str] = []
        self._declared = dict(declared or {})

    def take(self, *names: str) -> None:
        """Add those of the declared arguments that are there; all that are left where none is named."""
        for name in names or tuple(self._declared):
            if name in self._declared:
                self.arguments[name] = self._declared.pop(name)

    def add(self, name: str, value: ArgumentValue = True, *, when: bool = True) -> None:
        """Add an argument with its value, or a flag, if *when* holds."""
        if when:
            self.arguments[name] = value

    def warn(self, sentence: str, *, when: bool = True) -> None:
        """Add a warning, if *when* holds."""
        if when:
            self.warnings.append(sentence)


# ---- helpers of targets


def trained_decoder(point: DesignPoint, target: str) -> Transformer:
    """Return the model of *point*; training frameworks take only decoders that are trained."""
    engine = point.serving.engine if point.serving else ""
    rule = f"{target} runs training designs only: {', '.join(ENGINES)} serve"
    require(not engine, "serving.engine", engine, rule)
    task = point.workload.task
    require(task == "training", "workload.task", task, rule)
    model = point.model
    if not (isinstance(model, Transformer) and model.family == "decoder"):
        raise SpecError("model.family", model.family, f"only decoders can be exported to {target}")
    rule = f"layers of several mixers are not written for {target} yet: start from its own recipe of the model"
    require(not model.pattern, "model.pattern", model.pattern, rule)
    refuse_padding(point, model, target)
    return model


def refuse_padding(point: DesignPoint, model: Transformer, target: str) -> None:
    """Refuse a design whose heads or widths are padded: these frameworks start no such model."""
    if point.workload.uneven_tp != "pad":
        return
    uneven = _name_uneven_sizes(model, point.workload.tp, point.workload.expert_tensor)
    require(
        not uneven, "workload.uneven_tp", "pad", f"{target} pads no {', no '.join(uneven)}: choose a tp that divides"
    )


def _name_uneven_sizes(model: Transformer, tp: int, etp: int) -> list[str]:
    """Name the dimensions of a model that must be padded for tp and etp ranks.

    >>> _name_uneven_sizes(Transformer(layers=1, hidden=8, heads=8, ffn=12, vocab=10), 8, 1)
    ['feed-forward width of 12']
    """
    sizes = {f"{model.heads} heads": model.heads, f"feed-forward width of {model.ffn}": model.ffn}
    if model.sparse:
        sizes["groups of heads"] = model.sparse.o_groups
    uneven = [words for words, size in sizes.items() if size % tp]
    if model.experts and model.experts.ffn % etp:
        uneven.append(f"experts' width of {model.experts.ffn}")
    return uneven


def count_hosts(point: DesignPoint) -> tuple[int, int]:
    """Return the number of hosts and the NPUs of each: those of the innermost dimension, if they fit in a host.

    What a host of an accelerator has is known where the innermost dimension is a rack of them (trays of 4 in NVL72).
    """
    npus = point.network.npus
    inner = point.network.dims[0].npus if point.network.dims else 1
    host_size = host_npus(point.compute.accelerator) or LARGEST_HOST
    size = next(gpus for gpus in range(min(inner, host_size), 0, -1) if inner % gpus == 0)
    return npus // size, size


def host_npus(accelerator: str | None) -> int | None:
    """Return the NPUs of a host of an accelerator, if the catalog says so."""
    host = (
        catalog_entries.read_entry("accelerators", accelerator)
        if accelerator in catalog_entries.entry_names("accelerators")
        else {}
    )
    return host.get("host")


def torchrun_command(point: DesignPoint) -> str:
    """Return the torchrun command, the same on every host; ranks are numbered host by host, as placement assumes."""
    nodes, gpus_per_node = count_hosts(point)
    if nodes == 1:
        return f"torchrun --standalone --nproc-per-node {gpus_per_node}"
    rendezvous = '--master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}"'
    return f'torchrun --nnodes {nodes} --nproc-per-node {gpus_per_node} --node-rank "$NODE_RANK" {rendezvous}'


def describe_launch(point: DesignPoint, details: str) -> str:
    """Return a line that names the design, followed by *details*."""
    w, npus = point.workload, point.network.npus
    mesh = " × ".join(f"{axis} {getattr(w, axis)}" for axis in ("dp", "tp", "cp", "pp"))
    return (
        f"{model_title(point.model) or 'a model'} on {npus:,} × {point.compute.accelerator or 'NPU'}, {mesh}: {details}"
    )


def common_warnings(point: DesignPoint) -> Iterator[str]:
    """Yield the warnings that all frameworks share."""
    further = getattr(point.model, "mtp_layers", 0)
    if further:
        yield f"the design has {further} modules that predict further tokens: add them to the model's own arguments"
    yield from unsupported_fields(point.workload, "training", moe=is_moe(point.model))
    yield from vendor_warnings(point)


def vendor_of(point: DesignPoint) -> str | None:
    """Return who makes the accelerator, if the catalog has it."""
    name = point.compute.accelerator
    vendor = (
        catalog_entries.read_entry("accelerators", name).get("vendor")
        if name in catalog_entries.entry_names("accelerators")
        else None
    )
    return None if vendor is None else str(vendor)


def unsupported_reason(engine: str, point: DesignPoint) -> str | None:
    """Return why an engine cannot run on the accelerators of a design; None if it can, or if nobody knows."""
    maker = vendor_of(point)
    if engine not in ENGINE_VENDORS or maker in (None, ENGINE_VENDORS[engine][1]):
        return None
    return "{} runs on {}'s GPUs, not on {}'s".format(*ENGINE_VENDORS[engine], maker)


def vendor_warnings(point: DesignPoint) -> Iterator[str]:
    """Yield what the machine differs in from what the software expects."""
    maker = vendor_of(point)
    if maker is not None and maker not in NCCL_VENDORS:
        yield f"{point.compute.accelerator} is {maker}'s: the arguments are right, but the software runs on GPUs"
    inner = point.network.dims[0].npus if point.network.dims else 1
    if inner > LARGEST_HOST and host_npus(point.compute.accelerator) is None:
        gpus_per_node = count_hosts(point)[1]
        yield f"the innermost dimension has {inner} NPUs, more than a host: {gpus_per_node} per host are assumed"


def places_otherwise(point: DesignPoint, orders: Iterable[tuple[str, ...]]) -> bool:
    """Return whether the placement of the axes above 1 matches none of the *orders*, innermost first."""
    split = [axis for axis in point.workload.placement if getattr(point.workload, axis) > 1]
    return all(split != [axis for axis in order if axis in split] for order in orders)


# ---- writing


def render_script(launch: Launch, *, inline: bool = True) -> str:
    """Return the launch as a shell script; *inline*, the script writes its files itself."""
    lines = [
        "#!/usr/bin/env bash",
        quote_comment(launch.about),
        *(quote_comment(f"note: {warning}") for warning in launch.warnings),
    ]
    lines += [quote_export(name, value) for name, value in launch.environment.items()]
    if launch.files and not inline:
        lines.append('CDPATH= cd -- "$(dirname -- "$0")" || exit')
    elif launch.files:
        for name, text in launch.files.items():
            lines += quote_here_document(name, text)
    if launch.body:
        lines += launch.body
    elif launch.command:
        lines.append(" \\\n  ".join(launch.command))
    return "\n".join(lines) + "\n"


def write_launch(launch: Launch, folder: str | Path) -> list[Path]:
    """Write script, files and traces of a launch into a folder, created if missing; return their paths.

    All are written or none.
    """
    out_folder = make_folder(folder, "--out")
    texts = {
        out_folder / name: text
        for name, text in {SCRIPT_NAME: render_script(launch, inline=False), **launch.files}.items()
    }
    if launch.traces is None:
        write_all(texts.items(), "--out")
        return list(texts)
    write_all(chain(texts.items(), _trace_files(launch.traces, out_folder)), "--out")
    return [*texts, *(out_folder / f"{TRACE_PREFIX}.{rank}.et" for rank in range(len(launch.traces.ranks)))]


def _trace_files(traces: TraceSet, out_folder: Path) -> Iterator[tuple[str, bytes]]:
    from cosmic.traces.chakra.trace_writer import trace_files  # noqa: PLC0415  heavy

    stale = out_folder / f"{TRACE_PREFIX}.{len(traces.ranks)}.et"
    require(
        not exists(stale),
        "--out",
        str(out_folder),
        f"{stale.name} is there, from a job with more ranks: remove it first",
    )
    return trace_files(traces, out_folder / TRACE_PREFIX)


ChangeKind = Literal["argument", "key", "environment", "launcher"]


@dataclass(frozen=True, slots=True)
class LaunchChange:
    """An argument, key or variable that one launch has and the other has not, or has with another value."""

    kind: ChangeKind
    name: str
    before: str | None
    """As the first launch writes it; None if it is not there."""
    after: str | None
    """As the second launch writes it; None if it is not there."""

    def __str__(self) -> str:
        """Return the change as a line of a patch: ``-`` goes, ``+`` comes, ``~`` changes.

        >>> print(LaunchChange("argument", "--bf16", None, "--bf16"))
        + --bf16
        >>> print(LaunchChange("argument", "--micro-batch-size", "--micro-batch-size 1", "--micro-batch-size 2"))
        ~ --micro-batch-size 1 → --micro-batch-size 2
        """
        if self.before is None or self.after is None:
            return f"+ {self.after}" if self.before is None else f"- {self.before}"
        return f"~ {self.before} → {self.after}"


def compare_launches(before: DesignPoint, after: DesignPoint, target: str) -> list[LaunchChange]:
    """Return what differs between the launches of two designs, in the order of the second one.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> first = load_design("llama3-8b@dgx-h100:8", {"tp": 2, "micro_batch": 1})
    >>> print(*compare_launches(first, first.changed({"workload.micro_batch": 2}), "megatron"), sep="; ")
    ~ --micro-batch-size 1 → --micro-batch-size 2
    """
    targets.check(target, "target")
    old, new = (dict(_launch_entries(targets[target](point))) for point in (before, after))
    names = [*new, *(name for name in old if name not in new)]
    return [
        LaunchChange(name[0], name[1], old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)
    ]


def _launch_entries(launch: Launch) -> Iterator[tuple[tuple[ChangeKind, str], str]]:
    """Yield everything that a launch sets, as it is written there."""
    if launch.command:
        yield ("launcher", "launcher"), launch.command[0]
    for name, text in launch.environment.items():
        yield ("environment", name), quote_export(name, text)
    for name, value in launch.arguments.items():
        if name.startswith("-"):
            yield ("argument", name), quote_options({name: value})[0]
        else:
            yield ("key", name), f"{name} = {dump_toml({name: value}).partition(' = ')[2].strip()}"
    for file, content in launch.files.items():
        for path, entry in _toml_leaves(json.loads(content), "") if file.endswith(".json") else ():
            yield ("key", path), f"{path} = {json.dumps(entry)}"


def _toml_leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _toml_leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


OuterDevice = Literal["none", "cpu", "nvme"]


def outer_device(point: DesignPoint, state: str) -> OuterDevice:
    """Return where a class of state lives: ``nvme`` if some of it may be in a tier behind the first.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> outer = {"tp": 8, "memory.placement.optimizer": ["host", "ssd"], "memory.placement.weights": ["hbm", "host"]}
    >>> point = load_design("llama3-8b@dgx-h100:8", outer)
    >>> [outer_device(point, state) for state in ("optimizer", "weights", "activations")]
    ['nvme', 'cpu', 'none']
    """
    if not is_state_placed(point):
        return "cpu" if state in point.workload.offload else "none"
    copied = [tier.name for tier in point.memory.tiers if tier.access == "copy"]
    listed = [name for name in state_tiers(point, state) if name in copied]
    return "none" if not listed else "nvme" if copied.index(listed[-1]) else "cpu"


def outer_share(point: DesignPoint, state: str) -> float:
    """Return the share of a class of state that is outside HBM."""
    placed = memory_of(batch_of(point)).placed if is_state_placed(point) else None
    if placed is None:
        return float(state in point.workload.offload)
    return 1.0 - float(placed.share(state, HBM)) if state in placed.sizes else 0.0
