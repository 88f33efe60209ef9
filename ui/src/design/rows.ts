// The rows of a timeline from top to bottom: designs, their processes, tracks and counters.

import type { Counter, Spans } from "./spans";

/** One timeline of those that are shown together. */
export interface Lane {
  label: string;
  spans: Spans;
}

export interface Row {
  kind: "design" | "process" | "track" | "counter";
  lane: number;
  process: number;
  /** The track, or the place of a counter. */
  place: number;
  /** Other tracks that are drawn on the same row: idle time, and all tracks of a folded process. */
  extra: number[];
  /** Whether it stands for its whole process. */
  folded: boolean;
  top: number;
  height: number;
}

const HEIGHT = { design: 24, process: 22, track: 22, counter: 34 };
/** The height up to which all processes are unfolded at first. */
const ROOM = 600;

export function foldKey(lane: number, process: number): string {
  return `${lane}.${process}`;
}

/** Returns which processes are folded at first where there are too many rows: all but the one that bounds the step. */
export function firstFolds(lanes: Lane[]): Set<string> {
  const folds = new Set<string>();
  if (totalHeight(layRows(lanes, folds)) <= ROOM) return folds;
  lanes.forEach(({ spans }, lane) => {
    const open = boundingProcess(spans);
    for (let process = 0; process < spans.timeline.processes.length; process++) if (process !== open) folds.add(foldKey(lane, process));
  });
  return folds;
}

/** Returns the process that spends the most time on the critical path. */
function boundingProcess({ timeline, start, end, track, critical, count }: Spans): number {
  const times = timeline.processes.map(() => 0);
  for (let span = 0; span < count; span++) if (critical[span]) times[timeline.tracks[track[span]].process] += end[span] - start[span];
  return times.indexOf(Math.max(...times));
}

/** Returns the rows of all lanes; a folded process is one row. Idle time is on the first row of its process. */
export function layRows(lanes: Lane[], folds: Set<string>): Row[] {
  const rows: Row[] = [];
  let top = 0;
  const add = (kind: Row["kind"], lane: number, process: number, place: number, height: number, extra: number[] = [], folded = false): void => {
    rows.push({ kind, lane, process, place, extra, folded, top, height });
    top += height;
  };
  lanes.forEach(({ spans }, lane) => {
    if (lanes.length > 1) add("design", lane, -1, -1, HEIGHT.design);
    const { processes, tracks } = spans.timeline;
    const byProcess: number[][] = processes.map(() => []);
    tracks.forEach(({ process }, track) => {
      if (spans.first[track + 1] > spans.first[track]) byProcess[process].push(track);
    });
    processes.forEach((_, process) => {
      const [main, ...others] = byProcess[process];
      if (folds.has(foldKey(lane, process)) && main !== undefined) {
        add("track", lane, process, main, processes.length > 24 ? 14 : 20, others, true);
        return;
      }
      add("process", lane, process, -1, HEIGHT.process);
      const idle = others.filter((track) => tracks[track].name === "idle");
      if (main !== undefined) add("track", lane, process, main, HEIGHT.track, idle);
      for (const track of others) if (!idle.includes(track)) add("track", lane, process, track, HEIGHT.track);
      spans.counters.forEach((counter: Counter, place) => {
        if (counter.process === process) add("counter", lane, process, place, HEIGHT.counter);
      });
    });
  });
  return rows;
}

export function totalHeight(rows: Row[]): number {
  const last = rows[rows.length - 1];
  return last ? last.top + last.height : 0;
}

export function rowAt(rows: Row[], y: number): Row | null {
  return rows.find((row) => y >= row.top && y < row.top + row.height) ?? null;
}

/** Returns the row that a track is drawn on; null where it is folded away. */
export function rowOf(rows: Row[], lane: number, track: number): Row | null {
  return rows.find((row) => row.kind === "track" && row.lane === lane && (row.place === track || row.extra.includes(track))) ?? null;
}

/** "stage 3 ×128": a process, and how many ranks are identical. */
export function processText(spans: Spans, process: number): string {
  const { name, ranks } = spans.timeline.processes[process];
  return ranks > 1 ? `${name} ×${ranks.toLocaleString("en-US")}` : name;
}
