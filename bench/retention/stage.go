package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

const (
	topic = "outbox.event.order"

	// autovacuum's usual interval, and the connector's between two passes.
	naptime, interval = time.Minute, 10 * time.Second
)

// stage is the server with the outbox, the broker, and the journal of the events.
type stage struct {
	options
	connector *rig.Connector
	db        *rig.Database
	broker    *rig.Broker
	log       *journal
}

func newStage(ctx context.Context, o options, connector *rig.Connector) (*stage, error) {
	s := &stage{options: o, connector: connector, log: newJournal(o)}
	if err := s.start(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stage) start(ctx context.Context) (err error) {
	s.db, err = rig.StartDatabase(ctx, map[string]string{
		"max_wal_size": "4GB", "autovacuum": "on",
		"autovacuum_naptime": fmt.Sprintf("%ds", max(1, int(s.scaled(naptime).Seconds()))),
	})
	if err != nil {
		return err
	}
	if err := s.db.Exec(ctx,
		`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
			type varchar(255) NOT NULL, payload text NOT NULL, n bigint NOT NULL, created_at timestamptz NOT NULL DEFAULT now())`,
		`ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)`, // as the documentation says
		`CREATE PUBLICATION cdc_outbox FOR TABLE outbox WITH (publish = 'insert')`,
		`SELECT pg_create_logical_replication_slot('cdc_outbox', 'pgoutput')`, // before the first event
	); err != nil {
		return err
	}
	if s.broker, err = rig.StartFake(ctx); err != nil {
		return err
	}
	return s.broker.CreateTopic(ctx, topic, s.partitions)
}

func (s *stage) close() {
	if s.broker != nil {
		s.broker.Stop()
	}
	if s.db != nil {
		s.db.Close()
	}
}

// startConnector runs the program, with retention or without.
func (s *stage) startConnector(retention bool) (*rig.Program, error) {
	settings := []string{"source.url=" + s.db.URL, "sink.kafka.brokers=" + s.broker.Addr}
	if retention {
		settings = append(settings, "retention.after="+s.scaled(s.after).String(),
			"retention.interval="+max(100*time.Millisecond, s.scaled(interval)).String())
	}
	return s.connector.Run(settings...)
}
