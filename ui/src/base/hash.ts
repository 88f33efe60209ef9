// The state of the page in the part of its address after #, so that a view can be sent as a link.

const WAIT_MS = 150;
/** Values that are not yet written to the address. They belong to the page that it names: another address drops them. */
const pending = new Map<string, string>();
let timer = 0;

function now(): URLSearchParams {
  const words = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of pending) {
    if (value) words.set(name, value);
    else words.delete(name);
  }
  return words;
}

export function readHash(name: string): string {
  return pending.get(name) ?? new URLSearchParams(location.hash.slice(1)).get(name) ?? "";
}

/** Stores a value under a name, an empty one removes it. Written a moment later, as brushing changes it often. */
export function writeHash(name: string, value: string): void {
  pending.set(name, value);
  clearTimeout(timer);
  timer = window.setTimeout(flushHash, WAIT_MS);
}

export function flushHash(): void {
  if (!pending.size) return;
  const text = now().toString();
  forget();
  try {
    history.replaceState(null, "", text ? `#${text}` : "#");
  } catch {
    // A page inside a frame of a notebook has no address of its own.
  }
}

function forget(): void {
  pending.clear();
  clearTimeout(timer);
}

/** Calls `listener` when the address changes from outside: a link, the back button. */
export function onHash(listener: () => void): () => void {
  window.addEventListener("hashchange", listener);
  return () => window.removeEventListener("hashchange", listener);
}

if (typeof window !== "undefined") onHash(forget); // before all other listeners: they read the new address
