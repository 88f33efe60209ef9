// A panel under a button. Escape and a click elsewhere close it.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { TrialColumn } from "../trials";

export function Panel({ label, children, onClose }: { label: string; children: ComponentChildren; onClose: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    box.current?.querySelector<HTMLElement>("input, button")?.focus({ preventScroll: true });
    const outside = (event: PointerEvent): void => {
      if (!box.current?.contains(event.target as Node)) onClose();
    };
    const timer = setTimeout(() => document.addEventListener("pointerdown", outside));
    return () => {
      clearTimeout(timer);
      document.removeEventListener("pointerdown", outside);
      if (box.current?.contains(document.activeElement)) before?.focus({ preventScroll: true });
    };
  }, []);
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    onClose();
  };
  return (
    <div ref={box} class="panel" role="dialog" aria-label={label} onKeyDown={onKeyDown}>
      {children}
    </div>
  );
}

interface ChooserProps {
  title: string;
  columns: TrialColumn[];
  chosen: string[];
  onChoose: (names: string[]) => void;
  onReset: () => void;
}

/** A button with a list of columns to tick, by layer. */
export function Chooser({ title, columns, chosen, onChoose, onReset }: ChooserProps) {
  const [open, setOpen] = useState(false);
  const groups = new Map<string, TrialColumn[]>();
  for (const column of columns) {
    const name = column.spec.role === "metric" ? "metrics" : column.spec.stack || "parameters";
    groups.set(name, [...(groups.get(name) ?? []), column]);
  }
  const toggle = (name: string): void => onChoose(chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name]);
  return (
    <span class="chooser">
      <button type="button" aria-expanded={open} aria-haspopup="dialog" onClick={() => setOpen(!open)}>
        {title} {chosen.length} of {columns.length}
      </button>
      {open && (
        <Panel label={title} onClose={() => setOpen(false)}>
          <p class="row">
            <button type="button" onClick={() => onChoose(columns.map(({ spec }) => spec.name))}>all</button>
            <button type="button" onClick={onReset}>reset</button>
            <button type="button" onClick={() => setOpen(false)}>close</button>
          </p>
          {[...groups].map(([name, members]) => (
            <fieldset key={name}>
              <legend>{name}</legend>
              {members.map(({ spec }) => (
                <label key={spec.name} class="tick">
                  <input type="checkbox" checked={chosen.includes(spec.name)} onChange={() => toggle(spec.name)} />
                  {spec.label}
                </label>
              ))}
            </fieldset>
          ))}
        </Panel>
      )}
    </span>
  );
}
