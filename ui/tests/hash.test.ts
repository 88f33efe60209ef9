// What a view notes in the address must not undo a link that was followed in the meantime.

import assert from "node:assert/strict";
import { test } from "node:test";

const listeners: (() => void)[] = [];
const page = { hash: "#page=search" };
let later: (() => void) | null = null;
Object.assign(globalThis, {
  location: page,
  history: { replaceState: (_: unknown, __: string, address: string) => void (page.hash = address) },
  window: {
    addEventListener: (_: string, listener: () => void) => void listeners.push(listener),
    setTimeout: (call: () => void) => ((later = call), 1),
  },
});
const { flushHash, onHash, readHash, writeHash } = await import("../src/base/hash");

test("values are read at once, and written to the address a moment later", () => {
  page.hash = "#page=search";
  writeHash("time", "3,4");
  assert.equal(readHash("time"), "3,4");
  assert.equal(page.hash, "#page=search");
  later?.();
  assert.equal(page.hash, "#page=search&time=3%2C4");
  writeHash("time", "");
  flushHash();
  assert.equal(page.hash, "#page=search");
});

test("a link followed before that wins, and the page that it opens reads its address", () => {
  page.hash = "#page=search";
  writeHash("time", "3,4");
  let seen = "";
  onHash(() => (seen = readHash("page") + readHash("time")));
  page.hash = "#page=study&study=first";
  for (const listener of listeners) listener();
  assert.equal(seen, "study");
  flushHash();
  assert.equal(page.hash, "#page=study&study=first");
});
