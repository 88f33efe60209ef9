// A page whose file holds everything that it shows.

import { type ComponentChildren, render } from "preact";
import { startKeys } from "./base/keys";
import { afterPaint } from "./base/late";
import { startTheme } from "./base/theme";
import { type Container, open } from "./container";
import { jump, type SectionLink, SectionLinks, Shell } from "./frame";

interface Page<T> {
  /** What the page is, and what writes it. */
  what: string;
  command: string;
  sections: readonly SectionLink[];
  /** Returns what is shown of the file's container, and what is to be done once it is on the screen. */
  view: (read: Container<T>) => [ComponentChildren, () => void];
}

/** Shows a page in place of what its file shows without scripts, or one sentence there on why it could not be opened. */
export function showPage<T extends { title: string }>({ what, command, sections, view }: Page<T>): void {
  const plain = document.getElementById("cosmic")!;
  const start = async (): Promise<void> => {
    const read = open<T>(new Uint8Array(await window.cosmicDocument!));
    const [content, then] = view(read);
    startTheme();
    startKeys();
    const page = document.createElement("div");
    plain.replaceWith(page);
    render(<Shell title={read.json.title} nav={<SectionLinks sections={sections} />}>{content}</Shell>, page);
    // The address may be a link to a section, "#trust", or the state of a view.
    if (sections.some((each) => `#${each.id}` === location.hash)) jump(location.hash.slice(1));
    afterPaint(then);
  };
  start().catch((error: unknown) => {
    const because = error instanceof Error ? error.message : String(error);
    const notice = document.createElement("p");
    notice.className = "problem";
    notice.setAttribute("role", "alert");
    notice.textContent = `This ${what} is damaged or incomplete (${because}): write it again with "${command}".`;
    plain.classList.add("page");
    plain.prepend(notice);
  });
}
