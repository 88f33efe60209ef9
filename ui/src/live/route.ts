// Which page is shown: in the address after #, beside the state of the views.

import { onHash, readHash } from "../base/hash";
import { Signal } from "../base/signal";

export type Route =
  | { page: "studies" }
  | { page: "search"; space: string }
  | { page: "study"; study: string }
  | { page: "compare"; studies: string[] };

function read(): Route {
  const study = readHash("study");
  switch (readHash("page")) {
    case "search":
      return { page: "search", space: readHash("space") };
    case "study":
      return study ? { page: "study", study } : { page: "studies" };
    case "compare":
      return { page: "compare", studies: readHash("with").split("\n").filter(Boolean) };
    default:
      return { page: "studies" };
  }
}

export const route = new Signal<Route>({ page: "studies" });

/** Returns the address of a page: a link that opens in a new window too. */
export function linkTo(to: Route): string {
  const words = new URLSearchParams();
  if (to.page !== "studies") words.set("page", to.page);
  if (to.page === "study") words.set("study", to.study);
  if (to.page === "search" && to.space) words.set("space", to.space);
  if (to.page === "compare") words.set("with", to.studies.join("\n"));
  return `#${words}`;
}

export function go(to: Route): void {
  location.hash = linkTo(to);
}

export function startRoute(): void {
  const follow = (): void => {
    const next = read();
    if (JSON.stringify(next) !== JSON.stringify(route.value)) route.value = next;
  };
  onHash(follow);
  follow();
}
