// Painting of the scatter plot: density below, the front as steps and rings, base and best above.

import type { Frame } from "../base/canvas";
import { writer } from "../base/format";
import { type Scale, type Tick, ticksIn } from "../base/scale";
import { palette } from "../base/theme";
import type { TrialColumn } from "../trials";
import { colourOf, Layer, type Tone } from "./density";
import { holding, paintKinds } from "./deployments";
import { frontOf } from "./front";
import { cross, diamond, haloed, ring, star } from "./marks";
import { type Mask, placesOf } from "./mask";
import type { Explorer } from "./model";
import { axisTitle } from "./names";
import { CELL, type Plane, planeOf, splat } from "./points";

const RIGHT = 16;
const TOP = 28;
const BOTTOM = 44;
/** Up to so many trials, each has a mark; more are a density. */
export const FEW = 2000;
const MOST_CROSSES = 1500;

const LETTER = 6.6;

function yTicks(scale: Scale, height: number, unit: string): Tick[] {
  return ticksIn(scale, Math.floor(height / 44), unit);
}

export interface Scene {
  columns: [TrialColumn, TrialColumn];
  plane: Plane;
  /** Places of the trials on the front of these two metrics; empty where a metric has no better side. */
  front: number[];
  best: number;
  /** Where the base design lies; null where it has no place here. */
  base: { x: number; y: number } | null;
  /** Densities of the kept and of the selected. */
  layers: [Layer, Layer];
  /** Where trials lie that are as good as the best: one of each cell. */
  plateau: number[];
  /** Places of trials that break a limit but have values. */
  failed: number[];
  /** In a study of serving, the trials that hold the SLOs; null in others. */
  holds: Mask | null;
}

/** Returns what the plot shows, for a canvas of this size. */
export function sceneOf(model: Explorer, width: number, height: number): Scene {
  const { trials, view, kept } = model;
  const columns: [TrialColumn, TrialColumn] = [trials.columns[model.column(view.x.name)], trials.columns[model.column(view.y.name)]];
  const room = height - TOP - BOTTOM;
  const left = (scale: Scale): number =>
    LETTER * Math.max(...yTicks(scale, room, columns[1].spec.unit).map(({ text }) => text.length), 3) + 14;
  const area = { left, right: width - RIGHT, top: TOP, height: room };
  const plane = planeOf(trials, columns, [model.isLog(view.x), model.isLog(view.y)], kept, area, [model.limitOf(view.x.name), model.limitOf(view.y.name)]);
  const ordered = columns.every(({ spec }) => spec.better);
  const front = ordered && columns[0] !== columns[1] ? frontOf(trials, columns[0], columns[1], kept) : [];
  const failed: number[] = [];
  if (trials.reasons.length > 1)
    for (let place = 0; place < trials.count; place++) if (trials.outcomes[place] && kept[place] && plane.cells[place] >= 0) failed.push(place);
  const holds = SERVING ? holdsOf(model) : null;
  return { columns, plane, front, best: model.best, base: basePlace(model, columns), layers: [new Layer(), new Layer()], plateau: oneOfEach(plane, model.plateau), failed, holds };
}

function holdsOf({ trials, shared }: Explorer): Mask | null {
  const { serving } = shared.source.document;
  return serving && trials.pools ? holding(trials, serving.slos) : null;
}

/** Returns the metrics of the base design: those of its trial, or its facts by their labels. */
function basePlace(model: Explorer, columns: [TrialColumn, TrialColumn]): { x: number; y: number } | null {
  const { designs, base } = model.shared.source.document;
  if (base === null || !designs[base]) return null;
  const { trial, facts } = designs[base];
  const place = trial === null ? -1 : trial - model.trials.first;
  const [x, y] = columns.map((column) =>
    place >= 0 && place < model.trials.count ? column.values[place] : (facts.find((fact) => fact.label === column.spec.label)?.value ?? NaN),
  );
  return Number.isFinite(x) && Number.isFinite(y) ? { x, y } : null;
}

export function paintScene({ context, width, height }: Frame, model: Explorer, scene: Scene): void {
  const { plane, columns } = scene;
  const colours = palette();
  paintAxes({ context, width, height, ratio: 1 }, scene);
  context.save();
  context.beginPath();
  context.rect(plane.left - 6, plane.top - 6, plane.width + 12, plane.height + 12);
  context.clip();
  const brushed = model.brush.length > 0;
  const kinds = SERVING && scene.holds !== null;
  if (!kinds || model.trials.count > FEW) paintMask(context, model, scene, 0, { colour: colourOf(colours.faint), least: brushed ? 0.12 : 0.55, most: brushed ? 0.35 : 1 });
  if (brushed && !kinds) paintMask(context, model, scene, 1, { colour: colourOf(colours.accent), least: 0.55, most: 1 });
  paintBand(context, model, scene);
  if (SERVING && kinds) paintDeployments(context, model, scene, scene.holds!);
  else paintPlateau(context, model, scene);
  paintFailed(context, model, scene);
  paintLimits(context, model, scene);
  paintFront(context, model, scene);
  if (scene.base) star(context, plane.x.at(scene.base.x), plane.y.at(scene.base.y), 8, colours.paper, colours.ink);
  context.restore();
  if (scene.base && inside(plane, scene.base)) haloed(context, "base", plane.x.at(scene.base.x) + 10, plane.y.at(scene.base.y) + 4, colours.ink, colours.paper);
  paintBest(context, scene, columns, width);
  if (plane.without >= model.keptCount) {
    context.textAlign = "center";
    haloed(context, "None of the kept trials has both values.", plane.left + plane.width / 2, plane.top + plane.height / 2, colours.ink, colours.paper);
    context.textAlign = "left";
  }
}

