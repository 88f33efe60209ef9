"""The report in a real browser: its shell, the verdict, why, and trust; in light, dark, print, a phone and a frame."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

import pytest

import cosmic
from tests.browser.conftest import SCROLLS, Open, Watched, leaves, violations

SECTIONS = ["verdict", "why", "explore", "design", "trust"]
CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


@pytest.fixture(scope="module")
def nothing_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a search that asks for more than any design gives."""
    folder = tmp_path_factory.mktemp("nothing")
    found = cosmic.search(
        "cosmic-512-full-stack", trials=60, constraints=["step_s <= 1 ns"], seed=1, out=folder / "study"
    )
    return cosmic.report(found.path or folder, isolated=20).write(folder / "report.html")


def test_it_opens_from_disk_and_asks_for_nothing(report_page: Open, study: dict[str, Any]) -> None:
    watched = report_page()
    page = watched.page
    assert leaves(watched.requests) == []
    assert page.locator("main section.section").evaluate_all("all => all.map((each) => each.id)") == SECTIONS
    assert page.locator(".sentence").inner_text() == study["verdict"]["sentence"]
    assert page.locator(".headline").inner_text() == study["verdict"]["headline"]
    assert page.locator(".plateau-words").inner_text() == study["verdict"]["plateau"]["sentence"]
    assert page.locator(".launch-line").inner_text() == study["designs"][study["best"]]["launch"]["note"]
    assert page.locator("main").count() == page.locator("h1").count() == 1
    assert page.evaluate("performance.getEntriesByName('cosmic-ready').length") == 1
    ids = page.locator("[id]").evaluate_all("all => all.map((each) => each.id)")
    assert sorted(ids) == sorted(set(ids))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_every_screen(report_page: Open, dark: bool) -> None:
    report_page(dark=dark).at_all_widths(f"report-{'dark' if dark else 'light'}")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_everyone_can_use_it(report_page: Open, dark: bool) -> None:
    page = report_page(dark=dark).page
    if not dark:  # colours differ; what can be opened does not
        page.locator("#design summary").first.click()
        page.locator(".axis-name").first.click()
        for button in page.get_by_role("button", name="table", exact=True).all():
            button.click()
    assert violations(page) == []


# ---- the shell


def test_keys_jump_and_switch_and_explain(report_page: Open) -> None:
    page = report_page().page
    for place, section in enumerate(SECTIONS, start=1):
        page.keyboard.press(str(place))
        assert page.evaluate("document.activeElement.id") == f"{section}-heading"
    page.keyboard.press("d")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    page.keyboard.press("d")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    dialog.get_by_text("light or dark").wait_for()
    for _ in range(4):  # the focus stays inside
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")


def test_the_theme_is_remembered(report_page: Open) -> None:
    page = report_page().page
    page.get_by_role("button", name="light or dark").click()
    page.reload()
    page.locator("html[data-drawn]").wait_for(state="attached")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_links_go_to_sections_and_leave_the_address_alone(report_page: Open) -> None:
    page = report_page().page
    page.get_by_role("navigation").get_by_role("link", name="Trust").click()
    page.locator("nav [aria-current]", has_text="Trust").wait_for()
    assert "trust" not in page.evaluate("location.hash")


def test_a_link_may_name_a_section(report_page: Open) -> None:
    page = report_page("#trust").page
    assert page.evaluate("document.activeElement.id") == "trust-heading"


# ---- the verdict


def copied(page: Any, button: str) -> str:
    """Press a button of the verdict that copies something; return what the clipboard then holds."""
    page.locator("#verdict").get_by_role("button", name=button, exact=True).first.click()
    page.locator("#verdict").get_by_text("copied", exact=True).first.wait_for()
    page.locator("#verdict").get_by_text("copied", exact=True).first.wait_for(state="detached")
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_the_verdict_gives_what_to_take_along(report_page: Open, study: dict[str, Any]) -> None:
    page = report_page(**CLIPBOARD).page
    verdict, best = study["verdict"], study["designs"][study["best"]]
    assert copied(page, "copy command") == verdict["command"]
    assert copied(page, "copy YAML") == best["yaml"]
    with page.expect_download() as caught:
        page.get_by_role("button", name="download best.yaml").click()
    assert caught.value.suggested_filename == "best.yaml"
    assert Path(caught.value.path()).read_text() == best["yaml"]


def test_numbers_give_their_exact_value(report_page: Open, study: dict[str, Any]) -> None:
    page = report_page(**CLIPBOARD).page
    fact = study["verdict"]["facts"][0]
    assert page.locator("#verdict button.exact").first.inner_text() == fact["text"]
    assert float(copied(page, fact["text"])) == fact["value"]


def test_tabs_hold_shell_and_python(report_page: Open, study: dict[str, Any]) -> None:
    page = report_page().page
    panel = page.locator("#verdict [role=tabpanel]:visible")
    assert panel.inner_text().strip() == study["verdict"]["command"]
    page.get_by_role("tab", name="shell").press("ArrowRight")
    assert panel.inner_text().strip() == study["verdict"]["python"].strip()


def test_the_best_opens_below(report_page: Open) -> None:
    page = report_page().page
    page.get_by_role("button", name="open its timeline").click()
    assert page.evaluate("document.activeElement.id") == "design-heading"


# ---- why and trust


