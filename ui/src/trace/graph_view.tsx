// The graph around the selected node: layers from left to right, on a canvas.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Canvas, type Frame, pointerAt } from "../base/canvas";
import { Card, type Twin } from "../base/card";
import { count } from "../base/format";
import { addKeys } from "../base/keys";
import { Signal, useSignal } from "../base/signal";
import { palette } from "../base/theme";
import { hideTip, showTip } from "../base/tip";
import { DepthStrip } from "./depths";
import { type Neighbourhood, neighbourhood, type Placed } from "./graph";
import { type Camera, drawGraph, fitted, heightOf, under } from "./graph_paint";
import { linksOf } from "./nodes";
import { nodeText, type TraceState } from "./state";
import { tipOf } from "./timeline";

const [LOW, HIGH] = [300, 420];
const MOST_HOPS = 4;

export function GraphCard({ state }: { state: TraceState }) {
  const selected = useSignal(state.selected);
  const [hops, setHops] = useState(2);
  const around = useMemo(() => (selected === null ? null : neighbourhood(state.nodes, selected, hops)), [state, selected, hops]);
  return (
    <Card
      id="graph-card"
      title="Dependencies around the node"
      {...(around && { reading: readingOf(state, around, hops), twin: () => edgeTwin(state, around) })}
      tools={
        <span class="joined" role="group" aria-label="steps around the node">
          <button type="button" aria-label="fewer steps" disabled={hops <= 1} onClick={() => setHops(hops - 1)}>−</button>
          <button type="button" disabled>{hops} {hops === 1 ? "step" : "steps"}</button>
          <button type="button" aria-label="more steps" disabled={hops >= MOST_HOPS} onClick={() => setHops(hops + 1)}>+</button>
        </span>
      }
    >
      <DepthStrip state={state} />
      {around ? <GraphCanvas state={state} around={around} /> : <p class="empty">Select a node to see the graph around it.</p>}
    </Card>
  );
}

function readingOf(state: TraceState, { placed, edges, centre }: Neighbourhood, hops: number): string {
  const steps = hops === 1 ? "one step" : `${hops} steps`;
  return `${count(placed.length)} of ${count(state.nodes.count)} nodes: within ${steps} of ${state.nodes.id[centre]}, and the ${count(edges.length)} dependencies between them. Control dependencies are dashed; +3 counts those that are not drawn.`;
}

function edgeTwin(state: TraceState, { edges }: Neighbourhood): Twin {
  return {
    columns: ["node", "needed by", "dependency"],
    rows: edges.map(({ from, to, ctrl }) => [nodeText(state, from), nodeText(state, to), ctrl ? "control" : "data"]),
  };
}

