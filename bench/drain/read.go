package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// take measures something once.
type take = func(ctx context.Context) (map[string]float64, error)

// source is a backlog, and how the database is reached.
type source struct {
	db  *rig.Database
	url string
	rig.Backlog
}

// part is a reader of a source, beside others.
type part struct {
	source
	reader func(slot string) (rig.Reader, error)
}

// The names of readers.
const (
	bareName  = "bare reader"
	limitName = "pg_recvlogical"
)

// readers are ways to read a publication of a source.
var readers = map[string]func(s source, publication string) part{bareName: source.bare, limitName: source.recvlogical}

// bare is the connector's package wal alone.
func (s source) bare(publication string) part {
	return part{s, func(slot string) (rig.Reader, error) {
		return rig.BareReader(s.url, slot, s.End, publication)
	}}
}

// recvlogical is pg_recvlogical.
func (s source) recvlogical(publication string) part {
	return part{s, func(slot string) (rig.Reader, error) {
		return rig.Recvlogical(s.url, slot, s.End, publication, s.Messages)
	}}
}

// readings measures readers at once. Each value is per event, of so many events in all.
func (s *stage) readings(events int, parts ...part) take {
	return func(ctx context.Context) (_ map[string]float64, err error) {
		var readers []rig.Reader
		for n, p := range parts {
			slot := fmt.Sprintf("bench_reader_%d", n)
			if err := p.db.CopySlot(ctx, p.Slot, slot); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, p.db.DropSlot(slot)) }()
			reader, err := p.reader(slot)
			if err != nil {
				return nil, err
			}
			readers = append(readers, reader)
		}
		all, err := parts[0].db.Read(ctx, readers...)
		if err != nil {
			return nil, err
		}
		var sum, busiest rig.Reading
		for _, r := range all {
			sum.Took = max(sum.Took, r.Took)
			sum.Reader.CPU += r.Reader.CPU
			sum.Reader.Peak += r.Reader.Peak
			sum.Server += r.Server
			busiest.Server = max(busiest.Server, r.Server)
		}
		values := perEvent(events, sum)
		if len(parts) > 1 {
			values[metricBusiest] = perEvent(events, busiest)[metricServer]
		}
		return values, nil
	}
}

func perEvent(events int, r rig.Reading) map[string]float64 {
	n := float64(events)
	return map[string]float64{
		metricRate:   n / r.Took.Seconds(),
		metricCPU:    r.Reader.CPU.Seconds() * 1e6 / n,
		metricServer: r.Server.Seconds() * 1e6 / n,
		metricPeak:   r.Reader.Peak,
	}
}
