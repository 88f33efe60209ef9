// Builds the front end into the Python package, where it is committed: a clone needs no Node.
// `node build.mjs` writes it; `--tests` bundles tests/*.test.ts and runs them.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "src", "cosmic", "report", "front");

const common = {
  absWorkingDir: here,
  bundle: true,
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
  target: ["es2022"],
};

/** Of each bundle, whether it can show serving: a page does not carry what it never shows. */
const bundles = [
  { entryPoints: { report: "src/report.tsx", trace: "src/trace.tsx", "trace-style": "src/trace/style.css" }, serving: false },
  { entryPoints: { "report-serving": "src/report.tsx", app: "src/app.tsx", style: "src/style.css" }, serving: true },
];

function flags(serving) {
  return { SERVING: String(serving) };
}

async function pages() {
  for (const { entryPoints, serving } of bundles)
    await build({ ...common, entryPoints, define: flags(serving), format: "iife", minify: true, outdir: out });
}

async function tests() {
  const folder = mkdtempSync(join(tmpdir(), "cosmic-ui-"));
  try {
    const files = readdirSync(join(here, "tests")).filter((name) => name.endsWith(".test.ts"));
    const entryPoints = files.map((name) => join("tests", name));
    await build({ ...common, entryPoints, define: flags(true), format: "esm", platform: "node", outdir: folder, outExtension: { ".js": ".mjs" } });
    const built = files.map((name) => join(folder, name.replace(/\.ts$/, ".mjs")));
    process.exitCode = spawnSync(process.execPath, ["--test", ...built], { stdio: "inherit" }).status ?? 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

await (process.argv.includes("--tests") ? tests() : pages());
