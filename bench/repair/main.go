// Command repair measures `cdc-outbox repair --publish` of a few missing events
// among many, against the two programs that read the same: pg_recvlogical the
// table's log, and a bare consumer the topic, one after the other. Both sides take
// turns in a single run. A full resync of the same table (source.snapshot: initial)
// stands beside.
//
//	go run ./bench/repair [-rows N] [-missing N] [-rounds N] …
//
// Linux only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

const (
	topic = "outbox.event.order"
	slot  = "bench_repair"
)

type options struct {
	load    rig.Load
	missing int
	rounds  int
	kafka   bool
	binary  string
}

func main() { rig.Main("repair", start) }

func start(ctx context.Context) error {
	var o options
	flag.IntVar(&o.load.Rows, "rows", 5_000_000, "outbox rows")
	flag.IntVar(&o.load.PerTx, "per-tx", 10, "outbox rows per transaction")
	flag.IntVar(&o.load.Payload, "payload", 500, "bytes of payload; the row is about 100 more")
	flag.IntVar(&o.missing, "missing", 1000, "rows of them without a record")
	flag.IntVar(&o.rounds, "rounds", 3, "paired rounds")
	flag.BoolVar(&o.kafka, "kafka", true, "Apache Kafka (needs Java 17 and, once, Maven); false: kfake, in memory")
	flag.StringVar(&o.binary, "binary", "", "the connector; built from this tree when empty")
	flag.Parse()
	if o.rounds < 1 || o.load.PerTx < 1 || o.missing < 1 || o.load.Rows < 10*o.missing {
		return errors.New("want a round, and ten rows for each missing one, at least")
	}
	return run(ctx, o)
}

// stage is where the rounds are played.
type stage struct {
	options
	*rig.Stage
	backlog rig.Backlog
}

func run(ctx context.Context, o options) (err error) {
	s := &stage{options: o}
	if s.Stage, err = rig.Open(ctx, o.binary, map[string]string{"wal_level": "logical"}, o.kafka); err != nil {
		return err
	}
	defer s.Close()
	if err := s.fill(ctx); err != nil {
		return err
	}
	fmt.Printf("%s in PostgreSQL %s and %s %s, %d of them missing\n", o.load, s.DB.Version, s.Broker.Name, s.Broker.Version, o.missing)
	if err := s.rows(ctx); err != nil {
		return err
	}
	return s.resync(ctx)
}

// settings are the connector's, with a slot and a topic.
func (s *stage) settings(slot, topic string, more ...string) []string {
	return append(rig.Wiring(s.DB.URL, slot, s.Broker.Addr, topic), more...)
}

// fill has the connector publish all rows.
func (s *stage) fill(ctx context.Context) (err error) {
	if err := s.DB.CreateOutbox(ctx); err != nil {
		return err
	}
	if err := s.Broker.CreateTopic(ctx, topic, 6); err != nil {
		return err
	}
	if s.backlog, err = s.DB.Fill(ctx, slot, s.load); err != nil {
		return err
	}
	return s.publish(ctx, "bench_fill", topic, "checkpoint.store=none")
}

// publish runs the connector until a copy of the backlog's slot is confirmed.
func (s *stage) publish(ctx context.Context, name, topic string, settings ...string) error {
	if err := s.DB.CopySlot(ctx, slot, name); err != nil {
		return err
	}
	c, err := s.Connector.Run(s.settings(name, topic, settings...)...)
	if err != nil {
		return err
	}
	defer c.Kill()
	if err := s.DB.AwaitConfirmed(ctx, name, s.backlog.End, c.Alive); err != nil {
		return c.Explain(err)
	}
	if _, err := c.Stop(); err != nil {
		return err
	}
	return s.DB.DropSlot(name)
}

// round is what both sides took.
type round struct {
	log, consumer, repair time.Duration
	used                  rig.Usage
}

