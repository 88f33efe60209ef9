"""Named variants: one file each, one line to register, no list to edit.

A registry names the package whose modules register themselves, and the entry-point group through which other
distributions add theirs. A user can also keep modules in folders that ``COSMIC_PATH`` lists, named like the groups:
``topologies/*.py`` for `cosmic.topologies`. Importing a registry is free: a look-up of a name imports the module of
that name, and only listing the names, or a name that no module has, imports them all.

A module from outside that cannot be imported is named in one sentence on standard error and kept in `Registry.broken`;
all others work. Whoever asks for a variant of its name gets that sentence as the error.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache, partial
from importlib import import_module
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from cosmic.base.errors import CosmicError, SpecError, UnknownName, check_text, require
from cosmic.base.files import is_folder, open_regular

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


T = TypeVar("T")
V = TypeVar("V")

PATH = "COSMIC_PATH"
"""Environment variable that lists folders of a user's own variants and catalog entries, separated as in ``PATH``."""

_LOADING = RLock()
"""Held while a registry is filled. One lock for all: two could deadlock threads whose imports need both registries."""


def user_folders() -> tuple[Path, ...]:
    """Return the folders of a user's own variants and catalog entries, in the order of ``COSMIC_PATH``."""
    folders = tuple(Path(text).absolute() for text in os.environ.get(PATH, "").split(os.pathsep) if text)
    for folder in folders:
        require(is_folder(folder), PATH, str(folder), "is no folder")
    return folders


def user_files(kind: str, pattern: str) -> list[Path]:
    """Return the files of one *kind* in the user's folders, folder by folder, each in alphabetical order."""
    paths = [path for folder in user_folders() for path in sorted((folder / kind).glob(pattern))]
    for path in paths:
        check_text(path.stem, f"{PATH} {kind}")  # the name of an entry or a variant
    return paths


def import_file(path: Path, where: str = PATH) -> ModuleType:
    """Import a user's module, under a name that is no other module's; *where* says who asked for it."""
    with open_regular(path, where):  # a pipe would be read for ever
        pass
    name = f"cosmic_path.{path.parent.name}.{path.stem}"
    module = sys.modules[name] = ModuleType(name)  # before it runs: dataclasses and pickle look it up
    module.__file__ = str(path)
    try:
        SourceFileLoader(name, str(path)).exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def entry_points(group: str) -> Iterable[EntryPoint]:
    """Return what installed distributions offer in *group*."""
    groups = _stated_groups(tuple(sys.path), tuple(map(id, sys.meta_path)))
    if groups is not None and group not in groups:
        return ()
    from importlib import metadata  # noqa: PLC0415  slow to load, and hardly ever needed

    return metadata.entry_points(group=group)


@cache
def _stated_groups(folders: tuple[str, ...], _finders: tuple[int, ...]) -> frozenset[str] | None:
    """Return the groups that distributions in *folders* (`sys.path`) offer; None if that is not plain to see."""
    # Other finders, such as those of zipapps, may offer distributions that no folder shows.
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return None
    groups: set[str] = set()
    for folder in folders:
        try:
            names = os.listdir(folder or os.curdir)
        except NotADirectoryError:  # an archive
            return None
        except OSError:
            continue
        if any(name.endswith(".egg") for name in names):
            return None
        metadata_folders = [name for name in names if name.endswith((".dist-info", ".egg-info"))]
        groups.update(*(_groups_in(os.path.join(folder, name, "entry_points.txt")) for name in metadata_folders))
    return frozenset(groups)


def _groups_in(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.strip().strip("[]") for line in lines if line.lstrip().startswith("[")]


def members_of(protocol: type) -> tuple[str, ...]:
    """Return the functions and attributes that a protocol names."""
    return tuple(name for name in {**vars(protocol), **protocol.__annotations__} if not name.startswith("_"))


