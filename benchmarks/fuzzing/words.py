"""Words of command lines: for each parameter a right value, nearly a right one, or an awkward one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from cosmic.design import catalog_entries
from cosmic.search.design_wording import METRICS

from .commands import Command, Parameter, commands
from .settings import design, setting, tiny, variation
from .trial import Maker
from .values import awkward, awkward_file, near

AMOUNTS = ("trials", "number", "seeds", "workers", "batch", "limit")
"""Parameters whose large values are a wish for much work, not a mistake."""
LARGEST = 20
NEVER = ("address",)
"""Options that start a cluster of machines."""
SERVES = ("ui",)
"""Commands that run until they are interrupted."""
SEARCHES = ("search", "study tournament", "demo")
CHEAP_AGENTS = ("random", "genetic", "annealing", "ant_colony", "exhaustive")
SHARE_AWKWARD, SHARE_NEAR = 0.2, 0.12


def _space(maker: Maker) -> str:
    return maker.rng.choice((*catalog_entries.entry_names("spaces"), maker.write(SMALL, ".yaml")))


def _study(maker: Maker) -> str:
    if not maker.stock.studies:
        return "missing"
    name = maker.new_name()
    maker.stock.copy(maker.rng.choice(maker.stock.studies), maker.folder / name)
    return name


def _traces(maker: Maker) -> str:
    if not maker.stock.traces:
        return "missing"
    name = maker.new_name()
    maker.stock.copy(maker.rng.choice(maker.stock.traces), maker.folder / name)
    return f"{name}/t"


def _input(file: str) -> Callable[[Maker], str]:
    def value(maker: Maker) -> str:
        if not maker.stock.inputs:
            return "missing"
        if not (maker.folder / "astra").exists():
            maker.stock.copy(maker.stock.inputs[0], maker.folder / "astra")
        return f"astra/{file}"

    return value


def _rows(maker: Maker) -> str:
    name = maker.rng.choice(maker.stock.rows)
    (maker.folder / name).write_bytes((maker.stock.folder / name).read_bytes())
    return name


def _limit(maker: Maker) -> str:
    rng = maker.rng
    value = rng.choice(("80 GB", "1", "0.5", "1e9", "1 s", "1 ns", awkward(rng)))
    return f"{rng.choice(tuple(METRICS))} {rng.choice(('<=', '>=', '<', '>', '=='))} {value}"


def _source(maker: Maker) -> str:
    return maker.rng.choice((design, _study))(maker)


def _to(maker: Maker) -> str:
    return maker.rng.choice(("megatron", "torchtitan", "deepspeed", "nccl", "astra-sim", "-", "t.csv", "t.parquet"))


RIGHT: dict[str, Callable[[Maker], str]] = {
    "design": design,
    "a": design,
    "b": design,
    "source": _source,
    "to": _to,
    "space": _space,
    "study": _study,
    "studies": _study,
    "settings": setting,
    "settings_b": setting,
    "set_b": setting,
    "vary": variation,
    "constraint": _limit,
    "data": _rows,
    "by": lambda maker: maker.rng.choice(("set", "model", "gpus")),
    "file": lambda maker: f"{_traces(maker)}.0.et",
    "prefix": _traces,
    "groups": lambda maker: f"{_traces(maker)}.json",
    "workload": _input("trace"),
    "system": _input("system.json"),
    "network": _input("network.yml"),
    "comm_groups": _input("comm_groups.json"),
    "remote_memory": _input("memory.json"),
    "timeline": lambda maker: "timeline.json",
    "page": lambda maker: maker.rng.choice(("page.md", "sub/page.md")),
    "out": lambda maker: maker.rng.choice(("out", "out/deep", "out.html")),
    "agent": lambda maker: maker.rng.choice(CHEAP_AGENTS),
    "agents": lambda maker: ",".join(maker.rng.sample(CHEAP_AGENTS, maker.rng.randrange(1, 3))),
    "workers": lambda maker: "1",
    "peak": lambda maker: "900 TFLOP/s",
    "bandwidth": lambda maker: "3.35 TB/s",
}
"""Right values by the name of a parameter; others take what a shell would offer, or follow from their type."""
ENDINGS = {
    "Path": ".json",
    "design": ".yaml",
    "space": ".yaml",
    "network": ".yml",
    "data": ".csv",
    "file": ".et",
    "page": ".md",
}
SMALL = """\
base: bert-base@dgx-h100:4
parameters:
  workload.tp: [1, 2, 4]
  workload.global_batch: [8, 16]
