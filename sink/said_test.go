package sink

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// keyless are events for a compacted topic of a single partition. Brokers refuse
// events without a key: all from first on, but for each tenth.
func keyless(topic string, n, first int) (evs []*transform.Event, written []string) {
	evs = events(topic, n)
	for i, ev := range evs {
		ev.Record.Partition = 0
		if i >= first && i%10 != 0 {
			ev.Record.Key = nil
		} else {
			written = append(written, strconv.Itoa(i))
		}
	}
	return evs, written
}

// aborts counts aborted transactions, and the answers about events until the
// first abort.
type aborts struct {
	unobserved
	answers        atomic.Int64
	aborted, first int64
}

func (a *aborts) Answered() { a.answers.Add(1) }

func (a *aborts) TransactionAborted() {
	if a.aborted++; a.aborted == 1 {
		a.first = a.answers.Load()
	}
}

// Apache Kafka names the refused records, and the reasons. So no batch has to be
// cut in halves: thousands of refused rows would take twice as many aborted
// transactions.
func TestRefusedRecordsAreNamed(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Apache())
	cfg := *DefaultOptions()
	cfg.Brokers = b.Brokers
	const n, first = 3000, 100
	wantReason := func(t *testing.T, bad *transform.BadEvent) {
		t.Helper()
		if bad.Reason != transform.ReasonRejectedByBroker || !strings.Contains(bad.Error(), "INVALID_RECORD") ||
			!strings.Contains(bad.Error(), "Compacted topic cannot accept message without key") {
			t.Fatalf("refused for %s: %s", bad.Reason, bad)
		}
	}
	t.Run("at least once", func(t *testing.T) {
		b.CreateTopic(t, "t", 1, map[string]string{"cleanup.policy": "compact"})
		w := newWitness()
		k, _ := newKafka(t, cfg, WithObserver(w))
		evs, written := keyless("t", n, first)
		var got []int
		must.OK(t, k.Deliver(deadline(t), evs, func(_ context.Context, ev *transform.Event, bad *transform.BadEvent) error {
			wantReason(t, bad)
			got = append(got, int(ev.Position.Seq))
			return nil
		}))
		if want := n - len(written); len(got) != want || !slices.IsSorted(got) {
			t.Errorf("%d events were refused, want %d, in order", len(got), want)
		}
		// The first of a topic alone, the batch, and the parts between the named records.
		if most := int64(2 + (n-first)/10 + 1); w.answers.Load() > most {
			t.Errorf("%d requests, want %d at most", w.answers.Load(), most)
		}
		var values []string
		for _, r := range b.Consume(t, []string{"t"}, kafkatest.Count(len(written))) {
			values = append(values, string(r.Value))
		}
		if !slices.Equal(values, written) {
			t.Errorf("%d records %v, want %d", len(values), values, len(written))
		}
	})
	t.Run("exactly once", func(t *testing.T) {
		b.CreateTopic(t, "x", 1, map[string]string{"cleanup.policy": "compact"})
		b.CreateTopic(t, marks, 1, nil)
		b.CreateTopic(t, "letters", 1, nil)
		var observer aborts
		x := must.Get(NewTransactions(cfg, "tx", WithTransactionObserver(&observer), WithDeadLetterTopic("letters"),
			WithObserver(&observer)))(t)
		t.Cleanup(x.Close)
		must.OK(t, x.Claim(deadline(t)))
		evs, written := keyless("x", n, first)
		entries := entriesOf(evs)
		for refused := must.Get(x.Transact(deadline(t), entries, mark("1")))(t); len(refused) > 0; {
			for _, r := range refused {
				wantReason(t, r.Bad)
				if evs[r.Index].Record.Key != nil {
					t.Fatalf("entry %d was refused, which has a key", r.Index)
				}
				entries[r.Index].Bad = r.Bad
			}
			refused = must.Get(x.Transact(deadline(t), entries, mark("1")))(t)
		}
		// An abort tells of a whole batch of the client's, and the client has its
		// own way to cut batches: small ones for the first records of an unknown
		// topic. Where two batches of an attempt are refused, halves of the attempt
		// are tried until each lies in a single batch.
		if most := 1 + 2*observer.first; observer.aborted > most {
			t.Errorf("%d transactions were aborted for %d refused events, want %d at most", observer.aborted, n-len(written), most)
		}
		for topic, want := range map[string]int{"x": len(written), "letters": n - len(written)} {
			if got := len(b.Consume(t, []string{topic}, kafkatest.Count(want))); got != want {
				t.Errorf("%d records in topic %s, want %d", got, topic, want)
			}
		}
	})
	t.Run("for its time", func(t *testing.T) {
		b.CreateTopic(t, "bounded", 1, map[string]string{"message.timestamp.before.max.ms": "60000"})
		k, _ := newKafka(t, cfg)
		evs := events("bounded", 20)
		deliver(t, k, evs[:1])
		now := time.Now()
		for _, ev := range evs[1:] {
			ev.Record.Partition, ev.Asked = 0, now
		}
		evs[7].Asked = now.Add(-time.Hour)
		deliver(t, k, evs[1:])
		for i, ev := range evs[1:] {
			if kept := !ev.Asked.IsZero(); kept != (i+1 != 7) {
				t.Errorf("event %d kept its time: %t", i+1, kept)
			}
		}
	})
}

