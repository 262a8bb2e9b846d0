// Small charts of one or two lines.
import { el, put } from "./text.js";

const wide = 300, high = 64;

// chart makes a chart. lines are {column, class}; format writes a value; limit,
// if there is one, gives the value of a line across for a row. The latest value
// counts as the present one for so many seconds.
export function chart({ name, note, limitNote, lines, format, limit, lasts = 5 }) {
  const now = el("strong", {}, "–");
  const top = el("span", { class: "top" }), tip = el("span", { class: "tip" }, note || "");
  const areas = lines.map((l) => el("path", { class: "area " + (l.class || "") }));
  const paths = lines.map((l) => el("path", { class: "line " + (l.class || "") }));
  const cap = el("path", { class: "limit" }), hair = el("path", { class: "hair" });
  const svg = el("svg", { viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", "aria-hidden": "true" }, cap, areas[0], ...paths, hair);
  const figure = el("figure", { "data-chart": name }, el("figcaption", {}, el("span", {}, name), now), el("div", { class: "plot" }, svg, top), tip);
  let rows = [], from = 0, to = 1, below = note || "";

  // path breaks where something is not known, or nothing was measured for long.
  function path(column, most, closed) {
    let d = "", last = null, first = 0;
    const end = (x) => (closed ? `L${x} ${high}L${first} ${high}Z` : "");
    for (const row of rows) {
      const v = column(row);
      if (v == null || (last && row[0] - last > 25)) {
        if (last) d += end(x(last));
        last = null;
        if (v == null) continue;
      }
      if (!last) first = x(row[0]);
      d += (last ? "L" : "M") + x(row[0]) + " " + (high - (high - 3) * Math.min(1, v / most)).toFixed(1);
      last = row[0];
    }
    return last ? d + end(x(last)) : d;
  }
  const x = (at) => (((at - from) / (to - from)) * wide).toFixed(1);

  function draw(all, begin, end) {
    [from, to] = [begin, end];
    rows = all.filter((r) => r[0] >= from - 15);
    let most = 0;
    for (const row of rows) for (const l of lines) most = Math.max(most, l.column(row) ?? 0);
    const newest = rows.at(-1), bound = newest && limit && limit(newest);
    if (bound && bound < most * 4) most = Math.max(most, bound);
    const scale = most > 0 ? most * 1.08 : 1;
    paths.forEach((p, i) => p.setAttribute("d", path(lines[i].column, scale)));
    areas[0].setAttribute("d", path(lines[0].column, scale, true));
    const y = bound && bound <= scale ? (high - (high - 3) * (bound / scale)).toFixed(1) : null;
    cap.setAttribute("d", y ? `M0 ${y}H${wide}` : "");
    if (limitNote) below = y ? limitNote : "";
    if (!hair.getAttribute("d")) put(tip, below);
    put(top, most > 0 ? format(most) : "");
    const latest = rows.findLast((r) => lines[0].column(r) != null);
    put(now, latest && newest[0] - latest[0] < lasts ? lines.map((l) => format(l.column(latest))).join(" / ") : "–");
  }

  // point shows the values at a share of the width; null for none.
  function point(share) {
    if (share == null || rows.length === 0) {
      hair.setAttribute("d", "");
      return put(tip, below);
    }
    const at = from + share * (to - from);
    const row = rows.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a));
    hair.setAttribute("d", `M${x(row[0])} 0V${high}`);
    put(tip, new Date(row[0] * 1000).toTimeString().slice(0, 8) + "  " + lines.map((l) => format(l.column(row))).join(" / "));
  }
  return { figure, svg, draw, point };
}
