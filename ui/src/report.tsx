// The page of a report: its file holds everything that it shows.

import { render } from "preact";
import { startKeys } from "./base/keys";
import { afterPaint, drawLate } from "./base/late";
import { startTheme } from "./base/theme";
import { open } from "./container";
import type { ReportDocument } from "./document";
import { measureBrush } from "./explore/explore";
import { jump, SectionLinks, Shell } from "./frame";
import { SECTIONS, sharedOf, StudyView } from "./shell";
import { reportSource } from "./state";
import { decode } from "./trials";

declare global {
  interface Window {
    /** For measuring: milliseconds until the first screens can be used, until all is drawn, and for moves of a brush. */
    cosmic?: { ready_ms: number; drawn_ms: number; measureBrush: (moves?: number) => number[] };
  }
}

/** Shows the report in place of `plain`, which the file shows without scripts. */
async function start(plain: HTMLElement): Promise<void> {
  const { json, binary } = open<ReportDocument>(new Uint8Array(await window.cosmicDocument!));
  const shared = sharedOf(reportSource(json, binary, decode(json.trials, binary)));
  startTheme();
  startKeys();
  openForPrint();
  const page = document.createElement("div");
  plain.replaceWith(page);
  render(
    <Shell title={json.title} nav={<SectionLinks sections={SECTIONS} />}>
      <StudyView shared={shared} />
    </Shell>,
    page,
  );
  // The address may be a link to a section, "#trust", or the state of a view.
  if (SECTIONS.some((each) => `#${each.id}` === location.hash)) jump(location.hash.slice(1));
  afterPaint(async () => {
    performance.mark("cosmic-ready");
    const measured = { ready_ms: performance.now(), drawn_ms: 0, measureBrush: (moves?: number) => measureBrush(shared, moves) };
    window.cosmic = measured;
    document.documentElement.dataset.ready = "";
    await drawLate();
    measured.drawn_ms = performance.now();
    document.documentElement.dataset.drawn = "";
  });
}

/** Unfolds everything while the page is printed. */
function openForPrint(): void {
  let opened: HTMLDetailsElement[] = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll<HTMLDetailsElement>("details:not([open])")];
    for (const each of opened) each.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const each of opened) each.open = false;
  });
}

/** Shows one sentence on why the report could not be opened. */
function fail(plain: HTMLElement, error: unknown): void {
  const because = error instanceof Error ? error.message : String(error);
  const notice = document.createElement("p");
  notice.className = "problem";
  notice.setAttribute("role", "alert");
  notice.textContent = `This report is damaged or incomplete (${because}): write it again with "cosmic report STUDY".`;
  plain.classList.add("page");
  plain.prepend(notice);
}

const plain = document.getElementById("cosmic")!;
start(plain).catch((error: unknown) => fail(plain, error));
