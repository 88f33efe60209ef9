// Requests of the live page to its server. Every error is one sentence, and is thrown.

import { type Container, open } from "../container";
import type { Design, ReportDocument } from "../document";
import { credentials } from "./session";

export interface Row {
  id: string;
  /** Why the study cannot be read; then the other fields are null. */
  problem: string | null;
  state: "running" | "stopped" | "done" | "damaged";
  /** Whether this server runs its search, and can stop it. */
  ours: boolean;
  /** Why a search of this server failed. */
  failure: string | null;
  space: string | null;
  agent: string | null;
  seed: number | null;
  engine: string | null;
  objectives: string[] | null;
  constraints: string[] | null;
  stacks: string[] | null;
  /** Requested. */
  trials: number | null;
  /** Written, invalid mappings included. */
  n: number | null;
  evaluated: number | null;
  feasible: number | null;
  /** Of the first objective. */
  best: number | null;
  better: "less" | "more" | null;
  created: string | null;
  changed: number;
  seq: number;
}

export interface Session {
  version: string;
  directory: string;
  searches: { running: number; most: number };
}

export interface Setting {
  name: string;
  type: "int" | "float" | "bool" | "str";
  default: string | number | boolean | null;
}

export interface Agent {
  name: string;
  summary: string;
  /** The package that it lacks, in a sentence; empty where it can run. */
  needs: string;
  settings: Setting[];
}

export interface Metric {
  name: string;
  label: string;
  unit: string;
  better: "less" | "more";
}

export interface Catalog {
  spaces: { name: string; title: string; base: string; objective: string }[];
  agents: Agent[];
  metrics: Metric[];
  engines: string[];
  models: string[];
  systems: string[];
  tasks: string[];
}

/** One of the values that a parameter may have, as the schema writes it. */
export type Label = string | number | boolean | Label[];

export interface Schema {
  title: string;
  properties: Record<string, { enum?: Label[]; description?: string; "x-cosmic"?: { stack: string; ordered: boolean } }>;
  "x-cosmic": { stacks?: string[]; constraints?: string[]; objective?: string };
}

export interface Compared {
  objective: string;
  label: string;
  unit: string;
  better: "less" | "more";
  studies: {
    study: string;
    agent: string;
    seed: number;
    trials: number;
    feasible: number;
    best: number | null;
    behind: number | null;
    trials_to_5_percent: number | null;
  }[];
  curves: { name: string; points: [number, number][] }[];
}

export interface SearchRequest {
  /** A parameter set of the catalog, or MODEL@SYSTEM:NPUS for the mappings of a model on a system. */
  space: string;
  /** What the model does on the system; only with MODEL@SYSTEM. */
  task?: string;
  name?: string;
  stacks?: string[];
  restrict?: Record<string, Label[]>;
  agent: string;
  settings?: Record<string, string | number | boolean>;
  objectives?: string[];
  constraints?: string[];
  /** As many as the agent needs, if it is not given. */
  trials?: number;
  seed: number;
  engine: string;
}

async function checked(response: Response): Promise<Response> {
  if (response.ok) return response;
  let said = "";
  try {
    said = ((await response.json()) as { error?: string }).error ?? "";
  } catch {
    // No JSON: a proxy answered.
  }
  throw new Error(said || `the server answered ${response.status}`);
}

/** Sends a request; throws a sentence where the server does not answer. */
async function reach(path: string, init?: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers: { ...credentials(), ...init?.headers } });
  } catch {
    throw new Error("the server does not answer: is cosmic ui still running?");
  }
  return checked(response);
}

export async function get<T>(path: string): Promise<T> {
  return (await (await reach(path)).json()) as T;
}

function posted(body: unknown): RequestInit {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  return (await (await reach(path, posted(body))).json()) as T;
}

export async function getText(path: string): Promise<string> {
  return (await reach(path)).text();
}

async function container<T>(response: Response): Promise<Container<T>> {
  return open<T>(new Uint8Array(await response.arrayBuffer()));
}

export async function getContainer<T>(path: string): Promise<Container<T>> {
  return container<T>(await reach(path));
}

export function studyPath(id: string, rest = ""): string {
  return `/api/studies/${encodeURIComponent(id)}${rest}`;
}

export const getDocument = (id: string): Promise<Container<ReportDocument>> => getContainer(studyPath(id));

export const getDesign = (id: string, trial: number | "best" | "base"): Promise<Container<Design>> =>
  getContainer(studyPath(id, `/trials/${trial}`));

/** Returns MODEL@SYSTEM:NPUS with the mapping that the server chooses. */
export async function evaluateDesign(design: string, task: string): Promise<Container<Design>> {
  return container(await reach("/api/designs", posted({ design, settings: { "workload.task": task } })));
}

/** Returns a design of a study with some settings changed. */
export async function tryDesign(
  study: string,
  trial: number | "best" | "base",
  settings: Record<string, Label>,
): Promise<Container<Design>> {
  return container(await reach("/api/designs", posted({ study, trial, settings })));
}
