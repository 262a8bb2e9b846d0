package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A replay from a topic tells how far it has read and written, and how long the rest
// takes.
func TestAReplayOfATopicTellsItsProgress(t *testing.T) {
	before := audit.TellEvery
	audit.TellEvery = time.Millisecond
	t.Cleanup(func() { audit.TellEvery = before })
	p := newPublished(t)
	p.broker.CreateTopic(t, "source", 1, nil)
	p.broker.CreateTopic(t, "elsewhere", 1, nil)
	p.wrote("source", pastEvents...)
	var notes strings.Builder
	opts := TopicReplayOptions{From: "source", To: "elsewhere", Until: time.Now(), Name: "again", Rate: 2, Publish: true, Dir: t.TempDir(), Timeout: patience, Notes: &notes}
	must.Get(ReplayTopic(p.ctx(), p.Config, opts))(t)
	must.Contain(t, notes.String(), "records of topic source, ", "records of the topics that replay again publishes to are ahead", "published 2 of 6 records, about ")
	r := p.opened(TopicReplayOptions{From: "source", To: "elsewhere", Offsets: []OffsetRange{{0, 1, 3}, {0, 5, lastOffset}}})
	if passed, ahead := r.passed.Load(), r.ahead.Load(); passed != int64(len(pastEvents)-1) || ahead != 0 {
		t.Errorf("%d records passed, %d ahead", passed, ahead)
	}
}
