// The command and the Python lines of a search, under tabs.

import { useState } from "preact/hooks";
import { CopyButton } from "../base/copy";

/** Texts under tabs; printed, all of them are shown. */
export function Tabs({ id, label, tabs }: { id: string; label: string; tabs: { name: string; text: string }[] }) {
  const [chosen, setChosen] = useState(0);
  const shown = tabs.filter((each) => each.text);
  if (shown.length === 0) return null;
  const current = Math.min(chosen, shown.length - 1);
  const move = (event: KeyboardEvent): void => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const next = (current + by + shown.length) % shown.length;
    setChosen(next);
    document.getElementById(`${id}-tab-${next}`)?.focus();
  };
  return (
    <div class="tabs">
      <div class="tabs-head">
        <div role="tablist" aria-label={label}>
          {shown.map((each, place) => (
            <button
              key={each.name}
              id={`${id}-tab-${place}`}
              type="button"
              role="tab"
              aria-selected={place === current}
              aria-controls={`${id}-panel-${place}`}
              tabIndex={place === current ? 0 : -1}
              onClick={() => setChosen(place)}
              onKeyDown={move}
            >
              {each.name}
            </button>
          ))}
        </div>
        <CopyButton text={shown[current].text} />
      </div>
      {shown.map((each, place) => (
        <div
          key={each.name}
          id={`${id}-panel-${place}`}
          class="tab-panel"
          role="tabpanel"
          aria-labelledby={`${id}-tab-${place}`}
          hidden={place !== current}
        >
          <pre tabIndex={0} aria-label={`${label}: ${each.name}`}>{each.text}</pre>
        </div>
      ))}
    </div>
  );
}
