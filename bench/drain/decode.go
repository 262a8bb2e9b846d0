package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// decode measures how much of a walsender's work a publication's row filter can divide
// among slots. The work left where no row passes is each slot's.
func decode(ctx context.Context, s *stage, name string) error {
	db, err := s.database(ctx, 1, s.load)
	if err != nil {
		return err
	}
	defer db.Close()
	for publication, filter := range map[string]string{
		"no_row": `aggregateid = 'nobody'`, "half_a": `mod(hashtext(aggregateid), 2) = 0`, "half_b": `mod(hashtext(aggregateid), 2) <> 0`,
	} {
		if err := db.Exec(ctx, `CREATE PUBLICATION `+publication+` FOR TABLE outbox WHERE (`+filter+`) WITH (publish = 'insert')`); err != nil {
			return err
		}
	}
	b, err := db.Fill(ctx, "bench_backlog", s.load)
	if err != nil {
		return err
	}
	from := source{db, db.URL, b}
	for _, reader := range []string{limitName, bareName} {
		read := func(publications ...string) take {
			var parts []part
			for _, publication := range publications {
				parts = append(parts, readers[reader](from, publication))
			}
			return s.readings(b.Events(), parts...)
		}
		if err := s.play(ctx, label(name, reader, s.load), []figures.Turn{
			{Subject: "all rows", Take: read(rig.Publication)},
			{Subject: "no row", Take: read("no_row")},
			{Subject: "half the rows", Take: read("half_a")},
			{Subject: "2 slots, half each", Take: read("half_a", "half_b")},
		}); err != nil {
			return err
		}
	}
	return nil
}

// split measures the gain of two databases on a single server: each walsender reads the
// log of both, and decodes its own database's.
func split(ctx context.Context, s *stage, name string) error {
	db, err := s.database(ctx, 2, s.load)
	if err != nil {
		return err
	}
	defer db.Close()
	whole, err := db.Fill(ctx, "bench_backlog", s.load)
	if err != nil {
		return err
	}
	half := s.load
	half.Rows /= 2
	var halves []source
	for _, name := range []string{"first", "second"} {
		one, err := db.CreateDatabase(ctx, name)
		if err != nil {
			return err
		}
		defer one.Close()
		if err := one.CreateOutbox(ctx); err != nil {
			return err
		}
		halves = append(halves, source{one, one.URL, rig.Backlog{Slot: "bench_" + name}})
	}
	if err := fillAll(ctx, halves, half); err != nil {
		return err
	}
	for _, reader := range []string{limitName, bareName} {
		read := func(sources ...source) take {
			var parts []part
			for _, from := range sources {
				parts = append(parts, readers[reader](from, rig.Publication))
			}
			return s.readings(whole.Events(), parts...)
		}
		if err := s.play(ctx, label(name, reader, s.load), []figures.Turn{
			{Subject: "one database", Take: read(source{db, db.URL, whole})},
			{Subject: "one of two", Take: read(halves[0])},
			{Subject: "both, 2 slots", Take: read(halves...)},
		}); err != nil {
			return err
		}
	}
	return nil
}

// fillAll fills all at once, to mix their transactions in the log.
func fillAll(ctx context.Context, all []source, load rig.Load) error {
	failed := make([]error, len(all))
	var filling sync.WaitGroup
	for n := range all {
		filling.Go(func() { all[n].Backlog, failed[n] = all[n].db.Fill(ctx, all[n].Slot, load) })
	}
	filling.Wait()
	return errors.Join(failed...)
}

// messages measures events without a table, against the same events as rows.
func messages(ctx context.Context, s *stage, name string) error {
	db, err := s.database(ctx, 2, s.load)
	if err != nil {
		return err
	}
	defer db.Close()
	var turns []figures.Turn
	for _, kind := range []string{"rows", "messages"} {
		load := s.load
		load.Messages = kind == "messages"
		b, err := db.Fill(ctx, "bench_"+kind, load)
		if err != nil {
			return fmt.Errorf("fill the backlog of %s: %w", kind, err)
		}
		from := source{db, db.URL, b}
		turns = append(turns,
			figures.Turn{Subject: oursName + ", " + kind, Take: s.drain(from)},
			figures.Turn{Subject: limitName + ", " + kind, Take: s.readings(b.Events(), from.recvlogical(rig.Publication))})
	}
	return s.play(ctx, label(name, s.broker.Name, s.load), turns)
}
