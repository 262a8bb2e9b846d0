package stream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/session"
	"github.com/cdc-outbox/cdc-outbox/internal/quarantine"
)

// Quarantine is where bad events are parked, for OnBadEvent quarantine. The pipeline does not
// close Log.
type Quarantine struct {
	Log *quarantine.Log
	// Parks is shared with the sink.
	Parks *delivery.Quarantine
	// Limit is the most events parked.
	Limit int
	// Rules are the settings behind topic and key of an event.
	Rules string
}

// warden loads the parked events, and has the commands of operators carried out by the
// deliverer. follow is its goroutine.
type warden struct {
	*Quarantine
	queue  *queue
	log    *zap.Logger
	outage *digest.Outage

	// unended are events settled by the last checkpoint, and not yet in the topic. The field
	// is the loading goroutine's, then the deliverer's.
	unended []uint64

	loaded chan struct{} // closed once from is set
	from   int64         // to follow from; before loaded, of the source

	mu      sync.Mutex
	pending []*quarantine.Command
	taken   map[string]bool // ids of commands once pending: a topic may be read again
}

func newWarden(q *Quarantine, queue *queue, log *zap.Logger) *warden {
	if q == nil {
		return nil
	}
	return &warden{
		Quarantine: q, queue: queue, log: log, loaded: make(chan struct{}),
		outage: digest.NewOutage(log, "commands to the quarantine are read again"), taken: make(map[string]bool),
	}
}

// load finds the parked events. This instance alone writes to Kafka by now, and has delivered
// nothing. Later sessions of the pipeline find everything known. The checkpoint's word about
// parked events counts beside the topic: see checkpoint.Checkpoint.
func (w *warden) load(ctx context.Context, cp *checkpoint.Checkpoint) error {
	if w == nil || w.Parks.Set() != nil {
		return nil
	}
	loaded, err := w.Log.Load(ctx, w.Limit, w.Rules, func(rec *kgo.Record) bool {
		return slices.ContainsFunc(cp.Doubtful, func(d checkpoint.Doubtful) bool { return of(d, rec) })
	})
	if err != nil {
		return err
	}
	set, pending := loaded.Set, loaded.Pending
	w.unended = append(set.Settle(cp.Settled), loaded.Again...)
	*cp = cp.Resolved(set.Parked)
	if set.Events() > 0 {
		w.log.Warn("events are parked in the quarantine", zap.Int64("events", set.Events()), zap.Int64("keys", set.Units()),
			zap.String("remedy", "see `cdc-outbox quarantine list`"))
	}
	if set.Halfway() { // goes on with what an instance left
		pending = slices.Insert(pending, 0, &quarantine.Command{})
	}
	w.Parks.Use(set)
	w.pending, w.from = pending, loaded.From
	for _, c := range pending {
		w.taken[c.ID] = true
	}
	return nil
}

// of reports whether the record is of the transaction, or, with transaction.version 1, of a
// later transaction of the same claim, and as doubtful.
func of(d checkpoint.Doubtful, rec *kgo.Record) bool {
	part, wrote := d.Written[rec.Topic][rec.Partition]
	return wrote && rec.ProducerID == d.Producer && rec.ProducerEpoch == d.Epoch && rec.Offset >= part.From
}

// topic is the quarantine's; "": there is none.
func (w *warden) topic() string {
	if w == nil {
		return ""
	}
	return w.Log.Topic()
}

// begin has pending commands carried out before the first event.
func (w *warden) begin() {
	if w == nil {
		return
	}
	select {
	case <-w.loaded:
	default:
		close(w.loaded)
		w.mu.Lock()
		asked := len(w.pending)+len(w.unended) > 0
		w.mu.Unlock()
		if asked {
			w.queue.interrupt()
		}
	}
}

// follow takes commands until ctx ends.
func (w *warden) follow(ctx context.Context) error {
	select {
	case <-w.loaded:
	case <-ctx.Done():
		return nil
	}
	w.Log.Follow(ctx, w.from, lookEvery, w.take, func(err error) {
		if err != nil {
			w.outage.Failed("commands to the quarantine cannot be read; will retry", err)
			return
		}
		w.outage.Over()
	})
	return nil
}

// lookEvery is how often commands are looked for.
const lookEvery = time.Second

func (w *warden) take(c *quarantine.Command) {
	if c.Answer != nil {
		return
	}
	w.mu.Lock()
	again := w.taken[c.ID]
	if !again {
		w.taken[c.ID], w.pending = true, append(w.pending, c)
	}
	w.mu.Unlock()
	if !again {
		w.queue.interrupt()
	}
}

// quarantined counts what is parked; nil: nothing is.
func (d *deliverer) quarantined() *QuarantineStatus {
	if d.warden == nil {
		return nil
	}
	set := d.warden.Parks.Set()
	if set == nil || set.Events() == 0 {
		return nil
	}
	return &QuarantineStatus{set.Events(), set.Units(), set.Limit()}
}

// next is the next command to be carried out; nil: none.
func (w *warden) next() (c *quarantine.Command) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) > 0 {
		c, w.pending = w.pending[0], w.pending[1:]
	}
	return c
}

// errInterrupted is await's, for commands.
var errInterrupted = errors.New("a command is to be carried out")

// interrupt has await return errInterrupted, before the next batch.
func (q *queue) interrupt() {
	q.mu.Lock()
	q.interrupted = true
	q.mu.Unlock()
	session.Wake(q.arrived)
}

// takeInterrupt reports an interruption, once.
func (q *queue) takeInterrupt() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.interrupted
	q.interrupted = false
	return was
}
