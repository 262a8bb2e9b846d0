// The page: reads /live, and shows what /status and /metrics say.
import { el, put, each, count, rate, bytes, seconds, span, clock, remedy } from "./text.js";
import { chart } from "./chart.js";
import { flow } from "./flow.js";
import { rank, judge, forecast, worstOf, first, headline, tally, holderText, ago } from "./judge.js";
import { eventRow, deadRow, listed, merge } from "./rows.js";
import { instances } from "./instances.js";
import { fleet } from "./fleet.js";
import { announce, empty } from "./head.js";
import { turn } from "./theme.js";

const $ = (id) => document.getElementById(id);

// The columns of a sample, as package page writes them; the first is the time.
const names = ["at", "events", "bytes", "transactions", "wal", "lag", "lagBytes", "retained", "safe", "latency50", "latency99", "inFlight", "checkpoint"];
const column = Object.fromEntries(names.map((n, i) => [n, i]));
const of = (name) => (row) => row[column[name]];

const fineSpan = 300, coarseSpan = 3600;
const mostTold = 3; // reasons and remedies of so many at a time, among many pipelines

let hello = null; // the first message
let views = []; // of each pipeline: all that is shown
let selected = 0, range = fineSpan, paused = false;
let skew = 0; // of this clock, in seconds
let heard = 0, looked = Date.now(); // when the last message came; since when this page is seen
let refused = ""; // why the server shows nothing

const serverNow = () => Date.now() / 1000 - skew;
// stood is for how long a pipeline has stood still: a delivery may have waited
// for longer than it took to be sure.
const stood = (v) => Math.max(age(v.status.ready_since), v.status.unacked_seconds || 0);
const age = (time) => serverNow() - Date.parse(time) / 1000;

// ---- the verdict

function subline(v) {
  const s = v.status;
  if (v.state === "spare") return (s.holder ? `${holderText(s.holder)} reads the slot. ` : "Another instance reads the slot. ") + "This one takes over when that ends.";
  if (v.state === "bad" || v.state === "wait") return `since ${clock(new Date(Date.now() - stood(v) * 1000))}`;
  const flow = views.reduce((sum, w) => sum + (w.now.events || 0), 0);
  const last = views.map((w) => w.status.last_event).filter(Boolean).sort((a, b) => Date.parse(b.acknowledged_at) - Date.parse(a.acknowledged_at))[0];
  const flowing = flow > 0 ? `${rate(flow)} events/s. ` : "";
  return flowing + (last ? `The last event was acknowledged ${ago(age(last.acknowledged_at))}.` : "No event yet in this process.");
}

function verdict() {
  const worst = worstOf(views), line = headline(views, stood);
  $("verdict").dataset.state = worst.state;
  put($("headline"), line);
  put($("subline"), subline(worst));
  announce(views.map((v) => v.state + v.what).join(), headline(views) + ". " + worst.reasons.join(". "));
  document.title = (worst.state === "bad" ? "✕ " : worst.state === "warn" ? "! " : "") + line + " · cdc-outbox";
  const troubled = views.filter((v) => rank[v.state] > 0);
  const told = many() ? troubled.sort(first).slice(0, mostTold) : troubled;
  put($("untold"), troubled.length > told.length ? `${troubled.length - told.length} more are first in the list of pipelines.` : "");
  each($("troubles"), told, () => el("article", { class: "trouble" }), (e, v) => {
    const lines = v.reasons.concat(v.status.forecast ? [forecast(v.status.forecast)] : []);
    const remedies = v.state === "bad" ? v.status.remedies : [];
    const shape = JSON.stringify([v.name, v.state, lines.length, remedies]);
    if (e.dataset.shape !== shape) { // what can be copied stays in place while it is the same
      e.dataset.shape = shape;
      e.dataset.pipeline = v.name;
      e.replaceChildren(...[
        views.length > 1 ? el("h3", {}) : null,
        el("ul", { class: "reasons" }),
        remedies.length > 0 ? el("div", { class: "remedies" }, el("h4", {}, "What to do"), ...remedies.map((r) => el("p", {}, ...remedy(r)))) : null,
      ].filter(Boolean));
    }
    if (views.length > 1) put(e.querySelector("h3"), `${v.name} ${v.what}` + (v.state === "bad" ? ` for ${span(stood(v))}` : ""));
    each(e.querySelector(".reasons"), lines, () => el("li"), put);
  });
}

