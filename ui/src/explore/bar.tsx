// The selection: its count, its filters as text, and actions.

import { useEffect, useRef, useState } from "preact/hooks";
import { CopyButton, download } from "../base/copy";
import { count } from "../base/format";
import { useSignal } from "../base/signal";
import { asCommands, asCsv, asPython, type Selection } from "./commands";
import { chipText, OUTCOME, parseChip, RUNS, type Term, termsText } from "./filter";
import { bestOf } from "./front";
import { outcomesOf } from "./mask";
import type { Explorer } from "./model";
import { share } from "./names";

export const FILTER_ID = "explore-filter";

export function selectedText(model: Explorer): string {
  const { selectedCount: some, trials } = model;
  return `Selected: ${count(some)} of ${count(trials.count)} (${share(some, trials.count)})`;
}

function selectionOf(model: Explorer): Selection {
  const { trials, selected, selectedCount } = model;
  const chips = model.brush.length ? [...model.chips, { not: false, terms: model.brush }] : model.chips;
  return { trials, chips, selected, count: selectedCount, best: bestOf(trials, trials.columns[model.objective], selected) };
}

export function Bar({ model }: { model: Explorer }) {
  useSignal(model.revision);
  const number = useRef<HTMLElement>(null);
  const brushed = useRef<HTMLElement>(null);
  const [edited, setEdited] = useState(-1);
  const [text, setText] = useState("");

  // These two change with every move of a brush, so they are written without rendering components.
  const write = (): void => {
    if (number.current) number.current.textContent = selectedText(model);
    if (brushed.current) {
      brushed.current.textContent = termsText(model.trials, model.brush);
      brushed.current.parentElement!.hidden = !model.brush.length;
    }
  };
  useEffect(() => {
    write();
    return model.onPaint((changed) => changed !== "hover" && write());
  }, [model]);
  useEffect(write);

  const enter = (event: Event): void => {
    event.preventDefault();
    if (!text.trim()) return;
    try {
      const chip = parseChip(model.trials, text);
      const place = edited >= 0 && edited < model.chips.length ? edited : model.chips.length;
      model.change([...model.chips.slice(0, place), chip, ...model.chips.slice(place + 1)]);
      setText("");
      setEdited(-1);
    } catch (error) {
      model.said.value = { text: error instanceof Error ? error.message : String(error), command: "", bad: true };
    }
  };
  const edit = (place: number): void => {
    setEdited(place);
    setText(chipText(model.trials, model.chips[place]));
    document.getElementById(FILTER_ID)?.focus();
  };
  const remove = (place: number): void => model.change(model.chips.filter((_, each) => each !== place));

  return (
    <div class="explore-bar">
      <div class="row">
        <strong ref={number} class="selected-count">{selectedText(model)}</strong>
        <span class="group">
          <button type="button" disabled={!model.brush.length} onClick={() => model.keep()} title="keep only the brushed trials (k)">Keep</button>
          <button type="button" disabled={!model.brush.length} onClick={() => model.exclude()} title="exclude the brushed trials (x)">Exclude</button>
          <button type="button" disabled={!model.canUndo} onClick={() => model.undo()} title="undo the last filter or brush (z)">Undo</button>
          <button type="button" disabled={!model.chips.length && !model.brush.length} onClick={() => model.change([], [])}>Show all</button>
        </span>
        <span class="group">
          <CopyButton label="copy as CLI" text={() => asCommands(model.shared, selectionOf(model))} />
          <CopyButton label="copy as Python" text={() => asPython(model.shared, selectionOf(model))} />
          <button type="button" disabled={!model.selectedCount} onClick={() => download("selected.csv", asCsv(selectionOf(model)), "text/csv")}>CSV</button>
        </span>
        <span role="status" class="offscreen">{selectedText(model)}</span>
      </div>
      <form class="row filters" onSubmit={enter}>
        {model.chips.map((chip, place) => (
          <span key={place} class="chip">
            <button type="button" class="text" title="edit this filter" onClick={() => edit(place)}>{chipText(model.trials, chip)}</button>
            <button type="button" class="remove" aria-label={`remove the filter ${chipText(model.trials, chip)}`} onClick={() => remove(place)}>×</button>
          </span>
        ))}
        <span class="chip brush" hidden={!model.brush.length}>
          brush <code ref={brushed} />
          <button type="button" class="remove" aria-label="clear the brush" onClick={() => model.clearBrush()}>×</button>
        </span>
        <input
          id={FILTER_ID}
          type="text"
          class="filter"
          aria-label="filter"
          autocomplete="off"
          spellcheck={false}
          placeholder={hint(model)}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Escape") return;
            setText("");
            setEdited(-1);
            model.said.value = null;
            event.currentTarget.blur();
          }}
        />
        <button type="submit" disabled={!text.trim()}>{edited >= 0 ? "Replace" : "Filter"}</button>
      </form>
      <Outcomes model={model} />
      <Said model={model} />
    </div>
  );
}

