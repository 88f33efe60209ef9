// The timeline of a trace: threads, streams and communication; the selected node and its dependencies as arrows.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Canvas } from "../base/canvas";
import { Card, type Twin } from "../base/card";
import { count } from "../base/format";
import { addKeys } from "../base/keys";
import { Signal } from "../base/signal";
import { showTip } from "../base/tip";
import { type Board, boardKeys, fitAll, pointers, reveal, select, wheel, zoom } from "../design/board";
import { Minimap } from "../design/minimap";
import { drawScene, type Pick, type Scene } from "../design/paint";
import { drawPointed } from "../design/point";
import { firstFolds, foldKey, type Lane, layRows, totalHeight } from "../design/rows";
import { firstAt } from "../design/spans";
import type { View } from "../design/view";
import { foundNodes, wantedNames } from "./nodes";
import { KIND_WORDS, LOOKS, traceHeat, untilOf } from "./spans";
import { nodeText, timeText, type TraceState } from "./state";

const HEAD = 24;
const MOST_HIGH = 480;
const NARROW = 560;
const MOST_ROWS = 5000;

let boards = 0;

function newBoard(state: TraceState, lanes: Lane[]): Board {
  const until = untilOf(state.nodes.view);
  const whole = { from: 0, to: until };
  return {
    id: ++boards,
    lanes, until,
    rows: [],
    opening: whole,
    view: new Signal<View>(whole),
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

/** Keeps the node that all views show and the span that the timeline shows the same. */
function useShared(state: TraceState, board: Board): void {
  useEffect(() => {
    const pickOf = (node: number | null): Pick | null => (node === null ? null : { lane: 0, span: state.spanOf[node] });
    board.selected.value = pickOf(state.selected.value);
    const forget = [
      board.selected.listen((pick) => { state.selected.value = pick && state.nodeOf[pick.span]; }),
      state.selected.listen((node) => {
        const span = node === null ? -1 : state.spanOf[node];
        if ((board.selected.value?.span ?? -1) !== span) select(board, pickOf(node));
      }),
    ];
    return () => { for (const each of forget) each(); };
  }, [board]);
}

export function TraceTimeline({ state }: { state: TraceState }) {
  const { nodes, spans } = state;
  const { view } = nodes;
  const lanes = useMemo(() => [{ label: "", spans }], [state]);
  const board = useMemo(() => newBoard(state, lanes), [state]);
  const [folds, setFolds] = useState(() => firstFolds(lanes));
  const [criticalOnly, setCriticalOnly] = useState(false);
  const [text, setText] = useState("");
  useEffect(() => setFolds(firstFolds(lanes)), [board]);
  useShared(state, board);

  board.rows = useMemo(() => layRows(lanes, folds), [board, folds]);
  board.toggle = (lane, process) => {
    const next = new Set(folds);
    const key = foldKey(lane, process);
    if (!next.delete(key)) next.add(key);
    setFolds(next);
  };
  const wanted = useMemo(() => [wantedNames(nodes, text)], [board, text]);
  board.scene = (): Scene => ({
    lanes, rows: board.rows, wanted, criticalOnly,
    view: board.view.value,
    scroll: board.scroll.value,
    gutter: (board.canvas?.clientWidth ?? 900) < NARROW ? 98 : 148,
    head: HEAD,
    inSteps: view.unit === "steps",
  });
  useEffect(() => addKeys("Timeline", boardKeys(board)), [board]);

  return (
    <Card
      id="spans"
      title={view.recorded ? "What ran when" : "What could run when"}
      reading={view.reading}
      wide
      twin={() => nodeTwin(state, board.area.value ?? board.view.value, criticalOnly)}
      tools={<Tools state={state} board={board} text={text} setText={setText} criticalOnly={criticalOnly} setCriticalOnly={setCriticalOnly} />}
    >
      <Legend state={state} />
      {nodes.count > 0 ? (
        <>
          <Minimap board={board} key={`map ${board.id}`} name="whole trace" heatOf={traceHeat} />
          <Rows state={state} board={board} key={board.id} />
          <p class="faint hint">
            Click a node for its dependencies. W S zoom, A D pan, F fits; drag pans, Shift-drag measures, Ctrl-wheel zooms; arrows go on from
            node to node.
          </p>
        </>
      ) : <p class="empty">There is nothing to draw.</p>}
    </Card>
  );
}

function Legend({ state }: { state: TraceState }) {
  const { kinds, spans, nodes } = state;
  const used = (place: number): boolean => spans.sums[place][spans.count] > 0;
  const compute = kinds.indexOf("compute");
  return (
    <ul class="span-legend">
      {kinds.map((kind, place) => (used(2 * place) || used(2 * place + 1)) && (
        <li key={kind}>
          <span class={`swatch fill-${LOOKS[kind]}`} aria-hidden="true" />
          {KIND_WORDS[kind]}
        </li>
      ))}
      {used(2 * compute + 1) && (
        <li>
          <span class="swatch fill-compute back" aria-hidden="true" />
          backward
        </li>
      )}
      {nodes.critical.includes(1) && (
        <li>
          <span class="swatch edge" aria-hidden="true" />
          critical path
        </li>
      )}
    </ul>
  );
}

function Rows({ state, board }: { state: TraceState; board: Board }) {
  const total = totalHeight(board.rows) + HEAD;
  const height = Math.min(total, MOST_HIGH);
  const on = useMemo(() => pointers(board, (pick, event) => showTip(event, tipOf(state, state.nodeOf[pick.span]))), [board]);
  const turn = useRef<(event: WheelEvent) => void>(() => undefined);
  turn.current = (event) => wheel(board, event);
  const pointed = () => ({ x: board.cursor.value, hovered: board.hovered.value, selected: board.selected.value, area: board.area.value });
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
            label={`Timeline of ${count(state.nodes.count)} nodes on ${board.rows.length} rows. The table holds them.`}
            draw={(frame) => drawScene(board.scene(), frame)}
            overlay={(frame) => drawPointed(board.scene(), pointed(), frame)}
            again={[board.view, board.scroll]}
            againAbove={[board.cursor, board.hovered, board.selected, board.area]}
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

const MOST_LETTERS = 160;

/** Returns what a tooltip says of a node. */
export function tipOf(state: TraceState, node: number): string[] {
  const { nodes, kinds } = state;
  const { view } = nodes;
  const name = nodeText(state, node);
  return [
    name.length > MOST_LETTERS ? `${name.slice(0, MOST_LETTERS)}…` : name,
    `${timeText(nodes.end[node] - nodes.start[node], view)}, from ${timeText(nodes.start[node], view)}`,
    `${view.types[nodes.type[node]]} · ${view.tracks[nodes.track[node]].name}`,
    KIND_WORDS[kinds[nodes.kind[node]]] + (nodes.critical[node] ? " · on the critical path" : ""),
  ];
}

interface ToolsProps {
  state: TraceState;
  board: Board;
  text: string;
  setText: (text: string) => void;
  criticalOnly: boolean;
  setCriticalOnly: (only: boolean) => void;
}

function Tools({ state, board, text, setText, criticalOnly, setCriticalOnly }: ToolsProps) {
  const hits = useMemo(() => foundNodes(state.nodes, text), [board, text]);
  const [place, setPlace] = useState(-1);
  const go = (by: number): void => {
    if (!hits.length) return;
    const next = place < 0 && by < 0 ? hits.length - 1 : (place + by + hits.length) % hits.length;
    setPlace(next);
    reveal(board, { lane: 0, span: state.spanOf[hits[next]] });
  };
  const hasPath = state.nodes.critical.includes(1);
  return (
    <>
      <span class="find">
        <input
          type="search"
          placeholder="name or id"
          aria-label="find nodes by name or id"
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
            <output>{hits.length ? `${place < hits.length ? place + 1 || "–" : "–"} of ${count(hits.length)}` : "none"}</output>
            <button type="button" aria-label="previous node found" disabled={!hits.length} onClick={() => go(-1)}>‹</button>
            <button type="button" aria-label="next node found" disabled={!hits.length} onClick={() => go(1)}>›</button>
          </>
        )}
      </span>
      {hasPath && <button type="button" aria-pressed={criticalOnly} onClick={() => setCriticalOnly(!criticalOnly)}>critical path only</button>}
      <span class="joined">
        <button type="button" aria-label="zoom in" onClick={() => zoom(board, 0.5)}>+</button>
        <button type="button" aria-label="zoom out" onClick={() => zoom(board, 2)}>−</button>
        <button type="button" onClick={() => fitAll(board)}>fit</button>
      </span>
    </>
  );
}

/** Returns the nodes of a part of the timeline as a table. */
function nodeTwin(state: TraceState, part: View, criticalOnly: boolean): Twin {
  const { nodes, spans, nodeOf } = state;
  const { view } = nodes;
  const rows: (string | number)[][] = [];
  view.tracks.forEach((track, place) => {
    const last = spans.first[place + 1];
    let span = firstAt(spans.reach, part.from, spans.first[place], last);
    for (; span < last && spans.start[span] <= part.to && rows.length < MOST_ROWS; span++) {
      const node = nodeOf[span];
      if (criticalOnly && !nodes.critical[node]) continue;
      rows.push([
        nodes.id[node], view.types[nodes.type[node]], view.names[nodes.name[node]], track.name,
        timeText(nodes.start[node], view), timeText(nodes.end[node] - nodes.start[node], view), nodes.critical[node] ? "yes" : "",
      ]);
    }
  });
  return { columns: ["id", "type", "name", "row", "start", "duration", "critical"], rows };
}
