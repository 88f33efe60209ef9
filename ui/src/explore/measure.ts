// The time from a move of a brush until all views show it.

import type { Shared } from "../state";
import type { Term } from "./filter";
import type { Explorer } from "./model";

const explorers = new WeakMap<Shared, Explorer>();

export function nameExplorer(shared: Shared, model: Explorer): void {
  explorers.set(shared, model);
}

const MOVES = 20;

/** Returns milliseconds for each of some moves of a brush: filter, all three views, and the pixels they draw. */
export function measureBrush(shared: Shared, moves = MOVES): number[] {
  const model = explorers.get(shared);
  const name = model?.view.x.name;
  if (!model || !name) return [];
  const column = model.column(name);
  const { low, high } = model.axis(model.view.x).scale ?? { low: 0, high: 1 };
  const before = model.brush;
  const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true })!;
  const found: number[] = [];
  for (let move = 0; move < moves; move++) {
    const from = low + ((high - low) * move) / (2 * moves);
    const term: Term = { kind: "range", column, low: from, high: from + (high - low) / 2, openLow: false, openHigh: false };
    const start = performance.now();
    model.brushOn([column], [term]);
    model.paintNow();
    // Reading a pixel of each picture makes the browser finish drawing it.
    for (const canvas of document.querySelectorAll<HTMLCanvasElement>(".explore canvas")) {
      pixel.drawImage(canvas, 0, 0, 1, 1, 0, 0, 1, 1);
      pixel.getImageData(0, 0, 1, 1);
    }
    found.push(performance.now() - start);
  }
  model.brushOn(model.brush.map((each) => each.column), before);
  model.paintNow();
  return found;
}
