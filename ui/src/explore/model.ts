// The state of the explorer: filters, brush, axes. Views draw from it, and it notifies them.

import { readHash, writeHash } from "../base/hash";
import { Signal } from "../base/signal";
import type { Shared } from "../state";
import type { Trials } from "../trials";
import { attempt, type Drawn, drawnFrom, drawnText, type Sort, sortText } from "./address";
import { type Axis, axisOf, firstAxes, firstMetrics, logByDefault } from "./axes";
import { type Chip, chipsText, parseChips, parseTerms, type Term, termsText } from "./filter";
import { bestOf, bestShare, plateauOf } from "./front";
import { counted, keptBy, type Mask, maskOf, meet, placesOf } from "./mask";

export const MOST_COMPARED = 4;
const BEST_SHARE = 0.05;
/** Trials within this share of the best are as good as the best. */
const PLATEAU = 0.01;
/** Trials from which the first choice of axes is final. */
const EARLY = 200;

/** Parameters by which the capacity of an accelerator differs between trials. */
const CAPACITIES = ["memory.capacity", "compute.accelerator"];

export type { Drawn } from "./address";
export type Focus = "front" | "plateau" | "best" | "none";
const FOCUSES: string[] = ["front", "plateau", "best", "none"];

export interface View {
  x: Drawn;
  y: Drawn;
  axes: Drawn[];
  focus: Focus;
  sort: Sort;
  /** Columns of the table by name; null for the first choice. */
  columns: string[] | null;
  compared: number[];
}

/** What has changed: everything, only which trials are selected, or only the trial under the pointer. */
export type Changed = "all" | "brush" | "hover";
const WEIGHT: Record<Changed, number> = { hover: 0, brush: 1, all: 2 };

interface Snapshot {
  chips: Chip[];
  brush: Term[];
}

export class Explorer {
  trials: Trials;
  chips: Chip[] = [];
  brush: Term[] = [];
  view!: View;
  /** Trials that pass the chips, and of those the ones in the brush. */
  kept!: Mask;
  selected!: Mask;
  keptCount = 0;
  /** The place of the best kept trial, of those as good as the best the one that the page is about; -1 where none runs. */
  best = -1;
  /** Kept trials that are as good as the best. */
  plateau!: Mask;
  plateauCount = 0;
  /** Counts how often `kept` has changed. */
  filtered = 0;
  /** Places of the selected trials. */
  places: Uint32Array = new Uint32Array(0);
  focus!: Mask;
  focusCount = 0;
  /** Counts changes that components must render. */
  readonly revision = new Signal(0);
  /** A message: why a filter cannot be read, why a design cannot be opened. */
  readonly said = new Signal<{ text: string; command: string; bad: boolean } | null>(null);

  /** Count how often pictures are to be drawn: wholly, and only what lies over them. */
  readonly drawn = new Signal(0);
  readonly touched = new Signal(0);

  private painters = new Set<(changed: Changed) => void>();
  private pending: Changed | null = null;
  private frame = 0;
  private undone: Snapshot[] = [];
  private room = new Uint32Array(0);
  private masks = new Map<number, { term: Term; mask: Mask }>();
  private axes = new Map<string, Axis>();
  /** The axes to begin with. */
  firstAxes: string[] = [];

  constructor(readonly shared: Shared) {
    this.trials = shared.source.trials.value;
    this.readHash();
  }

  /** Loads new trials. */
  load(trials: Trials): void {
    const early = this.trials.count < EARLY && this.view.axes.map(drawnText).join() === this.firstAxes.join();
    this.trials = trials;
    this.masks.clear();
    this.axes.clear();
    if (early) this.begin();
    this.filter();
    this.tell("all");
    this.revision.value += 1;
  }

  /** Chooses axes again: the first few trials of a study do not show which matter. */
  private begin(): void {
    const { trials, view } = this;
    const [x, y] = this.firstPlane;
    this.firstAxes = firstAxes(trials).map((place) => trials.columns[place].spec.name);
    this.view = { ...view, axes: this.firstAxes.map((name) => ({ name })), x: view.x.name ? view.x : { name: x }, y: view.y.name ? view.y : { name: y } };
  }

  // ------------------------------------------------------------------------------------------------- filters

  private filter(): void {
    this.filtered += 1;
    this.kept = keptBy(this.trials, this.chips);
    this.keptCount = counted(this.kept);
    const aim = this.trials.columns[this.objective];
    const top = bestOf(this.trials, aim, this.kept);
    this.plateau = plateauOf(this.trials, aim, top, this.plateauShare, this.kept);
    const shown = this.shownBest;
    // Of deployments, what a page is about may have been chosen by what no column says: the fewest accelerators.
    const may = SERVING && this.shared.source.document.serving ? this.kept : this.plateau;
    this.best = shown >= 0 && may[shown] ? shown : top;
    this.plateauCount = counted(this.plateau);
    this.refocus();
    this.select();
  }

