package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// history is a partition with the transactions of one pipeline.
type history struct {
	*testing.T
	version  int16 // of transactions: from 2 on, each has an epoch of its own
	producer int64
	epoch    int16
	saved    uint64
	all      []*kgo.Record  // with markers
	hidden   map[int64]bool // offsets of aborted or compacted records
}

// view is a reader's view of the history.
type view struct {
	*history
	raw bool
}

func (v view) Bounds() (start, end int64) { return 0, int64(len(v.all)) }

func (v view) Read(_ context.Context, from int64) (records []*kgo.Record, next int64, err error) {
	next = min(from+50, int64(len(v.all)))
	for _, r := range v.all[from:next] {
		if v.raw || !r.Attrs.IsControl() && !v.hidden[r.Offset] {
			records = append(records, r)
		}
	}
	return records, next, nil
}

func (h *history) look() (found, error) {
	l, err := lookAt(h.Context(), "a", kafkalog.Newest, view{h, false}, view{h, true})
	must.OK(h, err)
	return l.found()
}

func (h *history) add(r *kgo.Record) *kgo.Record {
	r.Offset, r.ProducerID, r.ProducerEpoch = int64(len(h.all)), h.producer, h.epoch
	h.all = append(h.all, r)
	return r
}

// save writes a checkpoint of a transaction with so many events. It returns the
// checkpoint, and the Doubtful expected in case of doubt: every second transaction had
// to be written again, after an hour.
func (h *history) save(events int) (checkpoint.Checkpoint, checkpoint.Doubtful) {
	h.saved++
	cp, written := sample(h.saved), checkpoint.Written{}
	at := cp.SavedAt.Add(time.Duration(h.saved%2) * time.Hour)
	for n := range events {
		written.Count("orders", int32(n%3))
	}
	h.add(&kgo.Record{
		Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true}), Timestamp: at,
		Key: []byte("a"), Value: must.Get(encode(cp))(h),
		Headers: []kgo.RecordHeader{{Key: checkpoint.WrittenHeader, Value: must.Get(written.Header())(h)}},
	})
	again := cp
	again.SavedAt = at
	return cp, checkpoint.Doubtful{Saved: again, Producer: h.producer, Epoch: h.epoch, Written: written}
}

// end writes a marker with the epoch.
func (h *history) end(how kmsg.ControlRecordKeyType, epoch int16) {
	h.epoch = epoch
	key := kmsg.ControlRecordKey{Type: how}
	h.add(&kgo.Record{Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: true}), Key: key.AppendTo(nil)})
}

// ended is the epoch of a marker requested by the producer itself.
func (h *history) ended() int16 {
	if h.version >= 2 {
		return h.epoch + 1
	}
	return h.epoch
}

func (h *history) commit() { h.end(kmsg.ControlRecordKeyTypeCommit, h.ended()) }

// fence aborts an open transaction with the epoch.
func (h *history) fence(epoch int16) {
	for n := len(h.all) - 1; n >= 0 && !h.all[n].Attrs.IsControl(); n-- {
		h.hidden[int64(n)] = true
	}
	h.end(kmsg.ControlRecordKeyTypeAbort, epoch+1)
}

func (h *history) want(cp checkpoint.Checkpoint, doubtful []checkpoint.Doubtful) {
	h.Helper()
	cp.Doubtful = doubtful
	f, err := h.look()
	if err != nil || !f.ok || !reflect.DeepEqual(f.Checkpoint, cp) {
		h.Fatalf("version %d: found %+v, %v; want %+v", h.version, f.Checkpoint, err, cp)
	}
}

// The last checkpoint committed, and not aborted afterwards, counts. Later
// transactions are in doubt, if they have events.
func TestCheckpointsThatWereAborted(t *testing.T) {
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 9))
		h := &history{T: t, version: 1 + int16(seed%2), producer: 7, hidden: map[int64]bool{}}
		cp, _ := h.save(0)
		h.commit()
		var doubtful []checkpoint.Doubtful
		for range random.IntN(300) {
			events, epoch := random.IntN(5), h.epoch
			next, doubt := h.save(events)
			switch n := random.IntN(6 + 4*int(seed%20)); { // some have long rows of aborts
			case n < 3:
				h.fence(epoch)
			case n < 6:
				h.commit()
				if events == 0 {
					cp, doubtful = next, nil
				}
				h.fence(epoch)
				doubt.Committed = true
			default:
				h.commit()
				cp, doubtful = next, nil
				continue
			}
			if doubt.Aborted = h.epoch; events > 0 {
				doubtful = append(doubtful, doubt)
			}
		}
		h.want(cp, doubtful)
	}
}

// With an epoch for each transaction, a transaction with nothing but an abort in the
// partition says nothing of the previous transaction.
func TestAbortOfTheNextTransaction(t *testing.T) {
	h := &history{T: t, version: 2, producer: 7, hidden: map[int64]bool{}}
	cp, _ := h.save(3)
	h.commit()
	h.fence(h.epoch)
	h.want(cp, nil)
}

// Knowledge of former transactions stays with the checkpoint.
func TestDoubtfulAgain(t *testing.T) {
	h := &history{T: t, version: 2, producer: 7, hidden: map[int64]bool{}}
	cp, former := h.save(3)
	former.Saved.Cut = checkpoint.Cut{Landmark: cp.Landmark, Seq: 4}
	former.Saved.Ends = nil // the counting checkpoint has them
	cp.Doubtful = []checkpoint.Doubtful{former}
	h.all[0].Value = must.Get(encode(cp))(t)
	h.commit()
	epoch := h.epoch
	_, latter := h.save(3)
	h.fence(epoch)
	latter.Aborted = h.epoch
	h.want(cp, []checkpoint.Doubtful{former, latter})
}

func TestTornCheckpointWithNoneBeforeIsALoss(t *testing.T) {
	h := &history{T: t, version: 2, producer: 7, hidden: map[int64]bool{}}
	h.save(3)
	h.commit()
	epoch := h.epoch
	h.hidden[0] = true // compacted
	h.save(3)
	h.commit()
	h.fence(epoch)
	if _, err := h.look(); failure.ClassOf(err) != failure.Loss || !errors.Is(err, ErrGone) { // or accept-gap could not go on
		t.Errorf("%v, want a loss with a remedy", err)
	}
	h.add(&kgo.Record{Key: []byte("a")}) // forgotten
	if f, err := h.look(); err != nil || f.ok {
		t.Errorf("%+v, %v; want nothing", f, err)
	}
}

// Checkpoints of former programs do not name their transactions' records. An aborted
// transaction is then judged as by the former programs, and a transaction committed
// first is known to be torn.
func TestCheckpointsWithoutWritten(t *testing.T) {
	for _, torn := range []bool{false, true} {
		h := &history{T: t, version: 2, producer: 7, hidden: map[int64]bool{}}
		cp, _ := h.save(3)
		h.commit()
		epoch := h.epoch
		_, doubt := h.save(3)
		h.all[len(h.all)-1].Headers = nil
		var want []checkpoint.Doubtful
		if torn {
			h.commit()
		}
		h.fence(epoch)
		if torn {
			doubt.Written, doubt.Aborted, doubt.Committed = nil, h.epoch, true
			want = append(want, doubt)
		}
		h.want(cp, want)
	}
}
