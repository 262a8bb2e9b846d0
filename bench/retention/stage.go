package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/pgserver"
)

const (
	topic = "outbox.event.order"

	// autovacuum's usual interval, and the connector's between two passes.
	naptime, interval = time.Minute, 10 * time.Second
)

// stage is the server with the outbox, the broker, and what is known of each
// event.
type stage struct {
	options
	server  *pgserver.Server
	url     string
	version string
	conn    *pgx.Conn
	broker  *rig.Broker
	log     *journal
}

func newStage(ctx context.Context, o options) (*stage, error) {
	s := &stage{options: o, log: newJournal(o)}
	if err := s.start(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stage) start(ctx context.Context) (err error) {
	s.server, err = pgserver.Start(ctx, pgserver.Options{Durable: true, Settings: map[string]string{
		"max_wal_size": "4GB", "shared_buffers": "256MB",
		"autovacuum_naptime": fmt.Sprintf("%ds", max(1, int(s.scaled(naptime).Seconds()))),
	}})
	if err != nil {
		return err
	}
	s.url = s.server.URL("postgres")
	if s.conn, err = pgx.Connect(ctx, s.url); err != nil {
		return err
	}
	for _, sql := range []string{
		`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
			type varchar(255) NOT NULL, payload text NOT NULL, n bigint NOT NULL, created_at timestamptz NOT NULL DEFAULT now())`,
		`ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)`, // as the documentation says
		`CREATE PUBLICATION cdc_outbox FOR TABLE outbox WITH (publish = 'insert')`,
		`SELECT pg_create_logical_replication_slot('cdc_outbox', 'pgoutput')`, // before the first event
	} {
		if _, err := s.conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if err := s.conn.QueryRow(ctx, `SELECT 'PostgreSQL ' || current_setting('server_version')`).Scan(&s.version); err != nil {
		return err
	}
	s.broker, err = rig.StartBroker(topic, s.partitions)
	return err
}

func (s *stage) close() {
	if s.broker != nil {
		s.broker.Stop()
	}
	if s.conn != nil {
		_ = s.conn.Close(context.Background())
	}
	if s.server != nil {
		_ = s.server.Close()
	}
}

// startConnector runs the program, with retention or without.
func (s *stage) startConnector(retention bool) (*rig.Program, error) {
	settings := []string{"source.url=" + s.url, "sink.kafka.brokers=" + s.broker.Addr}
	if retention {
		settings = append(settings, "retention.after="+s.scaled(s.after).String(),
			"retention.interval="+max(100*time.Millisecond, s.scaled(interval)).String())
	}
	return rig.Run(s.binary, settings...)
}
