// The trade-off between two metrics: a scatter plot with the Pareto front.

import { useRef } from "preact/hooks";
import { Canvas, type Frame, pointerAt } from "../base/canvas";
import { Card, type Twin } from "../base/card";
import { count, show } from "../base/format";
import { hideTip, showTip } from "../base/tip";
import { palette } from "../base/theme";
import { useSignal } from "../base/signal";
import type { Term } from "./filter";
import { isTradeOff, KINDS, kindCounts, serving } from "./deployments";
import { ring } from "./marks";
import type { Drawn, Explorer } from "./model";
import { cellText, outcomeText, share, trialsText } from "./names";
import type { Mask } from "./mask";
import { compareOrOpen } from "./opening";
import { nearest } from "./points";
import { FEW, paintScene, type Scene, sceneOf } from "./scatter_paint";
import { rounded } from "./units";

const HEIGHT = 400;
const CLICK = 4;
const NUDGE = 0.05;

interface Rectangle {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

export function Scatter({ model }: { model: Explorer }) {
  useSignal(model.revision);
  const { trials, view } = model;
  const holder = useRef<{ scene: Scene; key: string } | null>(null);
  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);

  const wide = useRef(600);
  const columns = [model.column(view.x.name), model.column(view.y.name)];
  if (columns.some((column) => !(trials.columns[column]?.low <= trials.columns[column]?.high)))
    return (
      <Card id="explore-scatter" title="Trade-off">
        <p class="empty">{trials.count ? "No trial can run, so there is no metric to draw: the outcomes above say why." : "No trials yet."}</p>
      </Card>
    );

  const scene = (width: number): Scene => {
    wide.current = width;
    const key = `${width} ${model.filtered} ${JSON.stringify([view.x, view.y])}`;
    if (holder.current?.key !== key) holder.current = { key, scene: sceneOf(model, width, HEIGHT) };
    return holder.current.scene;
  };
  const draw = (frame: Frame): void => paintScene(frame, model, scene(frame.width));
  const overlay = ({ context, width }: Frame): void => {
    const now = scene(width);
    paintBrush(context, rectangleOf(model, now));
    for (const trial of [...view.compared, model.shared.hovered.value, model.shared.opened.value?.design.trial ?? null])
      if (trial !== null) paintMark(context, now, trial - trials.first);
  };

  const brushTo = (now: Scene, { x0, y0, x1, y1 }: Rectangle): void => {
    const [x, y] = now.columns;
    const term = (column: number, a: number, b: number, unit: string): Term => ({
      kind: "range", column, low: rounded(Math.min(a, b), unit), high: rounded(Math.max(a, b), unit), openLow: false, openHigh: false,
    });
    model.brushOn(columns, [
      term(columns[0], now.plane.x.of(x0), now.plane.x.of(x1), x.spec.unit),
      ...(columns[0] === columns[1] ? [] : [term(columns[1], now.plane.y.of(y0), now.plane.y.of(y1), y.spec.unit)]),
    ]);
  };

  const at = (event: PointerEvent): { x: number; y: number; now: Scene } => {
    const canvas = event.currentTarget as HTMLCanvasElement;
    return { ...pointerAt(event, canvas), now: scene(canvas.clientWidth) };
  };
  const on = {
    tabIndex: 0,
    role: "application" as const,
    onPointerDown: (event: PointerEvent) => {
      if (event.button !== 0) return;
      const { x, y } = at(event);
      drag.current = { x, y, moved: false };
      (event.currentTarget as Element).setPointerCapture(event.pointerId);
    },
    onPointerMove: (event: PointerEvent) => {
      const { x, y, now } = at(event);
      const from = drag.current;
      if (!from) return hover(model, now, event, nearest(now.plane, now.columns, now.front, { x, y }));
      if (!from.moved && Math.hypot(x - from.x, y - from.y) < CLICK) return;
      if (!from.moved) {
        model.remember();
        hideTip();
      }
      from.moved = true;
      const { left, top, width, height } = now.plane;
      const clamp = (value: number, low: number, high: number): number => Math.max(low, Math.min(high, value));
      brushTo(now, {
        x0: clamp(from.x, left, left + width), x1: clamp(x, left, left + width),
        y0: clamp(from.y, top, top + height), y1: clamp(y, top, top + height),
      });
    },
    onPointerUp: (event: PointerEvent) => {
      const from = drag.current;
      drag.current = null;
      if (!from) return;
      if (from.moved) return model.committed();
      const { x, y, now } = at(event);
      const place = nearest(now.plane, now.columns, now.front, { x, y });
      if (place >= 0) void compareOrOpen(model, place, event.shiftKey);
      else if (columns.some((column) => model.brushed(column))) {
        model.remember();
        model.brushOn(columns, []);
        model.committed();
      }
    },
    onPointerCancel: () => (drag.current = null),
    onPointerLeave: () => {
      hideTip();
      if (!drag.current) model.shared.hovered.value = null;
    },
    onKeyDown: (event: KeyboardEvent) => onKey(model, scene((event.currentTarget as HTMLElement).clientWidth), brushTo, event),
  };

