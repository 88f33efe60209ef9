// Parallel coordinates: every trial is a line over its parameters and metrics; brushing an axis selects trials.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Canvas, type Frame, pointerAt } from "../base/canvas";
import { Card, type Twin } from "../base/card";
import { count, show } from "../base/format";
import { Signal, useSignal } from "../base/signal";
import { hideTip, showTip } from "../base/tip";
import { palette } from "../base/theme";
import { choiceAt, placeOn, stretches, termBetween, varying } from "./axes";
import { AxisMenu, exactly, moved } from "./axis_menu";
import { Chooser } from "./chooser";
import { holding } from "./mask";
import type { Explorer, Focus } from "./model";
import { axisName, cellText } from "./names";
import { compareOrOpen } from "./opening";
import { atY, focusLines, type Lane, type Lanes, Layers, paintLanes, strokeTrial, yOf } from "./parallel_paint";
import { tipOf } from "./scatter";

const HEIGHT = 400;
const LEAST_SPACING = 56;
/** The width of an axis with its labels, where all axes do not fit at once anyway. */
const SCROLLED_SPACING = 70;
const LEFT = 16;
const CLICK = 4;
const NEAR = 6;
const STEPS = 24;

export function Parallel({ model }: { model: Explorer }) {
  useSignal(model.revision);
  const { trials, view } = model;
  const box = useRef<HTMLDivElement>(null);
  const layers = useMemo(() => new Layers(), [model]);
  const scrolled = useRef(new Signal(0)).current;
  const [menu, setMenu] = useState(-1);
  const [current, setCurrent] = useState(0);
  const drag = useRef<{ lane: Lane; from: number; y: number; moved: boolean; grip: number | null } | null>(null);
  // The canvas covers the visible axes and stays while they scroll, which bounds its cost.
  const [wide, setWide] = useState(600);
  useLayoutEffect(() => {
    if (!box.current) return undefined;
    const observer = new ResizeObserver(([entry]) => setWide(Math.floor(entry.contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [view.axes.length < 2 || !trials.count]);

  const parameters = varying(trials).length;
  if (view.axes.length < 2 || !trials.count)
    return (
      <Card id="explore-parallel" title="Parameters and metrics" tools={<Tools model={model} />}>
        <p class="empty">
          {whyEmpty(model)}
        </p>
      </Card>
    );

  const lanesFor = (width: number): Lanes => {
    const spacing = spacingFor(width, view.axes.length);
    const lanes = view.axes.map((drawn, place): Lane => ({ axis: model.axis(drawn), flip: !!drawn.flip, x: LEFT + place * spacing - scrolled.value }));
    const how = view.axes.map((drawn) => `${drawn.name}${model.isLog(drawn)}${drawn.flip}`).join();
    return { lanes, spacing, height: HEIGHT, key: `${model.filtered} ${scrolled.value} ${how}` };
  };
  const draw = (frame: Frame): void => paintLanes(frame, model, lanesFor(frame.width), layers);
  const overlay = ({ context, width }: Frame): void => {
    const lanes = lanesFor(width);
    const { ink, paper } = palette();
    for (const trial of [...view.compared, model.shared.hovered.value]) {
      if (trial === null) continue;
      context.strokeStyle = paper;
      context.lineWidth = 4;
      strokeTrial(context, lanes, trial - trials.first);
      context.strokeStyle = ink;
      context.lineWidth = 2;
      strokeTrial(context, lanes, trial - trials.first);
    }
  };

  const at = (event: PointerEvent): { x: number; y: number; lanes: Lanes; lane: Lane } => {
    const canvas = event.currentTarget as HTMLCanvasElement;
    const { x, y } = pointerAt(event, canvas);
    const lanes = lanesFor(canvas.clientWidth);
    const lane = lanes.lanes.reduce((near, each) => (Math.abs(each.x - x) < Math.abs(near.x - x) ? each : near));
    return { x, y, lanes, lane };
  };
  const on = {
    tabIndex: 0,
    role: "application" as const,
    onPointerDown: (event: PointerEvent) => {
      // Touch scrolls here; values and names can be tapped.
      if (event.button !== 0) return;
      const { y, lane } = at(event);
      const term = model.brushed(lane.axis.place);
      const from = atY(lane, y, HEIGHT);
      // A brush on numbers can be taken and moved.
      const held = lane.axis.scale && term ? stretches(lane.axis, term).find(([low, high]) => from > low && from < high) : undefined;
      drag.current = { lane, from, y, moved: false, grip: held ? held[0] : null };
      if (held) drag.current.lane = { ...lane, x: held[1] - held[0] };
      (event.currentTarget as Element).setPointerCapture(event.pointerId);
    },
    onPointerMove: (event: PointerEvent) => {
      const held = drag.current;
      const { x, y, lanes } = at(event);
      if (!held) return hoverLine(model, lanes, event, { x, y });
      if (event.pointerType === "touch") return;
      if (!held.moved && Math.abs(y - held.y) < CLICK) return;
      if (!held.moved) model.remember();
      held.moved = true;
      hideTip();
      const { axis } = held.lane;
      const to = atY(held.lane, y, HEIGHT);
      const length = held.grip === null ? 0 : held.lane.x;
      const start = held.grip === null ? held.from : Math.max(0, Math.min(1 - length, held.grip + to - held.from));
      const term = termBetween(axis, start, held.grip === null ? to : start + length);
      model.brushOn([axis.place], term ? [term] : []);
    },
    onPointerUp: (event: PointerEvent) => {
      const held = drag.current;
      drag.current = null;
      if (!held) return;
      if (held.moved) return model.committed();
      const { x, y, lanes, lane } = at(event);
      const code = choiceAt(lane.axis, atY(lane, y, HEIGHT), 0.04);
      const line = lineAt(model, lanes, { x, y });
      if (code >= 0 && Math.abs(lane.x - x + 12) < 40) toggleChoice(model, lane, code);
      else if (line >= 0) void compareOrOpen(model, line, event.shiftKey);
      else if (model.brushed(lane.axis.place)) {
        model.remember();
        model.brushOn([lane.axis.place], []);
        model.committed();
      }
    },
    onPointerCancel: () => (drag.current = null),
    onPointerLeave: () => {
      hideTip();
      if (!drag.current) model.shared.hovered.value = null;
    },
    onKeyDown: (event: KeyboardEvent) => {
      const next = onKey(model, current, event);
      if (next !== current) {
        setCurrent(next);
        const name = box.current?.querySelectorAll<HTMLElement>(".axis-name")[next];
        name?.scrollIntoView({ block: "nearest", inline: "nearest" });
      }
    },
  };

  const spacing = spacingFor(wide, view.axes.length);
  return (
    <Card
      id="explore-parallel"
      title="Parameters and metrics"
      reading={`Grey is how many trials run along; ${focusText(model)}. Drag along an axis to select, click a value or a name.${parameters > view.axes.length ? ` Shown are the parameters that the objective depends on most.` : ""}`}
      tools={<Tools model={model} />}
      twin={() => twinOf(model)}
    >
      <div class="lane-box">
        <div ref={box} class="lane-scroller" onScroll={(event) => (scrolled.value = event.currentTarget.scrollLeft)}>
          <div style={{ width: `${LEFT + spacing * view.axes.length - 8}px` }}>
            <div class="axis-names">
              {view.axes.map((drawn, place) => (
                <AxisName
                  key={drawn.name}
                  model={model}
                  place={place}
                  width={spacing}
                  marked={place === current}
                  onOpen={() => setMenu(menu === place ? -1 : place)}
                />
              ))}
            </div>
            <div class="stuck" style={{ width: `${wide}px` }}>
              <Canvas height={HEIGHT} label={summary(model)} draw={draw} overlay={overlay} on={on} again={[model.drawn, scrolled]} againAbove={[model.touched]} />
            </div>
          </div>
        </div>
        {menu >= 0 && menu < view.axes.length && (
          <div class="menu" style={{ left: `${Math.max(0, Math.min(wide - 280, LEFT + menu * spacing - scrolled.value - 20))}px` }}>
            <AxisMenu key={view.axes[menu].name} model={model} place={menu} onClose={() => setMenu(-1)} />
          </div>
        )}
      </div>
    </Card>
  );
}

function spacingFor(width: number, axes: number): number {
  const fair = (width - LEFT) / axes;
  return fair >= LEAST_SPACING ? fair : SCROLLED_SPACING;
}

function whyEmpty({ trials, view }: Explorer): string {
  if (!trials.count) return "No trials yet.";
  if (trials.count === 1) return "One trial: nothing to compare yet.";
  if (!varying(trials).length) return "No parameter varies among these trials: nothing to compare.";
  return view.axes.length ? "Lines need two axes: choose another above." : "No axis is chosen: choose some above.";
}

function focusText(model: Explorer): string {
  const number = count(model.focusCount);
  if (model.view.focus === "front") return `coloured are the ${number} on the front`;
  if (model.view.focus === "plateau")
    return model.focusCount === 1 ? `coloured is the best: no other lies within ${share(model)}` : `coloured are the ${number} within ${share(model)} of the best`;
  if (model.view.focus === "best") return `coloured are the best ${number} that run (5 %, and what equals them)`;
  return "nothing is coloured";
}

function share({ plateauShare }: Explorer): string {
  return show(plateauShare, "share");
}

/** The name of an axis: a button that opens its menu, and can be dragged to another place. */
function AxisName({ model, place, width, marked, onOpen }: { model: Explorer; place: number; width: number; marked: boolean; onOpen: () => void }) {
  const from = useRef<number | null>(null);
  const dragged = useRef(false);
  const { axes } = model.view;
  const { spec } = model.trials.columns[model.column(axes[place].name)];
  const arrow = spec.better ? (spec.better === "less" ? " ↓" : " ↑") : "";
  const brushed = model.brushed(model.column(axes[place].name)) ? " brushed" : "";
  return (
    <button
      type="button"
      class={`axis-name${marked ? " marked" : ""}${brushed}`}
      style={{ left: `${LEFT - 6 + place * width}px`, width: `${width - 4}px` }}
      aria-haspopup="dialog"
      title={spec.label}
      onPointerDown={(event) => {
        from.current = event.clientX;
        dragged.current = false;
      }}
      onPointerUp={(event) => {
        const by = from.current === null ? 0 : Math.round((event.clientX - from.current) / width);
        from.current = null;
        dragged.current = by !== 0;
        if (by) model.setView({ axes: moved(axes, place, place + by) });
      }}
      onPointerMove={(event) => event.buttons && event.currentTarget.setPointerCapture(event.pointerId)}
      onClick={() => !dragged.current && onOpen()}
    >
      {axisName(model.trials.columns[model.column(axes[place].name)])}
      {arrow}
    </button>
  );
}

function toggleChoice(model: Explorer, { axis }: Lane, code: number): void {
  const term = model.brushed(axis.place);
  const holds = term ? holding(axis.column, term) : null;
  const codes = axis.order!.filter((each) => (each === code ? !holds?.[each] : holds?.[each]));
  model.remember();
  model.brushOn([axis.place], codes.length ? [exactly(axis, codes)] : []);
  model.committed();
}

/** Returns the line of the focus that runs under the pointer; -1 where none does. */
function lineAt(model: Explorer, { lanes, spacing, height }: Lanes, at: { x: number; y: number }): number {
  const right = lanes.findIndex(({ x }) => x > at.x);
  if (right < 1) return -1;
  const [one, other] = [lanes[right - 1], lanes[right]];
  const along = (at.x - one.x) / spacing;
  let [best, least] = [-1, NEAR];
  for (const place of focusLines(model)) {
    const y = yOf(one, placeOn(one.axis, place), height) * (1 - along) + yOf(other, placeOn(other.axis, place), height) * along;
    if (Math.abs(y - at.y) < least) [best, least] = [place, Math.abs(y - at.y)];
  }
  return best;
}

function hoverLine(model: Explorer, lanes: Lanes, event: PointerEvent, at: { x: number; y: number }): void {
  const place = lineAt(model, lanes, at);
  model.shared.hovered.value = place < 0 ? null : model.trials.first + place;
  if (place < 0) hideTip();
  else showTip(event, tipOf(model, null, place));
}

/** Left and right choose an axis; up and down move what is selected of it, with shift they widen and narrow it. */
function onKey(model: Explorer, current: number, event: KeyboardEvent): number {
  const { axes } = model.view;
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const lift = { ArrowUp: 1, ArrowDown: -1 }[event.key];
  const here = Math.min(current, axes.length - 1);
  if (!step && !lift && event.key !== "Delete" && event.key !== "Backspace") return current;
  event.preventDefault();
  event.stopPropagation();
  if (step) return Math.max(0, Math.min(axes.length - 1, here + step));
  const axis = model.axis(axes[here]);
  const steps = axis.order ? axis.bins : STEPS;
  const term = model.brushed(axis.place);
  const spans = term ? stretches(axis, term) : [];
  model.remember();
  if (!lift) model.brushOn([axis.place], []);
  else {
    const middle = (range: [number, number]): number => (range[0] + range[1]) / 2;
    const by = ((axes[here].flip ? -lift : lift) * 1) / Math.max(1, steps - 1);
    const ends: [number, number] = spans.length ? (axis.order ? [middle(spans[0]), middle(spans[spans.length - 1])] : [spans[0][0], spans[0][1]]) : [0, axis.order ? 0 : 1 / STEPS - by];
    const low = event.shiftKey || !spans.length ? ends[0] : ends[0] + by;
    const high = axis.order && !spans.length ? ends[1] + 0.03 : ends[1] + by;
    const next = termBetween(axis, Math.max(0, low - 0.004), Math.min(1, Math.max(low, high) + 0.004));
    if (next) model.brushOn([axis.place], [next]);
  }
  model.committed();
  return here;
}

function Tools({ model }: { model: Explorer }) {
  const { trials, view } = model;
  const columns = trials.columns.filter(({ spec, low, high }) => low <= high && (spec.role === "metric" || high > low));
  const choose = (names: string[]): void => model.setView({ axes: names.map((name) => view.axes.find((each) => each.name === name) ?? { name }) });
  return (
    <>
      <label>
        focus{" "}
        <select value={view.focus} onChange={(event) => model.setView({ focus: event.currentTarget.value as Focus })}>
          <option value="front">front</option>
          <option value="plateau">within {share(model)}</option>
          <option value="best">best 5 %</option>
          <option value="none">none</option>
        </select>
      </label>
      <Chooser title="axes" columns={columns} chosen={view.axes.map(({ name }) => name)} onChoose={choose} onReset={() => choose(model.firstAxes)} />
    </>
  );
}

function summary(model: Explorer): string {
  const names = model.view.axes.map(({ name }) => model.trials.columns[model.column(name)].spec.label);
  return `Parallel coordinates of ${names.join(", ")}: ${count(model.selectedCount)} of ${count(model.trials.count)} trials selected, ${focusText(model)}. Left and right choose an axis, up and down select on it, shift widens, Delete clears.`;
}

/** How the selected trials spread over the values of each axis. */
function twinOf(model: Explorer): Twin {
  const rows: (string | number)[][] = [];
  for (const drawn of model.view.axes) {
    const axis = model.axis(drawn);
    const { label } = axis.column.spec;
    if (axis.order) {
      const [kept, selected] = [new Uint32Array(axis.column.choices.length), new Uint32Array(axis.column.choices.length)];
      for (let place = 0; place < model.trials.count; place++) {
        kept[axis.column.codes![place]] += model.kept[place];
        selected[axis.column.codes![place]] += model.selected[place];
      }
      for (const code of axis.order) rows.push([label, axis.column.labels[code], count(selected[code]), count(kept[code])]);
    } else {
      let [low, high, known, all] = [-1, -1, 0, 0];
      for (let place = 0; place < model.trials.count; place++) {
        const value = axis.column.values[place];
        if (Number.isNaN(value)) continue;
        all += model.kept[place];
        if (!model.selected[place]) continue;
        known++;
        if (low < 0 || value < axis.column.values[low]) low = place;
        if (high < 0 || value > axis.column.values[high]) high = place;
      }
      rows.push([label, known ? `${cellText(axis.column, low)} to ${cellText(axis.column, high)}` : "none known", count(known), count(all)]);
    }
  }
  return { columns: ["axis", "value", "selected", "kept"], rows };
}
