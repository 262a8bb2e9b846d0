package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// statusPatience bounds each part of the status: the questions to PostgreSQL
// before the checkpoint's store, those to the store, and those after.
const statusPatience = 10 * time.Second

// StatusReport answers an operator's questions at three in the morning. Either
// side may be missing; the error is there then.
type StatusReport struct {
	At      time.Time `json:"at"`
	Verdict string    `json:"verdict"` // a single sentence
	Remedy  string    `json:"remedy,omitempty"`

	PostgreSQL      *DatabaseStatus `json:"postgresql,omitempty"`
	PostgreSQLError *Problem        `json:"postgresql_error,omitempty"`

	Checkpoint      *CheckpointStatus `json:"checkpoint,omitempty"`
	CheckpointStore string            `json:"checkpoint_store"`
	CheckpointError *Problem          `json:"checkpoint_error,omitempty"`

	// Instance is nil where no connector answers at http.listen.
	Instance *InstanceStatus `json:"instance,omitempty"`

	// Failover is how failovers would find the slot, by server; empty with a
	// single configured server.
	Failover      []catalog.Candidate `json:"failover,omitempty"`
	FailoverError *Problem            `json:"failover_error,omitempty"`

	// Transactions have held consumers back for a minute or longer, with
	// sink.kafka.delivery exactly_once. The error is why they are not known.
	Transactions      Transactions `json:"transactions,omitempty"`
	TransactionsError *Problem     `json:"transactions_error,omitempty"`

	// Polling is set in poll mode, in place of PostgreSQL and Checkpoint.
	Polling []PollStatus `json:"polling,omitempty"`

	class failure.Class
	bad   bool
	polls bool
	still bool // the slot is behind, with a confirmed position at a standstill
}

// Problem is an error in a report.
type Problem struct {
	Error  string `json:"error"`
	Remedy string `json:"remedy,omitempty"`
}

func problem(err error) *Problem {
	if err == nil {
		return nil
	}
	return &Problem{Error: err.Error(), Remedy: remedyOf(err)}
}

// DatabaseStatus is the PostgreSQL side of a StatusReport.
type DatabaseStatus struct {
	Version    int    `json:"version"` // server_version_num
	Database   string `json:"database"`
	SystemID   string `json:"system_id"`
	Timeline   int32  `json:"timeline"`
	InRecovery bool   `json:"in_recovery"`
	CurrentLSN string `json:"current_lsn"`

	Slot        *SlotStatus        `json:"slot,omitempty"`
	Publication *PublicationStatus `json:"publication,omitempty"`
	Tables      []TableStatus      `json:"tables,omitempty"`
}

// SlotStatus is the slot's lag, with the reader.
type SlotStatus struct {
	Name          string          `json:"name"`
	Active        bool            `json:"active"`
	Holder        *catalog.Holder `json:"holder,omitempty"`
	ConfirmedLSN  string          `json:"confirmed_lsn"`
	LagBytes      int64           `json:"lag_bytes"`
	RetainedBytes int64           `json:"retained_bytes"`
	// LagSeconds is the flush lag of a holder at its last answer; absent without
	// a recent measurement.
	LagSeconds         *float64 `json:"lag_seconds,omitempty"`
	WALStatus          string   `json:"wal_status"`
	SafeWALSize        *int64   `json:"safe_wal_size,omitempty"`
	MaxSlotWALKeepSize int64    `json:"max_slot_wal_keep_size"` // -1: no limit
	Lost               string   `json:"lost,omitempty"`         // the reason, if so
	// Copy is there on a standby: that the slot is a copy of the primary's and, from
	// PostgreSQL 19 on, the reason for its age.
	Copy string `json:"copy,omitempty"`
	// Awaits is an absent standby without which the server sends nothing.
	Awaits *Problem `json:"awaits,omitempty"`
}

// PublicationStatus is the publication's content, with the faults.
type PublicationStatus struct {
	Name       string    `json:"name"`
	Operations string    `json:"operations"`
	Problems   []Problem `json:"problems,omitempty"`
}

