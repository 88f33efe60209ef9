import assert from "node:assert/strict";
import { test } from "node:test";
import { asCommands, asCsv, asPython, evaluateCommand, shellWord } from "../src/explore/commands";
import { parseChips } from "../src/explore/filter";
import { bestOf } from "../src/explore/front";
import { counted, keptBy } from "../src/explore/mask";
import { sharedOf, study } from "./study";

const trials = study();
const shared = sharedOf(trials);

function selection(text: string) {
  const chips = parseChips(trials, text);
  const selected = keptBy(trials, chips);
  return { trials, chips, selected, count: counted(selected), best: bestOf(trials, trials.columns[4], selected) };
}

test("a shell gets words as they are meant", () => {
  assert.equal(shellWord("runs/demo"), "runs/demo");
  assert.equal(shellWord("it's $HOME"), `'it'\\''s $HOME'`);
});

test("a trial is evaluated from the base, with all its parameters", () => {
  assert.equal(
    evaluateCommand(shared, trials, 1),
    "cosmic evaluate base.yaml --set workload.tp=2 --set network.dims.0.topology=switch --set 'network.dims.0.bandwidth=100 GB/s' --set 'network.dims.1.bandwidth=50 GB/s'",
  );
});

test("limits of metrics become constraints, those of parameters are named", () => {
  const lines = asCommands(shared, selection("tp >= 2 & cost_usd <= 30")).trim().split("\n");
  assert.equal(lines[0], "# 3 of 6 trials: tp >= 2 & cost_usd <= 30");
  assert.equal(lines[1], "cosmic study export 'runs/a study' --to trials.csv");
  assert.match(lines[2], /trial 2$/);
  assert.match(lines[3], /^cosmic evaluate base\.yaml --set workload\.tp=4 /);
  assert.match(lines[4], /tp >= 2$/);
  assert.equal(lines[5], "cosmic search small -n 10 --constraint 'cost_usd <= 30'");
});

test("without a limit there is nothing to search again", () => {
  assert.equal(asCommands(shared, selection("outcome = memory")).trim().split("\n").length, 2);
});

test("Python selects by the names and texts of the export", () => {
  const text = asPython(shared, selection("tp >= 2 & topology = ring|switch; dims.0.bandwidth > 60 GB/s; not (10 ms <= step_s < 20 ms); outcome = runs; trial != 3"));
  assert.ok(text.includes(`(trials["workload.tp"] >= 2) & trials["network.dims.0.topology"].isin(["ring", "switch"])`));
  assert.ok(text.includes(`& trials["network.dims.0.bandwidth"].isin(["100 GB/s"])`));
  assert.ok(text.includes(`& ~((trials["step_s"] >= 0.01) & (trials["step_s"] < 0.02))`));
  assert.ok(text.includes(`& trials["feasible"]`));
  assert.ok(text.includes(`& ~trials["trial"].isin([3])`));
  assert.ok(text.includes(`# here: 2 of 6`));
});

test("the table has what is selected, and nothing that a spreadsheet would run", () => {
  const strange = study();
  strange.columns[1].labels[0] = "=1+1, \"x\"";
  const lines = asCsv({ ...selection("tp = 1|8"), trials: strange }).trim().split("\n");
  assert.equal(lines[0], "trial,workload.tp,network.dims.0.topology,network.dims.0.bandwidth,network.dims.1.bandwidth,step_s,cost_usd,feasible,reasons");
  assert.equal(lines.length, 4);
  assert.equal(lines[1], `0,1,"'=1+1, ""x""",50 GB/s,50 GB/s,0.08,10,True,`);
  assert.equal(lines[3], `4,8,"'=1+1, ""x""",50 GB/s,50 GB/s,,,False,memory`);
});
