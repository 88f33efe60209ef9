// Filters as text: `tp >= 8 & cost_usd < 30`, `topology = ring|switch`, `not (10 ms <= step_s <= 20 ms)`.
// Every selection of the page can be written so, in a link, a chip and a command.

import type { TrialColumn, Trials } from "../trials";
import { read, written } from "./units";

/** Pseudo-columns: the outcome of a trial, and its number. */
export const OUTCOME = -1;
export const NUMBER = -2;
export const RUNS = "runs";

export type Term =
  /** Numbers from `low` to `high`; without that end where it is open. */
  | { kind: "range"; column: number; low: number; high: number; openLow: boolean; openHigh: boolean }
  /** One of some values by their labels, or none of them. */
  | { kind: "among"; column: number; labels: string[]; not: boolean };

/** Terms that all hold, or that do not all hold. */
export interface Chip {
  not: boolean;
  terms: Term[];
}

export class FilterError extends Error {}

// ---------------------------------------------------------------------------------------------------- names

const shortNames = new WeakMap<TrialColumn[], string[]>();

/** Returns the name of each column in filters: the shortest unique end of its path. */
export function namesOf(columns: TrialColumn[]): string[] {
  let names = shortNames.get(columns);
  if (!names) {
    const used = new Map<string, number>();
    const each = columns.map(({ spec }) => endings(spec.name));
    for (const ends of each) for (const end of ends) used.set(end, (used.get(end) ?? 0) + 1);
    names = each.map((ends) => ends.find((end) => used.get(end) === 1 && /^[a-z_]/i.test(end)) ?? ends[ends.length - 1]);
    shortNames.set(columns, names);
  }
  return names;
}

/** Returns all ends of a path, shortest first: c, b.c, a.b.c. */
function endings(path: string): string[] {
  const parts = path.split(".");
  return parts.map((_, place) => parts.slice(parts.length - 1 - place).join("."));
}

export function nameOf(trials: Trials, column: number): string {
  return column === OUTCOME ? "outcome" : column === NUMBER ? "trial" : namesOf(trials.columns)[column];
}

function columnCalled(trials: Trials, text: string): number {
  const name = unquoted(text).toLowerCase();
  if (name === "outcome") return OUTCOME;
  if (name === "trial") return NUMBER;
  const columns = trials.columns.map(({ spec }) => spec);
  const same = columns.findIndex((spec) => spec.name.toLowerCase() === name || spec.label.toLowerCase() === name);
  if (same >= 0) return same;
  const ends = columns.map((spec, place) => (spec.name.toLowerCase().endsWith(`.${name}`) ? place : -1)).filter((place) => place >= 0);
  if (ends.length === 1) return ends[0];
  if (ends.length) throw new FilterError(`${name}: could be ${ends.map((place) => columns[place].name).join(" or ")}`);
  const near = nearest(name, [...namesOf(trials.columns), "outcome", "trial"]);
  throw new FilterError(`${name}: no parameter or metric of this study${near ? `; the nearest is ${near}` : ""}`);
}

function nearest(name: string, names: string[]): string {
  let [best, least] = ["", Math.max(2, name.length / 2)];
  for (const each of names) {
    const far = distance(name, each.toLowerCase());
    if (far < least) [best, least] = [each, far];
  }
  return best;
}

/** Returns how many letters must change to get from one word to another. */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, place) => place);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++)
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (one[i - 1] === other[j - 1] ? 0 : 1));
    row = next;
  }
  return row[other.length];
}

// ------------------------------------------------------------------------------------------------- printing

/** Whether a column has a few values with labels, rather than numbers. */
export function isChoice(column: TrialColumn): boolean {
  return column.codes !== null && column.spec.role === "parameter";
}

/** Whether the values of a column are numbers, so that ranges of them make sense. */
export function isNumeric(column: TrialColumn): boolean {
  return !column.codes || column.choices.every((value) => typeof value === "number");
}

export function unitOf(trials: Trials, column: number): string {
  return column < 0 ? "" : trials.columns[column].spec.unit;
}

function quoted(text: string): string {
  return /^[\p{L}\d_.+%/-]+(?: [\p{L}\d_.+%/-]+)*$/u.test(text) ? text : `"${text.replace(/["\\]/g, "\\$&")}"`;
}

function unquoted(text: string): string {
  const plain = text.trim();
  return /^".*"$/s.test(plain) ? plain.slice(1, -1).replace(/\\(.)/g, "$1") : plain;
}

export function termText(trials: Trials, term: Term): string {
  const name = nameOf(trials, term.column);
  if (term.kind === "among") return `${name} ${term.not ? "!=" : "="} ${term.labels.map(quoted).join("|")}`;
  const { low, high, openLow, openHigh } = term;
  const unit = unitOf(trials, term.column);
  if (low === high) return `${name} = ${written(low, unit)}`;
  const least = openLow ? "<" : "<=";
  const most = openHigh ? "<" : "<=";
  if (low === -Infinity) return `${name} ${most} ${written(high, unit)}`;
  if (high === Infinity) return `${name} ${openLow ? ">" : ">="} ${written(low, unit)}`;
  return `${written(low, unit)} ${least} ${name} ${most} ${written(high, unit)}`;
}

export function termsText(trials: Trials, terms: Term[]): string {
  return terms.map((term) => termText(trials, term)).join(" & ");
}

