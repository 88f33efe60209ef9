// A selection as commands, as Python and as a table.

import { count } from "../base/format";
import type { Shared } from "../state";
import type { TrialColumn, Trials } from "../trials";
import { type Chip, chipsText, isChoice, isNumeric, NUMBER, OUTCOME, RUNS, type Term, termText } from "./filter";
import { holding, type Mask } from "./mask";

export interface Selection {
  trials: Trials;
  chips: Chip[];
  selected: Mask;
  /** How many, and the place of the best of them; -1 where none runs. */
  count: number;
  best: number;
}

/** Returns a word quoted for a shell. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

/** Returns the command that evaluates a trial: that of the document, or the base with the trial's parameters. */
export function evaluateCommand({ source }: Shared, trials: Trials, place: number): string {
  const { designs, base, serving, verdict } = source.document;
  const kept = designs.find((design) => design.trial === trials.first + place);
  if (kept) return kept.command;
  if (SERVING && serving && base === null) return verdict.command; // deployments of a search without a base
  const from = base === null ? "" : designs[base].command;
  const changes = trials.columns
    .filter((column) => column.spec.role === "parameter" && column.codes)
    .map((column) => ` --set ${shellWord(`${column.spec.name}=${column.labels[column.codes![place]]}`)}`);
  return `${from || "cosmic evaluate DESIGN.yaml"}${changes.join("")}`;
}

