"""Put the compiled library into wheels and, for an editable installation, into the source, if it can be compiled."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = Path("cosmic", "base", "native")


class NativeLibrary(BuildHookInterface):  # type: ignore[type-arg,misc]
    """Compiles `src/cosmic/base/native/*.c`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and state the platform of a wheel that has a library. Without one it is for every platform."""
        source = Path(self.root, "src")
        sys.path.insert(0, str(source))
        try:
            from cosmic.base.native.build import NotBuilt, build  # noqa: PLC0415  from this very source
        finally:
            sys.path.remove(str(source))
        try:
            if version == "editable":
                build(source / PLACE)
                return
            self.scratch = TemporaryDirectory()
            path, _ = build(source / PLACE, Path(self.scratch.name))
        except NotBuilt as error:
            sys.stderr.write(f"cosmic: built without its native library, which is optional: {error}\n")
            return
        build_data["force_include"][str(path)] = (PLACE / path.name).as_posix()
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled: the wheel has it."""
        if hasattr(self, "scratch"):
            self.scratch.cleanup()


def platform() -> str:
    """Return the platform of a wheel: what the compiler made the library for, which is one machine's."""
    words = sysconfig.get_platform().split("-")
    if words[0] == "macosx":  # a Python for two machines, and a compiler that serves this one
        machine = os.uname().machine
        release = os.environ.get("MACOSX_DEPLOYMENT_TARGET", words[1])
        words[1:] = ["11.0" if machine == "arm64" and release.startswith("10.") else release, machine]
    return "_".join(words).replace(".", "_").replace("-", "_")
