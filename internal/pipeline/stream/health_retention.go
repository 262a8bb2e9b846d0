package stream

import (
	"maps"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
)

// RetentionStatus is what /status shows of one table that is kept small.
type RetentionStatus struct {
	DeletedRows       int64     `json:"deleted_rows"`
	DroppedPartitions int64     `json:"dropped_partitions"`
	TableBytes        int64     `json:"table_bytes"`
	LastPass          time.Time `json:"last_pass"`
	Error             string    `json:"error,omitempty"`
}

// retentionHealth notes what retention does, since this process began, and
// passes it on to the metrics. It is safe for concurrent use.
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
