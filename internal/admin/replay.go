package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/sink"
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
		if err := fitFor(cfg, "--to", opts.To); err != nil {
			return nil, err
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
	a.again = &replayed{name: opts.Name, to: opts.To, only: only, topics: setOf(only), keys: setOf(opts.Keys)}
	if opts.Rate > 0 {
		a.rows.Group = min(a.rows.Group, opts.Rate) // so that a second has no more
	}
	if !opts.Publish && opts.To != "" {
		a.cluster.missing(ctx, opts.To, a.note)
	}
	r := &repair{auditor: a, header: transform.HeaderReplay, mark: []byte(opts.Name), rate: opts.Rate}
	return r.run(ctx, opts.Publish)
}

// fitFor refuses a flag's topic that holds no events.
func fitFor(cfg *config.Config, flag, topic string) error {
	err := cfg.Route.CheckTopic(topic)
	if err == nil && topic == cfg.Errors.DeadLetterTopic {
		err = errors.New("dead letters are kept there (errors.dead_letter_topic)")
	}
	if err != nil {
		return failure.Configf("choose another topic", "%s %q: %w", flag, topic, err)
	}
	return nil
}

// missing tells of a topic that a --publish would wait for.
func (c *cluster) missing(ctx context.Context, topic string, note func(string)) {
	if _, err := c.lookup(ctx, topic); errors.Is(err, kerr.UnknownTopicOrPartition) && !c.cfg.CreateTopics {
		note(fmt.Sprintf("topic %q does not exist, and sink.kafka.create_topics is false: create it before --publish: %s", topic, sink.CreateCommand(c.cfg, topic)))
	}
}

// forgets is the error of a replay, some of whose records may be gone from their topic.
// rest are the flags to choose the remaining events.
func forgets(topics *audit.Topics, opts audit.ReadOptions, name, rest string) error {
	switch topic, told := topics.Compacted(); {
	case topic == "":
		return nil
	case !told:
		return failure.Configf(opts.Allow(topic), "brokers do not tell whether topic %q is compacted, and so whether it has all that replay %q has published", topic, name)
	default:
		return failure.Configf("choose another --name, and what is still to be published by "+rest,
			"topic %q is compacted, so nobody knows all that replay %q has published", topic, name)
	}
}

// replayed are the events of a replay that was begun before.
type replayed struct {
	name, to string
	only     []string // topics of the only rows; empty: all
	topics   unseen   // of only
	keys     unseen   // of the only rows
}

// passes tells whether a row, of an event routed to the topic, is looked at, and
// notes its topic and key. Without a replay all are.
func (r *replayed) passes(ev *transform.Event, topic string) bool {
	switch {
	case r == nil:
		return true
	case len(r.only) > 0 && !slices.Contains(r.only, topic):
		return false
	}
	delete(r.topics, topic)
	r.keys.saw(ev.Record.Key)
	return true
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
