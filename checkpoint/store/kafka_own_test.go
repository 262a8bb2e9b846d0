package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
)

// two are a pipeline's stores at a time: as it was, in the shared topic, and with
// a topic of its own.
type two struct {
	opts []kgo.Opt
}

func (p two) shared(t *testing.T) checkpoint.Store { return kafkaAt(p.opts).store(t, "a") }

func (p two) own(t *testing.T) *kafka {
	t.Helper()
	s := must.Get(NewOwnKafka(limited(t), p.opts, testTopic, "a", "User:cdc"))(t)
	t.Cleanup(s.Close)
	return s.(*kafka)
}

func startTwo(t *testing.T) two {
	_, opts := startKafka(t)
	return two{opts}
}

// commit loads a checkpoint, and saves the next one as a Kafka transaction does,
// without a note.
func (p two) commit(t *testing.T, own *kafka, cp checkpoint.Checkpoint) {
	t.Helper()
	_, _, err := own.Load(limited(t))
	must.OK(t, err)
	client := must.Get(kgo.NewClient(append(p.opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))...))(t)
	defer client.Close()
	must.OK(t, client.ProduceSync(limited(t), must.Get(own.Mark(cp))(t)).FirstErr())
}

// startMoved has a checkpoint that went from the shared topic to the own one.
func startMoved(t *testing.T) (two, *kafka) {
	p := startTwo(t)
	save(t, p.shared(t), sample(1))
	own := p.own(t)
	p.commit(t, own, sample(1))
	must.OK(t, own.Leave(limited(t)))
	return p, own
}

func TestOwnTopicGoesOnFromTheSharedOne(t *testing.T) {
	p := startTwo(t)
	save(t, p.shared(t), sample(1))
	own := p.own(t)
	wantLoad(t, own, sample(1))
	p.commit(t, own, sample(1))
	wantLoad(t, p.shared(t), sample(1)) // a crash here leaves the same position in both
	wantLoad(t, p.own(t), sample(1))
	must.OK(t, own.Leave(limited(t)))
	p.commit(t, own, sample(2))
	wantLoad(t, p.own(t), sample(2))

	before := p.shared(t) // another delivery, or an instance that was not told
	wantLoad(t, before, sample(2))
	save(t, before, sample(3))
	wantLoad(t, p.own(t), sample(3))
	must.OK(t, p.own(t).Leave(limited(t)))
	wantLoad(t, p.shared(t), sample(3))
}

// A crash before the note, and then the delivery of before: what that saves counts.
func TestOwnTopicAfterACrashBeforeTheNote(t *testing.T) {
	p := startTwo(t)
	at := func(epoch int64, n uint64) checkpoint.Checkpoint {
		cp := sample(n)
		cp.Epoch = epoch
		return cp
	}
	save(t, p.shared(t), at(1, 3))
	p.commit(t, p.own(t), at(2, 3))
	p.commit(t, p.own(t), at(3, 3))
	save(t, p.shared(t), at(4, 5))
	wantLoad(t, p.own(t), at(4, 5))
	save(t, p.shared(t), at(5, 1)) // an operator accepted a gap
	own := p.own(t)
	wantLoad(t, own, at(5, 1))
	produce(t, p.opts, "a", must.Get(encode(at(4, 6)))(t)) // late, of one that had lost the slot
	wantLoad(t, p.own(t), at(5, 1))

	p.commit(t, own, at(6, 1))
	wantLoad(t, p.own(t), at(6, 1))
	must.OK(t, own.Leave(limited(t)))
	wantLoad(t, p.shared(t), at(6, 1))
	p.commit(t, own, at(6, 2))
	wantLoad(t, p.own(t), at(6, 2))
	wantLoad(t, p.shared(t), at(6, 2))
}

// A crash before the note, and nothing was ever in the shared topic, or is any more.
func TestOwnTopicAfterACrashBeforeTheNoteAlone(t *testing.T) {
	p := startTwo(t)
	p.commit(t, p.own(t), sample(1))
	wantLoad(t, p.own(t), sample(1))
	shared := p.shared(t)
	wantLoad(t, p.own(t), sample(1))
	save(t, shared, sample(2))
	must.OK(t, Forget(limited(t), shared))
	wantNone(t, p.own(t))
	own := p.own(t)
	p.commit(t, own, sample(3))
	must.OK(t, own.Leave(limited(t)))
	wantLoad(t, p.own(t), sample(3))
}

// An operator's decision is no copy of what is in the shared topic.
func TestSaveInTheOwnTopicLeavesTheNote(t *testing.T) {
	p := startTwo(t)
	save(t, p.shared(t), sample(1))
	save(t, p.own(t), sample(2))
	wantLoad(t, p.own(t), sample(2))
	wantLoad(t, p.shared(t), sample(2))
}

