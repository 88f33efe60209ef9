// "The design": one design, its cluster, timeline and roofline.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Card } from "../base/card";
import { CopyButton, download } from "../base/copy";
import { show } from "../base/format";
import { onHash, readHash, writeHash } from "../base/hash";
import { useSignal } from "../base/signal";
import type { Design, ReportDocument } from "../document";
import type { Opened, Shared, Source } from "../state";
import { type Bar, StackedBars } from "../verdict/bars";
import { CurvesCard } from "../serving/curves";
import { LatenciesCard } from "../serving/latencies";
import { PoolsCard } from "../serving/pools";
import { SpentCard } from "../serving/spent";
import { Exact } from "../verdict/exact";
import { memoryText, stepBar } from "../verdict/why";
import { ClusterCard } from "./cluster";
import { RooflineCard } from "./roofline";
import type { Lane } from "./rows";
import { spansOf } from "./spans";
import { Tiers } from "./tiers";
import { TimelineCard } from "./timeline";

/** The name of a design in the address: its trial, or its label. */
function keyOf(design: Design): string {
  return design.trial === null ? design.label : String(design.trial);
}

/** What this view needs of a page: some designs, and the one that is shown. */
export interface Designs {
  source: Pick<Source, "binary" | "open"> & { document: Pick<ReportDocument, "designs" | "best" | "base"> };
  opened: Shared["opened"];
}

async function openKey(shared: Designs, key: string): Promise<Opened | null> {
  const { document: study, binary } = shared.source;
  const design = study.designs.find((each) => keyOf(each) === key);
  if (design) return { design, binary };
  return /^\d+$/.test(key) ? shared.source.open(Number(key)) : null;
}

export function DesignView({ shared }: { shared: Designs }) {
  const { designs, best, base } = shared.source.document;
  const opened = useSignal(shared.opened);
  const [beside, setBeside] = useState<Opened | null>(null);
  const visited = useRef<Opened[]>([]);
  const first = best ?? base ?? (designs.length > 0 ? 0 : null); // several workloads: the first of them

  useEffect(() => {
    const read = async (): Promise<void> => {
      const [one, other] = await Promise.all([readHash("design"), readHash("beside")].map((key) => (key ? openKey(shared, key) : null)));
      if (one) shared.opened.value = one;
      if (other) setBeside(other);
    };
    void read();
    return onHash(() => void read());
  }, [shared]);
  useEffect(() => {
    if (opened) writeHash("design", first !== null && opened.design === designs[first] ? "" : keyOf(opened.design));
  }, [opened]);
  useEffect(() => {
    if (beside) writeHash("beside", keyOf(beside.design));
  }, [beside]);

  const shown = opened ?? (first === null ? null : { design: designs[first], binary: shared.source.binary });
  if (!shown) return <p>No design to show: none is feasible, and the search had no base.</p>;
  const { design } = shown;
  // Trials that were opened elsewhere stay in the list.
  const added = visited.current;
  const known = (each: Opened): boolean => each.design === design || each.design.identity === design.identity;
  if (!designs.includes(design) && !added.some(known)) added.push(shown);
  const listed = designs.map((each): Opened => ({ design: each, binary: shared.source.binary }));
  const all = [...listed, ...added.map((each) => (known(each) ? shown : each))];
  const besideShown = beside && beside.design !== design ? beside : null;
  return (
    <div class="design">
      <div class="choosing">
        <label for="design-shown">design</label>
        <Chooser id="design-shown" all={all} value={design} none="" choose={(next) => next && (shared.opened.value = next)} />
        <p class="bound-by">{design.feasible ? design.bound : `cannot run: ${design.reasons.join("; ")}`}</p>
      </div>
      <Facts design={design} />
      <Source design={design} />
      {SERVING && design.serving && <ServingCards design={design} />}
      <div class="grid">
        {design.cluster && <ClusterCard cluster={design.cluster} key={design.identity} />}
        <Steps
          shown={shown}
          beside={besideShown}
          chooser={
            <span class="choosing">
              <label for="design-beside">compare with</label>
              <Chooser
                id="design-beside"
                all={all.filter((each) => each.design !== design && each.design.timeline)}
                value={besideShown?.design ?? null}
                none="nothing"
                choose={(next) => {
                  setBeside(next);
                  if (!next) writeHash("beside", "");
                }}
              />
            </span>
          }
        />
        {design.roofline && <RooflineCard roofline={design.roofline} key={design.identity} />}
        <Parts design={design} />
        <Tiers design={design} />
      </div>
    </div>
  );
}

/** What a design does under its load; what follows is one decode step of it. */
function ServingCards({ design }: { design: Design }) {
  const serving = design.serving!;
  return (
    <>
      <p class="design-words">{serving.mapping}</p>
      <div class="grid served">
        <CurvesCard serving={serving} key={`curves ${design.identity}`} />
        <LatenciesCard serving={serving} />
        <PoolsCard serving={serving} />
        <SpentCard serving={serving} />
      </div>
      {(design.cluster || design.roofline || design.timeline) && <h3 class="one-step">One decode step, with the requests that run under this load</h3>}
    </>
  );
}

interface ChooserProps {
  id: string;
  all: Opened[];
  value: Design | null;
  /** The label of no choice; empty where one has to be chosen. */
  none: string;
  choose: (opened: Opened | null) => void;
}

