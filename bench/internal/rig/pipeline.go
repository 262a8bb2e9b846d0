package rig

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// StreamingLimit bounds the start of many pipelines, for slow and busy machines.
const StreamingLimit = 5 * time.Minute

// Pipeline is the work of a pipeline of cdc-outbox, or of a connector of Debezium.
type Pipeline struct {
	DB          *Database // with an outbox, the caller's to Close
	URL         string    // of the database, as the subject reaches it
	Slot, Topic string
	Polled      string // the table to poll; "": the slot is read
}

// CreatePipeline makes a database of the name on the server, and a topic; the slot comes by CreateSlots.
func CreatePipeline(ctx context.Context, server *Database, b *Broker, name, topic string, partitions int) (Pipeline, error) {
	db, err := server.CreateDatabase(ctx, name)
	if err != nil {
		return Pipeline{}, err
	}
	p := Pipeline{DB: db, URL: db.URL, Slot: name, Topic: topic}
	if err = db.CreateOutbox(ctx); err == nil {
		err = b.CreateTopic(ctx, topic, partitions)
	}
	if err != nil {
		db.Close()
	}
	return p, err
}

// CreateSlots makes the slots of the pipelines. An earlier slot would have to read through the log
// of each database that is made later.
func CreateSlots(ctx context.Context, pipelines []Pipeline) error {
	for _, p := range pipelines {
		if err := p.DB.CreateSlot(ctx, p.Slot); err != nil {
			return err
		}
	}
	return nil
}

// Configuration is cdc-outbox's, of the pipelines. Each has the sink, in YAML; "": that of all.
func Configuration(pipelines []Pipeline, sink string) []byte {
	var b strings.Builder
	b.WriteString("pipelines:\n")
	for n, p := range pipelines {
		source := fmt.Sprintf("slot: %s, publication: %s", p.Slot, Publication)
		if p.Polled != "" {
			source = fmt.Sprintf("mode: poll, tables: [%s]", p.Polled)
		}
		fmt.Fprintf(&b, "  p%d:\n    source: {url: %q, %s}\n    route: {topic: %s}\n", n, p.URL, source, p.Topic)
		if sink != "" {
			fmt.Fprintf(&b, "    sink: %s\n", sink)
		}
	}
	return []byte(b.String())
}

// AwaitStreaming returns when somebody streams from each slot of the server. An error of
// alive, asked once a second, ends the wait.
func (db *Database) AwaitStreaming(ctx context.Context, pipelines []Pipeline, alive func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, StreamingLimit, fmt.Errorf("%d pipelines do not stream after %s", len(pipelines), StreamingLimit))
	defer cancel()
	slots := make([]string, len(pipelines))
	for n, p := range pipelines {
		slots[n] = p.Slot
	}
	asked := time.Now()
	return Await(ctx, 20*time.Millisecond, func() (bool, error) {
		if time.Since(asked) > time.Second {
			asked = time.Now()
			if err := alive(ctx); err != nil {
				return false, err
			}
		}
		var streaming int
		err := db.Conn.QueryRow(ctx,
			`SELECT count(*) FROM pg_replication_slots WHERE active AND slot_name = ANY($1)`, slots).Scan(&streaming)
		return streaming == len(slots), err
	})
}