  const now = scene(wide.current);
  const served = SERVING && isTradeOff(model.shared.source.document.serving, view.x.name, view.y.name);
  return (
    <Card
      id="explore-scatter"
      title={served ? "Throughput of a GPU against speed for a user" : "Trade-off"}
      reading={SERVING && now.holds ? deploymentsReading(model, now.holds) : "Darker: more trials. Coloured: as good as the best. Rings and steps: the Pareto front. Drag to select, click to open a design."}
      tools={<AxisTools model={model} />}
      twin={() => twinOf(model, scene(wide.current))}
    >
      <Canvas height={HEIGHT} label={summary(model, now)} draw={draw} overlay={overlay} on={on} again={[model.drawn]} againAbove={[model.touched, model.shared.opened]} />
      <Legend model={model} without={now.plane.without} holds={now.holds} />
    </Card>
  );
}

/** Returns how many deployments of each kind hold the SLOs. */
function deploymentsReading(model: Explorer, holds: Mask): string {
  const { trials, shared } = model;
  const slos = shared.source.document.serving!.slos;
  const [all, good] = [kindCounts(trials, model.kept, serving(trials, slos)), kindCounts(trials, model.kept, holds)];
  const said = KINDS.flatMap((name, kind) => (all[kind] === 0 ? [] : [`${count(good[kind])} of ${count(all[kind])} ${name}`]));
  const held = slos.length === 0 ? "" : `${slos.map((slo) => slo.text).join(" and ")}: ${said.join(" and ")} deployments hold ${slos.length > 1 ? "them" : "it"}. `;
  return `${held}Rings and steps: the Pareto front. Drag to select, click to open a design.`;
}

function Legend({ model, without, holds }: { model: Explorer; without: number; holds: Mask | null }) {
  return (
    <p class="legend">
      {SERVING && holds && <Kinds model={model} holds={holds} />}
      <span class="key ring">front</span>
      <span class="key diamond">best</span>
      {model.plateauCount > 1 && !holds && <span class="key plateau">{count(model.plateauCount)} within {show(model.plateauShare, "share")} of it</span>}
      {model.shared.source.document.base !== null && <span class="key star">base</span>}
      {without > 0 && <span>{trialsText(without)} without a place: they cannot run, so these metrics are not known.</span>}
    </p>
  );
}

function Kinds({ model, holds }: { model: Explorer; holds: Mask }) {
  const { trials, kept } = model;
  const runs = serving(trials, []);
  const [drawn, good] = [kindCounts(trials, kept, runs), kindCounts(trials, kept, holds)];
  return (
    <>
      {KINDS.map((name, kind) => drawn[kind] > 0 && <span key={name} class={`key ${name}`}>{name}</span>)}
      {drawn[0] + drawn[1] > good[0] + good[1] && <span class={trials.count > FEW ? "key grey" : "key hollow"}>{trials.count > FEW ? "grey" : "hollow"}: misses an SLO</span>}
    </>
  );
}

function hover(model: Explorer, scene: Scene, event: PointerEvent, place: number): void {
  const { hovered } = model.shared;
  hovered.value = place < 0 ? null : model.trials.first + place;
  if (place < 0) hideTip();
  else showTip(event, tipOf(model, scene, place));
}

const MOST_LINES = 9;

/** Returns the tooltip of a trial: both metrics, objectives, then the axes. */
export function tipOf(model: Explorer, scene: Pick<Scene, "columns"> | null, place: number): string[] {
  const { trials, view } = model;
  const shown = [...(scene?.columns ?? []), ...trials.columns.filter(({ spec }) => spec.objective), ...view.axes.map((each) => trials.columns[model.column(each.name)])];
  const lines = [...new Set(shown)].map((column) => `${column.spec.label}: ${cellText(column, place)}`);
  const outcome = trials.outcomes[place] ? [`cannot run: ${outcomeText(trials, place)}`] : SERVING && trials.pools ? [KINDS[trials.pools[place] ? 1 : 0]] : [];
  return [`trial ${count(trials.first + place)}`, ...outcome, ...lines.slice(0, MOST_LINES)];
}

function rectangleOf(model: Explorer, { plane }: Scene): Rectangle | null {
  const [x, y] = [model.brushed(model.column(model.view.x.name)), model.brushed(model.column(model.view.y.name))];
  if (x?.kind !== "range" && y?.kind !== "range") return null;
  const { left, top, width, height } = plane;
  const bound = (at: number, low: number, high: number): number => Math.max(low, Math.min(high, Number.isNaN(at) ? low : at));
  const along = x?.kind === "range" ? [bound(plane.x.at(x.low), left, left + width), bound(plane.x.at(x.high), left, left + width)] : [left, left + width];
  const up = y?.kind === "range" ? [bound(plane.y.at(y.high), top, top + height), bound(plane.y.at(y.low), top, top + height)] : [top, top + height];
  if (y?.kind === "range" && y.low === -Infinity) up[1] = top + height;
  return { x0: along[0], x1: along[1], y0: up[0], y1: up[1] };
}

