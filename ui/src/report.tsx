// The page of a report.

import { drawLate } from "./base/late";
import type { ReportDocument } from "./document";
import { measureBrush } from "./explore/explore";
import { showPage } from "./page";
import { SECTIONS, sharedOf, StudyView } from "./shell";
import { reportSource, type Shared } from "./state";
import { decode } from "./trials";

declare global {
  interface Window {
    /** For measuring: milliseconds until the first screens can be used, until all is drawn, and for moves of a brush. */
    cosmic?: { ready_ms: number; drawn_ms: number; measureBrush: (moves?: number) => number[] };
  }
}

/** Notes when the page can be used, and draws the rest. */
async function finish(shared: Shared): Promise<void> {
  performance.mark("cosmic-ready");
  const measured = { ready_ms: performance.now(), drawn_ms: 0, measureBrush: (moves?: number) => measureBrush(shared, moves) };
  window.cosmic = measured;
  document.documentElement.dataset.ready = "";
  await drawLate();
  measured.drawn_ms = performance.now();
  document.documentElement.dataset.drawn = "";
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

showPage<ReportDocument>({
  what: "report",
  command: "cosmic report STUDY",
  sections: SECTIONS,
  view: ({ json, binary }) => {
    const shared = sharedOf(reportSource(json, binary, decode(json.trials, binary)));
    openForPrint();
    return [<StudyView shared={shared} />, () => finish(shared)];
  },
});
