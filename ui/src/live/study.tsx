// One study as it grows: the views of the report, fed by the server.

import { useEffect, useState } from "preact/hooks";
import { download } from "../base/copy";
import { count } from "../base/format";
import { afterPaint, drawLate } from "../base/late";
import { Signal, useSignal } from "../base/signal";
import type { Block, Convergence, ReportDocument } from "../document";
import { frontOf } from "../explore/front";
import { sharedOf, StudyView } from "../shell";
import type { Shared, Source } from "../state";
import { decode, joined, type Trials } from "../trials";
import { ConvergenceCard } from "../verdict/convergence";
import { type Catalog, get, getContainer, getDesign, getDocument, getText, type Metric, post, type Row, studyPath } from "./api";
import { listen } from "./events";
import { Failed } from "./failed";
import { State, worth } from "./studies";
import { WhatIf } from "./what_if";

const SOON_MS = 150;
/** A document is made once there are so many trials, or so long after the first. */
const ENOUGH = 64;
const PATIENCE_MS = 1500;
/** The document of a running search is reloaded when it has this many times as many trials. */
const OLD = 8;

interface Delta {
  n: number;
  total: number;
  state: Row["state"];
  block: Block;
}

export function StudyPage({ id, catalog }: { id: string; catalog: Catalog }) {
  const [shared, setShared] = useState<Shared | null>(null);
  const [row, setRow] = useState<Row | null>(null);
  /** The first trials of a search, before there is a document of it. */
  const [early, setEarly] = useState<Trials | null>(null);
  const [failure, setFailure] = useState("");
  const [saving, setSaving] = useState(false);
  /** Counts the loads of the whole document: at first, and when a search ends. */
  const [wanted, setWanted] = useState(0);

  useEffect(() => {
    let gone = false;
    const load = async (): Promise<void> => {
      let now = await get<Row>(studyPath(id, "/status"));
      while (now.state === "running" && !now.n && !gone) {
        setRow(now);
        await new Promise((after) => setTimeout(after, SOON_MS)); // it has just started: nothing is written yet
        now = await get<Row>(studyPath(id, "/status"));
      }
      if (gone) return;
      setRow(now);
      const began = performance.now();
      while (now.state === "running" && !shared && !gone) {
        const trials = await firstTrials(id);
        if (gone) return;
        setEarly(trials);
        if (trials.count >= ENOUGH || performance.now() - began > PATIENCE_MS) break;
        await new Promise((after) => setTimeout(after, SOON_MS));
        now = await get<Row>(studyPath(id, "/status"));
        setRow(now);
      }
      const { json, binary } = await getDocument(id);
      if (gone) return;
      setShared(newShared(id, json, binary));
      setFailure("");
    };
    load().catch((error: Error) => !gone && setFailure(error.message));
    return () => {
      gone = true;
    };
  }, [id, wanted]);

  useEffect(() => {
    if (shared) afterPaint(() => void drawLate());
  }, [shared]);

  useEffect(() => follow(id, shared?.source ?? null, setRow, () => setWanted((before) => before + 1)), [id, shared]);

  const command = async (what: "stop" | "resume"): Promise<void> => {
    try {
      setRow(await post<Row>(studyPath(id, `/${what}`), {}));
      setWanted((before) => before + 1);
    } catch (error) {
      setFailure((error as Error).message);
    }
  };

  const save = async (): Promise<void> => {
    setSaving(true);
    try {
      download(`${id}.html`, await getText(studyPath(id, "/report.html")), "text/html");
    } catch (error) {
      setFailure((error as Error).message);
    }
    setSaving(false);
  };

  return (
    <>
      <div class="bar live">
        <p role="status">
          {row && <State row={row} />} {row && <Progress row={row} catalog={catalog} />}
        </p>
        <div class="tools">
          {row?.state === "running" && row.ours && <button type="button" onClick={() => command("stop")}>stop</button>}
          {row?.state === "stopped" && <button type="button" onClick={() => command("resume")}>resume</button>}
          <button type="button" disabled={saving} onClick={save}>report</button>
        </div>
      </div>
      <Failed text={failure} />
      {!shared && !failure && (row?.state === "running" ? <Starting row={row} catalog={catalog} trials={early} /> : <p class="reading">Opening the study …</p>)}
      {shared && row?.state === "running" && <Converging shared={shared} renew={() => setWanted((before) => before + 1)} />}
      {shared && (
        <StudyView shared={shared} key={wanted}>
          {shared.source.document.designs.length > 0 && <WhatIf id={id} shared={shared} />}
        </StudyView>
      )}
    </>
  );
}

/** What is searched, and the first that was found: shown until the document of the study is there. */
function Starting({ row, catalog, trials }: { row: Row; catalog: Catalog; trials: Trials | null }) {
  const metric = catalog.metrics.find((each) => each.name === row.objectives?.[0]);
  return (
    <>
      <p class="starting" role="status">{startingReading(row, metric)}</p>
      {trials && metric && <ConvergenceCard convergence={courseOf(trials, { objective: metric.name, ...metric, series: [] })} />}
    </>
  );
}

/** Returns what a search that has just begun is about. */
export function startingReading({ agent, trials, space, n }: Row, metric: Metric | undefined): string {
  const aim = metric ? ` for the ${metric.better === "less" ? "least" : "most"} ${metric.label}` : "";
  const asked = `${agent} evaluates ${count(trials ?? 0)} designs of ${space}${aim}`;
  return n ? `${asked}: ${count(n)} so far. The report is being made …` : `${asked}. The first of them come in a moment …`;
}

