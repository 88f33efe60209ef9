// Quantities with units: "12.5 ms", "80 GB", "40 %". What `written` prints, `read` reads.

const PREFIXES: [string, number][] = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]];
/** Prefixes of numbers and money: only for large ones. */
const LARGE: [string, number][] = [["T", 1e12], ["G", 1e9], ["M", 1e6], ["", Number.MIN_VALUE]];
const BINARY: [string, number][] = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];

/** By unit of a column: suffixes, largest first; those to print with come first, others are only understood. */
function suffixes(unit: string): [string, number][] {
  switch (unit) {
    case "s":
      return [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
    case "B":
      return BINARY;
    case "share":
      return [["%", 0.01]];
    case "B/s":
    case "FLOP/s":
      return PREFIXES.map(([prefix, worth]) => [prefix + unit, worth]);
    default:
      return LARGE;
  }
}

const ALSO: Record<string, [string, number][]> = {
  s: [["us", 1e-6], ["min", 60], ["h", 3600], ["d", 86_400]],
  B: PREFIXES.slice(0, -1).flatMap(([prefix, worth]) => [[`${prefix}B`, worth], [`${prefix.toUpperCase()}B`, worth]]),
  "B/s": [["KB/s", 1e3]],
};

const DIGITS = 4;

/** Returns a number of a column as it is printed in a filter. */
export function written(value: number, unit: string): string {
  if (value === 0) return "0";
  const steps = suffixes(unit);
  const [suffix, step] = steps.find(([, each]) => Math.abs(value) >= each) ?? steps[steps.length - 1];
  const worth = suffix ? step : 1;
  const number = String(Number((value / worth).toPrecision(DIGITS)));
  return suffix ? `${number} ${suffix}` : number;
}

/** Returns the number that a text stands for in a column of this unit; null where it stands for none. */
export function read(text: string, unit: string): number | null {
  const found = /^([-+]?(?:\d[\d,_]*\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(\S*)$/i.exec(text.trim());
  if (!found) return null;
  const number = Number(found[1].replace(/[,_]/g, ""));
  const suffix = found[2];
  if (!suffix) return number;
  const known: [string, number][] = [...suffixes(unit), ...(ALSO[unit] ?? []), ...PREFIXES, [unit, 1]];
  const worth = known.find(([name]) => name === suffix) ?? known.find(([name]) => name.toLowerCase() === suffix.toLowerCase());
  return worth ? number * worth[1] : null;
}

/** Returns a number as it is after it was printed and read: what a brush snaps to, so that its text is all of it. */
export function rounded(value: number, unit: string): number {
  return read(written(value, unit), unit) ?? value;
}
