package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// scenario is something to measure.
type scenario struct {
	name, about string
	usual       bool // part of everything measured when nothing is asked for
	play        func(ctx context.Context, s *stage, name string) error
}

// scenarios but the first change the first in a single respect.
var scenarios = []scenario{
	{"default", "-rows rows, -per-tx per transaction", true, changed(nil)},
	{"single", "one row per transaction", true, changed(func(l *rig.Load) { l.PerTx = 1 })},
	{"payload", "payloads of 10 kB, a third of the rows", true, changed(func(l *rig.Load) { l.Payload, l.Rows = 10_000, l.Rows/3 })},
	{"others", "nine of ten rows are of a table that is not published, a third of the rows", true,
		changed(func(l *rig.Load) { l.Others, l.Rows = 9, l.Rows/3 })},
	{"socket", "over the Unix socket", true, overSocket},
	{"100kB", "payloads of 100 kB, a hundredth of the rows", false, changed(func(l *rig.Load) { l.Payload, l.Rows = 100_000, max(l.Rows/100, 10*l.PerTx) })},
	{"1MB", "payloads of 1 MB, a thousandth of the rows", false, changed(func(l *rig.Load) { l.Payload, l.Rows = 1_000_000, max(l.Rows/1000, 10*l.PerTx) })},
	{"topics", "of 1,000 topics, a partition each", false, changed(func(l *rig.Load) { l.Topics, l.Partitions = 1000, 1 })},
	{"partitions", "1,000 partitions", false, changed(func(l *rig.Load) { l.Partitions = 1000 })},
	{"hot", "half of the events have the same key", false, changed(func(l *rig.Load) { l.Hot = true })},
	{"transaction", "-transaction-rows rows in one transaction", false, oneTransaction},
	{"size", "a tenth of -size-rows rows, then all: the speed and the memory are to be the same", false, twoSizes},
	{"message", "events as messages, against the same as rows", false, messages},
	{"network", "each of -delays before PostgreSQL, Kafka, and both, against none", false, network},
	{"decode", "no connector: publications with row filters, one slot and two (PostgreSQL 15 and later)", false, decode},
	{"split", "no connector: one database and a slot, two databases with a slot each", false, split},
}

func find(name string) *scenario {
	for n := range scenarios {
		if scenarios[n].name == name {
			return &scenarios[n]
		}
	}
	return nil
}

// alone are the scenarios that no rival takes part in.
var alone = rig.List{"message", "network", "decode", "split"}

func names(list []scenario) (all rig.List) {
	for _, s := range list {
		all = append(all, s.name)
	}
	return all
}

// usual are the names of everything measured when nothing is asked for.
func usual() rig.List {
	var list []scenario
	for _, s := range scenarios {
		if s.usual {
			list = append(list, s)
		}
	}
	return names(list)
}

func described() string {
	var b strings.Builder
	for _, s := range scenarios {
		fmt.Fprintf(&b, "%s: %s\n", s.name, s.about)
	}
	return b.String()
}

// changed drains the default's load, changed.
func changed(change func(*rig.Load)) func(context.Context, *stage, string) error {
	return func(ctx context.Context, s *stage, name string) error {
		load := s.load
		if change != nil {
			change(&load)
		}
		return s.compare(ctx, name, load, s.socket)
	}
}

func overSocket(ctx context.Context, s *stage, name string) error {
	return s.compare(ctx, name, s.load, true)
}

func oneTransaction(ctx context.Context, s *stage, name string) error {
	load := s.load
	load.Rows, load.PerTx = s.huge, s.huge
	return s.compare(ctx, name, load, s.socket)
}

func twoSizes(ctx context.Context, s *stage, name string) error {
	load := s.load
	for _, load.Rows = range []int{s.many / 10, s.many} {
		if err := s.compare(ctx, name, load, s.socket); err != nil {
			return err
		}
	}
	return nil
}
