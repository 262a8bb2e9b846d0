package page

import (
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
)

// guard decides which requests may see the page, and which see events there.
type guard struct {
	opts     Options
	loopback bool   // only the machine itself reaches the server
	hostname string // of this machine
}

func newGuard(o Options) *guard {
	hostname, _ := os.Hostname()
	return &guard{opts: o, loopback: isLoopback(o.Listen), hostname: hostname}
}

// policy lets the page load files from its server and ask the server, and nothing
// else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// admit adds the headers that bind a browser, and refuses requests from another
// site's page. A foreign name resolved to our address ("DNS rebinding") shows in
// the Host header.
func (g *guard) admit(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		if err := g.knows(r.Host); err != nil {
			http.Error(w, err.Error(), http.StatusMisdirectedRequest)
			return
		}
		next(w, r)
	}
}

// errUnknown is the answer to a request under a foreign name.
var errUnknown = errors.New("this address is not known by the name in the Host header: if that is yours, add it to http.hosts")

// knows returns errUnknown unless the Host header names this server. An IP address
// is accepted: nobody can make it mean another address.
func (g *guard) knows(host string) error {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "localhost" || net.ParseIP(host) != nil {
		return nil
	}
	own := []string{g.hostname}
	if name, _, err := net.SplitHostPort(g.opts.Listen); err == nil {
		own = append(own, name)
	}
	if host == "" || !slices.ContainsFunc(append(own, g.opts.Hosts...), func(known string) bool { return strings.EqualFold(known, host) }) {
		return errUnknown
	}
	return nil
}

// showsEvents reports whether the request may see keys and recent events.
func (g *guard) showsEvents(r *http.Request) bool {
	switch {
	case g.opts.Events == EventsNever:
		return false
	case g.opts.Events == EventsAlways:
		return true
	case g.opts.Token != "":
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		return ok && subtle.ConstantTimeCompare([]byte(given), []byte(g.opts.Token.Reveal())) == 1
	}
	return g.loopback && !forwarded(r) && g.local(r.Host)
}

// forwarded reports whether a proxy on this machine visibly speaks for somebody
// else. Browsers do not speak HTTP/1.0, nginx's default.
func forwarded(r *http.Request) bool {
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-") {
			return true
		}
	}
	return !r.ProtoAtLeast(1, 1)
}

// local reports whether the Host header names the loopback interface: a proxy
// on the machine usually passes another name on.
func (g *guard) local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// why tells a browser without events the way to see them.
func (g *guard) why() string {
	switch {
	case g.opts.Events == EventsNever:
		return "http.events is never"
	case g.opts.Token != "":
		return "token"
	default:
		return "beyond this machine, keys and events are shown only with http.token, or http.events: always"
	}
}
