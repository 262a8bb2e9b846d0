package catalog

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// connect opens an ordinary connection for a single test and runs statements
// there.
func connect(t *testing.T, url string, statements ...string) *pgx.Conn {
	t.Helper()
	conn := must.Get(Connect(pgtest.Context(t), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	pgtest.Execute(t, conn, "RESET search_path") // statements of tests are an application's
	pgtest.Execute(t, conn, statements...)
	return conn
}

// replication opens a replication connection for a single test.
func replication(t *testing.T, url string) *pgconn.PgConn {
	t.Helper()
	conn := must.Get(ConnectReplication(pgtest.Context(t), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// wantConfig asserts that err is of class Config and has a remedy.
func wantConfig(t *testing.T, err error) {
	t.Helper()
	if failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" {
		t.Errorf("error %v: class %v, remedy %q; want class Config and a remedy",
			err, failure.ClassOf(err), failure.RemedyOf(err))
	}
}

func TestReadServer(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	conn := connect(t, url)
	s := must.Get(ReadServer(pgtest.Context(t), conn))(t)
	id := must.Get(Identify(pgtest.Context(t), replication(t, url)))(t)

	if s.SystemID != id.SystemID || s.Timeline != id.Timeline || s.Database != id.Database {
		t.Errorf("ReadServer says %+v, IDENTIFY_SYSTEM says %+v", s, id)
	}
	if s.Major() < 14 || s.WALLevel != "logical" || s.InRecovery || s.FlushLSN == 0 || s.FlushLSN > id.FlushLSN {
		t.Errorf("unlikely state %+v", s)
	}
	if s.MaxSlots == 0 || s.MaxSenders == 0 {
		t.Errorf("no capacity in %+v", s)
	}
	if s.MaxSlotWALKeepSize != -1 {
		t.Errorf("max_slot_wal_keep_size is %d, want -1", s.MaxSlotWALKeepSize)
	}
	for _, want := range []time.Duration{90 * time.Second, 1500 * time.Millisecond, 48 * time.Hour, 0} {
		pgtest.Execute(t, conn, `SET wal_sender_timeout = `+strconv.FormatInt(want.Milliseconds(), 10))
		if s, err := ReadServer(pgtest.Context(t), conn); err != nil || s.WALSenderTimeout != want {
			t.Errorf("wal_sender_timeout is %s, %v, want %s", s.WALSenderTimeout, err, want)
		}
	}
}
