// The whole step in one strip: compute and exposed communication, and which part is visible.

import { useMemo } from "preact/hooks";
import { Canvas, type Frame, pointerAt } from "../base/canvas";
import { palette } from "../base/theme";
import { type Board, see } from "./board";
import { heat } from "./spans";

const HEIGHT = 40;
const BINS = 600;

interface MinimapProps {
  board: Board;
  /** What the strip is: "whole step". */
  name?: string;
  heatOf?: typeof heat;
}

export function Minimap({ board, name = "whole step", heatOf = heat }: MinimapProps) {
  const strips = useMemo(() => board.lanes.map(({ spans }) => heatOf(spans, board.until, BINS)), [board]);
  const gutter = (): number => board.scene().gutter;
  let hold: { at: number; from: number } | null = null;

  const draw = ({ context, width }: Frame): void => {
    const colours = palette();
    const left = gutter();
    context.fillStyle = colours.raised;
    context.fillRect(left, 0, width - left, HEIGHT);
    const high = HEIGHT / strips.length;
    strips.forEach(({ busy, exposed }, strip) => {
      const base = high * (strip + 1);
      const wide = (width - left) / BINS;
      for (let bin = 0; bin < BINS; bin++) {
        const x = left + bin * wide;
        const [low, top] = [busy[bin] * (high - 3), exposed[bin] * (high - 3)];
        context.fillStyle = colours.classes.compute;
        context.globalAlpha = 0.45;
        context.fillRect(x, base - low, wide + 0.3, low);
        context.fillStyle = colours.classes.exposed;
        context.globalAlpha = 1;
        context.fillRect(x, base - low - top, wide + 0.3, top);
      }
    });
    context.fillStyle = colours.faint;
    context.font = "11px system-ui, sans-serif";
    context.fillText(name, 16, HEIGHT / 2 + 4);
  };

  const overlay = ({ context, width }: Frame): void => {
    const colours = palette();
    const left = gutter();
    const { from, to } = board.view.value;
    const per = (width - left) / board.until;
    const [x0, x1] = [left + from * per, left + to * per];
    context.fillStyle = colours.paper;
    context.globalAlpha = 0.72;
    context.fillRect(left, 0, x0 - left, HEIGHT);
    context.fillRect(x1, 0, width - x1, HEIGHT);
    context.globalAlpha = 1;
    context.strokeStyle = colours.accent;
    context.lineWidth = 2;
    context.strokeRect(x0 + 1, 1, Math.max(2, x1 - x0 - 2), HEIGHT - 2);
  };

  const time = (event: PointerEvent & { currentTarget: HTMLCanvasElement }): number => {
    const left = gutter();
    const share = (pointerAt(event, event.currentTarget).x - left) / (event.currentTarget.clientWidth - left);
    return share * board.until;
  };
  return (
    <Canvas
      class="minimap"
      height={HEIGHT}
      label={`The ${name}: time in compute, and above it time in exposed communication`}
      draw={draw}
      overlay={overlay}
      againAbove={[board.view]}
      on={{
        onPointerDown: (event) => {
          const at = time(event);
          const { from, to } = board.view.value;
          event.currentTarget.setPointerCapture(event.pointerId);
          const length = to - from;
          // A press outside the visible part moves it there first.
          if (at < from || at > to || length >= board.until) see(board, { from: at - length / 2, to: at + length / 2 });
          hold = { at, from: board.view.value.from };
        },
        onPointerMove: (event) => {
          if (!hold) return;
          const { from, to } = board.view.value;
          const by = hold.from + time(event) - hold.at - from;
          see(board, { from: from + by, to: to + by });
        },
        onPointerUp: () => { hold = null; },
        onPointerCancel: () => { hold = null; },
      }}
    />
  );
}