function GraphCanvas({ state, around }: { state: TraceState; around: Neighbourhood }) {
  const camera = useMemo(() => new Signal<Camera | null>(null), [around]); // null: as it fits
  const hovered = useMemo(() => new Signal<Placed | null>(null), [around]);
  const top = useRef<HTMLCanvasElement | null>(null);
  const now = useRef({ around, camera, hovered });
  now.current = { around, camera, hovered };
  const seen = (width: number): Camera => now.current.camera.value ?? fitted(now.current.around, width, height);
  const height = Math.min(HIGH, Math.max(LOW, heightOf(around.rows)));
  const wide = (): number => top.current?.clientWidth ?? 600;
  const drag = useRef<{ x: number; y: number; camera: Camera; moved: boolean } | null>(null);

  const fitAll = (): void => { camera.value = fitted(around, wide(), height, 0.1); };
  const zoomBy = (factor: number, at = { x: wide() / 2, y: height / 2 }): void => {
    const before = seen(wide());
    const scale = Math.min(2, Math.max(0.1, before.scale * factor));
    const ratio = scale / before.scale;
    camera.value = { scale, x: at.x - (at.x - before.x) * ratio, y: at.y - (at.y - before.y) * ratio };
  };
  const wheel = (event: WheelEvent): void => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoomBy(Math.exp(-Math.max(-60, Math.min(60, event.deltaY)) * 0.008), pointerAt(event, top.current!));
  };
  const turn = useRef(wheel);
  turn.current = wheel;
  const go = (node: number | undefined): void => {
    if (node !== undefined) state.selected.value = node;
  };

  useEffect(() => {
    const focused = (): boolean => document.activeElement === top.current;
    const beside = (by: number): void => {
      const placed = around.placed.find(({ node }) => node === around.centre)!;
      go(around.placed.find(({ layer, row }) => layer === placed.layer && row === placed.row + by)?.node);
    };
    return addKeys("Graph", [
      { keys: ["ArrowLeft"], help: "to what the node depends on", when: focused, run: () => go(nearest(state, around.centre, "before")) },
      { keys: ["ArrowRight"], help: "to what depends on the node", when: focused, run: () => go(nearest(state, around.centre, "after")) },
      { keys: ["ArrowUp"], help: "to the node above", when: focused, run: () => beside(-1) },
      { keys: ["ArrowDown"], help: "to the node below", when: focused, run: () => beside(1) },
      { keys: ["+", "="], help: "zoom in", when: focused, run: () => zoomBy(1.3) },
      { keys: ["-"], help: "zoom out", when: focused, run: () => zoomBy(1 / 1.3) },
      { keys: ["0"], help: "fit the graph", when: focused, run: fitAll },
    ]);
  }, [around]);

  const place = (event: PointerEvent): Placed | null => under(around, seen(wide()), pointerAt(event, top.current!));
  return (
    <Canvas
      key={around.centre /* signals belong to the neighbourhood */}
      class="graph"
      height={height}
      label={`Graph of ${around.placed.length} nodes around node ${state.nodes.id[around.centre]}. The table holds the dependencies.`}
      draw={(frame: Frame) => drawGraph(state, now.current.around, seen(frame.width), now.current.hovered.value, frame, palette())}
      again={[camera, hovered]}
      canvas={(element) => {
        top.current = element;
        element?.addEventListener("wheel", (event) => turn.current(event), { passive: false });
      }}
      on={{
        tabIndex: 0,
        role: "application",
        onPointerDown: (event) => {
          if (event.button !== 0) return;
          event.currentTarget.setPointerCapture(event.pointerId);
          drag.current = { ...pointerAt(event, event.currentTarget), camera: seen(wide()), moved: false };
        },
        onPointerMove: (event) => {
          const at = pointerAt(event, event.currentTarget);
          const held = drag.current;
          if (held && (held.moved || Math.hypot(at.x - held.x, at.y - held.y) >= 4)) {
            held.moved = true;
            camera.value = { ...held.camera, x: held.camera.x + at.x - held.x, y: held.camera.y + at.y - held.y };
            return;
          }
          const found = place(event);
          hovered.value = found;
          event.currentTarget.style.cursor = found ? "pointer" : "";
          if (found) showTip(event, tipOf(state, found.node));
          else hideTip();
        },
        onPointerUp: (event) => {
          const held = drag.current;
          drag.current = null;
          if (held && !held.moved) go(place(event)?.node);
        },
        onPointerCancel: () => { drag.current = null; },
        onPointerLeave: () => {
          hovered.value = null;
          hideTip();
        },
        onDblClick: fitAll,
      }}
    >
      <span class="joined graph-zoom">
        <button type="button" aria-label="zoom the graph in" onClick={() => zoomBy(1.3)}>+</button>
        <button type="button" aria-label="zoom the graph out" onClick={() => zoomBy(1 / 1.3)}>−</button>
        <button type="button" onClick={fitAll}>fit graph</button>
      </span>
    </Canvas>
  );
}

/** Returns the neighbour of a node that matters most: on the critical path, or the one that ends last (begins first). */
function nearest({ nodes }: TraceState, node: number, way: "before" | "after"): number | undefined {
  const weight = (each: number): number => (way === "before" ? nodes.end[each] : -nodes.start[each]);
  return linksOf(nodes[way], node)
    .map((each) => each.node)
    .filter((each) => each !== node)
    .sort((a, b) => nodes.critical[b] - nodes.critical[a] || weight(b) - weight(a) || a - b)[0];
}

