// The selected node: what it states, what it depends on, and what depends on it.

import { useState } from "preact/hooks";
import { Card } from "../base/card";
import { count, show } from "../base/format";
import { useSignal } from "../base/signal";
import type { TraceRank } from "../document";
import { briefName, type Link, linksOf, statedBy } from "./nodes";
import { KIND_WORDS, LOOKS } from "./spans";
import { timeText, type TraceState } from "./state";

const MOST_LINKS = 12;
const MOST_ABSENT = 8;

export function NodeCard({ state, rank }: { state: TraceState; rank: TraceRank }) {
  const node = useSignal(state.selected);
  if (node === null)
    return (
      <Card id="node" title="Node">
        <p class="faint">Select a node in the timeline, the graph or the tables.</p>
      </Card>
    );
  const { nodes, kinds } = state;
  const { view } = nodes;
  const kind = kinds[nodes.kind[node]];
  const absent = nodes.absent.get(node) ?? [];
  const rows: [string, string][] = [
    ["type", `${view.types[nodes.type[node]]}, ${KIND_WORDS[kind]}`],
    ["row", view.tracks[nodes.track[node]].name],
    ["start", timeText(nodes.start[node], view)],
    ["duration", timeText(nodes.end[node] - nodes.start[node], view)],
    ["depth", count(nodes.depth[node])],
    ...statedBy(nodes, node, rank).map(([label, value, unit]): [string, string] => [label, valueText(value, unit)]),
  ];
  if (nodes.critical.includes(1)) rows.push(["critical path", nodes.critical[node] ? "on it" : "not on it"]);
  if (absent.length) rows.push(["absent", `depends on ${absentText(absent)}, which the trace does not have`]);
  return (
    <Card id="node" title={`Node ${nodes.id[node]}`}>
      <p class="node-name" aria-live="polite">
        <span class={`swatch fill-${LOOKS[kind]}`} aria-hidden="true" />
        <span>{view.names[nodes.name[node]] || <span class="faint">no name</span>}</span>
      </p>
      <dl class="stated">
        {rows.map(([label, text]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <Links state={state} word="depends on" links={linksOf(nodes.before, node)} key={`before ${node}`} />
      <Links state={state} word="needed by" links={linksOf(nodes.after, node)} key={`after ${node}`} />
    </Card>
  );
}

function absentText(ids: number[]): string {
  const shown = ids.slice(0, MOST_ABSENT).join(", ");
  return ids.length > MOST_ABSENT ? `${shown} and ${count(ids.length - MOST_ABSENT)} more` : shown;
}

function valueText(value: string | number, unit: string): string {
  if (typeof value === "string") return value;
  if (unit === "FLOP") return show(value, "FLOP/s").replace("/s", "");
  return unit ? show(value, unit) : String(value);
}

function Links({ state, word, links }: { state: TraceState; word: string; links: Link[] }) {
  const [all, setAll] = useState(MOST_LINKS);
  const { nodes } = state;
  if (!links.length) return <p class="ways">{word} nothing</p>;
  // What holds a node up comes first: the critical path, then what ends last.
  const sorted = links.toSorted((a, b) => nodes.critical[b.node] - nodes.critical[a.node] || nodes.end[b.node] - nodes.end[a.node] || a.node - b.node);
  return (
    <div class="ways">
      <p>{word} {count(links.length)} {links.length === 1 ? "node" : "nodes"}</p>
      <ul>
        {sorted.slice(0, all).map(({ node, ctrl }) => (
          <li key={node}>
            <button type="button" onClick={() => (state.selected.value = node)}>
              <span class={`swatch fill-${LOOKS[state.kinds[nodes.kind[node]]]}`} aria-hidden="true" /> {nodes.id[node]} {briefName(nodes.view.names[nodes.name[node]])}
              {ctrl && <span class="faint"> (control)</span>}
            </button>
          </li>
        ))}
      </ul>
      {links.length > all && (
        <button type="button" onClick={() => setAll(all + 100)}>{count(links.length - all)} more</button>
      )}
    </div>
  );
}
