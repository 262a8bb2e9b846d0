package stream

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// A standby may have a readable slot of its own. A stream from the standby would go on
// over the promotion, and then look like the stream of a standby fallen behind. So the
// stream begins after the promotion.
func TestE2EStandbyIsReadOncePromoted(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	d := p.d
	d.exec("CREATE PUBLICATION cdc_outbox FOR TABLE outbox")
	eventually(t, "the publication", func() bool { return p.s.text("SELECT count(*)::text FROM pg_publication") == "1" })
	made := make(chan error, 1)
	go func() {
		_, err := p.s.conn.Exec(t.Context(), "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", d.opts.Slot)
		made <- err
	}()
	eventually(t, "the standby's own slot", func() bool {
		d.exec("SELECT pg_log_standby_snapshot()")
		select {
		case err := <-made:
			if err != nil {
				t.Fatal(err)
			}
			return true
		default:
			return false
		}
	})
	d.opts.URL = p.s.url
	d.opts.Checkpoint.Store = store.StoreKafka
	i := d.run()
	eventually(t, "a look at the standby", func() bool {
		return matches("is a standby", i.status().PostgresError)
	})
	d.insert(3, 1)
	p.replicate(d.lsn("SELECT pg_current_wal_flush_lsn()::text"))
	p.primary.Stop(t, pgtest.Immediate)
	p.promote()
	i.streams()
	d.arrive()
	d.publish(3, 1)
	i.stop()
	d.insert(3, 1)
	i = d.run()
	d.arrive()
	d.finish(i)
}

// A standby with the slot's position, but not yet the row of the checkpoint written before
// the confirmation, takes over after a crash: the slot is ahead of the checkpoint, and
// nobody has advanced it.
func TestE2EFailoverToACopyOfTheSlotAheadOfItsCheckpoint(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("connector restarted %t", restart), func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			d := p.d
			store := &valve{Store: d.inPostgres()}
			i := d.start(store, &gate{topic: d.topic}).streams()
			d.publish(1, 1)
			next := p.holdsNextCheckpoint(store, d.topic)
			p.copyPasses(store, next, next)

			p.primary.Stop(t, pgtest.Immediate)
			if restart {
				i.stop()
			}
			if row, copied := p.stored(), p.copied(); row >= copied {
				t.Fatalf("the checkpoint's row came through: %s, the slot is at %s", row, copied)
			}
			p.promote()
			if restart {
				i = d.start(d.inPostgres(), &gate{topic: d.topic})
			}
			i.streams()
			d.publish(1, 1)
			d.finish(i)
		})
	}
}

// holdsNextCheckpoint waits for a copy of the slot, publishes a second event and holds the
// checkpoint behind. It returns the checkpoint's position.
func (p *pair) holdsNextCheckpoint(store *valve, to *topic) (next pg.LSN) {
	p.t.Helper()
	eventually(p.t, "a copy of the slot", func() bool {
		p.d.exec("SELECT pg_log_standby_snapshot()") // a temporary copy waits for a snapshot
		return p.copied() > 0
	})
	store.hold()
	p.d.insert(1, 1)
	eventually(p.t, "the next checkpoint", func() bool {
		next = store.waits()
		all := to.all()
		return len(all) == 2 && next > all[1].position.CommitLSN
	})
	return next
}

// copyPasses gives the standby the log up to an LSN and no more, lets the checkpoint
// through, and waits until the copy of the slot has followed to the checkpoint.
func (p *pair) copyPasses(store *valve, log, checkpoint pg.LSN) {
	p.t.Helper()
	p.replicate(log)
	pgtest.Freeze(p.t, p.d.url, "backend_type = 'walsender' AND application_name = 'walreceiver'")
	store.open()
	eventually(p.t, "the copy to follow", func() bool { return p.copied() >= checkpoint })
}

// The new stream's start must not confirm events in flight at such a takeover: they are
// neither acknowledged nor saved.
func TestE2EFailoverToACopyOfTheSlotWithEventsInFlight(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	d := p.d
	store, g := &valve{Store: d.inPostgres()}, &gate{topic: &topic{}}
	i := d.start(store, g).streams()
	d.insert(1, 1)
	arrive(t, g.topic, 1)
	next := p.holdsNextCheckpoint(store, g.topic)
	g.hold()
	d.insert(1, 1)
	g.waits(t)
	p.copyPasses(store, d.lsn("SELECT pg_current_wal_flush_lsn()::text"), next)
	p.primary.Stop(t, pgtest.Immediate)
	if row, copied := p.stored(), p.copied(); row >= copied {
		t.Fatalf("the checkpoint's row came through: %s, the slot is at %s", row, copied)
	}
	p.promote()
	eventually(t, "a new stream", func() bool { return d.walsender() != 0 })
	d.heard()
	confirmed := d.confirmed()
	if waits, _ := g.unacked(); confirmed > waits {
		t.Errorf("the slot is confirmed up to %s, but an event of %s has no ack", confirmed, waits)
	}
	g.open()
	d.insert(1, 1)
	arrive(t, g.topic, len(d.ids))
	i.stop()
	wantOnce(t, g.topic, d.ids)
}