// CheckpointStatus is the stored position of the connector, the last sign of
// life.
type CheckpointStatus struct {
	LSN        string    `json:"lsn"`
	SavedAt    time.Time `json:"saved_at"`
	AgeSeconds float64   `json:"age_seconds"`
	SystemID   string    `json:"system_id"`
	Timeline   int32     `json:"timeline"`
	Database   string    `json:"database"`
	Slot       string    `json:"slot"`
	// Snapshot tells that rows older than the slot are still to be published.
	Snapshot bool `json:"snapshot,omitempty"`
	// Gap is there while events of an accepted gap may be missing, and retention waits.
	Gap *AcceptedGap `json:"accepted_gap,omitempty"`
}

// Status looks at slot, publication and checkpoint. Status changes nothing.
// When PostgreSQL or Kafka is down, the rest is reported.
func Status(ctx context.Context, cfg *config.Config) *StatusReport {
	r := &StatusReport{At: time.Now().UTC(), CheckpointStore: storeName(cfg), polls: cfg.Source.Mode == config.ModePoll}
	r.Instance = askInstance(ctx, cfg)
	s, err := newSession(cfg)
	var mismatch error
	switch {
	case err != nil:
		r.PostgreSQLError = r.problem(err)
	case r.polls:
		r.PostgreSQLError = r.problem(patiently(ctx, func(ctx context.Context) error { return r.polled(ctx, s) }))
	default:
		mismatch = r.streamed(ctx, s)
	}
	if s != nil {
		s.close()
	}
	r.askTransactions(ctx, cfg)
	r.bad = r.bad || r.stuck() != "" || r.unread() || r.spare() != ""
	r.Verdict, r.Remedy = r.judge(mismatch), r.remedy(mismatch)
	return r
}

