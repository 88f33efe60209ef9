// Several studies compared: their best designs and convergence.

import { count, show } from "../base/format";
import type { Convergence } from "../document";
import { ConvergenceCard } from "../verdict/convergence";
import type { Compared } from "./api";
import { Failed } from "./failed";
import { usePolled } from "./polled";
import { linkTo } from "./route";

const EVERY_MS = 3000;

export function Compare({ studies }: { studies: string[] }) {
  const asked = studies.map((id) => `study=${encodeURIComponent(id)}`).join("&");
  const { value: found, failure } = usePolled<Compared>(`/api/compare?${asked}`, EVERY_MS);

  return (
    <section aria-labelledby="compare-title">
      <h2 id="compare-title">{count(studies.length)} studies compared</h2>
      <Failed text={failure} />
      {!found && !failure && <p class="reading">Loading …</p>}
      {found && (
        <>
          <div class="scroll" tabIndex={0} role="region" aria-label="Studies compared">
            <table class="studies">
              <thead>
                <tr>
                  {["study", "agent"].map((name) => <th key={name} scope="col">{name}</th>)}
                  {["seed", "trials", "feasible", `best ${found.label}`, "behind the best", "trials to 5 %"].map((name) => (
                    <th key={name} scope="col" class="number">{name}</th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {found.studies.map((row) => (
                  <tr key={row.study}>
                    <td><a href={linkTo({ page: "study", study: row.study })}>{row.study}</a></td>
                    <td>{row.agent}</td>
                    <td class="number">{row.seed}</td>
                    <td class="number">{count(row.trials)}</td>
                    <td class="number">{count(row.feasible)}</td>
                    <td class="number">{show(row.best, found.unit)}</td>
                    <td class="number">{row.behind === null ? "–" : row.behind === 0 ? "the best" : show(row.behind, "share")}</td>
                    <td class="number">{row.trials_to_5_percent === null ? "never" : count(row.trials_to_5_percent)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          <ConvergenceCard convergence={asConvergence(found)} />
        </>
      )}
    </section>
  );
}

function asConvergence({ objective, label, unit, better, curves }: Compared): Convergence {
  return { objective, label, unit, better, series: curves };
}