/** Returns shell lines: export of the study, evaluation of the best selected, and a search within the same limits. */
export function asCommands(shared: Shared, selection: Selection): string {
  const { trials, chips } = selection;
  const { study, verdict } = shared.source.document;
  const what = chips.length ? `: ${chipsText(trials, chips)}` : "";
  const lines = [
    `# ${count(selection.count)} of ${count(trials.count)} trials${what}`,
    `cosmic study export ${shellWord(study)} --to trials.csv`,
  ];
  if (selection.best >= 0) lines.push(`# the best of them, trial ${trials.first + selection.best}`, evaluateCommand(shared, trials, selection.best));
  const terms = chips.filter((chip) => !chip.not).flatMap((chip) => chip.terms);
  const limits = terms.flatMap((term) => constraints(trials, term));
  if (limits.length && verdict.command.startsWith("cosmic search")) {
    const left = [...terms.filter((term) => !constraints(trials, term).length && term.column >= 0)];
    const note = left.length ? `; parameters are limited in the space: ${left.map((term) => termText(trials, term)).join(" & ")}` : "";
    lines.push(`# a search within the same limits${note}`);
    const again = verdict.command.replace(/ --out (?:'[^']*'|\S+)/, "");
    lines.push(`${again}${limits.map((limit) => ` --constraint ${shellWord(limit)}`).join("")}`);
  }
  return `${lines.join("\n")}\n`;
}

function constraints(trials: Trials, term: Term): string[] {
  if (term.kind !== "range" || term.column < 0 || trials.columns[term.column].spec.role !== "metric") return [];
  const { name } = trials.columns[term.column].spec;
  const found: string[] = [];
  if (term.low > -Infinity) found.push(`${name} >= ${term.low}`);
  if (term.high < Infinity) found.push(`${name} <= ${term.high}`);
  return found;
}

// --------------------------------------------------------------------------------------------------- Python

/** Returns lines of Python that select the same trials from the study's export. */
export function asPython(shared: Shared, { trials, chips, count: found }: Selection): string {
  const conditions = chips.map((chip) => {
    const terms = chip.terms.map((term) => pythonTerm(trials, term));
    return chip.not ? `~(${terms.join(" & ")})` : terms.join(" & ");
  });
  const chosen = conditions.length ? `trials[\n    ${conditions.join("\n    & ")}\n]` : "trials";
  return [
    `# cosmic study export ${shellWord(shared.source.document.study)} --to trials.csv`,
    ...(conditions.some((each) => each.includes("json.loads")) ? ["import json", ""] : []),
    "import pandas as pd",
    "",
    'trials = pd.read_csv("trials.csv", keep_default_na=False, na_values=[""])',
    `selected = ${chosen}`,
    `print(len(selected), "of", len(trials))  # here: ${found} of ${trials.count}`,
    "",
  ].join("\n");
}

function pythonTerm(trials: Trials, term: Term): string {
  if (term.column === OUTCOME) return pythonOutcome(term);
  const column = term.column === NUMBER ? null : trials.columns[term.column];
  const series = column ? pythonSeries(column) : 'trials["trial"]';
  if (term.kind === "among" && !column) return `${term.not ? "~" : ""}${series}.isin([${term.labels.join(", ")}])`;
  // Labels such as "50 GB/s" are text in the table: a range of them is listed.
  if (column && isChoice(column) && (term.kind === "among" || !plainNumbers(column))) return pythonChoices(series, column, term);
  const { low, high, openLow, openHigh } = term as Term & { kind: "range" };
  if (low === high) return `((${series} - ${low}).abs() <= ${Math.abs(low) * 1e-4})`;
  const parts: string[] = [];
  if (low > -Infinity) parts.push(`(${series} ${openLow ? ">" : ">="} ${low})`);
  if (high < Infinity) parts.push(`(${series} ${openHigh ? "<" : "<="} ${high})`);
  return parts.join(" & ");
}

/** Returns a column of the table; one entry of a tuple is taken out of the text of the tuple. */
function pythonSeries({ spec }: TrialColumn): string {
  const name = JSON.stringify(spec.part?.of ?? spec.name);
  return spec.part ? `trials[${name}].map(json.loads).str[${spec.part.place}]` : `trials[${name}]`;
}

function plainNumbers(column: TrialColumn): boolean {
  return isNumeric(column) && column.labels.every((label) => label !== "" && Number.isFinite(Number(label)));
}

function pythonChoices(series: string, column: TrialColumn, term: Term): string {
  const labels = column.labels.filter((_, code) => holding(column, term)[code]);
  const values = labels.filter((label) => label !== "-").map((label) => pythonValue(column, label));
  const isin = `${series}.isin([${values.join(", ")}])`;
  return labels.includes("-") ? `(${isin} | ${series}.isna())` : isin;
}

/** Returns a label as pandas reads it from the table. */
function pythonValue(column: TrialColumn, label: string): string {
  if (plainNumbers(column)) return label;
  const known = column.labels.filter((each) => each !== "-");
  if (known.every((each) => each === "true" || each === "false")) return label === "true" ? "True" : "False";
  if (label.includes(", ")) return JSON.stringify(JSON.stringify(label.split(", ").map(scalar)).replace(/,/g, ", "));
  return JSON.stringify(label);
}

function scalar(text: string): string | number | boolean | null {
  if (text === "-") return null;
  if (text === "true" || text === "false") return text === "true";
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

function pythonOutcome(term: Term): string {
  const labels = term.kind === "among" ? term.labels : [];
  const reasons = labels.filter((label) => label !== RUNS);
  const parts: string[] = [];
  if (labels.includes(RUNS)) parts.push('trials["feasible"]');
  if (reasons.length) parts.push(`trials["reasons"].isin([${reasons.map((reason) => JSON.stringify(reason)).join(", ")}])`);
  const either = parts.length > 1 ? `(${parts.join(" | ")})` : parts[0];
  return term.kind === "among" && term.not ? `~${either}` : either;
}

// ------------------------------------------------------------------------------------------------------ CSV

const FORMULA = /^[=+\-@\t\r]/;

function cell(text: string): string {
  // Spreadsheets would run such text as a formula.
  const harmless = FORMULA.test(text) && !Number.isFinite(Number(text)) ? `'${text}` : text;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replace(/"/g, '""')}"` : harmless;
}

/** Returns the selected trials as CSV: parameters as they are written in files, metrics in SI units. */
export function asCsv({ trials, selected }: Selection): string {
  const { columns, reasons, outcomes } = trials;
  const written = columns.map((column) => (isChoice(column) ? column.labels.map(cell) : null));
  const lines = [["trial", ...columns.map(({ spec }) => cell(spec.name)), "feasible", "reasons"].join(",")];
  for (let place = 0; place < trials.count; place++) {
    if (!selected[place]) continue;
    const cells: (string | number)[] = [trials.first + place];
    columns.forEach((column, each) => {
      const labels = written[each];
      const value = column.values[place];
      cells.push(labels ? (labels[column.codes![place]] ?? "") : Number.isNaN(value) ? "" : value);
    });
    cells.push(outcomes[place] === 0 ? "True" : "False", cell(reasons[outcomes[place]]));
    lines.push(cells.join(","));
  }
  return `${lines.join("\n")}\n`;
}
