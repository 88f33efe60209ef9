// How far to trust a study: inputs, coverage, infeasible designs, what the model leaves out, how to check.

import { Card } from "../base/card";
import { CopyButton } from "../base/copy";
import { count, digits } from "../base/format";
import { says } from "../base/tip";
import type { ReportDocument, Trust } from "../document";
import { failuresReading } from "./readings";
import { Confidence } from "./verdict";

export function TrustView({ study }: { study: ReportDocument }) {
  const { trust } = study;
  return (
    <div class="grid">
      <Coverage trust={trust} study={study} />
      <Failures trust={trust} />
      <Named id="inputs" title="Inputs" reading="The same inputs give the same study." pairs={trust.inputs} />
      <Named id="versions" title="Versions" reading="The software that computed these numbers." pairs={trust.versions} />
      <Card id="limits" title="What the model leaves out" reading="Read these before acting on a small difference.">
        {trust.limits.length === 0 ? (
          <p class="empty">No limit is stated.</p>
        ) : (
          <ul class="limits">
            {trust.limits.map((each) => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        )}
      </Card>
      <Card id="checks" title="Check it yourself" reading="Commands that compute this again, or export it." wide>
        {trust.commands.length === 0 && <p class="empty">The study was not kept, so there is nothing to replay.</p>}
        {trust.commands.map((each) => (
          <div key={each.label} class="command">
            <div class="command-head">
              <span>{each.label}</span>
              <CopyButton text={each.command} />
            </div>
            <pre tabIndex={0} aria-label={each.label}>{each.command}</pre>
          </div>
        ))}
      </Card>
    </div>
  );
}

/** Returns a whole number; sizes of spaces can have very many digits. */
export function whole(value: number): string {
  return value < 1e12 ? count(value) : digits(value);
}

function Coverage({ trust, study }: { trust: Trust; study: ReportDocument }) {
  const steps: [string, number][] = [
    ["combinations", trust.raw],
    ["valid designs", trust.valid],
    ["evaluated", trust.evaluated],
    ["feasible", trust.feasible],
  ];
  return (
    <Card id="coverage" title="Coverage" reading={trust.coverage}>
      <dl class="tiles small">
        {steps.map(([label, value]) => (
          <div key={label} class="tile">
            <dt>{label}</dt>
            <dd title={String(value)} class="number">{whole(value)}</dd>
          </div>
        ))}
      </dl>
      <Confidence study={study} />
    </Card>
  );
}

function Failures({ trust }: { trust: Trust }) {
  const { failures } = trust;
  const most = Math.max(1, ...failures.map((each) => each.count));
  return (
    <Card
      id="failures"
      title="Designs that cannot run"
      reading={failuresReading(trust)}
      twin={() => ({ columns: ["reason", "in words", "designs"], rows: failures.map((each) => [each.reason, each.label, each.count]) })}
    >
      {failures.length > 0 && (
        <ul class="failures">
          {failures.map((each) => (
            <li key={each.reason} {...says(each.reason, `${count(each.count)} designs`)}>
              <span class="failure-label">{each.label}</span>
              <span class="number">{count(each.count)}</span>
              <span class="failure-track" aria-hidden="true">
                <i style={{ width: `${(100 * each.count) / most}%` }} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function Named({ id, title, reading, pairs }: { id: string; title: string; reading: string; pairs: [string, string][] }) {
  return (
    <Card id={id} title={title} reading={reading}>
      {pairs.length === 0 ? (
        <p class="empty">None.</p>
      ) : (
        <dl class="pairs">
          {pairs.map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      )}
    </Card>
  );
}
