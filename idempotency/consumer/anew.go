package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
)

// topicID is Kafka's id of a topic. A topic deleted and created again has
// another id; zero is unknown.
type topicID [16]byte

func (id topicID) String() string { return fmt.Sprintf("%x", id[:]) }

// errAnew ends a session, and Run begins another: one of the topics was deleted
// and created again. A client of franz-go never accepts the new topic for the
// old.
var errAnew = errors.New("a topic was deleted and created again")

// topicWatch knows each consumed topic's id. A topic unknown to a broker by the
// id is in doubt: neither fetched nor committed until the watch knows more.
type topicWatch struct {
	*session
	mu    sync.Mutex
	ids   map[string]topicID
	doubt map[string]error
	woken chan struct{}
}

func newTopicWatch(s *session) *topicWatch {
	return &topicWatch{session: s, ids: map[string]topicID{}, doubt: map[string]error{}, woken: make(chan struct{}, 1)}
}

// unknownTopic reports whether a broker does not know the topic.
func unknownTopic(err error) bool {
	return errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition)
}

// fetched notes the ids fetched.
func (w *topicWatch) fetched(fetches kgo.Fetches) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range fetches {
		for j := range fetches[i].Topics {
			t := &fetches[i].Topics[j]
			if id := topicID(t.TopicID); id != (topicID{}) && id != w.ids[t.Topic] {
				w.ids[t.Topic] = id
			}
		}
	}
}

// suspect puts a topic in doubt.
func (w *topicWatch) suspect(topic string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.doubt[topic] != nil {
		return
	}
	w.doubt[topic] = err
	w.client.PauseFetchTopics(topic)
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// certain leaves out the topics in doubt.
func (w *topicWatch) certain(at positions) positions {
	w.mu.Lock()
	defer w.mu.Unlock()
	for topic := range w.doubt {
		delete(at, topic)
	}
	return at
}

// id returns the id of the consumed topic.
func (w *topicWatch) id(topic string) topicID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ids[topic]
}

// doubts returns the topics in doubt, and why.
func (w *topicWatch) doubts() map[string]error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.doubt)
}

// calm is how long a topic is not in doubt before the waits begin anew.
const calm = time.Minute

// watch looks after topics in doubt until ctx ends. watch ends the session if a
// topic was created again.
func (w *topicWatch) watch(ctx context.Context, fail context.CancelCauseFunc) {
	waits := backoff.Series{Range: w.scheduler.waits}
	said := map[string]bool{}
	var resumed time.Time
	for {
		select {
		case <-w.woken:
		case <-ctx.Done():
			return
		}
		if time.Since(resumed) > calm {
			waits.Reset()
			clear(said)
		}
		for doubts := w.doubts(); len(doubts) > 0; doubts = w.doubts() {
			if waits.Pause(ctx) != nil {
				return
			}
			if w.settle(ctx, doubts, said) {
				fail(errAnew)
				return
			}
		}
		resumed = time.Now()
	}
}

// settle asks a broker for the topics in doubt, and resumes the unchanged.
// settle reports whether a topic was created again.
func (w *topicWatch) settle(ctx context.Context, doubts map[string]error, said map[string]bool) (anew bool) {
	now, err := w.currentIDs(ctx, slices.Collect(maps.Keys(doubts)))
	if err != nil {
		w.cfg.Logger.Warn("cannot ask for topics that a broker does not know", "error", err)
		return false
	}
	for topic, why := range doubts {
		id, exists := now[topic]
		switch {
		case !exists:
			if !said[topic] {
				w.cfg.Logger.Error("the topic is gone, it is waited for", "topic", topic, "error", why,
					"remedy", "create the topic, or take it out of the consumer's topics; what was not consumed of it is lost")
			}
			said[topic] = true
		case w.changed(topic, id):
			anew = true
		default:
			w.cfg.Logger.Warn("a broker does not know the topic, it is asked again", "topic", topic, "error", why)
			w.trust(topic)
		}
	}
	return anew
}

func (w *topicWatch) changed(topic string, id topicID) bool {
	held := w.id(topic)
	return held != (topicID{}) && id != (topicID{}) && held != id
}

func (w *topicWatch) trust(topic string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.doubt, topic)
	w.client.ResumeFetchTopics(topic)
}

// currentIDs returns the ids of existing topics, zero where not told. The
// client's own answer may be old.
func (s *session) currentIDs(ctx context.Context, topics []string) (map[string]topicID, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return nil, fmt.Errorf("ask for the topics' ids: %w", err)
	}
	ids := map[string]topicID{}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic != nil && !unknownTopic(kerr.ErrorForCode(t.ErrorCode)) {
			ids[*t.Topic] = t.TopicID
		}
	}
	return ids, nil
}
