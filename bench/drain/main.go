// Command drain measures how fast the connector drains a backlog, against the
// limit that PostgreSQL sets: pg_recvlogical reading the same backlog into
// /dev/null. The two take turns on one server in one run, because the speed of
// a machine drifts; only the ratios of neighbours count.
//
//	go run ./bench/drain [-rows N] [-rounds N] [-mode table|message|both] …
//
// With -mode message the backlog is of messages without a table; with -mode both
// there is one of each, of the same events, and the connector drains them by
// turns: their ratio is what message mode gains.
//
// Both read through copies of one replication slot and the same transport, TCP
// unless told otherwise: that is how a database on another machine is read. The
// connector's time is that of its process from start to the confirmation of the
// backlog's end in the slot; pg_recvlogical's is that of its process with
// --endpos. The broker is kfake in a process of its own, so that the
// connector's CPU time and memory are its own.
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// topic is where the events go.
const topic = "outbox.event.order"

type options struct {
	rows, perTx, payload, others int
	rounds, partitions           int
	mode                         string
	socket                       bool
	binary                       string
	set                          settings
}

// The values of -mode.
const (
	modeTable   = "table"
	modeMessage = "message"
	modeBoth    = "both"
)

// settings are --set flags handed to the connector.
type settings []string

func (s *settings) String() string     { return fmt.Sprint(*s) }
func (s *settings) Set(v string) error { *s = append(*s, v); return nil }

func main() { rig.Main("drain", start) }

func start(ctx context.Context) error {
	var o options
	flag.IntVar(&o.rows, "rows", 300_000, "outbox rows in the backlog")
	flag.IntVar(&o.perTx, "per-tx", 10, "outbox rows per transaction")
	flag.IntVar(&o.payload, "payload", 500, "bytes of payload; the row is about 100 more")
	flag.IntVar(&o.others, "others", 0, "rows of another table per outbox row")
	flag.IntVar(&o.rounds, "rounds", 5, "paired rounds")
	flag.IntVar(&o.partitions, "partitions", 6, "partitions of the topic")
	flag.StringVar(&o.mode, "mode", modeTable, "what the backlog is of: table, message, or both, which compares them")
	flag.BoolVar(&o.socket, "socket", false, "connect over the Unix socket instead of TCP loopback")
	flag.StringVar(&o.binary, "binary", "", "the connector; built from this tree when empty")
	flag.Var(&o.set, "set", "a configuration key=value for the connector, repeatable")
	flag.Parse()
	if o.mode != modeTable && o.mode != modeMessage && o.mode != modeBoth {
		return fmt.Errorf("-mode %s: want %s, %s or %s", o.mode, modeTable, modeMessage, modeBoth)
	}
	return run(ctx, o)
}

func run(ctx context.Context, o options) error {
	binary, remove, err := rig.Connector(ctx, o.binary)
	if err != nil {
		return err
	}
	defer remove()
	o.binary = binary
	db, err := startDatabase(ctx, o)
	if err != nil {
		return err
	}
	defer db.close()
	fmt.Printf("backlog of mode %s: %d events of %d+100 bytes, %d per transaction, %d other rows per event; %s\n",
		o.mode, o.rows, o.payload, o.perTx, o.others, db.describe())
	if o.mode == modeBoth {
		return compare(ctx, o, db)
	}

	var results []round
	for n := range o.rounds {
		r, err := measure(ctx, o, db, n)
		if err != nil {
			return fmt.Errorf("round %d: %w", n+1, err)
		}
		fmt.Println(r.line(n + 1))
		results = append(results, r)
	}
	fmt.Println(summary(results))
	return nil
}
