"""The documentation: every page is in the navigation, links work, pictures are current, and the notebook runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pictures
import pytest
import yaml

import cosmic
from cosmic.search.compare.design_differences import compare_designs
from cosmic.search.search_verdict import best_point, judge_search
from cosmic.simulate.schedule_timeline import draw_design_timeline
from tests.batches import check_all

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples" / "quickstart"
PAGES = [*sorted(DOCS.rglob("*.md")), *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING"))]
APART: dict[str, str] = {}
"""Pages that are left out of the navigation on purpose, each with the reason."""
COPIED = {"architecture.md", "contributing.md", "changelog.md"}
"""Pages of the site that docs/hooks.py makes of the repository's own."""
LARGEST_PICTURE = 150_000
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
LINK = re.compile(r"(?<!!)\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)

by_page = check_all("page", PAGES)


def prose(page: Path) -> str:
    """Return the text of a page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as mkdocs makes them."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())
        found[slug] = found.get(slug, -1) + 1
    return {name if not turn else f"{name}_{turn}" for name, most in found.items() for turn in range(most + 1)}


# ---- navigation


def listed(entries: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the paths of a navigation, innermost too."""
    for entry in entries:
        for value in entry.values():
            if isinstance(value, list):
                yield from listed(value)
            elif value.endswith("/*"):
                yield from (path.relative_to(DOCS).as_posix() for path in (DOCS / value[:-2]).glob("*.md"))
            else:
                yield value


def test_every_page_is_in_the_navigation_once() -> None:
    paths = list(listed(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert len(paths) == len(set(paths))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert set(paths) - COPIED == pages - set(APART)
    assert set(APART) <= pages


# ---- links and pictures


@by_page
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    wrong = []
    for target in LINK.findall(CODE.sub("`", prose(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and (found.suffix != ".md" or anchor not in anchors(found))):
            wrong.append(target)
    assert wrong == []


@by_page
def test_pictures_exist_are_small_and_have_an_alt_text(page: Path) -> None:
    for words, target in PICTURE.findall(prose(page)):
        path = (page.parent / target).resolve()
        assert path.is_file(), target
        assert len(words.split()) > 1 or "accuracy" in target, f"{target}: needs an alt text"
        assert path.stat().st_size < LARGEST_PICTURE, target
        if path.suffix == ".svg":
            root = ElementTree.parse(path).getroot()
            assert root.get("role") == "img"
            assert (root.findtext("{http://www.w3.org/2000/svg}title") or "").strip()


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_current(name: str) -> None:
    drawn = pictures.PICTURES[name]()
    assert drawn == (pictures.FOLDER / name).read_text(encoding="utf-8"), "run: python docs/pictures.py"
    shown = [text for text in re.findall(r">([^<>]*…)<", drawn) if not text.endswith(" …")]
    assert shown == []  # no label is cut off


def test_every_concept_has_a_picture_and_a_command_to_check_it() -> None:
    ideas = [DOCS / "explanation" / name.replace(".svg", ".md") for name in pictures.PICTURES]
    overview = (DOCS / "explanation" / "index.md").read_text()
    for path in ideas:
        text = path.read_text()
        assert f"]({path.stem}.svg)" in text
        assert "```console\n$ cosmic " in text
        assert f"]({path.name})" in overview


# ---- numbers in the text


def test_the_quickstart_shows_the_files_that_its_commands_read() -> None:
    text = (DOCS / "tutorials" / "quickstart.md").read_text()
    for name in ("design.yaml", "space.yaml"):
        assert (EXAMPLES / name).read_text() in text
        assert f"examples/quickstart/{name}" in text


def test_the_quickstart_quotes_the_result_of_its_search() -> None:
    text = " ".join((DOCS / "tutorials" / "quickstart.md").read_text().split())
    found = cosmic.search(EXAMPLES / "space.yaml", trials=300, seed=0)
    assert f"`{judge_search(found).sentence}`" in text
    best = best_point(found)
    assert best is not None
    first, second, *_ = (
        each.worth_s for each in compare_designs(cosmic.load_design(EXAMPLES / "design.yaml"), best).differences
    )
    assert first is not None
    assert second is not None
    assert f"saves {-first:.1f} s" in text
    assert f"costs {second:.1f} s" in text


def test_the_concepts_quote_the_results_of_both_engines() -> None:
    design = cosmic.load_design(pictures.MACHINE, pictures.PIPELINE, plain=True)
    closed, simulated = cosmic.evaluate(design), cosmic.evaluate(design, engine="event")
    longer = cosmic.evaluate(
        cosmic.load_design(pictures.MACHINE, {**pictures.PIPELINE, "global_batch": 64}, plain=True)
    )
    assert isinstance(closed, cosmic.design.Metrics)
    assert isinstance(simulated, cosmic.design.Metrics)
    assert isinstance(longer, cosmic.design.Metrics)
    engines = " ".join((DOCS / "explanation" / "two-engines.md").read_text().split())
    assert f"say {1e3 * closed.step_s:.0f} ms and {1e3 * simulated.step_s:.0f} ms" in engines
    step = " ".join((DOCS / "explanation" / "step.md").read_text().split())
    bubble = closed.breakdown["bubble"]
    assert f"of {1e3 * closed.step_s:.0f} ms, the bubble is {1e3 * bubble:.0f} ms, {bubble / closed.step_s:.0%}" in (
        step.replace(" %", "%")
    )
    assert longer.breakdown["bubble"] == pytest.approx(bubble)
    assert f"only {bubble / longer.step_s:.0%} of a longer step" in step.replace(" %", "%")
    assert draw_design_timeline(design).duration_s == pytest.approx(closed.step_s, rel=0.01)


# ---- the notebook


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the notebook, run from top to bottom."""
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed (extra dev)")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (extra dev)")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (extra dev)")
    notebook = nbformat.read(ROOT / "examples" / "tour.ipynb", as_version=4)
    nbformat.validate(notebook)
    folder = tmp_path_factory.mktemp("tour")
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def output(notebook: Any, line: str, kind: str) -> str:
    """Return what the cell with *line* displays, as *kind*."""
    (cell,) = (cell for cell in notebook.cells if cell.cell_type == "code" and line in cell.source)
    shown = [each.data[kind] for each in cell.outputs if each.output_type == "execute_result" and kind in each.data]
    assert shown, f"{line}: displays no {kind}"
    return str(shown[-1])


@pytest.mark.long
@pytest.mark.xdist_group("notebook")
def test_the_notebook_runs_and_shows_the_report(tour: Any) -> None:
    html = output(tour, "cosmic.report(found", "text/html")
    assert html.startswith('<iframe sandbox="allow-scripts"')
    assert "srcdoc=" in html
    assert len(html) > 100_000  # the page itself, not a link to it
    assert "needs" in output(tour, "cosmic.design.Infeasible", "text/markdown")
    assert "<title>Step against memory</title>" in output(tour, "scatter(", "image/svg+xml")
    assert "tensor parallelism 8 →" in output(tour, "cosmic.design.diff(design", "text/markdown")


def test_the_notebook_is_kept_without_outputs() -> None:
    tree = yaml.safe_load((ROOT / "examples" / "tour.ipynb").read_text())  # JSON is YAML
    code = [cell for cell in tree["cells"] if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
