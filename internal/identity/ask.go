package identity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// answerTimeout bounds the wait for a source, with all questions.
const answerTimeout = 10 * time.Second

// earlyTimeout is answerTimeout while the former value serves: a question holds logins back.
const earlyTimeout = 3 * time.Second

var errNoAnswer = errors.New("no answer")

// client asks the sources. Questions are rare: no connection is kept.
var client = &http.Client{
	Transport: &http.Transport{Proxy: proxy, DisableKeepAlives: true},
	// A redirection would take a secret to another host.
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// proxy keeps proxies from the machine's own services: a proxy has another
// identity.
func proxy(r *http.Request) (*url.URL, error) {
	ip := net.ParseIP(r.URL.Hostname())
	if ip != nil && (ip.IsLinkLocalUnicast() || ip.IsPrivate() || ip.IsLoopback()) {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

// unavailable is the error of a question to a source.
func unavailable(remedy, what string, err error) error {
	if request, ok := errors.AsType[*url.Error](err); ok { // without the query
		err = fmt.Errorf("%s: %w", place(request.URL), request.Err)
	}
	return &failure.Error{Class: failure.Transient, Remedy: remedy, Err: fmt.Errorf("%s: %w", what, err)}
}

// place is a URL without secrets.
func place(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "the source"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// environment is the part of the environment with the source of an identity.
func environment(variables []string) string {
	var b strings.Builder
	for _, name := range variables {
		b.WriteString(os.Getenv(name) + "\x00")
	}
	return b.String()
}

// cause is the reason for the end of ctx, or else err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
