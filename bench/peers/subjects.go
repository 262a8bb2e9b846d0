package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// subject is a poller with its table.
type subject struct {
	name string
	// fill are the statements that make the table anew, with the events for the topic.
	fill func(o options, topic string) []string
	// done is a query, true once the table says that all is published.
	done  string
	start func(s *stage, topic string) (*rig.Process, error)
}

// note is the SQL expression of the text that makes a payload of about the size.
func note(o options) string { return fmt.Sprintf(`repeat(md5(n::text), %d)`, max(1, o.payload/32)) }

// subjects are ours, and the peers.
func (s *stage) subjects(ctx context.Context) ([]subject, error) {
	watermill, err := s.build(ctx, "watermill")
	if err != nil {
		return nil, err
	}
	ours := func(name, after, done string) subject {
		return subject{name: name, fill: outbox, done: done, start: func(s *stage, topic string) (*rig.Process, error) {
			p, err := s.Connector.Run("source.url="+s.DB.URL, "source.mode=poll", "source.poll.after_publish="+after,
				"sink.kafka.brokers="+s.Broker.Addr, "route.topic="+topic)
			return p.Process, err
		}}
	}
	return []subject{
		ours("cdc-outbox, rows deleted", "delete", `SELECT NOT EXISTS (SELECT FROM outbox)`),
		ours("cdc-outbox, rows marked", "mark", `SELECT NOT EXISTS (SELECT FROM outbox WHERE NOT published)`),
		{
			name: "Watermill's forwarder", fill: forwarded, done: `SELECT offset_acked = (SELECT max("offset") FROM watermill_events) FROM watermill_offsets_events`,
			start: func(s *stage, topic string) (*rig.Process, error) {
				return rig.Start("Watermill", exec.Command(watermill, s.DB.URL, s.Broker.Addr, topic))
			},
		},
	}, nil
}

// build compiles a peer's program, a module of its own.
func (s *stage) build(ctx context.Context, name string) (program string, err error) {
	program = filepath.Join(s.dir, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join("bench", "peers", name), "-buildvcs=false", "-o", program, ".")
	cmd.Env, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off"), os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build %s, in the repository's root: %w", name, err)
	}
	return program, nil
}

// outbox is the table that `cdc-outbox setup` makes for polling.
func outbox(o options, _ string) []string {
	return []string{
		`DROP TABLE IF EXISTS outbox`,
		`CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
			type varchar(255) NOT NULL, payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
			seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY, published boolean NOT NULL DEFAULT false, published_at timestamptz)`,
		`CREATE INDEX ON outbox (seq) WHERE NOT published`,
		fmt.Sprintf(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
			SELECT 'order', (n %% 10000)::text, 'OrderPlaced', jsonb_build_object('order', n, 'note', %s) FROM generate_series(1, %d) n`, note(o), o.events),
	}
}

// forwarded are Watermill's tables (watermill-sql v4, DefaultPostgreSQLSchema), with
// messages in the forwarder's envelope.
func forwarded(o options, topic string) []string {
	return []string{
		`DROP TABLE IF EXISTS watermill_events, watermill_offsets_events`,
		`CREATE TABLE watermill_events ("offset" bigserial, uuid varchar(36) NOT NULL, created_at timestamp NOT NULL DEFAULT current_timestamp,
			payload json, metadata json, transaction_id xid8 NOT NULL, PRIMARY KEY (transaction_id, "offset"))`,
		fmt.Sprintf(`INSERT INTO watermill_events (uuid, payload, metadata, transaction_id)
			SELECT gen_random_uuid(), json_build_object('destination_topic', '%s', 'uuid', gen_random_uuid(),
				'payload', translate(encode(convert_to(jsonb_build_object('order', n, 'note', %s)::text, 'UTF8'), 'base64'), E'\n', ''),
				'metadata', json_build_object('key', (n %% 10000)::text)), '{}', pg_current_xact_id() FROM generate_series(1, %d) n`, topic, note(o), o.events),
	}
}
