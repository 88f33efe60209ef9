// The timeline in numbers: totals of the visible part, the selected span, and the spans as a table.

import { useMemo } from "preact/hooks";
import type { Twin } from "../base/card";
import { show } from "../base/format";
import type { Class } from "../aliases";
import type { Timeline } from "../document";
import { type Board, select } from "./board";
import { CLASS_WORDS } from "./looks";
import { sameView } from "./opening";
import type { Pick } from "./paint";
import { type Lane, processText } from "./rows";
import { classSeconds, firstAt, meanSeconds, neighbours, type Spans } from "./spans";
import type { View } from "./view";

/** Seconds of a step, or of a part of it; overlapped ("hidden") communication runs beside the rest. */
interface Sums {
  compute: number;
  exposed: number;
  hidden: number;
  idle: number;
}

const KINDS = ["compute", "exposed", "idle"] as const;

function sumsOfAll({ totals }: Timeline): Sums {
  return { compute: totals.compute_s, exposed: totals.exposed_s, hidden: totals.hidden_s, idle: totals.idle_s };
}

/** Returns the sums of a part of the step, as the mean of all ranks: time without compute or exposed communication is idle. */
export function sumsOfPart(spans: Spans, from: number, to: number): Sums {
  const mean = meanSeconds(spans.timeline, classSeconds(spans, from, to));
  const compute = mean.compute + mean.optimizer + mean.other;
  const length = Math.max(0, Math.min(to, spans.timeline.duration_s) - from);
  return { compute, exposed: mean.exposed, hidden: mean.hidden, idle: Math.max(0, length - compute - mean.exposed) };
}

export function Split({ board, view, area }: { board: Board; view: View; area: View | null }) {
  const part = area ?? view;
  const whole = !area && ((part.from <= 0 && part.to >= board.until) || sameView(part, board.opening));
  const where = whole
    ? "the whole step, on the slowest stage"
    : `${show(part.from, "s")} to ${show(part.to, "s")} (${show(part.to - part.from, "s")}${area ? ", selected" : ""}), mean of all ranks`;
  const sums = useMemo(
    () => board.lanes.map(({ spans }) => (whole ? sumsOfAll(spans.timeline) : sumsOfPart(spans, part.from, part.to))),
    [board, part.from, part.to, whole],
  );
  const most = Math.max(...sums.map((each) => each.compute + each.exposed + each.idle), 1e-12);
  return (
    <div class="splits" role="group" aria-label={`Totals of ${where}`}>
      <p class="where">{where}</p>
      {board.lanes.map((lane, place) => (
        <SplitLine key={place} label={board.lanes.length > 1 ? lane.label : ""} sums={sums[place]} most={most} />
      ))}
    </div>
  );
}

function SplitLine({ label, sums, most }: { label: string; sums: Sums; most: number }) {
  const communication = sums.exposed + sums.hidden;
  const percent = (seconds: number): string => `${Math.round((100 * seconds) / communication)} %`;
  // Rounding errors are shown as 0.
  const time = (seconds: number): string => show(seconds < most * 1e-6 ? 0 : seconds, "s");
  return (
    <div class="split">
      {label && <b>{label}</b>}
      <div class="split-bar" aria-hidden="true">
        {KINDS.map((kind) => (
          <span key={kind} class={`fill-${kind}`} style={{ width: `${(100 * sums[kind]) / most}%` }} />
        ))}
      </div>
      <span class="sums">
        {KINDS.map((kind) => (
          <span key={kind}>{kind} <span class="number">{time(sums[kind])}</span></span>
        ))}
        <span>
          {communication > 0 ? (
            <>
              communication <span class="number">{time(communication)}</span>: <span class="number">{percent(sums.hidden)}</span> overlapped,{" "}
              <span class="number">{percent(sums.exposed)}</span> exposed
            </>
          ) : "no communication"}
        </span>
      </span>
    </div>
  );
}

