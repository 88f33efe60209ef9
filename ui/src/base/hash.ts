// The state of the page in the part of its address after #, so that a view can be sent as a link.

const WAIT_MS = 150;
let wanted: URLSearchParams | null = null;
let timer = 0;

function now(): URLSearchParams {
  return wanted ?? new URLSearchParams(location.hash.slice(1));
}

export function readHash(name: string): string {
  return now().get(name) ?? "";
}

/** Stores a value under a name, an empty one removes it. Written a moment later, as brushing changes it often. */
export function writeHash(name: string, value: string): void {
  const next = now();
  if (value) next.set(name, value);
  else next.delete(name);
  wanted = next;
  clearTimeout(timer);
  timer = window.setTimeout(flushHash, WAIT_MS);
}

export function flushHash(): void {
  if (!wanted) return;
  const text = wanted.toString();
  wanted = null;
  try {
    history.replaceState(null, "", text ? `#${text}` : "#");
  } catch {
    // A page inside a frame of a notebook has no address of its own.
  }
}

/** Calls `listener` when the address changes from outside: a link, the back button. */
export function onHash(listener: () => void): () => void {
  window.addEventListener("hashchange", listener);
  return () => window.removeEventListener("hashchange", listener);
}
