// The metrics of the designs, side by side.

import { Card } from "../base/card";
import type { Design, Fact } from "../document";
import { Exact } from "./exact";
import { ratio } from "./readings";

interface CostsProps {
  compared: Design[];
  base: Design | null;
  best: Design | null;
}

export function Costs({ compared, base, best }: CostsProps) {
  const designs = bestFirst(compared.filter((design) => design.facts.length > 0), best);
  const labels = [...new Set(designs.flatMap((design) => design.facts.map((each) => each.label)))];
  const ratios = base !== null && best !== null && base !== best && designs.includes(base);
  const left = compared.filter((design) => !designs.includes(design)).map((design) => design.label);
  const reading = ratios
    ? "Metrics of each design; the last column is the best over the base."
    : "Metrics of each design.";
  return (
    <Card id="costs" title="Side by side" reading={reading} wide>
      {designs.length === 0 ? (
        <p class="empty">No design has metrics.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="metrics of the designs, side by side">
          <table class="costs">
            <thead>
              <tr>
                <th scope="col">metric</th>
                {designs.map((design) => (
                  <th key={design.label} scope="col" class="number">{design.label}</th>
                ))}
                {ratios && <th scope="col" class="number">best / base</th>}
              </tr>
            </thead>
            <tbody>
              {labels.map((label) => (
                <tr key={label}>
                  <th scope="row">{label}</th>
                  {designs.map((design) => (
                    <td key={design.label} class={design === best ? "number strong" : "number"}>
                      <Figure fact={factOf(design, label)} />
                    </td>
                  ))}
                  {ratios && <td class="number faint">{ratio(factOf(base, label)?.value, factOf(best, label)?.value)}</td>}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {left.length > 0 && designs.length > 0 && <p class="faint">Without metrics, as they cannot run: {left.join(", ")}.</p>}
    </Card>
  );
}

/** Returns designs with the best first: on a narrow page it is the one in sight. */
export function bestFirst(designs: Design[], best: Design | null): Design[] {
  return best && designs.includes(best) ? [best, ...designs.filter((design) => design !== best)] : designs;
}

function Figure({ fact }: { fact: Fact | undefined }) {
  return fact ? <Exact fact={fact} /> : <>–</>;
}

function factOf(design: Design, label: string): Fact | undefined {
  return design.facts.find((each) => each.label === label);
}
