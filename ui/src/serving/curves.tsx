// Latency over load: time to first token and time per output token, with their limits and the design's own load.

import { useRef, useState } from "preact/hooks";
import { Canvas, type Frame, pointerAt } from "../base/canvas";
import { Card, type Twin } from "../base/card";
import { count, digits, show } from "../base/format";
import { type Scale, scale, ticksIn, wantsLog } from "../base/scale";
import { palette } from "../base/theme";
import { hideTip, showTip } from "../base/tip";
import type { Curve, Curves, Serving } from "../document";
import { haloed } from "../explore/marks";
import { paintTradeOff, tradeOffLoad } from "./trade_off";

const HEIGHT = 260;
const MARGIN = { left: 62, right: 14, top: 28, bottom: 42 };
/** The tail is what a limit is about: it is the solid line. */
const DASHES: Record<"p50_s" | "p95_s", number[]> = { p95_s: [], p50_s: [6, 4] };
const STATISTICS = ["p95_s", "p50_s"] as const;
/** How far above the largest limit, or the latency at the design's load, a chart reaches: queues have no bound. */
const ROOM = 6;

interface Axes {
  x: Scale;
  y: Scale;
}

function known(values: (number | null)[]): number[] {
  return values.filter((each): each is number => each !== null && each > 0 && Number.isFinite(each));
}

/** Returns the largest latency to draw: beyond a few times what matters, a queue only shows that it is one. */
export function ceiling(curve: Curve, curves: Curves): number {
  const own = known(curve.p95_s.filter((_, place) => curves.loads[place] <= curves.at * 1.0001));
  const matters = Math.max(curve.slo?.limit_s ?? 0, ...own);
  const most = Math.max(...known([...curve.p95_s, ...curve.p50_s]), curve.slo?.limit_s ?? 0);
  return matters > 0 ? Math.min(most, ROOM * matters) : most;
}

function axesOf(curve: Curve, curves: Curves, width: number): Axes {
  const values = known([...curve.p50_s, ...curve.p95_s]);
  const high = ceiling(curve, curves);
  const low = Math.min(...values, curve.slo?.limit_s ?? Infinity);
  const log = wantsLog(low, high);
  const pad = (high - low || high) * 0.08;
  const bounds: [number, number] = log ? [low / 1.25, high * 1.25] : [Math.max(0, low - pad), high + pad];
  return {
    x: scale(curves.loads[0], curves.loads[curves.loads.length - 1], MARGIN.left, Math.max(MARGIN.left + 10, width - MARGIN.right), true),
    y: scale(...bounds, HEIGHT - MARGIN.bottom, MARGIN.top, log),
  };
}

/** Returns which load is nearest to a place on the axis. */
export function nearestLoad(loads: number[], wanted: number): number {
  const far = (load: number): number => Math.abs(Math.log(load / wanted));
  return loads.reduce((best, load, place) => (far(load) < far(loads[best]) ? place : best), 0);
}

/** Returns a number of requests: whole ones in full. */
export function loadNumber(load: number): string {
  return Number.isInteger(load) && load < 1e7 ? count(load) : digits(load);
}

export function loadText(curves: Curves, load: number): string {
  return curves.unit ? `${loadNumber(load)} requests/s` : `${loadNumber(load)} in flight`;
}

export function CurvesCard({ serving }: { serving: Serving }) {
  const { curves } = serving;
  const [place, setPlace] = useState<number | null>(null);
  if (!curves) return null;
  const at = place ?? nearestLoad(curves.loads, curves.at);
  const move = (event: KeyboardEvent): void => {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    setPlace(Math.max(0, Math.min(curves.loads.length - 1, at + by)));
  };
  return (
    <Card id="latency-over-load" title="Latency over load" reading={curves.reading} twin={() => twinOf(curves)} wide>
      <Lines slo={curves.ttft.slo !== null || curves.tpot.slo !== null} saturated={curves.saturated !== null} />
      <div class="curve-pair">
        {[curves.ttft, curves.tpot].map((curve) => (
          <Chart key={curve.label} curve={curve} curves={curves} place={place} setPlace={setPlace} move={move} />
        ))}
        <TradeOff curves={curves} place={place} setPlace={setPlace} move={move} />
      </div>
      <p class="curve-sentence" aria-live="polite">{place === null ? "Point at a curve, or use the arrow keys, for the numbers at a load." : sentenceAt(curves, place)}</p>
    </Card>
  );
}

