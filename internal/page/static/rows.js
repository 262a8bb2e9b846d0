// Rows of events and dead letters.
import { el, seconds, clock } from "./text.js";

const mostRows = 40;

// A row's time is by this clock, which is skew seconds ahead of the server's.
export function eventRow(e, skew) {
  const place = e.topic + (e.partition >= 0 ? ` / ${e.partition} @ ${e.offset}` : "");
  const cells = [["time", clock(new Date(Date.parse(e.at) + skew * 1000))], ["type", e.type || "–"], ["key", e.key == null ? "no key" : e.key], ["place", place], ["latency", seconds(e.latency_seconds)]];
  const row = el("div", { role: "row", title: "event " + e.id }, ...cells.map(([c, text]) => el("span", { role: "cell", class: c }, text)));
  if (e.payload) row.append(el("code", { class: "payload" }, e.payload));
  return row;
}

export function deadRow(e, skew) {
  const cells = [["time", clock(new Date(Date.parse(e.at) + skew * 1000))], ["type", e.reason], ["key", e.key == null ? "no key" : e.key], ["place", e.table || e.topic], ["latency", e.outcome.includes("skip") || e.outcome.includes("passed") ? "skipped" : e.outcome.includes("parked") ? "parked" : ""]];
  return el("div", { role: "row", title: e.outcome + ": event " + e.id }, ...cells.map(([c, text]) => el("span", { role: "cell", class: c }, text)), el("span", { role: "cell", class: "error" }, e.error));
}

// listed shows the newest first; only what is new is made.
export function listed(list, seen, make, skew) {
  const newest = Number(list.dataset.newest && list.children.length ? list.dataset.newest : 0);
  for (const e of seen) {
    if (e.n > newest) list.prepend(make(e, skew));
  }
  while (list.children.length > mostRows) list.lastElementChild.remove();
  list.dataset.newest = seen.length ? seen.at(-1).n : newest;
}

// merge adds what is new, and keeps what a list may show.
export function merge(known, fresh) {
  const last = known.length > 0 ? known.at(-1).n : 0;
  return known.concat((fresh || []).filter((e) => e.n > last)).slice(-100);
}