// A note that is refused leaves the way back open, also for the note before a first
// start, and for an operator's decision.
func TestOwnTopicWithoutTheRightToTheSharedOne(t *testing.T) {
	for name, creating := range map[string]bool{"before a first start": true, "a decision": false} {
		t.Run(name, func(t *testing.T) {
			cluster, opts := startKafka(t)
			p := two{opts}
			p.shared(t)
			deny := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: testTopic, Partitions: []int32{0}, Err: kerr.TopicAuthorizationFailed, Count: -1})
			refused := sample(2)
			refused.Creating = creating
			if err := p.own(t).Save(limited(t), refused); !errors.Is(err, kerr.TopicAuthorizationFailed) {
				t.Fatal(err)
			}
			deny.Remove()
			save(t, p.shared(t), sample(3))
			wantLoad(t, p.own(t), sample(3))
		})
	}
}

// An instance that lost the slot writes over the note. A restart after that, or a
// session, goes on from its own checkpoint, or leaves another note.
func TestLateCheckpointOverTheNote(t *testing.T) {
	p, own := startMoved(t)
	late := must.Get(encode(sample(3)))(t)
	again := inTheMiddle(3)
	again.Epoch = sample(3).Epoch + 1
	p.commit(t, own, again)
	produce(t, p.opts, "a", late)
	restarted := p.own(t)
	wantLoad(t, restarted, again)
	again.Epoch++
	p.commit(t, restarted, again) // and is killed
	wantLoad(t, p.own(t), again)

	p, own = startMoved(t)
	produce(t, p.opts, "a", late)
	wantLoad(t, own, sample(1))
	must.OK(t, own.Leave(limited(t)))
	wantLoad(t, p.shared(t), sample(1))
}

// What an instance that lost the slot still writes to the shared topic counts for
// nothing, and is covered by another note.
func TestLateCheckpointInTheSharedTopic(t *testing.T) {
	p, _ := startMoved(t)
	late := sample(9)
	late.Epoch--
	produce(t, p.opts, "a", must.Get(encode(late))(t))
	wantLoad(t, p.own(t), sample(1))
	must.OK(t, p.own(t).Leave(limited(t)))
	wantLoad(t, p.shared(t), sample(1))
}

// A program from before knows format versions up to that of a cut.
func TestOlderProgramsRefuseTheNote(t *testing.T) {
	_, own := startMoved(t)
	log := must.Get(kafkalog.Open(limited(t), own.client, testTopic, 0))(t)[0]
	records := must.Get(kafkalog.Newest(limited(t), log, func(r *kgo.Record) bool { return string(r.Key) == "a" }))(t)
	if last := string(records[len(records)-1].Value); !strings.Contains(last, `"version":3`) || cutVersion >= movedVersion {
		t.Errorf("the last record is %s, which older programs would read", last)
	}
}

func TestNoteWithoutACheckpointIsALoss(t *testing.T) {
	p := startTwo(t)
	save(t, p.shared(t), sample(1))
	produce(t, p.opts, "a", must.Get(encodeMoved(OwnTopic(testTopic, "a")))(t))
	own := p.own(t)
	for name, s := range map[string]checkpoint.Store{"own": own, "shared": p.shared(t)} {
		if _, _, err := s.Load(limited(t)); failure.ClassOf(err) != failure.Loss || !errors.Is(err, ErrGone) || failure.RemedyOf(err) == "" {
			t.Errorf("%s: %v, want a loss", name, err)
		}
	}
	save(t, own, sample(2)) // as an operator who accepts it
	wantLoad(t, p.own(t), sample(2))
}

func TestForgetOwnTopic(t *testing.T) {
	p, _ := startMoved(t)
	must.OK(t, Forget(limited(t), p.own(t)))
	wantNone(t, p.own(t))
	wantNone(t, p.shared(t))
}

func TestOwnTopicWithoutASharedOne(t *testing.T) {
	p := startTwo(t)
	own := p.own(t)
	wantNone(t, own)
	save(t, own, sample(1))
	must.OK(t, own.Leave(limited(t)))
	wantLoad(t, p.own(t), sample(1))

	before := p.shared(t) // another delivery: it must not begin without a checkpoint
	wantLoad(t, before, sample(1))
	save(t, before, sample(2))
	wantLoad(t, p.own(t), sample(2))
}

// A slot was made for one delivery, and is first read with the other.
func TestNoteBeforeTheFirstStartIsFoundInBothTopics(t *testing.T) {
	p := startTwo(t)
	beginning := sample(1)
	beginning.Creating = true
	save(t, p.own(t), beginning)

	first := p.shared(t)
	wantLoad(t, first, beginning)
	save(t, first, sample(2))
	wantLoad(t, p.own(t), sample(2))
}

func TestOwnTopicsDiffer(t *testing.T) {
	if got := OwnTopic("checkpoints", "shop/cdc_outbox"); got != "checkpoints.shop-cdc_outbox" {
		t.Errorf("topic %q", got)
	}
	taken := map[string]string{}
	for _, key := range []string{"a/b", "a-b", "a.b", "a b", "a_b", "ä/b", "a/b/c", "a-b/c", strings.Repeat("x", 300), strings.Repeat("x", 301), ""} {
		topic := OwnTopic("checkpoints", key)
		same := strings.ReplaceAll(topic, ".", "_") // to brokers
		if before, ok := taken[same]; ok {
			t.Errorf("keys %q and %q have topic %s", before, key, topic)
		}
		taken[same] = key
		if len(topic) > longestTopic || strings.Trim(topic, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
			t.Errorf("topic %q is not legal", topic)
		}
	}
}
