package stream

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/phase"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
)

// startRetention keeps the tables small, on a connection and a goroutine of its own
// beside the stream begun with cp. The returned function ends both. It is called
// after begin, when the rows of a snapshot are published.
func (s *source) startRetention(ctx context.Context, cp checkpoint.Checkpoint) (stop func()) {
	keep := s.opts.Retention
	if keep.After == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		retention.Run(ctx, retention.Parts{
			Options:   keep,
			Connect:   func(ctx context.Context) (*pgx.Conn, error) { return s.connectForRetention(ctx, cp) },
			Tables:    s.opts.Tables,
			Confirmed: s.published,
			Observer:  s.health.retention,
			Log:       s.log,
		})
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// connectForRetention is connectBeside for long statements.
func (s *source) connectForRetention(ctx context.Context, cp checkpoint.Checkpoint) (*pgx.Conn, error) {
	conn, err := s.connectBeside(ctx, cp)
	if err == nil {
		// Patient for as long as the connection lives.
		_ = catalog.Patient(ctx, s.opts.URL, conn.PgConn(), s.reporting("a statement of retention takes long", func(catalog.Waiting) {}))
	}
	return conn, err
}

// published is the position up to which every committed row is published. The
// confirmed position may be further: until the monitor notices, it also passes rows
// left out of the stream by a changed publication. With an accepted gap it is 0: rows of
// any age may be of the gap.
func (s *source) published() pg.LSN {
	if s.phase.Now() != phase.Ready || s.checkpointer.gap() != nil {
		return 0
	}
	return min(s.health.confirmed(), pg.LSN(s.whole.Load()))
}

// RetentionStatus is a table with retention in /status.
type RetentionStatus struct {
	DeletedRows       int64     `json:"deleted_rows"`
	DroppedPartitions int64     `json:"dropped_partitions"`
	TableBytes        int64     `json:"table_bytes"`
	LastPass          time.Time `json:"last_pass"`
	Error             string    `json:"error,omitempty"`
}

// retentionHealth sums up retention since the start of the process, and passes
// everything on to the metrics. It is safe for concurrent use.
type retentionHealth struct {
	retention.Observer // the metrics

	mu     sync.Mutex
	tables map[string]RetentionStatus
}

func (h *retentionHealth) update(table pg.Table, change func(*RetentionStatus)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	status := h.tables[table.String()]
	change(&status)
	if h.tables == nil {
		h.tables = map[string]RetentionStatus{}
	}
	h.tables[table.String()] = status
}

// RetentionDeleted implements retention.Observer.
func (h *retentionHealth) RetentionDeleted(table pg.Table, rows int64) {
	h.Observer.RetentionDeleted(table, rows)
	h.update(table, func(s *RetentionStatus) { s.DeletedRows += rows })
}

// RetentionPartition implements retention.Observer.
func (h *retentionHealth) RetentionPartition(table pg.Table, change retention.PartitionChange) {
	h.Observer.RetentionPartition(table, change)
	if change == retention.Dropped {
		h.update(table, func(s *RetentionStatus) { s.DroppedPartitions++ })
	}
}

// RetentionPassed implements retention.Observer.
func (h *retentionHealth) RetentionPassed(table pg.Table, bytes int64, err error) {
	h.Observer.RetentionPassed(table, bytes, err)
	h.update(table, func(s *RetentionStatus) {
		s.LastPass, s.Error = time.Now(), ""
		if err != nil {
			s.Error = err.Error()
			return
		}
		s.TableBytes = bytes
	})
}

func (h *retentionHealth) status() map[string]RetentionStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.tables)
}
