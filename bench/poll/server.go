package main

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// server is a PostgreSQL server with a connection.
type server struct{ *rig.Database }

func startServer(ctx context.Context) (*server, error) {
	db, err := rig.StartDatabase(ctx, map[string]string{"shared_buffers": "512MB", "checkpoint_timeout": "1h"})
	if err != nil {
		return nil, err
	}
	return &server{db}, nil
}

// createOutbox makes a table as `cdc-outbox setup` does for polling.
func (s *server) createOutbox(ctx context.Context, table string) error {
	return s.Exec(ctx, `DROP TABLE IF EXISTS `+table, `CREATE TABLE `+table+` (
		id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
		type varchar(255) NOT NULL, payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
		seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY, published boolean NOT NULL DEFAULT false, published_at timestamptz)`,
		`CREATE INDEX ON `+table+` (seq) WHERE NOT published`)
}

// insert adds rows to a table, in a single transaction.
func (s *server) insert(ctx context.Context, table string, rows, payload int, published bool) error {
	_, err := s.Conn.Exec(ctx, `INSERT INTO `+table+` (aggregatetype, aggregateid, type, payload, published)
		SELECT 'order', (random() * 10000)::int::text, 'OrderPlaced', jsonb_build_object('order', n, 'note', repeat(md5(n::text), $2 / 32)), $3
		  FROM generate_series(1, $1) n`, rows, payload, published)
	return err
}
