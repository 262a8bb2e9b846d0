package rig

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
)

// WAL is the end of the log, in bytes.
func (db *Database) WAL(ctx context.Context) (at int64, err error) {
	err = db.Conn.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn() - '0/0'`).Scan(&at)
	return at, err
}

// ServerTime is the time used by all of the server's processes, the ended included
// (proc(5): utime, stime, cutime, cstime).
func (db *Database) ServerTime(ctx context.Context) (time.Duration, error) {
	const ticksPerSecond = 100 // USER_HZ, fixed by the kernel for /proc
	postmaster, err := pgserver.Postmaster(ctx, db.Conn)
	if err != nil {
		return 0, err
	}
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
		switch postmaster {
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
