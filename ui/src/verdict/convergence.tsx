// The convergence of each search: the best so far over the designs evaluated.

import { Canvas, type Frame, pointerAt } from "../base/canvas";
import { Card } from "../base/card";
import { count, show } from "../base/format";
import { type Scale, scale, ticksIn, wantsLog } from "../base/scale";
import { palette } from "../base/theme";
import { hideTip, showTip } from "../base/tip";
import type { Convergence } from "../document";
import { convergenceReading } from "./readings";

const HEIGHT = 260;
const MARGIN = { left: 72, right: 16, top: 28, bottom: 40 };
const LETTER = 6.6;
/** Lines differ in more than colour. */
export const DASHES: number[][] = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2], [1, 4]];

interface Axes {
  x: Scale;
  y: Scale;
}

function axesOf({ series, unit }: Convergence, width: number): Axes {
  const points = series.flatMap((each) => each.points);
  const values = points.map((each) => each[1]);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const most = Math.max(...points.map((each) => each[0]));
  const pad = high > low && !wantsLog(low, high) ? 0.05 * (high - low) : 0;
  const y = scale(low - pad, high + pad, HEIGHT - MARGIN.bottom, MARGIN.top, wantsLog(low, high));
  const left = Math.max(MARGIN.left, ...ticksIn(y, 7, unit).map(({ text }) => LETTER * text.length + 10));
  return { x: scale(1, Math.max(2, most), left, Math.max(left + 10, width - MARGIN.right), true), y };
}

/** Returns the best that a search had found after some evaluations; null before its first. */
export function bestAfter(points: [number, number][], evaluations: number): number | null {
  let found: number | null = null;
  for (const [at, value] of points) {
    if (at > evaluations) break;
    found = value;
  }
  return found;
}

export function ConvergenceCard({ convergence }: { convergence: Convergence }) {
  const series = convergence.series.filter((each) => each.points.length > 0);
  return (
    <Card
      id="convergence"
      title="How the searches converged"
      reading={convergenceReading(convergence)}
      twin={() => ({
        columns: ["search", "designs evaluated", `best ${convergence.label} so far`],
        rows: series.flatMap((each) => each.points.map(([at, value]) => [each.name, at, value])),
      })}
    >
      {series.length === 0 ? (
        <p class="empty">Nothing to draw: no search found a feasible design.</p>
      ) : (
        <ConvergenceChart convergence={{ ...convergence, series }} />
      )}
    </Card>
  );
}

/** The chart alone, of series that each have a point. */
export function ConvergenceChart({ convergence }: { convergence: Convergence }) {
  const { series, unit, label } = convergence;
  const hover = (event: PointerEvent): void => {
    const canvas = event.currentTarget as HTMLCanvasElement;
    const at = Math.max(1, Math.round(axesOf(convergence, canvas.clientWidth).x.of(pointerAt(event, canvas).x)));
    const lines = series.map((each) => `${each.name}: ${show(bestAfter(each.points, at), unit)}`);
    showTip(event, [`after ${count(at)} designs`, ...lines]);
  };
  return (
    <>
      <ul class="named">
        {series.map((each, place) => (
          <li key={each.name}>
            <svg class={`stroke-${place % 6}`} width="28" height="8" aria-hidden="true">
              <line x1="0" y1="4" x2="28" y2="4" stroke-width="2" stroke-dasharray={DASHES[place % 6].join(" ")} />
            </svg>
            {each.name}
          </li>
        ))}
      </ul>
      <Canvas
        height={HEIGHT}
        label={`Best ${label} so far over designs evaluated. ${convergenceReading(convergence)}`}
        draw={(frame) => draw(frame, convergence)}
        on={{ onPointerMove: hover, onPointerLeave: hideTip }}
      />
    </>
  );
}

function draw({ context, width }: Frame, convergence: Convergence): void {
  const { x, y } = axesOf(convergence, width);
  const colours = palette();
  drawAxes(context, width, { x, y }, convergence);
  context.lineWidth = 2;
  context.lineJoin = "round";
  convergence.series.forEach(({ points }, place) => {
    context.strokeStyle = colours.series[place % colours.series.length];
    context.setLineDash(DASHES[place % DASHES.length]);
    context.beginPath();
    points.forEach(([at, value], index) => {
      if (index === 0) context.moveTo(x.at(at), y.at(value));
      else {
        context.lineTo(x.at(at), y.at(points[index - 1][1]));
        context.lineTo(x.at(at), y.at(value));
      }
    });
    context.stroke();
    context.setLineDash([]);
    const [at, value] = points[points.length - 1];
    context.fillStyle = context.strokeStyle;
    context.beginPath();
    context.arc(x.at(at), y.at(value), 3.5, 0, 2 * Math.PI);
    context.fill();
  });
}

function drawAxes(context: CanvasRenderingContext2D, width: number, { x, y }: Axes, { unit, label, better }: Convergence): void {
  const { faint, line } = palette();
  const left = x.at(1);
  context.lineWidth = 1;
  context.strokeStyle = line;
  context.fillStyle = faint;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const { value, text } of ticksIn(y, 7, unit)) {
    const at = Math.round(y.at(value)) + 0.5;
    context.beginPath();
    context.moveTo(left, at);
    context.lineTo(width - MARGIN.right, at);
    context.stroke();
    context.fillText(text, left - 8, at);
  }
  context.textBaseline = "top";
  // There is no half of a design.
  for (const tick of x.ticks(width < 500 ? 4 : 8).filter((each) => Math.abs(each - Math.round(each)) < 1e-9)) {
    // The last one must not be cut by the edge.
    context.textAlign = x.at(tick) > width - 32 ? "right" : "center";
    context.fillText(count(Math.round(tick)), Math.min(x.at(tick), width - 2), HEIGHT - MARGIN.bottom + 6);
  }
  context.textAlign = "right";
  context.fillText("designs evaluated", width - MARGIN.right, HEIGHT - 14);
  context.textAlign = "left";
  context.fillText(`best ${label} so far: ${better} is better`, left, 4);
}
