// Latencies of a design under its load, with the limits that they are to hold.

import { Card } from "../base/card";
import { show } from "../base/format";
import type { Latency, Serving } from "../document";

const STATISTICS = ["mean", "p50", "p95", "p99"] as const;

function valueOf(latency: Latency, statistic: (typeof STATISTICS)[number]): number {
  return { mean: latency.mean_s, p50: latency.p50_s, p95: latency.p95_s, p99: latency.p99_s }[statistic];
}

/** Returns whether a latency holds its limit; null where it has none. */
export function holds(latency: Latency): boolean | null {
  const { slo } = latency;
  const statistic = STATISTICS.find((each) => each === slo?.statistic);
  return slo && statistic ? valueOf(latency, statistic) <= slo.limit_s : null;
}

export function LatenciesCard({ serving }: { serving: Serving }) {
  return (
    <Card id="latencies" title="What requests see" reading={serving.reading}>
      <div class="scroll" tabIndex={0} role="region" aria-label="latencies">
        <table class="costs latencies">
          <thead>
            <tr>
              <th scope="col">{serving.load}</th>
              {STATISTICS.map((name) => (
                <th key={name} scope="col" class="number">{name}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {serving.latencies.map((latency) => (
              <tr key={latency.name}>
                <th scope="row">
                  {latency.label}
                  <Held latency={latency} />
                </th>
                {STATISTICS.map((name) => (
                  <td key={name} class={latency.slo?.statistic === name ? "number strong" : "number"}>{show(valueOf(latency, name), "s")}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

/** The limit, and whether it holds: a sign goes with the colour. */
function Held({ latency }: { latency: Latency }) {
  const held = holds(latency);
  if (held === null) return null;
  return <span class={held ? "slo held" : "slo missed"}>{held ? "✓ holds" : "✗ misses"} {latency.slo!.statistic} ≤ {show(latency.slo!.limit_s, "s")}</span>;
}
