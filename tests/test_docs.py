"""Every command, Python block and file in the documentation works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from cosmic.cli import main
from cosmic.loading.designs import load_design
from cosmic.psa.files import load_space

ROOT = Path(__file__).parents[1]
APART = ("how-to", "case-studies", "decisions")
"""Folders that other tests run (tests/docs, tests/examples), or that have nothing to run."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name not in APART),
]
CI = (ROOT / ".ci" / "run").read_text()


def blocks(language: str) -> list[object]:
    """Return every fenced block of one language, with its page as test id."""
    found: list[object] = []
    for page in PAGES:
        for place, text in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)):
            found.append(pytest.param(text, id=f"{page.stem}-{place}"))
    return found


def commands(block: str) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output below it."""
    pairs = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        pairs.append((re.sub(r"\s+# .*", "", command).strip(), output.strip()))
    return pairs


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