  private select(): void {
    const selected = this.selected?.length === this.trials.count ? this.selected : new Uint8Array(this.trials.count);
    selected.set(this.kept);
    for (const term of this.brush) {
      const known = this.masks.get(term.column);
      if (known?.term !== term) this.masks.set(term.column, { term, mask: maskOf(this.trials, term, known?.mask) });
      meet(selected, this.masks.get(term.column)!.mask);
    }
    this.selected = selected;
    if (this.room.length !== selected.length) this.room = new Uint32Array(selected.length);
    this.places = placesOf(selected, this.room);
  }

  /** Replaces the brush on some columns: by terms, or by nothing. */
  brushOn(columns: number[], terms: Term[]): void {
    this.brush = [...this.brush.filter((term) => !columns.includes(term.column)), ...terms];
    this.select();
    this.tell("brush");
  }

  brushed(column: number): Term | undefined {
    return this.brush.find((term) => term.column === column);
  }

  /** Saves the state for `undo`. */
  remember(): void {
    this.undone.push({ chips: this.chips, brush: this.brush });
  }

  get selectedCount(): number {
    return this.places.length;
  }

  get canUndo(): boolean {
    return this.undone.length > 0;
  }

  undo(): void {
    const last = this.undone.pop();
    if (last) this.restore(last.chips, last.brush);
  }

  change(chips: Chip[], brush: Term[] = this.brush): void {
    this.remember();
    this.restore(chips, brush);
  }

  private restore(chips: Chip[], brush: Term[]): void {
    this.chips = chips;
    this.brush = brush;
    this.said.value = null;
    this.filter();
    this.committed("all");
  }

  /** Keeps only the brushed trials. */
  keep(): void {
    if (this.brush.length) this.change([...this.chips, { not: false, terms: this.brush }], []);
  }

  exclude(): void {
    if (this.brush.length) this.change([...this.chips, { not: true, terms: this.brush }], []);
  }

  clearBrush(): void {
    if (this.brush.length) this.change(this.chips, []);
  }

  /** Ends a gesture: writes the address. */
  committed(changed: Changed = "brush"): void {
    this.writeHash();
    this.tell(changed);
    this.revision.value += 1;
  }

  // ---------------------------------------------------------------------------------------------------- view

  setView(part: Partial<View>): void {
    this.view = { ...this.view, ...part };
    if (part.focus) this.refocus();
    this.committed("all");
  }

  column(name: string): number {
    return this.trials.columns.findIndex(({ spec }) => spec.name === name);
  }

  isLog(drawn: Drawn): boolean {
    const column = this.trials.columns[this.column(drawn.name)];
    return drawn.log ?? (column ? logByDefault(column) : false);
  }

  axis(drawn: Drawn): Axis {
    const log = this.isLog(drawn);
    const key = `${drawn.name} ${log}`;
    let axis = this.axes.get(key);
    if (!axis) this.axes.set(key, (axis = axisOf(this.trials, this.column(drawn.name), log, this.limitOf(drawn.name))));
    return axis;
  }

  /** The first metrics of the scatter plot; in a study of serving, speed for each user and throughput of a GPU. */
  private get firstPlane(): [string, string] {
    const { serving } = this.shared.source.document;
    const drawn = (name: string): boolean => {
      const column = this.trials.columns[this.column(name)];
      return column !== undefined && column.low <= column.high;
    };
    return SERVING && serving && drawn(serving.user) && drawn(serving.npu) ? [serving.user, serving.npu] : firstMetrics(this.trials);
  }

  /** Returns the SLO of a latency, or the capacity of an accelerator for its memory, where all designs have the same. */
  limitOf(name: string): number | null {
    const slo = SERVING ? this.shared.source.document.serving?.slos.find((each) => each.metric === name) : undefined;
    if (slo) return slo.limit_s;
    if (name !== "memory_bytes" || this.trials.columns.some(({ spec, low, high }) => CAPACITIES.includes(spec.name) && high > low)) return null;
    const { designs, best, base } = this.shared.source.document;
    const capacity = designs[best ?? base ?? 0]?.capacity_bytes ?? 0;
    return capacity > 0 ? capacity : null;
  }

  /** The place of the best design of the document; -1 where it is none of these trials. */
  private get shownBest(): number {
    const { designs, best } = this.shared.source.document;
    const trial = best === null ? null : designs[best].trial;
    const place = trial === null ? -1 : trial - this.trials.first;
    return place < this.trials.count ? place : -1;
  }

