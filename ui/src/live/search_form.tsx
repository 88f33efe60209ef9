// A new search: a form made from the JSON Schema of a parameter set.

import { useEffect, useState } from "preact/hooks";
import { count } from "../base/format";
import { type Agent, type Catalog, get, type Label, post, type Schema, type SearchRequest, type Setting } from "./api";
import { Failed } from "./failed";
import { Field } from "./field";
import { designName, Evaluated, type Machine, MachineFields, machineOf, useEvaluation } from "./machine";
import { go } from "./route";

/** The agent that the server chooses. */
const AUTO = "auto";
const AUTO_NOTE = "Goes through all designs where they are few enough, which proves the best; else searches.";

/** How long a form must rest before the server is asked. */
const SETTLED_MS = 250;

/** The remaining labels of each parameter that was restricted. */
export type Restrictions = Record<string, Label[]>;

export function SearchForm({ catalog, space }: { catalog: Catalog; space: string }) {
  const [kind, setKind] = useState<"design" | "set">(space && !space.includes("@") ? "set" : "design");
  const [set, setSet] = useState(kind === "set" ? space : (catalog.spaces[0]?.name ?? ""));
  const [machine, setMachine] = useState<Machine>(machineOf(space, catalog));
  const name = kind === "set" ? set : designName(machine);
  const task = kind === "set" ? "" : machine.task;
  const [schema, setSchema] = useState<Schema | null>(null);
  const [restrict, setRestrict] = useState<Restrictions>({});
  const [frozen, setFrozen] = useState<string[]>([]);
  const [failure, setFailure] = useState("");
  const [sending, setSending] = useState(false);
  const [agent, setAgent] = useState(AUTO);

  useEffect(() => {
    let gone = false;
    setSchema(null);
    setRestrict({});
    setFrozen([]);
    setFailure("");
    const path = `/api/spaces/${encodeURIComponent(name)}${task ? `?task=${encodeURIComponent(task)}` : ""}`;
    // A moment later: a number is written digit by digit.
    const timer = window.setTimeout(
      () =>
        get<Schema>(path).then(
          (found) => !gone && setSchema(found),
          (error: Error) => !gone && setFailure(error.message),
        ),
      SETTLED_MS,
    );
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [name, task]);

  const send = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    setSending(true);
    setFailure("");
    try {
      const chosen = catalog.agents.find((each) => each.name === agent);
      const varied = schema ? varying(schema, frozen, restrict) : { restrict: {} };
      const asked = { ...request(new FormData(event.currentTarget as HTMLFormElement), chosen), space: name, ...(task ? { task } : {}), ...varied };
      const { study } = await post<{ study: string }>("/api/searches", asked);
      go({ page: "study", study });
    } catch (error) {
      setFailure((error as Error).message);
      setSending(false);
    }
  };

  const chosen = catalog.agents.find((each) => each.name === agent);
  const objective = schema?.["x-cosmic"].objective ?? catalog.spaces.find((each) => each.name === name)?.objective;
  const evaluation = useEvaluation(name, task);
  return (
    <>
    <form onSubmit={send} aria-labelledby="search-title" class="search">
      <h2 id="search-title">New search</h2>
      <div class="switch" role="group" aria-label="what to search">
        <button type="button" aria-pressed={kind === "design"} onClick={() => setKind("design")}>a model on a system</button>
        <button type="button" aria-pressed={kind === "set"} onClick={() => setKind("set")}>a parameter set</button>
      </div>
      {kind === "design" && <MachineFields catalog={catalog} machine={machine} setMachine={setMachine} />}
      <div class="fields">
        {kind === "set" && (
          <Field label="parameter set" for="space">
            <select id="space" name="space" value={set} onChange={(event) => setSet(event.currentTarget.value)}>
              {catalog.spaces.map((each) => <option key={each.name} value={each.name}>{each.name}</option>)}
            </select>
          </Field>
        )}
        <Field label="agent" for="agent" note={agent === AUTO ? AUTO_NOTE : chosen?.needs || chosen?.summary || ""}>
          <select id="agent" name="agent" value={agent} onChange={(event) => setAgent(event.currentTarget.value)}>
            <option value={AUTO}>{AUTO}</option>
            {catalog.agents.map((each) => (
              <option key={each.name} value={each.name} disabled={!!each.needs}>{each.name}</option>
            ))}
          </select>
        </Field>
        <Field label="designs to evaluate" for="trials" note={agent === AUTO ? "If empty, as many as it needs." : "If empty, 10,000."}>
          <input id="trials" name="trials" type="number" min={1} max={1_000_000} step={1} />
        </Field>
        <Field label="seed" for="seed" note="The same seed gives the same search.">
          <input id="seed" name="seed" type="number" min={0} step={1} value={0} required />
        </Field>
        <Field label="engine" for="engine">
          <select id="engine" name="engine">
            {catalog.engines.map((each) => <option key={each}>{each}</option>)}
          </select>
        </Field>
        <Field label="name of the study" for="name" note="If empty, named after the set and the agent.">
          <input id="name" name="name" type="text" maxLength={80} />
        </Field>
      </div>
      {!!chosen?.settings.length && (
        <details class="settings">
          <summary>settings of {agent}</summary>
          <div class="fields">
            {chosen.settings.map((each) => <SettingField key={`${agent}.${each.name}`} setting={each} />)}
          </div>
        </details>
      )}
      <fieldset>
        <legend>Objectives, the first decides; default: {objective}</legend>
        <div class="choices">
          {catalog.metrics.map((each) => (
            <label key={each.name} title={`${each.label}: ${each.better} is better`}>
              <input type="checkbox" name="objective" value={each.name} /> {each.name}
            </label>
          ))}
        </div>
      </fieldset>
      <Field label="limits, one per line" for="constraints" note="Such as memory_bytes <= 80 GB.">
        <textarea id="constraints" name="constraints" rows={2} />
      </Field>
      {schema && (
        <Parameters schema={schema} space={name} task={task} restrict={restrict} setRestrict={setRestrict} frozen={frozen} setFrozen={setFrozen} />
      )}
      <Failed text={failure || evaluation.failure} />
      <button type="submit" class="primary" disabled={sending || !schema}>{sending ? "starting …" : "start the search"}</button>
      {kind === "design" && (
        <>
          {" "}
          <button type="button" disabled={evaluation.busy} onClick={evaluation.evaluate}>
            {evaluation.busy ? "evaluating …" : "only evaluate it"}
          </button>
        </>
      )}
    </form>
    {kind === "design" && evaluation.found && <Evaluated name={name} found={evaluation.found} />}
    </>
  );
}

