// One sentence on each chart, computed from its data.

import { count, digits, show, times, writer } from "../base/format";
import type { Class } from "../aliases";
import type { Convergence, Design, ReportDocument, Trust, Why } from "../document";

export const CLASS_LABELS: Record<Class, string> = {
  compute: "compute",
  exposed: "exposed communication",
  hidden: "overlapped communication",
  idle: "idle",
  memory: "memory traffic",
  optimizer: "optimizer",
  other: "other",
};

/** Returns the seconds of each class of a design's step, largest first. */
export function classTotals(design: Design): [Class, number][] {
  const found = new Map<Class, number>();
  for (const part of design.parts) found.set(part.class, (found.get(part.class) ?? 0) + part.seconds);
  return [...found].sort((one, other) => other[1] - one[1]);
}

export function breakdownReading(base: Design | null, best: Design | null): string {
  if (!best || best.parts.length === 0) return "";
  const totals = classTotals(best);
  const whole = totals.reduce((sum, each) => sum + each[1], 0);
  const [first, seconds] = totals[0];
  const most = `${capital(CLASS_LABELS[first])} takes ${percent(seconds / whole)} of the best design's step`;
  if (!base || base === best || base.parts.length === 0) return `${most}.`;
  const after = new Map(totals);
  const saved = classTotals(base).map(([name, before]): [Class, number] => [name, before - (after.get(name) ?? 0)]);
  const [name, gain] = saved.sort((one, other) => other[1] - one[1])[0];
  if (gain <= 0) return `${most}; no class of time is shorter than in the base.`;
  return `${most}; ${CLASS_LABELS[name]} shrank most against the base, by ${show(gain, "s")}.`;
}

export function memoryReading(best: Design | null): string {
  const parts = best?.memory ?? [];
  if (!best || parts.length === 0) return "";
  const used = parts.reduce((sum, each) => sum + each.bytes, 0);
  const largest = parts.reduce((one, other) => (other.bytes > one.bytes ? other : one));
  const { text } = writer("B", Math.max(used, best.capacity_bytes));
  const of = best.capacity_bytes > 0 ? ` of ${text(best.capacity_bytes)} (${percent(used / best.capacity_bytes)})` : "";
  return `The best design needs ${text(used)}${of} on its fullest accelerator; the largest component is ${largest.label}.`;
}

const METHODS: Record<string, string> = {
  exact: "Worth is the mean over all orders of the changes (Shapley value): factors that multiply to the gain.",
  sampled: "Worth is the mean over a sample of orders of the changes: factors that multiply to the gain.",
  one_at_a_time: "Worth is the mean of making a change first and making it last; joint effects are in the rest.",
};

/** Returns how the worth of changes was computed. */
export function methodReading(why: Why): string {
  return METHODS[why.method] ?? "";
}

export function convergenceReading({ series, better, unit }: Convergence): string {
  const found = series.filter((each) => each.points.length > 0);
  if (found.length === 0) return "";
  const end = (points: [number, number][]): number => points[points.length - 1][1] * (better === "less" ? 1 : -1);
  const { name, points } = found.reduce((one, other) => (end(other.points) < end(one.points) ? other : one));
  const [evaluations, best] = points[points.length - 1];
  const near = points.find(([, value]) => (better === "less" ? value <= 1.05 * best : value >= best / 1.05))!;
  const who = found.length > 1 ? `The best search, ${name},` : "The search";
  const came = `${who} reached ${show(best, unit)} after ${evaluations === 1 ? "its first design" : `${count(evaluations)} designs`}`;
  return evaluations === 1 ? `${came}.` : `${came}, and came within 5 % of that after ${count(near[0])}.`;
}

export function failuresReading(trust: Trust): string {
  const failed = trust.failures.reduce((sum, each) => sum + each.count, 0);
  if (trust.evaluated === 0 && failed === 0) return "No design has been evaluated yet.";
  if (failed === 0) return `All ${count(trust.evaluated)} evaluated designs can run.`;
  return `${count(failed)} designs cannot run; the most frequent reason is ${trust.failures[0].label}.`;
}

/** Returns why there is no design to explain. */
export function nothingReading({ trust }: ReportDocument): string {
  if (trust.feasible > 0) return "This study evaluates several workloads together: there is no single design to explain.";
  const more = trust.failures.length > 0 ? " The reasons are counted under Trust." : "";
  if (trust.evaluated === 0) return "No design has been evaluated yet.";
  return `No evaluated design can run, so there is nothing to explain.${more}`;
}

/** Returns the expected error, or that there were no runs to find it on; empty where no design is feasible. */
export function expectedReading({ verdict, serving }: ReportDocument): string {
  const time = SERVING && serving ? "time per output token" : "step time";
  if (verdict.expected_error === null) return verdict.provenance ? `No measured runs of this kind: the error of the ${time} is not known.` : "";
  const on = verdict.expected_on ? ` (${verdict.expected_on})` : "";
  return `The ${time} is expected to be off by ${percent(verdict.expected_error)} on average${on}.`;
}

/** Returns how many times better `best` is than `base` by a number. */
export function ratio(base: number | null | undefined, best: number | null | undefined): string {
  return base && best && base > 0 && best > 0 ? times(best / base) : "–";
}

export function percent(share: number): string {
  return `${digits(100 * Number(share.toPrecision(2)))} %`;
}

export function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
