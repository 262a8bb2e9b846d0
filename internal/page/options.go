package page

import (
	"net"
	"net/url"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Options are the section http.
type Options struct {
	// Listen is the address for everything over HTTP; empty for none.
	Listen string `yaml:"listen"`
	// Token is a browser's secret to see keys and recent events where Events
	// alone does not show them; empty for no token.
	Token setting.Secret `yaml:"token"`
	// Events is EventsLoopback, EventsAlways or EventsNever: the browsers allowed
	// to see keys and recent events without a token.
	Events string `yaml:"events"`
	// Payloads shows recent events with their payloads, to viewers allowed to see
	// them.
	Payloads bool `yaml:"payloads"`
	// Hosts are names under which browsers reach this address, beside
	// localhost, the machine's own name and IP addresses.
	Hosts []string `yaml:"hosts"`
	// Peers are the URLs of other instances' pages, to link to.
	Peers []string `yaml:"peers"`
}

// Values of Options.Events.
const (
	EventsLoopback = "loopback"
	EventsAlways   = "always"
	EventsNever    = "never"
)

// DefaultOptions are the options of an empty section.
func DefaultOptions() Options {
	return Options{Listen: "127.0.0.1:8080", Events: EventsLoopback}
}

// leastToken is the least length of a token: guesses are unlimited.
const leastToken = 16

// Validate reports impossible options, except in Listen.
func (o *Options) Validate(report setting.Report) {
	report.OneOf("http.events", o.Events, EventsLoopback, EventsAlways, EventsNever)
	switch token := o.Token.Reveal(); {
	case token == "":
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		report.Problem("http.token", "has a character that a browser cannot send in a header", "use ASCII without spaces, for example what `openssl rand -hex 16` prints")
	case len(token) < leastToken:
		report.Problem("http.token", "is shorter than 16 characters", "make one: openssl rand -hex 16")
	}
	for i, host := range o.Hosts {
		if host == "" || strings.ContainsAny(host, "/:@ ") || strings.Trim(host, "[]*") != host {
			report(setting.Fault{Key: "http.hosts", Item: i + 1, Text: "is not a host name", Remedy: "write the name alone, for example outbox.example.com"})
		}
	}
	for i, peer := range o.Peers {
		u, err := url.Parse(peer)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
			report(setting.Fault{Key: "http.peers", Item: i + 1, Text: "is not the URL of a page", Remedy: "write it as in http://10.0.0.7:8080/"})
		}
	}
}

// isLoopback reports whether only the machine itself reaches the address.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}
