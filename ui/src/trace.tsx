// The page of traces.

import { showPage } from "./page";
import type { TraceDocument } from "./document";
import { SECTIONS, TracePage } from "./trace/page";

function finish(): void {
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
  document.documentElement.dataset.drawn = "";
}

showPage<TraceDocument>({
  what: "page",
  command: "cosmic trace show FILE --html PAGE",
  sections: SECTIONS,
  view: ({ json, binary }) => [<TracePage document={json} binary={binary} />, finish],
});
