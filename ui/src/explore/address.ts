// How a view is written into the address.

/** A column as an axis of a view: its name, and how it is drawn where that is not as usual. */
export interface Drawn {
  name: string;
  log?: boolean;
  flip?: boolean;
}

/** The column by which the table is sorted, "trial" or "outcome" among them; and whether from the largest. */
export interface Sort {
  name: string;
  down: boolean;
}

export function drawnFrom(text: string): Drawn {
  const [name, ...how] = text.split(":");
  const drawn: Drawn = { name };
  if (how.includes("log")) drawn.log = true;
  if (how.includes("linear")) drawn.log = false;
  if (how.includes("flip")) drawn.flip = true;
  return drawn;
}

export function drawnText({ name, log, flip }: Drawn): string {
  return name + (log === undefined ? "" : log ? ":log" : ":linear") + (flip ? ":flip" : "");
}

export function sortText({ name, down }: Sort): string {
  return `${down ? "-" : ""}${name}`;
}

export function attempt<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch {
    return otherwise;
  }
}
