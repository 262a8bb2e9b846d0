// Numbers and times as people read them, and elements made without markup.

const none = "–";

// el makes an element. Texts are only ever text: what comes from a database is
// never read as markup.
export function el(tag, props = {}, ...children) {
  const svg = tag === "svg" || tag === "path" || tag === "line" || tag === "circle" || tag === "rect" || tag === "g";
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value != null) e.setAttribute(name, value);
  }
  e.append(...children.filter((c) => c != null));
  return e;
}

// put sets a text, if it is another one.
export function put(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// each keeps one child for each item: make makes it, and show updates it.
export function each(parent, items, make, show) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  items.forEach((item, i) => {
    if (!parent.children[i]) parent.append(make(item));
    show(parent.children[i], item);
  });
}

const known = (n) => n != null && Number.isFinite(n);

// digits has about three of them.
function digits(n) {
  const size = Math.abs(n);
  return n.toFixed(size >= 99.95 || n === 0 ? 0 : size >= 9.995 ? 1 : size >= 0.01 ? 2 : 3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

export function count(n) {
  if (!known(n)) return none;
  if (n >= 1e9) return digits(n / 1e9) + " bn";
  if (n >= 1e6) return digits(n / 1e6) + " M";
  return n >= 1000 ? Math.round(n).toLocaleString("en") : digits(n);
}

// rate is a count per second, which need not be exact.
export function rate(n) {
  if (!known(n)) return none;
  return n >= 10 ? count(Math.round(n)) : n >= 1 ? n.toFixed(1).replace(".0", "") : n > 0 ? n.toFixed(2) : "0";
}

// some is a number of things.
export function some(n, thing) {
  return count(n) + " " + thing + (n === 1 ? "" : "s");
}

export function bytes(n) {
  if (!known(n)) return none;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1024; i++; }
  return (i === 0 ? Math.round(n) : digits(n)) + " " + units[i];
}

// seconds is for short times: 14 ms, 2.3 s, 4 min 12 s, 3 h 12 min.
export function seconds(s) {
  if (!known(s)) return none;
  s = Math.max(0, s);
  if (s === 0) return "0 s";
  if (s < 0.9995) return digits(s * 1000) + " ms";
  if (s < 9.95) return s.toFixed(1).replace(/\.0$/, "") + " s";
  return span(s);
}

// span is for times that are counted in whole seconds.
export function span(s) {
  s = Math.max(0, Math.round(s));
  if (s < 60) return s + " s";
  const parts = [[Math.floor(s / 86400), "d"], [Math.floor(s / 3600) % 24, "h"], [Math.floor(s / 60) % 60, "min"], [s % 60, "s"]];
  const first = parts.findIndex(([n]) => n > 0);
  return parts.slice(first, first + 2).filter(([n]) => n > 0).map(([n, unit]) => n + " " + unit).join(" ");
}

const two = (n) => String(n).padStart(2, "0");

// clock is the time of the day, with the day if it is another one.
export function clock(date) {
  const time = two(date.getHours()) + ":" + two(date.getMinutes()) + ":" + two(date.getSeconds());
  const today = new Date().toDateString() === date.toDateString();
  return today ? time : date.getFullYear() + "-" + two(date.getMonth() + 1) + "-" + two(date.getDate()) + " " + time;
}

// command finds what can be typed in a remedy.
const command = /`([^`]+)`|((?:cdc-outbox (?:setup|teardown|check|status|tail|run|txn)|kafka-topics(?:\.sh)?|psql)\b(?:(?!; |, (?:or|and|then)|: |\.$|\. )[^\n])*)/g;

// remedy shows a text with its commands as such, each to be copied.
export function remedy(text) {
  const parts = [];
  let at = 0;
  for (const m of text.matchAll(command)) {
    parts.push(text.slice(at, m.index), typed((m[1] || m[2]).trim()));
    at = m.index + m[0].length;
  }
  return [...parts, text.slice(at)].filter((p) => p !== "");
}

function typed(what) {
  if (!navigator.clipboard) return el("code", {}, what);
  const copy = el("button", { type: "button", class: "copy", title: "Copy the command" }, "copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(what).then(() => put(copy, "copied"), () => put(copy, "no"));
    setTimeout(() => put(copy, "copy"), 1500);
  });
  return el("span", { class: "typed" }, el("code", {}, what), copy);
}
