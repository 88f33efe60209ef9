// The verdict band: what the search found, in one sentence, and the numbers behind it.

import { CopyButton, download } from "../base/copy";
import { times } from "../base/format";
import type { Fact, ReportDocument, SearchGain, WorkloadVerdict } from "../document";
import type { Shared } from "../state";
import { FactorBar, factorBounds } from "./bars";
import { Exact } from "./exact";
import { capital, expectedReading } from "./readings";
import { Tabs } from "./reproduce";

/** Letters from which a note is left out: the expected error has a line of its own. */
const LONG = 60;
/** Letters up to which a sentence is set in large type. */
const ONE_LOOK = 110;

interface VerdictProps {
  shared: Shared;
  /** Goes to a section of the page. */
  jump: (section: string) => void;
}

export function VerdictView({ shared, jump }: VerdictProps) {
  const study = shared.source.document;
  const { verdict } = study;
  return (
    <div class="verdict">
      <div class="verdict-main">
        {verdict.headline && <p class="headline">{verdict.headline}</p>}
        {verdict.design && <p class="design-words">{verdict.design}</p>}
        <p class={verdict.headline ? "sentence second" : verdict.sentence.length > ONE_LOOK ? "sentence long" : "sentence"}>{verdict.sentence}</p>
        {verdict.plateau && <p class="plateau-words">{verdict.plateau.sentence}</p>}
        <LaunchLine study={study} />
        {verdict.caveats.length > 0 && (
          <ul class="caveats">
            {verdict.caveats.map((each) => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        )}
        <Actions shared={shared} jump={jump} />
      </div>
      {study.best !== null && !(SERVING && study.serving && verdict.gains.length === 0) && <Gains gains={verdict.gains} bound={verdict.bound} objective={study.convergence.label} />}
      {SERVING && verdict.workloads && <h3 class="round">A round of all workloads</h3>}
      <Tiles facts={verdict.facts} label={SERVING && verdict.workloads ? "metrics of a round" : "metrics of the best design"} />
      {SERVING && verdict.workloads?.map((each) => <WorkloadWords key={each.name} workload={each} />)}
      <Confidence study={study} />
      <Launching study={study} />
      <div class="reproduce">
        <h3>Reproduce this search</h3>
        <Tabs
          id="reproduce"
          label="Reproduce this search"
          tabs={[
            { name: "shell", text: verdict.command },
            { name: "Python", text: verdict.python },
          ].filter((each) => !SERVING || each.text)}
        />
      </div>
    </div>
  );
}

function Tiles({ facts, label }: { facts: Fact[]; label: string }) {
  if (facts.length === 0) return null;
  return (
    <dl class="tiles" aria-label={label}>
      {facts.map((each) => (
        <div key={each.label} class="tile">
          <dt>{each.label}</dt>
          <dd>
            <Exact fact={each} />
            {each.note && each.note.length < LONG && <span class="note">{each.note}</span>}
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** What the best system does with one of several workloads. */
function WorkloadWords({ workload }: { workload: WorkloadVerdict }) {
  return (
    <section class="workload-words">
      <h3>{workload.name} <span class="faint">{workload.note}</span></h3>
      <p class="headline">{workload.headline}</p>
      {workload.design && <p class="design-words">{workload.design}</p>}
      <Tiles facts={workload.facts} label={`metrics of ${workload.name}`} />
    </section>
  );
}

/** The command that prints how to launch the best design, or that nothing launches it. */
function LaunchLine({ study }: { study: ReportDocument }) {
  const launch = study.best === null ? null : study.designs[study.best].launch;
  if (!launch) return null;
  if (!launch.export) return <p class="launch-line faint">{launch.note}</p>;
  return (
    <p class="launch-line">
      <span class="faint">launch it:</span> <code>{launch.export}</code> <CopyButton text={launch.export} label="copy" />
    </p>
  );
}

/** How the best design is launched, where a framework can. */
export function Launching({ study }: { study: ReportDocument }) {
  const launch = study.best === null ? null : study.designs[study.best].launch;
  if (!launch?.export) return null;
  return (
    <div class="reproduce">
      <h3>Launch the best design <span class="faint">with {launch.target}</span></h3>
      <Tabs
        id="launch"
        label="Launch the best design"
        tabs={[
          { name: "cosmic design export", text: launch.export },
          { name: "script", text: launch.script },
        ]}
      />
      <p class="reading">{launch.note}</p>
    </div>
  );
}

function Actions({ shared, jump }: VerdictProps) {
  const { document: study, binary } = shared.source;
  if (study.best === null) return null;
  const best = study.designs[study.best];
  const openBest = (): void => {
    shared.opened.value = { design: best, binary };
    jump("design");
  };
  return (
    <div class="actions">
      <button type="button" class="primary" onClick={openBest}>{SERVING && best.serving ? "open its latency over load" : "open its timeline"}</button>
      {best.launch?.script && <CopyButton text={best.launch.script} label="copy launch script" />}
      <CopyButton text={study.verdict.command} label="copy command" />
      <CopyButton text={best.yaml} label="copy YAML" />
      <button type="button" onClick={() => download("best.yaml", best.yaml, "application/yaml")}>download best.yaml</button>
    </div>
  );
}

function Gains({ gains, bound, objective }: { gains: SearchGain[]; bound: string; objective: string }) {
  const bounds = factorBounds(gains.map((each) => each.times));
  return (
    <div class="gains">
      <h3>Gain{objective && <span class="faint"> in {objective}</span>}</h3>
      {gains.length === 0 ? (
        <p class="empty">Nothing to compare with.</p>
      ) : (
        <ul>
          {gains.map((each) => (
            <li key={each.over}>
              {each.times === null ? (
                <span class="faint">{each.over} cannot run</span>
              ) : (
                <>
                  <span>
                    <b class="number">{times(each.times)}</b> over {each.over}
                  </span>
                  <FactorBar factor={each.times} bounds={bounds} />
                </>
              )}
            </li>
          ))}
        </ul>
      )}
      {bound && <p class="bound">{capital(bound)}.</p>}
    </div>
  );
}

/** The provenance of the numbers, and their expected error. */
export function Confidence({ study }: { study: ReportDocument }) {
  const { provenance } = study.verdict;
  const expected = expectedReading(study);
  if (!provenance && !expected) return null;
  return (
    <p class="confidence">
      {provenance && <span class={`badge ${provenance}`}>{provenance}</span>} {expected}
    </p>
  );
}
