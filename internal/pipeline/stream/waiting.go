package stream

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// reportEvery is how often a long statement is logged; readiness always has the
// latest.
const reportEvery = time.Minute

// waitForSnapshot lets the statements reading the tables take any time.
func (s *source) waitForSnapshot(ctx context.Context, conn *pgconn.PgConn) (end func()) {
	return catalog.Patient(ctx, s.opts.URL, conn, s.reporting("reading the tables takes long", func(catalog.Waiting) {}))
}

// waitForCreation lets the creation of the slot wait for running transactions, named
// in readiness.
func (s *source) waitForCreation(ctx context.Context, repl *pgconn.PgConn) (end func()) {
	return catalog.Patient(ctx, s.opts.URL, repl, s.reporting("creating the slot takes long", func(w catalog.Waiting) {
		s.health.waiting("the creation of slot "+s.opts.Slot+" waits for "+w.String(), w.Remedy())
	}))
}

// reporting tells readiness the cause of a statement's wait, and logs now and then.
func (s *source) reporting(what string, tell func(catalog.Waiting)) func(catalog.Waiting) {
	var next time.Time
	return func(w catalog.Waiting) {
		tell(w)
		if time.Now().Before(next) {
			return
		}
		next = time.Now().Add(reportEvery)
		fields := []zap.Field{zap.Stringer("waits_for", w)}
		if end := w.Remedy(); end != "" {
			fields = append(fields, zap.String("remedy", end))
		}
		s.log.Info(what, fields...)
	}
}

// waiting notes the cause of a wait at the start of a session, with a remedy if known,
// until the wait is over.
func (h *Health) waiting(what, remedy string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pgErr, h.remedy = what, remedy
}

// missingTopics are the topics the deliverer waits for.
func (h *Health) missingTopics() []string { return h.kafka.MissingTopics() }

// claiming notes that the start of a session waits for Kafka to grant the
// transactional id.
func (h *Health) claiming() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claimErr = "Kafka: brokers have not granted the transactional id yet; they end the transaction before first"
	h.remedy = "cdc-outbox txn list"
}
