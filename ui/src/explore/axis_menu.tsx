// The menu of an axis: how it is drawn, and its selection, by keyboard as well as by pointer.

import { useState } from "preact/hooks";
import type { Axis } from "./axes";
import { termOfCodes } from "./axes";
import { Panel } from "./chooser";
import type { Term } from "./filter";
import { holding } from "./mask";
import type { Drawn, Explorer } from "./model";
import { read, written } from "./units";

const MOST_CHOICES = 60;

interface MenuProps {
  model: Explorer;
  place: number;
  onClose: () => void;
}

/** Moves an axis, and returns all of them. */
export function moved(axes: Drawn[], from: number, to: number): Drawn[] {
  const next = [...axes];
  const [one] = next.splice(from, 1);
  next.splice(Math.max(0, Math.min(next.length, to)), 0, one);
  return next;
}

export function AxisMenu({ model, place, onClose }: MenuProps) {
  const { axes } = model.view;
  const drawn = axes[place];
  const axis = model.axis(drawn);
  const { label } = axis.column.spec;
  const replace = (part: Partial<Drawn>): void => model.setView({ axes: axes.map((each, at) => (at === place ? { ...each, ...part } : each)) });
  const shift = (by: number): void => {
    model.setView({ axes: moved(axes, place, place + by) });
    onClose();
  };
  const hide = (): void => {
    onClose();
    model.setView({ axes: axes.filter((_, at) => at !== place) });
  };
  return (
    <Panel label={`axis of ${label}`} onClose={onClose}>
      <p class="row">
        <strong>{label}</strong>
        <button type="button" onClick={onClose} aria-label="close">×</button>
      </p>
      <p class="row">
        {axis.scale && (
          <button type="button" aria-pressed={model.isLog(drawn)} onClick={() => replace({ log: !model.isLog(drawn) })}>log</button>
        )}
        <button type="button" aria-pressed={!!drawn.flip} onClick={() => replace({ flip: !drawn.flip })}>flip</button>
        <button type="button" disabled={place === 0} onClick={() => shift(-1)} aria-label="move left">←</button>
        <button type="button" disabled={place === axes.length - 1} onClick={() => shift(1)} aria-label="move right">→</button>
        <button type="button" disabled={axes.length < 2} onClick={hide}>hide</button>
      </p>
      {axis.scale ? <Bounds model={model} axis={axis} /> : <Choices model={model} axis={axis} />}
    </Panel>
  );
}

function setTerm(model: Explorer, axis: Axis, term: Term | null): void {
  model.remember();
  model.brushOn([axis.place], term ? [term] : []);
  model.committed();
}

function Bounds({ model, axis }: { model: Explorer; axis: Axis }) {
  const { unit } = axis.column.spec;
  const now = model.brushed(axis.place);
  const text = (value: number | undefined): string => (value === undefined || !Number.isFinite(value) ? "" : written(value, unit));
  const [bad, setBad] = useState(false);
  const set = (which: "low" | "high", entered: string): void => {
    const value = entered.trim() ? read(entered, unit) : which === "low" ? -Infinity : Infinity;
    setBad(value === null);
    if (value === null) return;
    const range = now?.kind === "range" ? now : { low: -Infinity, high: Infinity };
    const next = { low: range.low, high: range.high, [which]: value };
    const open = next.low === -Infinity && next.high === Infinity;
    setTerm(model, axis, open ? null : { kind: "range", column: axis.place, ...next, openLow: false, openHigh: false });
  };
  const field = (which: "low" | "high", name: string, hint: number) => (
    <label key={which}>
      {name}{" "}
      <input
        type="text"
        size={10}
        value={text(now?.kind === "range" ? now[which] : undefined)}
        placeholder={written(hint, unit)}
        onChange={(event) => set(which, event.currentTarget.value)}
      />
    </label>
  );
  return (
    <p class="row">
      {field("low", "from", axis.column.low)}
      {field("high", "to", axis.column.high)}
      {bad && <span class="problem" role="alert">not a number{unit ? ` of ${unit}` : ""}</span>}
    </p>
  );
}

function Choices({ model, axis }: { model: Explorer; axis: Axis }) {
  const now = model.brushed(axis.place);
  const order = axis.order ?? [];
  const holds = now ? holding(axis.column, now) : null;
  const chosen = order.filter((code) => holds?.[code]);
  if (order.length > MOST_CHOICES)
    return <p class="hint">{order.length} values: drag along the axis, or write a filter such as {`"${axis.column.spec.label}" = ${axis.column.labels[order[0]]}`}.</p>;
  const toggle = (code: number): void => {
    const next = order.filter((each) => (each === code ? !chosen.includes(code) : chosen.includes(each)));
    setTerm(model, axis, next.length ? exactly(axis, next) : null);
  };
  return (
    <fieldset>
      <legend>select</legend>
      {order.map((code) => (
        <label key={code} class="tick">
          <input type="checkbox" checked={chosen.includes(code)} onChange={() => toggle(code)} />
          {axis.column.labels[code]}
        </label>
      ))}
    </fieldset>
  );
}

/** Returns a term for exactly these choices: a range only where they follow each other without a gap. */
export function exactly(axis: Axis, codes: number[]): Term {
  const order = axis.order!;
  const [first, last] = [order.indexOf(codes[0]), order.indexOf(codes[codes.length - 1])];
  if (last - first + 1 === codes.length) return termOfCodes(axis, codes);
  return { kind: "among", column: axis.place, labels: codes.map((code) => axis.column.labels[code]), not: false };
}