function paintBrush(context: CanvasRenderingContext2D, rectangle: Rectangle | null): void {
  if (!rectangle) return;
  const { accent } = palette();
  const { x0, y0, x1, y1 } = rectangle;
  context.strokeStyle = accent;
  context.lineWidth = 1.5;
  context.setLineDash([5, 3]);
  context.strokeRect(x0, y0, x1 - x0, y1 - y0);
  context.setLineDash([]);
}

function paintMark(context: CanvasRenderingContext2D, { plane, columns }: Scene, place: number): void {
  if (!(plane.cells[place] >= 0)) return;
  const [x, y] = [plane.x.at(columns[0].values[place]), plane.y.at(columns[1].values[place])];
  const { ink, paper } = palette();
  context.lineWidth = 4;
  ring(context, x, y, 7, paper);
  context.lineWidth = 2;
  ring(context, x, y, 7, ink);
}

/** Arrows walk along the front; with shift they move a brush, which + and - widen and narrow. */
function onKey(model: Explorer, scene: Scene, brushTo: (now: Scene, rectangle: Rectangle) => void, event: KeyboardEvent): void {
  const { front, plane } = scene;
  const { hovered } = model.shared;
  const arrows: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const step = arrows[event.key];
  const here = hovered.value === null ? -1 : front.indexOf(hovered.value - model.trials.first);
  if (step && !event.shiftKey && front.length) {
    const next = here < 0 ? 0 : Math.max(0, Math.min(front.length - 1, here + step[0] - step[1]));
    hovered.value = model.trials.first + front[next];
  } else if (event.key === "Enter" && hovered.value !== null) void compareOrOpen(model, hovered.value - model.trials.first, event.shiftKey);
  else if (step || event.key === "+" || event.key === "-") {
    const { left, top, width, height } = plane;
    const middle = { x0: left + width / 4, x1: left + (3 * width) / 4, y0: top + height / 4, y1: top + (3 * height) / 4 };
    const old = rectangleOf(model, scene);
    const [dx, dy] = step ? [step[0] * NUDGE * width, step[1] * NUDGE * height] : [0, 0];
    const wider = event.key === "+" ? NUDGE : event.key === "-" ? -NUDGE : 0;
    const from = old ?? middle;
    model.remember();
    brushTo(scene, {
      x0: from.x0 + dx - wider * width, x1: from.x1 + dx + wider * width,
      y0: from.y0 + dy - wider * height, y1: from.y1 + dy + wider * height,
    });
    model.committed();
  } else return;
  event.preventDefault();
  event.stopPropagation();
}

function AxisTools({ model }: { model: Explorer }) {
  const { trials, view } = model;
  const metrics = trials.columns.filter(({ spec, low, high }) => spec.role === "metric" && low <= high);
  const tool = (which: "x" | "y", drawn: Drawn) => (
    <span class="axis-tool" key={which}>
      <label>
        {which}{" "}
        <select value={drawn.name} onChange={(event) => model.setView({ [which]: { name: event.currentTarget.value } })}>
          {metrics.map(({ spec }) => (
            <option key={spec.name} value={spec.name}>{spec.label}</option>
          ))}
        </select>
      </label>
      <button type="button" aria-pressed={model.isLog(drawn)} aria-label={`logarithmic ${which} axis`} onClick={() => model.setView({ [which]: { ...drawn, log: !model.isLog(drawn) } })}>
        log
      </button>
    </span>
  );
  return (
    <>
      {tool("x", view.x)}
      {tool("y", view.y)}
    </>
  );
}

function summary(model: Explorer, { columns, front }: Scene): string {
  const [x, y] = columns.map(({ spec }) => spec.label);
  const chosen = `${count(model.selectedCount)} of ${count(model.trials.count)} trials selected (${share(model.selectedCount, model.trials.count)})`;
  return `Scatter plot of ${y} against ${x}: ${chosen}, ${count(front.length)} on the front. Arrows walk along the front, Enter opens a design, shift and arrows move a brush.`;
}

function twinOf(model: Explorer, { columns, front }: Scene): Twin {
  const others = model.view.axes.map((each) => model.trials.columns[model.column(each.name)]).filter((column) => !columns.includes(column));
  const shown = [...columns, ...others];
  return {
    columns: ["trial on the front", ...shown.map(({ spec }) => spec.label)],
    rows: front.map((place) => [model.trials.first + place, ...shown.map((column) => cellText(column, place))]),
  };
}
