package store

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

// What a save that was given up still does, when its server process or the network
// comes to, does not set back what was saved since: the slot is confirmed up to
// there.
func TestPostgresSaveThatWasGivenUpComesLate(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).NewDatabase(t)
	s := postgresAt(url, "checkpoints").store(t, "a")
	save(t, s, sample(1))
	thaw := pgtest.Freeze(t, url, storeSessions)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.Save(ctx, sample(2)); err == nil {
		t.Fatal("the frozen server answered")
	}
	save(t, s, sample(3))
	thaw()
	conn, err := pgx.Connect(limited(t), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(limited(t))
	late := true
	for late { // until limited ends it
		if err := conn.QueryRow(limited(t), `SELECT count(*) > 1 FROM pg_stat_activity WHERE `+storeSessions).Scan(&late); err != nil {
			t.Fatal(err)
		}
	}
	wantLoad(t, s, sample(3))
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
