// Where the time to first token and a decode step go, as stacked bars.

import { useState } from "preact/hooks";
import { Card } from "../base/card";
import { show } from "../base/format";
import type { Class } from "../aliases";
import type { Design, Serving, Spent } from "../document";
import { type Bar, Legend, ScaleSwitch, StackedBars, total } from "../verdict/bars";
import { partsTable } from "../verdict/why";
import { CLASS_LABELS, percent } from "../verdict/readings";

const CLASSES = /* @__PURE__ */ Object.keys(CLASS_LABELS) as Class[];
/** What the classes of a step mean for requests. */
export const WORDS: Record<Class, string> = { ...CLASS_LABELS, exposed: "communication", idle: "waiting", other: "engine and front end" };

export function spentBar(title: string, spent: Spent | undefined, strong: boolean, problem: string): Bar {
  const parts = (spent?.parts ?? []).filter((each) => each.seconds > 0);
  parts.sort((one, other) => CLASSES.indexOf(one.class) - CLASSES.indexOf(other.class));
  return {
    title,
    segments: parts.map((each) => ({ label: each.label, fill: `fill-${each.class}`, amount: each.seconds })),
    total: spent ? show(spent.seconds, "s") : "–",
    strong,
    ...(parts.length === 0 && { problem }),
  };
}

/** Returns the classes that some times are made of, in the order of their bars. */
export function usedClasses(all: (Spent | undefined)[]): Class[] {
  return CLASSES.filter((name) => all.some((spent) => spent?.parts.some((part) => part.class === name && part.seconds > 0)));
}

function Classes({ all, light }: { all: (Spent | undefined)[]; light: (fill: string) => void }) {
  return <Legend entries={usedClasses(all).map((name) => ({ label: WORDS[name], fill: `fill-${name}` }))} light={light} />;
}

/** Of one design: a bar for each time, at full width. */
export function SpentCard({ serving }: { serving: Serving }) {
  const [lit, setLit] = useState("");
  const { spent } = serving;
  if (spent.length === 0) return null;
  return (
    <Card
      id="spent"
      title="Where the time goes"
      reading={spentReading(spent)}
      twin={() => ({
        columns: ["time", "part", "seconds"],
        rows: spent.flatMap((each) => each.parts.map((part) => [each.label, part.label, show(part.seconds, "s")])),
      })}
      wide
    >
      <Classes all={spent} light={setLit} />
      <StackedBars bars={spent.map((each) => spentBar(each.label, each, false, "no breakdown"))} most={null} show={(seconds) => show(seconds, "s")} lit={lit} />
    </Card>
  );
}

/** Returns the largest part of each time, in a sentence. */
export function spentReading(spent: Spent[]): string {
  const said = spent
    .filter((each) => each.parts.length > 0)
    .map((each) => {
      const most = each.parts.reduce((one, other) => (other.seconds > one.seconds ? other : one));
      const whole = each.name === "decode" ? "a decode step" : `the ${each.label}`;
      return `${percent(most.seconds / each.seconds)} of ${whole} is ${most.label}`;
    });
  return said.length > 0 ? `${said.join("; ")}.` : "";
}

/** Of several designs: a chart for each time, with a bar for each design. */
export function SpentCompared({ compared, best }: { compared: Design[]; best: Design | null }) {
  const [shares, setShares] = useState(false);
  const [lit, setLit] = useState("");
  const names = [...new Map(compared.flatMap((design) => design.serving?.spent ?? []).map((each) => [each.name, each.label]))];
  const of = (design: Design, name: string): Spent | undefined => design.serving?.spent.find((each) => each.name === name);
  const all = compared.flatMap((design) => design.serving?.spent ?? []);
  return (
    <Card
      id="breakdown"
      title="Where the time goes"
      reading={best?.serving ? spentReading(best.serving.spent) : ""}
      tools={<ScaleSwitch shares={shares} setShares={setShares} />}
      twin={() => partsTable(compared, (design) => (design.serving?.spent ?? []).flatMap((each) => each.parts.map((part): [string, number] => [`${each.label}: ${part.label}`, part.seconds])), "seconds")}
      wide
    >
      <Classes all={all} light={setLit} />
      {names.map(([name, label]) => {
        const bars = compared.map((design) => spentBar(design.label, of(design, name), design === best, design.feasible ? "no breakdown" : `cannot run: ${design.reasons[0] ?? "no reason given"}`));
        return (
          <section key={name} class="spent" aria-label={label}>
            <h4>{label}</h4>
            <StackedBars bars={bars} most={shares ? null : Math.max(...bars.map((bar) => total(bar.segments)))} show={(seconds) => show(seconds, "s")} lit={lit} />
          </section>
        );
      })}
    </Card>
  );
}
