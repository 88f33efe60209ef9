// A few trials compared: their metrics, and the parameters in which they differ.

import { Card } from "../base/card";
import { CopyButton } from "../base/copy";
import { useSignal } from "../base/signal";
import type { TrialColumn } from "../trials";
import { evaluateCommand } from "./commands";
import { sense } from "./front";
import type { Explorer } from "./model";
import { cellText, outcomeText } from "./names";
import { compareOrOpen } from "./opening";

/** Returns the best of some values, times the sense of their column; NaN where none is better than another. */
function bestValue(column: TrialColumn, places: number[]): number {
  const values = places.map((place) => sense(column) * column.values[place]).filter((value) => !Number.isNaN(value));
  const best = Math.min(...values);
  return column.spec.better && Math.max(...values) > best ? best : NaN;
}

export function Compare({ model }: { model: Explorer }) {
  useSignal(model.revision);
  const { trials, view } = model;
  const places = view.compared.map((trial) => trial - trials.first);
  if (!places.length) return null;
  const parameters = trials.columns.filter(({ spec }) => spec.role === "parameter");
  const differing = parameters.filter((column) => places.length < 2 || new Set(places.map((place) => cellText(column, place))).size > 1);
  const metrics = trials.columns.filter(({ spec, values }) => spec.role === "metric" && places.some((place) => !Number.isNaN(values[place])));
  const same = parameters.length - differing.length;
  return (
    <Card id="explore-compare" title={places.length > 1 ? "Compared trials" : "One trial"} wide tools={<button type="button" onClick={() => model.setView({ compared: [] })}>close</button>}
      reading={places.length > 1 ? `${same ? `${same} of ${parameters.length} parameters are the same in all and left out. ` : ""}▸ marks the best of a row.` : "Shift-click other trials to compare them, four at most."}>
      <div class="trials" tabIndex={0} role="region" aria-label="compared trials">
        <table>
          <thead>
            <tr>
              <th scope="col" />
              {places.map((place) => (
                <th key={place} scope="col">
                  trial {trials.first + place}{" "}
                  <button type="button" onClick={() => void compareOrOpen(model, place, false)}>open</button>{" "}
                  <CopyButton label="copy command" text={() => evaluateCommand(model.shared, trials, place)} />{" "}
                  <button type="button" aria-label={`stop comparing trial ${trials.first + place}`} onClick={() => model.compare(trials.first + place)}>×</button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            <tr>
              <th scope="row">outcome</th>
              {places.map((place) => <td key={place} class={trials.outcomes[place] ? "problem" : ""}>{outcomeText(trials, place)}</td>)}
            </tr>
            {[...metrics, ...differing].map((column) => {
              const best = bestValue(column, places);
              return (
                <tr key={column.spec.name}>
                  <th scope="row">{column.spec.label}</th>
                  {places.map((place) => (
                    <td key={place} title={String(column.values[place])}>
                      {sense(column) * column.values[place] === best ? "▸ " : ""}
                      {cellText(column, place)}
                    </td>
                  ))}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