// valve is a store with a way to make saves wait.
type valve struct {
	checkpoint.Store
	door
	mu      sync.Mutex
	waiting pg.LSN
}

func (v *valve) Save(ctx context.Context, cp checkpoint.Checkpoint) error {
	if v.held() != nil {
		v.mu.Lock()
		v.waiting = cp.LSN
		v.mu.Unlock()
	}
	if err := v.pass(ctx); err != nil {
		return err
	}
	return v.Store.Save(ctx, cp)
}

// waits is the position of the last waiting save.
func (v *valve) waits() pg.LSN {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.waiting
}

// pair is a server and a standby with copies of its slots, and an outbox with both in
// source.url.
type pair struct {
	t       *testing.T
	primary *pgtest.Server
	d       *database // at the primary
	s       *database // at the standby
}

func newPair(t *testing.T) *pair {
	t.Helper()
	servers := pgtest.StartPair(t)
	d := newDatabase(t, servers.Primary.NewDatabase(t))
	at, beside := mustParse(t, d.url), mustParse(t, servers.Standby.URL("postgres"))
	p := &pair{t: t, primary: servers.Primary, d: d, s: &database{t: t, url: beside.String(), opts: d.opts, event: d.event, route: d.route, limits: d.limits}}
	p.s.connect()
	pgtest.Await(t, p.s.conn, "SELECT count(*) > 0 FROM pg_database WHERE datname = $1", strings.Trim(at.Path, "/"))
	beside.Path = at.Path
	p.s.url = beside.String()
	p.s.connect()
	at.Host += "," + beside.Host
	at.RawQuery = "target_session_attrs=read-write"
	d.opts.URL = at.String()
	d.opts.Checkpoint.Store = store.StorePostgres
	d.limits.close = time.Second
	return p
}

// copied is the position of the standby's copy of the slot, or 0.
func (p *pair) copied() pg.LSN {
	p.t.Helper()
	return p.s.lsn(`SELECT COALESCE(max(confirmed_flush_lsn), '0/0')::text FROM pg_replication_slots
		WHERE synced AND NOT temporary AND slot_name = '` + p.d.opts.Slot + "'")
}

// stored is the position of the checkpoint in the log received by the standby.
func (p *pair) stored() pg.LSN {
	p.t.Helper()
	eventually(p.t, "the standby to have replayed all", func() bool {
		return p.s.text("SELECT (pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn())::text") == "true"
	})
	return p.s.lsn("SELECT checkpoint->>'lsn' FROM checkpoints")
}

// replicate returns once the standby has the log up to a position.
func (p *pair) replicate(to pg.LSN) {
	p.t.Helper()
	eventually(p.t, "the standby to have the log", func() bool {
		return p.s.lsn("SELECT COALESCE(pg_last_wal_receive_lsn(), '0/0')::text") >= to
	})
}

// promote makes the standby the server of the outbox.
func (p *pair) promote() {
	p.t.Helper()
	p.s.exec("SELECT pg_promote()")
	p.d.url = p.s.url
	p.d.connect()
}

// The active instance knows the instances waiting for its slot, and for no other.
func TestActiveInstanceKnowsItsStandbys(t *testing.T) {
	d := outbox(t)
	active := d.run().streams()
	first, second := d.run(), d.run()
	eventually(t, "both standbys to be known", func() bool { return len(active.status().Standbys) == 2 })
	for _, h := range active.status().Standbys {
		if h.PID == 0 || h.Application != "cdc-outbox" || h.Address == "" || h.Since == nil {
			t.Errorf("a standby without details: %+v", h)
		}
	}
	if st := first.status(); st.Standbys != nil {
		t.Errorf("a standby names standbys: %v", st.Standbys)
	}
	second.stop()
	eventually(t, "one standby to be known", func() bool { return len(active.status().Standbys) == 1 })
	active.stop()
	first.streams()
	third := d.run()
	eventually(t, "the next holder to know the next standby", func() bool { return len(first.status().Standbys) == 1 })
	third.stop()
	first.stop()
}
