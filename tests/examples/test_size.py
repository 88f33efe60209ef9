"""The space of what to buy is the one that its guide shows, and has what it says."""

from __future__ import annotations

from pathlib import Path

from cosmic.search.space.space_files import load_space

ROOT = Path(__file__).parents[2]
SPACE = ROOT / "examples" / "size" / "space.yaml"


def test_the_guide_shows_the_file() -> None:
    guide = (ROOT / "docs" / "how-to" / "buy-a-cluster.md").read_text(encoding="utf-8")
    assert f"`space.yaml`:\n\n```yaml\n{SPACE.read_text(encoding='utf-8')}```\n" in guide


def test_every_design_uses_all_of_its_machine() -> None:
    space = load_space(SPACE)
    labels = space.parameters[0].labels
    assert {label.partition(":")[0] for label in labels} == {"dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72"}
    first = space.point(next(iter(space.enumerate())))
    mesh = first.workload
    assert mesh.dp * mesh.tp * mesh.cp * mesh.pp == first.network.npus
