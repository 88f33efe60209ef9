"""Registries: a name once, in order, found when first needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from threading import Barrier
from typing import Protocol

import pytest

from cosmic.base import registry
from cosmic.base.errors import SpecError, UnknownName
from cosmic.base.registry import Registry, members_of


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
    (folder / "__init__.py").write_text(
        "from cosmic.base.registry import Registry\nshapes = Registry('shape', __name__)\n"
    )
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

    class Hexagon:
        name, value = "hexagon", "others.hexagon"

        @staticmethod
        def load() -> None:
            shapes.register("hexagon")("six sides")

    def entry_points(group: str) -> list[type[Hexagon]]:
        return [Hexagon] if group == "some.shapes" else []

    monkeypatch.setattr(registry, "entry_points", entry_points)
    assert list(shapes) == ["hexagon"]
    assert list(shapes) == ["hexagon"]  # loaded once: a second time would be a duplicate


@pytest.mark.parametrize("folder", ["others-1.0.dist-info", "others.egg-info"])
def test_entry_points_of_installed_distributions_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "nowhere"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not list(registry.entry_points("some.shapes"))
    (tmp_path / "later" / folder).mkdir(parents=True)
    kept = tmp_path / "later" / folder
    (kept / "entry_points.txt").write_text(
        "[console_scripts]\nothers = others:main\n\n[some.shapes]\nhexagon = others\n"
    )
    (kept / ("METADATA" if "dist" in folder else "PKG-INFO")).write_text(
        "Metadata-Version: 2.1\nName: others\nVersion: 1.0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "later"))
    assert [each.name for each in registry.entry_points("some.shapes")] == ["hexagon"]
    assert not list(registry.entry_points("some.others"))


def test_distributions_in_places_of_other_kinds_are_left_to_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def entry_points(group: str) -> list[EntryPoint]:
        asked.append(group)
        return []

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    list(registry.entry_points("some.shapes"))
    assert not asked
    (tmp_path / "archive.zip").write_bytes(b"")
    with monkeypatch.context() as context:
        context.setattr(sys, "path", [*sys.path, str(tmp_path / "archive.zip")])
        list(registry.entry_points("some.shapes"))
    assert asked == ["some.shapes"]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of a user's own shapes, empty, that `COSMIC_PATH` lists."""
    monkeypatch.setenv("COSMIC_PATH", str(tmp_path))
    folder = tmp_path / "shapes"
    folder.mkdir()
    yield folder
    for name in [name for name in sys.modules if name.startswith("cosmic_path.shapes")]:
        del sys.modules[name]


REGISTER = "from tests.base.test_registry import USERS\nUSERS[0].register({name!r})('a user’s')\n"
USERS: list[Registry[str]] = []
"""The registry that a user's modules of these tests register with."""


@pytest.fixture
def users() -> Iterator[Registry[str]]:
    """Return a registry that looks into folders of users."""
    found: Registry[str] = Registry("shape", group="cosmic.shapes")
    USERS.append(found)
    yield found
    USERS.clear()


def test_modules_of_a_user_s_folder_register_themselves(mine: Path, users: Registry[str]) -> None:
    (mine / "star.py").write_text(REGISTER.format(name="star"))
    (mine / "cross.py").write_text(REGISTER.format(name="cross"))
    (mine.parent / "others").mkdir()
    (mine.parent / "others" / "no_shape.py").write_text("raise RuntimeError('not asked for')\n")
    assert list(users) == ["cross", "star"]
    assert users["star"] == "a user’s"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("raise SystemExit\n", "SystemExit"),
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def\n", "SyntaxError: invalid syntax (b.py, line 1)"),
        (f"{REGISTER.format(name='star')}raise OSError('half')\n", "OSError: half"),
    ],
)
def test_a_user_s_module_that_fails_is_named_and_the_rest_works(
    text: str, why: str, mine: Path, users: Registry[str], caplog: pytest.LogCaptureFixture
) -> None:
    (mine / "a.py").write_text(REGISTER.format(name="a"))
    (mine / "b.py").write_text(text)
    sentence = f"COSMIC_PATH = 'shapes/b.py': cannot be imported: {why}"
    assert list(users) == ["a"]
    assert [record.getMessage() for record in caplog.records] == [f"cosmic: {sentence}"]
    assert [str(error) for error in users.broken.values()] == [sentence]
    for _ in range(2):
        with pytest.raises(SpecError) as caught:
            users["b"]
        assert str(caught.value) == f"shape = 'b': shapes/b.py cannot be imported: {why}"
    with pytest.raises(SpecError, match=r"^dims.0.shape = 'b': shapes/b.py cannot be imported"):
        users.check("b", "dims.0.shape")
    with pytest.raises(UnknownName):
        users["star"]


