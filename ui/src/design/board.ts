// The state of the timeline, and how pointers, wheels and keys change it.

import { pointerAt } from "../base/canvas";
import type { Key } from "../base/keys";
import { Signal } from "../base/signal";
import { hideTip } from "../base/tip";
import type { Pick, Scene } from "./paint";
import { timeAt } from "./paint";
import { type Lane, type Row, rowAt, rowOf } from "./rows";
import { firstAt, spanAt } from "./spans";
import { around, moved, type View, within, zoomed } from "./view";

interface BoardBase {
  /** Changes with every board, so that its components are created again. */
  id: number;
  lanes: Lane[];
  /** The end of the longest step. */
  until: number;
  /** What is shown first. */
  opening: View;
}

export interface Board extends BoardBase {
  rows: Row[];
  view: Signal<View>;
  scroll: Signal<number>;
  /** Where the pointer is, in pixels from the left. */
  cursor: Signal<number | null>;
  hovered: Signal<Pick | null>;
  selected: Signal<Pick | null>;
  area: Signal<View | null>;
  /** The top layer of the canvas, and the box that scrolls it. */
  canvas: HTMLCanvasElement | null;
  box: HTMLElement | null;
  scene: () => Scene;
  toggle: (lane: number, process: number) => void;
}

/** Returns a board that is not laid out yet. */
export function boardOf({ id, lanes, until, opening }: BoardBase, view = opening): Board {
  return {
    id, lanes, until, opening,
    rows: [],
    view: new Signal<View>(view),
    scroll: new Signal(0),
    cursor: new Signal<number | null>(null),
    hovered: new Signal<Pick | null>(null),
    selected: new Signal<Pick | null>(null),
    area: new Signal<View | null>(null),
    canvas: null,
    box: null,
    scene: () => { throw new Error("drawn before it was laid out"); },
    toggle: () => undefined,
  };
}

/** The shortest time that can be shown. */
const LEAST = 20e-9;

export function leastOf(until: number): number {
  return Math.min(until / 10, Math.max(LEAST, until * 1e-7));
}

export function see(board: Board, view: View): void {
  const next = within(view, board.until, leastOf(board.until));
  const { from, to } = board.view.value;
  if (next.from !== from || next.to !== to) board.view.value = next;
}

export function zoom(board: Board, factor: number, at?: number): void {
  const { view, until } = board;
  const middle = at ?? (view.value.from + view.value.to) / 2;
  see(board, zoomed(view.value, middle, factor, until, leastOf(until)));
}

export function pan(board: Board, share: number): void {
  const { from, to } = board.view.value;
  see(board, moved(board.view.value, share * (to - from), board.until, leastOf(board.until)));
}

export function fitAll(board: Board): void {
  see(board, { from: 0, to: board.until });
}

/** Shows the selected area or span in full; the whole step where there is none, or where it is shown already. */
export function fit(board: Board): void {
  const { area, selected, view, until } = board;
  let part: View | null = area.value;
  if (!part && selected.value) {
    const { lane, span } = selected.value;
    const { start, end } = board.lanes[lane].spans;
    part = { from: start[span], to: Math.max(end[span], start[span] + LEAST) };
  }
  const wanted = part && around(part.from, part.to, area.value ? 0 : 0.5, until, leastOf(until));
  const { from, to } = view.value;
  const there = wanted && Math.abs(wanted.from - from) + Math.abs(wanted.to - to) < (to - from) * 1e-6;
  if (wanted && !there) see(board, wanted);
  else fitAll(board);
}

/** Selects a span, and scrolls it into view. */
export function select(board: Board, pick: Pick | null): void {
  board.selected.value = pick;
  if (!pick) return;
  const { spans } = board.lanes[pick.lane];
  const { from, to } = board.view.value;
  const [start, end] = [spans.start[pick.span], spans.end[pick.span]];
  if (end < from || start > to) {
    const middle = (start + end) / 2;
    see(board, { from: middle - (to - from) / 2, to: middle + (to - from) / 2 });
  }
  const row = rowOf(board.rows, pick.lane, spans.track[pick.span]);
  if (!row) {
    board.toggle(pick.lane, spans.timeline.tracks[spans.track[pick.span]].process);
    return;
  }
  const { box } = board;
  if (!box) return;
  const room = box.clientHeight - board.scene().head;
  if (row.top < box.scrollTop) box.scrollTop = row.top - row.height;
  else if (row.top + row.height > box.scrollTop + room) box.scrollTop = row.top + 2 * row.height - room;
}

