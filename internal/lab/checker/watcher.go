package checker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Watcher takes Samples. Run is its goroutine; Samples may be called from any.
type Watcher struct {
	URL      string // of the database
	Slot     string
	Kafka    *kadm.Client
	Topics   []string
	Interval time.Duration // between two looks

	mu      sync.Mutex
	samples []Sample
}

// lookTimeout bounds a look: a server that is down is asked again.
const lookTimeout = time.Second

// Run takes a sample each Interval until ctx ends, and none while a server is
// down.
func (w *Watcher) Run(ctx context.Context) {
	var conn *pgx.Conn
	defer func() { disconnect(conn) }()
	tick := time.NewTicker(w.Interval)
	defer tick.Stop()
	for {
		sample, err := w.look(ctx, &conn)
		if err == nil {
			w.mu.Lock()
			w.samples = append(w.samples, sample)
			w.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Samples returns those taken so far.
func (w *Watcher) Samples() []Sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.samples[:len(w.samples):len(w.samples)]
}

// look takes a sample, on the connection if any.
func (w *Watcher) look(ctx context.Context, conn **pgx.Conn) (Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s := Sample{At: time.Now()}
	confirmed, err := w.confirmed(ctx, conn)
	if err != nil {
		disconnect(*conn)
		*conn = nil
		return s, err
	}
	s.Confirmed = confirmed
	s.Ends, err = Ends(ctx, w.Kafka, w.Topics...)
	return s, err
}

func (w *Watcher) confirmed(ctx context.Context, conn **pgx.Conn) (lsn pg.LSN, err error) {
	if *conn == nil {
		if *conn, err = pgx.Connect(ctx, w.URL); err != nil {
			return 0, err
		}
	}
	err = (*conn).QueryRow(ctx,
		`SELECT coalesce(confirmed_flush_lsn, '0/0') FROM pg_replication_slots WHERE slot_name = $1`, w.Slot).Scan(&lsn)
	return lsn, err
}

// Ends returns the offsets of the next records of the topics' partitions.
func Ends(ctx context.Context, kafka *kadm.Client, topics ...string) (map[string][]int64, error) {
	listed, err := kafka.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	if err := listed.Error(); err != nil {
		return nil, err
	}
	ends := map[string][]int64{}
	for topic, partitions := range listed {
		ends[topic] = make([]int64, len(partitions))
		for p, end := range partitions {
			if int(p) >= len(partitions) {
				return nil, fmt.Errorf("topic %s lists partition %d of %d", topic, p, len(partitions))
			}
			ends[topic][p] = end.Offset
		}
	}
	return ends, nil
}

func disconnect(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	_ = conn.Close(ctx) // nothing is pending there
}