func (s *stage) rows(ctx context.Context) error {
	var ratios []float64
	for n := range s.rounds {
		r, err := s.round(ctx, n)
		if err != nil {
			return err
		}
		ratio := r.repair.Seconds() / (r.log + r.consumer).Seconds()
		ratios = append(ratios, ratio)
		fmt.Printf("round %d: pg_recvlogical %.1f s, consumer %.1f s; repair --publish %.1f s, %.1f s of processor time, peak %.0f MiB; %.2f of the two\n",
			n+1, r.log.Seconds(), r.consumer.Seconds(), r.repair.Seconds(), r.used.CPU.Seconds(), r.used.Peak, ratio)
	}
	slices.Sort(ratios)
	fmt.Printf("median %.2f\n", ratios[len(ratios)/2])
	return nil
}

// round takes the ids of other rows away, and has each side read.
func (s *stage) round(ctx context.Context, n int) (r round, err error) {
	if err := s.DB.Exec(ctx, fmt.Sprintf(
		`UPDATE outbox SET id = gen_random_uuid() WHERE ctid IN (SELECT ctid FROM outbox TABLESAMPLE SYSTEM (20) REPEATABLE (%d) LIMIT %d)`, n, s.missing)); err != nil {
		return r, err
	}
	name := "bench_read"
	if err := s.DB.CopySlot(ctx, slot, name); err != nil {
		return r, err
	}
	reader, err := rig.Recvlogical(s.DB.URL, name, s.backlog.End, rig.Publication, false)
	if err != nil {
		return r, err
	}
	readings, err := s.DB.Read(ctx, reader)
	if err != nil {
		return r, err
	}
	r.log = readings[0].Took
	if err := s.DB.DropSlot(name); err != nil {
		return r, err
	}
	if r.consumer, err = s.consume(ctx); err != nil {
		return r, err
	}
	before, err := s.Broker.Records(ctx, topic)
	if err != nil {
		return r, err
	}
	if r.repair, r.used, err = s.repair(ctx); err != nil {
		return r, err
	}
	after, err := s.Broker.Records(ctx, topic)
	if err == nil && after-before != int64(s.missing) {
		err = fmt.Errorf("repair published %d events, want %d", after-before, s.missing)
	}
	return r, err
}

// consume reads the topic to its end.
func (s *stage) consume(ctx context.Context) (time.Duration, error) {
	want, err := s.Broker.Records(ctx, topic)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Broker.Addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	for read := int64(0); read < want; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return 0, err
		}
		read += int64(fetches.NumRecords())
	}
	return time.Since(began), nil
}

// repair publishes the missing events. The slot of its configuration is gone.
func (s *stage) repair(ctx context.Context) (took time.Duration, used rig.Usage, err error) {
	began := time.Now()
	p, err := s.Connector.Start([]string{"repair", "--publish", "--timeout", "10m"}, s.settings("bench_lost", topic)...)
	if err != nil {
		return 0, used, err
	}
	defer p.Kill()
	err = rig.Await(ctx, 10*time.Millisecond, func() (bool, error) {
		select {
		case <-p.Exited():
			return true, nil
		default:
		}
		if now, err := p.Usage(); err == nil {
			used = now
		}
		return false, nil
	})
	took = time.Since(began)
	return took, used, errors.Join(err, p.Failed())
}

// resync publishes all rows to another topic, as the way without repair.
func (s *stage) resync(ctx context.Context) error {
	const other = "outbox.event.resync"
	if err := s.Broker.CreateTopic(ctx, other, 6); err != nil {
		return err
	}
	if err := s.DB.DropSlot(slot); err != nil { // the connector would ask whose its events are
		return err
	}
	began := time.Now()
	c, err := s.Connector.Run(s.settings("bench_resync", other, "source.snapshot=initial", "checkpoint.key=resync")...)
	if err != nil {
		return err
	}
	defer c.Kill()
	err = rig.Await(ctx, 100*time.Millisecond, func() (bool, error) {
		n, err := s.Broker.Records(ctx, other)
		return n >= int64(s.load.Events()), errors.Join(err, c.Alive(ctx))
	})
	if err != nil {
		return c.Explain(err)
	}
	fmt.Printf("a full resync: %.1f s\n", time.Since(began).Seconds())
	_, err = c.Stop()
	return err
}
