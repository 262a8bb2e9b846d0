// The way of the events as a picture: tables, slot, connector, topics.
import { el, put, each, count, rate, some, bytes, seconds, span } from "./text.js";

// flow makes the picture of a pipeline, and returns what updates it.
export function flow(into, p) {
  const polls = p.mode === "poll";
  const tables = node("tables", polls ? "Tables" : "PostgreSQL", "tables");
  const slot = node("slot", "Slot", p.slot);
  const connector = node("connector", "Connector", "");
  const topics = node("topics", p.sink === "standard output" ? "Output" : "Kafka", p.sink);
  const written = link("written"), read = link("read"), sent = link("sent");
  const order = polls ? [tables, read, connector, sent, topics] : [tables, written, slot, read, connector, sent, topics];
  into.replaceChildren(...order.map((o) => o.root));
  into.dataset.steps = polls ? "3" : "4";
  put(tables.name, p.tables.length === 1 ? p.tables[0] : p.tables.length + " tables");
  tables.root.title = p.tables.join("\n");

  return function show(v) {
    const s = v.status, broken = v.broken;
    for (const [n, name] of [[tables, "tables"], [slot, "slot"], [connector, "connector"], [topics, "topics"]]) {
      n.root.dataset.state = broken[name] || (v.state === "spare" ? "spare" : v.state === "wait" || s.role === "starting" ? "idle" : "good");
    }
    written.show(v.now.transactions, rate(v.now.transactions), "transactions/s", broken.tables);
    read.show(polls ? v.now.events : v.now.wal, polls ? rate(v.now.events) : v.now.wal == null ? "–" : bytes(v.now.wal) + "/s", polls ? "rows/s" : "of log", broken.read);
    sent.show(v.now.events, rate(v.now.events), "events/s", broken.sent);

    const looked = polls && v.age(s.backlog_at), seen = looked < 1e9; // never is long ago
    const before = s.postgres_error ? ", " + span(looked) + " ago" : "";
    const rest = polls
      ? [["waiting", seen ? count(s.unpublished_rows) + " rows" + before : "–"], ["oldest", seen ? seconds(s.oldest_unpublished_seconds) + before : "–"]]
      : p.tables.length > 1 ? p.tables.slice(0, 3).map((t) => [t, ""]) : [["log ends at", s.server_lsn || "–"]];
    tables.rows(rest);
    const room = s.slot_safe_wal_bytes == null ? null : s.slot_retained_bytes / (s.slot_retained_bytes + Math.max(0, s.slot_safe_wal_bytes));
    slot.rows([
      ["keeps", s.server_lsn ? bytes(s.slot_retained_bytes) + " of log" : "–"],
      ["not confirmed", s.server_lsn ? bytes(s.slot_lag_bytes) : "–"],
      ["state", broken.lost ? "lost" : s.wal_status || "–"],
    ], s.server_lsn ? room : null, "of what max_slot_wal_keep_size allows");
    const full = v.totals.in_flight_capacity_bytes ? s.in_flight_bytes / v.totals.in_flight_capacity_bytes : null;
    const phase = [undefined, s.role, "ready"].includes(s.phase) ? "" : `, ${s.phase}`;
    put(connector.name, s.role + phase + repair(s.repair) + (s.role_since ? " for " + span(v.age(s.role_since)) : ""));
    connector.rows([
      ["in flight", s.in_flight_events == null ? "–" : some(s.in_flight_events, "event") + ", " + bytes(s.in_flight_bytes)],
      ["checkpoint", s.checkpoint_age_seconds == null ? "–" : s.checkpoint_age_seconds > 0 ? seconds(s.checkpoint_age_seconds) + " behind" : "up to date"],
      s.snapshot ? ["snapshot", progress(s.snapshot)] : ["published", count(v.totals.events_published_total)],
    ], full, "of sink.kafka.max_buffered_bytes");
    const shown = (v.topics.busiest || []).map((t) => [t.name, count(t.events)]);
    if (v.topics.others > 0) shown.push([v.topics.others + " more topics", count(v.topics.events)]);
    topics.rows((s.missing_topics || []).slice(0, 3).map((t) => [t, "missing"]).concat(shown).slice(0, 3));
  };
}

// progress is how far a snapshot is.
function progress({ published, rows, seconds_left: left }) {
  return count(published) + " of " + count(rows) + " rows" + (left == null ? "" : ", " + seconds(left) + " left");
}

function node(kind, title, name) {
  const label = el("p", { class: "name" }, name), list = el("dl");
  const bar = el("progress", { max: 1, value: 0, hidden: true });
  const root = el("article", { class: "node", "data-node": kind }, el("h3", {}, title), label, list, bar);
  return {
    root, name: label,
    rows(rows, share = null, of = "") {
      each(list, rows, () => el("div", {}, el("dt"), el("dd")), (row, [term, value]) => {
        put(row.firstChild, term);
        put(row.lastChild, value);
      });
      bar.hidden = !Number.isFinite(share);
      if (!bar.hidden) {
        bar.value = share;
        bar.title = Math.round(share * 100) + " % " + of;
        bar.setAttribute("aria-label", bar.title);
        bar.dataset.state = share > 0.8 ? "bad" : share > 0.5 ? "warn" : "good";
      }
    },
  };
}

// link is drawn lying for wide windows, and standing for narrow ones.
function link(kind) {
  const value = el("strong"), unit = el("span");
  const line = (d) => el("path", { d });
  const svg = el("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", class: "lying", "aria-hidden": "true" }, el("g", {}, line("M2 6H98")), line("M2 6H98"));
  const tall = el("svg", { viewBox: "0 0 12 40", class: "standing", "aria-hidden": "true" }, el("g", {}, line("M6 1V39")), line("M6 1V39"));
  const root = el("div", { class: "link", "data-link": kind }, el("p", {}, value, " ", unit), svg, tall, el("span", { class: "break", "aria-hidden": "true" }, "✕"));
  return {
    root,
    show(speed, text, what, broken) {
      root.dataset.state = broken || "good";
      root.dataset.pace = broken || !(speed > 0) ? "still" : speed < 20 ? "slow" : speed < 1000 ? "brisk" : "fast";
      put(value, broken === "bad" ? "" : text);
      put(unit, broken === "bad" ? "broken" : what);
    },
  };
}

// repair is what a repair after the loss of the slot has still to do.
function repair(r) {
  if (!r) return "";
  return r.missing > 0 ? ` (${count(r.published)} of ${count(r.missing)} missing events)` : ` (${count(r.records_ahead)} records to read)`;
}
