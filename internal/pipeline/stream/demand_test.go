package stream

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/catchup"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Failure mode 184. A demanded position is saved when it is reached, and no other
// for that.
func TestCheckpointerSavesADemandedPosition(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		pass(interval)
		k.demand(1050)
		k.idleTo(t, 1049)
		pass(interval)
		k.want(t, 1000)
		k.idleTo(t, 1051)
		pass(0)
		k.want(t, 1000, 1051)
		k.idleTo(t, 1060)
		pass(10 * interval)
		k.want(t, 1000, 1051)
	})
}

// A demand for a position that was reached before is met at once, but not more
// often than events are.
func TestCheckpointerSavesDemandsWithinTheInterval(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		k.idleTo(t, 1001)
		k.demand(1001)
		pass(interval)
		k.want(t, 1000, 1001)
		for lsn := pg.LSN(1002); lsn <= 1050; lsn++ {
			k.idleTo(t, lsn)
			k.demand(lsn)
		}
		pass(interval)
		k.want(t, 1000, 1001, 1050)
	})
}

// In a busy log, there is a later demand each time an earlier one is reached.
func TestNewDemandsDoNotPutOffTheSave(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		for lsn := pg.LSN(1001); lsn <= 1300; lsn++ {
			k.demand(lsn + 5)
			k.idleTo(t, lsn)
			pass(interval / 100)
		}
		if saves := len(k.store.positions()); saves < 3 {
			t.Errorf("%d saves in three intervals", saves)
		}
	})
}

// A demand of a log that is gone is not in the way of later ones.
func TestDemandsEndWithTheStream(t *testing.T) {
	keep(t, func(t *testing.T, k keeping) {
		pass(interval)
		k.demand(5000)
		k.idleTo(t, 1001)
		k.attach(nil)
		k.demand(1001)
		pass(0)
		k.want(t, 1000, 1001)
	})
}

// Failure mode 184. A running instance hears the demand of a client.
func TestAnInstanceConfirmsOnDemand(t *testing.T) {
	d := outbox(t)
	d.limits.quiet, d.limits.monitor = time.Hour, patience
	i := d.run().streams()
	for range 3 {
		d.exec(`CREATE TABLE IF NOT EXISTS other (n int)`)
		d.exec(`INSERT INTO other VALUES (1)`)
		lsn := d.lsn(`SELECT pg_current_wal_insert_lsn()::text`)
		eventually(t, "confirmation", func() bool {
			d.exec(`SELECT pg_notify(` + pgsql.Literal(catchup.Channel) + `, ` + pgsql.Literal(d.opts.Slot) + `)`)
			return d.confirmed() >= lsn
		})
	}
	d.finish(i)
}

// Why the server has ended the monitor's connection between two looks is not
// forgotten: the next look decides by it.
func TestLastWordsOfTheMonitorsConnection(t *testing.T) {
	d := outbox(t)
	conn := must.Get(catalog.Connect(t.Context(), d.url))(t)
	defer catalog.Close(conn)
	s := &source{opts: d.opts, limits: d.limits, tenure: &tenure{}}
	s.listen(t.Context(), conn)
	d.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`)
	must.OK(t, s.pause(pgtest.Context(t), conn))
	if _, err := s.ask(t.Context(), conn); !errors.Is(catalog.Classify(err), catalog.ErrTerminated) {
		t.Errorf("the look's error is %v", err)
	}
}

// The connection outlives the pause, and a stop during one: the last look is on it.
func TestTheMonitorsConnectionOutlivesPauses(t *testing.T) {
	d := outbox(t)
	conn := must.Get(catalog.Connect(t.Context(), d.url))(t)
	defer catalog.Close(conn)
	s := &source{opts: d.opts, limits: d.limits, tenure: &tenure{}}
	s.listen(t.Context(), conn)
	must.OK(t, s.pause(t.Context(), conn))
	stopped, stop := context.WithCancel(t.Context())
	time.AfterFunc(d.limits.monitor/2, stop)
	if err := s.pause(stopped, conn); !errors.Is(err, context.Canceled) {
		t.Errorf("a pause that was interrupted ends with %v", err)
	}
	must.OK(t, conn.Ping(t.Context()))
	if s.lastWords != nil {
		t.Errorf("last words %v of a living connection", s.lastWords)
	}
}