def test_a_user_cannot_replace_what_is_there(
    mine: Path, users: Registry[str], caplog: pytest.LogCaptureFixture
) -> None:
    users.register("star")("ours")
    (mine / "star.py").write_text(REGISTER.format(name="star"))
    assert users["star"] == "ours"
    assert "'shapes/star.py': cannot be imported: shape = 'star': is registered already" in caplog.text


def test_a_user_s_module_does_not_print_among_the_data(
    mine: Path, users: Registry[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (mine / "a.py").write_text("print('hello')\n" + REGISTER.format(name="a"))
    assert list(users) == ["a"]
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "hello\n")


def test_an_interrupt_is_no_broken_module(mine: Path, users: Registry[str]) -> None:
    (mine / "a.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        users["a"]


def test_a_broken_entry_point_is_named_and_the_rest_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shapes: Registry[str] = Registry("shape", group="some.shapes")
    shapes.register("square")("four sides")
    broken = EntryPoint(name="blob", value="tests.base.test_registry:no_such_thing", group="some.shapes")
    monkeypatch.setattr(registry, "entry_points", lambda group: [broken])
    assert list(shapes) == ["square"]
    assert (
        "entry point of some.shapes = 'blob = tests.base.test_registry:no_such_thing': cannot be imported"
        in caplog.text
    )
    with pytest.raises(SpecError, match="AttributeError"):
        shapes["blob"]


def test_a_variant_of_the_wrong_type_is_refused() -> None:
    shapes: Registry[type] = Registry("shape", members=members_of(Shape))
    with pytest.raises(SpecError, match=r"^shape = 'blob': has no area and no corners, which every shape needs$"):
        shapes.register("blob")(int)


class Shape(Protocol):
    """What every shape has."""

    corners: int

    def area(self) -> float:
        """Return its area."""
        ...


def test_names_are_printable_and_short(mine: Path, users: Registry[str]) -> None:
    with pytest.raises(SpecError, match=r"^shape = 'a\\x1b': must be printable text on one line, and has U\+001B$"):
        users.register("a\x1b")
    with pytest.raises(SpecError, match=r"has 201 characters"):
        users.register("a" * 201)
    (mine / "a\nb.py").write_text(REGISTER.format(name="star"))
    with pytest.raises(SpecError, match=r"^COSMIC_PATH shapes = 'a\\nb': must be printable text on one line, and"):
        users["star"]


def test_a_path_of_folders_names_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSMIC_PATH", f"{tmp_path}{os.pathsep}{tmp_path}/nowhere")
    with pytest.raises(SpecError, match=r"^COSMIC_PATH = .*nowhere'?…?: is no folder$"):
        registry.user_folders()
    monkeypatch.setenv("COSMIC_PATH", "")
    assert registry.user_folders() == ()


def test_a_second_thread_waits_until_all_are_there(package: Path) -> None:
    slow = "import time\nfrom some_shapes import shapes\n"
    (package / "a.py").write_text(f"{slow}shapes.register('circle')('none')\ntime.sleep(0.2)\n")
    (package / "b.py").write_text(f"{slow}shapes.register('square')('four sides')\n")
    shapes = import_module("some_shapes").shapes
    start = Barrier(4)

    def look_up(_: int) -> str:
        start.wait()
        return str(shapes["square"])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(look_up, range(4))) == ["four sides"] * 4


def test_what_is_imported_may_look_up_what_was_registered_before_it(package: Path) -> None:
    (package / "a.py").write_text("from some_shapes import shapes\nshapes.register('circle')('none')\n")
    (package / "b.py").write_text("from some_shapes import shapes\nshapes.register('disc')(shapes['circle'])\n")
    assert import_module("some_shapes").shapes["disc"] == "none"