class Registry(Mapping[str, T]):
    """The variants of one kind by name, in alphabetical order.

    >>> shapes: Registry[str] = Registry("shape")
    >>> shapes.register("square")("four sides")
    'four sides'
    >>> shapes["sqare"]
    Traceback (most recent call last):
    cosmic.base.errors.UnknownName: shape = 'sqare': no such shape; did you mean 'square'?
    """

    def __init__(self, kind: str, package: str = "", group: str = "", members: Iterable[str] = ()) -> None:
        self.kind = kind
        self._members = tuple(members)
        """What every variant must have: names of functions and attributes."""
        self._package = package
        self._group = group
        self._variants: dict[str, T] = {}
        self._broken: dict[str, SpecError] = {}
        self._loaded = not (package or group)
        self._loading = False
        self._has_extensions: bool | None = None
        """Whether other distributions or the user may add variants; None as long as nobody has looked."""

    def register(self, name: str) -> Callable[[V], V]:
        """Return a decorator that adds a variant under *name*; a second one is refused."""
        check_text(name, self.kind)

        def add(variant: V) -> V:
            if name in self._variants:
                raise SpecError(self.kind, name, "is registered already")
            missing = [member for member in self._members if not hasattr(variant, member)]
            if missing:
                raise SpecError(self.kind, name, f"has no {' and no '.join(missing)}, which every {self.kind} needs")
            self._variants[name] = variant  # type: ignore[assignment]  # V keeps the decorated type visible
            return variant

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise self._miss(name, self.kind)
        return self._variants[name]

    @property
    def added(self) -> list[str]:
        """The names of variants that no module of the package registered."""
        own = f"{self._package}."
        return sorted(
            name for name, value in self._variants.items() if not getattr(value, "__module__", "").startswith(own)
        )

    @property
    def broken(self) -> Mapping[str, SpecError]:
        """Modules from outside that cannot be imported: by the name of their file or entry point, the error."""
        self._load()
        return self._broken

    def check(self, name: str, where: str) -> None:
        """Raise `UnknownName` at *where* unless *name* is registered."""
        if name not in self:
            raise self._miss(name, where)

    def _miss(self, name: str, where: str) -> SpecError:
        """Return the error for a *name* that is not registered: why its module is broken, if it has one."""
        if isinstance(name, str) and name in self._broken:
            return SpecError(where, name, f"{self._broken[name].value} {self._broken[name].rule}")
        return UnknownName.among(where, name, self.kind, self._variants)

    def __iter__(self) -> Iterator[str]:
        """Return the names that a user may write; others begin with an underscore."""
        self._load()
        return iter(sorted(name for name in self._variants if not name.startswith("_")))

    def __len__(self) -> int:
        return len(tuple(iter(self)))

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        if not self._loaded:
            self._load_variant(name)
        return name in self._variants

    def _load_variant(self, name: str) -> None:
        """Import the module called as the variant, such as `ring`, `ring_algorithm` or `schedule_1f1b`; else all.

        Where variants come from outside too, all are imported: a broken module is reported at the first look-up.
        """
        if self._has_extensions is None:
            has_entry_points = bool(self._group) and any(True for _ in entry_points(self._group))
            self._has_extensions = has_entry_points or PATH in os.environ
        if not self._has_extensions:
            stem = name.strip("_")
            if (
                self._package
                and name not in self._variants
                and stem.isascii()
                and stem[:1].isalnum()
                and "." not in stem
            ):
                for module in (stem, f"{stem}_{self.kind}", f"{self.kind}_{stem}"):
                    with _LOADING:
                        if find_spec(f"{self._package}.{module}"):
                            import_module(f"{self._package}.{module}")
            if name in self._variants:
                return
        self._load()

    def _load(self) -> None:
        """Import every module of the package, of entry points and of the user's folders, once.

        Other threads wait. A look-up by the importing thread sees what is registered so far.
        """
        if self._loaded:
            return
        with _LOADING:
            if self._loaded or self._loading:
                return
            self._loading = True
            try:
                self._import()
                self._loaded = True  # last: a half-filled registry would refuse existing names
            finally:
                self._loading = False

    def _import(self) -> None:
        if self._package:
            for module in pkgutil.iter_modules(import_module(self._package).__path__):
                import_module(f"{self._package}.{module.name}")
        if self._group:
            for entry_point in entry_points(group=self._group):
                self._import_from_outside(
                    entry_point.name,
                    f"entry point of {self._group}",
                    f"{entry_point.name} = {entry_point.value}",
                    entry_point.load,
                )
            for path in user_files(self._group.rpartition(".")[2], "*.py"):
                self._import_from_outside(
                    path.stem, PATH, f"{path.parent.name}/{path.name}", partial(import_file, path)
                )

    def _import_from_outside(self, name: str, where: str, source: str, load: Callable[[], object]) -> None:
        """Import one module: all that it registers, or nothing; one that fails is kept as broken."""
        # A module that fails half-way leaves nothing behind: what it registered is taken back.
        before = dict(self._variants)
        try:
            with redirect_stdout(sys.stderr):  # standard output is for data
                load()
        except KeyboardInterrupt:
            self._variants = before
            raise
        except BaseException as error:  # also a SystemExit: no module may end a command that does not need it
            self._variants = before
            message = (
                str(error) if isinstance(error, CosmicError) else f"{type(error).__name__}: {error}".removesuffix(": ")
            )
            self._broken[name] = SpecError(where, source, f"cannot be imported: {message}")
            import logging  # noqa: PLC0415  only where something is broken
            import multiprocessing  # noqa: PLC0415

            if multiprocessing.parent_process() is None:  # workers would repeat what their parent has said
                logging.getLogger("cosmic").warning("cosmic: %s", self._broken[name])
