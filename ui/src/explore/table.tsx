// The selected trials as a table; only its visible rows exist.

import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { Card } from "../base/card";
import { count } from "../base/format";
import { useSignal } from "../base/signal";
import { Chooser } from "./chooser";
import { isChoice } from "./filter";
import type { Explorer } from "./model";
import { shortLabel, unitText } from "./names";
import { compareOrOpen } from "./opening";
import { type Field, fieldOf, isRight, Rows, ROW } from "./rows";

const FIRST_METRICS = ["step_s", "ttft_s", "tpot_s", "tokens_per_s", "mfu", "memory_bytes", "cost_usd"];
const OF_REQUESTS = ["ttft_p95_s", "tpot_p95_s", "ttft_s", "tpot_s", "tokens_per_s", "cost_usd_per_token"];
const MOST_FIRST = 14;

/** Returns the first columns of the table: objectives, main metrics, and the parameters of the axes. */
export function firstColumns(model: Explorer): string[] {
  const { trials, view, firstAxes } = model;
  const known = (name: string): boolean => {
    const column = trials.columns[model.column(name)];
    return !!column && column.low <= column.high;
  };
  const objectives = trials.columns.filter(({ spec }) => spec.objective).map(({ spec }) => spec.name);
  const metrics = [view.x.name, view.y.name, ...(SERVING && model.shared.source.document.serving ? OF_REQUESTS : FIRST_METRICS)].filter(known);
  const parameters = firstAxes.filter((name) => trials.columns[model.column(name)].spec.role === "parameter");
  return [...new Set([...objectives, ...metrics, ...parameters])].slice(0, MOST_FIRST);
}

export function Table({ model }: { model: Explorer }) {
  useSignal(model.revision);
  const { trials, view } = model;
  const body = useRef<HTMLTableSectionElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const rows = useRef<Rows | null>(null);
  const names = view.columns ?? firstColumns(model);
  const failing = trials.reasons.length > 1;
  const key = names.join();
  // The outcome stands behind the objective: on a narrow page the objective is in sight.
  const shown = ["trial", ...names.slice(0, 1), ...(failing ? ["outcome"] : []), ...names.slice(1)];
  const fields = useMemo(() => shown.map((name) => fieldOf(model, name)), [key, failing, trials]);

  useLayoutEffect(() => {
    rows.current = new Rows(model, body.current!, box.current!);
    return undefined;
  }, [model]);
  useLayoutEffect(() => rows.current!.show(fields), [fields]);
  useEffect(() => {
    const stop = [model.onPaint((changed) => (changed === "hover" ? rows.current!.mark() : rows.current!.select()))];
    const observer = new ResizeObserver(() => rows.current!.look());
    observer.observe(box.current!);
    return () => {
      observer.disconnect();
      for (const each of stop) each();
    };
  }, [model]);

  const placeOf = (event: Event): number => {
    const row = (event.target as Element).closest<HTMLElement>("tr[data-place]");
    return row ? Number(row.dataset.place) : -1;
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const table = rows.current!;
    const step = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
    const now = table.indexOf(model.shared.hovered.value);
    if (step && table.list.length) {
      const next = Math.max(0, Math.min(table.list.length - 1, now < 0 ? 0 : now + step));
      model.shared.hovered.value = trials.first + table.list[next];
      table.scrollTo(next);
    } else if (event.key === "Enter" && now >= 0) void compareOrOpen(model, table.list[now], event.shiftKey);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const chosen = trials.columns.filter(({ low, high }) => low <= high);

  return (
    <Card
      id="explore-table"
      title="Trials"
      wide
      reading={trials.count ? "Click a row to open its design, shift-click to compare, a heading to sort." : "No trials yet: the table fills as they come."}
      tools={
        <Chooser
          title="columns"
          columns={chosen}
          chosen={names}
          onChoose={(next) => model.setView({ columns: chosen.map(({ spec }) => spec.name).filter((name) => next.includes(name)) })}
          onReset={() => model.setView({ columns: null })}
        />
      }
    >
      <div
        ref={box}
        class="trials"
        style={{ maxHeight: `${13.5 * ROW}px` }}
        tabIndex={0}
        role="region"
        aria-label="trials, sorted and selected; arrows move, Enter opens a design, shift and Enter compares"
        onScroll={() => rows.current!.look()}
        onKeyDown={onKeyDown}
      >
        <table aria-rowcount={model.selectedCount + 1} style={{ width: `${fields.reduce((sum, field) => sum + widthOf(field), 0)}px` }}>
          <colgroup>
            {fields.map((field) => (
              <col key={field.name} style={{ width: `${widthOf(field)}px` }} />
            ))}
          </colgroup>
          <thead>
            <tr>
              {fields.map((field) => (
                <Heading key={field.name} model={model} field={field} />
              ))}
            </tr>
          </thead>
          <tbody
            ref={body}
            onClick={(event) => placeOf(event) >= 0 && void compareOrOpen(model, placeOf(event), event.shiftKey)}
            onMouseDown={(event) => event.shiftKey && event.preventDefault()}
            onPointerOver={(event) => {
              const place = placeOf(event);
              model.shared.hovered.value = place < 0 ? null : trials.first + place;
            }}
            onPointerLeave={() => (model.shared.hovered.value = null)}
          />
        </table>
      </div>
      {model.selectedCount === 0 && (
        <p class="empty">{trials.count ? `None of the ${count(trials.count)} trials passes these filters: undo the last, or remove one.` : "No trials yet."}</p>
      )}
    </Card>
  );
}

function Heading({ model, field }: { model: Explorer; field: Field }) {
  const { sort } = model.view;
  const here = sort.name === field.name;
  const better = field.column?.spec.better;
  const down = here ? !sort.down : better === "more";
  const unit = field.column ? unitText(field.column) : "";
  return (
    <th scope="col" class={isRight(field) ? "number" : ""} aria-sort={here ? (sort.down ? "descending" : "ascending") : "none"}>
      <button type="button" title={`${field.label}${unit ? ` (${unit})` : ""}: sort`} onClick={() => model.setView({ sort: { name: field.name, down } })}>
        {field.column ? shortLabel(field.column) : field.label}
        {here ? (sort.down ? " ▼" : " ▲") : ""}
      </button>
    </th>
  );
}

const LETTER = 7.4;
/** Of a heading, which is bold and has an arrow where it sorts. */
const HEAD_LETTER = 8.2;
const ARROW = 2;
const PADDING = 26;

function widthOf({ name, column }: Field): number {
  if (!column) return name === "trial" ? 86 : 150;
  const longest = isChoice(column) ? Math.min(22, column.labels.reduce((most, label) => Math.max(most, label.length), 0)) : 11;
  return PADDING + Math.max(LETTER * longest, HEAD_LETTER * Math.min(24, shortLabel(column).length + ARROW));
}
