package catalog

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// TimelineSwitch asks, on a replication connection, for the LSN where the
// history of the server's timeline current left the timeline old. It is 0 if
// old is no ancestor of current, as after a restore along another way.
func TimelineSwitch(ctx context.Context, conn *pgconn.PgConn, current, old int32) (pg.LSN, error) {
	if current <= 1 {
		return 0, nil // the first timeline has no history
	}
	history, err := pglogrepl.TimelineHistory(ctx, conn, current)
	if err != nil {
		return 0, fmt.Errorf("read history of timeline %d: %w", current, Classify(err))
	}
	lsn, err := findSwitch(history.Content, old)
	if err != nil {
		return 0, fmt.Errorf("history of timeline %d: %w", current, err)
	}
	return lsn, nil
}

// findSwitch reads a timeline history file: a line for each ancestor, with its
// number, the LSN of the switch and the reason (PostgreSQL documentation,
// "Timelines").
func findSwitch(file []byte, old int32) (pg.LSN, error) {
	lines := bufio.NewScanner(bytes.NewReader(file))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0][0] == '#' {
			continue
		}
		if fields[0] != strconv.Itoa(int(old)) {
			continue
		}
		return pglogrepl.ParseLSN(fields[1])
	}
	return 0, lines.Err()
}