function Lines({ slo, saturated }: { slo: boolean; saturated: boolean }) {
  return (
    <ul class="named">
      {STATISTICS.map((name) => (
        <li key={name}>
          <svg class="stroke-0" width="28" height="8" aria-hidden="true">
            <line x1="0" y1="4" x2="28" y2="4" stroke-width="2" stroke-dasharray={DASHES[name].join(" ")} />
          </svg>
          {name === "p95_s" ? "p95" : "p50, the median"}
        </li>
      ))}
      {slo && <li><i class="limit-key flat" /> SLO</li>}
      <li><i class="load-key" /> the design's own load</li>
      {saturated && <li><i class="swatch saturated" /> more than it can serve</li>}
    </ul>
  );
}

interface TradeOffProps {
  curves: Curves;
  place: number | null;
  setPlace: (place: number | null) => void;
  move: (event: KeyboardEvent) => void;
}

interface ChartProps extends TradeOffProps {
  curve: Curve;
}

/** What each accelerator makes against what each user gets, as the load grows. */
function TradeOff({ curves, place, setPlace, move }: TradeOffProps) {
  const latest = useRef(place);
  latest.current = place;
  if (known(curves.tokens_per_s_per_user).length < 2) return null;
  const hover = (event: PointerEvent): void => {
    const canvas = event.currentTarget as HTMLCanvasElement;
    const found = tradeOffLoad(curves, canvas.clientWidth, pointerAt(event, canvas));
    setPlace(found);
    showTip(event, [loadText(curves, curves.loads[found]), ...tradeOffLines(curves, found)]);
  };
  return (
    <Canvas
      height={HEIGHT}
      label={`tokens/s of an accelerator over tokens/s of a user, as the load grows from ${loadText(curves, curves.loads[0])} on. Arrow keys go from load to load.`}
      draw={(frame) => paintTradeOff(frame, curves, null, loadText)}
      overlay={(frame) => latest.current !== null && paintTradeOff(frame, curves, latest.current, loadText)}
      on={{ onPointerMove: hover, onPointerLeave: () => (hideTip(), setPlace(null)), onKeyDown: move, onBlur: () => setPlace(null), tabIndex: 0, role: "application" }}
    />
  );
}

function tradeOffLines({ tokens_per_s_per_npu: npu, tokens_per_s_per_user: user }: Curves, place: number): string[] {
  return npu[place] === null || user[place] === null ? ["more than it can serve"] : [`${digits(npu[place])} tokens/s for each accelerator`, `${digits(user[place])} tokens/s for each user`];
}

function Chart({ curve, curves, place, setPlace, move }: ChartProps) {
  const latest = useRef(place);
  latest.current = place;
  if (known(curve.p95_s).length < 2) return <p class="empty">No load of this deployment has a {curve.label}.</p>;
  const hover = (event: PointerEvent): void => {
    const canvas = event.currentTarget as HTMLCanvasElement;
    const found = nearestLoad(curves.loads, axesOf(curve, curves, canvas.clientWidth).x.of(pointerAt(event, canvas).x));
    setPlace(found);
    showTip(event, tipAt(curve, curves, found));
  };
  const leave = (): void => {
    hideTip();
    setPlace(null);
  };
  return (
    <Canvas
      height={HEIGHT}
      label={`${curve.label} over ${curves.label}. ${curves.reading} Arrow keys go from load to load.`}
      draw={(frame) => draw(frame, curve, curves)}
      overlay={(frame) => drawCursor(frame, curve, curves, latest.current)}
      on={{ onPointerMove: hover, onPointerLeave: leave, onKeyDown: move, onBlur: () => setPlace(null), tabIndex: 0, role: "application" }}
    />
  );
}

