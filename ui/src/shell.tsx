// The views of a study, and their order: shared by the report and the live page.

import type { ComponentChildren } from "preact";
import { Signal } from "./base/signal";
import { DesignView } from "./design/design";
import { Explore } from "./explore/explore";
import { jump, Section, useSectionKeys } from "./frame";
import type { Shared, Source } from "./state";
import { TrustView } from "./verdict/trust";
import { VerdictView } from "./verdict/verdict";
import { WhyView } from "./verdict/why";

export const SECTIONS = [
  { id: "verdict", title: "Verdict" },
  { id: "why", title: "Why" },
  { id: "explore", title: "Explore" },
  { id: "design", title: "Design" },
  { id: "trust", title: "Trust" },
] as const;

/** Returns the state of a page that has just opened a study: it shows the best design. */
export function sharedOf(source: Source): Shared {
  const { designs, best, base } = source.document;
  const first = best ?? base;
  const opened = first === null ? null : { design: designs[first], binary: source.binary };
  return { source, hovered: new Signal<number | null>(null), opened: new Signal(opened) };
}

/** All views of one study: verdict, why, explore, the design and what the page adds to it, trust. */
export function StudyView({ shared, children }: { shared: Shared; children?: ComponentChildren }) {
  useSectionKeys(SECTIONS);
  const study = shared.source.document;
  return (
    <>
      <Section id="verdict" heading="Verdict">
        <VerdictView shared={shared} jump={jump} />
      </Section>
      <Section id="why" heading={study.best === null ? "Why" : "Why it is better"} lead={study.why.sentence}>
        <WhyView study={study} />
      </Section>
      <Section id="explore" heading="Explore the designs" late>
        <Explore shared={shared} />
      </Section>
      <Section id="design" heading="The design" late>
        <DesignView shared={shared} />
        {children}
      </Section>
      <Section id="trust" heading="How far to trust it" late>
        <TrustView study={study} />
      </Section>
    </>
  );
}
