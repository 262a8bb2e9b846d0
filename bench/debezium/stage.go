package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
)

// stage is the servers, and everything measured with them.
type stage struct {
	options
	connector *rig.Connector
	dir       string // of Kafka Connect's files
	db        *rig.Database
	kafka     *rig.Broker
	registry  *registry // nil unless a format needs one
	results   *figures.Report
	topics    int
}

func newStage(ctx context.Context, o options, connector *rig.Connector) (*stage, error) {
	dir, err := os.MkdirTemp("", "cdc-outbox-debezium-")
	if err != nil {
		return nil, err
	}
	s := &stage{options: o, connector: connector, dir: dir}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stage) start(ctx context.Context) error {
	fmt.Println("getting Kafka and PostgreSQL ready, and Debezium if it takes part")
	debezium, err := s.fetch(ctx)
	if err != nil {
		return err
	}
	room := strconv.Itoa(200 + 5*s.pipelines)
	if s.db, err = rig.StartDatabase(ctx, map[string]string{"max_connections": room, "max_wal_senders": room, "max_replication_slots": room}); err != nil {
		return err
	}
	if err := s.db.CreateOutbox(ctx); err != nil {
		return err
	}
	if s.kafka, err = rig.StartKafka(ctx, s.brokers, s.broker...); err != nil {
		return err
	}
	s.results = figures.New("debezium", metrics, map[string]string{
		"PostgreSQL": s.db.Version, "Apache Kafka": s.kafka.Version, "Debezium": lastLine(debezium),
	})
	fmt.Printf("PostgreSQL %s, Apache Kafka %s, %s; %s\n", s.db.Version, s.kafka.Version, lastLine(debezium), s.results.Machine)
	return nil
}

// fetch gets Debezium, unless only we are compared.
func (s *stage) fetch(ctx context.Context) (version string, err error) {
	if len(s.modes) == 1 && s.modes[0] == modeDelivery {
		return "none", nil
	}
	script, err := child.Script("debezium.sh")
	if err != nil {
		return "", err
	}
	return child.Output(ctx, "", script, "fetch")
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}

// close ends all, and removes all data.
func (s *stage) close() error {
	if s.registry != nil {
		s.registry.process.Kill()
	}
	if s.kafka != nil {
		s.kafka.Stop()
	}
	if s.db != nil {
		s.db.Close()
	}
	return os.RemoveAll(s.dir)
}

// nextTask makes a topic and the name of a slot.
func (s *stage) nextTask(ctx context.Context) (task, error) {
	s.topics++
	t := task{slot: fmt.Sprintf("bench_%d", s.topics), topic: fmt.Sprintf("bench-%d", s.topics)}
	return t, s.kafka.CreateTopic(ctx, t.topic, s.partitions)
}

// finish removes nextTask's slot and topic.
func (s *stage) finish(t task) error {
	return errors.Join(s.db.DropSlot(t.slot), s.kafka.DeleteTopic(t.topic))
}

// The subjects.

func (s *stage) ours() subject { return ours{s.connector, s.road(), s.set, oursName} }

// tuned is Debezium at its best for one of the two ends.
func (s *stage) tuned(title string, end properties, keep bool) *debezium {
	return &debezium{title: title, dir: s.dir, heap: s.heap, worker: tunedWorker, keep: keep,
		connector: tuned.with(end).with(s.debezium.Map()), road: s.road()}
}

// untuned is Debezium with the defaults, and Kafka Connect's.
func (s *stage) untuned(keep bool) *debezium {
	return &debezium{title: defaultName, dir: s.dir, heap: defaultHeap, keep: keep, road: s.road()}
}
