// The list of instances.
import { el, put, each, clock } from "./text.js";
import { holderText } from "./judge.js";

// instances fills the list: this instance, those that hold a slot or wait for it, the
// servers that a failover may go to, and peers.
export function instances(list, hello, views) {
  const lines = [];
  for (const v of views) {
    const name = v.name ? v.name + ": " : "", s = v.status;
    lines.push({ text: `${name}this instance, ${hello.host} pid ${hello.pid}`, role: s.role || "starting" });
    const other = (h, role) => lines.push({ text: `${name}${holderText(h)}, since ${h.since ? clock(new Date(h.since)) : "–"}`, role, url: peerAt(h.client_addr, hello) });
    if (s.holder) other(s.holder, "holder");
    for (const h of s.standbys || []) other(h, "standby");
    for (const c of s.failover || []) {
      if (c.state !== "primary") lines.push({ text: `${name}${c.host} ${c.text}`, role: "failover" });
    }
  }
  for (const url of hello.peers || []) {
    if (!lines.some((l) => l.url === url)) lines.push({ text: url, role: "peer", url });
  }
  each(list, lines, () => el("li", {}, el("span", { class: "role" }), el("a")), (e, l) => {
    put(e.firstChild, l.role);
    put(e.lastChild, l.text);
    if (l.url) e.lastChild.setAttribute("href", l.url);
    else e.lastChild.removeAttribute("href");
  });
}

// peerAt is the page of the peer at an address.
export function peerAt(address, hello) {
  return address && (hello.peers || []).find((p) => new URL(p).hostname.replace(/^\[|\]$/g, "") === address);
}
