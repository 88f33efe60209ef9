// What if: a design of the study with some values changed, evaluated at once.

import { useEffect, useState } from "preact/hooks";
import { Card } from "../base/card";
import { times } from "../base/format";
import { useSignal } from "../base/signal";
import type { Design, Fact } from "../document";
import type { Opened, Shared } from "../state";
import { get, type Label, type Schema, studyPath, tryDesign } from "./api";
import { Failed } from "./failed";
import { labelText } from "./search_form";

type Values = Record<string, Label>;

interface Start {
  trial: number | "best" | "base";
  label: string;
}

export function WhatIf({ id, shared }: { id: string; shared: Shared }) {
  const opened = useSignal(shared.opened);
  const [schema, setSchema] = useState<Schema | null>(null);
  const [start, setStart] = useState<Start>({ trial: "best", label: "The best design" });
  /** The number of that trial: the best may change while the search runs. */
  const [trial, setTrial] = useState<number | "base">("base");
  const [values, setValues] = useState<Values>({});
  const [before, setBefore] = useState<Opened | null>(null);
  const [after, setAfter] = useState<Opened | null>(null);
  const [changes, setChanges] = useState<Values>({});
  const [failure, setFailure] = useState("");
  const [again, setAgain] = useState(0);

  useEffect(() => {
    get<Schema>(studyPath(id, "/schema")).then(setSchema, (error: Error) => setFailure(error.message));
  }, [id]);

  useEffect(() => {
    let gone = false;
    setChanges({});
    setAfter(null);
    setFailure("");
    const begin = async (): Promise<void> => {
      const found = await get<{ trial: number | null; values: Values }>(studyPath(id, `/trials/${start.trial}/values`));
      const from = found.trial ?? "base";
      const { json, binary } = await tryDesign(id, from, {});
      if (gone) return;
      setTrial(from);
      setValues(found.values);
      setBefore({ design: json, binary });
    };
    begin().catch((error: Error) => !gone && setFailure(error.message));
    return () => {
      gone = true;
    };
  }, [id, start, again]);

  useEffect(() => {
    let gone = false;
    if (!Object.keys(changes).length) {
      setAfter(null);
      return undefined;
    }
    tryDesign(id, trial, changes).then(
      ({ json, binary }) => {
        if (gone) return;
        setAfter({ design: json, binary });
        setFailure("");
      },
      (error: Error) => !gone && setFailure(error.message),
    );
    return () => {
      gone = true;
    };
  }, [changes]);

  const set = (path: string, label: Label): void => {
    const { [path]: _, ...others } = changes;
    setChanges(labelText(values[path]) === labelText(label) ? others : { ...others, [path]: label });
  };

  const look = (): void => {
    if (!after) return;
    shared.opened.value = after;
    document.getElementById("design")?.scrollIntoView();
  };

  const looked = opened?.design.trial;
  return (
    <Card
      id="what-if"
      title="What if"
      wide
      reading={`${start.label} with some values changed, evaluated at once.`}
      tools={
        <>
          <select
            aria-label="start from"
            value={String(start.trial)}
            onChange={(event) => {
              const chosen = event.currentTarget.value;
              if (chosen === "best") setStart({ trial: "best", label: "The best design" });
              else if (chosen === "base") setStart({ trial: "base", label: "The base design" });
              else setStart({ trial: Number(chosen), label: `Trial ${chosen}` });
            }}
          >
            <option value="best">from the best</option>
            <option value="base">from the base</option>
            {looked !== null && looked !== undefined && <option value={String(looked)}>from trial {looked}</option>}
          </select>
          <button type="button" disabled={!Object.keys(changes).length} onClick={() => setAgain(again + 1)}>reset</button>
          <button type="button" disabled={!after?.design.feasible} onClick={look}>show the design</button>
        </>
      }
    >
      <Failed text={failure} />
      <div class="what-if">
        <div class="fields">
          {schema &&
            Object.entries(schema.properties)
              .filter(([path, property]) => property.enum && path in values)
              .map(([path, property]) => (
                <div class={path in changes ? "field changed" : "field"} key={path}>
                  <label for={`what-if.${path}`}><code>{path}</code></label>
                  <select
                    id={`what-if.${path}`}
                    value={labelText(changes[path] ?? values[path])}
                    onChange={(event) => {
                      const label = property.enum!.find((each) => labelText(each) === event.currentTarget.value);
                      if (label !== undefined) set(path, label);
                    }}
                  >
                    {property.enum!.map((label) => <option key={labelText(label)}>{labelText(label)}</option>)}
                  </select>
                </div>
              ))}
        </div>
        {before && <Outcome before={before.design} after={after?.design ?? null} />}
      </div>
    </Card>
  );
}

function Outcome({ before, after }: { before: Design; after: Design | null }) {
  const now = after ?? before;
  if (!now.feasible)
    return (
      <div role="status">
        <p class="failure">It cannot run:</p>
        <ul>{now.reasons.map((reason) => <li key={reason}>{reason}</li>)}</ul>
      </div>
    );
  return (
    <div role="status">
      <table>
        <thead>
          <tr>
            <th scope="col">metric</th>
            <th scope="col" class="number">before</th>
            <th scope="col" class="number">now</th>
            <th scope="col" class="number">ratio</th>
          </tr>
        </thead>
        <tbody>
          {now.facts.map((fact) => <Changed key={fact.label} fact={fact} was={before.facts.find((each) => each.label === fact.label)} />)}
        </tbody>
      </table>
      <p>{now.bound.charAt(0).toUpperCase() + now.bound.slice(1)}.</p>
    </div>
  );
}

function Changed({ fact, was }: { fact: Fact; was: Fact | undefined }) {
  const ratio = was?.value && fact.value !== null ? fact.value / was.value : null;
  const same = ratio === null || Math.abs(ratio - 1) < 1e-9;
  return (
    <tr>
      <th scope="row">{fact.label}</th>
      <td class="number">{was?.text ?? "–"}</td>
      <td class="number">{fact.text}</td>
      <td class="number">{same ? "" : times(ratio)}</td>
    </tr>
  );
}
