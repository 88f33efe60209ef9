// Bars of two kinds: components stacked to a whole, and factors on a logarithmic scale.

import { digits, times, writer } from "../base/format";
import { scale, ticksIn } from "../base/scale";
import { says } from "../base/tip";

export interface Segment {
  label: string;
  /** A class of the style sheet: colour and texture. */
  fill: string;
  amount: number;
}

export interface Bar {
  title: string;
  segments: Segment[];
  /** At the right: what they add up to. */
  total: string;
  /** What is expected to be measured, to draw as an error bar. */
  range?: { low: number; high: number; label: string };
  /** A limit to draw as a line. */
  limit?: { at: number; label: string };
  /** Why there is no bar. */
  problem?: string;
  strong?: boolean;
  /** By how much it exceeds the limit. */
  failure?: string;
}

interface StackedProps {
  bars: Bar[];
  /** The amount that fills the width; null draws every bar at full width, as shares. */
  most: number | null;
  show: (amount: number) => string;
  /** The highlighted fill; the others fade. */
  lit?: string;
  /** The unit of an axis below the bars; without one there is none. */
  axis?: string;
}

export function total(segments: Segment[]): number {
  return segments.reduce((sum, each) => sum + each.amount, 0);
}

/** Chooses between seconds and shares of the whole. */
export function ScaleSwitch({ shares, setShares }: { shares: boolean; setShares: (shares: boolean) => void }) {
  return (
    <div class="switch" role="group" aria-label="scale">
      <button type="button" aria-pressed={!shares} onClick={() => setShares(false)}>seconds</button>
      <button type="button" aria-pressed={shares} onClick={() => setShares(true)}>share</button>
    </div>
  );
}

export function StackedBars({ bars, most, show, lit, axis }: StackedProps) {
  return (
    <ul class="bars">
      {bars.map((bar) => (
        <li key={bar.title} class={bar.strong ? "bar-row strong" : "bar-row"}>
          <span class="bar-title">{bar.title}</span>
          {bar.problem ? (
            <span class="bar-problem">{bar.problem}</span>
          ) : (
            <Stack bar={bar} most={most ?? total(bar.segments)} show={show} lit={lit ?? ""} ranged={most !== null} />
          )}
          <span class="bar-total number">{bar.total}</span>
          {bar.failure && <span class="bar-failure">{bar.failure}</span>}
        </li>
      ))}
      {axis && most !== null && most > 0 && (
        <li class="bar-row" aria-hidden="true">
          <Axis most={most} unit={axis} limit={limitOf(bars)} />
        </li>
      )}
    </ul>
  );
}

/** Returns the limit that all bars share; null where they have none or several. */
function limitOf(bars: Bar[]): number | null {
  const limits = [...new Set(bars.map((bar) => bar.limit?.at))];
  return limits.length === 1 ? (limits[0] ?? null) : null;
}

/** How near to the end of the axis, or to the limit, a number is not written on its right, or not at all. */
const NEAR_END = 0.84;
const NEAR_LIMIT = 0.38;

/** Numbers from zero to what fills the width, in one unit, and the limit. */
function Axis({ most, unit, limit }: { most: number; unit: string; limit: number | null }) {
  const { text: written } = writer(unit, most);
  const at = (value: number): { class: string; style: { left: string } } => ({
    class: value > NEAR_END * most ? "end" : "",
    style: { left: `${(100 * value) / most}%` },
  });
  const ticks = ticksIn(scale(0, most, 0, 1), 4, unit).filter(({ value }) => limit === null || Math.abs(value - limit) > NEAR_LIMIT * most);
  return (
    <div class="bar-axis">
      {ticks.map(({ value, text }) => <span key={text} {...at(value)}>{text}</span>)}
      {limit !== null && <span {...at(limit)} class={`${at(limit).class} at-limit`}>limit {written(limit)}</span>}
    </div>
  );
}

