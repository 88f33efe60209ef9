// The state that views of one study share: the study, the trial under the pointer, the opened design.

import { Signal } from "./base/signal";
import type { Design, ReportDocument } from "./document";
import type { Trials } from "./trials";

/** A design and the numbers that its timeline points to. */
export interface Opened {
  design: Design;
  binary: Uint8Array;
}

/** The source of a page's study: the file itself, or the server of the live page. */
export interface Source {
  document: ReportDocument;
  binary: Uint8Array;
  /** All trials so far; a live study grows. */
  trials: Signal<Trials>;
  /** Numbers of the trials on the Pareto front, as of `trials`. */
  front: Signal<number[]>;
  /** Returns the design of a trial with its timeline and cluster; null where this page does not hold it. */
  open(trial: number): Promise<Opened | null>;
}

export interface Shared {
  source: Source;
  /** The trial that a pointer is on in any view, by its number; null for none. */
  hovered: Signal<number | null>;
  /** The design that "the design" shows. */
  opened: Signal<Opened | null>;
}

/** Returns the source of a page whose file holds everything. */
export function reportSource(document: ReportDocument, binary: Uint8Array, trials: Trials): Source {
  return {
    document,
    binary,
    trials: new Signal(trials),
    front: new Signal(document.front),
    open: async (trial) => {
      const design = document.designs.find((each) => each.trial === trial);
      return design ? { design, binary } : null;
    },
  };
}
