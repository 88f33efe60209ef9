// All nodes by depth in one strip: how many there are, and where the selected node is.

import { useMemo } from "preact/hooks";
import { Canvas, type Frame, pointerAt } from "../base/canvas";
import { count } from "../base/format";
import { palette } from "../base/theme";
import { hideTip, showTip } from "../base/tip";
import { SMALL } from "../design/paint";
import { type Depths, depthsOf } from "./graph";
import { LOOKS } from "./spans";
import type { TraceState } from "./state";

const HEIGHT = 48;
const BINS = 600;

export function DepthStrip({ state }: { state: TraceState }) {
  const { nodes, kinds, selected } = state;
  const depths = useMemo(() => depthsOf(nodes, kinds.length, BINS), [state]);
  const totals = useMemo(() => totalsOf(depths), [depths]);
  const highest = Math.max(...totals, 1);
  const depthAt = (event: PointerEvent & { currentTarget: HTMLCanvasElement }): number => {
    const share = pointerAt(event, event.currentTarget).x / event.currentTarget.clientWidth;
    return Math.min(depths.most, Math.max(0, Math.floor(share * (depths.most + 1))));
  };

  const draw = ({ context, width }: Frame): void => {
    const colours = palette();
    context.fillStyle = colours.raised;
    context.fillRect(0, 0, width, HEIGHT);
    const wide = width / depths.bins;
    for (let bin = 0; bin < depths.bins; bin++) {
      let y = HEIGHT;
      kinds.forEach((kind, place) => {
        // The logarithm: a layer of a thousand nodes does not hide all others.
        const share = depths.counts[place][bin] ? depths.counts[place][bin] / totals[bin] : 0;
        const high = (share * Math.log1p(totals[bin]) * (HEIGHT - 16)) / Math.log1p(highest);
        context.fillStyle = colours.classes[LOOKS[kind]];
        context.fillRect(bin * wide, y - high, wide > 4 ? wide - 1 : wide + 0.3, high);
        y -= high;
      });
    }
    context.fillStyle = colours.faint;
    context.font = SMALL;
    context.fillText("all nodes by depth", 4, 11);
    context.textAlign = "right";
    context.fillText(`depth ${count(depths.most)}`, width - 4, 11);
    context.textAlign = "left";
  };
  const overlay = ({ context, width }: Frame): void => {
    if (selected.value === null) return;
    const wide = width / (depths.most + 1);
    const colours = palette();
    const x = Math.min(width - 2, Math.max(1, (nodes.depth[selected.value] + 0.5) * wide));
    context.fillStyle = colours.ink;
    context.fillRect(x - 1, 14, 2, HEIGHT - 14);
    context.beginPath();
    context.moveTo(x - 5, 14);
    context.lineTo(x + 5, 14);
    context.lineTo(x, 21);
    context.fill();
  };
  return (
    <Canvas
      class="depths"
      height={HEIGHT}
      label={`Nodes by depth, from 0 to ${depths.most}`}
      draw={draw}
      overlay={overlay}
      againAbove={[selected]}
      on={{
        onPointerDown: (event) => {
          const node = depths.open[depthAt(event)];
          if (node >= 0) selected.value = node;
        },
        onPointerMove: (event) => {
          const depth = depthAt(event);
          const bin = Math.floor((depth * depths.bins) / (depths.most + 1));
          showTip(event, [`depth ${count(depth)}`, `${count(totals[bin])} nodes${depths.bins <= depths.most ? " near it" : ""}`]);
        },
        onPointerLeave: hideTip,
      }}
    />
  );
}

function totalsOf({ counts, bins }: Depths): Float64Array {
  const totals = new Float64Array(bins);
  for (const each of counts) for (let bin = 0; bin < bins; bin++) totals[bin] += each[bin];
  return totals;
}