async function firstTrials(id: string): Promise<Trials> {
  const { json, binary } = await getContainer<Delta>(studyPath(id, "/block?after=0"));
  return decode(json.block, binary);
}

function Progress({ row, catalog }: { row: Row; catalog: Catalog }) {
  const first = row.objectives?.[0];
  return (
    <>
      {count(row.evaluated ?? 0)} of {count(row.trials ?? 0)} designs · best {first}: {worth(catalog.metrics, first, row.best)}
      {row.state === "running" && <Elapsed since={row.created} />}
      {row.state === "running" && (
        <progress max={1} value={(row.evaluated ?? 0) / Math.max(1, row.trials ?? 1)} aria-label="progress" />
      )}
    </>
  );
}

const SECOND_MS = 1000;

/** For how long a search has been running: it moves, even while one batch takes long. */
function Elapsed({ since }: { since: string | null }) {
  const [opened] = useState(Date.now());
  const [now, setNow] = useState(opened);
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), SECOND_MS);
    return () => clearInterval(timer);
  }, []);
  const began = since === null ? NaN : Date.parse(since);
  return <> · {elapsedText(Math.max(0, now - (Number.isFinite(began) ? began : opened)) / SECOND_MS)}</>;
}

/** Returns a time in whole seconds, minutes or hours: 12 s, 3 min 4 s, 2 h 5 min. */
export function elapsedText(seconds: number): string {
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** The convergence of a running search, and as of how many designs the views below are. */
function Converging({ shared, renew }: { shared: Shared; renew: () => void }) {
  const trials = useSignal(shared.source.trials);
  const loaded = shared.source.document.trials.count;
  const old = trials.count > OLD * Math.max(1, loaded);
  useEffect(() => {
    if (old) renew();
  }, [old]);
  return (
    <>
      <ConvergenceCard convergence={courseOf(trials, shared.source.document.convergence)} />
      <p class="reading">
        The sections below are as of {loaded === 1 ? "one design" : `${count(loaded)} designs`}; the explorer is up to date.{" "}
        <button type="button" disabled={trials.count === loaded} onClick={renew}>update</button>
      </p>
    </>
  );
}

/** Returns the convergence over the trials that the page holds. */
export function courseOf(trials: Trials, about: Convergence): Convergence {
  const column = trials.columns.find((each) => each.spec.objective);
  const points: [number, number][] = [];
  const sign = about.better === "more" ? -1 : 1;
  let best = Infinity;
  for (let place = 0; column && place < trials.count; place++) {
    const value = sign * column.values[place];
    if (trials.outcomes[place] !== 0 || !(value < best)) continue;
    best = value;
    points.push([trials.first + place + 1, sign * value]);
  }
  if (points.length) points.push([trials.first + trials.count, points[points.length - 1][1]]);
  return { ...about, series: [{ name: "this search", points }] };
}

function newShared(id: string, document: ReportDocument, binary: Uint8Array): Shared {
  const source: Source = {
    document,
    binary,
    trials: new Signal(decode(document.trials, binary)),
    front: new Signal(document.front),
    open: async (trial) => {
      const held = document.designs.find((each) => each.trial === trial && each.timeline);
      if (held) return { design: held, binary };
      const { json, binary: bytes } = await getDesign(id, trial);
      return { design: json, binary: bytes };
    },
  };
  return sharedOf(source);
}

/** Listens to the events of a study and pulls new trials; returns the function that ends it. */
function follow(id: string, source: Source | null, tell: (row: Row) => void, ended: () => void): () => void {
  if (!source) return () => undefined;
  let gone = false;
  let busy = false;
  let again = false;
  let was: Row["state"] | null = null;

  const look = async (): Promise<void> => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const row = await get<Row>(studyPath(id, "/status"));
      if (gone) return;
      tell(row);
      await pull(id, source, () => gone);
      if (was === "running" && row.state !== "running" && !gone) ended();
      was = row.state;
    } catch {
      // The next event tries again; the list of studies shows the error.
    } finally {
      busy = false;
      if (again && !gone) {
        again = false;
        void look();
      }
    }
  };

  // A server without a free stream answers with an error: then the page polls.
  const unlisten = listen(studyPath(id, "/events"), () => void look(), () => void look());
  void look();
  return () => {
    gone = true;
    unlisten();
  };
}

async function pull(id: string, source: Source, isGone: () => boolean): Promise<void> {
  for (;;) {
    const before = source.trials.value;
    const after = before.first + before.count;
    const { json, binary } = await getContainer<Delta>(studyPath(id, `/block?after=${after}`));
    if (isGone() || !json.block.count) return;
    const next = joined(before, decode(json.block, binary));
    source.front.value = liveFront(next);
    source.trials.value = next;
    if (json.n >= json.total) return;
  }
}

/** Returns the numbers of the trials on the front; with one objective, the best. */
function liveFront(trials: Trials): number[] {
  const wanted = trials.columns.filter((column) => column.spec.objective);
  if (!wanted.length) return [];
  const all = new Uint8Array(trials.count).fill(1);
  return frontOf(trials, wanted[0], wanted[1] ?? wanted[0], all).map((place) => trials.first + place);
}
