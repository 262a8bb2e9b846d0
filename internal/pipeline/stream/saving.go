package stream

import (
	"fmt"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/digest"
)

// unsavedAfter is how long saves may fail until readiness says so: longer
// than a partition takes to get another leader.
const unsavedAfter = 5 * time.Second

// savedAgain is logged at the end of an outage of the store.
const savedAgain = "the checkpoint is saved again"

// saving notes the results of saves for health, metrics and the log. A store may
// be silent instead of failing, so a save without an answer counts from its
// start. saving is safe for concurrent use.
type saving struct {
	outage *digest.Outage
	ahead  func() bool // whether there is a position to save

	mu       sync.Mutex
	behind   time.Time // since when a position is acked and not saved; zero: all are saved
	since    time.Time // when the first failing attempt began; zero: the last one succeeded
	attempts int       // failed since
	err      error     // of the last failure; nil while the first attempt has no answer
}

// moved notes that the position may have moved beyond everything saved, and reports
// whether it does so first.
func (s *saving) moved() (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first = s.behind.IsZero() && s.ahead(); first {
		s.behind = time.Now()
	}
	return first
}

// begin notes an attempt.
func (s *saving) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = time.Now()
	}
}

// succeeded notes that the attempt begun at began is durable.
func (s *saving) succeeded(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outage.Over()
	s.since, s.attempts, s.err = time.Time{}, 0, nil
	s.behind = time.Time{}
	if s.ahead() { // acked meanwhile
		s.behind = began
	}
}

// retried logs an error before another attempt.
func (s *saving) retried(err error) {
	s.outage.Failed("the checkpoint cannot be saved, nothing is confirmed meanwhile; will retry", err)
}

// failed notes why an attempt failed.
func (s *saving) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	s.err = err
}

// cancelled notes an attempt of unknown outcome: the caller did not wait.
func (s *saving) cancelled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempts == 0 {
		s.since = time.Time{}
	}
}

// age is how long the oldest unsaved acked position has waited; 0 if all are
// saved.
func (s *saving) age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sinceOrZero(s.behind)
}

// trouble is how long saves have failed, and why; "" while the store is silent.
func (s *saving) trouble() (time.Duration, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return sinceOrZero(s.since), ""
	}
	return sinceOrZero(s.since), s.err.Error()
}

// unready is the reason for readiness, once saves have failed for long enough.
func (s *saving) unready() (reason string, ok bool) {
	d, err := s.trouble()
	if d <= unsavedAfter {
		return "", false
	}
	if err == "" {
		err = "the store does not answer"
	}
	return fmt.Sprintf("the checkpoint has not been saved for %s: %s", d.Round(time.Second), err), true
}

// age, trouble and unready are those of the saves.
func (k *checkpointer) age() time.Duration { return k.progress.age() }

func (k *checkpointer) trouble() (time.Duration, string) { return k.progress.trouble() }

func (k *checkpointer) unready() (reason string, ok bool) { return k.progress.unready() }

func sinceOrZero(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t)
}
