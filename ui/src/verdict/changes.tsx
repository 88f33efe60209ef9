// The changes from the base to the best that matter most, each with its factor.

import { Card } from "../base/card";
import { digits, times } from "../base/format";
import type { Change, ReportDocument } from "../document";
import { FactorBar, factorBounds } from "./bars";
import { methodReading } from "./readings";

const SHOWN = 4;
const ALONE = "the gain when the base takes only this change, where that is a valid mapping";

export function Changes({ study }: { study: ReportDocument }) {
  const { why, verdict } = study;
  const bounds = factorBounds([...why.changes.map((each) => each.worth), why.rest]);
  const gain = verdict.gains.find((each) => each.times !== null && each.over.includes("base"))?.times ?? null;
  const rows = why.changes.map((each) => [each.label, fieldsText(each), factorText(each.worth), factorText(each.alone)]);
  return (
    <Card
      id="changes"
      title="What changed, and what it is worth"
      reading={methodReading(why)}
      twin={() => ({ columns: ["change", "fields", "worth", "alone"], rows })}
    >
      {why.changes.length === 0 ? (
        <p class="empty">{emptyReason(study)}</p>
      ) : (
        <ol class="changes">
          {why.changes.map((each) => (
            <ChangeRow key={each.label} change={each} bounds={bounds} />
          ))}
          {why.rest !== null && Math.abs(why.rest - 1) > 5e-4 && (
            <li class="change">
              <span class="change-name faint">all else</span>
              <FactorBar factor={why.rest} bounds={bounds} />
              <span class="number">{times(why.rest)}</span>
            </li>
          )}
          {gain !== null && (
            <li class="change sum">
              <span class="change-name">together</span>
              <span class="number">{times(gain)}</span>
            </li>
          )}
        </ol>
      )}
    </Card>
  );
}

function emptyReason({ base, best }: ReportDocument): string {
  if (best === null) return "No evaluated design can run, so there is nothing to explain.";
  if (base === null) return "This study has no base design to compare with.";
  return "The best design is the base design: nothing changed.";
}

function ChangeRow({ change, bounds }: { change: Change; bounds: [number, number] }) {
  const { fields } = change;
  const shown = fields.length <= SHOWN + 1 ? fields.length : SHOWN; // one more field takes no more room than "1 more"
  return (
    <li class="change">
      <span class="change-name">{change.label}</span>
      <FactorBar factor={change.worth} bounds={bounds} />
      <span class="number">{times(change.worth)}</span>
      <div class="change-fields">
        <Fields fields={fields.slice(0, shown)} />
        {fields.length > shown && (
          <details>
            <summary>{fields.length - shown} more fields</summary>
            <Fields fields={fields.slice(shown)} />
          </details>
        )}
      </div>
      <span class="change-alone" title={ALONE}>{change.alone === null ? "not alone" : `alone ${times(change.alone)}`}</span>
    </li>
  );
}

function Fields({ fields }: { fields: Change["fields"] }) {
  return (
    <ul class="changed">
      {fields.map((each) => (
        <li key={each.path}>
          <code>{each.path}</code> <span class="from">{each.from}</span> <span aria-label="becomes">→</span> <b>{each.to}</b>
        </li>
      ))}
    </ul>
  );
}

function fieldsText(change: Change): string {
  return change.fields.map((each) => `${each.path}: ${each.from} → ${each.to}`).join("; ");
}

function factorText(factor: number | null): string {
  return factor === null ? "–" : digits(factor);
}
