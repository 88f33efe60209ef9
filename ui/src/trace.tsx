// The page of traces: its file holds everything that it shows.

import { render } from "preact";
import { startKeys } from "./base/keys";
import { afterPaint } from "./base/late";
import { startTheme } from "./base/theme";
import { open } from "./container";
import { jump, SectionLinks, Shell } from "./frame";
import type { TraceDocument } from "./trace/document";
import { SECTIONS, TracePage } from "./trace/page";

/** Shows the traces in place of `plain`, which the file shows without scripts. */
async function start(plain: HTMLElement): Promise<void> {
  const { json, binary } = open<TraceDocument>(new Uint8Array(await window.cosmicDocument!));
  startTheme();
  startKeys();
  const page = document.createElement("div");
  plain.replaceWith(page);
  render(
    <Shell title={json.title} nav={<SectionLinks sections={SECTIONS} />}>
      <TracePage document={json} binary={binary} />
    </Shell>,
    page,
  );
  if (SECTIONS.some((each) => `#${each.id}` === location.hash)) jump(location.hash.slice(1));
  afterPaint(() => {
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
    document.documentElement.dataset.drawn = "";
  });
}

/** Shows one sentence on why the page could not be opened. */
function fail(plain: HTMLElement, error: unknown): void {
  const because = error instanceof Error ? error.message : String(error);
  const notice = document.createElement("p");
  notice.className = "problem";
  notice.setAttribute("role", "alert");
  notice.textContent = `This page is damaged or incomplete (${because}): write it again with "cosmic trace show FILE --html PAGE".`;
  plain.classList.add("page");
  plain.prepend(notice);
}

const plain = document.getElementById("cosmic")!;
start(plain).catch((error: unknown) => fail(plain, error));
