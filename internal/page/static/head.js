// The head of the page, where it is not about pipelines.
import { put } from "./text.js";

const $ = (id) => document.getElementById(id);

// empty is the page of a process without pipelines: each may have been removed.
export function empty() {
  $("verdict").dataset.state = "wait";
  put($("headline"), "No pipeline");
  put($("subline"), "The process has none to run now.");
  announce("none", "No pipeline.");
  document.title = "No pipeline · cdc-outbox";
  put($("untold"), "");
  for (const e of [$("troubles"), $("flow"), $("instances")]) e.replaceChildren();
  for (const name of ["pipelines", "charting", "events", "dead"]) $(name).hidden = true;
}

// announce tells those who listen to the page, and only when something has
// changed: how long it has lasted is for those who look.
export function announce(state, text) {
  const e = $("announcement");
  if (e.dataset.of === state) return;
  e.dataset.of = state;
  put(e, text);
}