function draw(frame: Frame, curve: Curve, curves: Curves): void {
  const axes = axesOf(curve, curves, frame.width);
  paintSaturated(frame, axes, curves);
  paintAxes(frame, axes, curve, curves);
  const { context } = frame;
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, MARGIN.top - 2, frame.width - MARGIN.left - MARGIN.right + 2, HEIGHT - MARGIN.top - MARGIN.bottom + 4);
  context.clip();
  const { classes } = palette();
  paintLine(context, axes, curves.loads, curve.p50_s, classes.compute, DASHES.p50_s);
  paintLine(context, axes, curves.loads, curve.p95_s, classes.compute, DASHES.p95_s);
  context.restore();
  paintSlo(frame, axes, curve);
  paintOwn(frame, axes, curves);
}

function paintLine(context: CanvasRenderingContext2D, { x, y }: Axes, loads: number[], values: (number | null)[], colour: string, dashes: number[]): void {
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.lineJoin = "round";
  context.setLineDash(dashes);
  context.beginPath();
  let on = false;
  values.forEach((value, place) => {
    if (value === null) on = false;
    else if (on) context.lineTo(x.at(loads[place]), y.at(value));
    else {
      context.moveTo(x.at(loads[place]), y.at(value));
      on = true;
    }
  });
  context.stroke();
  context.setLineDash([]);
}

/** The loads that are more than the deployment can serve: hatched, as nothing can be said of them. */
function paintSaturated({ context, width }: Frame, { x }: Axes, curves: Curves): void {
  if (curves.saturated === null) return;
  const [left, right] = [Math.max(MARGIN.left, x.at(curves.saturated)), width - MARGIN.right];
  if (right <= left) return;
  const high = HEIGHT - MARGIN.bottom - MARGIN.top;
  context.save();
  context.beginPath();
  context.rect(left, MARGIN.top, right - left, high);
  context.clip();
  context.strokeStyle = palette().line;
  context.lineWidth = 2;
  context.beginPath();
  for (let at = left - high; at < right; at += 8) {
    context.moveTo(at, MARGIN.top + high);
    context.lineTo(at + high, MARGIN.top);
  }
  context.stroke();
  context.restore();
}

function paintAxes({ context, width }: Frame, { x, y }: Axes, curve: Curve, curves: Curves): void {
  const { faint, ink, line } = palette();
  context.lineWidth = 1;
  context.strokeStyle = line;
  context.fillStyle = faint;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const { value, text } of ticksIn(y, 5, "s")) {
    const at = Math.round(y.at(value)) + 0.5;
    context.beginPath();
    context.moveTo(MARGIN.left, at);
    context.lineTo(width - MARGIN.right, at);
    context.stroke();
    context.fillText(text, MARGIN.left - 8, at);
  }
  context.textBaseline = "top";
  let free = 0;
  for (const tick of loadTicks(x, width)) {
    const text = loadNumber(tick);
    const half = context.measureText(text).width / 2;
    const middle = Math.min(x.at(tick), width - half - 1);
    if (middle - half < free) continue;
    context.textAlign = "center";
    context.fillText(text, middle, HEIGHT - MARGIN.bottom + 6);
    free = middle + half + 8;
  }
  context.textAlign = "right";
  context.fillText(curves.label, width - MARGIN.right, HEIGHT - 15);
  context.textAlign = "left";
  context.fillStyle = ink;
  context.fillText(curve.label, 4, 4);
}

/** Returns round loads: powers of two where they are counted from one on, as people choose them. */
export function loadTicks({ low, high, ticks }: Scale, width: number): number[] {
  const most = Math.max(3, Math.floor(width / 90));
  if (low < 0.999) return ticks(Math.max(5, most));
  const powers = Math.log2(high / low);
  const every = Math.max(1, Math.ceil(powers / most));
  const found: number[] = [];
  for (let power = Math.ceil(Math.log2(low) - 1e-9); 2 ** power <= high * 1.0001; power += every) found.push(2 ** power);
  return found;
}

function paintSlo({ context, width }: Frame, { y }: Axes, { slo }: Curve): void {
  if (!slo) return;
  const { failure, paper } = palette();
  const at = Math.round(y.at(slo.limit_s)) + 0.5;
  context.strokeStyle = failure;
  context.lineWidth = 1.5;
  context.setLineDash([6, 4]);
  context.beginPath();
  context.moveTo(MARGIN.left, at);
  context.lineTo(width - MARGIN.right, at);
  context.stroke();
  context.setLineDash([]);
  context.textBaseline = "alphabetic";
  haloed(context, `SLO: ${slo.statistic} ≤ ${show(slo.limit_s, "s")}`, MARGIN.left + 6, at - 6 < MARGIN.top + 8 ? at + 15 : at - 6, failure, paper);
}

