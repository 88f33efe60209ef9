// Why the best is best: breakdown of time and memory, changes, metrics.

import { useState } from "preact/hooks";
import { Card } from "../base/card";
import { show, writer } from "../base/format";
import type { Class } from "../aliases";
import type { Convergence, Design, ReportDocument } from "../document";
import { type Bar, Legend, ScaleSwitch, StackedBars, total } from "./bars";
import { SpentCompared } from "../serving/spent";
import { Changes } from "./changes";
import { ConvergenceCard } from "./convergence";
import { Costs } from "./costs";
import { breakdownReading, CLASS_LABELS, memoryReading, nothingReading } from "./readings";

const CLASSES = Object.keys(CLASS_LABELS) as Class[];
const FILLS = ["compute", "exposed", "hidden", "memory", "optimizer", "idle", "other"];
const REST = "other components";

export function WhyView({ study }: { study: ReportDocument }) {
  const { designs, why, convergence } = study;
  const compared = why.compared.map((place) => designs[place]);
  const base = study.base === null ? null : designs[study.base];
  const best = study.best === null ? null : designs[study.best];
  // Where the objective is not the step time, shorter bars are not the goal.
  const goal = convergence.objective === "step_s" ? "" : ` The objective was ${convergence.label}.`;
  const searches = <ConvergenceCard convergence={{ ...convergence, series: wholeFirst(convergence.series) }} />;
  if (compared.length === 0)
    return (
      <>
        <p class="empty">{nothingReading(study)}</p>
        {convergence.series.some((each) => each.points.length > 0) && searches}
      </>
    );
  return (
    <div class="grid">
      {SERVING && compared.some((design) => design.serving) ? <SpentCompared compared={compared} best={best} /> : <Breakdown compared={compared} base={base} best={best} goal={goal} />}
      {(!SERVING || why.changes.length > 0 || base) && <Changes study={study} />}
      <Memory base={base} best={best} />
      {(!SERVING || convergence.series.length > 0) && searches}
      <Costs compared={compared} base={base} best={best} />
    </div>
  );
}

/** Returns the full-stack search first, so that it is the solid line, then those of single layers. */
function wholeFirst(series: Convergence["series"]): Convergence["series"] {
  const isolated = (name: string): number => Number(name.endsWith(" alone"));
  return [...series].sort((one, other) => isolated(one.name) - isolated(other.name));
}

interface Sides {
  base: Design | null;
  best: Design | null;
}

/** Returns a design's step as a bar: its components, grouped by class. */
export function stepBar(design: Design, best: Design | null): Bar {
  const parts = [...design.parts].filter((each) => each.seconds > 0);
  parts.sort((one, other) => CLASSES.indexOf(one.class) - CLASSES.indexOf(other.class));
  return {
    title: design.label,
    segments: parts.map((each) => ({ label: each.label, fill: `fill-${each.class}`, amount: each.seconds })),
    total: show(design.step_s, "s"),
    strong: design === best,
    ...(design.step_s_range && parts.length > 0 && { range: rangeOf(design.step_s_range) }),
    ...(parts.length === 0 && { problem: whyNot(design) }),
  };
}

/** Returns what a step is expected to take when measured, as an error bar. */
function rangeOf([low, high]: [number, number]): NonNullable<Bar["range"]> {
  return { low, high, label: `nine measurements in ten are expected from ${show(low, "s")} to ${show(high, "s")}` };
}

/** Returns why a design has no bar. */
function whyNot(design: Design): string {
  return design.feasible ? "no breakdown" : `cannot run: ${design.reasons[0] ?? "no reason given"}`;
}

function Breakdown({ compared, base, best, goal }: Sides & { compared: Design[]; goal: string }) {
  const [shares, setShares] = useState(false);
  const [lit, setLit] = useState("");
  const bars = compared.map((design) => stepBar(design, best));
  const used = CLASSES.filter((name) => compared.some((design) => design.parts.some((part) => part.class === name && part.seconds > 0)));
  return (
    <Card
      id="breakdown"
      title="Where the time goes"
      reading={breakdownReading(base, best) + goal}
      tools={<ScaleSwitch shares={shares} setShares={setShares} />}
      twin={() => partsTable(compared, (design) => design.parts.map((each) => [each.label, each.seconds]), "seconds")}
      wide
    >
      <Legend entries={used.map((name) => ({ label: CLASS_LABELS[name], fill: `fill-${name}` }))} light={setLit} />
      <StackedBars
        bars={bars}
        most={shares ? null : Math.max(...bars.map((bar) => Math.max(total(bar.segments), bar.range?.high ?? 0)))}
        show={(seconds) => show(seconds, "s")}
        lit={lit}
      />
    </Card>
  );
}

