// What is below the first screens is laid out and drawn after them: half the time until a page is ready.

/** Calls `then` once what was rendered is on the screen: effects run after one frame, and draw in the next. */
export function afterPaint(then: () => void): void {
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(then)));
}

/** Draws the parts of the page that were left for later: all at once, as each by itself would lay out the page anew. */
export async function drawLate(): Promise<void> {
  for (const part of document.querySelectorAll<HTMLElement>(".late")) part.classList.remove("late");
  await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
}
