// The page of traces: facts, the timeline, the graph around a node, the operators.

import { useEffect, useMemo, useState } from "preact/hooks";
import { onHash, readHash, writeHash } from "../base/hash";
import { jump, Section, useSectionKeys } from "../frame";
import type { Operator, TraceDocument } from "../document";
import { GraphCard } from "./graph_view";
import { NodeCard } from "./node";
import { type Nodes, openingNode } from "./nodes";
import { opener, type TraceState } from "./state";
import { Operators, Summary } from "./summary";
import { TraceTimeline } from "./timeline";

export const SECTIONS = [
  { id: "trace", title: "Trace" },
  { id: "timeline", title: "Timeline" },
  { id: "graph", title: "Graph" },
  { id: "operators", title: "Operators" },
] as const;

export function TracePage({ document, binary }: { document: TraceDocument; binary: Uint8Array }) {
  const open = useMemo(() => opener(document, binary), [document]);
  const [place, setPlace] = useState(() => placeIn(document));
  const rank = document.ranks[place];
  const state = open(rank.view);
  useSectionKeys(SECTIONS);
  useMemo(() => {
    if (state.selected.value === null) state.selected.value = nodeIn(state.nodes) ?? openingNode(state.nodes);
  }, [state]);
  useEffect(() => {
    const note = (node: number | null): void => writeHash("node", node === null ? "" : String(state.nodes.id[node]));
    return state.selected.listen(note);
  }, [state]);
  useEffect(() => onHash(() => {
    setPlace(placeIn(document));
    state.selected.value = nodeIn(state.nodes) ?? state.selected.value;
  }), [state]);
  const choose = (next: number): void => {
    setPlace(next);
    writeHash("rank", next ? String(document.ranks[next].rank) : "");
  };
  return (
    <>
      <Section id="trace" heading={document.ranks.length > 1 ? "The job" : "The trace"}>
        {document.ranks.length > 1 && (
          <p class="choosing">
            <label>
              rank{" "}
              <select value={place} onChange={(event) => choose(Number(event.currentTarget.value))}>
                {document.ranks.map((each, at) => (
                  <option key={each.rank} value={at}>{each.rank}</option>
                ))}
              </select>
            </label>
            <span class="faint">{sameAs(document, place)}</span>
          </p>
        )}
        <Summary document={document} view={state.nodes.view} />
      </Section>
      <Section id="timeline" heading="Timeline">
        <TraceTimeline state={state} key={rank.view} />
      </Section>
      <Section id="graph" heading="Node and graph">
        <div class="node-and-graph">
          <NodeCard state={state} rank={rank} key={`node ${rank.view}`} />
          <GraphCard state={state} key={`graph ${rank.view}`} />
        </div>
      </Section>
      <Section id="operators" heading="Where the time goes">
        <Operators state={state} find={(operator) => { select(state, operator); jump("graph"); }} />
      </Section>
    </>
  );
}

function placeIn(document: TraceDocument): number {
  const named = readHash("rank");
  return named ? Math.max(0, document.ranks.findIndex(({ rank }) => String(rank) === named)) : 0;
}

/** Returns the node that the address names; null where it names none. */
function nodeIn(nodes: Nodes): number | null {
  const named = readHash("node");
  const place = named ? nodes.id.indexOf(Number(named)) : -1;
  return place < 0 ? null : place;
}

/** "runs the same nodes as 7 other ranks". */
export function sameAs({ ranks }: TraceDocument, place: number): string {
  const others = ranks.filter(({ view }) => view === ranks[place].view).length - 1;
  if (!others) return "no other rank runs the same nodes";
  return `runs the same nodes as ${others === 1 ? "one other rank" : `${others} other ranks`}`;
}

/** Selects the longest node of an operator. */
function select({ nodes, kinds, selected }: TraceState, { name, kind }: Operator): void {
  const pattern = new RegExp(`^${name.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join("(\\d+|\\*)")}$`);
  const fits = nodes.view.names.map((each) => each === name || pattern.test(each) || (!each && name === "(no name)"));
  let best = -1;
  for (let node = 0; node < nodes.count; node++)
    if (fits[nodes.name[node]] && kinds[nodes.kind[node]] === kind && (best < 0 || nodes.end[node] - nodes.start[node] > nodes.end[best] - nodes.start[best]))
      best = node;
  if (best >= 0) selected.value = best;
}
