// The timeline of a step: spans by rank, the critical path, exposed and overlapped communication.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Canvas, type Told } from "../base/canvas";
import { Card } from "../base/card";
import { download } from "../base/copy";
import { show } from "../base/format";
import { onHash, readHash, writeHash } from "../base/hash";
import { addKeys } from "../base/keys";
import { Signal } from "../base/signal";
import { showTip } from "../base/tip";
import { type Board, boardKeys, fitAll, leastOf, pointers, reveal, see, wheel, zoom } from "./board";
import { CLASS_WORDS } from "./looks";
import { Minimap } from "./minimap";
import { openingView, sameView } from "./opening";
import { drawScene, type Pick, type Scene } from "./paint";
import { traceText } from "./perfetto";
import { drawPointed } from "./point";
import { firstFolds, foldKey, type Lane, layRows, processText, totalHeight } from "./rows";
import { found } from "./spans";
import { Legend, Picked, Split, spanTwin } from "./summary";
import { type View, viewOf, viewText, within } from "./view";

const HEAD = 24;
const MOST_HIGH = 560;
const NARROW = 560;

export interface TimelineProps {
  /** One timeline, or two to compare, on one scale of time. */
  lanes: Lane[];
  /** The control that chooses the other. */
  chooser: ComponentChildren;
}

