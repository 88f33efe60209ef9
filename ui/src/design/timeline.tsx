// The timeline of a step: spans by rank, the critical path, exposed and overlapped communication.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Told } from "../base/canvas";
import { Card } from "../base/card";
import { download } from "../base/copy";
import { show } from "../base/format";
import { onHash, readHash, writeHash } from "../base/hash";
import { type Board, boardOf, leastOf, reveal, see } from "./board";
import { type Choices, NARROW, Rows, Tools, useLanes } from "./lanes";
import { CLASS_WORDS } from "./looks";
import { Minimap } from "./minimap";
import { openingView, sameView } from "./opening";
import type { Pick } from "./paint";
import { traceText } from "./perfetto";
import { type Lane, processText } from "./rows";
import { found, wantedNames } from "./spans";
import { Legend, Picked, Split, spanTwin } from "./summary";
import { viewOf, viewText, within } from "./view";

const MOST_HIGH = 560;

export interface TimelineProps {
  /** One timeline, or two to compare, on one scale of time. */
  lanes: Lane[];
  /** The control that chooses the other. */
  chooser: ComponentChildren;
}

/** Returns the state of a timeline; a design that stays keeps its view. */
function newBoard(lanes: Lane[], before: Board | null): Board {
  const until = Math.max(...lanes.map(({ spans }) => spans.timeline.duration_s));
  const opening = openingView(lanes, until, window.innerWidth < NARROW ? 0.4 : 1);
  const untouched = before !== null && (sameView(before.view.value, before.opening) || before.view.value.to - before.view.value.from >= before.until);
  const same = before?.lanes[0].spans === lanes[0].spans && !untouched;
  const kept = before ? (same ? within(before.view.value, until, leastOf(until)) : null) : viewOf(readHash("time"), until, leastOf(until));
  return boardOf({ id: (before?.id ?? 0) + 1, lanes, until, opening }, kept ?? opening);
}

/** Returns a value read from signals once they have not changed for a moment: for numbers and the address. */
function useSettled<T>(signals: Told[], read: () => T): T {
  const [value, setValue] = useState(read);
  useEffect(() => {
    let timer = 0;
    setValue(read);
    const later = (): void => {
      clearTimeout(timer);
      timer = window.setTimeout(() => setValue(read), 120);
    };
    const forget = signals.map((signal) => signal.listen(later));
    return () => {
      clearTimeout(timer);
      for (const each of forget) each();
    };
  }, signals);
  return value;
}

export function TimelineCard({ lanes, chooser }: TimelineProps) {
  const before = useRef<Board | null>(null);
  const board = useMemo(() => (before.current = newBoard(lanes, before.current)), lanes.map((lane) => lane.spans));
  const choices = useLanes(board, lanes, (text) => lanes.map(({ spans }) => wantedNames(spans.timeline.names, text)));
  const [selected, setSelected] = useState<Pick | null>(null);
  const state = useSettled([board.view, board.area], () => ({ view: board.view.value, area: board.area.value }));
  useEffect(() => writeHash("time", viewText(state.view, board.opening)), [state]);
  useEffect(() => {
    setSelected(board.selected.value);
    return board.selected.listen(setSelected);
  }, [board]);
  useEffect(() => {
    const { until } = board;
    return onHash(() => see(board, viewOf(readHash("time"), until, leastOf(until)) ?? board.opening));
  }, [board]);

  const { duration_s: duration, reading } = lanes[0].spans.timeline;
  return (
    <Card
      id="timeline"
      title="One step over time"
      reading={`${reading}${openedOn(board)}`}
      wide
      twin={() => spanTwin(board, state.area ?? state.view, choices.criticalOnly)}
      tools={<StepTools board={board} choices={choices} />}
    >
      <div class="timeline-top">
        {chooser}
        <Legend lanes={lanes} />
      </div>
      <Split board={board} view={state.view} area={state.area} />
      <Minimap board={board} key={`map ${board.id}`} />
      <Rows
        board={board}
        key={board.id}
        mostHigh={MOST_HIGH}
        label={`Timeline of a step of ${show(duration, "s")}: ${board.rows.length} rows. The table holds its spans.`}
        tip={(pick) => spanLines(board, pick)}
      />
      <Picked board={board} selected={selected} />
    </Card>
  );
}

/** Returns which part of the step is shown first, where that is not all of it. */
function openedOn({ opening, until }: Board): string {
  if (opening.to - opening.from >= until) return "";
  return ` It opens on ${show(opening.to - opening.from, "s")} where most happens; "fit" shows the whole step.`;
}

function spanLines(board: Board, { lane, span }: Pick): string[] {
  const { spans } = board.lanes[lane];
  const { timeline, start, end } = spans;
  const track = timeline.tracks[spans.track[span]];
  return [
    timeline.names[spans.name[span]],
    `${show(end[span] - start[span], "s")}, from ${show(start[span], "s")}`,
    `${processText(spans, track.process)} · ${track.name}`,
    CLASS_WORDS[spans.paints[spans.paint[span]].class] + (spans.critical[span] ? " · on the critical path" : ""),
  ];
}

function StepTools({ board, choices }: { board: Board; choices: Choices }) {
  const hits = useMemo(
    () => board.lanes.flatMap(({ spans }, lane) => Array.from(found(spans, choices.text), (span): Pick => ({ lane, span }))),
    [board, choices.text],
  );
  const save = (): void => download("step.trace.json", traceText(board.lanes[0].spans), "application/json");
  return (
    <Tools board={board} choices={choices} one="span" hint="find spans" label="find spans by name" hits={hits.length} reveal={(hit) => reveal(board, hits[hit])}>
      <button type="button" onClick={save}>save for Perfetto</button>
    </Tools>
  );
}
