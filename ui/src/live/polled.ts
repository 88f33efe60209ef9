// An answer of the server, polled while a page is open.

import { useEffect, useState } from "preact/hooks";
import { get } from "./api";

export interface Polled<T> {
  /** The last answer; null before the first. */
  value: T | null;
  /** Why the last request failed; empty if it did not. */
  failure: string;
}

export function usePolled<T>(path: string, everyMs: number): Polled<T> {
  const [state, setState] = useState<Polled<T>>({ value: null, failure: "" });
  useEffect(() => {
    let timer = 0;
    let gone = false;
    const look = async (): Promise<void> => {
      let next: (before: Polled<T>) => Polled<T>;
      try {
        const value = await get<T>(path);
        next = () => ({ value, failure: "" });
      } catch (error) {
        next = ({ value }) => ({ value, failure: (error as Error).message });
      }
      if (gone) return;
      setState(next);
      timer = window.setTimeout(look, everyMs);
    };
    setState({ value: null, failure: "" });
    void look();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [path, everyMs]);
  return state;
}
