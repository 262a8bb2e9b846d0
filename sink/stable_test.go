package sink

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// An open transaction of another producer holds consumers of our topics back.
func TestHeldBackByAnotherTransaction(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Apache())
	b.CreateTopic(t, "t", 2, nil)
	cfg := DefaultOptions()
	cfg.Brokers = b.Brokers
	s := must.Get(NewStableOffsets(*cfg))(t)
	defer s.Close()
	look := func() HeldBack { return must.Get(s.look(t.Context(), time.Minute))(t) }
	if back := look(); back != (HeldBack{}) {
		t.Errorf("without a topic: %+v", back)
	}
	s.Add("t")
	s.Add("unknown")
	other := b.Client(t, kgo.TransactionalID("other"))
	must.OK(t, other.BeginTransaction())
	for range 3 {
		must.OK(t, other.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Key: []byte("k"), Value: []byte("x")}).FirstErr())
	}
	if back := look(); back != (HeldBack{Records: 3}) {
		t.Errorf("at first: %+v, want 3 records", back)
	}
	if back := look(); back.Records != 3 || back.For <= 0 {
		t.Errorf("a look later: %+v, want 3 records for a while", back)
	}
	must.OK(t, other.EndTransaction(t.Context(), kgo.TryCommit))
	await.Until(t, "the markers", func() bool { return look() == HeldBack{} })
}

// A working pipeline has transactions one after the other: the offsets move.
func TestMovingOffsetsAreNotHeldBack(t *testing.T) {
	listed := func(offset int64) broker.Offsets {
		return broker.Offsets{"t": {0: {At: offset}}}
	}
	s := &StableOffsets{}
	began := time.Now()
	for n := range int64(10) {
		back := s.judge(began.Add(time.Duration(n)*time.Minute), listed(10*n), listed(10*n+5))
		if back != (HeldBack{Records: 5}) {
			t.Errorf("after %d minutes: %+v", n, back)
		}
	}
	if back := s.judge(began.Add(11*time.Minute), listed(90), listed(200)); back != (HeldBack{110, 2 * time.Minute}) {
		t.Errorf("after a stop: %+v", back)
	}
}
