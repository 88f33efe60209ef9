"""Registries: a name once, in order, found when first needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cosmic.registry
from cosmic.errors import SpecError, UnknownName
from cosmic.registry import Registry


@pytest.fixture
def shapes() -> Registry[str]:
    """Return a registry of two shapes."""
    found: Registry[str] = Registry("shape")
    found.register("square")("four sides")
    found.register("circle")("none")
    return found


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of a package, empty, that can be imported as `some_shapes`."""
    folder = tmp_path / "some_shapes"
    folder.mkdir()
    (folder / "__init__.py").write_text("from cosmic.registry import Registry\nshapes = Registry('shape', __name__)\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "some_shapes"]:
        del sys.modules[name]


def test_variants_are_found_by_name_and_listed_in_order(shapes: Registry[str]) -> None:
    assert shapes["square"] == "four sides"
    assert list(shapes) == ["circle", "square"]
    assert len(shapes) == 2
    assert "circle" in shapes
    assert "triangle" not in shapes


def test_a_name_is_taken_once(shapes: Registry[str]) -> None:
    with pytest.raises(SpecError, match=r"^shape = 'square': is registered already$"):
        shapes.register("square")("again")
    assert shapes["square"] == "four sides"


def test_a_miss_suggests_what_was_meant(shapes: Registry[str]) -> None:
    with pytest.raises(UnknownName, match=r"^shape = 'sqare': no such shape; did you mean 'square'\?$"):
        shapes["sqare"]


def test_a_check_says_where_the_wrong_name_stands(shapes: Registry[str]) -> None:
    shapes.check("square", "dims.0.shape")
    with pytest.raises(UnknownName, match=r"^dims.0.shape = 'x': no such shape; choose from circle, square$"):
        shapes.check("x", "dims.0.shape")


def test_the_decorated_thing_is_returned_unchanged() -> None:
    found: Registry[type] = Registry("kind")
    assert found.register("int")(int) is int


def test_modules_of_the_package_are_imported_at_the_first_look_up_and_no_sooner(package: Path) -> None:
    (package / "disc.py").write_text("from some_shapes import shapes\nshapes.register('disc')(__name__)\n")
    shapes: Registry[str] = __import__("some_shapes").shapes
    assert "some_shapes.disc" not in sys.modules
    assert list(shapes) == ["disc"]
    assert shapes["disc"] == "some_shapes.disc"


def test_a_module_that_cannot_be_imported_is_reported_at_every_look_up(package: Path) -> None:
    (package / "disc.py").write_text("raise RuntimeError('out of chalk')\n")
    shapes: Registry[str] = __import__("some_shapes").shapes
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of chalk"):
            shapes["disc"]


def test_other_distributions_add_theirs_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: Registry[str] = Registry("shape", group="some.shapes")

    class EntryPoint:
        @staticmethod
        def load() -> None:
            shapes.register("hexagon")("six sides")

    def entry_points(group: str) -> list[type[EntryPoint]]:
        return [EntryPoint] if group == "some.shapes" else []

    monkeypatch.setattr(cosmic.registry, "entry_points", entry_points)
    assert list(shapes) == ["hexagon"]
    assert list(shapes) == ["hexagon"]  # loaded once: a second time would be a duplicate
