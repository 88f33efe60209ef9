// A value that tells who listens when it changes: all the state that views share.

import { useEffect, useState } from "preact/hooks";

export class Signal<T> {
  private listeners = new Set<(value: T) => void>();

  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }

  set value(next: T) {
    if (Object.is(next, this.current)) return;
    this.current = next;
    for (const listener of [...this.listeners]) listener(next);
  }

  /** Calls `listener` at every change until the function that this returns is called. */
  listen(listener: (value: T) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** Returns a signal's value, and draws the component anew when it changes. */
export function useSignal<T>(signal: Signal<T>): T {
  const [value, setValue] = useState(() => signal.value);
  useEffect(() => {
    setValue(() => signal.value);
    return signal.listen((next) => setValue(() => next));
  }, [signal]);
  return value;
}
