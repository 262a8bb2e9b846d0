package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

var errBad = &transform.BadEvent{Reason: transform.ReasonNullKey, Err: errors.New("no key")}

// delivering is a deliverer with its surroundings; events go in by send.
type delivering struct {
	*deliverer
	gate    *gate
	metrics *counts
	n       int
}

func newDelivering(policy string) *delivering {
	m, g := &counts{}, &gate{topic: &topic{}}
	tracker := checkpoint.NewLocked(0)
	lines := digest.New(zap.NewNop())
	checkpointer := newCheckpointer(&fakeStore{}, tracker, time.Second, m, zap.NewNop())
	p := Parts{Options: defaultOptions(), Sink: g, Metrics: m, Kafka: delivery.NewDownstream(m)}
	p.OnBadEvent, p.Linger = policy, 0
	d := newDeliverer(p, newQueue(1<<20), tracker, checkpointer, lines)
	return &delivering{deliverer: d, gate: g, metrics: m}
}

// send queues an event per letter, each a transaction ending at its number from 1: "b"
// is bad on arrival, "r" is refused by the sink, "." is good.
func (d *delivering) send(t *testing.T, letters string) {
	t.Helper()
	d.gate.refuses = func(ev *transform.Event) *transform.BadEvent {
		if string(ev.Record.Value) == "r" {
			return errBad
		}
		return nil
	}
	for _, letter := range letters {
		d.n++
		ev := &transform.Event{ID: fmt.Append(nil, d.n), Position: pg.Position{CommitLSN: pg.LSN(d.n)}}
		ev.Record.Value = []byte(string(letter))
		it := item{Item: delivery.Item{Event: ev, Size: 1}, ticket: d.tracker.Add(), memory: 1}
		if letter == 'b' {
			it.Bad = errBad
		}
		must.OK(t, d.tracker.Seal(pg.LSN(d.n), checkpoint.Landmark{}))
		must.OK(t, d.queue.put(t.Context(), it))
	}
}

func TestDeliveryPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		policy, letters     string
		written, dead       []string
		skipped, deadletter int
		position            pg.LSN
	}{
		"good events in order":              {transform.BadEventStop, "...", []string{"1", "2", "3"}, nil, 0, 0, 3},
		"dead letter between good ones":     {transform.BadEventDeadLetter, ".b.r.", []string{"1", "3", "5"}, []string{"2", "4"}, 0, 2, 5},
		"skip between good ones":            {transform.BadEventSkip, ".b.r.", []string{"1", "3", "5"}, nil, 2, 0, 5},
		"nothing but dead letters":          {transform.BadEventDeadLetter, "brb", nil, []string{"1", "2", "3"}, 0, 3, 3},
		"stop at one bad on arrival":        {transform.BadEventStop, ".b.", []string{"1"}, nil, 0, 0, 1},
		"stop at one that the sink refuses": {transform.BadEventStop, "..r.", []string{"1", "2"}, nil, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDelivering(c.policy)
			d.send(t, c.letters)
			d.queue.close()
			err := d.run(t.Context())

			stops := c.policy == transform.BadEventStop && len(c.written) < len(c.letters)
			if stops {
				if failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), "dead_letter") {
					t.Errorf("run = %v, remedy %q; want class Config and the way out", err, failure.RemedyOf(err))
				}
			} else if err != nil {
				t.Errorf("run = %v", err)
			}
			if got := d.gate.topic.ids(); !slices.Equal(got, c.written) {
				t.Errorf("wrote %v, want %v", got, c.written)
			}
			if !slices.Equal(d.gate.dead, c.dead) || len(d.metrics.dead) != c.deadletter || len(d.metrics.skipped) != c.skipped {
				t.Errorf("dead letters %v, counted %v, skipped %v", d.gate.dead, d.metrics.dead, d.metrics.skipped)
			}
			if got := d.tracker.Position(); got != c.position {
				t.Errorf("position %v, want %v", got, c.position)
			}
			if !stops && (d.metrics.published != len(c.written) || d.queue.bytes() != 0 || d.tracker.InFlight() != 0) {
				t.Errorf("published %d, %d bytes and %d events in flight; want %d, 0, 0",
					d.metrics.published, d.queue.bytes(), d.tracker.InFlight(), len(c.written))
			}
		})
	}
}