def test_bars_are_in_seconds_or_shares(report_page: Open, study: dict[str, Any]) -> None:
    page = report_page().page
    compared = [study["designs"][place] for place in study["why"]["compared"]]
    widths = """rows => rows.map((row) => [...row.querySelectorAll('.segment')]
        .reduce((sum, each) => sum + parseFloat(each.style.width), 0))"""
    rows = page.locator("#breakdown .stack-track")
    longest = max(
        (each["step_s_range"] or [0.0, sum(part["seconds"] for part in each["parts"])])[1] for each in compared
    )  # the range of a step is drawn, too
    expected = [100 * sum(part["seconds"] for part in each["parts"]) / longest for each in compared if each["parts"]]
    assert rows.evaluate_all(widths) == pytest.approx(expected, abs=0.01)
    page.locator("#breakdown").get_by_role("button", name="share").click()
    assert rows.evaluate_all(widths) == pytest.approx([100] * len(expected), abs=0.01)


def test_marks_say_what_they_are(report_page: Open, study: dict[str, Any]) -> None:
    page = report_page().page
    page.locator("#breakdown .segment").first.hover()
    assert study["designs"][study["why"]["compared"][0]]["label"] in page.locator(".tip").inner_text()
    page.locator("#convergence canvas").last.hover()
    assert re.match(r"after [\d,]+ designs", page.locator(".tip").inner_text())


def test_each_chart_has_a_table(report_page: Open, study: dict[str, Any]) -> None:
    page = report_page().page
    for card, rows in {
        "breakdown": len(
            {part["label"] for place in study["why"]["compared"] for part in study["designs"][place]["parts"]}
        ),
        "changes": len(study["why"]["changes"]),
        "convergence": min(200, sum(len(each["points"]) for each in study["convergence"]["series"])),
        "failures": len(study["trust"]["failures"]),
    }.items():
        page.locator(f"#{card}").get_by_role("button", name="table", exact=True).click()
        assert page.locator(f"#{card}-twin tbody tr").count() == rows


def test_factors_multiply_to_the_gain(report_page: Open, study: dict[str, Any]) -> None:
    page = report_page().page
    texts = page.locator("#changes .change > .number").all_inner_texts()
    product = 1.0
    for text in texts[:-1]:
        product *= float(text.rstrip("×"))
    assert product == pytest.approx(float(texts[-1].rstrip("×")), rel=0.02)
    assert float(texts[-1].rstrip("×")) == pytest.approx(study["verdict"]["gains"][0]["times"], rel=0.005)


def test_trust_says_inputs_failures_and_limits(report_page: Open, study: dict[str, Any]) -> None:
    page = report_page().page
    text = page.locator("#trust").inner_text()
    trust = study["trust"]
    said = [value for _, value in trust["inputs"]] + [each["label"] for each in trust["failures"]] + trust["limits"]
    assert [each for each in said if each not in text] == []


# ---- paper, frames, bad files


def test_paper_is_light_and_has_nothing_to_press(report_page: Open) -> None:
    watched = report_page(dark=True)
    page = watched.page
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("button:not(.exact, .axis):visible").count() == 0
    assert page.locator("#verdict [role=tabpanel]:visible").count() == 2
    assert page.locator("details:not([open])").count() == 0
    page.set_viewport_size({"width": 703, "height": 1000})  # A4 within its margins
    watched.screenshot("report-print")
    assert not page.evaluate(SCROLLS)


def test_it_works_in_the_frame_of_a_notebook(watch: Open, report_file: Path) -> None:
    watched = watch("about:blank")
    page = watched.page
    markup = escape(report_file.read_text(encoding="utf-8"))
    page.set_content(f'<iframe sandbox="allow-scripts" width="1200" height="800" srcdoc="{markup}"></iframe>')
    frame = page.frame_locator("iframe")
    frame.locator("#trust").wait_for()
    frame.get_by_role("button", name="light or dark").click()
    frame.get_by_role("link", name="Why").click()
    frame.get_by_role("button", name="copy command").click()
    assert leaves(watched.requests) == []


@pytest.mark.parametrize("harm", ["cut", "changed", "emptied"])
def test_a_damaged_file_says_so_and_keeps_the_verdict(
    watch: Open, report_file: Path, study: dict[str, Any], tmp_path: Path, harm: str
) -> None:
    text = report_file.read_text(encoding="utf-8")
    start = text.index('id="cosmic-document">') + len('id="cosmic-document">')
    end = text.index("<", start)
    data = text[start:end]
    harmed = {"cut": data[: len(data) // 2], "changed": data[:400] + "AAAA" * 50 + data[600:], "emptied": ""}[harm]
    path = tmp_path / "damaged.html"
    path.write_text(text[:start] + harmed + text[end:], encoding="utf-8")
    page = watch(path.as_uri()).page
    page.get_by_role("alert").wait_for()
    assert "damaged" in page.get_by_role("alert").inner_text()
    assert study["verdict"]["sentence"] in page.locator("main").inner_text()


def test_a_study_in_which_nothing_runs_is_no_blank_page(report_page: Open, nothing_runs: Path) -> None:
    watched: Watched = report_page(path=nothing_runs)
    watched.screenshot("report-nothing-runs")
    text = watched.page.locator("#why").inner_text()
    assert "can run" in text
    assert watched.page.locator("#failures .failure-track").count() > 0
    assert watched.page.locator("#verdict button.primary").count() == 0
    assert watched.page.locator(".problem").count() == 0
