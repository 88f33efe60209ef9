/* A button on every block of code that copies it; of a console, the commands without prompts and without what they print. */

"use strict";

const PROMPT = "$ ";
const SHOWN_MS = 1500;

function textOf(block) {
    const lines = block.textContent.replace(/\n$/, "").split("\n");
    const commands = lines.filter((line) => line.startsWith(PROMPT));
    if (commands.length === 0) {
        return lines.join("\n");
    }
    return commands.map((line) => line.slice(PROMPT.length)).join("\n");
}

async function copy(text) {
    if (navigator.clipboard && window.isSecureContext) {
        await navigator.clipboard.writeText(text);
        return;
    }
    const area = document.createElement("textarea"); // pages that were opened from disk, in some browsers
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) {
        throw new Error("the browser does not allow it");
    }
}

function addButton(block) {
    const button = document.createElement("button");
    const said = document.createElement("span");
    button.type = "button";
    button.className = "copy";
    said.textContent = "Copy";
    said.setAttribute("aria-live", "polite");
    button.append(said);
    button.addEventListener("click", async () => {
        try {
            await copy(textOf(block));
            said.textContent = "Copied";
        } catch {
            said.textContent = "Select and copy it yourself";
        }
        setTimeout(() => {
            said.textContent = "Copy";
        }, SHOWN_MS);
    });
    const frame = document.createElement("div");
    frame.className = "copied";
    block.parentElement.replaceWith(frame);
    frame.append(block.parentElement, button);
}

for (const block of document.querySelectorAll("[role=main] pre > code")) {
    addButton(block);
}
