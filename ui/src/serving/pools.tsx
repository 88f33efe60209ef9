// Engine instances in their pools: how busy they are, how full their KV cache is, who runs and who waits.

import { Card } from "../base/card";
import { count, digits, show } from "../base/format";
import { says } from "../base/tip";
import type { Pool, Serving } from "../document";

export function PoolsCard({ serving }: { serving: Serving }) {
  const { pools } = serving;
  return (
    <Card
      id="pools"
      title={pools.length > 1 ? "Pools" : "The pool"}
      reading={`${serving.engine}, ${serving.kind}: ${serving.limits}.`}
      twin={() => ({
        columns: ["pool", "instances", "accelerators", "an instance", "busy", "KV cache in use", "running", "waiting"],
        rows: pools.map((pool) => [
          pool.label, pool.instances, pool.npus, pool.mapping, shareText(pool.utilization), shareText(pool.kv_use), requests(pool.running), requests(pool.waiting),
        ]),
      })}
    >
      <ul class="pools">
        {pools.map((pool) => (
          <PoolRow key={pool.name} pool={pool} />
        ))}
      </ul>
    </Card>
  );
}

function shareText(share: number | null): string {
  return share === null ? "–" : show(Number(share.toPrecision(3)), "share");
}

/** Returns a mean number of requests. */
export function requests(mean: number | null): string {
  if (mean === null) return "–";
  return mean < 0.05 ? "0" : digits(mean < 10 ? Number(mean.toPrecision(2)) : Math.round(mean));
}

function PoolRow({ pool }: { pool: Pool }) {
  const instances = `${count(pool.instances)} ${pool.instances === 1 ? "instance" : "instances"}`;
  return (
    <li class="pool">
      <p class="pool-name">
        <b>{pool.label}</b> <span class="faint">{instances} of {pool.mapping}, {count(pool.npus)} × {pool.accelerator}</span>
      </p>
      {pool.utilization !== null && <Meter label="busy" share={pool.utilization} says={`share of time in which the accelerators of ${pool.label} run steps`} />}
      {pool.kv_use !== null && <Meter label="KV cache" share={pool.kv_use} says={`share of the KV cache of ${pool.label} that is in use`} />}
      <dl class="pool-requests">
        {([["running", pool.running], ["waiting", pool.waiting]] as const).map(([name, mean]) => mean !== null && (
          <div key={name}>
            <dt>{name}</dt>
            <dd class="number">{requests(mean)}</dd>
          </div>
        ))}
      </dl>
    </li>
  );
}

interface MeterProps {
  label: string;
  share: number;
  says: string;
}

/** A share as a bar with its number. */
function Meter({ label, share, says: said }: MeterProps) {
  const text = shareText(share);
  return (
    <div class="meter">
      <span class="meter-label">{label}</span>
      <span class="meter-track" role="img" aria-label={`${label}: ${text}`} {...says(`${label}: ${text}`, said)}>
        <i class={label === "busy" ? "fill-compute" : "fill-memory"} style={{ width: `${100 * Math.min(1, share)}%` }} />
      </span>
      <span class="meter-share number">{text}</span>
    </div>
  );
}