// ---- pipelines

const many = () => views.length > 9;

// listing is the pipelines in the order of the list: of many, those in trouble come first.
function listing() {
  if (!many()) return views;
  const words = $("search").value.toLowerCase().split(/\s+/);
  return views.filter((v) => words.every((w) => `${v.name} ${v.what} ${v.pipeline.tables.join(" ")}`.toLowerCase().includes(w)))
    .sort(first);
}

function pipelines() {
  $("pipelines").hidden = views.length < 2;
  if ($("pipelines").hidden) return;
  const list = $("pipeline-list"), shown = listing();
  $("find").hidden = !many();
  list.dataset.many = String(many());
  put($("tally"), (shown.length < views.length ? `${shown.length} of ` : "") + `${views.length} pipelines: ${tally(views)}`);
  each(list, shown, () => {
    const b = el("button", { type: "button" }, el("span", { class: "lamp" }), el("strong"), el("span", { class: "what" }), el("span", { class: "figures" }));
    b.addEventListener("click", () => choose(views.indexOf(b.view)));
    return b;
  }, (b, v) => {
    b.view = v;
    b.title = v.name;
    b.dataset.state = v.state;
    b.dataset.pipeline = v.name;
    b.setAttribute("aria-pressed", String(views[selected] === v));
    put(b.children[1], v.name);
    put(b.children[2], v.what + (v.state === "bad" ? " for " + span(stood(v)) : ""));
    put(b.children[3], `${rate(v.now.events)} events/s · lag ${seconds(v.now.lag)}`);
  });
}

let chosen = false; // by a person

function choose(i) {
  chosen = true;
  select(i);
}

function select(i) {
  if (i < 0 || i >= views.length) return;
  selected = i;
  const v = views[i];
  v.picture = flow($("flow"), v.pipeline);
  $("event-list").replaceChildren();
  $("dead-list").replaceChildren();
  render();
}

// ---- charts

const charts = [
  chart({ name: "Events per second", lines: [{ column: of("events") }], format: rate }),
  chart({ name: "Lag", note: "age of the oldest event that is not confirmed", lines: [{ column: of("lag") }], format: seconds }),
  chart({ name: "Commit to acknowledgement", note: "median / 99th percentile", lasts: 60, lines: [{ column: of("latency99"), class: "second" }, { column: of("latency50") }].reverse(), format: seconds }),
  chart({ name: "Log kept by the slot", limitNote: "dashed: where the server may drop it", lines: [{ column: of("retained") }], format: bytes, limit: (r) => (of("safe")(r) == null ? null : of("safe")(r) + of("retained")(r)) }),
  chart({ name: "Log not confirmed", lines: [{ column: of("lagBytes") }], format: bytes }),
  chart({ name: "In flight", lines: [{ column: of("inFlight") }], format: bytes }),
];

for (const c of charts) {
  $("charts").append(c.figure);
  c.figure.addEventListener("pointermove", (e) => {
    const box = c.svg.getBoundingClientRect();
    const share = (e.clientX - box.left) / box.width;
    for (const other of charts) other.point(share >= 0 && share <= 1 ? share : null);
  });
  c.figure.addEventListener("pointerleave", () => charts.forEach((other) => other.point(null)));
}

function drawCharts() {
  const v = views[selected], now = serverNow();
  const rows = range === fineSpan ? v.fine : v.coarse.concat(v.fine.filter((r) => r[0] > (v.coarse.at(-1) || [0])[0]));
  const first = rows.length > 0 ? rows[0][0] : now;
  // A process that is young has little to show: it gets the whole width soon.
  const begin = Math.max(now - range, Math.min(first, now - 60));
  for (const c of charts) c.draw(rows, begin, now);
}

