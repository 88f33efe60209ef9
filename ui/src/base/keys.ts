// Keyboard shortcuts of the page, and their help.

export interface Key {
  /** As `KeyboardEvent.key`; alternatives. */
  keys: string[];
  /** What it does, for the help. */
  help: string;
  /** Whether the key is active now; always, if it is left out. */
  when?: () => boolean;
  run: (event: KeyboardEvent) => void;
}

const groups = new Map<string, Key[]>();

/** Adds keys under a heading of the help; returns the function that removes them. */
export function addKeys(group: string, keys: Key[]): () => void {
  groups.set(group, keys);
  return () => {
    if (groups.get(group) === keys) groups.delete(group);
  };
}

export function allKeys(): [string, Key[]][] {
  return [...groups];
}

function isTyping(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  return !!element && (/^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) || element.isContentEditable);
}

export function startKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    const fitting = [...groups.values()].flat().filter((each) => each.keys.includes(event.key) && (each.when?.() ?? true));
    // Keys with a condition come before those without.
    const found = fitting.find((each) => each.when) ?? fitting[0];
    if (!found) return;
    event.preventDefault();
    found.run(event);
  });
}
