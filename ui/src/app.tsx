// The live page: studies as they grow, new searches, what-if designs.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Guard } from "./base/guard";
import { onHash } from "./base/hash";
import { startKeys } from "./base/keys";
import { useSignal } from "./base/signal";
import { startTheme } from "./base/theme";
import { Shell } from "./frame";
import { type Catalog, get, type Session } from "./live/api";
import { Compare } from "./live/compare";
import { Failed } from "./live/failed";
import { linkTo, type Route, route, startRoute } from "./live/route";
import { SearchForm } from "./live/search_form";
import { enter, tokenIn } from "./live/session";
import { Studies } from "./live/studies";
import { StudyPage } from "./live/study";

function App({ refused }: { refused: string }) {
  const [catalog, setCatalog] = useState<Catalog | null>(null);
  const [session, setSession] = useState<Session | null>(null);
  const [failure, setFailure] = useState("");
  const now = useSignal(route);

  useEffect(() => {
    if (refused) return;
    const failed = (error: Error): void => setFailure(error.message);
    get<Catalog>("/api/catalog").then(setCatalog, failed);
    get<Session>("/api/session").then(setSession, failed);
  }, []);

  useEffect(() => {
    document.title = now.page === "study" ? `${now.study} · COSMIC` : "COSMIC";
    window.scrollTo(0, 0);
  }, [now]);

  return (
    <Shell title={titleOf(now, session)} nav={<Pages now={now} />}>
      <Failed text={refused || failure} />
      {catalog && (
        <Guard name="the page" key={JSON.stringify(now)}>
          <Page now={now} catalog={catalog} />
        </Guard>
      )}
    </Shell>
  );
}

function titleOf(now: Route, session: Session | null): string {
  if (now.page === "study") return now.study;
  return session ? `COSMIC ${session.version} · ${session.directory}` : "COSMIC";
}

function Pages({ now }: { now: Route }) {
  const current = (page: Route["page"]) => (now.page === page ? "page" : undefined);
  return (
    <nav aria-label="pages">
      <a href={linkTo({ page: "studies" })} aria-current={current("studies")}>Studies</a>
      <a href={linkTo({ page: "search", space: "" })} aria-current={current("search")}>New search</a>
    </nav>
  );
}

function Page({ now, catalog }: { now: Route; catalog: Catalog }) {
  switch (now.page) {
    case "studies":
      return <Studies catalog={catalog} />;
    case "search":
      return <SearchForm catalog={catalog} space={now.space} />;
    case "compare":
      return <Compare studies={now.studies} />;
    case "study":
      return <StudyPage id={now.study} catalog={catalog} />;
  }
}

async function start(): Promise<void> {
  startTheme();
  startKeys();
  const refused = await enter();
  onHash(() => tokenIn(location.hash).token && location.reload()); // the address of another server on the same port
  startRoute();
  render(<App refused={refused} />, document.getElementById("app")!);
}

void start();
