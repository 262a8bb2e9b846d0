package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// table is the outbox of the loads.
const table = "outbox"

// mode is a way to read, or none.
type mode struct {
	name     string
	settings []string // of the connector; nil: no connector
	done     string   // query, true once all is published
}

var modes = []mode{
	{name: "writer alone"},
	{
		name:     "stream",
		settings: []string{"source.mode=wal", "source.slot=bench_load"},
		done:     `SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = 'bench_load'`,
	},
	{
		name:     "poll, mark",
		settings: []string{"source.mode=poll"},
		done:     `SELECT NOT EXISTS (SELECT FROM outbox WHERE NOT published) AND $1::pg_lsn IS NOT NULL`,
	},
	{
		name:     "poll, delete",
		settings: []string{"source.mode=poll", "source.poll.after_publish=delete"},
		done:     `SELECT NOT EXISTS (SELECT FROM outbox) AND $1::pg_lsn IS NOT NULL`,
	},
}

// effort is a load's cost.
type effort struct {
	events            int
	server, connector time.Duration
	wal               int64
}

// compareModes measures each mode once and prints the cost of each on top of the
// writer's.
func compareModes(ctx context.Context, s *server, o options, connector *rig.Connector) error {
	fmt.Printf("load: %d events/s of %d+120 bytes for %s, %d per transaction\n", o.rate, o.payload, o.load, o.perTx)
	var alone effort
	for _, m := range modes {
		e, err := measureMode(ctx, s, o, connector, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		per := func(v float64) float64 { return v / float64(e.events) }
		if m.settings == nil {
			alone = e
			fmt.Printf("%-12s: server %.0f µs and %.0f bytes of log per event\n", m.name, per(e.server.Seconds()*1e6), per(float64(e.wal)))
			continue
		}
		scale := float64(e.events) / float64(alone.events)
		fmt.Printf("%-12s: server %+.0f µs and %+.0f bytes of log per event, connector %.0f µs per event\n", m.name,
			per(e.server.Seconds()*1e6-alone.server.Seconds()*1e6*scale), per(float64(e.wal)-float64(alone.wal)*scale), per(e.connector.Seconds()*1e6))
	}
	return nil
}

func measureMode(ctx context.Context, s *server, o options, connector *rig.Connector, m mode) (e effort, err error) {
	if err := s.createOutbox(ctx, table); err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, s.dropSlot(context.WithoutCancel(ctx))) }()
	var program *rig.Program
	if m.settings != nil {
		settings := append([]string{"source.url=" + s.URL, "sink.stdout=true"}, m.settings...)
		if program, err = connector.Run(settings...); err != nil {
			return e, err
		}
		if err := backoff.Sleep(ctx, 3*time.Second); err != nil { // at work then
			return e, err
		}
	}
	if err := s.Exec(ctx, "CHECKPOINT"); err != nil {
		return e, err
	}
	cpu, err := s.ServerTime(ctx)
	if err != nil {
		return e, err
	}
	from, err := s.WAL(ctx)
	if err != nil {
		return e, err
	}
	if e.events, err = s.write(ctx, o); err != nil {
		return e, err
	}
	if program != nil {
		if err := s.awaitPublished(ctx, m); err != nil {
			return e, err
		}
		used, err := program.Stop()
		if err != nil {
			return e, err
		}
		e.connector = used.CPU
	}
	if err := s.Exec(ctx, "VACUUM "+table, "CHECKPOINT"); err != nil {
		return e, err
	}
	to, err := s.WAL(ctx)
	if err != nil {
		return e, err
	}
	e.wal = to - from
	now, err := s.ServerTime(ctx)
	e.server = now - cpu
	return e, err
}

// write commits events at the rate, and returns how many.
func (s *server) write(ctx context.Context, o options) (events int, err error) {
	const batch = `INSERT INTO ` + table + ` (aggregatetype, aggregateid, type, payload)
		SELECT 'order', (random() * 10000)::int::text, 'OrderPlaced', jsonb_build_object('order', n, 'note', repeat(md5(n::text), $2 / 32))
		  FROM generate_series(1, $1) n`
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.Background())
	began := time.Now()
	for time.Since(began) < o.load {
		due := int(time.Since(began).Seconds() * float64(o.rate))
		if events >= due {
			if err := backoff.Sleep(ctx, time.Millisecond); err != nil {
				return events, err
			}
			continue
		}
		if _, err := conn.Exec(ctx, batch, o.perTx, o.payload); err != nil {
			return events, err
		}
		events += o.perTx
	}
	return events, nil
}

func (s *server) awaitPublished(ctx context.Context, m mode) error {
	var end string
	if err := s.Conn.QueryRow(ctx, `SELECT pg_current_wal_lsn()::text`).Scan(&end); err != nil {
		return err
	}
	return rig.Await(ctx, 10*time.Millisecond, func() (done bool, err error) {
		err = s.Conn.QueryRow(ctx, m.done, end).Scan(&done)
		return done, err
	})
}

func (s *server) dropSlot(ctx context.Context) error {
	return s.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active`)
}
