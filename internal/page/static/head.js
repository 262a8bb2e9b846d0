// The head of the page, where it is not about pipelines.
import { put } from "./text.js";

const $ = (id) => document.getElementById(id);

// empty is the page of a process without pipelines: each may have been removed, or be at
// another member of the fleet.
export function empty(fleet) {
  const outside = fleet && !fleet.joined;
  const line = outside ? "Not in the fleet" : "No pipeline";
  $("verdict").dataset.state = outside ? "bad" : fleet ? "good" : "wait";
  put($("headline"), line);
  put($("subline"), outside ? fleet.waiting_for : fleet ? "Other members of the fleet have them" + (fleet.drained ? ": this one is drained." : ".") : "The process has none to run now.");
  announce(line, line + ".");
  document.title = (outside ? "✕ " : "") + line + " · cdc-outbox";
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
