// What the timelines of a step and of a trace share: rows on a canvas, which fold, and finding what is in them.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Canvas } from "../base/canvas";
import { count } from "../base/format";
import { addKeys } from "../base/keys";
import { showTip } from "../base/tip";
import { type Board, boardKeys, fitAll, pointers, wheel, zoom } from "./board";
import { drawScene, type Pick, type Scene } from "./paint";
import { drawPointed } from "./point";
import { firstFolds, foldKey, layRows, totalHeight } from "./rows";

const HEAD = 24;
export const NARROW = 560;

/** What is looked for, and whether only the critical path is shown. */
export interface Choices {
  text: string;
  setText: (text: string) => void;
  criticalOnly: boolean;
  setCriticalOnly: (only: boolean) => void;
}

/** Lays out the rows of a board, says what it draws, and adds its keys; `wantedBy` marks, by lane, the names that are looked for. */
export function useLanes(board: Board, lanes: Board["lanes"], wantedBy: (text: string) => Scene["wanted"], inSteps = false): Choices {
  const [folds, setFolds] = useState(() => firstFolds(lanes));
  const [criticalOnly, setCriticalOnly] = useState(false);
  const [text, setText] = useState("");
  useEffect(() => setFolds(firstFolds(lanes)), [board]);
  board.rows = useMemo(() => layRows(lanes, folds), [board, folds]);
  board.toggle = (lane, process) => {
    const next = new Set(folds);
    const key = foldKey(lane, process);
    if (!next.delete(key)) next.add(key);
    setFolds(next);
  };
  const wanted = useMemo(() => wantedBy(text), [board, text]);
  board.scene = (): Scene => ({
    lanes, rows: board.rows, wanted, criticalOnly, inSteps,
    view: board.view.value,
    scroll: board.scroll.value,
    gutter: (board.canvas?.clientWidth ?? 900) < NARROW ? 98 : 148,
    head: HEAD,
  });
  useEffect(() => addKeys("Timeline", boardKeys(board)), [board]);
  return { text, setText, criticalOnly, setCriticalOnly };
}

interface RowsProps {
  board: Board;
  /** In pixels; what does not fit scrolls. */
  mostHigh: number;
  label: string;
  tip: (pick: Pick) => string[];
}

/** The canvas, which stays in sight while a box as high as all rows scrolls below it. */
export function Rows({ board, mostHigh, label, tip }: RowsProps) {
  const total = totalHeight(board.rows) + HEAD;
  const height = Math.min(total, mostHigh);
  const on = useMemo(() => pointers(board, (pick, event) => showTip(event, tip(pick))), [board]);
  const turn = useRef<(event: WheelEvent) => void>(() => undefined);
  turn.current = (event) => wheel(board, event);
  const { cursor, hovered, selected, area } = board;
  const pointed = () => ({ x: cursor.value, hovered: hovered.value, selected: selected.value, area: area.value });
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
            overlay={(frame) => drawPointed(board.scene(), pointed(), frame)}
            again={[board.view, board.scroll]}
            againAbove={[cursor, hovered, selected, area]}
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

interface ToolsProps {
  board: Board;
  choices: Choices;
  /** What one of those that are found is called, and the words in and for the field. */
  one: string;
  hint: string;
  label: string;
  /** How many are found. */
  hits: number;
  reveal: (hit: number) => void;
  hasPath?: boolean;
  children?: ComponentChildren;
}

/** The buttons above a timeline. */
export function Tools({ board, choices, one, hint, label, hits, reveal, hasPath = true, children }: ToolsProps) {
  const { text, setText, criticalOnly, setCriticalOnly } = choices;
  const [place, setPlace] = useState(-1);
  const go = (by: number): void => {
    if (!hits) return;
    const next = place < 0 && by < 0 ? hits - 1 : (place + by + hits) % hits;
    setPlace(next);
    reveal(next);
  };
  return (
    <>
      <span class="find">
        <input
          type="search"
          placeholder={hint}
          aria-label={label}
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
            <output>{hits ? `${place < hits ? place + 1 || "–" : "–"} of ${count(hits)}` : "none"}</output>
            <button type="button" aria-label={`previous ${one} found`} disabled={!hits} onClick={() => go(-1)}>‹</button>
            <button type="button" aria-label={`next ${one} found`} disabled={!hits} onClick={() => go(1)}>›</button>
          </>
        )}
      </span>
      {hasPath && <button type="button" aria-pressed={criticalOnly} onClick={() => setCriticalOnly(!criticalOnly)}>critical path only</button>}
      <span class="joined">
        <button type="button" aria-label="zoom in" onClick={() => zoom(board, 0.5)}>+</button>
        <button type="button" aria-label="zoom out" onClick={() => zoom(board, 2)}>−</button>
        <button type="button" onClick={() => fitAll(board)}>fit</button>
      </span>
      {children}
    </>
  );
}
