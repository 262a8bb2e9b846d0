package admin

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// ReplayOptions are the choices of Replay. Topics are those of the only rows looked
// at; empty: all.
type ReplayOptions struct {
	AuditOptions
	// Name is that of the replay, the value of the header cdc-replay. A repetition
	// under the name goes on where the last one ended. Required.
	Name string
	// To is the topic of all events; "": the one that each is routed to.
	To string
	// Rate is how many events a second are published at most; 0: no limit.
	Rate int
	// Publish publishes them; otherwise Replay only lists them.
	Publish bool
}

// Replay publishes the events of rows once more, in the order of publication, with
// a header that names the replay. An event that a replay of the name has published
// is left out.
func Replay(ctx context.Context, cfg *config.Config, opts ReplayOptions) (*RepairReport, error) {
	if opts.To != "" {
		if err := cfg.Route.CheckTopic(opts.To); err != nil {
			return nil, failure.Configf("choose another topic", "--to %q: %w", opts.To, err)
		}
	}
	only := opts.Topics
	opts.Topics = nil
	a, err := newAuditor(ctx, "replay", cfg, opts.AuditOptions)
	if err != nil {
		return nil, err
	}
	defer a.close()
	a.result.replay = opts.Name
	a.again = &replayed{name: opts.Name, to: opts.To, only: only}
	if opts.Rate > 0 {
		a.rows.Group = min(a.rows.Group, opts.Rate) // so that a second has no more
	}
	r := &repair{auditor: a, header: transform.HeaderReplay, mark: []byte(opts.Name), rate: opts.Rate}
	return r.run(ctx, opts.Publish)
}

// replayed are the events of a replay that was begun before.
type replayed struct {
	name, to string
	only     []string // topics of the only rows; empty: all
}

// chooses tells whether rows that are routed to the topic are looked at.
func (r *replayed) chooses(topic string) bool {
	return len(r.only) == 0 || slices.Contains(r.only, topic)
}

// made tells whether the replay has published the record.
func (r *replayed) made(rec *kgo.Record) bool {
	name, ok := transform.Header(rec.Headers, transform.HeaderReplay)
	return ok && string(name) == r.name
}

// topic is where an event goes that is routed to a topic.
func (r *replayed) topic(routed string) string {
	if r.to != "" {
		return r.to
	}
	return routed
}
