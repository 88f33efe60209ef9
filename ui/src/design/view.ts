// The visible part of a step, and how it changes. All times in seconds.

export interface View {
  from: number;
  to: number;
}

/** Returns a view moved and cut to lie within 0 and `until`, no shorter than `least`. */
export function within(view: View, until: number, least: number): View {
  const length = Math.min(until, Math.max(least, view.to - view.from));
  const from = Math.min(Math.max(0, view.from), until - length);
  return { from, to: from + length };
}

/** Returns a view `factor` times as long around a time that stays where it is. */
export function zoomed(view: View, at: number, factor: number, until: number, least: number): View {
  const length = Math.min(until, Math.max(least, (view.to - view.from) * factor));
  const share = (at - view.from) / (view.to - view.from);
  const from = at - share * length;
  return within({ from, to: from + length }, until, least);
}

export function moved(view: View, by: number, until: number, least: number): View {
  return within({ from: view.from + by, to: view.to + by }, until, least);
}

/** Returns a view that shows a part of the step with some room around it. */
export function around(from: number, to: number, room: number, until: number, least: number): View {
  const margin = (to - from) * room;
  const view = { from: from - margin, to: to + margin };
  return within(view, until, least);
}

/** Returns a view as the address writes it; empty for the first one. */
export function viewText(view: View, opening: View): string {
  if (view.from === opening.from && view.to === opening.to) return "";
  return `${Number(view.from.toPrecision(9))}_${Number(view.to.toPrecision(9))}`;
}

export function viewOf(text: string, until: number, least: number): View | null {
  const [from, to] = text.split("_").map(Number);
  return to > from && from >= 0 ? within({ from, to }, until, least) : null;
}

const UNITS: [number, string][] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

/** Returns times for an axis in one unit, with enough digits to tell ticks `step` apart; `inSeconds` is false for steps. */
export function tickText(step: number, high: number, inSeconds = true): (time: number) => string {
  if (!inSeconds) return (time) => time.toFixed(Math.min(3, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9))));
  const [worth, name] = UNITS.find(([each]) => high >= each * 0.9999) ?? UNITS[3];
  const places = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / worth) - 1e-9)));
  return (time) => `${(time / worth).toFixed(places)} ${name}`;
}
