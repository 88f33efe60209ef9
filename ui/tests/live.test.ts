import assert from "node:assert/strict";
import { test } from "node:test";
import type { Convergence } from "../src/document";
import type { Row, Schema } from "../src/live/api";
import { eventsIn } from "../src/live/events";
import { designName, machineOf } from "../src/live/machine";
import { linkTo } from "../src/live/route";
import { labelText, varying } from "../src/live/search_form";
import { tokenIn } from "../src/live/session";
import { courseOf, elapsedText, startingReading } from "../src/live/study";
import { study } from "./study";

const schema: Schema = {
  title: "a set",
  properties: {
    "workload.tp": { enum: [1, 2, 4], "x-cosmic": { stack: "workload", ordered: true } },
    "network.dims.0.topology": { enum: ["ring", "switch"], "x-cosmic": { stack: "network", ordered: false } },
    "workload.dp": { description: "npus // tp" },
  },
  "x-cosmic": {},
};

test("nothing is said of layers while all are searched", () => {
  assert.deepEqual(varying(schema, [], {}), { restrict: {} });
  assert.deepEqual(varying(schema, [], { "workload.tp": [1, 2] }), { restrict: { "workload.tp": [1, 2] } });
});

test("a frozen layer is left out, and so is what was chosen of it", () => {
  const asked = varying(schema, ["network"], { "workload.tp": [1], "network.dims.0.topology": ["ring"] });
  assert.deepEqual(asked, { stacks: ["workload"], restrict: { "workload.tp": [1] } });
});

test("a search of nothing is refused", () => {
  assert.throws(() => varying(schema, ["network", "workload"], {}), /at least one layer/);
});

test("a label that is a list is read as one text", () => {
  assert.equal(labelText(["ring", ["a", 2], true]), "ring, a, 2, true");
});

test("the best so far gets better, and goes on to the last trial", () => {
  const trials = study();
  const column = trials.columns.find((each) => each.spec.objective)!;
  const about: Convergence = { objective: "x", label: "x", unit: "", better: column.spec.better as "less" | "more", series: [] };
  const { points } = courseOf(trials, about).series[0];
  const sign = about.better === "more" ? -1 : 1;
  const runs = [...column.values].filter((_, place) => trials.outcomes[place] === 0).map((value) => sign * value);
  assert.equal(sign * points[points.length - 1][1], Math.min(...runs));
  assert.equal(points[points.length - 1][0], trials.first + trials.count);
  for (let place = 1; place < points.length - 1; place++) assert.ok(sign * points[place][1] < sign * points[place - 1][1]);
});

test("an address names its page, whatever a study is called", () => {
  const words = new URLSearchParams(linkTo({ page: "study", study: "a&b=#<img>" }).slice(1));
  assert.equal(words.get("study"), "a&b=#<img>");
  assert.equal(linkTo({ page: "studies" }), "#");
});

test("the token leaves the address, and the rest stays", () => {
  assert.deepEqual(tokenIn("#token=abc-_1"), { token: "abc-_1", rest: "" });
  assert.deepEqual(tokenIn("#page=study&token=abc&study=a"), { token: "abc", rest: "page=study&study=a" });
  assert.deepEqual(tokenIn("#page=search"), { token: "", rest: "page=search" });
  assert.deepEqual(tokenIn(""), { token: "", rest: "" });
});

test("events are counted when they are whole", () => {
  assert.deepEqual(eventsIn("retry: 2000\n\n"), { count: 0, rest: "" });
  assert.deepEqual(eventsIn("id: 4\ndata: {}\n\n: still here\n\nid: 5\nda"), { count: 1, rest: "id: 5\nda" });
  assert.deepEqual(eventsIn("data: 1\n\ndata: 2\n\n"), { count: 2, rest: "" });
});

const catalog = { models: ["gpt3-175b", "llama3-70b"], systems: ["cosmic-1024", "dgx-h100"], tasks: ["training", "decode"] };

test("the form of a model on a system writes the name that is searched, and reads it", () => {
  const machine = machineOf("gpt3-175b@dgx-h100:512", catalog);
  assert.deepEqual(machine, { model: "gpt3-175b", system: "dgx-h100", npus: "512", task: "training" });
  assert.equal(designName(machine), "gpt3-175b@dgx-h100:512");
  assert.equal(designName({ ...machine, npus: " " }), "gpt3-175b@dgx-h100");
  assert.equal(designName(machineOf("../x.yaml@dgx-h100:8", catalog)), "llama3-70b@dgx-h100:64");
});

test("a search that has just begun says what it does", () => {
  const row = { agent: "genetic", trials: 60_000, space: "a set", n: 0 } as Row;
  const metric = { name: "step_s", label: "step", unit: "s", better: "less" as const };
  assert.equal(startingReading(row, metric), "genetic evaluates 60,000 designs of a set for the least step. The first of them come in a moment …");
  assert.match(startingReading({ ...row, n: 1200 }, undefined), /^genetic evaluates 60,000 designs of a set: 1,200 so far\./);
  assert.deepEqual([9.7, 64, 3700].map(elapsedText), ["9 s", "1 min 4 s", "1 h 1 min"]);
});
