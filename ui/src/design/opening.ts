// Which part of a step a timeline shows first: all of it where its spans can be told apart, else where most happens.

import type { Lane } from "./rows";
import { heat, type Spans } from "./spans";
import type { View } from "./view";

/** Spans of a track that can be told apart side by side, and how many of them a first look has. */
const READABLE = 64;
const FIRST = 32;
const BINS = 600;
/** Starts of a part that are tried. */
const TRIED = 240;
/** How much of the most is as good as the most: of such parts the first is shown. */
const AS_GOOD = 0.98;

/** Returns the first view of some timelines on one scale of time; `room` is the width of the page relative to a desktop. */
export function openingView(lanes: Lane[], until: number, room = 1): View {
  const whole = { from: 0, to: until };
  const most = Math.max(...lanes.map(({ spans }) => longestTrack(spans)));
  if (most <= READABLE * room || !(until > 0)) return whole;
  const length = (until * FIRST * room) / most;
  const happens = new Float64Array(BINS + 1);
  for (const { spans } of lanes) {
    const { busy, exposed } = heat(spans, until, BINS);
    // Communication that others wait for is what a reader looks for; a bubble counts nothing.
    for (let bin = 0; bin < BINS; bin++) happens[bin + 1] += busy[bin] + 2 * exposed[bin];
  }
  for (let bin = 0; bin < BINS; bin++) happens[bin + 1] += happens[bin];
  const sumUntil = (time: number): number => {
    const at = Math.min(BINS, (time / until) * BINS);
    const bin = Math.min(BINS - 1, Math.floor(at));
    return happens[bin] + (at - bin) * (happens[bin + 1] - happens[bin]);
  };
  const starts = Array.from({ length: TRIED + 1 }, (_, each) => (each * (until - length)) / TRIED);
  const worth = starts.map((from) => sumUntil(from + length) - sumUntil(from));
  const best = Math.max(...worth);
  const from = starts[worth.findIndex((each) => each >= AS_GOOD * best)];
  return { from, to: from + length };
}

/** Returns how many spans the fullest track has. */
function longestTrack({ first }: Spans): number {
  let most = 0;
  for (let track = 0; track + 1 < first.length; track++) most = Math.max(most, first[track + 1] - first[track]);
  return most;
}

export function sameView(one: View, other: View): boolean {
  return Math.abs(one.from - other.from) + Math.abs(one.to - other.to) < (other.to - other.from) * 1e-6;
}
