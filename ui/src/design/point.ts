// Draws what the reader points at, on the layer above the timeline: a time, a span, its dependencies, an area.

import { FONT, type Frame } from "../base/canvas";
import { show } from "../base/format";
import { type Palette, palette } from "../base/theme";
import { arrow, type Pick, type Scene, SMALL, timeAt, xOf } from "./paint";
import { rowOf } from "./rows";
import { neighbours } from "./spans";
import { tickText, type View } from "./view";

export interface Pointed {
  x: number | null;
  hovered: Pick | null;
  selected: Pick | null;
  area: View | null;
}

/** Draws what the reader points at: the time under the pointer, a span, its dependencies, an area. */
export function drawPointed(scene: Scene, pointed: Pointed, frame: Frame): void {
  const { context, width, height } = frame;
  const { gutter, head } = scene;
  const colours = palette();
  const { area, x, hovered, selected } = pointed;
  if (area) {
    const [x0, x1] = [Math.max(gutter, xOf(scene, area.from, width)), Math.min(width, xOf(scene, area.to, width))];
    if (x1 > x0) {
      context.fillStyle = context.strokeStyle = colours.accent;
      context.globalAlpha = 0.14;
      context.fillRect(x0, head, x1 - x0, height - head);
      context.globalAlpha = 1;
      context.fillRect(x0, 4, 1.5, height);
      context.fillRect(x1 - 1.5, 4, 1.5, height);
      const apart = area.to - area.from;
      tag(frame, scene.inSteps ? `${apart.toFixed(1)} steps` : show(apart, "s"), (x0 + x1) / 2, 0, colours, gutter);
    }
  } else if (x !== null && x >= gutter) {
    context.fillStyle = colours.faint;
    context.fillRect(Math.round(x), head, 1, height - head);
    const { from, to } = scene.view;
    tag(frame, tickText((to - from) / 1000, to, !scene.inSteps)(timeAt(scene, x, width)), x, 0, colours, gutter);
  }
  if (selected) {
    const { spans } = scene.lanes[selected.lane];
    const { before, after } = neighbours(spans, selected.span);
    for (const span of before.slice(0, 50)) arrow(scene, frame, { ...selected, span }, selected, colours.accent, 2);
    for (const span of after.slice(0, 50)) arrow(scene, frame, selected, { ...selected, span }, colours.focus, 2);
  }
  if (hovered) outline(scene, hovered, frame, colours.ink, 1.5);
  if (selected) outline(scene, selected, frame, colours.accent, 3);
}

function tag({ context, width }: Frame, text: string, x: number, y: number, colours: Palette, least: number): void {
  context.font = SMALL;
  const wide = context.measureText(text).width + 8;
  const left = Math.min(width - wide, Math.max(least, x - wide / 2));
  context.fillStyle = colours.ink;
  context.fillRect(left, y, wide, 16);
  context.fillStyle = colours.paper;
  context.fillText(text, left + 4, y + 12);
  context.font = FONT;
}

function outline(scene: Scene, { lane, span }: Pick, { context, width, height }: Frame, colour: string, thick: number): void {
  const { spans } = scene.lanes[lane];
  const row = rowOf(scene.rows, lane, spans.track[span]);
  if (!row) return;
  const y = row.top - scene.scroll + scene.head;
  if (y + row.height < scene.head) return;
  const [x0, x1] = [xOf(scene, spans.start[span], width), xOf(scene, spans.end[span], width)];
  context.save();
  context.beginPath();
  context.rect(scene.gutter - 2, scene.head, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = thick;
  context.strokeRect(x0 - 1, y + 1, Math.max(3, x1 - x0 + 1), row.height - 1);
  context.restore();
}
