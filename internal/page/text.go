package page

import (
	"context"
	"html"
	"net/http"
)

// Text is a page with a text, which a browser asks for anew every few seconds.
type Text struct {
	guard *guard
	title string
	now   func() string
}

// NewText returns a page. now is called at each request, and must not block.
func NewText(o Options, title string, now func() string) *Text {
	return &Text{newGuard(o), title, now}
}

// Register adds the path.
func (t *Text) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", t.guard.admit(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		title := html.EscapeString(t.title)
		_, _ = w.Write([]byte(`<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="3"><title>` + // a client that went away is not our problem
			title + `</title><h1>` + title + `</h1><pre>` + html.EscapeString(t.now()) + `</pre></html>`))
	}))
}

// Knows returns why a request with this Host header is refused; nil if the header
// names this server.
func (t *Text) Knows(host string) error { return t.guard.knows(host) }

// Run waits for the end: each request makes its own text.
func (t *Text) Run(ctx context.Context) { <-ctx.Done() }
