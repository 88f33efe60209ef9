// Scales from values to pixels, and their ticks.

import { show, writer } from "./format";

export interface Scale {
  low: number;
  high: number;
  log: boolean;
  /** Where a value lies, in pixels. */
  at(value: number): number;
  /** Which value lies there. */
  of(pixel: number): number;
  ticks(most: number): number[];
}

/** Returns a scale over values from `low` to `high` on pixels `from` to `to`. */
export function scale(low: number, high: number, from: number, to: number, log = false): Scale {
  const logged = log && low > 0 && high > 0;
  if (!(high > low)) {
    const around = Math.abs(low) || 1;
    [low, high] = logged ? [low / 1.5, low * 1.5] : [low - around / 2, low + around / 2];
  }
  const a = logged ? Math.log(low) : low;
  const b = logged ? Math.log(high) : high;
  const per = (to - from) / (b - a);
  return {
    low,
    high,
    log: logged,
    at: logged ? (value) => from + (Math.log(value) - a) * per : (value) => from + (value - a) * per,
    of: (pixel) => {
      const value = a + (pixel - from) / per;
      return logged ? Math.exp(value) : value;
    },
    ticks: (most) => (logged ? logTicks(low, high, most) : linearTicks(low, high, most)),
  };
}

export interface Tick {
  value: number;
  text: string;
}

/** Numbers in one unit are read as long as the smallest has few zeros. */
const ONE_UNIT = 1e4;

/** Returns round numbers along a scale, written in one unit: 20 GiB, 40 GiB, 60 GiB. */
export function ticksIn({ low, high, log }: Scale, most: number, unit: string): Tick[] {
  const wide = log && high / low > ONE_UNIT && unit !== "B";
  const { worth, text } = wide ? { worth: 1, text: (value: number) => show(value, unit) } : writer(unit, high);
  const ticks = scale(low / worth, high / worth, 0, 1, log).ticks(most);
  return ticks.map((tick) => ({ value: tick * worth, text: text(tick * worth) }));
}

export function linearTicks(low: number, high: number, most: number): number[] {
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999) ?? 10 * power;
  const ticks: number[] = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place++) ticks.push(place * step);
  return ticks;
}

function logTicks(low: number, high: number, most: number): number[] {
  const decades = Math.log10(high / low);
  if (decades < 1) return linearTicks(low, high, most).filter((tick) => tick > 0);
  const every = Math.max(1, Math.ceil(decades / Math.max(1, most)));
  const inner = decades < 3 && most >= 5 ? [1, 2, 5] : [1];
  const ticks: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += every)
    for (const each of inner) {
      const tick = each * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  return ticks;
}

/** Whether the range of values is so wide that it needs a logarithmic scale. */
export function wantsLog(low: number, high: number): boolean {
  return low > 0 && high / low > 5;
}
