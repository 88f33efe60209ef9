// The key of this browser's session: the token of the printed address is exchanged for it, once.
//
// It is kept in storage that belongs to this address and port alone, and sent as a header. A cookie would be sent to
// every port of this machine, and so to the servers of other users.

const KEPT = "cosmic-key";
export const HEADER = "X-Cosmic";

let key = "";

function stored(): string {
  try {
    return localStorage.getItem(KEPT) ?? "";
  } catch {
    return ""; // A browser that stores nothing: the key lives as long as the page.
  }
}

function store(value: string): void {
  try {
    localStorage.setItem(KEPT, value);
  } catch {
    // As above.
  }
}

/** Returns the token in an address after #, and the rest without it. */
export function tokenIn(hash: string): { token: string; rest: string } {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const token = words.get("token") ?? "";
  words.delete("token");
  return { token, rest: words.toString() };
}

/** Exchanges the token in the address, if there is one, and removes it from there; returns why it failed, or nothing. */
export async function enter(): Promise<string> {
  key = stored();
  const { token, rest } = tokenIn(location.hash);
  if (!token) return "";
  history.replaceState(null, "", rest ? `#${rest}` : location.pathname);
  try {
    const answer = await fetch("/api/enter", { method: "POST", headers: { [HEADER]: token } });
    const said = (await answer.json()) as { key?: string; error?: string };
    if (!said.key) return key ? "" : (said.error ?? `the server answered ${answer.status}`); // a link that was used
    key = said.key;
    store(key);
  } catch {
    return "the server does not answer: is cosmic ui still running?";
  }
  return "";
}

/** Returns the header that every request needs. */
export function credentials(): Record<string, string> {
  return { [HEADER]: key };
}
