// The visible rows of the table: a few elements, refilled as the reader scrolls, sorts or brushes.

import type { TrialColumn } from "../trials";
import { isChoice } from "./filter";
import type { Explorer } from "./model";
import { cellText, outcomeText } from "./names";
import { orderBy, orderOf, ordered } from "./sorting";

export const ROW = 27;
const BEYOND = 2;

/** A column of the table: a column of the trials, or what every trial has besides. */
export interface Field {
  name: string;
  label: string;
  column: TrialColumn | null;
}

export function fieldOf(model: Explorer, name: string): Field {
  const column = model.trials.columns[model.column(name)] ?? null;
  return { name, label: column ? column.spec.label : name, column };
}

export function isRight({ name, column }: Field): boolean {
  return name === "trial" || (!!column && (!isChoice(column) || column.choices.every((value) => typeof value === "number")));
}

export class Rows {
  /** Places of the selected trials as they are sorted. */
  list: Uint32Array<ArrayBufferLike> = new Uint32Array(0);
  private buffer = new Uint32Array(0);
  private orders = new Map<string, Uint32Array>();
  private counted = -1;
  private top = 0;
  private high = 400;
  private pool: HTMLTableRowElement[] = [];
  private fields: Field[] = [];
  private above = document.createElement("tr");
  private below = document.createElement("tr");

  constructor(
    private model: Explorer,
    private body: HTMLTableSectionElement,
    private box: HTMLElement,
  ) {
    for (const spacer of [this.above, this.below]) spacer.setAttribute("aria-hidden", "true");
  }

  /** Reads the scroll position and the height, only when they change, as reading forces a layout. */
  look(): void {
    this.top = this.box.scrollTop;
    this.high = this.box.clientHeight || this.high;
    this.fill();
  }

  /** Sets the columns and builds rows for them. */
  show(fields: Field[]): void {
    this.fields = fields;
    this.pool = [];
    this.body.replaceChildren(this.above, this.below);
    this.select();
  }

  /** Updates the selection and the order. */
  select(): void {
    const { trials, view, selected } = this.model;
    if (this.counted !== trials.count) {
      this.counted = trials.count;
      this.orders.clear();
      this.buffer = new Uint32Array(trials.count);
    }
    this.list = ordered(this.order(view.sort), selected, this.buffer);
    if (this.model.bestFirst) lead(this.list, this.model.best);
    this.fill();
  }

  private order({ name, down }: { name: string; down: boolean }): Uint32Array {
    const key = `${name} ${down}`;
    let order = this.orders.get(key);
    if (!order) {
      const { trials } = this.model;
      const column = trials.columns[this.model.column(name)];
      if (column) order = orderBy(trials, column, down);
      else order = orderOf(name === "outcome" ? trials.outcomes : Float64Array.from({ length: trials.count }, (_, place) => place), down);
      this.orders.set(key, order);
    }
    return order;
  }

  /** Fills the visible rows. */
  fill(): void {
    const { top, high } = this;
    const number = this.list.length;
    const room = Math.ceil(high / ROW) + 2 * BEYOND;
    const first = Math.max(0, Math.min(Math.floor(top / ROW) - BEYOND, number - room));
    const last = Math.min(number, first + room);
    while (this.pool.length < last - first) this.pool.push(this.addRow());
    this.above.style.height = `${first * ROW}px`;
    this.below.style.height = `${(number - last) * ROW}px`;
    this.pool.forEach((row, each) => this.fillRow(row, first + each, last));
  }

  private addRow(): HTMLTableRowElement {
    const row = document.createElement("tr");
    for (const field of this.fields) {
      const cell = document.createElement(field.name === "trial" ? "th" : "td");
      if (isRight(field)) cell.className = "number";
      if (field.name === "trial") cell.setAttribute("scope", "row");
      cell.append("");
      row.append(cell);
    }
    this.body.insertBefore(row, this.below);
    return row;
  }

  private fillRow(row: HTMLTableRowElement, index: number, last: number): void {
    row.hidden = index >= last;
    if (row.hidden) return;
    const { model } = this;
    const { trials } = model;
    const place = this.list[index];
    const trial = trials.first + place;
    row.dataset.place = String(place);
    row.setAttribute("aria-rowindex", String(index + 2));
    const failed = trials.outcomes[place] !== 0;
    row.className = [failed ? "failed" : "", model.shared.hovered.value === trial ? "hovered" : "", model.view.compared.includes(trial) ? "compared" : ""].join(" ").trim();
    this.fields.forEach((field, each) => {
      const text = field.column ? cellText(field.column, place) : field.name === "trial" ? `${mark(model, place)}${trial}` : outcomeText(trials, place);
      const node = row.cells[each].firstChild as Text;
      if (node.data !== text) node.data = text;
    });
  }

  /** Marks the trial under the pointer in any view. */
  mark(): void {
    const now = this.model.shared.hovered.value;
    for (const row of this.pool) row.classList.toggle("hovered", now !== null && Number(row.dataset.place) === now - this.model.trials.first);
  }

  /** Returns the row of a trial; -1 where it is not selected. */
  indexOf(trial: number | null): number {
    return trial === null ? -1 : this.list.indexOf(trial - this.model.trials.first);
  }

  scrollTo(index: number): void {
    const { box } = this;
    const head = ROW;
    if (index * ROW < box.scrollTop) box.scrollTop = index * ROW;
    else if ((index + 1) * ROW + head > box.scrollTop + box.clientHeight) box.scrollTop = (index + 1) * ROW + head - box.clientHeight;
    this.look();
  }
}

/** Moves a trial to the front of a list, if it is in it. */
export function lead(list: Uint32Array, place: number): void {
  const at = place < 0 ? -1 : list.indexOf(place);
  if (at <= 0) return;
  list.copyWithin(1, 0, at);
  list[0] = place;
}

/** Returns the mark of the best, of a trial on the front, or of one as good as the best: the same as in every view. */
function mark(model: Explorer, place: number): string {
  if (place === model.best) return "◆ ";
  if (model.view.focus === "front" && model.focus[place]) return "○ ";
  return model.plateau[place] ? "≈ " : "";
}