/** Selects a span that was found, and zooms in where it is too small. */
export function reveal(board: Board, pick: Pick): void {
  const { spans } = board.lanes[pick.lane];
  const [start, end] = [spans.start[pick.span], spans.end[pick.span]];
  const { from, to } = board.view.value;
  if (end - start < (to - from) / 200) see(board, around(start, end, 20, board.until, leastOf(board.until)));
  select(board, pick);
}

/** Selects the next span on the same track, or the one at the same time on the next visible track. */
export function step(board: Board, along: number, down: number): void {
  const now = board.selected.value;
  if (!now) {
    const row = board.rows.find((each) => each.kind === "track");
    if (!row) return;
    const { spans } = board.lanes[row.lane];
    const last = spans.first[row.place + 1];
    const span = Math.min(last - 1, firstAt(spans.reach, board.view.value.from, spans.first[row.place], last, true));
    select(board, { lane: row.lane, span });
    return;
  }
  const { spans } = board.lanes[now.lane];
  const track = spans.track[now.span];
  if (along) {
    const span = now.span + along;
    if (span >= spans.first[track] && span < spans.first[track + 1]) select(board, { ...now, span });
    return;
  }
  const tracks = board.rows.filter((row) => row.kind === "track");
  const place = tracks.indexOf(rowOf(board.rows, now.lane, track) ?? tracks[0]);
  const row = tracks[place + down];
  if (!row) return;
  const middle = (spans.start[now.span] + spans.end[now.span]) / 2;
  select(board, { lane: row.lane, span: spanAt(board.lanes[row.lane].spans, row.place, middle, Infinity) });
}

/** Returns the row and the span under a pointer. */
function under(board: Board, at: { x: number; y: number }): { row: Row | null; pick: Pick | null } {
  const scene = board.scene();
  if (at.y < scene.head) return { row: null, pick: null };
  const row = rowAt(board.rows, at.y - scene.head + scene.scroll);
  if (!row || row.kind !== "track" || at.x < scene.gutter) return { row, pick: null };
  const width = board.canvas!.clientWidth;
  const near = (4 * (scene.view.to - scene.view.from)) / width;
  const time = timeAt(scene, at.x, width);
  const { spans } = board.lanes[row.lane];
  const tracks = [row.place, ...row.extra];
  const exact = tracks.map((track) => spanAt(spans, track, time, 0));
  const drawn = exact.find((span) => span >= 0 && !(row.folded && spans.paints[spans.paint[span]].class === "hidden"));
  const span = drawn ?? spanAt(spans, row.place, time, near);
  return { row, pick: span < 0 ? null : { lane: row.lane, span } };
}

interface Drag {
  x: number;
  y: number;
  view: View;
  area: boolean;
  moved: boolean;
}

