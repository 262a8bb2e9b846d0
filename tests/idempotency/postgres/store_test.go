package postgres_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
)

// A refused claim reads only: no row version, and no transaction id, which would
// cost a flush of the log.
func TestRefusalsWriteNothing(t *testing.T) {
	pool := database(t, postgres.Options{})
	s := newStore(t, pool, postgres.Options{})
	c := claim(t, s, key("a"), request())
	version := func() string {
		return query[string](t, pool, `SELECT xmin::text || xmax || ctid FROM idempotency_keys`)
	}

	before := version()
	if c, err := s.Claim(limited(t), key("a"), request()); err != nil || c.Outcome != storage.InProgress {
		t.Fatal(c, err)
	}
	if after := version(); after != before {
		t.Errorf("in progress: the row was %s and is %s", before, after)
	}
	if err := s.Complete(limited(t), c.Lease, nil, retention); err != nil {
		t.Fatal(err)
	}
	before = version()
	if c, err := s.Claim(limited(t), key("a"), request()); err != nil || c.Outcome != storage.Duplicate {
		t.Fatal(c, err)
	}
	if after := version(); after != before {
		t.Errorf("duplicate: the row was %s and is %s", before, after)
	}
}

// A state of another program, or of a later version, is not taken for none.
func TestAnUnknownStateIsNamed(t *testing.T) {
	pool := database(t, postgres.Options{})
	s := newStore(t, pool, postgres.Options{})
	claim(t, s, key("a"), request())
	if _, err := pool.Exec(limited(t), `UPDATE idempotency_keys SET state = 'INPROGRESS'`); err != nil {
		t.Fatal(err)
	}
	_, claimErr := s.Claim(limited(t), key("a"), request())
	_, inspectErr := s.Inspect(limited(t), key("a"))
	_, releaseErr := s.Release(limited(t), key("a"))
	for _, err := range []error{claimErr, inspectErr, releaseErr} {
		if err == nil || !strings.Contains(err.Error(), `"INPROGRESS"`) || storage.Answered(err) {
			t.Errorf("%v; want an error that names the state", err)
		}
	}
}

// Changes of a row touch no index, so a key costs a single index entry.
func TestChangesAreHOT(t *testing.T) {
	pool := database(t, postgres.Options{}, func(c *pgxpool.Config) { c.MaxConns = 1 })
	s := newStore(t, pool, postgres.Options{})
	c := claim(t, s, key("a"), request())
	const changes = 100
	for range changes {
		if err := s.Extend(limited(t), c.Lease, 2*retention); err != nil { // changes the columns of a settlement
			t.Fatal(err)
		}
	}
	counted := func(column string) int64 { // a backend reports its counts once a second
		return query[int64](t, pool, `SELECT `+column+` FROM pg_stat_user_tables WHERE relname = 'idempotency_keys'`)
	}
	await.Until(t, "the changes are counted", func() bool { return counted("n_tup_upd") == changes })
	if hot := counted("n_tup_hot_upd"); hot < changes*9/10 {
		t.Errorf("%d of %d changes were HOT", hot, changes)
	}
}

// The fence of a claim is later than a forgotten claim's, even if the claim began
// earlier and had to wait.
func TestFenceOfAClaimThatWaited(t *testing.T) {
	pool := database(t, postgres.Options{})
	s := newStore(t, pool, postgres.Options{})
	tx := begin(t, pool)
	in := newStore(t, sameTransaction{tx}, postgres.Options{})
	first := claim(t, in, key("a"), request())

	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	waited := make(chan storage.Claim, 1)
	running.Go(func() {
		c, err := s.Claim(limited(t), key("a"), request())
		if err != nil || c.Outcome != storage.Claimed {
			t.Errorf("the claim that waited: %s, %v", c.Outcome, err)
		}
		waited <- c
	})
	await.Until(t, "the claim waits", func() bool {
		return query[int](t, pool, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	})
	if err := in.Fail(limited(t), first.Lease, storage.Failure{Retention: retention}); err != nil {
		t.Fatal(err)
	}
	second := claim(t, in, key("a"), request())
	states := []storage.State{storage.Processing}
	if n, err := in.Purge(limited(t), storage.Filter{Scope: "test", ID: "a", States: states}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := tx.Commit(limited(t)); err != nil {
		t.Fatal(err)
	}
	if c := <-waited; c.Lease.Fence <= second.Lease.Fence {
		t.Errorf("fence %d after %d", c.Lease.Fence, second.Lease.Fence)
	}
}

// A claim waiting for a row ends with the context, and the error is no answer.
func TestClaimHonoursContext(t *testing.T) {
	pool := database(t, postgres.Options{})
	s := newStore(t, pool, postgres.Options{})
	claim(t, s, key("a"), request())
	exec(t, pool, `UPDATE idempotency_keys SET blocked_until = clock_timestamp()`)
	tx := begin(t, pool)
	if _, err := tx.Exec(limited(t), `SELECT FROM idempotency_keys FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if c, err := s.Claim(ctx, key("a"), request()); storage.Answered(err) {
		t.Errorf("claim of a locked row: %s, %v; want the context's error", c.Outcome, err)
	}
}
