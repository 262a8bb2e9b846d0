package stream

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// reportEvery is how often a statement that takes long is logged; readiness
// always has the latest.
const reportEvery = time.Minute

// waitForSnapshot lets the statements that read the tables take as long as they
// need.
func (s *source) waitForSnapshot(ctx context.Context, conn *pgconn.PgConn) (end func()) {
	return catalog.Patient(ctx, s.opts.URL, conn, s.reporting("reading the tables takes long", func(catalog.Waiting) {}))
}

// waitForCreation lets the creation of the slot wait for the running
// transactions, which readiness names.
func (s *source) waitForCreation(ctx context.Context, repl *pgconn.PgConn) (end func()) {
	return catalog.Patient(ctx, s.opts.URL, repl, s.reporting("creating the slot takes long", func(w catalog.Waiting) {
		s.health.waiting("the creation of slot " + s.opts.Slot + " waits for " + w.String())
	}))
}

// reporting tells readiness what a statement waits for, and logs it now and
// then.
func (s *source) reporting(what string, tell func(catalog.Waiting)) func(catalog.Waiting) {
	var next time.Time
	return func(w catalog.Waiting) {
		tell(w)
		if time.Now().Before(next) {
			return
		}
		next = time.Now().Add(reportEvery)
		s.log.Info(what, zap.Stringer("waits_for", w))
	}
}

// waiting notes what the start of a session waits for, until the wait is over.
func (h *Health) waiting(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pgErr = what
}

// missingTopics are those the deliverer waits for.
func (h *Health) missingTopics() []string { return h.kafka.MissingTopics() }

// claiming notes that the start of a session waits for Kafka to grant the
// transactional id.
func (h *Health) claiming() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claimErr = "Kafka: brokers have not granted the transactional id yet; they end the transaction before first"
	h.remedy = "cdc-outbox txn list"
}
