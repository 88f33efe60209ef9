"""What pages and docstrings refer to exists: files, modules, names, commands and their options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import typer

from cosmic.cli import dispatch
from cosmic.design.field_facts import facts_of
from cosmic.design.workload_layer import Workload
from tests.batches import check_all

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "cosmic"
PAGES = sorted(
    path
    for folder in (ROOT, ROOT / "calibration", ROOT / "tests" / "golden", SOURCE / "accuracy" / "data", ROOT / "docs")
    for path in (folder.rglob("*.md") if folder == ROOT / "docs" else folder.glob("*.md"))
    if path.name != "CHANGELOG.md"  # history names what is gone
)
MODULES = sorted(SOURCE.rglob("*.py"))
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
FILE = re.compile(r"[\w-][\w./-]*(?:/|\.(?:py|md|tsx?|ipynb|csv))|[\w-][\w.-]*/[\w./-]+\.(?:yaml|json|toml|html|svg)")
DOTTED = re.compile(r"cosmic(?:\.\w+)+")
OPTION = re.compile(r"--[a-z][\w-]*")
OF_OTHERS = (
    "megatron/",  # Megatron-LM
    "config/job_config.py",  # TorchTitan
    "runtime/zero/config.py",  # DeepSpeed
    "docs/performance-summary-archive.md",  # Megatron-Bridge
    "pretrain_gpt.py",  # Megatron-LM
    "engine/arg_utils.py",  # vLLM
    "commands/serve.py",  # TensorRT-LLM
    *("server_arguments.md", "pd_disaggregation.md", "router.md"),  # SGLang
)
"""Files of other projects."""
WRITTEN = ("runs/", "site/", "artifacts/", "mine/", "path/to/", "test_mine.py", "plan.py", "gather.csv")
"""Files that commands, or readers of a page, write."""
GROUPS = {f"cosmic.{name}" for name in ("topologies", "collectives", "schedules", "agents", "engines", "targets")}
"""Entry-point groups, which look like modules."""

by_page = check_all("page", PAGES)


def code(text: str) -> Iterator[str]:
    """Yield the inline code of a page or a module, and the commands of its blocks."""
    for block in FENCE.findall(text):
        yield from re.findall(r"^(?:\$ )?(cosmic .*?)(?:\s+[#|].*)?$", block, re.MULTILINE)
    for _, found in CODE.findall(FENCE.sub("", text)):
        yield " ".join(found.split())


# ---- files


def is_placeholder(name: str) -> bool:
    """Return whether a path stands for many: with a word in capitals, a star or an ellipsis."""
    return bool(re.search(r"\b[A-Z]{2,}\b|[*…<{]", name))


@cache
def names() -> set[str]:
    """Return the names of all files of the repository."""
    found = (path for top in ROOT.iterdir() if top.name not in (".git", ".venv") for path in (top, *top.rglob("*")))
    return {path.name for path in found if "node_modules" not in path.parts}


def is_file(name: str, page: Path) -> bool:
    """Return whether a path exists: from the page, the repository, the sources or the package; or a bare name."""
    if name.startswith((*OF_OTHERS, *WRITTEN)) or is_placeholder(name):
        return True
    places = (page.parent, ROOT, ROOT / "src", SOURCE, SOURCE / "design", ROOT / "docs")
    bare = name.rstrip("/")
    return any((place / name).exists() for place in places) or ("/" not in bare and bare in names())


def missing_files(path: Path) -> list[str]:
    return [each for each in code(path.read_text()) if FILE.fullmatch(each) and not is_file(each, path)]


@by_page
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert missing_files(page) == []


def test_files_that_the_sources_name_exist() -> None:
    assert {path.relative_to(SOURCE).as_posix(): found for path in MODULES if (found := missing_files(path))} == {}


# ---- modules


def is_name(dotted: str) -> bool:
    """Return whether a dotted name is a module of the package, or leads from one to an attribute."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        module = ".".join(parts[:count])
        if count == 1 or (find_spec(".".join(parts[: count - 1])) and _spec(module)):
            thing: Any = import_module(module)
            for part in parts[count:]:
                if not hasattr(thing, part):
                    return part in getattr(thing, "__annotations__", {})
                thing = getattr(thing, part)
            return True
    return False


def _spec(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def missing_names(path: Path) -> list[str]:
    found = {name for each in code(path.read_text()) for name in DOTTED.findall(each) if name not in GROUPS}
    return sorted(name for name in found if not is_name(name))


@by_page
def test_modules_and_functions_that_a_page_names_exist(page: Path) -> None:
    assert missing_names(page) == []


def test_modules_and_functions_that_the_sources_name_exist() -> None:
    assert {path.relative_to(SOURCE).as_posix(): found for path in MODULES if (found := missing_names(path))} == {}


# ---- commands


@cache
def options(command: str) -> frozenset[str]:
    """Return the options of a command."""
    found = typer.main.get_command(dispatch.app_of(command)).params
    return frozenset(word for each in found for word in (*each.opts, *each.secondary_opts)) | {
        "--help",
        "--help-all",
        "--json",
    }


def is_command(text: str) -> bool:
    """Return whether ``cosmic …`` names a command or a noun, and only options that it has."""
    words = [word.strip("[]") for word in text.split()[1:]]
    if not words or is_placeholder(words[0]) or words[0] in dispatch.OPTIONS:
        return True
    command, following = dispatch.split_command(words)
    if command not in dispatch.COMMANDS:
        return bool(command) and all(is_placeholder(word) or word == "--help" for word in following)
    return all(option in options(command) for word in following for option in OPTION.findall(word)[:1])


@cache
def every_option() -> frozenset[str]:
    """Return the options of all commands, of scripts that fit the cost model, of projects read and exported to."""
    scripts = "".join(path.read_text() for path in (ROOT / "calibration").glob("*.py"))
    others = (ROOT / "tests" / "frameworks" / "launching" / "checked_names.yaml").read_text()
    flags = (flag for about in facts_of(Workload).values() for flag in about.flags.values())
    declared = (word for flag in flags for word in (flag.name, *chain.from_iterable(flag.sets.values())))
    mine = (options(name) for name in dispatch.COMMANDS)
    return frozenset(dispatch.OPTIONS).union(
        OPTION.findall(scripts), OPTION.findall(others), filter(None, declared), *mine
    )


def missing_commands(path: Path) -> list[str]:
    found = list(code(path.read_text()))
    wrong = [each for each in found if re.match(r"cosmic [a-zA-Z-]", each) and not is_command(each)]
    return wrong + [each for each in found if OPTION.match(each) and OPTION.findall(each)[0] not in every_option()]


@by_page
def test_commands_and_options_that_a_page_names_exist(page: Path) -> None:
    assert missing_commands(page) == []


def test_commands_and_options_that_the_sources_name_exist() -> None:
    assert {path.relative_to(SOURCE).as_posix(): found for path in MODULES if (found := missing_commands(path))} == {}
