"""The reference is complete and current: every command, name, key, metric and formula."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import generate_reference
import pytest
import typer
from generation import commands, formats, formulas, how_to, interface, keys, measures, text

from cosmic.cli import dispatch
from cosmic.design import schema
from cosmic.design.workload_layer import Workload
from cosmic.simulate.metrics import BETTER
from tests.batches import check_all

DOCS = Path(generate_reference.__file__).parent
REFRESH = "run `python docs/generate_reference.py`"


def shown(name: str) -> str:
    """Return a page of the reference as it is committed."""
    return (DOCS / "reference" / name).read_text()


@pytest.mark.parametrize("name", generate_reference.PAGES)
def test_a_page_is_current(name: str) -> None:
    assert generate_reference.PAGES[name]() == shown(name), REFRESH


@check_all("name", dispatch.COMMANDS)
def test_every_option_of_a_command_is_listed(name: str) -> None:
    section = re.split(rf"\n##+ cosmic {name}\n", shown("cli.md"))[1].split("\n## ")[0]
    for parameter in typer.main.get_command(dispatch.app_of(name)).params:
        if parameter.param_type_name == "option" and not getattr(parameter, "hidden", False):
            assert [option for option in parameter.opts if f"`{option}`" not in section] == []


def test_every_noun_has_a_section() -> None:
    for name in dispatch.NOUNS:
        assert re.search(rf"\n##+ cosmic {name}\n", shown("cli.md"))


def test_every_public_name_and_every_metric_is_there() -> None:
    page = shown("api.md")
    for module in interface.MODULES:
        offered = importlib.import_module(module)
        section = page.split(f"\n## {module}\n")[1].split("\n## ")[0]
        names = [name for name in offered.__all__ if not inspect.ismodule(getattr(offered, name))]
        assert [name for name in names if f"| [`{name}`](#" not in section] in ([], ["__version__"])
    assert [name for name in BETTER if f"| `{name}` |" not in shown("metrics.md")] == []


def test_every_key_of_a_workload_is_there_with_its_meaning() -> None:
    section = shown("keys.md").split("\n## workload\n")[1].split("\n## ")[0]
    docs = text.attribute_docs(Workload)
    for slot in schema.slots(Workload).values():
        row = next(line for line in section.splitlines() if line.startswith(f"| `{slot.key}` |"))
        assert row.endswith(f"| {docs.get(slot.name, '')} |")
    assert len(fields(Workload)) == section.partition("\n### What frameworks call it\n")[0].count("\n| `")


def test_every_module_with_a_formula_is_on_the_page_of_formulas() -> None:
    wanted = set[str]().union(*(formulas.with_formulas(f"cosmic.{name}") for name in ("network", "workload", "step")))
    assert len(wanted) > 10
    assert wanted - formulas.covered() == set()


def test_every_formula_names_its_source_file() -> None:
    page = shown("formulas.md")
    for name in formulas.covered():
        path = name.replace(".", "/")
        assert f"src/{path}.py" in page or f"src/{path}/__init__.py" in page


@pytest.mark.parametrize(
    "module", [commands, formats, formulas, how_to, interface, keys, measures, text], ids=lambda module: module.__name__
)
def test_doctests_of_the_generators_pass(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0
