package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/pgserver"
)

// server is a PostgreSQL server and a connection to it.
type server struct {
	*pgserver.Server
	conn       *pgx.Conn
	postmaster int // process id
}

func startServer(ctx context.Context) (*server, error) {
	started, err := pgserver.Start(ctx, pgserver.Options{Durable: true, Settings: map[string]string{
		"max_wal_size": "8GB", "autovacuum": "off", "shared_buffers": "512MB", "checkpoint_timeout": "1h",
	}})
	if err != nil {
		return nil, err
	}
	s := &server{Server: started}
	if s.conn, err = pgx.Connect(ctx, started.URL("postgres")); err == nil {
		err = s.findPostmaster(ctx)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *server) close() {
	if s.conn != nil {
		_ = s.conn.Close(context.Background())
	}
	_ = s.Close()
}

func (s *server) findPostmaster(ctx context.Context) error {
	var dir string
	if err := s.conn.QueryRow(ctx, `SHOW data_directory`).Scan(&dir); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	s.postmaster, err = strconv.Atoi(line)
	return err
}

func (s *server) exec(ctx context.Context, sql ...string) error {
	for _, stmt := range sql {
		if _, err := s.conn.Exec(ctx, stmt); err != nil {
			return fmt.Errorf("%.80s: %w", stmt, err)
		}
	}
	return nil
}

// createOutbox makes a table as `cdc-outbox setup` does for polling.
func (s *server) createOutbox(ctx context.Context, table string) error {
	return s.exec(ctx, `DROP TABLE IF EXISTS `+table, `CREATE TABLE `+table+` (
		id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
		type varchar(255) NOT NULL, payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
		seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY, published boolean NOT NULL DEFAULT false, published_at timestamptz)`,
		`CREATE INDEX ON `+table+` (seq) WHERE NOT published`)
}

// insert adds rows to a table, in one transaction.
func (s *server) insert(ctx context.Context, table string, rows, payload int, published bool) error {
	_, err := s.conn.Exec(ctx, `INSERT INTO `+table+` (aggregatetype, aggregateid, type, payload, published)
		SELECT 'order', (random() * 10000)::int::text, 'OrderPlaced', jsonb_build_object('order', n, 'note', repeat(md5(n::text), $2 / 32)), $3
		  FROM generate_series(1, $1) n`, rows, payload, published)
	return err
}

// wal is the end of the log, in bytes.
func (s *server) wal(ctx context.Context) (at int64, err error) {
	err = s.conn.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn() - '0/0'`).Scan(&at)
	return at, err
}

// processorTime is what all of the server's processes have used, those that
// have ended included (proc(5): utime, stime, cutime, cstime).
func (s *server) processorTime() (time.Duration, error) {
	const ticksPerSecond = 100 // USER_HZ, which the kernel fixes for /proc
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended: its parent counts it
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