/** Returns the handlers of pointers: drag pans, shift-drag measures, two fingers zoom, a click selects or folds. */
export function pointers(board: Board, said: (pick: Pick, event: PointerEvent) => void) {
  const fingers = new Map<number, { x: number; y: number }>();
  let drag: Drag | null = null;
  let apart = 0;
  const place = (event: PointerEvent): { x: number; y: number } => pointerAt(event, board.canvas!);
  const begin = (at: { x: number; y: number }, area: boolean): void => {
    drag = { ...at, view: board.view.value, area, moved: false };
  };
  const time = (x: number): number => timeAt(board.scene(), x, board.canvas!.clientWidth);

  const pinch = (): void => {
    const [one, other] = [...fingers.values()];
    const next = Math.max(20, Math.abs(one.x - other.x));
    if (apart) zoom(board, apart / next, time((one.x + other.x) / 2));
    apart = next;
  };

  const dragTo = (at: { x: number; y: number }): void => {
    if (!drag || (!drag.moved && Math.abs(at.x - drag.x) < 4)) return;
    drag.moved = true;
    const { view, gutter } = board.scene();
    const per = (view.to - view.from) / (board.canvas!.clientWidth - gutter);
    if (drag.area) {
      const ends = [time(Math.max(gutter, drag.x)), time(Math.max(gutter, at.x))].sort((a, b) => a - b);
      board.area.value = { from: Math.max(0, ends[0]), to: Math.min(board.until, ends[1]) };
    } else {
      const by = (drag.x - at.x) * per;
      see(board, { from: drag.view.from + by, to: drag.view.to + by });
    }
  };

  return {
    onPointerDown(event: PointerEvent) {
      if (event.button !== 0) return;
      const at = place(event);
      fingers.set(event.pointerId, at);
      board.canvas!.setPointerCapture(event.pointerId);
      apart = 0;
      if (fingers.size === 1) begin(at, event.shiftKey);
      else drag = null;
    },
    onPointerMove(event: PointerEvent) {
      const at = place(event);
      board.cursor.value = at.x;
      if (fingers.has(event.pointerId)) fingers.set(event.pointerId, at);
      if (fingers.size === 2) return pinch();
      if (drag) return dragTo(at);
      const { pick, row } = under(board, at);
      const before = board.hovered.value;
      if (pick?.span !== before?.span || pick?.lane !== before?.lane) board.hovered.value = pick;
      board.canvas!.style.cursor = pick || (row && at.x < board.scene().gutter) ? "pointer" : "";
      if (pick) said(pick, event);
      else hideTip();
    },
    onPointerUp(event: PointerEvent) {
      fingers.delete(event.pointerId);
      const was = drag;
      drag = null;
      if (!was || was.moved) return;
      const { row, pick } = under(board, place(event));
      board.area.value = null;
      if (pick) board.selected.value = pick;
      else if (row && row.process >= 0 && (row.kind === "process" || place(event).x < board.scene().gutter))
        board.toggle(row.lane, row.process);
      else board.selected.value = null;
    },
    onPointerCancel(event: PointerEvent) {
      fingers.delete(event.pointerId);
      drag = null;
    },
    onPointerLeave() {
      board.cursor.value = null;
      board.hovered.value = null;
      hideTip();
    },
    onDblClick: () => fitAll(board),
  };
}

/** Zooms at the pointer with Ctrl, pans sideways; otherwise the page scrolls. */
export function wheel(board: Board, event: WheelEvent): void {
  const scene = board.scene();
  const width = board.canvas!.clientWidth;
  const unit = event.deltaMode === 1 ? 16 : 1;
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    zoom(board, Math.exp(Math.max(-60, Math.min(60, event.deltaY * unit)) * 0.008), timeAt(scene, pointerAt(event, board.canvas!).x, width));
    return;
  }
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (Math.abs(sideways) <= Math.abs(event.shiftKey ? 0 : event.deltaY)) return;
  event.preventDefault();
  pan(board, (sideways * unit) / (width - scene.gutter));
}

/** Returns the keys of the timeline: letters where it has the focus or the pointer, arrows where it has the focus. */
export function boardKeys(board: Board): Key[] {
  const focused = (): boolean => !!board.canvas && document.activeElement === board.canvas;
  const near = (): boolean => focused() || (board.cursor.value !== null && !!board.canvas?.isConnected);
  const cursorTime = (): number | undefined => {
    const x = board.cursor.value;
    return x === null ? undefined : timeAt(board.scene(), x, board.canvas!.clientWidth);
  };
  return [
    { keys: ["w", "W"], help: "zoom in at the pointer", when: near, run: () => zoom(board, 1 / 1.4, cursorTime()) },
    { keys: ["s", "S"], help: "zoom out", when: near, run: () => zoom(board, 1.4, cursorTime()) },
    { keys: ["a", "A"], help: "earlier", when: near, run: () => pan(board, -0.2) },
    { keys: ["d", "D"], help: "later", when: near, run: () => pan(board, 0.2) },
    { keys: ["f", "F"], help: "fit the selection, or all", when: near, run: () => fit(board) },
    { keys: ["ArrowRight"], help: "next span", when: focused, run: () => step(board, 1, 0) },
    { keys: ["ArrowLeft"], help: "previous span", when: focused, run: () => step(board, -1, 0) },
    { keys: ["ArrowDown"], help: "the track below", when: focused, run: () => step(board, 0, 1) },
    { keys: ["ArrowUp"], help: "the track above", when: focused, run: () => step(board, 0, -1) },
    {
      keys: ["Enter"],
      help: "fold or unfold the process of the selected span",
      when: focused,
      run: () => {
        const now = board.selected.value;
        if (!now) return;
        const { timeline, track } = board.lanes[now.lane].spans;
        board.toggle(now.lane, timeline.tracks[track[now.span]].process);
      },
    },
    {
      keys: ["Escape"],
      help: "clear the selection",
      when: () => focused() && (board.selected.value !== null || board.area.value !== null),
      run: () => {
        board.selected.value = null;
        board.area.value = null;
      },
    },
  ];
}