/** An example that would work here. */
function hint(model: Explorer): string {
  const [first] = model.brush.length ? [] : model.firstAxes;
  if (!first) return "filter: / to type";
  const axis = model.axis({ name: first });
  const { name } = axis.column.spec;
  const short = name.split(".").pop() ?? name;
  const labels = (axis.order ?? []).map((code) => axis.column.labels[code]);
  return labels.length > 1 ? `filter, such as ${short} = ${labels.slice(0, 2).join("|")}` : "filter: / to type";
}

/** The outcomes of trials, each a switch that excludes its trials. */
function Outcomes({ model }: { model: Explorer }) {
  const { trials, chips } = model;
  if (trials.reasons.length < 2) return null;
  const counts = outcomesOf(trials, new Uint8Array(trials.count).fill(1));
  const labels = trials.reasons.map((reason, code) => (code ? reason : RUNS));
  const place = chips.findIndex((chip) => !chip.not && chip.terms.length === 1 && chip.terms[0].column === OUTCOME && chip.terms[0].kind === "among" && chip.terms[0].not);
  const out = place < 0 ? [] : (chips[place].terms[0] as Term & { kind: "among" }).labels;
  const toggle = (label: string): void => {
    const next = out.includes(label) ? out.filter((each) => each !== label) : [...out, label];
    const others = chips.filter((_, each) => each !== place);
    model.change(next.length ? [...others, { not: false, terms: [{ kind: "among", column: OUTCOME, labels: next, not: true }] }] : others);
  };
  const sentences = new Map(model.shared.source.document.trust.failures.map(({ reason, label }) => [reason, label]));
  const shown = labels.map((_, code) => code).filter((code) => counts[code]).sort((a, b) => (a === 0 ? -1 : b === 0 ? 1 : counts[b] - counts[a]));
  const most = 8;
  return (
    <div class="row outcomes" role="group" aria-label="trials by outcome">
      {shown.slice(0, most).map((code) => (
        <button key={code} type="button" class={code ? "outcome failing" : "outcome"} aria-pressed={!out.includes(labels[code])} title={sentences.get(labels[code]) ?? ""} onClick={() => toggle(labels[code])}>
          {code ? `✕ ${labels[code]}` : "✓ runs"} <span class="number">{count(counts[code])}</span>
        </button>
      ))}
      {shown.length > most && <span class="hint">and {shown.length - most} more reasons: filter by outcome = …</span>}
    </div>
  );
}

function Said({ model }: { model: Explorer }) {
  const said = useSignal(model.said);
  if (!said) return <div role="status" class="offscreen" />;
  return (
    <div class={said.bad ? "said problem" : "said"} role={said.bad ? "alert" : "status"}>
      <span>{said.text}</span>
      {said.command && <pre tabIndex={0}>{said.command}</pre>}
      <span class="group">
        {said.command && <CopyButton label="copy" text={said.command} />}
        <button type="button" aria-label="dismiss" onClick={() => (model.said.value = null)}>×</button>
      </span>
    </div>
  );
}
