package checkpoint

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

const storeSessions = `datname = current_database() AND application_name = 'cdc-outbox checkpoint'`

// A server process that says nothing any more is given up, although the caller
// set no limit, and the save done by another one.
func TestPostgresSaveAtAServerThatIsSilent(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).NewDatabase(t)
	s := postgresAt(url, "checkpoints").store(t, "a")
	save(t, s, sample(1))
	pgtest.Freeze(t, url, storeSessions)
	ended := make(chan error, 1)
	go func() { ended <- s.Save(context.WithoutCancel(t.Context()), sample(2)) }()
	wantEnd(t, ended, func(err error) bool { return err == nil })
	wantLoad(t, s, sample(2))
}

// A table that somebody has locked is said to be so.
func TestPostgresSaveIntoALockedTable(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).NewDatabase(t)
	s := postgresAt(url, "checkpoints").store(t, "a")
	save(t, s, sample(1))
	conn, err := pgx.Connect(limited(t), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(limited(t))
	if _, err := conn.Exec(limited(t), `BEGIN; LOCK TABLE checkpoints`); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Save(context.WithoutCancel(t.Context()), sample(2)) }()
	wantEnd(t, ended, func(err error) bool {
		refused, ok := errors.AsType[*pgconn.PgError](err)
		return ok && refused.Code == "55P03" // lock_not_available
	})
	if _, err := conn.Exec(limited(t), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	save(t, s, sample(2))
	wantLoad(t, s, sample(2))
}

func wantEnd(t *testing.T, ended <-chan error, as func(error) bool) {
	t.Helper()
	select {
	case err := <-ended:
		if !as(err) {
			t.Errorf("the call ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the call does not end")
	}
}
