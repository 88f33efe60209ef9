// The explorer: trade-off, parameters and table of all trials, filtered by one brush.

import { useEffect, useMemo } from "preact/hooks";
import { onHash } from "../base/hash";
import { addKeys } from "../base/keys";
import type { Shared } from "../state";
import { Bar, FILTER_ID } from "./bar";
import { Compare } from "./compare";
import { nameExplorer } from "./measure";
import { Explorer } from "./model";
import { Parallel } from "./parallel";
import { Scatter } from "./scatter";
import { Table } from "./table";

export { measureBrush } from "./measure";

export function Explore({ shared }: { shared: Shared }) {
  const model = useMemo(() => new Explorer(shared), [shared]);
  useEffect(() => {
    nameExplorer(shared, model);
    const { source, hovered } = shared;
    if (source.trials.value !== model.trials) model.load(source.trials.value);
    const stop = [
      source.trials.listen((trials) => model.load(trials)),
      source.front.listen(() => model.load(source.trials.value)),
      hovered.listen(() => model.tell("hover")),
      onHash(() => model.follow()),
      addKeys("Explore", keys(model)),
    ];
    return () => stop.forEach((each) => each());
  }, [shared, model]);
  return (
    <div class="explore">
      <Bar model={model} />
      <div class={SERVING && shared.source.document.serving ? "pair even" : "pair"}>
        <Scatter model={model} />
        <Parallel model={model} />
      </div>
      <Compare model={model} />
      <Table model={model} />
    </div>
  );
}

function keys(model: Explorer) {
  return [
    { keys: ["k"], help: "keep only the brushed trials", run: () => model.keep() },
    { keys: ["x"], help: "exclude the brushed trials", run: () => model.exclude() },
    { keys: ["z"], help: "undo the last filter or brush", run: () => model.undo() },
    { keys: ["/"], help: "write a filter", run: () => document.getElementById(FILTER_ID)?.focus() },
    { keys: ["Escape"], help: "clear the brush", when: () => model.brush.length > 0, run: () => model.clearBrush() },
  ];
}
