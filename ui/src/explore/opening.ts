// Opening the design of a trial, or adding the trial to the comparison.

import { evaluateCommand } from "./commands";
import type { Explorer } from "./model";

export async function compareOrOpen(model: Explorer, place: number, compare: boolean): Promise<void> {
  const trial = model.trials.first + place;
  if (compare) return model.compare(trial);
  const { shared, trials } = model;
  let opened = null;
  try {
    opened = await shared.source.open(trial);
  } catch (error) {
    model.said.value = { text: `Trial ${trial} could not be opened: ${error instanceof Error ? error.message : String(error)}`, command: "", bad: true };
    return;
  }
  if (opened) {
    model.said.value = { text: `The design of trial ${trial} is shown below, under "The design".`, command: "", bad: false };
    shared.opened.value = opened;
    return;
  }
  const runs = trials.outcomes[place] === 0;
  const text = runs ? `This page holds no timeline of trial ${trial}. Its numbers are those of this command:` : `Trial ${trial} cannot run (${trials.reasons[trials.outcomes[place]]}). See why with:`;
  model.said.value = { text, command: evaluateCommand(shared, trials, place), bad: false };
  if (!model.view.compared.includes(trial)) model.compare(trial);
}
