// The events of a study, read from a stream: the browser's own reader of events cannot send a header.

import { credentials } from "./session";

const AGAIN_MS = 2000;

/** Returns how many whole events a text holds, and what is left of it; comments and settings are no events. */
export function eventsIn(text: string): { count: number; rest: string } {
  const parts = text.split("\n\n");
  const rest = parts.pop() ?? "";
  return { count: parts.filter((part) => /^data:/m.test(part)).length, rest };
}

/** Calls `heard` at every event of a stream, `unheard` at times while there is none; returns what ends it. */
export function listen(path: string, heard: () => void, unheard: () => void): () => void {
  const ending = new AbortController();
  void follow(path, heard, unheard, ending.signal);
  return () => ending.abort();
}

async function follow(path: string, heard: () => void, unheard: () => void, ended: AbortSignal): Promise<void> {
  while (!ended.aborted) {
    try {
      const answer = await fetch(path, { headers: credentials(), signal: ended });
      if (answer.ok && answer.body) await read(answer.body, heard);
      else await answer.body?.cancel();
    } catch {
      // The server has ended, or has no free stream: try again.
    }
    if (ended.aborted) return;
    unheard();
    await new Promise((after) => setTimeout(after, AGAIN_MS));
  }
}

async function read(body: ReadableStream<Uint8Array>, heard: () => void): Promise<void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const { count, rest } = eventsIn(text + decoder.decode(value, { stream: true }));
    text = rest;
    if (count) heard();
  }
}
