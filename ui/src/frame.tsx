// The frame of every page: header, sections, help, tooltip.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Guard } from "./base/guard";
import { addKeys, allKeys, type Key } from "./base/keys";
import { Signal, useSignal } from "./base/signal";
import { nextTheme } from "./base/theme";
import { Tips } from "./base/tip";

const helpOpen = new Signal(false);

/** Scrolls to a section and focuses it, so that Tab continues from there. */
export function jump(id: string): void {
  const section = document.getElementById(id);
  if (!section) return;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  section.scrollIntoView({ behavior: still ? "auto" : "smooth", block: "start" });
  document.getElementById(`${id}-heading`)?.focus({ preventScroll: true });
}

interface ShellProps {
  title: string;
  /** Links of the page; a study has its sections there. */
  nav: ComponentChildren;
  children: ComponentChildren;
}

/** The header, the views, the help and the tooltip. */
export function Shell({ title, nav, children }: ShellProps) {
  useEffect(
    () =>
      addKeys("Page", [
        { keys: ["?"], help: "this help", run: () => (helpOpen.value = !helpOpen.value) },
        { keys: ["d"], help: "light or dark", run: nextTheme },
      ]),
    [],
  );
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")!.focus())}>
        skip to the content
      </a>
      <header class="top">
        <div class="top-row">
          <h1 title={title}>{title}</h1>
          {nav}
          <div class="top-tools">
            <button type="button" onClick={nextTheme} aria-label="light or dark" title="light or dark (d)">◐</button>
            <button type="button" onClick={() => (helpOpen.value = true)} aria-label="keyboard help" title="keyboard help (?)">?</button>
          </div>
        </div>
      </header>
      <main id="main" class="page" tabIndex={-1}>
        {children}
      </main>
      <Help />
      <Tips />
    </>
  );
}

export interface SectionLink {
  id: string;
  title: string;
}

/** Returns the section that is being read: the last one that begins above the middle of the window. */
function sectionSeen(sections: readonly SectionLink[]): string {
  const { innerHeight, scrollY } = window;
  if (innerHeight + scrollY >= document.documentElement.scrollHeight - 2) return sections.at(-1)?.id ?? "";
  const above = sections.filter(({ id }) => (document.getElementById(id)?.getBoundingClientRect().top ?? innerHeight) < innerHeight / 2);
  return above.at(-1)?.id ?? sections[0]?.id ?? "";
}

/** Links to the sections of a page; the one that is on screen is marked. */
export function SectionLinks({ sections }: { sections: readonly SectionLink[] }) {
  const [current, setCurrent] = useState(sections[0]?.id);
  useEffect(() => {
    let asked = 0;
    const look = (): void => {
      asked ||= requestAnimationFrame(() => {
        asked = 0;
        setCurrent(sectionSeen(sections));
      });
    };
    window.addEventListener("scroll", look, { passive: true });
    return () => window.removeEventListener("scroll", look);
  }, []);
  return (
    <nav aria-label="sections">
      {sections.map(({ id, title }) => (
        <a
          key={id}
          href={`#${id}`}
          aria-current={current === id ? "true" : undefined}
          onClick={(event) => {
            event.preventDefault(); // the address holds the state of the views
            jump(id);
          }}
        >
          {title}
        </a>
      ))}
    </nav>
  );
}

/** Adds the keys 1, 2, … that go to the sections. */
export function useSectionKeys(sections: readonly SectionLink[]): void {
  useEffect(() => {
    const keys = sections.map(({ id, title }, place) => ({
      keys: [String(place + 1)],
      help: `to ${title.toLowerCase()}`,
      run: () => {
        helpOpen.value = false;
        jump(id);
      },
    }));
    return addKeys("Sections", keys);
  }, []);
}

interface SectionProps {
  id: string;
  heading: string;
  lead?: string;
  /** Whether it is below the first screens, and may be drawn after them. */
  late?: boolean;
  children: ComponentChildren;
}

export function Section({ id, heading, lead, late, children }: SectionProps) {
  return (
    <section class={late ? "section late" : "section"} id={id} aria-labelledby={`${id}-heading`}>
      <h2 id={`${id}-heading`} tabIndex={-1}>{heading}</h2>
      {lead && <p class="lead">{lead}</p>}
      <Guard name={heading}>{children}</Guard>
    </section>
  );
}

function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = useSignal(helpOpen);
  useEffect(() => {
    if (open && !dialog.current!.open) dialog.current!.showModal();
    if (!open) dialog.current!.close();
  }, [open]);
  return (
    <dialog
      ref={dialog}
      class="help"
      aria-labelledby="help-title"
      onClose={() => (helpOpen.value = false)}
      // The page behind the dialog gets no keys.
      onKeyDown={(event) => event.key !== "?" && event.stopPropagation()}
    >
      <header>
        <h2 id="help-title">Keys</h2>
        <button type="button" onClick={() => (helpOpen.value = false)}>close</button>
      </header>
      <div class="help-groups">{open && keysByRank().map(([group, keys]) => <KeyGroup key={group} group={group} keys={keys} />)}</div>
    </dialog>
  );
}

/** Returns all keys, those of the page itself first. */
function keysByRank(): [string, Key[]][] {
  const first = (group: string): number => Number(group === "Page" || group === "Sections");
  return allKeys().sort(([one], [other]) => first(other) - first(one));
}

function KeyGroup({ group, keys }: { group: string; keys: Key[] }) {
  return (
    <section>
      <h3>{group}</h3>
      <dl>
        {keys.map((each) => (
          <div key={each.keys.join()}>
            <dt>
              {keyNames(each.keys).map((name) => (
                <kbd key={name}>{name}</kbd>
              ))}
            </dt>
            <dd>{each.help}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

const KEY_NAMES: Record<string, string> = { ArrowRight: "→", ArrowLeft: "←", ArrowDown: "↓", ArrowUp: "↑", Escape: "Esc" };

/** Returns keys as they are printed on keyboards; a letter that works in both cases is listed once. */
export function keyNames(keys: string[]): string[] {
  return [...new Set(keys.map((key) => KEY_NAMES[key] ?? (keys.includes(key.toLowerCase()) ? key.toLowerCase() : key)))];
}
