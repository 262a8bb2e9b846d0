package admin

import (
	"context"
	"io"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// Up to PostgreSQL 14 everybody may create functions in public. No verb, run by
// an administrator, calls those in the place of PostgreSQL's.
func TestNoVerbCallsFunctionsOfOthers(t *testing.T) {
	tail := func(fromTable bool) func(f *fixture) error {
		return func(f *fixture) error {
			ctx, cancel := context.WithCancel(f.ctx())
			defer cancel()
			return Tail(ctx, f.Config, TailOptions{FromTable: fromTable, Limit: 1, Out: io.Discard, Notes: io.Discard})
		}
	}
	const role = "overload"
	t.Cleanup(func() { pgtest.Shared(t).Exec(t, "DROP ROLE IF EXISTS "+role) })
	for _, tt := range []struct {
		verb string
		run  func(f *fixture) error
	}{
		{"setup", func(f *fixture) error {
			_, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium, Role: role})
			return err
		}},
		{"check", func(f *fixture) error { Check(f.ctx(), f.Config); return nil }},
		{"status", func(f *fixture) error { Status(f.ctx(), f.Config); return nil }},
		{"tail --from-table", tail(true)},
		{"skip", func(f *fixture) error { _, _ = SkipTransaction(f.ctx(), f.Config, 1, false); return nil }},
		{"accept-gap", func(f *fixture) error {
			_, err := AcceptGap(f.ctx(), f.Config, GapOptions{Yes: true})
			return err
		}},
		{"teardown", func(f *fixture) error { _, err := Teardown(f.ctx(), f.Config, true); return err }},
	} {
		for _, mode := range []string{config.ModeWAL, config.ModePoll} {
			if mode == config.ModePoll && (tt.verb == "skip" || tt.verb == "accept-gap") {
				continue
			}
			t.Run(tt.verb+" "+mode, func(t *testing.T) {
				f := empty(t)
				f.Source.Mode = mode
				f.Checkpoint.Store = store.StorePostgres
				f.setup()
				f.exec(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', 'o', 'Placed', '{}')`)
				calls := pgtest.Overload(t, f.Source.URL.Reveal())
				if err := tt.run(f); err != nil {
					t.Errorf("%s: %v", tt.verb, err)
				}
				if n := calls(); n > 0 {
					t.Errorf("%s called functions of somebody else %d times", tt.verb, n)
				}
			})
		}
	}
}
