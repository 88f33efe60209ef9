// Trials of a study of serving: aggregated or disaggregated, and which hold the SLOs.

import { palette } from "../base/theme";
import type { ServingStudy, Slo } from "../document";
import type { Trials } from "../trials";
import type { Mask } from "./mask";
import type { Plane } from "./points";

/** Circles where every instance does all, triangles where pools of their own prefill. */
export const KINDS = ["aggregated", "disaggregated"] as const;
const DOT = 4;
const SMALL = 2.5;

/** Returns which trials hold every limit. */
export function holding(trials: Trials, slos: Slo[]): Mask {
  const mask = new Uint8Array(trials.count);
  const columns = slos.map((slo) => trials.columns.find(({ spec }) => spec.name === slo.metric));
  for (let place = 0; place < trials.count; place++)
    mask[place] = trials.outcomes[place] === 0 && slos.every((slo, each) => !columns[each] || columns[each].values[place] <= slo.limit_s) ? 1 : 0;
  return mask;
}

/** Returns how many trials of each kind all masks have. */
export function kindCounts(trials: Trials, ...among: Mask[]): [number, number] {
  const counts: [number, number] = [0, 0];
  for (let place = 0; place < trials.count; place++) if (among.every((mask) => mask[place])) counts[trials.pools?.[place] ? 1 : 0]++;
  return counts;
}

/** Returns the trials that run, and those that would but for an SLO that the search had as a limit. */
export function serving(trials: Trials, slos: Slo[]): Mask {
  const late = trials.reasons.map((reason) => reason.split(", ").every((each) => slos.some((slo) => each.startsWith(`${slo.metric} <`))));
  return Uint8Array.from(trials.outcomes, (outcome) => (outcome === 0 || late[outcome] ? 1 : 0));
}

/** Returns whether the axes are those of the trade-off of serving. */
export function isTradeOff(study: ServingStudy | undefined, x: string, y: string): study is ServingStudy {
  return study !== undefined && x === study.user && y === study.npu;
}

interface Painted {
  plane: Plane;
  values: [Float64Array, Float64Array];
  pools: Uint8Array;
  holds: Mask;
  kept: Mask;
  selected: Mask;
  /** Whether there are so many that a density lies below, and one mark of each cell is enough. */
  many: boolean;
}

/** Paints trials by kind: filled where they hold the SLOs, hollow where they do not. */
export function paintKinds(context: CanvasRenderingContext2D, painted: Painted): void {
  const { plane, values, pools, holds, kept, selected, many } = painted;
  const { classes, paper } = palette();
  const seen = many ? new Uint8Array(plane.columns * plane.rows) : null;
  const paths = KINDS.map(() => [new Path2D(), new Path2D(), new Path2D()]); // hollow, filled, not selected
  const size = many ? SMALL : DOT;
  for (let place = 0; place < kept.length; place++) {
    const cell = plane.cells[place];
    if (!kept[place] || cell < 0 || (many && !holds[place])) continue;
    const kind = pools[place] ? 1 : 0;
    if (seen) {
      if (seen[cell] & (1 << kind)) continue;
      seen[cell] |= 1 << kind;
    }
    const path = paths[kind][selected[place] ? holds[place] : 2];
    mark(path, kind, plane.x.at(values[0][place]), plane.y.at(values[1][place]), size);
  }
  [classes.compute, classes.memory].forEach((colour, kind) => {
    const [hollow, filled, faded] = paths[kind];
    context.strokeStyle = colour;
    context.fillStyle = colour;
    context.lineWidth = 1.25;
    context.globalAlpha = 0.2;
    context.stroke(faded);
    context.globalAlpha = 0.75;
    context.stroke(hollow);
    context.globalAlpha = 1;
    if (!many) {
      context.strokeStyle = paper; // an edge below the marks: those that lie on each other stay whole
      context.lineWidth = 1.5;
      context.stroke(filled);
    }
    context.fill(filled);
  });
}

function mark(path: Path2D, kind: number, x: number, y: number, size: number): void {
  if (kind) {
    path.moveTo(x, y - 1.25 * size);
    path.lineTo(x + 1.1 * size, y + 0.75 * size);
    path.lineTo(x - 1.1 * size, y + 0.75 * size);
    path.closePath();
  } else {
    path.moveTo(x + size, y);
    path.arc(x, y, size, 0, 2 * Math.PI);
  }
}