function Chooser({ id, all, value, none, choose }: ChooserProps) {
  return (
    <select id={id} value={all.findIndex((each) => each.design === value)} onChange={(event) => choose(all[Number(event.currentTarget.value)] ?? null)}>
      {none && <option value={-1}>{none}</option>}
      {all.map(({ design }, place) => (
        <option key={place} value={place}>{nameOf(design)}</option>
      ))}
    </select>
  );
}

function nameOf(design: Design): string {
  const trial = design.trial !== null && !design.label.includes(String(design.trial)) ? ` (trial ${design.trial})` : "";
  const tpot = SERVING && design.serving?.latencies.find((each) => each.name === "tpot");
  const time = tpot ? `TPOT ${show(tpot.mean_s, "s")}` : show(design.step_s, "s");
  return `${design.label}${trial}: ${design.feasible ? time : "cannot run"}`;
}

function Facts({ design }: { design: Design }) {
  if (!design.facts.length) return null;
  return (
    <dl class="facts">
      {design.facts.map((fact) => (
        <div key={fact.label} title={fact.note}>
          <dt>{fact.label}</dt>
          <dd class="number"><Exact fact={fact} /></dd>
        </div>
      ))}
    </dl>
  );
}

/** The design as a file, and the command that evaluates it. */
function Source({ design }: { design: Design }) {
  const file = /\S+\.ya?ml/.exec(design.command)?.[0] ?? "design.yaml";
  return (
    <details class="source">
      <summary>the design as YAML, and the commands that evaluate and launch it</summary>
      <div class="source-line">
        <pre tabIndex={0}>{design.command}</pre>
        <CopyButton text={design.command} label="copy command" />
      </div>
      {design.launch?.script && (
        <div class="source-line">
          <pre tabIndex={0} class="yaml">{design.launch.script}</pre>
          <CopyButton text={design.launch.script} label="copy launch script" />
        </div>
      )}
      {design.launch && <p class="reading">{design.launch.note}</p>}
      <div class="source-line">
        <pre tabIndex={0} class="yaml">{design.yaml}</pre>
        <span class="tools">
          <CopyButton text={design.yaml} label="copy YAML" />
          <button type="button" onClick={() => download(file, design.yaml, "application/yaml")}>save {file}</button>
        </span>
      </div>
    </details>
  );
}

function Steps({ shown, beside, chooser }: { shown: Opened; beside: Opened | null; chooser: preact.ComponentChildren }) {
  const lanes = useMemo(
    () => [laneOf(shown), beside && laneOf(beside)].filter((lane): lane is Lane => lane !== null),
    [shown.design, beside?.design],
  );
  if (!shown.design.timeline || !lanes.length) return null;
  return <TimelineCard lanes={lanes} chooser={chooser} />;
}

function laneOf({ design, binary }: Opened): Lane | null {
  return design.timeline && design.timeline.duration_s > 0 ? { label: nameOf(design), spans: spansOf(design.timeline, binary) } : null;
}

const FILLS = ["compute", "exposed", "hidden", "memory", "optimizer", "idle", "other"];

function Parts({ design }: { design: Design }) {
  if (!design.parts.length && !design.memory.length) return null;
  const parts = design.parts.filter((each) => each.seconds > 0);
  const memory = design.memory.filter((each) => each.bytes > 0).sort((a, b) => b.bytes - a.bytes);
  const used = memory.reduce((sum, each) => sum + each.bytes, 0);
  const text = memoryText([design]);
  const timeBar: Bar = { ...stepBar(design, null), title: "step" };
  const memoryBar: Bar = {
    title: "memory",
    segments: memory.map((each, place) => ({ label: each.label, fill: `fill-${FILLS[Math.min(place, 6)]}`, amount: each.bytes })),
    total: text(used),
    ...(design.capacity_bytes > 0 && { limit: { at: design.capacity_bytes, label: `capacity: ${text(design.capacity_bytes)}` } }),
  };
  return (
    <Card
      id="parts"
      title="Breakdown of time and memory"
      twin={() => ({
        columns: ["component", "of", "amount"],
        rows: [
          ...parts.map((each) => [each.label, "the step", show(each.seconds, "s")]),
          ...memory.map((each) => [each.label, "memory", text(each.bytes)]),
        ],
      })}
    >
      {parts.length > 0 && <StackedBars bars={[timeBar]} most={null} show={(seconds) => show(seconds, "s")} />}
      {memory.length > 0 && (
        <StackedBars bars={[memoryBar]} most={Math.max(used, design.capacity_bytes)} show={text} axis="B" />
      )}
      <table class="part-table">
        <tbody>
          {[...parts].sort((a, b) => b.seconds - a.seconds).slice(0, 4).map((each) => (
            <PartRow key={each.name} fill={each.class} label={each.label} amount={show(each.seconds, "s")} />
          ))}
          {memory.slice(0, 4).map((each, place) => (
            <PartRow key={`memory ${each.name}`} fill={FILLS[place]} label={each.label} amount={text(each.bytes)} />
          ))}
        </tbody>
      </table>
    </Card>
  );
}

function PartRow({ fill, label, amount }: { fill: string; label: string; amount: string }) {
  return (
    <tr>
      <td><span class={`swatch fill-${fill}`} aria-hidden="true" /> {label}</td>
      <td class="number">{amount}</td>
    </tr>
  );
}
