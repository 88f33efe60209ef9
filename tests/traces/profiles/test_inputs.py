"""Which files are converted, and what is said of those that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosmic.base.errors import SpecError
from cosmic.traces.chakra.trace_reader import trace_paths
from cosmic.traces.profiles.profile_conversion import InputKind, sort_inputs

KINETO, EXECUTION = '{"traceEvents": []}', '{"schema": "1.1.1", "nodes": []}'


def written(folder: Path, **texts: str) -> list[str]:
    """Write files; return their paths."""
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [str(folder / name) for name in texts]


def test_a_file_that_is_given_twice_is_not_two_ranks(tmp_path: Path) -> None:
    (one,) = written(tmp_path, one=KINETO)
    with pytest.raises(SpecError, match="is given twice"):
        sort_inputs([one, str(tmp_path / "." / "one")])
    (tmp_path / "link").symlink_to(one)
    with pytest.raises(SpecError, match="is given twice"):
        sort_inputs([one, str(tmp_path / "link")])


def test_an_execution_trace_may_come_before_or_after_its_kineto_trace(tmp_path: Path) -> None:
    kineto, execution = written(tmp_path, k=KINETO, e=EXECUTION)
    assert sort_inputs([kineto, execution]) == sort_inputs([execution, kineto])
    assert sort_inputs([kineto, execution])[0] is InputKind.PROFILES


def test_an_empty_file_and_standard_input_are_refused(tmp_path: Path) -> None:
    (empty,) = written(tmp_path, empty=" \n")
    with pytest.raises(SpecError, match="is empty"):
        sort_inputs([empty])
    with pytest.raises(SpecError, match="is standard input"):
        sort_inputs(["-"])


def test_the_prefix_of_one_rank_is_named_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "g.0.et").write_bytes(b"")
    with pytest.raises(SpecError, match=f"such as {tmp_path}/g$"):
        trace_paths(tmp_path / "g.0.et")
