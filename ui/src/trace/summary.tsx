// What a trace is, in numbers: problems, facts, and the operators that take the most time.

import { Card } from "../base/card";
import { count, show } from "../base/format";
import type { Fact, Operator, TraceDocument, TraceView } from "../document";
import { KIND_WORDS, LOOKS } from "./spans";
import { timeText, type TraceState } from "./state";

export function Summary({ document, view }: { document: TraceDocument; view: TraceView }) {
  return (
    <>
      {view.problems.map((text) => (
        <p class="problem" role="alert" key={text}>{text}</p>
      ))}
      <Facts facts={[...document.facts, ...view.facts]} />
    </>
  );
}

function Facts({ facts }: { facts: Fact[] }) {
  return (
    <dl class="facts trace-facts">
      {facts.map(({ label, text, note }) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{text}</dd>
          {note && <dd class="note">{note}</dd>}
        </div>
      ))}
    </dl>
  );
}

export function Operators({ state, find }: { state: TraceState; find: (operator: Operator) => void }) {
  const { view } = state.nodes;
  const { operators, kernels, operators_note: note } = view;
  return (
    <div class="grid">
      <Card id="operators-card" title="Operators" wide reading={`Those that take the most time, by name. ${note}`.trim()}>
        {operators.length ? <OperatorTable rows={operators} view={view} find={find} /> : <p class="empty">There are none.</p>}
      </Card>
      {kernels.length > 0 && (
        <Card id="kernels-card" title="Classes of kernels" wide reading="What kernels compute, where the trace says so.">
          <OperatorTable rows={kernels} view={view} />
        </Card>
      )}
    </div>
  );
}

interface TableProps {
  rows: Operator[];
  view: TraceView;
  find?: (operator: Operator) => void;
}

function OperatorTable({ rows, view, find }: TableProps) {
  return (
    <div class="scrolling" tabIndex={0} role="region" aria-label="table">
      <table class="operators">
        <thead>
          <tr>
            <th scope="col">name</th>
            <th scope="col">kind</th>
            <th scope="col" class="number">nodes</th>
            <th scope="col" class="number">{view.unit === "s" ? "total time" : "steps"}</th>
            <th scope="col" class="number">share</th>
            <th scope="col" class="bar" aria-hidden="true" />
          </tr>
        </thead>
        <tbody>
          {rows.map((each) => (
            <tr key={`${each.kind} ${each.name}`}>
              <td class="name">{find ? <button type="button" onClick={() => find(each)} title="the longest of them">{each.name}</button> : each.name}</td>
              <td>{KIND_WORDS[each.kind]}</td>
              <td class="number">{count(each.count)}</td>
              <td class="number">{timeText(each.total, view)}</td>
              <td class="number">{show(each.share, "share")}</td>
              <td class="bar" aria-hidden="true">
                <span class={`fill-${LOOKS[each.kind]}`} style={{ width: `${100 * each.share}%` }} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
