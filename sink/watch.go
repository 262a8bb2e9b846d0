package sink

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/backoff"
)

const (
	// watchEvery is how often the cluster is asked whether it is there.
	watchEvery = 2 * time.Second
	// answerWithin bounds one question: another broker may answer the next one.
	answerWithin = 4 * time.Second
	// silentAfter is for how long no question may be answered until Watch says so:
	// longer than a cluster takes to restart a broker.
	silentAfter = 10 * time.Second
)

// reachable is a sink that can tell, without writing, whether anybody is there
// to write to.
type reachable interface {
	reach(ctx context.Context) error
}

// reach asks any broker. It has a client of its own: what it meets with must
// neither hold up a delivery nor count as one. It may be called beside Deliver,
// and after Close, which ends it.
func (k *Kafka) reach(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none
	_, err := req.RequestWith(ctx, impatient{k.asker})
	return err
}

// Watch tells whether a sink's cluster answers while there is nothing to write:
// else brokers that are down would show only with the next event. It is safe for
// concurrent use; the zero value has seen nothing yet.
type Watch struct {
	mu    sync.Mutex
	since time.Time // when the first question without an answer was asked; zero: the last one has one
	err   error     // of the last one
}

// Run asks until ctx ends. current returns the sink to ask, nil while there is
// none to be asked.
func (w *Watch) Run(ctx context.Context, log *zap.Logger, current func() Sink) {
	reported := false
	for {
		if asked, ok := current().(reachable); ok {
			began := time.Now()
			within, cancel := context.WithTimeout(ctx, answerWithin)
			err := asked.reach(within)
			cancel()
			if ctx.Err() != nil {
				return
			}
			w.note(began, err)
		} else {
			w.note(time.Time{}, nil)
		}
		silent, err := w.Silent()
		switch {
		case !reported && silent > 0:
			reported = true
			log.Warn("Kafka does not answer", zap.Duration("since", silent.Round(time.Second)), zap.Error(err))
		case reported && err == nil:
			reported = false
			log.Info("Kafka answers again")
		}
		if backoff.Sleep(ctx, watchEvery) != nil {
			return
		}
	}
}

func (w *Watch) note(began time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = began
	}
	w.err = err
}

// Silent is for how long the cluster has not answered, and why; 0 while that is
// not long, or nobody has asked.
func (w *Watch) Silent() (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		return 0, nil
	}
	silent := time.Since(w.since)
	if silent <= silentAfter {
		silent = 0
	}
	return silent, w.err
}