interface StackProps {
  bar: Bar;
  most: number;
  show: (amount: number) => string;
  lit: string;
  /** Whether to draw the error bar: shares have none. */
  ranged: boolean;
}

function Stack({ bar, most, show, lit, ranged }: StackProps) {
  const whole = total(bar.segments);
  const part = (amount: number): string => `${digits(whole > 0 ? (100 * amount) / whole : 0)} %`;
  const wide = (amount: number): string => `${most > 0 ? (100 * amount) / most : 0}%`;
  const expected = bar.range ? `; ${bar.range.label}` : "";
  const spoken = bar.segments.map((each) => `${each.label} ${show(each.amount)}, ${part(each.amount)}`).join("; ");
  return (
    <div class="stack" role="img" aria-label={`${bar.title}: ${spoken}${expected}`}>
      <div class="stack-track">
        {bar.segments.map((each, place) => (
          <div
            key={place}
            class={`segment ${each.fill}${lit && lit !== each.fill ? " dim" : ""}`}
            style={{ width: wide(each.amount) }}
            {...says(bar.title, each.label, `${show(each.amount)} · ${part(each.amount)}`)}
          />
        ))}
        {bar.range && ranged && (
          <div
            class="range"
            style={{ left: wide(bar.range.low), width: wide(bar.range.high - bar.range.low) }}
            {...says(bar.title, bar.range.label)}
          />
        )}
        {bar.limit && (
          <div class="limit" style={{ left: wide(bar.limit.at) }} {...says(bar.limit.label)} />
        )}
      </div>
      {/* A label that does not fit wraps out of sight: no label is ever cut or on top of another. */}
      <div class="stack-labels">
        {bar.segments.map((each, place) => (
          <span key={place} class="stack-label" style={{ width: wide(each.amount) }}>
            <i />
            <wbr />
            {whole > 0 ? `${Math.round((100 * each.amount) / whole)}\u00a0% ` : ""}
            {each.label.replaceAll(" ", "\u00a0").replaceAll("-", "\u2011")}
          </span>
        ))}
      </div>
    </div>
  );
}

export interface LegendEntry {
  label: string;
  fill: string;
}

export function Legend({ entries, light }: { entries: LegendEntry[]; light?: (fill: string) => void }) {
  return (
    <ul class="named">
      {entries.map((each) => (
        <li key={each.label} onPointerEnter={() => light?.(each.fill)} onPointerLeave={() => light?.("")}>
          <i class={`swatch ${each.fill}`} />
          {each.label}
        </li>
      ))}
    </ul>
  );
}

/** Returns the bounds of a logarithmic scale that holds 1 and all factors; never empty. */
export function factorBounds(factors: (number | null)[]): [number, number] {
  const known = factors.filter((each): each is number => each !== null && each > 0 && Number.isFinite(each));
  const [low, high] = [Math.min(1, ...known), Math.max(1, ...known)];
  return high / low > 1.001 ? [low, high] : [low, 2 * low];
}

/** Returns where a factor lies between two others, from 0 to 1, by its logarithm. */
export function factorPlace(factor: number, [low, high]: [number, number]): number {
  return Math.min(1, Math.max(0, Math.log(factor / low) / Math.log(high / low)));
}

/** A bar from 1× to a factor: to the right where it is more, to the left where it is less. */
export function FactorBar({ factor, bounds }: { factor: number | null; bounds: [number, number] }) {
  const one = factorPlace(1, bounds);
  const place = factor === null || !(factor > 0) ? one : factorPlace(factor, bounds);
  const [from, to] = place < one ? [place, one] : [one, place];
  return (
    <span class="factor" aria-hidden="true" {...says(factor === null ? "not known" : times(factor))}>
      <i class={place < one ? "factor-bar loss" : "factor-bar"} style={{ left: `${100 * from}%`, width: `${100 * (to - from)}%` }} />
      <i class="factor-one" style={{ left: `${100 * one}%` }} />
    </span>
  );
}
