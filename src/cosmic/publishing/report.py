"""Reports: a study as one page, on disk or in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

from cosmic.exploration.isolation import isolated as search_layers
from cosmic.exploration.searching import Found, Progress, Watch
from cosmic.exploration.studies.study import INPUTS, Study, open_study
from cosmic.files import write_text
from cosmic.publishing.container import Binary
from cosmic.publishing.contract import ReportDocument
from cosmic.publishing.document import Say, Subject, document_of, found_in
from cosmic.publishing.html import page

ISOLATED = 1_000
"""Designs to evaluate in the search of each layer alone."""
BEST = "best.yaml"
HEIGHT = 900
"""Pixels of a report in a notebook."""


@dataclass(frozen=True)
class Report:
    """The report of a study."""

    document: ReportDocument
    """The document, as `ui/src/document.ts` describes it: plain data."""
    binary: Binary
    """The numbers that it points to."""

    @cached_property
    def html(self) -> str:
        """The whole page as one HTML file."""
        return page(self.document, self.binary)

    @property
    def verdict(self) -> str:
        """The verdict on the study, in one sentence."""
        return self.document["verdict"]["sentence"]

    def write(self, path: str | Path) -> Path:
        """Write the page to a file; return its path."""
        write_text(path, self.html, "--out")
        return Path(path)

    def _repr_html_(self) -> str:
        """Return the page for a notebook, in a sandboxed frame."""
        style = f"width: 100%; height: {HEIGHT}px; border: 0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


def report(
    study: str | Path | Study | Found,
    *,
    isolated: int = ISOLATED,
    beside: Mapping[str, Found] | None = None,
    say: Say = lambda _: None,
) -> Report:
    """Return the report of a study on disk, or of what a search has found.

    For a study of several layers, each layer is also searched alone, with *isolated* designs, unless such searches are
    given as *beside*. *say* is called with a line of text before each stage of the work.
    """
    found, opened = _found(study)
    layers = search_layers(found, isolated, _watching(say)) if beside is None else beside
    subject = Subject(found, layers)
    if opened is not None:
        file = opened.path / BEST
        subject = Subject(found, layers, opened.written_by, opened.created, str(file) if file.exists() else "")
    binary = Binary()
    return Report(document_of(subject, binary, say), binary)


def _found(study: str | Path | Study | Found) -> tuple[Found, Study | None]:
    """Return what was found, and the study on disk, if there is one."""
    if isinstance(study, Found):
        kept = study.path is not None and (study.path / INPUTS).exists()
        return study, open_study(study.path) if kept and study.path is not None else None
    opened = study if isinstance(study, Study) else open_study(study)
    return found_in(opened), opened


def _watching(say: Say) -> Callable[[str], Watch]:
    """Return a function from a layer to the callback for the progress of its search."""

    def layer(name: str) -> Watch:
        def watch(progress: Progress) -> None:
            say(f"searching {name} alone: {progress.evaluated:,} of {progress.trials:,}")

        return watch

    return layer
