package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// askEvery is how often the server is asked for the cause of a long wait.
const askEvery = 5 * time.Second

// Waiting is the cause of a statement's wait, by the server's word.
type Waiting struct {
	Event string    // wait_event_type and wait_event of pg_stat_activity; empty while working
	For   []Blocker // the sessions in its way
}

// Blocker is a session, or a prepared transaction, in a statement's way.
type Blocker struct {
	PID         int32  // 0 for a prepared transaction
	GID         string // of a prepared transaction, if known
	Database    string // of a prepared transaction: the only place to end it
	Application string
	User        string
	// Age is that of its transaction; 0 where the role may not see it
	// (pg_read_all_stats shows it).
	Age time.Duration
}

// String is for a log or a message.
func (w Waiting) String() string {
	if len(w.For) == 0 {
		if w.Event == "" {
			return "nothing: it works"
		}
		return w.Event
	}
	texts := make([]string, len(w.For))
	for i, b := range w.For {
		texts[i] = b.String()
	}
	return strings.Join(texts, ", ")
}

// String is for a log or a message.
func (b Blocker) String() string {
	text := fmt.Sprintf("pid %d", b.PID)
	var details []string
	switch {
	case b.GID != "":
		text, details = "the prepared transaction "+pgsql.Literal(b.GID), []string{"database " + b.Database}
	case b.PID == 0:
		return "a prepared transaction (see pg_prepared_xacts)"
	}
	if b.Application != "" {
		details = append(details, "application "+b.Application)
	}
	if b.User != "" {
		details = append(details, "role "+b.User)
	}
	if b.Age > 0 {
		details = append(details, "transaction open for "+b.Age.Round(time.Second).String())
	}
	if len(details) > 0 {
		text += " (" + strings.Join(details, ", ") + ")"
	}
	return text
}

// End has the statements to end the blocker; "" for an unknown name.
func (b Blocker) End() string {
	switch {
	case b.GID != "":
		gid := pgsql.Literal(b.GID)
		return "COMMIT PREPARED " + gid + "; or ROLLBACK PREPARED " + gid + "; in database " + b.Database + ";"
	case b.PID == 0:
		return ""
	}
	return fmt.Sprintf("SELECT pg_terminate_backend(%d);", b.PID)
}

// Remedy has the statements to end the wait; "" without any.
func (w Waiting) Remedy() string {
	var ends []string
	for _, b := range w.For {
		if end := b.End(); end != "" {
			ends = append(ends, end)
		}
	}
	return strings.Join(ends, " ")
}

// Patient lets the statements on conn take as long as they need, until end is
// called: the creation of a slot, which waits for every running transaction, a
// sort, the building of an index. While the server is silent, another
// connection to url asks what it is doing. tell, unless nil, is called with the
// answer. If the server does not answer, or does not know conn any more, conn
// is broken. The end of ctx does the same, at the next question.
//
// tell is called by the goroutine waiting for the statement, and must not use
// conn.
func Patient(ctx context.Context, url string, conn *pgconn.PgConn, tell func(Waiting)) (end func()) {
	l := lineOf(conn.Conn())
	if l == nil {
		return func() {}
	}
	pid := conn.PID()
	ask := func() error {
		waiting, err := askBeside(ctx, url, pid)
		if err == nil && tell != nil {
			tell(waiting)
		}
		return err
	}
	before := l.replace(askEvery, ask)
	return func() { l.replace(before, nil) }
}

// replace sets the limit, and the question after it.
func (l *line) replace(silence time.Duration, ask func() error) (before time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.silence, l.ask = l.silence, silence, ask
	return before
}

// errForgotten means that the server does not run the statement any more.
var errForgotten = errors.New("the server does not know of the connection any more")

// A role sees wait_event of its own sessions, and the age of the others'
// transactions only with pg_read_all_stats. A session waiting for a prepared
// transaction is blocked by pid 0, and the awaited lock has its transaction.
const waitingQuery = `
SELECT concat_ws(' ', a.wait_event_type, a.wait_event), b.pid, COALESCE(p.gid, ''), COALESCE(p.database::text, ''), COALESCE(o.application_name, ''),
       COALESCE(o.usename::text, p.owner::text, ''), COALESCE(extract(epoch FROM clock_timestamp() - COALESCE(o.xact_start, p.prepared)), 0)::float8
  FROM pg_stat_activity a
  LEFT JOIN LATERAL (SELECT DISTINCT unnest(pg_blocking_pids(a.pid))) b(pid) ON true
  LEFT JOIN pg_stat_activity o ON o.pid = b.pid
  LEFT JOIN pg_locks l ON b.pid = 0 AND l.pid = a.pid AND NOT l.granted
  LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
 WHERE a.pid = $1
 ORDER BY 7 DESC`

// askBeside is ReadWaiting on a separate connection.
func askBeside(ctx context.Context, url string, pid uint32) (w Waiting, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := Connect(ctx, url)
	if err != nil {
		return w, err
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is pending
	return ReadWaiting(ctx, conn, int32(pid))
}

// ReadWaiting asks for the cause of the wait of the server process pid.
func ReadWaiting(ctx context.Context, conn *pgx.Conn, pid int32) (w Waiting, err error) {
	known := false
	var event, gid, database, application, user string
	var blocker *int32
	var age float64
	rows, _ := conn.Query(ctx, waitingQuery, pid) // ForEachRow returns the error
	_, err = pgx.ForEachRow(rows, []any{&event, &blocker, &gid, &database, &application, &user, &age}, func() error {
		known, w.Event = true, event
		if blocker != nil {
			w.For = append(w.For, Blocker{PID: *blocker, GID: gid, Database: database, Application: application, User: user,
				Age: time.Duration(age * float64(time.Second))})
		}
		return nil
	})
	if err == nil && !known {
		err = errForgotten
	}
	return w, err
}