// askTransactions looks for open transactions. Neither they nor a silent Kafka
// keep the slot from being read, so they are not in the verdict.
func (r *StatusReport) askTransactions(ctx context.Context, cfg *config.Config) {
	if cfg.Sink.Kafka == nil || cfg.Sink.Kafka.Delivery != sink.DeliveryExactlyOnce {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	open, err := OpenTransactions(ctx, cfg)
	r.Transactions, r.TransactionsError = open.long(), problem(err)
}

// askFailover looks at the servers a failover may go to. Before a failover,
// standbys not ready harm nothing, so they are not in the verdict.
func (r *StatusReport) askFailover(ctx context.Context, s *session) {
	if r.PostgreSQL == nil || r.PostgreSQL.InRecovery {
		return
	}
	r.FailoverError = problem(patiently(ctx, func(ctx context.Context) (err error) {
		r.Failover, err = readCandidates(ctx, s.conn, s.cfg)
		return err
	}))
}

// streamed asks PostgreSQL and the store about a slot, and returns why the
// checkpoint does not fit the database, if so.
func (r *StatusReport) streamed(ctx context.Context, s *session) error {
	v := &view{}
	err := patiently(ctx, func(ctx context.Context) error {
		if err := s.connectAsRun(ctx); err != nil {
			return err
		}
		return v.ReadSlot(ctx, s.conn, s.source())
	})
	r.CheckpointError = r.problem(loadCheckpoint(ctx, s.cfg, v))
	if err == nil {
		err = patiently(ctx, func(ctx context.Context) (err error) {
			if err = s.readServer(ctx, v); err == nil {
				r.PostgreSQL, err = s.describe(ctx, v)
			}
			return err
		})
	}
	r.Checkpoint = describeStored(v.stored, r.At)
	if err == nil && v.mismatch == nil && r.suspect() {
		var moves bool
		moves, err = s.goesOn(ctx, v)
		r.still = err == nil && !moves
	}
	r.PostgreSQLError = r.problem(err)
	_ = r.problem(v.mismatch)
	r.askFailover(ctx, s)
	return v.mismatch
}

// patiently asks PostgreSQL, with a limit: the server may be suspended, or
// somebody may hold a lock the question waits for.
func patiently(ctx context.Context, ask func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	err := ask(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = &failure.Error{Class: failure.Transient, Err: fmt.Errorf("PostgreSQL has not answered for %s: %w", statusPatience, err),
			Remedy: lockRemedy}
	}
	return err
}

// problem remembers the worst class of error for Err.
func (r *StatusReport) problem(err error) *Problem {
	if err != nil {
		r.bad, r.class = true, max(r.class, failure.ClassOf(err))
	}
	return problem(err)
}

// Err is an error with the worst class found: failure.Loss for a lost slot,
// failure.Transient for a silent server or a stuck connector.
func (r *StatusReport) Err() error {
	if !r.bad {
		return nil
	}
	return &failure.Error{Class: r.class, Err: errBad[r.class]}
}

// errBad are the errors of the classes; the verdict explains them.
var errBad = map[failure.Class]error{
	failure.Transient: errors.New("events do not get through, or it is not known whether they do"),
	failure.Config:    errors.New("the connector would not start"),
	failure.Loss:      errors.New("events may be lost"),
}

// describe turns the database's part of the view into the report's.
func (s *session) describe(ctx context.Context, v *view) (*DatabaseStatus, error) {
	d := &DatabaseStatus{
		Version:    v.server.Version,
		Database:   v.server.Database,
		SystemID:   v.server.SystemID,
		Timeline:   v.server.Timeline,
		InRecovery: v.server.InRecovery,
		CurrentLSN: v.server.FlushLSN.String(),
	}
	var slotErr error
	if v.Exists {
		d.Slot, slotErr = describeSlot(ctx, s.conn, v)
	}
	if p := v.Publication; p != nil {
		d.Publication = &PublicationStatus{Name: p.Name, Operations: operations(*p)}
		for _, err := range append(slices.Clone(v.Failures), v.Warnings...) {
			d.Publication.Problems = append(d.Publication.Problems, *problem(err))
		}
	}
	tables, err := describeTables(ctx, s.conn, s.cfg)
	d.Tables = tables
	return d, errors.Join(v.Unfit(), slotErr, err)
}

func describeSlot(ctx context.Context, conn *pgx.Conn, v *view) (*SlotStatus, error) {
	slot := v.Slot
	lost, _ := slot.Lost()
	s := &SlotStatus{
		Name:               slot.Name,
		Active:             slot.Active,
		ConfirmedLSN:       slot.ConfirmedFlush.String(),
		LagBytes:           distance(slot.ConfirmedFlush, v.server.FlushLSN),
		RetainedBytes:      distance(slot.RestartLSN, v.server.FlushLSN),
		WALStatus:          slot.WALStatus,
		SafeWALSize:        slot.SafeWALSize,
		MaxSlotWALKeepSize: v.server.MaxSlotWALKeepSize,
		Lost:               lost,
	}
	if slot.Synced && v.server.InRecovery {
		s.Copy = "a standby's copy" + notCopied(slot)
	}
	if !slot.Active {
		return s, nil
	}
	if s.Copy == "" {
		s.Awaits = problem(awaitedNow(ctx, conn, slot))
	}
	holder, err := catalog.ReadHolder(ctx, conn, slot.ActivePID)
	s.Holder, s.LagSeconds = &holder, holder.FlushLag
	return s, err
}

func describeStored(cp *checkpoint.Checkpoint, now time.Time) *CheckpointStatus {
	if cp == nil {
		return nil
	}
	return &CheckpointStatus{
		LSN:        cp.LSN.String(),
		SavedAt:    cp.SavedAt,
		AgeSeconds: now.Sub(cp.SavedAt).Seconds(),
		SystemID:   cp.SystemID,
		Timeline:   cp.Timeline,
		Database:   cp.Database,
		Slot:       cp.Slot,
		Snapshot:   cp.Snapshot,
		Gap:        describeGap(cp.Accepted),
	}
}
