package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/internal/child"
)

// stage is the servers, and what was measured with them.
type stage struct {
	options
	dir     string // of all that runs here but PostgreSQL
	db      *postgres
	kafka   *kafka
	results *figures.Report
	topics  int
}

func newStage(ctx context.Context, o options) (*stage, error) {
	dir, err := os.MkdirTemp("", "cdc-outbox-debezium-")
	if err != nil {
		return nil, err
	}
	s := &stage{options: o, dir: dir}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stage) start(ctx context.Context) error {
	script, err := child.Script("debezium.sh")
	if err != nil {
		return err
	}
	fmt.Println("getting Debezium, Kafka and PostgreSQL ready")
	debezium, err := child.Output(ctx, "", script, "fetch")
	if err != nil {
		return err
	}
	if s.db, err = startPostgres(ctx); err != nil {
		return err
	}
	if s.kafka, err = startKafka(ctx, s.dir); err != nil {
		return err
	}
	s.results = &figures.Report{
		Benchmark: "debezium",
		Began:     time.Now().UTC().Truncate(time.Second),
		Machine:   fmt.Sprintf("%d processors, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH),
		Versions: map[string]string{
			"PostgreSQL": s.db.version, "Apache Kafka": s.kafka.version, "Debezium": lastLine(debezium), "Go": runtime.Version(),
		},
		Settings:       map[string]string{},
		Configurations: map[string]map[string]string{},
		Metrics:        metrics,
	}
	flag.VisitAll(func(f *flag.Flag) { s.results.Settings[f.Name] = f.Value.String() })
	fmt.Printf("PostgreSQL %s, Apache Kafka %s, %s; %s\n", s.db.version, s.kafka.version, lastLine(debezium), s.results.Machine)
	return nil
}

// close ends all, and removes all data.
func (s *stage) close() error {
	if s.kafka != nil {
		s.kafka.stop()
	}
	if s.db != nil {
		s.db.close()
	}
	return os.RemoveAll(s.dir)
}

// nextTask makes a topic and the name of a slot.
func (s *stage) nextTask(ctx context.Context) (task, error) {
	s.topics++
	t := task{slot: fmt.Sprintf("bench_%d", s.topics), topic: fmt.Sprintf("bench-%d", s.topics)}
	return t, s.kafka.createTopic(ctx, t.topic, s.partitions)
}

// finish removes what nextTask made.
func (s *stage) finish(t task) error {
	return errors.Join(s.db.dropSlot(t.slot), s.kafka.deleteTopic(t.topic))
}

// The subjects.

func (s *stage) ours() subject { return ours{s.binary, s.dir, s.db, s.kafka, s.set} }

// tuned is Debezium as it is at its best for one of the two ends.
func (s *stage) tuned(title string, end properties, keep bool) *debezium {
	return &debezium{title: title, dir: s.dir, heap: s.heap, worker: tunedWorker, keep: keep,
		connector: tuned.with(end).with(s.debezium.properties()), db: s.db, kafka: s.kafka}
}

// untuned is Debezium with its defaults, and Kafka Connect's.
func (s *stage) untuned(keep bool) *debezium {
	return &debezium{title: defaultName, dir: s.dir, heap: defaultHeap, keep: keep, db: s.db, kafka: s.kafka}
}

// note keeps a measurement, or why there is none.
func (s *stage) note(ctx context.Context, load, subject string, round int, values map[string]float64, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		fmt.Printf("%s, round %d, %s: FAILED: %v\n", load, round, subject, err)
		s.results.Failures = append(s.results.Failures,
			figures.Failure{Load: load, Subject: subject, Round: round, Error: err.Error()})
		return nil
	}
	m := figures.Measurement{Load: load, Subject: subject, Round: round, Values: values}
	s.results.Measurements = append(s.results.Measurements, m)
	fmt.Printf("%s, round %d, %s:%s\n", load, round, subject, describe(values))
	return nil
}

// report prints the table and writes the file. It is an error if something
// failed.
func (s *stage) report(w io.Writer) error {
	s.results.Seconds = time.Since(s.results.Began).Round(time.Second).Seconds()
	if err := s.results.Print(w, oursName); err != nil {
		return err
	}
	if s.json != "" {
		if err := s.results.Write(s.json); err != nil {
			return err
		}
	}
	if n := len(s.results.Failures); n > 0 {
		return fmt.Errorf("%d measurements failed", n)
	}
	return nil
}
