// The studies of the directory: state, progress and best value.

import { useState } from "preact/hooks";
import { count, show } from "../base/format";
import type { Catalog, Metric, Row } from "./api";
import { Failed } from "./failed";
import { usePolled } from "./polled";
import { go, linkTo } from "./route";

const EVERY_MS = 2000;
const MOST_COMPARED = 12;

const STATES = { running: "running", stopped: "stopped", done: "done", damaged: "damaged" } as const;

/** Returns a metric as it is shown, with the unit that the catalog gives it. */
export function worth(metrics: Metric[], name: string | undefined, value: number | null): string {
  return show(value, metrics.find((each) => each.name === name)?.unit ?? "");
}

export function Studies({ catalog }: { catalog: Catalog }) {
  const { value, failure } = usePolled<{ studies: Row[] }>("/api/studies", EVERY_MS);
  const [chosen, setChosen] = useState<string[]>([]);
  const rows = value?.studies ?? null;

  const choose = (id: string, on: boolean): void => setChosen(on ? [...chosen, id] : chosen.filter((each) => each !== id));

  return (
    <section aria-labelledby="studies-title">
      <div class="bar">
        <h2 id="studies-title">Studies</h2>
        <div class="tools">
          <button type="button" disabled={chosen.length < 2} onClick={() => go({ page: "compare", studies: chosen })}>
            compare {chosen.length || ""}
          </button>
          <a class="button primary" href={linkTo({ page: "search", space: "" })}>new search</a>
        </div>
      </div>
      <Failed text={failure} />
      {rows === null && !failure && <p class="reading">Loading …</p>}
      {rows?.length === 0 && (
        <p class="reading">
          No studies yet. <a href={linkTo({ page: "search", space: "" })}>Start a search</a>, or run{" "}
          <code>cosmic search</code> in the parent of this directory: its study appears here.
        </p>
      )}
      {!!rows?.length && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Studies">
          <table class="studies">
            <thead>
              <tr>
                <th scope="col"><span class="offscreen">compare</span></th>
                <th scope="col">study</th>
                <th scope="col">state</th>
                <th scope="col" class="number">trials</th>
                <th scope="col" class="number">feasible</th>
                <th scope="col">best</th>
                <th scope="col">space</th>
                <th scope="col">agent</th>
                <th scope="col" class="number">seed</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <StudyRow
                  key={row.id}
                  row={row}
                  catalog={catalog}
                  chosen={chosen.includes(row.id)}
                  full={chosen.length >= MOST_COMPARED}
                  choose={choose}
                />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

interface StudyRowProps {
  row: Row;
  catalog: Catalog;
  chosen: boolean;
  full: boolean;
  choose: (id: string, on: boolean) => void;
}

function StudyRow({ row, catalog, chosen, full, choose }: StudyRowProps) {
  const first = row.objectives?.[0];
  const share = row.evaluated !== null && row.trials ? row.evaluated / row.trials : 0;
  return (
    <tr>
      <td>
        <input
          type="checkbox"
          aria-label={`compare ${row.id}`}
          checked={chosen}
          disabled={!!row.problem || (full && !chosen)}
          onChange={(event) => choose(row.id, event.currentTarget.checked)}
        />
      </td>
      <td>{row.problem ? row.id : <a href={linkTo({ page: "study", study: row.id })}>{row.id}</a>}</td>
      {row.problem ? (
        <td colSpan={7} class="failure">{row.problem}</td>
      ) : (
        <>
          <td><State row={row} /></td>
          <td class="number">
            {count(row.evaluated ?? 0)} of {count(row.trials ?? 0)}
            {row.state === "running" && <progress max={1} value={share} aria-label={`progress of ${row.id}`} />}
          </td>
          <td class="number">{row.evaluated ? show((row.feasible ?? 0) / row.evaluated, "share") : "–"}</td>
          <td>{first}: {worth(catalog.metrics, first, row.best)}</td>
          <td>{row.space}</td>
          <td>{row.agent}</td>
          <td class="number">{row.seed}</td>
        </>
      )}
    </tr>
  );
}

export function State({ row }: { row: Row }) {
  return (
    <span class={`state ${row.state}`} title={row.failure ?? ""}>
      {STATES[row.state]}
      {row.failure && `: ${row.failure}`}
    </span>
  );
}
