package stream

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// standstillAfter is how many sessions must fail at the same position. Fewer are an
// outage.
const standstillAfter = 3

// Standstill is a position at which session after session fails.
type Standstill struct {
	LSN      string `json:"lsn"`
	Failures int    `json:"failures"`
	// Transaction is the commit position of the transaction in transfer; empty
	// between transactions.
	Transaction string  `json:"transaction,omitempty"`
	Seconds     float64 `json:"seconds"`
	Error       string  `json:"error"`
}

// standstill counts sessions failing one after the other without progress. Not safe
// for concurrent use.
type standstill struct {
	at       pg.LSN // the end of everything read
	failures int
	since    time.Time
	err      error // of the last session
	unacked  bool  // some events are read and not acked
}

// failed notes why a streaming session ended, and the end of everything read by then.
func (s *standstill) failed(now time.Time, at pg.LSN, err error) {
	if s.failures == 0 || s.at != at {
		*s = standstill{at: at, since: now}
	}
	s.failures++
	s.err = err
}

// see notes the acked and the read position: the standstill is over once the stream is
// past its position, or has read the whole log.
func (s *standstill) see(acked, read, flush pg.LSN) {
	if read > s.at || flush != 0 && read >= flush {
		*s = standstill{}
	}
	s.unacked = acked < read
}

// lasts reports whether enough sessions have failed.
func (s *standstill) lasts() bool { return s.failures >= standstillAfter }

// transaction is the commit position of the transaction in transfer; 0: not known.
func (s *standstill) transaction() pg.LSN {
	if server, ok := errors.AsType[*wal.ServerError](s.err); ok {
		return server.Within
	}
	return 0
}

// reason is why the instance is not ready.
func (s *standstill) reason(now time.Time) string {
	return fmt.Sprintf("the stream has ended at %s %d times in %s, each time before anything further was read: %v",
		s.at, s.failures, now.Sub(s.since).Round(time.Second), s.err)
}

// status is for /status; nil unless the standstill lasts.
func (s *standstill) status(now time.Time) *Standstill {
	if !s.lasts() {
		return nil
	}
	st := &Standstill{LSN: s.at.String(), Failures: s.failures, Seconds: now.Sub(s.since).Seconds(), Error: s.err.Error()}
	if at := s.transaction(); at != 0 {
		st.Transaction = at.String()
	}
	return st
}

// remedy is for an operator. An error of the server comes from the log, and the log does
// not change: there has to be a way past the position, once nothing else is left out.
func (s *standstill) remedy(slot string) string {
	if remedy := failure.RemedyOf(s.err); remedy != "" {
		return remedy
	}
	if pgsql.State(s.err) == "" {
		return "look at what is between this machine and PostgreSQL, such as a proxy or a firewall that ends connections, and at the server's log"
	}
	mend := "remove the cause that PostgreSQL's error names (its log may say more); the stream then goes on by itself"
	if s.unacked {
		return mend + "; if it cannot be removed, there is a way past it, which is named here once Kafka has taken what was read before"
	}
	if at := s.transaction(); at != 0 {
		return mend + fmt.Sprintf("; if it cannot be removed, leave out the transaction that commits at %s: stop the connector, "+
			"SELECT pg_replication_slot_advance(%s, '%s'); then `cdc-outbox setup --accept-gap --yes`, and start it again: "+
			"events of that transaction, and only those, are not published", at, pgsql.Literal(slot), at+1)
	}
	return mend + fmt.Sprintf("; if it cannot be removed: stop the connector, SELECT pg_drop_replication_slot(%s); then %s", pgsql.Literal(slot), catalog.AcceptGap)
}

// fallsBack reports whether session after session has failed at the present position.
func (h *Health) fallsBack() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.standsStill(time.Now())
}

// tellStandstill logs a standstill after the end of a session.
func (h *Health) tellStandstill(log *zap.Logger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance(time.Now())
	if s := h.standstill; s.lasts() {
		log.Error("the stream does not get past a position", zap.Stringer("lsn", s.at), zap.Int("failures", s.failures),
			zap.Time("since", s.since), zap.String("remedy", s.remedy(h.slotName)))
	}
}
