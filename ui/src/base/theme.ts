// Light or dark, and the colours that canvases draw with. CSS variables hold them all: see style.css.

import type { Class } from "../aliases";
import { Signal } from "./signal";

export type Theme = "auto" | "light" | "dark";

export interface Palette {
  ink: string;
  faint: string;
  line: string;
  paper: string;
  raised: string;
  accent: string;
  focus: string;
  failure: string;
  classes: Record<Class, string>;
  /** Colours of series and of parallel axes, in order; more than these are grey. */
  series: string[];
}

const CLASSES: Class[] = ["compute", "exposed", "hidden", "idle", "memory", "optimizer", "other"];
const KEPT = "cosmic-theme";

/** Counts changes of the colours; canvases listen. */
export const repainted = new Signal(0);
export const theme = new Signal<Theme>("auto");

let known: Palette | null = null;

export function palette(): Palette {
  if (known) return known;
  // The variables hold a colour for light and one for dark; only an element that uses one knows which it is.
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const style = getComputedStyle(probe);
  const read = (name: string): string => {
    probe.style.color = `var(--${name})`;
    return style.color;
  };
  const classes = Object.fromEntries(CLASSES.map((name) => [name, read(name)])) as Record<Class, string>;
  const { compute, exposed, hidden, memory, optimizer, idle } = classes;
  const found = {
    ink: read("ink"),
    faint: read("faint"),
    line: read("line"),
    paper: read("paper"),
    raised: read("raised"),
    accent: read("accent"),
    focus: read("focus"),
    failure: read("failure"),
    classes,
    series: [compute, exposed, hidden, memory, optimizer, idle],
  };
  probe.remove();
  known = found;
  return found;
}

function repaint(): void {
  known = null;
  repainted.value += 1;
}

export function setTheme(next: Theme): void {
  theme.value = next;
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(KEPT, next);
  } catch {
    // A page in a sandbox has no storage; the choice then lasts as long as the page.
  }
  repaint();
}

/** Applies the reader's last choice, or follows the system's. */
export function startTheme(): void {
  let kept = "";
  try {
    kept = localStorage.getItem(KEPT) ?? "";
  } catch {
    // See above.
  }
  if (kept === "light" || kept === "dark") setTheme(kept);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  // Print is light: canvases are drawn for print, and again after it.
  window.addEventListener("beforeprint", () => {
    document.documentElement.dataset.print = "";
    repaint();
  });
  window.addEventListener("afterprint", () => {
    delete document.documentElement.dataset.print;
    repaint();
  });
}

export function nextTheme(): void {
  const dark = theme.value === "dark" || (theme.value === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  setTheme(dark ? "light" : "dark");
}