function request(form: FormData, agent: Agent | undefined): Omit<SearchRequest, "space"> {
  const text = (key: string): string => String(form.get(key) ?? "").trim();
  const settings: Record<string, string | number | boolean> = {};
  for (const { name, type, default: usual } of agent?.settings ?? []) {
    const given = text(`setting.${name}`);
    if (type === "bool") settings[name] = given === "on";
    else if (given && given !== String(usual)) settings[name] = type === "str" ? given : Number(given);
  }
  return {
    agent: text("agent"),
    ...(text("trials") ? { trials: Number(text("trials")) } : {}),
    seed: Number(text("seed")),
    engine: text("engine"),
    objectives: form.getAll("objective").map(String),
    constraints: text("constraints").split("\n").map((each) => each.trim()).filter(Boolean),
    settings,
    ...(text("name") ? { name: text("name") } : {}),
  };
}

function stacksOf(schema: Schema): string[] {
  return [...new Set(openIn(schema).map(([, property]) => property["x-cosmic"]?.stack ?? ""))];
}

function openIn(schema: Schema): [string, Schema["properties"][string]][] {
  return Object.entries(schema.properties).filter(([, property]) => property.enum);
}

/** Returns the layers to search and the remaining values, as the server takes them. */
export function varying(schema: Schema, frozen: string[], restrict: Restrictions): { stacks?: string[]; restrict: Restrictions } {
  const stacks = stacksOf(schema).filter((stack) => !frozen.includes(stack));
  if (!stacks.length) throw new Error("what may vary = nothing: leave at least one layer open");
  const closed = (path: string): boolean => frozen.includes(schema.properties[path]?.["x-cosmic"]?.stack ?? "");
  const kept = Object.fromEntries(Object.entries(restrict).filter(([path]) => !closed(path)));
  return { ...(frozen.length ? { stacks } : {}), restrict: kept };
}