function setRange(to) {
  range = to;
  $("fine").setAttribute("aria-pressed", String(range === fineSpan));
  $("coarse").setAttribute("aria-pressed", String(range === coarseSpan));
  put($("range-name"), range === fineSpan ? "five minutes" : "hour");
  if (views.length > 0) drawCharts();
}
$("fine").addEventListener("click", () => setRange(fineSpan));
$("coarse").addEventListener("click", () => setRange(coarseSpan));

// ---- events and dead letters

function tables() {
  const v = views[selected];
  $("hidden").hidden = hello.events;
  $("pause").hidden = !hello.events;
  const wanted = hello.events_why === "token";
  $("login").hidden = !wanted;
  put($("why"), wanted ? "Keys, events and dead letters are shown to those who know the token." : "Hidden: " + hello.events_why + ".");
  $("no-events").hidden = !hello.events || v.events.length > 0;
  $("no-dead").hidden = (v.totals.events_dead_lettered_total || 0) + (v.totals.events_skipped_total || 0) + (v.totals.events_quarantined_total || 0) > 0;
  const dead = v.totals.events_dead_lettered_total || 0, skipped = v.totals.events_skipped_total || 0;
  const parked = v.status && v.status.quarantine;
  put($("dead-count"), (dead ? count(dead) : "") + (skipped ? ` and ${count(skipped)} skipped` : "") + (parked ? ` ${count(parked.events)} in quarantine, of ${count(parked.keys)} keys` : ""));
  if (paused) return;
  listed($("event-list"), v.events, eventRow, skew);
  listed($("dead-list"), v.rejected, deadRow, skew);
}

$("pause").addEventListener("click", pause);
function pause() {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  put($("pause"), paused ? "go on" : "pause");
  if (!paused && views.length > 0) tables();
}

// ---- all of it

function render() {
  const v = views[selected];
  verdict();
  pipelines();
  v.picture({ ...v, age });
  $("charting").hidden = $("events").hidden = $("dead").hidden = v.state === "spare"; // there is nothing to see
  tables();
  instances($("instances"), hello, many() ? [v] : views);
}

const showFleet = fleet($("fleet"));
const asNow = (row) => Object.fromEntries(names.map((n, i) => [n, row ? row[i] : null]));

const on = {
  hello(data) {
    hello = data;
    const name = views[selected]?.name;
    views = data.pipelines.map((p) => ({ name: p.name, pipeline: p, fine: p.fine, coarse: p.coarse, events: [], rejected: [] }));
    selected = Math.max(0, views.findIndex((v) => v.name === name)); // others may have come or gone
    put($("instance"), `${data.version} · ${data.host} · up ${span(age(data.started))}`);
    if (serverNow() - Date.parse(data.started) / 1000 > 2 * fineSpan && range === fineSpan && !on.chosen) setRange(coarseSpan);
    on.chosen = true;
  },
  update(data) {
    skew = Date.now() / 1000 - Date.parse(data.at) / 1000;
    let charted = false;
    data.pipelines.forEach((p, i) => {
      const v = views[i];
      Object.assign(v, { status: p.status, now: asNow(p.now), totals: p.totals, topics: p.topics });
      v.events = merge(v.events, p.events);
      v.rejected = merge(v.rejected, p.rejected);
      if (p.charted) {
        charted = true;
        v.fine = v.fine.filter((r) => r[0] > p.now[0] - fineSpan - 30).concat([p.now]);
        if (p.coarse) v.coarse = v.coarse.filter((r) => r[0] > p.now[0] - coarseSpan - 30).concat([p.coarse]);
      }
      judge(v);
    });
    const troubled = views.findIndex((v) => v.state === "bad");
    const crew = showFleet(data.fleet, views, hello);
    if (views.length === 0) empty(crew);
    else if (!chosen && troubled >= 0 && views[selected].state !== "bad") select(troubled);
    else if (!views[selected].picture) select(selected);
    else render();
    if (views.length > 0 && (charted || !on.drawn)) {
      drawCharts();
      on.drawn = true;
    }
    document.body.dataset.updates = String(Number(document.body.dataset.updates || 0) + 1);
    put($("instance"), `${hello.version} · ${hello.host} · up ${span(age(hello.started))}`);
  },
};

