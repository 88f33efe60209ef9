"""Every command, Python block and file in the documentation works."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from cosmic.cli.dispatch import main
from cosmic.design import catalog_entries
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.space_files import load_space

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs"))

from generation import how_to  # noqa: E402  the scripts that make the pages are not a package

APART = ("case-studies", "decisions")
"""Folders that other tests run (tests/examples), or that have nothing to run."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(
        path
        for path in (ROOT / "docs").rglob("*.md")
        if path.parent.name not in APART and path not in how_to.pages()  # which tests/docs runs
    ),
]
LONG = {
    "console": {"README-3", "docs/explanation/workload-0", "docs/explanation/designs-0", "docs/explanation/search-1"}
}
"""Blocks of a language that take many seconds: the page, and the block's place among those of the language."""
CI = (ROOT / ".ci" / "run").read_text()


def blocks(language: str) -> list[object]:
    """Return every fenced block of one language, with its page as test id."""
    found: list[object] = []
    for page in PAGES:
        for place, text in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)):
            name = f"{page.relative_to(ROOT).with_suffix('').as_posix()}-{place}"
            marks = [pytest.mark.long] if name in LONG.get(language, ()) else []
            found.append(pytest.param(text, id=name, marks=marks))
    return found


def commands(block: str) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output below it."""
    pairs = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        pairs.append((re.sub(r"\s+# .*", "", command).strip(), output.strip()))
    return pairs


@pytest.mark.long
@pytest.mark.parametrize("block", blocks("console"))
def test_a_command_in_the_documentation_works(
    block: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)  # commands may write files
    for command, shown in commands(block):
        words = shlex.split(command.removeprefix("pip install uv && ").removeprefix("uv run "))
        if words[0] != "cosmic":  # tests and linters, which .ci/run runs
            assert command in CI or command == "bash .ci/run"
            continue
        with pytest.raises(SystemExit) as ended:
            main(words[1:])
        printed = capsys.readouterr().out
        assert ended.value.code == 0
        assert printed.strip()
        if shown:
            assert [line.rstrip() for line in printed.strip().splitlines()] == shown.splitlines()


@pytest.mark.long
@pytest.mark.parametrize("block", blocks("python"))
def test_python_in_the_documentation_runs(block: str) -> None:
    for library in re.findall(r"\.to_(pandas|arrow)\(", block):
        pytest.importorskip({"arrow": "pyarrow"}.get(library, library), reason=f"{library} is an extra")
    exec(compile(block, "documentation", "exec"), {"__name__": "documentation"})


@pytest.mark.parametrize("block", blocks("yaml"))
def test_a_file_in_the_documentation_loads(block: str) -> None:
    tree = yaml.safe_load(block)
    if "parameters" in tree:
        assert load_space(tree).valid > 0
    else:
        assert load_design(tree).network.npus > 1


def test_the_readme_shows_the_two_commands() -> None:
    readme = PAGES[0].read_text()
    assert "pip install uv && uv run cosmic demo" in readme
    assert "uv run --extra dev pytest" in readme
    assert "uv run --extra dev pytest" in CI


SETS = {
    "training runs, each source left out of the fit": "all runs",
    "training steps on one H200": "h200-training",
    "loads of a serving engine on one H200, simulated": "h200-serving",
    "vLLM, SGLang and TensorRT-LLM": "serving agg",
    "disaggregated": "serving disagg",
}
"""What the README says of accuracy, and the rows of the page of accuracy that it is taken from."""


def test_the_errors_of_the_readme_are_those_of_the_page_of_accuracy() -> None:
    page = (ROOT / "docs" / "reference" / "accuracy.md").read_text()
    table = (ROOT / "README.md").read_text().partition("| predicted | rows |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    subject = ""
    for label, count, *errors in rows:
        subject, _, what = label.partition(": ") if label not in ("TTFT", "TPOT") else (subject, "", label)
        name = f"{SETS[subject]} {what.lower()}".strip()
        whole = re.escape(f"| {name} | {count} |") + r"(?: [\d,]+ \|)? " + re.escape(" | ".join(errors))
        assert re.search(whole, page), label
    assert {label.partition(": ")[0] for label, *_ in rows} - {"TTFT"} == SETS.keys()


def test_the_readme_counts_what_the_catalog_has() -> None:
    said = re.search(r"# (\d+) models, (\d+) accelerators, (\d+) systems", (ROOT / "README.md").read_text())
    assert said
    assert [int(each) for each in said.groups()] == [
        len(catalog_entries.entry_names(kind)) for kind in ("models", "accelerators", "systems")
    ]
