// Names for parts of the documents' types that are not objects of their own.
import type { ChoicesCoding, Column, Operator, Part } from "./document";

/** The colour class of a component of a step, or of a span; "hidden" is overlapped communication. */
export type Class = Part["class"];
export type Coding = Column["coding"];
/** What a node of a trace does. */
export type Kind = Operator["kind"];
export type Value = ChoicesCoding["values"][number];
