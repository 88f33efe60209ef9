"""Compile the library: ``python -m cosmic.base.native.build`` after a change of the C files.

An installation does the same (`hatch_build.py`); where no compiler is at hand, or it fails, there is no library.
Only the standard library is used here, as nothing else is installed then.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from cosmic.base.native.library import FLAGS, FOLDER, library_file_name, platform_tag, source_digest, source_files

COMPILERS = ("cc", "gcc", "clang")
LONGEST_S = 600
"""The most seconds that a compiler may take."""


class NotBuilt(Exception):  # noqa: N818  no error: everything works without
    """There is no library, and why, in one line."""


def build(folder: Path = FOLDER, into: Path | None = None) -> tuple[Path, str]:
    """Compile the sources in *folder*; return the library, in *into* or the same folder, and the compiler's warnings.

    Readers see a whole library or none. Those of earlier sources are removed. Raises `NotBuilt`.
    """
    into = folder if into is None else into
    try:
        digest = source_digest(folder)
        target = into / library_file_name(digest)
        beside = into / f".{target.name}.{os.getpid()}"
        try:
            warnings = _compile(folder, digest, beside)
            beside.chmod(0o644)
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)
        for stale in into.glob(f"_native-*.{platform_tag()}.so"):
            if stale != target:
                stale.unlink(missing_ok=True)
    except OSError as error:
        raise NotBuilt(f"{error.strerror or error}: {error.filename or folder}") from None
    return target, warnings


def _compile(folder: Path, digest: str, target: Path) -> str:
    # Relative names, and no number of the build: the same sources give the same bytes, wherever they lie.
    files = [path.name for path in source_files(folder) if path.suffix == ".c"]
    plain = ["-Wl,--build-id=none"] if sys.platform == "linux" else []
    command = [*compiler(), *FLAGS, "-Wall", "-Wextra", f'-DCOSMIC_NATIVE_DIGEST="{digest}"', *plain]
    try:
        result = subprocess.run(
            [*command, "-o", str(target.absolute()), *files, "-lm"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotBuilt(f"{shlex.join(command[:1])} took more than {LONGEST_S} s") from None
    if result.returncode != 0 or not target.is_file():
        message = next((line for line in result.stderr.splitlines() if "error" in line), "it said nothing")
        raise NotBuilt(f"{shlex.join(command[:1])} ended with {result.returncode}: {message.strip()}")
    return result.stderr


def compiler() -> list[str]:
    """Return the command that compiles C: $CC, which may have options, or the first that is found."""
    if sys.maxsize < 2**32:
        raise NotBuilt("this is no 64-bit Python")
    try:
        command = shlex.split(os.environ.get("CC", ""))
    except ValueError:
        raise NotBuilt("CC has a quote that is not closed") from None
    for words in [command] if command else [[name] for name in COMPILERS]:
        if found := shutil.which(words[0]):
            return [found, *words[1:]]
    raise NotBuilt(f"there is no compiler: no {command[0] if command else ', '.join(COMPILERS)}")


def main() -> int:
    """Build the library in place, and say where it is."""
    try:
        path, warnings = build()
    except NotBuilt as error:
        sys.stderr.write(f"cosmic: built without its native library, which is optional: {error}\n")
        return 1
    sys.stderr.write(warnings)
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