func TestDeliveryMarksNothingDoneOnAnError(t *testing.T) {
	cause := failure.Lossf("", "broker lost records")
	d := newDelivering(transform.BadEventStop)
	d.gate.fails = cause
	d.send(t, "...")
	err := d.run(t.Context())
	if !errors.Is(err, cause) || failure.ClassOf(err) != failure.Loss {
		t.Errorf("run = %v, want the sink's error", err)
	}
	if d.tracker.InFlight() != 3 || d.metrics.published != 0 {
		t.Errorf("%d in flight, %d published; want 3, 0", d.tracker.InFlight(), d.metrics.published)
	}
}

// Failure mode 31.
func TestDeliveryStopsWhenADeadLetterCannotBeWritten(t *testing.T) {
	for name, letters := range map[string]string{"of an event bad on arrival": "b.", "of a refused event": "r."} {
		t.Run(name, func(t *testing.T) {
			d := newDelivering(transform.BadEventDeadLetter)
			d.gate.deadErr = failure.Configf("grant it", "not allowed to write the dead-letter topic")
			d.send(t, letters)
			d.queue.close()
			err := d.run(t.Context())
			if !errors.Is(err, d.gate.deadErr) || !strings.Contains(err.Error(), "event 1") {
				t.Errorf("run = %v, want the dead letter's error", err)
			}
			if d.tracker.Position() != 0 || len(d.metrics.dead) != 0 {
				t.Errorf("position %v, counted %v", d.tracker.Position(), d.metrics.dead)
			}
		})
	}
}

func TestDeliverySaysHowLongItHasBeenStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDelivering(transform.BadEventStop)
		if d.stuck() != 0 || d.lag() != 0 {
			t.Errorf("stuck for %v, lag %v before anything", d.stuck(), d.lag())
		}
		d.gate.hold()
		d.send(t, ".")
		ctx, cancel := context.WithCancelCause(t.Context())
		_, result := attempt(func() error { return d.run(ctx) })
		pass(15 * time.Second)
		if got := d.stuck(); got != 15*time.Second {
			t.Errorf("stuck for %v, want 15s", got)
		}
		d.gate.open()
		pass(0)
		if d.stuck() != 0 {
			t.Errorf("stuck for %v after the ack", d.stuck())
		}
		cancel(errDrained)
		if err := result(); !errors.Is(err, errDrained) {
			t.Errorf("run = %v, want the context's cause", err)
		}
	})
}

// slowLetters is slow with each dead letter.
type slowLetters struct {
	*gate
	each func()
}

func (s slowLetters) DeadLetter(ctx context.Context, ev *transform.Event, bad *transform.BadEvent) error {
	<-time.After(delivery.StuckAfter / 2) // of the bubble's clock
	s.each()
	return s.gate.DeadLetter(ctx, ev, bad)
}

// A batch of dead letters takes as long as all letters in turn. Each acknowledged letter
// is progress.
func TestManyDeadLettersAreNoStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDelivering(transform.BadEventDeadLetter)
		letters := uint64(0)
		d.sink = slowLetters{d.gate, func() {
			if stuck := d.stuck(); stuck > delivery.StuckAfter || d.count.Load() != letters {
				t.Errorf("%d of %d letters count; without acknowledgement for %s", d.count.Load(), letters, stuck)
			}
			letters++
		}}
		d.send(t, "bbbrr")
		d.queue.close()
		if err := d.run(t.Context()); err != nil || d.count.Load() != 5 {
			t.Errorf("run = %v, %d events dealt with", err, d.count.Load())
		}
	})
}
