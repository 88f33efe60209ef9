// Numbers as text: three significant digits and a unit.

const TIMES: [number, string][] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
const BYTES: [number, string][] = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
/** Large numbers by their prefix. */
const LARGE: [number, string][] = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

/** Returns three significant digits: 12.3, 0.00123, 1,230,000, 1.23e-14. */
export function digits(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e9 || size < 1e-4) return Number(value.toPrecision(3)).toExponential().replace("e+", "e");
  const text = Number(value.toPrecision(3));
  return size >= 1000 ? count(Math.round(text)) : String(text);
}

function stepped(value: number, steps: [number, string][], between = " "): string {
  const size = Math.abs(value);
  const [worth, name] = steps.find(([each]) => size >= each) ?? steps[steps.length - 1];
  return `${digits(value / worth)}${name ? between + name : ""}`;
}

/** Returns a value in SI units as it is shown: `show(0.0112, "s")` is 11.2 ms. */
export function show(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  switch (unit) {
    case "s":
      return value === 0 ? "0 s" : stepped(value, TIMES);
    case "B":
      return value === 0 ? "0 B" : stepped(value, BYTES);
    case "share":
      return `${digits(100 * value)} %`;
    case "B/s":
    case "FLOP/s":
      return `${stepped(value, LARGE, " ")}${unit}`.replace(/ ?(B\/s|FLOP\/s)$/, Math.abs(value) >= 1e3 ? "$1" : " $1");
    case "1/s":
      return `${digits(value)}/s`;
    case "USD":
      return Math.abs(value) >= 1e5 ? `${stepped(value, LARGE)} USD` : `${digits(value)} USD`;
    default:
      return unit ? `${digits(value)} ${unit}` : digits(value);
  }
}

/** Returns what writes the numbers of one axis: all in one unit, that of the largest of them. */
export function writer(unit: string, high: number): { worth: number; text: (value: number) => string } {
  const steps = { s: TIMES, B: BYTES }[unit];
  if (!steps) return { worth: 1, text: (value) => show(value, unit) };
  const [worth, name] = steps.find(([each]) => Math.abs(high) >= each * 0.9999) ?? steps[steps.length - 1];
  return { worth, text: (value) => `${value === 0 ? "0" : digits(value / worth)} ${name}` };
}

/** Returns how many times: 2.31×, with a digit more where it is near 1. */
export function times(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const apart = Math.abs(size - 1);
  if (apart > 5e-4 && apart < 1e-2) return `${value.toFixed(3)}×`;
  return `${size >= 0.01 && size < 999.5 ? value.toPrecision(3) : digits(value)}×`;
}

/** Returns a whole number with commas; toLocaleString does the same, but takes tens of milliseconds to start. */
export function count(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}
