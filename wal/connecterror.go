package wal

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
)

// connectFailed puts the error of a connection attempt into one line, and gives
// it a failure.Class and a remedy. pgconn tries each address with and without
// TLS and reports every attempt; what matters is said once here.
func connectFailed(err error, cfg *pgconn.Config) error {
	connect, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return classify(err)
	}
	short := &connectError{text: strings.Join(attempts(connect.Unwrap()), "; "), err: err}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == codeInsufficientRights {
		return failure.Configf("ALTER ROLE "+QuoteIdentifier(cfg.User)+" WITH REPLICATION;", "%w", short)
	}
	classified := classify(short)
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" && failure.RemedyOf(classified) == "" {
		return &failure.Error{Class: failure.Transient, Remedy: "start PostgreSQL, or correct host and port in source.url", Err: classified}
	}
	return classified
}

// connectError is a pgconn.ConnectError with another text.
type connectError struct {
	text string
	err  error
}

func (e *connectError) Error() string { return e.text }
func (e *connectError) Unwrap() error { return e.err }

// attempts lists what went wrong, each thing once, and without the refusal of
// TLS that only led to the next attempt.
func attempts(err error) []string {
	var texts []string
	for _, e := range flatten(err) {
		for line := range strings.SplitSeq(e.Error(), "\n") {
			said := slices.ContainsFunc(texts, func(s string) bool { return strings.HasSuffix(s, line) })
			if !said {
				texts = append(texts, line)
			}
		}
	}
	// By its text, as pgconn has no type for it. It decides only what is shown.
	answered := slices.DeleteFunc(slices.Clone(texts), func(s string) bool {
		return strings.Contains(s, "server refused TLS connection")
	})
	if len(answered) > 0 {
		return answered
	}
	return texts
}

// flatten lists the errors that are joined in err.
func flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flatten(e)...)
	}
	return all
}
