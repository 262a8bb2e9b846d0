package stream

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// SnapshotStatus is the progress of the first start's snapshot.
type SnapshotStatus struct {
	// Table is read now, as number Number of Tables.
	Table  string `json:"table"`
	Number int    `json:"number"`
	Tables int    `json:"tables"`
	// Published is how many of the Rows, those of the slot's snapshot, are published.
	Published int64 `json:"published"`
	Rows      int64 `json:"rows"`
	// RowsPerSecond is the rate since the start of the session, SecondsLeft the time for
	// the rest at this rate; nil without a rate.
	RowsPerSecond float64  `json:"rows_per_second"`
	SecondsLeft   *float64 `json:"seconds_left,omitempty"`
}

// snapshotReport tells of a snapshot's progress: the log now and then, others when
// asked. The reader of the snapshot calls all but status.
type snapshotReport struct {
	log     *zap.Logger
	initial *initial
	first   int64 // published before
	began   time.Time
	logged  time.Time

	mu  sync.Mutex
	now SnapshotStatus // the table
}

// snapshotEvery is the time between two lines of the log.
const snapshotEvery = 10 * time.Second

// lookRows is how many rows are read between two looks at the clock.
const lookRows = 512

func (r *snapshotReport) begin(log *zap.Logger, i *initial) {
	r.log, r.initial = log, i
	r.first, _ = i.published().Progress()
	r.began = time.Now()
	r.logged = r.began
}

// reads notes the table that is read now.
func (r *snapshotReport) reads(table pg.Table, number, tables int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Table, r.now.Number, r.now.Tables = table.String(), number, tables
}

// tell logs the progress now and then; rows were read.
func (r *snapshotReport) tell(rows uint32) {
	if rows%lookRows != 0 || time.Since(r.logged) < snapshotEvery {
		return
	}
	r.logged = time.Now()
	st := r.status()
	left := zap.Skip()
	if st.SecondsLeft != nil {
		left = zap.Duration("left", time.Duration(*st.SecondsLeft*float64(time.Second)).Round(time.Second))
	}
	r.log.Info("publishing the snapshot", zap.String("table", st.Table), zap.Int("number", st.Number), zap.Int("tables", st.Tables),
		zap.Int64("published", st.Published), zap.Int64("rows", st.Rows), zap.Float64("rows_per_second", st.RowsPerSecond), left)
}

// status is the progress now.
func (r *snapshotReport) status() *SnapshotStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.now
	st.Published, st.Rows = r.initial.published().Progress()
	if seconds := time.Since(r.began).Seconds(); seconds > 0 && st.Published > r.first {
		st.RowsPerSecond = float64(st.Published-r.first) / seconds
		left := float64(max(0, st.Rows-st.Published)) / st.RowsPerSecond
		st.SecondsLeft = &left
	}
	return &st
}

// snapshot shows the progress of a snapshot until the returned function is called.
func (h *Health) snapshot(r *snapshotReport) (end func()) {
	show := func(r *snapshotReport) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.reading = r
	}
	show(r)
	h.metrics.Snapshot(true)
	return func() {
		show(nil)
		h.metrics.Snapshot(false)
	}
}

// snapshotStatus is nil without a snapshot. The caller holds mu.
func (h *Health) snapshotStatus() *SnapshotStatus {
	if h.reading == nil {
		return nil
	}
	return h.reading.status()
}

// snapshotProgress is for the collection of metrics.
func (h *Health) snapshotProgress() (published, rows int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if st := h.snapshotStatus(); st != nil {
		return st.Published, st.Rows
	}
	return 0, 0
}
