// Densities of trials as an image. The cost depends on the pixels, hardly on the trials.

export interface Grid {
  width: number;
  height: number;
  counts: Float32Array;
}

/** An image that is drawn often and keeps its memory. */
export class Layer {
  readonly grid: Grid = { width: 0, height: 0, counts: new Float32Array(0) };
  /** The key of its content, to know whether it is up to date; cleared with the image. */
  key = "";
  private image: ImageData | null = null;
  private canvas: HTMLCanvasElement | null = null;

  /** Empties it, at this size. */
  clear(width: number, height: number): Grid {
    const { grid } = this;
    this.key = "";
    const [wide, high] = [Math.max(1, Math.round(width)), Math.max(1, Math.round(height))];
    if (grid.width !== wide || grid.height !== high) {
      grid.width = wide;
      grid.height = high;
      grid.counts = new Float32Array(wide * high);
      this.image = null;
    } else grid.counts.fill(0);
    return grid;
  }

  /** Colours it by its counts; `columnsFirst` where they lie column by column. */
  colour(tone: Tone, columnsFirst: boolean): void {
    const { width, height } = this.grid;
    this.canvas ??= document.createElement("canvas");
    if (!this.image) {
      this.image = new ImageData(width, height);
      this.canvas.width = width;
      this.canvas.height = height;
    }
    toned(this.grid, tone, columnsFirst, new Uint32Array(this.image.data.buffer));
    this.canvas.getContext("2d")!.putImageData(this.image, 0, 0);
  }

  draw(context: CanvasRenderingContext2D, x: number, y: number, width: number, height: number): void {
    if (this.canvas) context.drawImage(this.canvas, x, y, width, height);
  }
}

/** Counts how many of some trials are in each pair of bins of two axes. */
export function pairs(one: Uint8Array, other: Uint8Array, places: Uint32Array, into: Uint32Array): void {
  into.fill(0);
  for (let at = 0; at < places.length; at++) into[(one[places[at]] << 8) | other[places[at]]]++;
}

export const PAIRS = 256 * 256;

export interface Strip {
  /** Pixels from the left where the two axes are. */
  from: number;
  to: number;
  /** Pixels from the top of each bin of the two axes. */
  left: Float32Array;
  right: Float32Array;
}

/** Adds the lines between two axes to a column-major grid, weighted by their numbers of trials. */
export function addLines(into: Grid, counts: Uint32Array, strip: Strip): void {
  const { left, right, from, to } = strip;
  const first = Math.max(0, Math.ceil(from));
  const last = Math.min(into.width - 1, Math.floor(to));
  if (last < first) return;
  for (let a = 0; a < left.length; a++)
    for (let b = 0; b < right.length; b++) {
      const weight = counts[(a << 8) | b];
      if (weight) addLine(into, left[a], (right[b] - left[a]) / (to - from), from, first, last, weight);
    }
}

function addLine(into: Grid, start: number, slope: number, from: number, first: number, last: number, weight: number): void {
  const { counts, height } = into;
  const rise = Math.abs(slope);
  for (let x = first; x <= last; x++) {
    const y = start + slope * (x - from);
    const column = x * height;
    if (rise <= 1) {
      const above = Math.floor(y - 0.5);
      const part = y - 0.5 - above;
      if (above >= 0) counts[column + above] += weight * (1 - part);
      if (above + 1 < height) counts[column + above + 1] += weight * part;
    } else {
      // A steep line fills a run of each column; thinned, but not so much that single lines fade away.
      const low = Math.max(0, y - rise / 2);
      const high = Math.min(height, y + rise / 2);
      const each = weight / Math.sqrt(rise);
      const end = Math.min(height - 1, Math.floor(high));
      for (let row = Math.floor(low); row <= end; row++)
        counts[column + row] += each * (Math.min(row + 1, high) - Math.max(row, low));
    }
  }
}

export type Colour = [number, number, number];

export function colourOf(text: string): Colour {
  const [red, green, blue] = (text.match(/[\d.]+/g) ?? ["0", "0", "0"]).map(Number);
  return [red, green, blue];
}

export interface Tone {
  colour: Colour;
  /** How opaque one trial is, and how opaque the densest place. */
  least: number;
  most: number;
}

/** Writes a grid as pixels: more opaque by the logarithm of the count. */
export function toned(from: Grid, tone: Tone, columnsFirst: boolean, pixels: Uint32Array): void {
  const { width, height, counts } = from;
  let highest = 1;
  for (let place = 0; place < counts.length; place++) if (counts[place] > highest) highest = counts[place];
  const [red, green, blue] = tone.colour;
  const colour = (blue << 16) | (green << 8) | red;
  const alphas = alphasUpTo(highest, tone);
  const step = (alphas.length - 1) / Math.log1p(highest);
  pixels.fill(0);
  const [columns, rows] = columnsFirst ? [width, height] : [height, width];
  for (let outer = 0, place = 0; outer < columns; outer++)
    for (let inner = 0; inner < rows; inner++, place++) {
      const value = counts[place];
      if (value <= 0) continue;
      const at = columnsFirst ? inner * width + outer : place;
      pixels[at] = (alphas[(Math.log1p(value) * step) | 0] << 24) | colour;
    }
}

const LEVELS = 256;

function alphasUpTo(highest: number, { least, most }: Tone): Uint8Array {
  const one = Math.log1p(1) / Math.log1p(highest);
  return Uint8Array.from({ length: LEVELS + 1 }, (_, level) => {
    const share = level / LEVELS;
    const alpha = share < one ? (least * share) / one : least + (most - least) * ((share - one) / Math.max(1e-9, 1 - one));
    return Math.round(255 * alpha);
  });
}
