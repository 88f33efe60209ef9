"""Write the pages of docs/reference from the code, and the outputs of the commands in docs/how-to.

python docs/generate_reference.py             writes both
python docs/generate_reference.py --check     writes nothing; exits with 1 if a page is stale
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.pop("COSMIC_PATH", None)  # the reference holds only what the package brings

from generation import commands, formats, formulas, how_to, interface, keys, limits, measures

FOLDER = Path(__file__).parent / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "cli.md": commands.make,
    "api.md": interface.make,
    "formulas.md": formulas.make,
    "keys.md": keys.make,
    "metrics.md": measures.make,
    "formats.md": formats.make,
    "limits.md": limits.make,
}


def stale(*, with_how_to: bool = True) -> dict[Path, str]:
    """Return the pages that are out of date, with their new text."""
    wanted = {FOLDER / name: make() for name, make in PAGES.items()}
    if with_how_to:
        wanted |= {path: how_to.run_page(path.read_text(encoding="utf-8")) for path in how_to.pages()}
    return {path: text for path, text in wanted.items() if _text(path) != text}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def main(words: list[str]) -> int:
    """Write the stale pages, or only name them."""
    checking = words == ["--check"]
    for path, text in stale().items():
        sys.stdout.write(f"{'stale' if checking else 'wrote'} {path.relative_to(FOLDER.parent)}\n")
        if not checking:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if checking and stale(with_how_to=False) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