/** The design's own load: an upright line. */
function paintOwn({ context, width }: Frame, { x }: Axes, curves: Curves): void {
  if (curves.at > x.high * 1.001) return; // far more than it can serve
  const { ink, paper } = palette();
  const at = Math.round(x.at(curves.at)) + 0.5;
  context.strokeStyle = ink;
  context.lineWidth = 1;
  context.setLineDash([2, 3]);
  context.beginPath();
  context.moveTo(at, MARGIN.top);
  context.lineTo(at, HEIGHT - MARGIN.bottom);
  context.stroke();
  context.setLineDash([]);
  const text = loadText(curves, curves.at);
  const half = context.measureText(text).width / 2;
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  haloed(context, text, Math.min(at, width - MARGIN.right - half), MARGIN.top - 8, ink, paper);
  context.textAlign = "left";
}

function drawCursor({ context, width }: Frame, curve: Curve, curves: Curves, place: number | null): void {
  if (place === null) return;
  const { x, y } = axesOf(curve, curves, width);
  const { accent, paper, classes } = palette();
  const at = Math.round(x.at(curves.loads[place])) + 0.5;
  context.strokeStyle = accent;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(at, MARGIN.top);
  context.lineTo(at, HEIGHT - MARGIN.bottom);
  context.stroke();
  for (const values of [curve.p50_s, curve.p95_s]) {
    const value = values[place];
    if (value === null || value > y.high) continue;
    context.beginPath();
    context.arc(at, y.at(value), 4, 0, 2 * Math.PI);
    context.fillStyle = classes.compute;
    context.fill();
    context.strokeStyle = paper;
    context.stroke();
  }
}

function tipAt(curve: Curve, curves: Curves, place: number): string[] {
  const [p50, p95] = [curve.p50_s[place], curve.p95_s[place]];
  if (p95 === null) return [loadText(curves, curves.loads[place]), "more than it can serve"];
  return [loadText(curves, curves.loads[place]), `${curve.label} p95: ${show(p95, "s")}`, `${curve.label} p50: ${show(p50, "s")}`, ...tradeOffLines(curves, place)];
}

/** Returns the numbers at a load, as a screen reader says them. */
export function sentenceAt(curves: Curves, place: number): string {
  const { ttft, tpot, loads } = curves;
  const load = `With ${loadNumber(loads[place])} ${curves.label}`;
  if (ttft.p95_s[place] === null) return `${load}: more than it can serve.`;
  const said = [ttft, tpot].map((curve) => {
    const limit = curve.slo?.limit_s ?? null;
    const judged = curve.slo?.statistic === "p50" ? curve.p50_s[place] : curve.p95_s[place];
    const held = limit === null || judged === null || !["p50", "p95"].includes(curve.slo!.statistic) ? "" : judged <= limit ? ", within its SLO" : ", beyond its SLO";
    return `${curve.label} p50 ${show(curve.p50_s[place], "s")}, p95 ${show(curve.p95_s[place], "s")}${held}`;
  });
  const rate = curves.tokens_per_s_per_npu[place];
  return `${load}: ${said.join("; ")}${rate === null ? "" : `; ${digits(rate)} tokens/s for each accelerator`}.`;
}

function twinOf(curves: Curves): Twin {
  const { ttft, tpot } = curves;
  const text = (value: number | null): string => (value === null ? "–" : show(value, "s"));
  return {
    columns: [curves.label, `${ttft.label} p50`, `${ttft.label} p95`, `${tpot.label} p50`, `${tpot.label} p95`, "tokens/s for each accelerator", "tokens/s for each user"],
    rows: curves.loads.map((load, place) => [
      loadNumber(load), text(ttft.p50_s[place]), text(ttft.p95_s[place]), text(tpot.p50_s[place]), text(tpot.p95_s[place]),
      ...[curves.tokens_per_s_per_npu[place], curves.tokens_per_s_per_user[place]].map((rate) => (rate === null ? "–" : digits(rate))),
    ]),
  };
}