function inside(plane: Plane, { x, y }: { x: number; y: number }): boolean {
  return x >= plane.x.low && x <= plane.x.high && y >= plane.y.low && y <= plane.y.high;
}

function paintAxes({ context, width, height }: Frame, { plane, columns }: Scene): void {
  const { ink, faint, line } = palette();
  const { left, top, width: wide, height: high } = plane;
  context.lineWidth = 1;
  context.strokeStyle = line;
  context.fillStyle = faint;
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.beginPath();
  for (const { value, text } of yTicks(plane.y, high, columns[1].spec.unit)) {
    const y = Math.round(plane.y.at(value)) + 0.5;
    context.moveTo(left, y);
    context.lineTo(left + wide, y);
    context.fillText(text, left - 8, y);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  let free = left - 20;
  for (const { value, text } of ticksIn(plane.x, Math.max(3, Math.floor(wide / 68)), columns[0].spec.unit)) {
    const x = Math.round(plane.x.at(value)) + 0.5;
    context.moveTo(x, top);
    context.lineTo(x, top + high);
    const half = context.measureText(text).width / 2;
    const middle = Math.min(x, width - half);
    if (middle - half < free) continue;
    context.fillText(text, middle, top + high + 6);
    free = middle + half + 8;
  }
  context.stroke();
  context.strokeRect(left + 0.5, top + 0.5, wide, high);
  context.fillStyle = ink;
  context.textAlign = "left";
  context.fillText(titled(columns[1], true, plane.y.log), 4, 4);
  context.textAlign = "right";
  context.textBaseline = "bottom";
  context.fillText(titled(columns[0], false, plane.x.log), left + wide, height - 4);
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
}

function titled(column: TrialColumn, upright: boolean, log: boolean): string {
  const title = axisTitle(column, upright);
  return log ? `${title} · log` : title;
}

function paintDeployments(context: CanvasRenderingContext2D, model: Explorer, { plane, columns }: Scene, holds: Mask): void {
  const { trials, kept, selected } = model;
  paintKinds(context, { plane, values: [columns[0].values, columns[1].values], pools: trials.pools!, holds, kept, selected, many: trials.count > FEW });
}

/** Few trials are dots, so that each is seen; many are a density. */
function paintMask(context: CanvasRenderingContext2D, model: Explorer, scene: Scene, which: 0 | 1, tone: Tone): void {
  const { plane, columns } = scene;
  const mask = which ? model.selected : model.kept;
  const { count } = model.trials;
  if (count > FEW) {
    const layer = scene.layers[which];
    const key = which ? "" : `${tone.colour.join()} ${tone.least}`;
    if (!key || layer.key !== key) {
      splat(plane, which ? model.places : placesOf(mask, new Uint32Array(mask.length)), layer);
      layer.colour(tone, false);
      layer.key = key;
    }
    context.imageSmoothingEnabled = false;
    layer.draw(context, plane.left, plane.top, plane.columns * CELL, plane.rows * CELL);
    return;
  }
  const [red, green, blue] = tone.colour;
  const radius = count > 300 ? 2 : 3;
  context.fillStyle = `rgba(${red}, ${green}, ${blue}, ${Math.min(1, tone.least + 0.25)})`;
  context.beginPath();
  for (let place = 0; place < count; place++) {
    if (!mask[place] || plane.cells[place] < 0) continue;
    const [x, y] = [plane.x.at(columns[0].values[place]), plane.y.at(columns[1].values[place])];
    context.moveTo(x + radius, y);
    context.arc(x, y, radius, 0, 2 * Math.PI);
  }
  context.fill();
}

/** Returns a trial of each cell in which there are some. */
function oneOfEach({ cells }: Plane, mask: Mask): number[] {
  const seen = new Map<number, number>();
  for (let place = 0; place < mask.length; place++) if (mask[place] && cells[place] >= 0) seen.set(cells[place], place);
  return [...seen.values()];
}

/** Trials as good as the best: larger than others, as many of them lie in few places. */
function paintPlateau(context: CanvasRenderingContext2D, model: Explorer, { plane, columns, plateau }: Scene): void {
  if (model.plateauCount < 2) return;
  context.fillStyle = palette().focus;
  for (const place of plateau) {
    const [x, y] = [plane.x.at(columns[0].values[place]), plane.y.at(columns[1].values[place])];
    context.fillRect(x - 2, y - 2, 4, 4);
  }
}

/** Pixels that a band has at least. */
const BAND = 5;

/** Where trials are as good as the best: a band along the axis of the objective. */
function paintBand(context: CanvasRenderingContext2D, model: Explorer, { plane, columns, best }: Scene): void {
  if (best < 0 || model.plateauCount < 2) return;
  const { left, top, width, height } = plane;
  context.fillStyle = palette().focus;
  context.globalAlpha = 0.16;
  columns.forEach((column, which) => {
    if (column !== model.trials.columns[model.objective]) return;
    const value = column.values[best];
    const end = column.spec.better === "more" ? value / (1 + model.plateauShare) : value * (1 + model.plateauShare);
    const scale = which ? plane.y : plane.x;
    const [one, other] = [scale.at(value), scale.at(end)].sort((a, b) => a - b);
    const room = Math.max(0, BAND - (other - one)) / 2;
    if (which) context.fillRect(left, one - room, width, other - one + 2 * room);
    else context.fillRect(one - room, top, other - one + 2 * room, height);
  });
  context.globalAlpha = 1;
}

/** The capacity of an accelerator where its memory is drawn, and the SLO of a latency. */
function paintLimits(context: CanvasRenderingContext2D, model: Explorer, { plane, columns }: Scene): void {
  const { failure, paper } = palette();
  const { left, top, width, height } = plane;
  [model.view.x, model.view.y].forEach(({ name }, which) => {
    const limit = model.limitOf(name);
    if (limit === null) return;
    const said = `${name === "memory_bytes" ? "capacity" : "SLO"} ${writer(columns[which].spec.unit, limit).text(limit)}`;
    context.strokeStyle = failure;
    context.lineWidth = 1.5;
    context.setLineDash([6, 4]);
    context.beginPath();
    if (which) {
      const y = Math.round(plane.y.at(limit)) + 0.5;
      context.moveTo(left, y);
      context.lineTo(left + width, y);
    } else {
      const x = Math.round(plane.x.at(limit)) + 0.5;
      context.moveTo(x, top);
      context.lineTo(x, top + height);
    }
    context.stroke();
    context.setLineDash([]);
    context.textAlign = which ? "left" : "right";
    // The best lies at the other end of an upright line.
    const far = columns[1].spec.better === "more" ? top + height - 8 : top + 16;
    const [x, y] = which ? [left + 6, plane.y.at(limit) + 14] : [plane.x.at(limit) - 6, far];
    haloed(context, said, x, y, failure, paper);
    context.textAlign = "left";
  });
}

/** Trials that break a limit but have values are crosses. */
function paintFailed(context: CanvasRenderingContext2D, model: Explorer, { plane, columns, failed }: Scene): void {
  context.beginPath();
  for (const place of failed.filter((each) => model.selected[each]).slice(0, MOST_CROSSES))
    cross(context, plane.x.at(columns[0].values[place]), plane.y.at(columns[1].values[place]), 2.5);
  context.strokeStyle = palette().failure;
  context.lineWidth = 1;
  context.stroke();
}

function paintFront(context: CanvasRenderingContext2D, model: Explorer, { plane, columns, front, holds }: Scene): void {
  const { focus, paper } = palette();
  const radius = SERVING && holds ? 7 : 4; // around the mark of its kind
  const [x, y] = columns.map(({ values }) => values);
  context.lineWidth = 1.5;
  context.strokeStyle = focus;
  context.beginPath();
  front.forEach((place, each) => {
    const [px, py] = [plane.x.at(x[place]), plane.y.at(y[place])];
    if (each) context.lineTo(px, plane.y.at(y[front[each - 1]]));
    context.lineTo(px, py);
  });
  context.stroke();
  const every = Math.ceil(front.length / 120);
  front.forEach((place, each) => {
    if (each % every) return;
    const [px, py] = [plane.x.at(x[place]), plane.y.at(y[place])];
    context.lineWidth = 2;
    context.fillStyle = paper;
    context.globalAlpha = model.selected[place] ? 1 : 0.35;
    ring(context, px, py, radius, focus);
    context.globalAlpha = 1;
  });
}

function paintBest(context: CanvasRenderingContext2D, { plane, best }: Scene, columns: [TrialColumn, TrialColumn], width: number): void {
  if (best < 0 || plane.cells[best] < 0) return;
  const { focus, ink, paper } = palette();
  const [x, y] = [plane.x.at(columns[0].values[best]), plane.y.at(columns[1].values[best])];
  diamond(context, x, y, 6, focus, paper);
  const right = x + 40 > width;
  context.textAlign = right ? "right" : "left";
  haloed(context, "best", right ? x - 9 : x + 9, y - 6 < plane.top ? y + 14 : y - 6, ink, paper);
  context.textAlign = "left";
}
