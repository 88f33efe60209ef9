// Labels of columns.

import { count, show } from "../base/format";
import type { TrialColumn, Trials } from "../trials";
import { isChoice } from "./filter";

/** Returns a short label: "bandwidth dim 1". */
export function shortLabel(column: TrialColumn): string {
  return column.spec.label.replace(/ of dimension (\d+)$/, " dim $1");
}

export function unitText(column: TrialColumn): string {
  const { unit } = column.spec;
  return unit === "share" ? "%" : unit;
}

/** Returns the short label of an axis; that of money names the currency, for which its numbers may have no room. */
export function axisName(column: TrialColumn): string {
  const label = shortLabel(column);
  return column.spec.unit === "USD" ? `${label.replace(/ cost$/, "")} USD` : label;
}

/** Returns the title of an axis: what it is, its unit, and which way is better. */
export function axisTitle(column: TrialColumn, upright: boolean): string {
  const { label, better } = column.spec;
  const unit = unitText(column);
  const named = unit && unit !== "1/s" && !label.split(/[ ()]/).includes(unit) ? `${label} (${unit})` : label;
  if (!better) return named;
  if (better === "less") return upright ? `${named} ↓ less is better` : `← less is better · ${named}`;
  return upright ? `${named} ↑ more is better` : `${named} · more is better →`;
}

/** Returns a value of a trial as it is shown; a dash where there is none. */
export function cellText(column: TrialColumn, place: number): string {
  if (isChoice(column)) return column.labels[column.codes![place]] ?? "–";
  return show(column.values[place], column.spec.unit);
}

/** Returns why a trial cannot run, "runs" where it does. */
export function outcomeText(trials: Trials, place: number): string {
  return trials.outcomes[place] === 0 ? "runs" : trials.reasons[trials.outcomes[place]];
}

export function share(part: number, whole: number): string {
  return whole ? `${((100 * part) / whole).toFixed(1)} %` : "–";
}

export function trialsText(number: number): string {
  return number === 1 ? "1 trial" : `${count(number)} trials`;
}
