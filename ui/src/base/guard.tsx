// An error boundary: a view that fails shows one sentence and leaves the others alone.

import { Component, type ComponentChildren } from "preact";

interface GuardProps {
  /** What is missing then: "the explorer". */
  name: string;
  children: ComponentChildren;
}

export class Guard extends Component<GuardProps, { problem: string }> {
  override state = { problem: "" };

  override componentDidCatch(error: unknown): void {
    this.setState({ problem: error instanceof Error ? error.message : String(error) });
  }

  override render({ name, children }: GuardProps, { problem }: { problem: string }) {
    if (!problem) return children;
    return (
      <p class="problem" role="alert">
        {name} could not be drawn: {problem}
      </p>
    );
  }
}