export function Legend({ lanes }: { lanes: Lane[] }) {
  const seen = new Map<string, [Class, boolean]>();
  for (const { spans } of lanes)
    spans.paints.forEach((paint, place) => {
      if (spans.sums[place][spans.count] > 0) seen.set(`${paint.class}${paint.back}`, [paint.class, paint.back]);
    });
  const order: Class[] = ["compute", "exposed", "hidden", "idle", "memory", "optimizer", "other"];
  const shown = [...seen.values()].sort((a, b) => order.indexOf(a[0]) - order.indexOf(b[0]) || Number(a[1]) - Number(b[1]));
  const both = new Set(shown.filter(([, back]) => back).map(([kind]) => kind));
  return (
    <ul class="span-legend">
      {shown.map(([kind, back]) => (
        <li key={`${kind}${back}`}>
          <span class={`swatch fill-${kind}${back ? " back" : ""}`} aria-hidden="true" />
          {back ? "backward" : kind === "compute" && both.has(kind) ? "compute, forward" : CLASS_WORDS[kind]}
        </li>
      ))}
      <li>
        <span class="swatch edge" aria-hidden="true" />
        critical path
      </li>
    </ul>
  );
}

const HINT = "Click a span for its dependencies. W S zoom, A D pan, F fits; drag pans, Shift-drag measures, Ctrl-wheel zooms.";
const TOUCH_HINT = "Tap a span for its dependencies; two fingers zoom, one finger moves, a tap on a name folds.";
const MOST_LINKS = 6;

export function Picked({ board, selected }: { board: Board; selected: Pick | null }) {
  const spans = selected && board.lanes[selected.lane]?.spans;
  if (!selected || !spans || selected.span >= spans.count)
    return <p class="picked faint">{matchMedia("(pointer: coarse)").matches ? TOUCH_HINT : HINT}</p>;
  const { span } = selected;
  const track = spans.timeline.tracks[spans.track[span]];
  const { before, after } = neighbours(spans, span);
  const kind = spans.paints[spans.paint[span]].class;
  return (
    <div class="picked">
      <p aria-live="polite">
        <span class={`swatch fill-${kind}`} aria-hidden="true" /> <b>{spans.timeline.names[spans.name[span]]}</b>{" "}
        <span class="number">{show(spans.end[span] - spans.start[span], "s")}</span> from{" "}
        <span class="number">{show(spans.start[span], "s")}</span> on {processText(spans, track.process)} · {track.name};{" "}
        {CLASS_WORDS[kind]}, {spans.critical[span] ? "on the critical path" : "not on the critical path"}.
      </p>
      {[["depends on", before] as const, ["needed by", after] as const].map(([word, places]) => places.length > 0 && (
        <p key={word} class="ways">
          {word}{" "}
          {places.slice(0, MOST_LINKS).map((each) => (
            <button type="button" key={each} onClick={() => select(board, { ...selected, span: each })}>
              {spans.timeline.names[spans.name[each]]} · {processText(spans, spans.timeline.tracks[spans.track[each]].process)}
            </button>
          ))}
          {places.length > MOST_LINKS && ` and ${places.length - MOST_LINKS} more`}
        </p>
      ))}
    </div>
  );
}

const MOST_ROWS = 5000;

/** Returns the visible spans, or the totals of a selected area, as a table. */
export function spanTwin(board: Board, part: View, criticalOnly: boolean): Twin {
  const many = board.lanes.length > 1;
  const rows: (string | number)[][] = [];
  if (board.area.value) {
    for (const { spans, label } of board.lanes)
      classSeconds(spans, part.from, part.to).forEach((by, process) => {
        const name = processText(spans, process);
        rows.push([many ? `${label}: ${name}` : name, ...(Object.keys(by) as Class[]).map((kind) => show(by[kind], "s"))]);
      });
    return { columns: ["process", ...Object.keys(CLASS_WORDS)], rows };
  }
  for (const { spans, label } of board.lanes) {
    const { timeline, start, end } = spans;
    timeline.tracks.forEach((track, place) => {
      const last = spans.first[place + 1];
      const name = processText(spans, track.process);
      let span = firstAt(spans.reach, part.from, spans.first[place], last, true);
      for (; span < last && start[span] < part.to && rows.length < MOST_ROWS; span++) {
        if (criticalOnly && !spans.critical[span]) continue;
        const kind = CLASS_WORDS[spans.paints[spans.paint[span]].class];
        rows.push([
          many ? `${label}: ${name}` : name, track.name, timeline.names[spans.name[span]], kind,
          show(start[span], "s"), show(end[span] - start[span], "s"), spans.critical[span] ? "yes" : "",
        ]);
      }
    });
  }
  return { columns: ["process", "track", "span", "class", "start", "duration", "critical"], rows };
}
