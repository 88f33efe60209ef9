// The timeline of a trace: threads, streams and communication; the selected node and its dependencies as arrows.

import { useEffect, useMemo } from "preact/hooks";
import { Card, type Twin } from "../base/card";
import { count } from "../base/format";
import { type Board, boardOf, reveal, select } from "../design/board";
import { type Choices, Rows, Tools, useLanes } from "../design/lanes";
import { Minimap } from "../design/minimap";
import type { Pick } from "../design/paint";
import { firstAt, wantedNames } from "../design/spans";
import type { View } from "../design/view";
import { foundNodes } from "./nodes";
import { KIND_WORDS, LOOKS, traceHeat, untilOf } from "./spans";
import { nodeText, timeText, type TraceState } from "./state";

const MOST_HIGH = 480;
const MOST_ROWS = 5000;

let boards = 0;

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
  const board = useMemo(() => {
    const until = untilOf(view);
    return boardOf({ id: ++boards, lanes, until, opening: { from: 0, to: until } });
  }, [state]);
  const choices = useLanes(board, lanes, (text) => [wantedNames(view.names, text)], view.unit === "steps");
  useShared(state, board);

  return (
    <Card
      id="spans"
      title={view.recorded ? "What ran when" : "What could run when"}
      reading={view.reading}
      wide
      twin={() => nodeTwin(state, board.area.value ?? board.view.value, choices.criticalOnly)}
      tools={<NodeTools state={state} board={board} choices={choices} />}
    >
      <Legend state={state} />
      {nodes.count > 0 ? (
        <>
          <Minimap board={board} key={`map ${board.id}`} name="whole trace" heatOf={traceHeat} />
          <Rows
            board={board}
            key={board.id}
            mostHigh={MOST_HIGH}
            label={`Timeline of ${count(nodes.count)} nodes on ${board.rows.length} rows. The table holds them.`}
            tip={(pick) => tipOf(state, state.nodeOf[pick.span])}
          />
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

function NodeTools({ state, board, choices }: { state: TraceState; board: Board; choices: Choices }) {
  const hits = useMemo(() => foundNodes(state.nodes, choices.text), [board, choices.text]);
  return (
    <Tools
      board={board}
      choices={choices}
      one="node"
      hint="name or id"
      label="find nodes by name or id"
      hits={hits.length}
      reveal={(hit) => reveal(board, { lane: 0, span: state.spanOf[hits[hit]] })}
      hasPath={state.nodes.critical.includes(1)}
    />
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
