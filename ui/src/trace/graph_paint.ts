// Draws the graph around a node.

import { FONT, type Frame } from "../base/canvas";
import type { Palette } from "../base/theme";
import { lookOf } from "../design/looks";
import { cutTo } from "../design/paint";
import type { Neighbourhood, Placed } from "./graph";
import { briefName } from "./nodes";
import { LOOKS } from "./spans";
import { timeText, type TraceState } from "./state";

/** Where the middle of the graph is on the canvas, and how large it is. */
export interface Camera {
  x: number;
  y: number;
  scale: number;
}

export const BOX = { width: 168, height: 38 };
const GAP = { x: 56, y: 12 };
const MARGIN = 24;
/** Smaller text cannot be read. */
const LEAST_SCALE = 0.6;

/** Returns the middle of a node's box, from the middle of the graph. */
export function placeOf({ layer, row, of }: Placed, layers: number): { x: number; y: number } {
  return { x: (layer - (layers - 1) / 2) * (BOX.width + GAP.x), y: (row - (of - 1) / 2) * (BOX.height + GAP.y) };
}

/** Returns how high a graph of some rows is, at its full size. */
export function heightOf(rows: number): number {
  return rows * (BOX.height + GAP.y) - GAP.y + 2 * MARGIN;
}

/** Returns the camera that shows all; where that would be smaller than `least`, the selected node is in the middle. */
export function fitted({ placed, layers, rows, centre }: Neighbourhood, width: number, height: number, least = LEAST_SCALE): Camera {
  const across = layers * (BOX.width + GAP.x) - GAP.x + 2 * MARGIN + 60; // room for counts at both sides
  const whole = Math.min(1, width / across, height / heightOf(rows));
  const scale = Math.max(least, whole);
  if (scale === whole) return { x: width / 2, y: height / 2, scale };
  const at = placeOf(placed.find(({ node }) => node === centre)!, layers);
  return { x: width / 2 - at.x * scale, y: height / 2 - at.y * scale, scale };
}

export function under({ placed, layers }: Neighbourhood, camera: Camera, at: { x: number; y: number }): Placed | null {
  const [x, y] = [(at.x - camera.x) / camera.scale, (at.y - camera.y) / camera.scale];
  return (
    placed.find((each) => {
      const middle = placeOf(each, layers);
      return Math.abs(x - middle.x) <= BOX.width / 2 && Math.abs(y - middle.y) <= BOX.height / 2;
    }) ?? null
  );
}

export function drawGraph(state: TraceState, around: Neighbourhood, camera: Camera, hovered: Placed | null, frame: Frame, colours: Palette): void {
  const { context } = frame;
  context.save();
  context.translate(camera.x, camera.y);
  context.scale(camera.scale, camera.scale);
  drawEdges(state, around, hovered, context, colours);
  for (const each of around.placed) drawBox(state, around, each, each === hovered, context, colours);
  context.restore();
}

function drawEdges({ nodes }: TraceState, { placed, edges, layers, centre }: Neighbourhood, hovered: Placed | null, context: CanvasRenderingContext2D, colours: Palette): void {
  const at = new Map(placed.map((each) => [each.node, placeOf(each, layers)]));
  const focus = hovered?.node ?? centre;
  // Those of the node in focus are drawn last, above the others.
  const mine = (edge: { from: number; to: number }): boolean => edge.from === focus || edge.to === focus;
  for (const edge of [...edges.filter((each) => !mine(each)), ...edges.filter(mine)]) {
    const [from, to] = [at.get(edge.from)!, at.get(edge.to)!];
    const [x0, x1] = [from.x + BOX.width / 2, to.x - BOX.width / 2];
    const own = mine(edge);
    const critical = nodes.critical[edge.from] === 1 && nodes.critical[edge.to] === 1;
    context.strokeStyle = context.fillStyle = own ? (edge.to === focus ? colours.accent : colours.focus) : critical ? colours.ink : colours.faint;
    context.globalAlpha = own ? 1 : critical ? 0.85 : edges.length > 60 ? 0.25 : 0.5;
    context.lineWidth = critical ? 2.2 : own ? 1.8 : 1;
    context.setLineDash(edge.ctrl ? [5, 4] : []);
    context.beginPath();
    context.moveTo(x0, from.y);
    if (x1 > x0) {
      const bend = Math.max(24, (x1 - x0) / 2);
      context.bezierCurveTo(x0 + bend, from.y, x1 - bend, to.y, x1 - 5, to.y);
    } else {
      // Back, in a cycle: below the boxes.
      const low = Math.max(from.y, to.y) + 1.4 * BOX.height;
      context.bezierCurveTo(x0 + 40, from.y, x0 + 40, low, (x0 + x1) / 2, low);
      context.bezierCurveTo(x1 - 45, low, x1 - 45, to.y, x1 - 5, to.y);
    }
    context.stroke();
    context.setLineDash([]);
    context.beginPath();
    context.moveTo(x1, to.y);
    context.lineTo(x1 - 7, to.y - 4);
    context.lineTo(x1 - 7, to.y + 4);
    context.fill();
  }
  context.globalAlpha = 1;
}

function drawBox(state: TraceState, around: Neighbourhood, each: Placed, hovered: boolean, context: CanvasRenderingContext2D, colours: Palette): void {
  const { nodes, kinds } = state;
  const { node, more } = each;
  const { x, y } = placeOf(each, around.layers);
  const [left, top] = [x - BOX.width / 2, y - BOX.height / 2];
  const look = lookOf({ class: LOOKS[kinds[nodes.kind[node]]], back: false });
  context.fillStyle = colours.paper;
  context.fillRect(left, top, BOX.width, BOX.height);
  context.fillStyle = look.fill;
  context.fillRect(left, top, 6, BOX.height);
  const chosen = node === around.centre;
  context.strokeStyle = chosen ? colours.accent : nodes.critical[node] ? colours.ink : colours.line;
  context.lineWidth = chosen ? 3 : nodes.critical[node] || hovered ? 2 : 1;
  context.strokeRect(left, top, BOX.width, BOX.height);
  const name = briefName(nodes.view.names[nodes.name[node]]) || nodes.view.types[nodes.type[node]];
  context.font = FONT;
  context.fillStyle = colours.ink;
  context.fillText(cutTo(context, name, BOX.width - 20), left + 12, top + 16);
  context.font = "11px system-ui, -apple-system, 'Segoe UI', sans-serif";
  context.fillStyle = colours.faint;
  const time = timeText(nodes.end[node] - nodes.start[node], nodes.view);
  context.fillText(cutTo(context, `${nodes.id[node]} · ${nodes.view.types[nodes.type[node]]} · ${time}`, BOX.width - 20), left + 12, top + 31);
  if (more.before > 0) {
    context.textAlign = "right";
    context.fillText(`+${more.before}`, left - 9, top + 14);
    context.textAlign = "left";
  }
  if (more.after > 0) context.fillText(`+${more.after}`, left + BOX.width + 5, top + 14);
}