/** Returns the state of a timeline; a design that stays keeps its view. */
function newBoard(lanes: Lane[], before: Board | null): Board {
  const until = Math.max(...lanes.map(({ spans }) => spans.timeline.duration_s));
  const opening = openingView(lanes, until, window.innerWidth < NARROW ? 0.4 : 1);
  const untouched = before !== null && (sameView(before.view.value, before.opening) || before.view.value.to - before.view.value.from >= before.until);
  const same = before?.lanes[0].spans === lanes[0].spans && !untouched;
  const kept = before ? (same ? within(before.view.value, until, leastOf(until)) : null) : viewOf(readHash("time"), until, leastOf(until));
  return {
    id: (before?.id ?? 0) + 1,
    lanes, rows: [], until, opening,
    view: new Signal<View>(kept ?? opening),
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

/** Returns a value read from signals once they have not changed for a moment: for numbers and the address. */
function useSettled<T>(signals: Told[], read: () => T): T {
  const [value, setValue] = useState(read);
  useEffect(() => {
    let timer = 0;
    setValue(read);
    const later = (): void => {
      clearTimeout(timer);
      timer = window.setTimeout(() => setValue(read), 120);
    };
    const forget = signals.map((signal) => signal.listen(later));
    return () => {
      clearTimeout(timer);
      for (const each of forget) each();
    };
  }, signals);
  return value;
}

export function TimelineCard({ lanes, chooser }: TimelineProps) {
  const before = useRef<Board | null>(null);
  const board = useMemo(() => (before.current = newBoard(lanes, before.current)), lanes.map((lane) => lane.spans));
  const [folds, setFolds] = useState(() => firstFolds(lanes));
  const [criticalOnly, setCriticalOnly] = useState(false);
  const [text, setText] = useState("");
  const [selected, setSelected] = useState<Pick | null>(null);
  useEffect(() => setFolds(firstFolds(lanes)), [board]);

  board.rows = useMemo(() => layRows(lanes, folds), [board, folds]);
  board.toggle = (lane, process) => {
    const next = new Set(folds);
    const key = foldKey(lane, process);
    if (!next.delete(key)) next.add(key);
    setFolds(next);
  };
  const wanted = useMemo(() => lanes.map(({ spans }) => wantedNames(text, spans.timeline.names)), [board, text]);
  board.scene = (): Scene => ({
    lanes, rows: board.rows, wanted, criticalOnly,
    view: board.view.value,
    scroll: board.scroll.value,
    gutter: (board.canvas?.clientWidth ?? 900) < NARROW ? 98 : 148,
    head: HEAD,
  });

  const state = useSettled([board.view, board.area], () => ({ view: board.view.value, area: board.area.value }));
  useEffect(() => writeHash("time", viewText(state.view, board.opening)), [state]);
  useEffect(() => {
    setSelected(board.selected.value);
    return board.selected.listen(setSelected);
  }, [board]);
  useEffect(() => addKeys("Timeline", boardKeys(board)), [board]);
  useEffect(() => {
    const { until } = board;
    return onHash(() => see(board, viewOf(readHash("time"), until, leastOf(until)) ?? board.opening));
  }, [board]);

  const { duration_s: duration, reading } = lanes[0].spans.timeline;
  return (
    <Card
      id="timeline"
      title="One step over time"
      reading={`${reading}${openedOn(board)}`}
      wide
      twin={() => spanTwin(board, state.area ?? state.view, criticalOnly)}
      tools={<Tools board={board} text={text} setText={setText} criticalOnly={criticalOnly} setCriticalOnly={setCriticalOnly} />}
    >
      <div class="timeline-top">
        {chooser}
        <Legend lanes={lanes} />
      </div>
      <Split board={board} view={state.view} area={state.area} />
      <Minimap board={board} key={`map ${board.id}`} />
      <Rows board={board} key={board.id} label={`Timeline of a step of ${show(duration, "s")}: ${board.rows.length} rows. The table holds its spans.`} />
      <Picked board={board} selected={selected} />
    </Card>
  );
}

/** Returns which part of the step is shown first, where that is not all of it. */
function openedOn({ opening, until }: Board): string {
  if (opening.to - opening.from >= until) return "";
  return ` It opens on ${show(opening.to - opening.from, "s")} where most happens; "fit" shows the whole step.`;
}

function wantedNames(text: string, names: string[]): Uint8Array | null {
  const part = text.trim().toLowerCase();
  return part ? Uint8Array.from(names, (name) => (name.toLowerCase().includes(part) ? 1 : 0)) : null;
}

/** The canvas, which stays in sight while a box as high as all rows scrolls below it. */
function Rows({ board, label }: { board: Board; label: string }) {
  const total = totalHeight(board.rows) + HEAD;
  const height = Math.min(total, MOST_HIGH);
  const on = useMemo(() => pointers(board, (pick, event) => showTip(event, spanLines(board, pick))), [board]);
  const turn = useRef<(event: WheelEvent) => void>(() => undefined);
  turn.current = (event) => wheel(board, event);
  const above = [board.cursor, board.hovered, board.selected, board.area];
  return (
    <div
      class="lanes"
      style={{ height: `${height}px` }}
      ref={(box) => { board.box = box; }}
      onScroll={(event) => { board.scroll.value = event.currentTarget.scrollTop; }}
    >
      <div style={{ height: `${total}px` }}>
        <div class="stay">
          <Canvas
            height={height}
            label={label}
            draw={(frame) => drawScene(board.scene(), frame)}
            overlay={(frame) => drawPointed(board.scene(), pointedOf(board), frame)}
            again={[board.view, board.scroll]}
            againAbove={above}
            on={{ ...on, tabIndex: 0, role: "application" }}
            canvas={(element) => {
              board.canvas = element;
              // Wheel handlers are passive by default, and those cannot keep the page from zooming.
              element?.addEventListener("wheel", (event) => turn.current(event), { passive: false });
            }}
          />
        </div>
      </div>
    </div>
  );
}

function pointedOf({ cursor, hovered, selected, area }: Board) {
  return { x: cursor.value, hovered: hovered.value, selected: selected.value, area: area.value };
}

function spanLines(board: Board, { lane, span }: Pick): string[] {
  const { spans } = board.lanes[lane];
  const { timeline, start, end } = spans;
  const track = timeline.tracks[spans.track[span]];
  return [
    timeline.names[spans.name[span]],
    `${show(end[span] - start[span], "s")}, from ${show(start[span], "s")}`,
    `${processText(spans, track.process)} · ${track.name}`,
    CLASS_WORDS[spans.paints[spans.paint[span]].class] + (spans.critical[span] ? " · on the critical path" : ""),
  ];
}

interface ToolsProps {
  board: Board;
  text: string;
  setText: (text: string) => void;
  criticalOnly: boolean;
  setCriticalOnly: (only: boolean) => void;
}

function Tools({ board, text, setText, criticalOnly, setCriticalOnly }: ToolsProps) {
  const hits = useMemo(
    () => board.lanes.flatMap(({ spans }, lane) => Array.from(found(spans, text), (span): Pick => ({ lane, span }))),
    [board, text],
  );
  const [place, setPlace] = useState(-1);
  const go = (by: number): void => {
    if (!hits.length) return;
    const next = place < 0 && by < 0 ? hits.length - 1 : (place + by + hits.length) % hits.length;
    setPlace(next);
    reveal(board, hits[next]);
  };
  const save = (): void => download("step.trace.json", traceText(board.lanes[0].spans), "application/json");
  return (
    <>
      <span class="find">
        <input
          type="search"
          placeholder="find spans"
          aria-label="find spans by name"
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setPlace(-1);
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter") go(event.shiftKey ? -1 : 1);
          }}
        />
        {text && (
          <>
            <output>{hits.length ? `${place < hits.length ? place + 1 || "–" : "–"} of ${hits.length.toLocaleString("en-US")}` : "none"}</output>
            <button type="button" aria-label="previous span found" disabled={!hits.length} onClick={() => go(-1)}>‹</button>
            <button type="button" aria-label="next span found" disabled={!hits.length} onClick={() => go(1)}>›</button>
          </>
        )}
      </span>
      <button type="button" aria-pressed={criticalOnly} onClick={() => setCriticalOnly(!criticalOnly)}>critical path only</button>
      <span class="joined">
        <button type="button" aria-label="zoom in" onClick={() => zoom(board, 0.5)}>+</button>
        <button type="button" aria-label="zoom out" onClick={() => zoom(board, 2)}>−</button>
        <button type="button" onClick={() => fitAll(board)}>fit</button>
      </span>
      <button type="button" onClick={save}>save for Perfetto</button>
    </>
  );
}
