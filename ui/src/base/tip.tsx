// The tooltip of marks: one box for the whole page. Screen readers have the tables.

import { Signal, useSignal } from "./signal";

interface Tip {
  x: number;
  y: number;
  lines: string[];
}

const tip = new Signal<Tip | null>(null);
const GAP = 12;

export function showTip(at: { clientX: number; clientY: number }, lines: string[]): void {
  tip.value = { x: at.clientX, y: at.clientY, lines };
}

export function hideTip(): void {
  tip.value = null;
}

/** Returns the handlers of a mark with a tooltip. */
export function says(...lines: string[]) {
  const at = (event: PointerEvent): void => showTip(event, lines);
  return { onPointerEnter: at, onPointerMove: at, onPointerLeave: hideTip };
}

/** The box itself; a page has one. */
export function Tips() {
  const now = useSignal(tip);
  if (!now) return null;
  // On the side of the pointer that has more room, so that it never leaves the window.
  const { innerWidth: wide, innerHeight: high } = window;
  const x = now.x < wide / 2 ? { left: `${now.x + GAP}px` } : { right: `${wide - now.x + GAP}px` };
  const y = now.y < high / 2 ? { top: `${now.y + GAP}px` } : { bottom: `${high - now.y + GAP}px` };
  return (
    <div class="tip" aria-hidden="true" style={{ ...x, ...y }}>
      {now.lines.map((line, place) => (
        <div key={place}>{line}</div>
      ))}
    </div>
  );
}
