// The fleet: its members, the place of each pipeline, and the last moves.
import { el, put, each, some, rate, seconds, clock, remedy } from "./text.js";
import { peerAt } from "./instances.js";

const mostRows = 200; // pipelines in the list; others are found by a search
const order = { bad: 3, wait: 2, warn: 1 };
const reasons = { balance: "load", drain: "drained", gone: "member gone", rollout: "new file", zone: "zone" };

// fleet makes the section, and returns what updates it: by the latest news, if there are
// any, and this process's own pipelines. That returns what is known.
export function fleet(section) {
  const name = el("span", { class: "count" }), sum = el("p", { id: "fleet-sum" }), note = el("div", { id: "fleet-note" });
  const members = el("div", { id: "members" });
  const find = el("input", { type: "search", placeholder: "name, member or state", autocomplete: "off" });
  const found = el("p", { id: "fleet-found" });
  const places = el("div", { id: "places", class: "rows", role: "table", "aria-label": "Pipelines of the fleet" });
  const moves = el("div", { id: "moves", class: "rows", role: "table", "aria-label": "Last moves" });
  const all = el("div", {}, members, el("div", { class: "title find" }, el("label", {}, "Find", find), found), places, el("h3", {}, "Last moves"), moves);
  section.append(el("div", { class: "title" }, el("h2", {}, "Fleet", name), sum), note, all);
  let f, views, hello; // of the last update

  function update(news, ...others) {
    f = news || f;
    [views, hello] = others;
    section.hidden = !f;
    if (f) show();
    return f;
  }

  function show() {
    put(name, f.group);
    tell(note, f);
    all.hidden = !f.all;
    put(sum, f.all ? summary(f) : "");
    if (!f.all) return;
    each(members, f.all.members, member, (e, m) => showMember(e, m, f, hello));
    each(moves, f.all.moves, () => row("time", "name", "way", "reason", "took"), showMove);
    const own = new Map(views.map((v) => [v.name, v]));
    const words = find.value.toLowerCase().split(/\s+/);
    const listed = f.all.pipelines.map((p) => placed(p, f, own))
      .filter((p) => words.every((w) => `${p.name} ${p.member} ${p.what}`.toLowerCase().includes(w)))
      .sort((a, b) => (order[b.state] || 0) - (order[a.state] || 0) || (a.name < b.name ? -1 : 1));
    each(places, listed.slice(0, mostRows), () => row("name", "member", "rate", "state"), (e, p) => {
      e.dataset.state = p.state;
      fill(e, p.name, p.member || "–", `${rate(p.rate)} events/s`, p.what);
    });
    const few = listed.length > mostRows ? `, the first ${mostRows} are shown` : "";
    put(found, (listed.length < f.all.pipelines.length ? `${listed.length} of ` : "") + some(f.all.pipelines.length, "pipeline") + few);
  }

  function member() {
    const e = el("article", { class: "card" }, el("h3", {}, el("a")), el("p", { class: "what" }), el("button", { type: "button", title: "Show the member's pipelines" }), el("p", { class: "rest", title: "As the member has told the group last" }), el("p", { class: "fault" }));
    e.querySelector("button").addEventListener("click", () => {
      find.value = find.value === e.dataset.member ? "" : e.dataset.member;
      show();
    });
    return e;
  }

  find.addEventListener("input", show);
  return update;
}

// tell says why this process is outside, or why nothing newer is known.
function tell(note, f) {
  const lines = [];
  if (!f.joined) lines.push(`This process is not in the fleet, and runs no pipeline: ${f.waiting_for}`, f.remedy);
  if (f.error) lines.push(`The coordinator cannot be asked: ${f.error}`);
  const shape = JSON.stringify(lines);
  if (note.dataset.shape === shape) return; // what can be copied stays in place
  note.dataset.shape = shape;
  note.replaceChildren(...lines.filter(Boolean).map((text) => el("p", {}, ...remedy(text))));
}

function summary({ all }) {
  const parts = [some(all.members.length, "member"), some(all.pipelines.length, "pipeline")];
  const add = (n, text) => n > 0 && parts.push(`${n} ${text}`);
  add(all.pipelines.filter((p) => !p.member).length, "without a member");
  add(all.pipelines.filter((p) => p.outdated).length, "with an older specification");
  const faulty = all.members.filter((m) => m.faults).length;
  if (faulty > 0) parts.push(`${some(faulty, "member")} with faulty sources of pipelines`);
  const files = new Set(all.members.map((m) => m.file)).size;
  if (files > 1) add(files, "different files");
  return parts.join(", ");
}

function showMember(e, m, f, hello) {
  const state = m.faults ? "warn" : m.leaving ? "wait" : m.drained ? "spare" : "good";
  const roles = [m.leaving && "leaves", m.drained && "drained", m.name === f.member && "this process", m.name === f.all.leader && "leader"];
  const link = e.querySelector("a"), url = m.name !== f.member && peerAt(m.host.replace(/^\//, ""), hello);
  e.dataset.state = state;
  e.dataset.member = m.name;
  e.title = `${m.host.replace(/^\//, "")} ${m.version || ""}`;
  put(link, m.name);
  if (url) link.setAttribute("href", url);
  else link.removeAttribute("href");
  put(e.querySelector(".what"), roles.filter(Boolean).join(", ") || "member");
  put(e.querySelector("button"), some(m.pipelines, "pipeline"));
  put(e.querySelector(".fault"), m.faults ? `${some(m.faults.count, "faulty source")} of pipelines: ${m.faults.source}: ${m.faults.error}` : "");
  put(e.querySelector(".rest"), [`${rate(m.events_per_second)} events/s`, m.rack && "zone " + m.rack, m.file && "file " + m.file].filter(Boolean).join(" · "));
}

// placed says where a pipeline is, and how: of this process's own, as the rest of the page.
function placed(p, f, own) {
  const v = p.member === f.member ? own.get(p.name) : null;
  let [state, what] = v ? [v.state, v.what] : ["good", "placed"];
  if (!p.member) [state, what] = ["wait", "waits: " + (p.waiting_for || "a member is still to be told")];
  else if (p.outdated) [state, what] = [state === "bad" ? "bad" : "warn", what + ", older specification"];
  return { name: p.name, member: p.member || "", rate: v?.now?.events ?? p.events_per_second, state, what };
}

function showMove(e, m) {
  const took = m.placed && m.began ? seconds((Date.parse(m.placed) - Date.parse(m.began)) / 1000) : m.placed ? "" : "under way";
  fill(e, clock(new Date(m.placed || m.began)), m.pipeline, `${m.from || "–"} → ${m.to || "–"}`, reasons[m.reason] || m.reason, took);
}

const row = (...kinds) => el("div", { role: "row" }, ...kinds.map((kind) => el("span", { role: "cell", class: kind })));

function fill(row, ...texts) {
  texts.forEach((text, i) => put(row.children[i], text));
}