// ---- the connection

const deaf = 10; // seconds of silence, after which a connection is given up

let stream = null, began = 0, retry = 0; // what ends it; when it was asked for; the timer of the next

async function connect() {
  const own = (stream = new AbortController());
  began = Date.now();
  const token = sessionStorage.getItem("token");
  try {
    const answer = await fetch("live", { signal: own.signal, headers: token ? { Authorization: "Bearer " + token } : {}, cache: "no-store" });
    refused = answer.ok ? "" : (await answer.text()).trim() || "It answers " + answer.status + ".";
    const reader = answer.ok && answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; reader;) {
      const { value, done } = await reader.read();
      if (done || own.signal.aborted) break;
      const parts = (text + value).split("\n\n");
      text = parts.pop();
      for (const part of parts) {
        const [, event, data] = part.match(/^event: (\w+)\ndata: ([^]*)$/) || [];
        heard = Date.now();
        if (event) on[event](JSON.parse(data));
        if (event === "hello") answerToken(token);
      }
    }
  } catch (e) {
    const gone = e.name === "AbortError" || (e.name === "TypeError" && /fetch|network/i.test(e.message));
    if (!gone) console.error(e); // no connection is told by the page
  }
  if (stream === own) retry = setTimeout(reconnect, 1000);
}

// reconnect leaves one connection, or none while nobody sees the page.
function reconnect() {
  clearTimeout(retry);
  if (stream) stream.abort();
  stream = null;
  if (!document.hidden) connect();
}

// A page that nobody sees asks for nothing.
document.addEventListener("visibilitychange", () => {
  looked = Date.now();
  reconnect();
  contact();
});

function contact() {
  const asleep = document.hidden, silent = (Date.now() - Math.max(heard, looked)) / 1000;
  const state = asleep ? "wait" : refused || silent >= 4 ? "bad" : heard < looked ? "wait" : "good";
  const pill = $("contact");
  pill.dataset.state = state;
  document.body.classList.toggle("stale", heard > 0 && state !== "good");
  put(pill, { good: "live", wait: asleep ? "asleep" : "connecting", bad: refused ? "refused" : `no answer for ${span(silent)}` }[state]);
  if (asleep) document.title = "cdc-outbox"; // what it knows is old soon
  if (state !== "bad") return;
  const shown = heard > 0 ? `What is shown below is as of ${clock(new Date(heard))}. ` : "";
  put($("headline"), refused ? "The connector shows nothing" : "The connector does not answer");
  put($("subline"), shown + (refused || "Is the process still there?"));
  $("verdict").dataset.state = "bad";
  announce(refused || "silent", refused ? "The connector shows nothing. " + refused : "The connector does not answer.");
  document.title = `✕ ${refused ? "refused" : "no answer"} · cdc-outbox`;
  // A connection of before a sleep, or through a proxy that hangs, may never end.
  if (silent > deaf && Date.now() - began > deaf * 1000) reconnect();
}
setInterval(contact, 1000);

// answerToken forgets a token that opened nothing, and says so.
function answerToken(token) {
  const wrong = token && hello.events_why === "token";
  if (wrong) sessionStorage.removeItem("token");
  if (wrong || hello.events) put($("wrong"), wrong ? "That is not the token." : "");
}

$("search").addEventListener("input", () => views.length > 0 && pipelines());

$("login").addEventListener("submit", (e) => {
  e.preventDefault();
  const typed = $("token").value.trim();
  $("token").value = "";
  if (!/^[!-~]+$/.test(typed)) return put($("wrong"), "That is not the token."); // a header cannot carry it
  sessionStorage.setItem("token", typed);
  reconnect();
});

// ---- keys

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target instanceof HTMLInputElement) return;
  const key = e.key.toLowerCase();
  if (key === "t") turn();
  else if (key === "r") setRange(range === fineSpan ? coarseSpan : fineSpan);
  else if (key === "p") pause();
  else if (key === "/" && many()) {
    e.preventDefault();
    $("search").focus();
  } else if (key >= "1" && key <= "9" && views.length > 1) choose(views.indexOf(listing()[Number(key) - 1]));
});

connect();
