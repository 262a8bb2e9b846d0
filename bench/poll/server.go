package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
)

// server is a PostgreSQL server with a connection.
type server struct {
	*rig.Database
	postmaster int // process id
}

func startServer(ctx context.Context) (*server, error) {
	db, err := rig.StartDatabase(ctx, map[string]string{"shared_buffers": "512MB", "checkpoint_timeout": "1h"})
	if err != nil {
		return nil, err
	}
	s := &server{Database: db}
	if s.postmaster, err = pgserver.Postmaster(ctx, s.Conn); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
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

// wal is the end of the log, in bytes.
func (s *server) wal(ctx context.Context) (at int64, err error) {
	err = s.Conn.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn() - '0/0'`).Scan(&at)
	return at, err
}

// processorTime is the time used by all of the server's processes, the ended included
// (proc(5): utime, stime, cutime, cstime).
func (s *server) processorTime() (time.Duration, error) {
	const ticksPerSecond = 100 // USER_HZ, fixed by the kernel for /proc
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // just ended, and counted by the parent
		}
		pid, parent, own, children := parseStat(string(text))
		switch s.postmaster {
		case pid:
			ticks += own + children
		case parent:
			ticks += own
		}
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

func parseStat(text string) (pid, parent int, own, children int64) {
	pid, _ = strconv.Atoi(text[:strings.IndexByte(text, ' ')])
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	number := func(i int) int64 { n, _ := strconv.ParseInt(fields[i-3], 10, 64); return n } // proc(5) counts from 1
	return pid, int(number(4)), number(14) + number(15), number(16) + number(17)
}
