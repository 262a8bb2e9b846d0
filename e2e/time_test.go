package e2e

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

// Topics take no time older than a minute, and rows are an hour old. Bad events
// are skipped here, so an event counted as bad is lost.
func TestE2ETimesThatBrokersRefuse(t *testing.T) {
	const events = 200
	strict := map[string]string{"message.timestamp.before.max.ms": "60000"}
	const skip = "errors:\n  on_bad_event: skip\n"
	for name, tc := range map[string]struct {
		options
		insert string
	}{
		"a column at least once": {
			options{broker: []kafkatest.Option{kafkatest.Apache()}, config: skip},
			`INSERT INTO outbox SELECT gen_random_uuid(), 'order', 'key-' || n % 7, 'Placed', n::text, '', now() - interval '1 hour' FROM generate_series(1, 200) n`,
		},
		"a column exactly once": {
			options{exactlyOnce: true, config: skip},
			`INSERT INTO outbox SELECT gen_random_uuid(), 'order', 'key-' || n % 7, 'Placed', n::text, '', now() - interval '1 hour' FROM generate_series(1, 200) n`,
		},
		"rows that were created long ago and are polled": {
			options{broker: []kafkatest.Option{kafkatest.Apache()}, config: skip, polled: polledClock},
			`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, created_at)
				SELECT gen_random_uuid(), 'order', 'key-' || n % 7, 'Placed', n::text, now() - interval '1 hour' FROM generate_series(1, 200) n`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.options.topicConfig, tc.options.unread = strict, true
			w := newWorld(t, tc.options)
			if !w.polled {
				w.exec(`ALTER TABLE outbox ADD written_at timestamptz`)
				w.rewriteConfig("event:\n", "event:\n  timestamp: written_at\n")
			}
			c := w.start()
			w.exec(tc.insert)
			seen := map[string]bool{}
			w.broker.Consume(t, []string{topicOf("order")}, func(records []*kgo.Record) bool {
				for _, r := range records {
					seen[string(r.Value)] = true
				}
				return len(seen) >= events
			})
			c.stop()
		})
	}
}
