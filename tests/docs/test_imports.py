"""Documentation and examples import documented modules alone, and names that these promise."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from generation.interface import MODULES

ROOT = Path(__file__).parents[2]
READ = sorted(
    path.relative_to(ROOT)
    for pattern in ("README.md", "docs/**/*.md", "docs/**/*.ipynb", "examples/**/*.py", "examples/**/*.ipynb")
    for path in ROOT.glob(pattern)
    if "decisions" not in path.parts
)
_BLOCK = re.compile(r"^( *)```python[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def sources(path: Path) -> Iterator[str]:
    """Yield the Python programs of a file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield text
    elif path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        yield "\n".join(line for cell in cells for line in "".join(cell["source"]).split("\n") if line[:1] not in "%!")
    else:
        for indent, block in _BLOCK.findall(text):
            yield "\n".join(line.removeprefix(indent) for line in block.split("\n"))


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Yield the modules and names of this package that a program imports, and what it reads of modules: cosmic.x.y."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "cosmic":
            yield from ((str(node.module), each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names if each.name.split(".")[0] == "cosmic")
        elif isinstance(node, ast.Attribute):
            match ast.unparse(node).split("."):
                case ["cosmic", name]:
                    yield "cosmic", name
                case ["cosmic", module, name] if f"cosmic.{module}" in MODULES:
                    yield f"cosmic.{module}", name


def test_there_is_something_to_read() -> None:
    assert len(READ) > 80
    assert sum(1 for path in READ for source in sources(path) for _ in imported(source)) > 300
    with pytest.raises(AssertionError):
        check("from cosmic.design.design_point import DesignPoint")
    with pytest.raises(AssertionError):
        check("import cosmic\ncosmic.design.DesignDot")


def check(source: str) -> None:
    for module, name in imported(source):
        assert module in MODULES, f"{module} is none of the documented modules"
        offered = (*importlib.import_module(module).__all__, *(each.removeprefix("cosmic.") for each in MODULES))
        assert not name or name in offered, f"{module} promises no {name}"


@pytest.mark.parametrize("path", READ, ids=str)
def test_only_documented_names_are_imported(path: Path) -> None:
    for source in sources(path):
        check(source)
