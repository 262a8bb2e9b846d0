package guard

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
	"github.com/cdc-outbox/cdc-outbox/internal/base/catchup"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/base/sight"
)

// ErrNoPosition reports a record without usable headers cdc-lsn and cdc-xid.
var ErrNoPosition = errors.New("the record has no position: its headers cdc-lsn and cdc-xid come with event.position_headers: true; " +
	"polled, repaired and replayed events have none, as their rows were read from the primary")

// ErrOtherLog reports a primary without the event in its log, whose row will never
// be there. A standby promoted without the event, with a log grown past it since,
// cannot be told from one with the event: the headers have no timeline.
var ErrOtherLog = errors.New("the server does not have the event: it is another one, or was promoted without it")

// PGXConn is a connection or a pool of pgx. W is pgx's row, inferred by Go.
type PGXConn[W interface{ Scan(dest ...any) error }] interface {
	QueryRow(ctx context.Context, sql string, args ...any) W
}

// SQLConn is a *sql.Conn or *sql.DB.
type SQLConn interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Header is a header of a record, as the clients of Kafka have it: franz-go's
// kgo.RecordHeader, and kafka.Header of segmentio and of confluent.
type Header interface {
	~struct {
		Key   string
		Value []byte
	}
}

// Visible returns nil once new transactions on the connection see the row of an
// event, given by the headers of its record. With synchronous standbys an event can
// come before its row can be read on the primary; on a standby that is usual. The
// server is the primary with the outbox, or a standby of it, at any distance; of a
// pool, all connections lead to the same server.
//
// Call Visible before the transaction: one of REPEATABLE READ would keep its old
// view, and is refused. ctx needs a deadline; the error then wraps ctx's cause and
// says what is missing. Other errors are ErrNoPosition, ErrOtherLog, or the
// database's. For a row of source.snapshot: initial, with cdc-xid 0, a standby is
// judged, not a primary: nothing tells the transaction.
func Visible[W interface{ Scan(dest ...any) error }, H Header](ctx context.Context, conn PGXConn[W], headers []H) error {
	return visible(ctx, conn, headers, func(ctx context.Context, query string, args ...any) row { return conn.QueryRow(ctx, query, args...) })
}

// VisibleSQL is Visible for database/sql.
func VisibleSQL[H Header](ctx context.Context, conn SQLConn, headers []H) error {
	return visible(ctx, conn, headers, func(ctx context.Context, query string, args ...any) row {
		return conn.QueryRowContext(ctx, query, args...)
	})
}

// errWithin reports a transaction, which may have a view from before the event.
var errWithin = fmt.Errorf("%w: give the connection or the pool, before the transaction begins", errUnusable)

type row interface{ Scan(dest ...any) error }

func visible[H Header](ctx context.Context, conn any, headers []H, ask func(ctx context.Context, query string, args ...any) row) error {
	_, bounded := ctx.Deadline()
	_, pgx := conn.(interface{ Rollback(context.Context) error })
	_, std := conn.(interface{ Rollback() error })
	switch {
	case usercode.IsNil(conn):
		return fmt.Errorf("wait for the row of an event: %w: there is no connection", errUnusable)
	case pgx, std:
		return fmt.Errorf("wait for the row of an event: %w", errWithin)
	case !bounded:
		return fmt.Errorf("wait for the row of an event: %w: the context has no deadline, use context.WithTimeout", errUnusable)
	}
	p, err := positionOf(headers)
	if err != nil {
		return fmt.Errorf("wait for the row of an event: %w", err)
	}
	missing, err := p.await(ctx, ask)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("wait for the row of the event at %s: %s: %w", p.commit, cmp.Or(missing, "the server has not answered"), context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("wait for the row of the event at %s: %w", p.commit, err)
	}
	return nil
}

// position is an event's, as its headers have it.
type position struct {
	commit catchup.Position // of the commit's record in the log
	xid    uint32           // 0: of no transaction, or a snapshot's row
}

func positionOf[H Header](headers []H) (p position, err error) {
	var lsn, xid string
	for _, h := range headers {
		switch h := struct {
			Key   string
			Value []byte
		}(h); h.Key {
		case "cdc-lsn":
			lsn = string(h.Value)
		case "cdc-xid":
			xid = string(h.Value)
		}
	}
	if lsn == "" || xid == "" {
		return p, ErrNoPosition
	}
	upper, lower, _ := strings.Cut(lsn, "/")
	hi, err := strconv.ParseUint(upper, 16, 32)
	if err == nil {
		var lo, id uint64
		lo, err = strconv.ParseUint(lower, 16, 32)
		if err == nil {
			id, err = strconv.ParseUint(xid, 10, 32)
		}
		p = position{catchup.Position(hi<<32 | lo), uint32(id)}
	}
	if err != nil {
		return position{}, fmt.Errorf("%w (cdc-lsn is %q, cdc-xid %q)", ErrNoPosition, lsn, xid)
	}
	return p, nil
}

