"""Write the pages of docs/reference from the code, and the outputs of the commands in docs/how-to.

python docs/generate_reference.py                    writes both
python docs/generate_reference.py share-a-cluster    writes docs/reference, and these pages of docs/how-to
python docs/generate_reference.py --quick            writes docs/reference alone: no command is run
python docs/generate_reference.py --check            writes nothing; exits with 1 if a page is stale
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
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


def stale(how_to_pages: Iterable[Path]) -> dict[Path, str]:
    """Return the pages of docs/reference, and of *how_to_pages*, that are out of date, with their new text."""
    wanted = {FOLDER / name: make() for name, make in PAGES.items()}
    wanted |= {path: how_to.run_page(path.read_text(encoding="utf-8")) for path in how_to_pages}
    return {path: text for path, text in wanted.items() if _text(path) != text}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def main(words: list[str] | None = None) -> int:
    """Write the stale pages, or only name them."""
    guides = {path.stem: path for path in how_to.pages()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="pages of docs/how-to; all if none is named")
    parser.add_argument("--quick", action="store_true", help="leave docs/how-to alone")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is stale")
    options = parser.parse_args(words)
    if unknown := [name for name in options.pages if name not in guides]:
        parser.error(f"page = {unknown[0]!r}: is none of docs/how-to: {', '.join(guides)}")
    found = stale([] if options.quick else [guides[name] for name in options.pages or guides])
    for path, text in found.items():
        sys.stdout.write(f"{'stale' if options.check else 'wrote'} {path.relative_to(FOLDER.parent)}\n")
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(options.check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
