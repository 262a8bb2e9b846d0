package sink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// A broker explains the refusal of a batch beyond the code: a sentence, and the records at
// fault, each with a sentence (KIP-467). The client hands up the code only. So the sink's
// connections read the explanations in the answers that pass through them.

// refusal is a broker's explanation of a refused batch.
type refusal struct {
	text    string           // of the batch; "" where records are named
	records map[int32]string // by their indices in the batch
}

// named are the indices of the records at fault, in order; none if the broker names no
// record, or an index outside the batch.
func (r *refusal) named(records int) (indices []int) {
	if r == nil {
		return nil
	}
	for _, i := range slices.Sorted(maps.Keys(r.records)) {
		if i < 0 || int(i) >= records {
			return nil
		}
		indices = append(indices, int(i))
	}
	return indices
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// explained adds the broker's text to the error of a refusal, if it is news.
func explained(err error, text string) error {
	if strings.Contains(err.Error(), text) {
		return err
	}
	return fmt.Errorf("%w (%s)", err, text)
}

// place is the destination of a batch: newer brokers name topics by ids only.
type place struct {
	topic     string
	id        topicID
	partition int32
}

// answers are the refusals of the last attempt, written by the client's connections.
type answers struct {
	mu   sync.Mutex
	said map[place]*refusal
}

// forget begins a new attempt.
func (r *answers) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.said)
}

// of returns the refusal of the partition's batch, or nil.
func (r *answers) of(topic string, id topicID, partition int32) *refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if said := r.said[place{topic: topic, partition: partition}]; said != nil {
		return said
	}
	return r.said[place{id: id, partition: partition}]
}

// note takes the refusals in an answer.
func (r *answers) note(resp *kmsg.ProduceResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				continue
			}
			at := place{t.Topic, t.TopicID, p.Partition}
			said := &refusal{records: make(map[int32]string)}
			if r.said[at] != nil { // the share was sent in parts, and indices count within a part
				r.said[at] = &refusal{}
				continue
			}
			for _, rec := range p.ErrorRecords {
				said.records[rec.RelativeOffset] = deref(rec.ErrorMessage)
			}
			switch {
			case len(said.records) > 0: // the text would list them
			case badEvent(kerr.ErrorForCode(p.ErrorCode)).Reason == transform.ReasonRecordTooLarge: // the code says all
			default:
				said.text = deref(p.ErrorMessage)
			}
			if r.said == nil {
				r.said = make(map[place]*refusal)
			}
			r.said[at] = said
		}
	}
}

// dialer returns dial with connections that read refusals.
func (r *answers) dialer(dial broker.DialFunc) broker.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &hearing{Conn: conn, answers: r, asked: make(map[int32]int16)}, nil
	}
}

// hearing is a connection that also reads the answers to produce requests.
type hearing struct {
	net.Conn
	answers *answers

	mu    sync.Mutex
	asked map[int32]int16 // the versions of produce requests, by correlation id

	// Of a single reader, about the present answer:
	head    []byte // length and correlation id
	left    int    // bytes to come behind the head
	body    []byte // the bytes behind the head, for a produce request
	version int16  // of the produce request
	produce bool
	lost    bool // the ends of answers are unknown from here on
}

const (
	requestHead = 4 + 2 + 2 + 4 // length, key, version, correlation id
	answerHead  = 4 + 4         // length, correlation id
	// taggedAnswers is the version from which on answers to produce requests have a
	// header with tags.
	taggedAnswers = 9
)

// Write implements net.Conn. The client writes each request as a whole.
func (l *hearing) Write(p []byte) (int, error) {
	if len(p) >= requestHead && kmsg.Key(binary.BigEndian.Uint16(p[4:])) == kmsg.Produce {
		l.mu.Lock()
		l.asked[int32(binary.BigEndian.Uint32(p[8:]))] = int16(binary.BigEndian.Uint16(p[6:]))
		l.mu.Unlock()
	}
	return l.Conn.Write(p)
}

// Read implements net.Conn.
func (l *hearing) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.hear(p[:n])
	return n, err
}

// hear takes bytes of answers, as they come.
func (l *hearing) hear(p []byte) {
	for len(p) > 0 && !l.lost {
		if missing := answerHead - len(l.head); missing > 0 {
			n := min(missing, len(p))
			l.head, p = append(l.head, p[:n]...), p[n:]
			if len(l.head) == answerHead {
				l.begin()
			}
			continue
		}
		n := min(l.left, len(p))
		if l.produce {
			l.body = append(l.body, p[:n]...)
		}
		p, l.left = p[n:], l.left-n
		if l.left == 0 {
			l.end()
		}
	}
}

// begin reads the head of an answer.
func (l *hearing) begin() {
	l.left = int(int32(binary.BigEndian.Uint32(l.head))) - (answerHead - 4)
	if l.left <= 0 {
		l.lost = true
		return
	}
	id := int32(binary.BigEndian.Uint32(l.head[4:]))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version, l.produce = l.asked[id]
	delete(l.asked, id)
}

// end reads a whole answer. An unreadable answer is left to the client.
func (l *hearing) end() {
	if l.produce {
		if resp, err := readProduced(l.body, l.version); err == nil {
			l.answers.note(resp)
		}
	}
	l.head, l.body, l.produce = l.head[:0], l.body[:0], false
}

func readProduced(body []byte, version int16) (*kmsg.ProduceResponse, error) {
	if version >= taggedAnswers {
		if body[0] != 0 {
			return nil, errors.New("tags in the header of an answer")
		}
		body = body[1:]
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = version
	return resp, resp.ReadFrom(body)
}