export function chipText(trials: Trials, chip: Chip): string {
  const text = termsText(trials, chip.terms);
  return chip.not ? `not (${text})` : text;
}

/** Returns chips as one line, which `parseChips` reads again. */
export function chipsText(trials: Trials, chips: Chip[]): string {
  return chips.map((chip) => chipText(trials, chip)).join("; ");
}

// -------------------------------------------------------------------------------------------------- parsing

/** Returns the parts of a text between marks that stand outside quotes. */
function split(text: string, mark: RegExp): string[] {
  const parts: string[] = [];
  let [from, inside] = [0, false];
  for (let place = 0; place < text.length; place++) {
    if (inside && text[place] === "\\") place++;
    else if (text[place] === '"') inside = !inside;
    else if (!inside && mark.test(text[place])) {
      parts.push(text.slice(from, place));
      from = place + 1;
    }
  }
  parts.push(text.slice(from));
  return parts.map((part) => part.trim()).filter(Boolean);
}

export function parseChips(trials: Trials, text: string): Chip[] {
  return split(text, /[;\n]/).map((part) => parseChip(trials, part));
}

export function parseChip(trials: Trials, text: string): Chip {
  const negated = /^(?:not\b|!)\s*\((.*)\)$/is.exec(text.trim());
  const terms = parseTerms(trials, negated ? negated[1] : text);
  if (!terms.length) throw new FilterError("a filter is a comparison, such as tp >= 8 & cost_usd < 30");
  return { not: !!negated, terms };
}

export function parseTerms(trials: Trials, text: string): Term[] {
  return split(text.replace(/\band\b/gi, "&"), /&/).map((part) => parseTerm(trials, part));
}

const NAME = String.raw`("(?:[^"\\]|\\.)*"|[\w.]+)`;
const BETWEEN = new RegExp(String.raw`^([^<>=]+?)\s*(<=?)\s*${NAME}\s*(<=?)\s*([^<>=]+)$`);
const COMPARED = new RegExp(String.raw`^${NAME}\s*(<=|>=|!=|==|=|<|>|≤|≥|≠)\s*(.+)$`, "s");
const SAME: Record<string, string> = { "≤": "<=", "≥": ">=", "≠": "!=", "==": "=" };

function parseTerm(trials: Trials, text: string): Term {
  const between = BETWEEN.exec(text);
  if (between) {
    const [, low, least, name, most, high] = between;
    const column = columnCalled(trials, name);
    const range = { low: numberOf(trials, column, low), high: numberOf(trials, column, high) };
    return { kind: "range", column, ...range, openLow: least === "<", openHigh: most === "<" };
  }
  const compared = COMPARED.exec(text);
  if (!compared) throw new FilterError(`${text}: not a comparison; write tp >= 8, topology = ring|switch or 10 ms <= step_s <= 20 ms`);
  const column = columnCalled(trials, compared[1]);
  const sign = SAME[compared[2]] ?? compared[2];
  const value = compared[3];
  if (sign !== "=" && sign !== "!=") {
    const bound = numberOf(trials, column, value);
    const less = sign.startsWith("<");
    const open = sign.length === 1;
    return less
      ? { kind: "range", column, low: -Infinity, high: bound, openLow: false, openHigh: open }
      : { kind: "range", column, low: bound, high: Infinity, openLow: open, openHigh: false };
  }
  return equal(trials, column, split(value, /\|/), sign === "!=");
}

function equal(trials: Trials, column: number, parts: string[], not: boolean): Term {
  if (column === NUMBER) return { kind: "among", column, labels: parts.map((part) => String(numberOf(trials, column, part))), not };
  if (column >= 0 && !isChoice(trials.columns[column])) {
    if (parts.length > 1 || not) throw new FilterError(`${nameOf(trials, column)}: a metric is compared with one of <, <=, >, >=, =`);
    const value = numberOf(trials, column, parts[0]);
    return { kind: "range", column, low: value, high: value, openLow: false, openHigh: false };
  }
  const known = column === OUTCOME ? [RUNS, ...trials.reasons.slice(1)] : trials.columns[column].labels;
  const labels = parts.map((part) => {
    const label = unquoted(part);
    const found = known.find((each) => each === label) ?? known.find((each) => each.toLowerCase() === label.toLowerCase());
    if (found !== undefined) return found;
    const byValue = column >= 0 ? trials.columns[column].choices.indexOf(read(label, unitOf(trials, column)) ?? label) : -1;
    if (byValue >= 0) return known[byValue];
    throw new FilterError(`${nameOf(trials, column)} = ${label}: is one of ${listed(known)}`);
  });
  return { kind: "among", column, labels: [...new Set(labels)], not };
}

const MOST_NAMED = 8;

function listed(labels: string[]): string {
  return labels.length > MOST_NAMED ? `${labels.slice(0, MOST_NAMED).join(", ")} and ${labels.length - MOST_NAMED} more` : labels.join(", ");
}

function numberOf(trials: Trials, column: number, text: string): number {
  const name = nameOf(trials, column);
  if (column === OUTCOME || (column >= 0 && !isNumeric(trials.columns[column])))
    throw new FilterError(`${name}: has no order; write ${name} = one|another`);
  const unit = unitOf(trials, column);
  const value = read(unquoted(text), unit);
  if (value === null) throw new FilterError(`${name}: ${text.trim()} is no number${unit && unit !== "share" ? ` of ${unit}` : ""}`);
  return value;
}