function SettingField({ setting }: { setting: Setting }) {
  const { name, type, default: usual } = setting;
  const id = `setting.${name}`;
  return (
    <Field label={name.replaceAll("_", " ")} for={id}>
      {type === "bool" ? (
        <input id={id} name={id} type="checkbox" checked={usual === true} />
      ) : (
        <input id={id} name={id} type={type === "str" ? "text" : "number"} step="any" value={String(usual ?? "")} />
      )}
    </Field>
  );
}

interface ParametersProps {
  schema: Schema;
  space: string;
  task: string;
  restrict: Restrictions;
  setRestrict: (next: Restrictions) => void;
  frozen: string[];
  setFrozen: (next: string[]) => void;
}

/** What may vary, by layer: each layer can be frozen at the base design, each value left out. */
function Parameters({ schema, space, task, restrict, setRestrict, frozen, setFrozen }: ParametersProps) {
  const open = openIn(schema);
  const stacks = stacksOf(schema);
  const valid = useCount(space, task, schema, frozen, restrict);

  const toggle = (path: string, all: Label[], label: Label, on: boolean): void => {
    const same = (one: Label): boolean => JSON.stringify(one) === JSON.stringify(label);
    const before = restrict[path] ?? all;
    const after = all.filter((each) => (same(each) ? on : before.some((kept) => JSON.stringify(kept) === JSON.stringify(each))));
    const { [path]: _, ...others } = restrict;
    setRestrict(after.length === all.length ? others : { ...others, [path]: after });
  };

  return (
    <>
      <h3>What may vary</h3>
      <p class="reading" role="status">{valid}</p>
      {stacks.map((stack) => (
        <fieldset key={stack} class={frozen.includes(stack) ? "frozen" : ""}>
          <legend>
            <label>
              <input
                type="checkbox"
                checked={!frozen.includes(stack)}
                onChange={(event) =>
                  setFrozen(event.currentTarget.checked ? frozen.filter((each) => each !== stack) : [...frozen, stack])
                }
              />{" "}
              {stack}
            </label>
          </legend>
          {open
            .filter(([, property]) => (property["x-cosmic"]?.stack ?? "") === stack)
            .map(([path, property]) => (
              <div key={path} class="parameter" role="group" aria-label={path}>
                <code>{path}</code>
                <div class="choices">
                  {property.enum!.map((label) => {
                    const text = labelText(label);
                    const kept = restrict[path] ?? property.enum!;
                    const on = kept.some((each) => labelText(each) === text);
                    return (
                      <label key={text} class="chip">
                        <input
                          type="checkbox"
                          checked={on}
                          disabled={frozen.includes(stack)}
                          onChange={(event) => toggle(path, property.enum!, label, event.currentTarget.checked)}
                        />{" "}
                        {text}
                      </label>
                    );
                  })}
                </div>
              </div>
            ))}
        </fieldset>
      ))}
    </>
  );
}

export function labelText(label: Label): string {
  return Array.isArray(label) ? label.map(labelText).join(", ") : String(label);
}

/** Returns the number of valid designs of a choice as text; requested a moment after the last change. */
function useCount(space: string, task: string, schema: Schema, frozen: string[], restrict: Restrictions): string {
  const [said, setSaid] = useState("");
  let asked = "";
  let refused = "";
  try {
    asked = JSON.stringify({ space, ...(task ? { task } : {}), ...varying(schema, frozen, restrict) });
  } catch (error) {
    refused = (error as Error).message;
  }
  useEffect(() => {
    let gone = false;
    if (!asked) return undefined;
    const timer = window.setTimeout(() => {
      post<{ raw: number | string; valid: number | string }>("/api/count", JSON.parse(asked)).then(
        ({ valid }) => !gone && setSaid(`${grouped(valid)} valid designs`),
        (error: Error) => !gone && setSaid(error.message),
      );
    }, 250);
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [asked]);
  return refused || said;
}

function grouped(value: number | string): string {
  return typeof value === "number" ? count(value) : BigInt(value).toLocaleString("en-US");
}
