// Copying: through the clipboard, or through a selection where the page is a file or in a frame.

import { useState } from "preact/hooks";

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.setAttribute("readonly", "");
    area.className = "offscreen";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export function CopyButton({ text, label = "copy" }: { text: string | (() => string); label?: string }) {
  const [said, setSaid] = useState("");
  const copy = async (): Promise<void> => {
    const done = await copyText(typeof text === "string" ? text : text());
    setSaid(done ? "copied" : "press Ctrl+C");
    setTimeout(() => setSaid(""), 1500);
  };
  return (
    <button type="button" class="copy" onClick={copy} aria-live="polite">
      {said || label}
    </button>
  );
}

/** Offers text as a file. */
export function download(name: string, text: string, type = "text/plain"): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
