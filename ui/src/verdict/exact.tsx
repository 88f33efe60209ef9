// A rounded number that shows the exact one on hover, and copies it on a click.

import { useState } from "preact/hooks";
import { copyText } from "../base/copy";
import type { Fact } from "../document";

export function Exact({ fact }: { fact: Fact }) {
  const [said, setSaid] = useState("");
  const { value, text, label } = fact;
  if (value === null) return <span class="exact">{text}</span>;
  const copy = async (): Promise<void> => {
    setSaid((await copyText(String(value))) ? "copied" : "press Ctrl+C");
    setTimeout(() => setSaid(""), 1200);
  };
  return (
    <button type="button" class="exact" onClick={copy} title={`${label}: exactly ${value}; click to copy`}>
      {said || text}
    </button>
  );
}
