// Colours and textures of spans. Every class has a texture, so that colour is not the only cue.

import { type Palette, palette } from "../base/theme";
import type { Class } from "../aliases";
import type { Paint } from "./spans";

export interface Look {
  fill: string;
  /** The colour of text on it. */
  text: string;
}

export const CLASS_WORDS: Record<Class, string> = {
  compute: "compute",
  exposed: "exposed communication",
  hidden: "overlapped communication",
  idle: "idle",
  memory: "memory",
  optimizer: "optimizer",
  other: "other",
};

type Rgb = [number, number, number];

function rgb(text: string): Rgb {
  const [r, g, b] = (text.match(/[\d.]+/g) ?? []).map(Number);
  return [r, g, b];
}

function mixed(one: Rgb, other: Rgb, share: number): Rgb {
  return one.map((value, place) => Math.round(value + (other[place] - value) * share)) as Rgb;
}

function light([r, g, b]: Rgb): number {
  const [x, y, z] = [r, g, b].map((value) => ((value / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
}

const BLACK: Rgb = [12, 14, 17];
const WHITE: Rgb = [255, 255, 255];

let known = { colours: null as Palette | null, looks: new Map<string, Look>() };

export function lookOf(paint: Paint): Look {
  const colours = palette();
  if (known.colours !== colours) known = { colours, looks: new Map() };
  const key = paint.class + paint.back;
  const before = known.looks.get(key);
  if (before) return before;
  const look = newLook(paint, colours);
  known.looks.set(key, look);
  return look;
}

function newLook(paint: Paint, colours: Palette): Look {
  const base = rgb(colours.classes[paint.class]);
  const paper = rgb(colours.paper);
  const fill = paint.class === "idle" ? mixed(base, paper, 0.68) : paint.back ? mixed(base, BLACK, 0.38) : base;
  const shade = light(fill);
  const onWhite = 1.05 / (shade + 0.05);
  const onBlack = (shade + 0.05) / (light(BLACK) + 0.05);
  return { fill: `rgb(${fill})`, text: `rgb(${onWhite >= Math.min(3.8, onBlack) ? WHITE : BLACK})` };
}

const TILE = 6;
const textures = new Map<string, CanvasPattern | null>();

/** Returns the texture that goes over spans of a class; null for those that are plain. */
export function textureOf(context: CanvasRenderingContext2D, kind: Class, colour: string, ratio: number): CanvasPattern | null {
  if (kind === "compute" || kind === "other") return null;
  const key = `${kind} ${colour} ${ratio}`;
  const before = textures.get(key);
  if (before !== undefined) return before;
  const tile = document.createElement("canvas");
  tile.width = tile.height = Math.round(TILE * ratio);
  const brush = tile.getContext("2d")!;
  brush.scale(tile.width / TILE, tile.width / TILE);
  brush.strokeStyle = brush.fillStyle = colour;
  brush.globalAlpha = kind === "idle" ? 0.4 : 0.28;
  drawTexture(brush, kind);
  const pattern = context.createPattern(tile, "repeat");
  pattern?.setTransform(new DOMMatrix().scale(TILE / tile.width));
  textures.set(key, pattern);
  return pattern;
}

function drawTexture(brush: CanvasRenderingContext2D, kind: Class): void {
  const line = (x0: number, y0: number, x1: number, y1: number): void => {
    brush.moveTo(x0, y0);
    brush.lineTo(x1, y1);
  };
  brush.lineWidth = 1.4;
  brush.beginPath();
  if (kind === "exposed") for (const x of [-TILE, 0, TILE]) line(x - 1, TILE + 1, x + TILE + 1, -1);
  else if (kind === "hidden") for (const x of [-TILE, 0, TILE]) line(x - 1, -1, x + TILE + 1, TILE + 1);
  else if (kind === "memory") line(0, TILE / 2, TILE, TILE / 2);
  else if (kind === "optimizer") line(TILE / 2, 0, TILE / 2, TILE);
  brush.stroke();
  if (kind === "idle") {
    brush.beginPath();
    brush.arc(TILE / 2, TILE / 2, 1.2, 0, 7);
    brush.fill();
  }
}