function Memory({ base, best }: Sides) {
  const [lit, setLit] = useState("");
  const designs = [...new Set([base, best])].filter((each): each is Design => each !== null && each.memory.length > 0);
  const names = largestParts(designs);
  const text = memoryText(designs);
  const bars = designs.map((design) => memoryBar(design, names, design === best, text));
  const most = Math.max(0, ...bars.map((bar) => Math.max(total(bar.segments), bar.limit?.at ?? 0)));
  const entries = FILLS.map((fill, place) => ({ label: names[place] ?? REST, fill: `fill-${fill}` }));
  const drawn = new Set(bars.flatMap((bar) => bar.segments.map((each) => each.fill)));
  return (
    <Card
      id="memory"
      title="Memory against capacity"
      reading={memoryReading(best)}
      twin={() => partsTable(designs, (design) => design.memory.map((each) => [each.label, each.bytes]), "bytes")}
    >
      {bars.length === 0 ? (
        <p class="empty">No design has a breakdown of memory.</p>
      ) : (
        <>
          <Legend entries={entries.filter((each) => drawn.has(each.fill))} light={setLit} />
          <StackedBars bars={bars} most={most} show={text} lit={lit} axis="B" />
          <p class="limit-note">
            <i class="limit-key" /> capacity of an accelerator: {[...new Set(designs.map((each) => text(each.capacity_bytes)))].join(", ")}
          </p>
        </>
      )}
    </Card>
  );
}

/** Returns the components of memory that have a colour of their own, largest first. */
export function largestParts(designs: Design[]): string[] {
  const sizes = new Map<string, number>();
  for (const { label, bytes } of designs.flatMap((design) => design.memory))
    if (bytes > 0) sizes.set(label, Math.max(bytes, sizes.get(label) ?? 0));
  const sorted = [...sizes].sort((one, other) => other[1] - one[1]).map(([label]) => label);
  return sorted.slice(0, FILLS.length - 1);
}

/** Returns what writes the memory of some designs, all in one unit. */
export function memoryText(designs: Design[]): (bytes: number) => string {
  const held = designs.map((design) => design.memory.reduce((sum, each) => sum + each.bytes, 0));
  return writer("B", Math.max(0, ...held, ...designs.map((design) => design.capacity_bytes))).text;
}

function memoryBar(design: Design, names: string[], strong: boolean, text: (bytes: number) => string): Bar {
  const amounts = new Array<number>(FILLS.length).fill(0);
  for (const { label, bytes } of design.memory) {
    const place = names.indexOf(label);
    amounts[place < 0 ? FILLS.length - 1 : place] += bytes;
  }
  const segments = amounts
    .map((amount, place) => ({ label: names[place] ?? REST, fill: `fill-${FILLS[place]}`, amount }))
    .filter((each) => each.amount > 0);
  const needed = total(segments);
  const known = design.capacity_bytes > 0;
  return {
    title: design.label,
    segments,
    total: text(needed),
    strong,
    ...(known && { limit: { at: design.capacity_bytes, label: `capacity: ${text(design.capacity_bytes)}` } }),
    ...(known && needed > design.capacity_bytes && { failure: `${text(needed - design.capacity_bytes)} too much` }),
  };
}

/** Returns a table with a row for each component of any design, and a column for each design. */
export function partsTable(designs: Design[], parts: (design: Design) => [string, number][], unit: string) {
  const tables = designs.map((design) => new Map(parts(design)));
  const names = [...new Set(tables.flatMap((table) => [...table.keys()]))];
  return {
    columns: ["component", ...designs.map((design) => `${design.label}, ${unit}`)],
    rows: names.map((name) => [name, ...tables.map((table) => table.get(name) ?? 0)]),
  };
}
