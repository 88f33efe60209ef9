// The frame of every view: title, reading, picture, and its data as a table.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { count } from "./format";

export interface CardProps {
  id: string;
  title: string;
  /** One sentence on what it shows. */
  reading?: string;
  /** Buttons at the right of the title. */
  tools?: ComponentChildren;
  /** Its data as a table, for screen readers and for copying. Built when it is opened. */
  twin?: () => Twin;
  wide?: boolean;
  children: ComponentChildren;
}

export interface Twin {
  columns: string[];
  rows: (string | number)[][];
}

const MOST_ROWS = 200;

export function Card({ id, title, reading, tools, twin, wide, children }: CardProps) {
  const [open, setOpen] = useState(false);
  return (
    <section class={wide ? "card wide" : "card"} id={id} aria-labelledby={`${id}-title`}>
      <header>
        <h3 id={`${id}-title`}>{title}</h3>
        <div class="tools">
          {tools}
          {twin && (
            <button type="button" aria-expanded={open} aria-controls={`${id}-twin`} onClick={() => setOpen(!open)}>
              table
            </button>
          )}
        </div>
      </header>
      {reading && <p class="reading">{reading}</p>}
      {children}
      {twin && (
        <div id={`${id}-twin`} class="twin" hidden={!open} tabIndex={0} role="region" aria-label={`${title}, as a table`}>
          {open && <TwinTable {...twin()} />}
        </div>
      )}
    </section>
  );
}

export function TwinTable({ columns, rows }: Twin) {
  const more = rows.length - MOST_ROWS;
  return (
    <table>
      <thead>
        <tr>
          {columns.map((name) => (
            <th key={name} scope="col">{name}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.slice(0, MOST_ROWS).map((row, place) => (
          <tr key={place}>
            {row.map((cell, column) => (
              <td key={column} class={typeof cell === "number" ? "number" : ""}>{cell}</td>
            ))}
          </tr>
        ))}
      </tbody>
      {more > 0 && <caption>the first {MOST_ROWS} of {count(rows.length)} rows</caption>}
    </table>
  );
}
