// A canvas at the screen's resolution, redrawn when its size, its colours or its content changes.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { repainted } from "./theme";

export interface Frame {
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
  /** Device pixels for each pixel of the page. */
  ratio: number;
}

/** A signal of any type. */
export interface Told {
  listen(listener: () => void): () => void;
}

export interface CanvasProps {
  height: number;
  /** Its description for screen readers. */
  label: string;
  draw: (frame: Frame) => void;
  /** A second layer for what changes often: cursor, brush, hover. */
  overlay?: (frame: Frame) => void;
  /** Handlers and attributes of the top layer: onPointerDown, onWheel, onKeyDown, tabIndex … */
  on?: JSX.HTMLAttributes<HTMLCanvasElement>;
  /** Given the top layer, for handlers that must not be passive. */
  canvas?: (element: HTMLCanvasElement | null) => void;
  /** Redraws both layers when one of these changes, without rendering the component. */
  again?: Told[];
  /** The same for the second layer alone. */
  againAbove?: Told[];
  class?: string;
  children?: ComponentChildren;
}

export const FONT = "12px system-ui, -apple-system, 'Segoe UI', sans-serif";

export function Canvas(props: CanvasProps) {
  const box = useRef<HTMLDivElement>(null);
  const below = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const latest = useRef(props);
  latest.current = props;
  /** From the observer: reading the box itself would lay out the whole page for every canvas. */
  const width = useRef(0);

  const paintAbove = (): void => {
    const { overlay, height } = latest.current;
    if (above.current && width.current) paintOn(above.current, width.current, height, overlay ?? (() => undefined));
  };
  const paint = (): void => {
    if (below.current && width.current) paintOn(below.current, width.current, latest.current.height, latest.current.draw);
    paintAbove();
  };

  useLayoutEffect(paint);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => {
      if (entry.contentRect.width === width.current) return;
      width.current = entry.contentRect.width;
      paint();
    });
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const forget = [
      repainted.listen(paint),
      ...(props.again ?? []).map((signal) => signal.listen(paint)),
      ...(props.againAbove ?? []).map((signal) => signal.listen(paintAbove)),
    ];
    props.canvas?.(above.current);
    return () => {
      for (const each of forget) each();
      props.canvas?.(null);
    };
  }, []);

  return (
    <div ref={box} class={`canvas ${props.class ?? ""}`} style={{ height: `${props.height}px` }}>
      <canvas ref={below} aria-hidden="true" />
      <canvas ref={above} role="img" aria-label={props.label} {...props.on} />
      {props.children}
    </div>
  );
}

/** Returns how many pixels of the screen a length of the page is. */
function pixels(length: number): number {
  return Math.max(1, Math.round(length * (window.devicePixelRatio || 1)));
}

function paintOn(canvas: HTMLCanvasElement, width: number, height: number, draw: (frame: Frame) => void): void {
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [pixels(width), pixels(height)];
  // The style sheet fits it to its box: setting its size here would lay out the page for every canvas.
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = FONT;
  draw({ context, width, height, ratio });
}

/** Returns where a pointer is on the canvas, in pixels of the page. */
export function pointerAt(event: { clientX: number; clientY: number }, canvas: Element): { x: number; y: number } {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}
