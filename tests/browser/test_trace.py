"""The page of traces in a real browser: the timeline, the node, the graph, the tables, and odd traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosmic.report.trace_page import write_trace_page
from cosmic.traces.trace import NodeType, RankTrace, TraceSet, template_of
from tests.browser.conftest import Open, leaves, settle, violations

LONG = f"void at::native::vectorized_elementwise_kernel<4, at::native::Functor<{'float, ' * 60}float> >(int, char*)"
"""The name of a kernel, as C++ writes it."""


def recorded(steps: int, streams: int = 2) -> TraceSet:
    """Return a recorded trace: operators nested on a thread launch kernels on streams; all-reduces follow some."""
    rows: list[dict[str, Any]] = []

    def add(**stated: Any) -> int:
        rows.append({"id": 10 + len(rows), "type": NodeType.COMP, **stated})
        return 10 + len(rows) - 1

    last: dict[int, int] = {}
    for step in range(steps):
        at, stream = 20_000 * step, 7 + step % streams
        outer = add(name="aten::linear", on_cpu=1, start_ns=at, duration_ns=15_000, stream=1)
        inner = add(name="aten::addmm", on_cpu=1, start_ns=at + 1000, duration_ns=12_000, stream=1, ctrl=[outer])
        launch = add(name="cudaLaunchKernel", on_cpu=1, start_ns=at + 3000, duration_ns=2000, stream=1, ctrl=[inner])
        kernel = add(
            name=LONG if step % 2 else "ampere_sgemm_128x64_tn",
            start_ns=at + 9000,
            duration_ns=0 if step % 9 == 4 else 18_000,
            stream=stream,
            data=[launch, *([last[stream]] if stream in last else [])],
            num_ops=10**12,
            work="elementwise" if step % 2 else "gemm",
        )
        last[stream] = kernel
        if step % 5 == 4:
            add(
                type=NodeType.COMM_COLL,
                name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
                comm_type=0,
                comm_size=2**22,
                group=0,
                start_ns=at + 28_000,
                duration_ns=40_000,
                stream=99,
                data=[kernel],
            )
    return TraceSet((RankTrace(template_of(rows), ("default_pg",)),))


def job() -> TraceSet:
    """Return an unrecorded trace of two kinds of ranks."""
    one = template_of(
        [
            {"id": 0, "type": NodeType.COMP, "name": "layer0.forward", "duration_us": 30},
            {
                "id": 1,
                "type": NodeType.COMM_COLL,
                "name": "layer0.all_gather",
                "comm_type": 2,
                "comm_size": 64,
                "group": 0,
            },
            {"id": 2, "type": NodeType.COMP, "name": "layer1.forward", "data": [0, 1], "duration_us": 20},
            {
                "id": 3,
                "type": NodeType.COMM_SEND,
                "name": "send",
                "data": [2],
                "comm_size": 8,
                "comm_tag": 1,
                "peer": 0,
            },
        ]
    )
    other = template_of(
        [
            {"id": 0, "type": NodeType.COMM_RECV, "name": "receive", "comm_size": 8, "comm_tag": 1, "peer": 0},
            {"id": 1, "type": NodeType.COMP, "name": "head", "data": [0], "duration_us": 5},
        ]
    )
    ranks = [RankTrace(one, ("dp",), (2,)), RankTrace(one, ("dp",), (3,)), RankTrace(other, (), (0,))]
    return TraceSet((*ranks, RankTrace(other, (), (1,))))


@pytest.fixture
def trace_page(watch: Open, tmp_path: Path) -> Any:
    """Return what writes the page of some traces and opens it."""
    opened: list[Any] = []

    def open_trace(traces: TraceSet, fragment: str = "", **options: Any) -> Any:
        write_trace_page(traces, "job", tmp_path / "job.html")
        watched = watch(f"{(tmp_path / 'job.html').as_uri()}{fragment}", **options)
        watched.page.wait_for_selector("html[data-drawn]", state="attached", timeout=20_000)
        assert leaves(watched.requests) == []
        opened.append(watched.page)
        return watched

    yield open_trace
    assert not any(page.get_by_text("could not be drawn").count() for page in opened)


def stated(page: Any) -> dict[str, str]:
    """Return what the page says of the selected node."""
    names, texts = (page.locator(f"#node .stated {tag}").all_inner_texts() for tag in ("dt", "dd"))
    return dict(zip(names, texts, strict=True))


def test_a_click_on_a_node_shows_what_it_states_and_what_it_depends_on(trace_page: Any) -> None:
    watched = trace_page(recorded(40), "#node=11")
    page = watched.page
    assert page.locator("#node h3").inner_text() == "Node 11"
    assert stated(page)["row"] == "thread 1, level 2"
    watched.at_all_widths("trace-recorded")
    watched.resize("desktop")
    settle(page)
    canvas = page.locator(".lanes canvas").nth(1)
    canvas.scroll_into_view_if_needed()
    before = canvas.evaluate("canvas => canvas.toDataURL()")
    box = canvas.bounding_box()
    # The first kernel runs from 9 to 27 of 848 µs, on stream 7: below the times, the threads, the name of the streams.
    page.mouse.click(box["x"] + 148 + (box["width"] - 148) * 18 / 848, box["y"] + 24 + 22 * 5 + 11)
    settle(page)
    assert page.locator("#node h3").inner_text() == "Node 13"
    said = stated(page)
    assert (said["row"], said["start"], said["duration"], said["kernel"]) == ("stream 7", "9 µs", "18 µs", "gemm")
    assert said["operations"] == "1 TFLOP"
    assert canvas.evaluate("canvas => canvas.toDataURL()") != before  # the arrows of its dependencies
    page.locator("#node .ways button", has_text="cudaLaunchKernel").click()
    assert page.locator("#node h3").inner_text() == "Node 12"
    assert "node=12" in page.evaluate(
        "(async () => { await new Promise(f => setTimeout(f, 400)); return location.hash })()"
    )


def test_nodes_are_found_and_the_critical_path_is_seen_alone(trace_page: Any) -> None:
    page = trace_page(recorded(10)).page
    below = page.locator(".lanes canvas").first
    before = below.evaluate("canvas => canvas.toDataURL()")
    button = page.get_by_role("button", name="critical path only")
    button.click()
    assert below.evaluate("canvas => canvas.toDataURL()") != before
    button.click()
    page.get_by_label("find nodes by name or id").fill("allreduce")
    assert page.locator(".find output").inner_text() == "– of 2"
    page.keyboard.press("Enter")
    assert "AllReduce" in page.locator("#node .node-name").inner_text()
    assert stated(page)["group"] == "default_pg"


def test_the_graph_is_walked_with_arrows(trace_page: Any) -> None:
    page = trace_page(recorded(10), "#node=13").page
    page.locator(".graph canvas").nth(1).focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#node h3").inner_text() == "Node 12"
    page.locator(".graph canvas").nth(1).focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#node h3").inner_text() == "Node 13"
    page.get_by_role("button", name="more steps").click()
    assert "within 3 steps of 13" in page.locator("#graph-card .reading").inner_text()
    page.locator("#graph-card").get_by_role("button", name="table", exact=True).click()
    assert page.locator("#graph-card-twin tbody tr").count() >= 3


def test_ranks_are_chosen_and_operators_lead_to_their_longest_node(trace_page: Any) -> None:
    watched = trace_page(job(), dark=True)
    page = watched.page
    assert "16" not in page.locator(".facts").inner_text()
    assert page.locator(".choosing").inner_text().endswith("runs the same nodes as one other rank")
    page.locator("#operators button", has_text="layer1.forward").click()
    assert page.locator("#node h3").inner_text() == "Node 2"
    page.locator("#node .ways button", has_text="send").click()
    assert stated(page)["peer"] == "rank 2"
    page.get_by_label("rank").select_option("1")
    assert stated(page)["peer"] == "rank 3"
    page.get_by_label("rank").select_option("2")
    settle(page)
    assert "head" in page.locator("#operators").inner_text()
    watched.at_all_widths("trace-job")


def test_hundreds_of_streams_fold_and_unfold(trace_page: Any) -> None:
    watched = trace_page(recorded(400, 200))
    page = watched.page
    canvas = page.locator(".lanes canvas").nth(1)
    canvas.scroll_into_view_if_needed()
    rows = page.locator(".lanes > div")
    before = rows.bounding_box()["height"]
    assert before < 400  # one row for all streams
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + 60, box["y"] + 24 + 22 * 4 + 8)  # below the times, and the threads, which are unfolded
    settle(page)
    assert rows.bounding_box()["height"] > 200 * 22
    watched.screenshot("trace-streams-desktop")


@pytest.mark.parametrize(
    ("name", "rows", "said"),
    [
        ("empty", [], "The trace has no nodes."),
        ("one", [{"id": 5, "type": NodeType.COMP}], ""),
        ("instant", [{"id": 5, "type": NodeType.COMP, "start_ns": 3, "duration_ns": 0}], ""),
        ("cycle", [{"id": 1, "type": 4, "data": [2]}, {"id": 2, "type": 4, "data": [1, 9]}], "a cycle, 1 → 2 → 1"),
    ],
)
def test_odd_traces_open(trace_page: Any, name: str, rows: list[dict[str, Any]], said: str) -> None:
    watched = trace_page(TraceSet((RankTrace(template_of(rows)),)))
    page = watched.page
    problems = page.locator(".problem").all_inner_texts()
    assert said in " ".join(problems)
    assert bool(problems) == bool(said)
    watched.screenshot(f"trace-{name}-desktop")


def test_everybody_can_use_it(trace_page: Any) -> None:
    watched = trace_page(recorded(12))
    assert violations(watched.page) == []
    watched.page.keyboard.press("?")
    help_text = watched.page.locator("dialog").inner_text()
    assert all(each in help_text for each in ("Timeline", "Graph", "to what depends on the node", "next span"))


@pytest.mark.parametrize("nodes", [100_000])
def test_a_hundred_thousand_nodes_are_drawn_in_seconds(trace_page: Any, nodes: int) -> None:
    watched = trace_page(recorded(nodes * 5 // 21, 4))
    assert int(watched.page.locator("html").get_attribute("data-ready")) < 10_000  # 2 s where nothing else runs
    watched.at_all_widths("trace-large")