// The reason of a wrong clock has the record's time, the broker's sentence
// about it, and the topic's settings.
func TestRefusedTimeIsQuoted(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Apache())
	b.CreateTopic(t, "t", 1, map[string]string{"message.timestamp.before.max.ms": "60000"})
	cfg := *DefaultOptions()
	cfg.Brokers = b.Brokers
	w := newWitness()
	k, _ := newKafka(t, cfg, WithObserver(w))
	ev := event("t", "a", 0, 1)
	ev.Asked = time.Now().Add(-time.Hour)
	must.Get(k.resolve(deadline(t), "t", missingFail))(t)
	round := []placed{{Event: ev}}
	must.OK(t, k.send(deadline(t), round))
	refused := k.batches(round)
	ev.Asked = time.Time{} // as a time of this machine
	if len(refused) != 1 || judge(refused[0].err) != untimely || k.untimely(deadline(t), &refused[0]) {
		t.Fatalf("refused: %+v", refused)
	}
	for _, want := range []string{"INVALID_TIMESTAMP", "should be within", "message.timestamp.before.max.ms=60000", ev.Record.Timestamp.UTC().Format(time.RFC3339)} {
		if !strings.Contains(w.reasons[0], want) {
			t.Errorf("reason %q lacks %q", w.reasons[0], want)
		}
	}
}

// pipe is a connection, with the server's side for the test.
func pipe(t *testing.T, r *answers) (client, server net.Conn) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	dial := r.dialer(func(context.Context, string, string) (net.Conn, error) { return a, nil })
	return must.Get(dial(t.Context(), "tcp", "broker:9092"))(t), b
}

// A connection passes all bytes on to the client, in any pieces.
func TestRefusalsAreReadFromAnyPieces(t *testing.T) {
	const asked = 7
	text, record := "no", "record 2: no"
	resp := kmsg.NewPtrProduceResponse()
	topic := kmsg.NewProduceResponseTopic()
	topic.Topic = "t"
	for i, code := range []int16{0, 87, 87} { // INVALID_RECORD
		p := kmsg.NewProduceResponseTopicPartition()
		p.Partition, p.ErrorCode, p.ErrorMessage = int32(i), code, &text
		if i == 2 {
			p.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: 2, ErrorMessage: &record}, {RelativeOffset: 1}}
		}
		topic.Partitions = append(topic.Partitions, p)
	}
	resp.Topics = append(resp.Topics, topic)
	frame := func(id int32, body []byte) []byte {
		out := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
		return append(binary.BigEndian.AppendUint32(out, uint32(id)), body...)
	}
	for _, version := range []int16{8, 9, 12} {
		for _, size := range []int{1, 3, 1000} {
			t.Run(fmt.Sprintf("version %d, %d bytes", version, size), func(t *testing.T) {
				r := new(answers)
				client, server := pipe(t, r)
				request := make([]byte, requestHead)
				binary.BigEndian.PutUint16(request[6:], uint16(version))
				binary.BigEndian.PutUint32(request[8:], asked)
				go func() {
					buf := make([]byte, len(request))
					_, _ = server.Read(buf)
					resp.Version = version
					var body []byte
					if version >= taggedAnswers {
						body = []byte{0}
					}
					body = resp.AppendTo(body)
					all := append(frame(1, []byte("something else")), frame(asked, body)...)
					for len(all) > 0 {
						n := min(size, len(all))
						_, _ = server.Write(all[:n])
						all = all[n:]
					}
					server.Close()
				}()
				must.Get(client.Write(request))(t)
				buf := make([]byte, 64)
				for {
					if _, err := client.Read(buf); err != nil {
						break
					}
				}
				if said := r.of("t", topicID{}, 0); said != nil {
					t.Errorf("of what was taken: %+v", said)
				}
				if said := r.of("t", topicID{}, 1); said == nil || said.text != text || said.named(5) != nil {
					t.Errorf("of the second: %+v", said)
				}
				said := r.of("t", topicID{}, 2)
				if said == nil || said.text != "" || !slices.Equal(said.named(3), []int{1, 2}) || said.records[2] != record {
					t.Errorf("of the third: %+v", said)
				}
				if said.named(2) != nil {
					t.Error("a record that the batch does not have is named")
				}
				r.note(resp)
				if said := r.of("t", topicID{}, 2); said.named(3) != nil {
					t.Errorf("of one that was sent in parts: %+v", said)
				}
				r.forget()
				if r.of("t", topicID{}, 1) != nil {
					t.Error("not forgotten")
				}
			})
		}
	}
}

// Something else than Kafka may be there.
func TestRefusalsOfNonsense(t *testing.T) {
	for _, answer := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", "\x00\x00\x00\x00\x00\x00\x00\x07", "\xff\xff\xff\xff\x00\x00\x00\x07\x01",
		"\x00\x00\x00\x05\x00\x00\x00\x07\x01", "\x00\x00\x00\x08\x00\x00\x00\x07\x00\xff\xff\xff"} {
		l := &hearing{answers: new(answers), asked: map[int32]int16{7: 12, 0x312e3120: 12}}
		l.hear([]byte(answer))
		if len(l.answers.said) > 0 {
			t.Errorf("%q: %v", answer, l.answers.said)
		}
	}
}