// sightSQL looks at the server, with the age of the transaction $1: not above 0 for
// an id that is not in use yet, or was in use thousands of millions of transactions
// ago. The text of a standby's snapshot lacks the running transactions. The view of a
// transaction that keeps one is as old as the transaction.
const sightSQL = `SELECT jsonb_build_object(
	'version', current_setting('server_version_num')::int,
	'view', CASE WHEN current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN now()::text END,
	'replayed', CASE WHEN pg_is_in_recovery() THEN (COALESCE(pg_last_wal_replay_lsn(), '0/0') - '0/0'::pg_lsn)::text END,
	'end', CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::text END,
	'age', CASE WHEN NOT pg_is_in_recovery() THEN age($1::text::xid) END,
	'snapshot', CASE WHEN NOT pg_is_in_recovery() THEN pg_current_snapshot()::text END)::text`

// server is an answer to sightSQL.
type server struct {
	Version  int               `json:"version"`
	View     string            `json:"view"`     // the age of one that is kept
	Replayed *catchup.Position `json:"replayed"` // nil on a primary
	End      catchup.Position  `json:"end"`      // of a primary's log
	Age      int64             `json:"age"`
	Snapshot string            `json:"snapshot"` // a primary's
}

const (
	// firstPause and longestPause are between two looks: a commit's time, or more.
	firstPause, longestPause = 2 * time.Millisecond, 100 * time.Millisecond
	// chunk bounds a wait of the server's own, as it may be promoted meanwhile.
	chunk = time.Second
	// waits is the first version with WAIT FOR LSN.
	waits = 190000
)

// await looks until the row is visible. It returns what was missing at the last look.
func (p position) await(ctx context.Context, ask func(ctx context.Context, query string, args ...any) row) (missing string, err error) {
	pause, alone := firstPause, false // alone: the server does not wait by itself
	for view := ""; ; {
		var answer string
		var now server
		if err = ask(ctx, sightSQL, strconv.FormatUint(uint64(p.xid), 10)).Scan(&answer); err == nil {
			err = json.Unmarshal([]byte(answer), &now)
		}
		if err != nil {
			return missing, err
		}
		if now.View != "" && now.View == view {
			return "", errWithin
		}
		kept := now.View != "" && view == "" // the next look tells whether this one's view stays
		view = now.View
		if missing, err = p.missing(&now); missing == "" && !kept || err != nil {
			return missing, err
		}
		if !kept && now.Replayed != nil && now.Version >= waits && !alone {
			left := time.Until(deadline(ctx)).Milliseconds()
			err = ask(ctx, fmt.Sprintf(`WAIT FOR LSN '%s' WITH (TIMEOUT '%dms', NO_THROW)`, p.target(), max(1, min(chunk.Milliseconds(), left)))).Scan(&answer)
			if alone = err != nil; alone && pgsql.State(err) == "" && ctx.Err() == nil {
				return missing, err
			}
			continue
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, longestPause)
		case <-ctx.Done():
			return missing, context.Cause(ctx)
		}
	}
}

func deadline(ctx context.Context) time.Time {
	end, _ := ctx.Deadline()
	return end
}

// target is the least position of a log with the event: the commit's record begins at
// its position. Rows of a snapshot are before theirs.
func (p position) target() catchup.Position {
	if p.xid == 0 {
		return p.commit
	}
	return p.commit + 1
}

// missing says why the server does not show the row yet; "": it does.
func (p position) missing(now *server) (string, error) {
	if now.Replayed != nil {
		if *now.Replayed >= p.target() {
			return "", nil
		}
		return fmt.Sprintf("the standby has replayed the log up to %s (if it stands there: pg_stat_wal_receiver tells whether it receives, recovery_min_apply_delay and pg_is_wal_replay_paused() whether it holds back)", *now.Replayed), nil
	}
	if now.End < p.target() {
		return "", fmt.Errorf("%w: its log ends at %s", ErrOtherLog, now.End)
	}
	seen, err := sight.Parse(now.Snapshot)
	if err != nil || p.xid == 0 || now.Age <= 0 || seen.Sees(p.xid) {
		return "", err
	}
	return fmt.Sprintf("transaction %d is on disk, and waits for a standby of synchronous_standby_names (pg_stat_replication tells whether it is there)", p.xid), nil
}