"""
"""A parameter set whose designs take the event engine tenths of a second."""


@cache
def _offered(candidates: Callable[[str], list[str]]) -> tuple[str, ...]:
    return tuple(each for each in candidates("") if each != "ray")


def right(maker: Maker, parameter: Parameter) -> str:
    """Return a value that the parameter takes."""
    if parameter.name in RIGHT:
        return RIGHT[parameter.name](maker)
    if parameter.candidates and _offered(parameter.candidates):
        return maker.rng.choice(_offered(parameter.candidates))
    if parameter.kind == "int":
        return str(maker.rng.randrange(1, LARGEST if parameter.name in AMOUNTS else 100))
    if parameter.kind == "float":
        return str(maker.rng.choice((0.5, 1, 2.0, 1e-3)))
    return maker.rng.choice(("a", "x.json", "0"))


def value(maker: Maker, parameter: Parameter) -> str:
    """Return a value: right, nearly right or awkward."""
    drawn, rng = maker.rng.random(), maker.rng
    if drawn < SHARE_AWKWARD:
        ending = ENDINGS.get(parameter.name, ENDINGS.get(parameter.kind, ""))
        found = awkward_file(rng, maker.folder, ending) if maker.chance(0.5) else awkward(rng)
    elif drawn < SHARE_AWKWARD + SHARE_NEAR:
        found = near(rng, right(maker, parameter))
    else:
        found = right(maker, parameter)
    if parameter.name in AMOUNTS and _is_large(found):
        found = str(rng.randrange(LARGEST))
    return "local9" if found == "ray" else found


def _is_large(text: str) -> bool:
    try:
        return int(text) > LARGEST
    except ValueError:
        return False


def option(maker: Maker, parameter: Parameter) -> list[str]:
    """Return the words of an option."""
    spelling = maker.rng.choice(parameter.spellings)
    if parameter.kind == "flag":
        return [spelling]
    found = value(maker, parameter)
    joined = spelling.startswith("--") and maker.chance(0.2)
    return [f"{spelling}={found}"] if joined else [spelling, found]


def walk(maker: Maker) -> list[str]:
    """Return the words of any command with some of its options."""
    if maker.chance(0.03):
        return [awkward(maker.rng) for _ in range(maker.rng.randrange(3))]
    found = commands()
    return command_line(maker, maker.rng.choice(found))


def command_line(maker: Maker, command: Command) -> list[str]:
    """Return the words of *command*: usually what it requires, some options, now and then a slip."""
    rng = maker.rng
    words: list[str] = []
    for parameter in command.parameters:
        if parameter.name in NEVER:
            continue
        needed = parameter.required or (parameter.name in ("data", "space", "study") and not maker.chance(0.1))
        times = 1 if needed and not maker.chance(0.03) else int(maker.chance(0.25 if parameter.spellings else 0.5))
        if times and parameter.several and maker.chance(0.4):
            times = rng.randrange(2, 4)
        for _ in range(times):
            words += option(maker, parameter) if parameter.spellings else [value(maker, parameter)]
    return bounded(maker, command, [*command.path, *_slip(maker, words)])


def _slip(maker: Maker, words: list[str]) -> list[str]:
    """Return *words* with an unknown option, a repetition or something in the wrong place; seldom."""
    if not maker.chance(0.08):
        return words
    rng, place = maker.rng, maker.rng.randrange(len(words) + 1)
    more = rng.choice(
        (
            [awkward(rng)],
            [f"--{awkward(rng)}"],
            ["--"],
            ["--help"],
            ["-h"],
            words[place : place + 1],
            ["--json="],
            ["-"],
        )
    )
    return [*words[:place], *more, *words[place:]]


def bounded(maker: Maker, command: Command, words: list[str]) -> list[str]:
    """Return *words*, so that what they ask for ends soon: few trials, no browser, not all measured rows."""
    name = " ".join(command.path)
    amount = next((each for each in command.parameters if each.name in ("trials",)), None)
    if amount is not None and not any(word.partition("=")[0] in amount.spellings for word in words):
        words = [*words, amount.spellings[-1], str(maker.rng.randrange(1, LARGEST))]
    if amount is not None and "event" in " ".join(words):
        few = [maker.write(SMALL, ".yaml") if word in catalog_entries.entry_names("spaces") else word for word in words]
        words = [*few, amount.spellings[-1], "2"]  # minutes for each design of a large cluster
    if name == "space certify":  # large spaces take a minute, and simulated designs as long
        few = [maker.write(SMALL, ".yaml") if word in catalog_entries.entry_names("spaces") else word for word in words]
        words = [*few, "--simulate", "0"]
    if name in SERVES:
        words = [*words, "--no-browser"]
    if name == "calibrate validate" and not any(word.endswith(".csv") for word in words):
        words = [*words, _rows(maker)]
    if "generate" in words or "astra-sim" in words or "--to=astra-sim" in words:
        words = tiny(words)
    return words


OUTPUTS = ("out", "to", "timeline", "page", "plot")
"""Parameters that name what is written."""


def outputs(maker: Maker) -> list[str]:
    """Return the words of a command that is right but for what it should write."""
    writing = [(command, each) for command in commands() for each in command.parameters if each.name in OUTPUTS]
    command, target = maker.rng.choice(writing)
    ending = maker.rng.choice((".csv", ".html", ".json", ".md", ".svg", ".parquet", ""))
    words = list(command.path)
    for parameter in command.parameters:
        if parameter is target:
            words += [target.spellings[-1], awkward_file(maker.rng, maker.folder, ending)]
        elif parameter.required or parameter.name in ("space", "data"):
            words += [*parameter.spellings[-1:], right(maker, parameter)]
    return bounded(maker, command, [*words, *(["--json"] if maker.chance(0.3) else [])])
