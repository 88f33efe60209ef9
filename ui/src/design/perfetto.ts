// A timeline as Chrome trace events, which Perfetto and chrome://tracing open. Written by the page itself, offline.

import type { Spans } from "./spans";

const MICRO = 1e6;

/** Returns trace events as JSON text: processes, tracks, spans, flows and counters; times are microseconds. */
export function traceText(spans: Spans): string {
  const { timeline, start, end, name, track, paints, paint } = spans;
  const lines: string[] = [];
  const put = (event: object): void => void lines.push(JSON.stringify(event));
  const us = (time: number): number => Number((time * MICRO).toFixed(3));
  timeline.processes.forEach((process, pid) => {
    const label = process.ranks > 1 ? `${process.name} ×${process.ranks}` : process.name;
    put({ ph: "M", name: "process_name", pid, args: { name: label } });
    put({ ph: "M", name: "process_sort_index", pid, args: { sort_index: pid } });
  });
  timeline.tracks.forEach(({ process, name: label }, place) => {
    put({ ph: "M", name: "thread_name", pid: process, tid: place + 1, args: { name: label } });
    put({ ph: "M", name: "thread_sort_index", pid: process, tid: place + 1, args: { sort_index: place } });
  });
  const where = (span: number): { pid: number; tid: number } => ({ pid: timeline.tracks[track[span]].process, tid: track[span] + 1 });
  for (let span = 0; span < spans.count; span++) {
    const args = spans.critical[span] ? { critical: true } : {};
    const dur = Math.max(0, us(end[span]) - us(start[span]));
    const what = { name: timeline.names[name[span]], cat: paints[paint[span]].class };
    put({ ph: "X", ...what, ...where(span), ts: us(start[span]), dur: Number(dur.toFixed(3)), args });
  }
  for (let flow = 0; flow < spans.from.length; flow++) {
    const [from, to] = [spans.from[flow], spans.to[flow]];
    const same = { name: "waits", cat: "flow", id: flow };
    put({ ...same, ph: "s", ...where(from), ts: us(Math.max(start[from], end[from] - 1e-9)) });
    put({ ...same, ph: "f", bp: "e", ...where(to), ts: us(start[to]) });
  }
  for (const { process, name: label, times, values } of spans.counters)
    for (let place = 0; place < times.length; place++)
      put({ ph: "C", name: label, pid: process, ts: us(times[place]), args: { value: values[place] } });
  return `{"displayTimeUnit":"ms","traceEvents":[\n${lines.join(",\n")}\n]}\n`;
}
