// What is known of pipelines, in words.
import { bytes, span } from "./text.js";

export const rank = { bad: 3, warn: 2, wait: 1, spare: 0, good: 0 };

// judge says how a pipeline is, and where the way is broken. It uses nothing but
// its status.
export function judge(v) {
  const s = v.status, broken = {};
  let state = "good", what = "";
  const reasons = s.reasons.filter((r, i, all) => !r.startsWith("role is ") || all.length === 1);
  if (!s.ready) {
    state = s.role === "stopping" || (s.role === "starting" && s.reasons.length === 1) ? "wait" : "bad";
    what = state === "bad" ? "stands still" : s.role;
  } else if (s.role === "standby") {
    [state, what] = ["spare", "stands by"];
  } else if (s.unacked_seconds > 2) {
    [state, what] = ["warn", "waits for an acknowledgement"];
    reasons.push("no delivery has been acknowledged for " + span(s.unacked_seconds));
  } else if (s.checkpoint_failing_seconds > 0) {
    [state, what] = ["warn", "cannot save its checkpoint"];
    reasons.push(s.checkpoint_error || "the store does not answer");
  } else if (s.forecast) {
    [state, what] = ["warn", "falls behind"];
  } else if (s.quarantine) {
    [state, what] = ["warn", "has keys in quarantine"];
    reasons.push(`${s.quarantine.events} events of ${s.quarantine.keys} keys are parked: see cdc-outbox quarantine list`);
  } else if (s.accepted_gap) {
    [state, what] = ["warn", "has a gap that was accepted"];
    reasons.push(`events may be missing${s.accepted_gap.since ? " from " + s.accepted_gap.since + " on" : ""}, and retention waits: see cdc-outbox repair`);
  } else {
    what = "flows";
  }
  const hurt = state === "bad" ? "bad" : "warn";
  if (s.kafka_error || (s.missing_topics || []).length || s.unacked_seconds > 2) broken.sent = broken.topics = s.ready ? "warn" : hurt;
  if (s.postgres_error) broken.read = broken.slot = hurt;
  if (s.checkpoint_error) broken.connector = hurt;
  if (s.role === "failed") {
    broken.connector = "bad";
    if (s.loss) broken.slot = broken.read = "bad";
    broken.lost = s.loss;
  }
  if (s.forecast) broken.slot = broken.slot || "warn";
  if (state === "bad" && Object.keys(broken).length === 0) broken.connector = "bad";
  Object.assign(v, { state, what, broken, reasons });
}

export function forecast(f) {
  const pace = bytes(f.growth_bytes_per_second) + "/s";
  const held = f.held_back_by ? " Held back by " + f.held_back_by + "." : "";
  if (f.limit_in_seconds == null) {
    return `The slot keeps ${pace} more and more log. Nothing limits that but the disk, and PostgreSQL does not say how much of it is free: each free GiB lasts ${span(2 ** 30 / f.growth_bytes_per_second)}.` + held;
  }
  if (f.limit_in_seconds <= 0) return `The slot is beyond max_slot_wal_keep_size and may be lost at the next checkpoint.` + held;
  return `At this rate, ${pace}, the slot's limit (max_slot_wal_keep_size) is reached in ${span(f.limit_in_seconds)}.` + held;
}

const few = 3; // names in a headline

// first orders views: the worst, and of these a loss, and then what has lasted longest.
export const first = (a, b) =>
  rank[b.state] - rank[a.state] || (rank[a.state] > 0 && (Boolean(b.status.loss) - Boolean(a.status.loss) || Date.parse(a.status.ready_since) - Date.parse(b.status.ready_since))) || (a.name < b.name ? -1 : 1);

// worstOf is the pipeline that is to be looked at first.
export const worstOf = (views) => views.reduce((a, b) => (rank[b.state] > rank[a.state] ? b : a));

// headline says of all pipelines what matters most. stood, if it is given, is for how
// long one has stood still, in seconds.
export function headline(views, stood) {
  const troubled = views.filter((v) => v.state === "bad");
  if (troubled.length > few) troubled.sort(first);
  const worst = worstOf(views);
  if (views.length === 1) {
    const v = worst, s = v.status;
    switch (v.state) {
      case "bad": return "Standing still" + (stood ? ` for ${span(stood(v))}` : "");
      case "wait": return s.role === "stopping" ? "Stopping" : "Starting";
      case "spare": return "Standing by";
      case "warn": return s.forecast ? "The slot keeps more and more log" : s.quarantine ? "Events flow, but for keys in quarantine" : s.accepted_gap ? "Events flow, and a gap is still to be repaired" : "Events wait";
    }
    return v.now.events > 0 || v.now.transactions > 0 ? "Events flow" : "All is well, and quiet";
  }
  if (troubled.length > 0) {
    const who = named(troubled);
    const rest = views.length - troubled.length;
    return `${who} ${troubled.length > 1 ? "stand" : "stands"} still` + (rest > 0 ? `; ${rest} of ${views.length} pipelines ${rest > 1 ? "are" : "is"} well` : "");
  }
  if (worst.state === "warn") return `${worst.name} ${worst.what}`;
  if (worst.state === "wait") return `${worst.name}: ${worst.what}`;
  return `All ${views.length} pipelines are well`;
}

// named names a few of the views, and counts the others.
function named(views) {
  const names = views.slice(0, few).map((v) => v.name).join(", ");
  return names + (views.length > few ? ` and ${views.length - few} more` : "");
}

// tally counts the views by what is said of them, the worst first.
export function tally(views) {
  const counts = new Map();
  for (const v of [...views].sort((a, b) => rank[b.state] - rank[a.state])) counts.set(v.what, (counts.get(v.what) || 0) + 1);
  return [...counts].map(([what, n]) => `${n} × ${what}`).join(", ");
}

export const holderText = (h) => `pid ${h.pid}` + (h.application_name ? `, ${h.application_name}` : "") + (h.client_addr ? ` from ${h.client_addr}` : "");

export const ago = (s) => (s < 1.5 ? "just now" : span(s) + " ago");