  /** Whether the table is sorted as at first: best first. */
  get bestFirst(): boolean {
    return sortText(this.view.sort) === sortText(this.firstSort);
  }

  get plateauShare(): number {
    return this.shared.source.document.verdict.plateau?.share ?? PLATEAU;
  }

  get objective(): number {
    return this.trials.columns.findIndex(({ spec }) => spec.objective);
  }

  private refocus(): void {
    const { trials, view } = this;
    if (view.focus === "plateau") this.focus = this.plateau;
    else if (view.focus === "best") this.focus = bestShare(trials, trials.columns[this.objective], BEST_SHARE, this.kept);
    else {
      this.focus = new Uint8Array(trials.count);
      if (view.focus === "front")
        for (const trial of this.shared.source.front.value) this.focus[trial - trials.first] = this.kept[trial - trials.first];
    }
    this.focusCount = counted(this.focus);
  }

  compare(trial: number): void {
    const { compared } = this.view;
    if (compared.includes(trial)) this.setView({ compared: compared.filter((each) => each !== trial) });
    else this.setView({ compared: [...compared, trial].slice(-MOST_COMPARED) });
  }

  // ------------------------------------------------------------------------------------------------ painting

  /** Calls `painter` when pictures must be drawn, at most once per frame. */
  onPaint(painter: (changed: Changed) => void): () => void {
    this.painters.add(painter);
    return () => this.painters.delete(painter);
  }

  tell(changed: Changed): void {
    if (this.pending === null || WEIGHT[changed] > WEIGHT[this.pending]) this.pending = changed;
    this.frame ||= requestAnimationFrame(() => this.paintNow());
  }

  paintNow(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const changed = this.pending;
    this.pending = null;
    if (!changed) return;
    // Pictures first: they read their size, which would force a layout after the table has changed.
    if (changed === "hover") this.touched.value += 1;
    else this.drawn.value += 1;
    for (const painter of this.painters) painter(changed);
  }

  // ------------------------------------------------------------------------------------------------- address

  /** Reads the state from the address; ignores what cannot be read. */
  readHash(): void {
    const { trials } = this;
    this.firstAxes = firstAxes(trials).map((place) => trials.columns[place].spec.name);
    this.chips = attempt(() => parseChips(trials, readHash("where")), []);
    this.brush = attempt(() => parseTerms(trials, readHash("brush")), []);
    const metrics = this.firstPlane;
    const known = (drawn: Drawn): boolean => this.column(drawn.name) >= 0;
    const axes = readHash("axes").split(",").filter(Boolean).map(drawnFrom).filter(known);
    const [x, y] = [drawnFrom(readHash("x")), drawnFrom(readHash("y"))];
    const focus = readHash("focus");
    const sort = readHash("sort");
    this.view = {
      x: known(x) ? x : { name: metrics[0] },
      y: known(y) ? y : { name: metrics[1] },
      axes: axes.length ? axes : this.firstAxes.map((name) => ({ name })),
      focus: FOCUSES.includes(focus) ? (focus as Focus) : this.firstFocus,
      sort: sort ? { name: sort.replace(/^-/, ""), down: sort.startsWith("-") } : this.firstSort,
      columns: readHash("columns") ? readHash("columns").split(",") : null,
      compared: readHash("compare").split(",").filter(Boolean).map(Number).filter((trial) => trial >= trials.first && trial < trials.first + trials.count),
    };
    this.filter();
  }

  /** With a front of one or two trials, the focus is on all that are as good as the best. */
  private get firstFocus(): Focus {
    return this.shared.source.front.value.length > 2 ? "front" : "plateau";
  }

  private get firstSort(): Sort {
    const first = this.trials.columns[this.objective];
    return { name: first?.spec.name ?? "trial", down: first?.spec.better === "more" };
  }

  /** Reads an address that was changed from outside. */
  follow(): void {
    this.readHash();
    this.tell("all");
    this.revision.value += 1;
  }

  private writeHash(): void {
    const { trials, view } = this;
    const axes = view.axes.map(drawnText).join(",");
    const metrics = this.firstPlane;
    writeHash("where", chipsText(trials, this.chips));
    writeHash("brush", termsText(trials, this.brush));
    writeHash("x", drawnText(view.x) === metrics[0] ? "" : drawnText(view.x));
    writeHash("y", drawnText(view.y) === metrics[1] ? "" : drawnText(view.y));
    writeHash("axes", axes === this.firstAxes.join(",") ? "" : axes);
    writeHash("focus", view.focus === this.firstFocus ? "" : view.focus);
    writeHash("sort", sortText(view.sort) === sortText(this.firstSort) ? "" : sortText(view.sort));
    writeHash("columns", view.columns?.join(",") ?? "");
    writeHash("compare", view.compared.join(","));
  }
}
