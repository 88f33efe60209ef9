// Memory by tier: how full each is and of what, and what transfers between them cost.

import { Card } from "../base/card";
import { digits, show } from "../base/format";
import type { Design, Tier } from "../document";
import { type Bar, StackedBars } from "../verdict/bars";

const FILLS = ["compute", "exposed", "hidden", "memory", "optimizer", "idle", "other"];

/** Returns a tier as a bar of shares of its capacity: tiers differ by orders of magnitude. */
export function tierBar(tier: Tier): Bar {
  const parts = [...tier.parts].sort((a, b) => b.bytes - a.bytes);
  return {
    title: tier.name,
    segments: parts.map((each, place) => ({
      label: each.label,
      fill: `fill-${FILLS[Math.min(place, FILLS.length - 1)]}`,
      amount: each.bytes / tier.capacity_bytes,
    })),
    total: `${show(tier.used_bytes, "B")} of ${show(tier.capacity_bytes, "B")}`,
  };
}

export function Tiers({ design }: { design: Design }) {
  const tiers = design.tiers;
  if (!tiers) return null;
  return (
    <Card
      id="tiers"
      title="Memory by tier"
      reading={tiers.sentence}
      twin={() => ({
        columns: ["tier", "of it", "amount"],
        rows: tiers.rows.flatMap((tier) => [
          [tier.name, "capacity", show(tier.capacity_bytes, "B")],
          ...tier.parts.map((each) => [tier.name, each.label, show(each.bytes, "B")]),
          [tier.name, "across its link in a step", show(tier.traffic_bytes, "B")],
        ]),
      })}
    >
      <StackedBars bars={tiers.rows.map(tierBar)} most={1} show={(share) => `${digits(100 * share)} % of the tier`} />
      <table class="part-table">
        <tbody>
          <tr>
            <td>step exposed by transfers</td>
            <td class="number">{show(tiers.exposed_s, "s")}</td>
          </tr>
          {tiers.rows.filter((tier) => tier.traffic_bytes > 0).map((tier) => (
            <tr key={tier.name}>
              <td>across the link of {tier.name} in a step</td>
              <td class="number">{show(tier.traffic_bytes, "B")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}
