// A model on a system of the catalog: the form that names one, and its evaluation.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Signal } from "../base/signal";
import { type Designs, DesignView } from "../design/design";
import type { Opened } from "../state";
import { type Catalog, evaluateDesign } from "./api";
import { Field } from "./field";

export interface Machine {
  model: string;
  system: string;
  /** How many accelerators, as it was written; empty for as many as the system has. */
  npus: string;
  task: string;
}

/** Returns MODEL@SYSTEM:NPUS, which searches its mappings; without the number, as many as the system has. */
export function designName({ model, system, npus }: Machine): string {
  return `${model}@${system}${npus.trim() ? `:${npus.trim()}` : ""}`;
}

/** Returns what a name stands for; where it stands for nothing, something to begin with. */
export function machineOf(name: string, { models, systems, tasks }: Pick<Catalog, "models" | "systems" | "tasks">): Machine {
  const [, model = "", system = "", npus = ""] = /^(.+)@([^:@]+)(?::(\d+))?$/.exec(name) ?? [];
  const task = tasks[0] ?? "training";
  if (models.includes(model) && systems.includes(system)) return { model, system, npus, task };
  const first = (wanted: string, all: string[]): string => (all.includes(wanted) ? wanted : (all[0] ?? ""));
  return { model: first("llama3-70b", models), system: first("dgx-h100", systems), npus: "64", task };
}

interface MachineProps {
  catalog: Catalog;
  machine: Machine;
  setMachine: (next: Machine) => void;
}

export function MachineFields({ catalog, machine, setMachine }: MachineProps) {
  const chosen = (key: "model" | "system" | "task", label: string, all: string[], note: string) => (
    <Field label={label} for={`machine-${key}`} note={note}>
      <select id={`machine-${key}`} value={machine[key]} onChange={(event) => setMachine({ ...machine, [key]: event.currentTarget.value })}>
        {all.map((each) => <option key={each}>{each}</option>)}
      </select>
    </Field>
  );
  return (
    <div class="fields">
      {chosen("model", "model", catalog.models, "")}
      {chosen("system", "system", catalog.systems, "")}
      <Field label="accelerators" for="machine-npus" note="If empty, as many as the system has.">
        <input
          id="machine-npus"
          type="number"
          min={1}
          max={4_194_304}
          step={1}
          value={machine.npus}
          onInput={(event) => setMachine({ ...machine, npus: event.currentTarget.value })}
        />
      </Field>
      {chosen("task", "task", catalog.tasks, "What may vary is the mapping: how the model is split.")}
    </div>
  );
}

/** Returns what evaluates the design as it is, and what came of it; a design that was changed has no outcome yet. */
export function useEvaluation(design: string, task: string) {
  const [found, setFound] = useState<Opened | null>(null);
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState("");
  const asked = useRef("");
  useEffect(() => {
    asked.current = "";
    setFound(null);
    setBusy(false);
    setFailure("");
  }, [design, task]);
  const evaluate = async (): Promise<void> => {
    const mine = (asked.current = `${design} ${task} ${performance.now()}`);
    setBusy(true);
    setFailure("");
    try {
      const { json, binary } = await evaluateDesign(design, task);
      if (asked.current === mine) setFound({ design: json, binary });
    } catch (error) {
      if (asked.current === mine) setFailure((error as Error).message);
    }
    if (asked.current === mine) setBusy(false);
  };
  return { evaluate, found, busy, failure };
}

/** One design with its cluster, timeline and roofline. */
export function Evaluated({ name, found }: { name: string; found: Opened }) {
  const shared = useMemo(() => lone(found), [found]);
  return (
    <section aria-labelledby="evaluated-title">
      <h2 id="evaluated-title">{name}</h2>
      <DesignView key={found.design.identity} shared={shared} />
    </section>
  );
}

/** Returns one design as all that a page holds. */
function lone(opened: Opened): Designs {
  const document = { designs: [opened.design], best: null, base: 0 };
  return { source: { document, binary: opened.binary, open: async () => null }, opened: new Signal<Opened | null>(opened) };
}
