package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/catchup"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// Only a repair with knowledge of all its rows closes a gap.
func TestRepairsThatLeaveAGap(t *testing.T) {
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	known, whenever := checkpoint.AcceptedGap{Since: since}, checkpoint.AcceptedGap{}
	unknown := func(at time.Time) func(*repair) {
		return func(r *repair) { r.unknown.add(&audit.Entry{At: at.UnixMicro()}) }
	}
	for name, c := range map[string]struct {
		gap    checkpoint.AcceptedGap
		change func(*repair)
		listed bool
		want   string
	}{
		"of all rows":                     {whenever, nil, false, ""},
		"of all rows, a known begin":      {known, nil, false, ""},
		"from before the begin":           {known, func(r *repair) { r.opts.Since = since.Add(-time.Hour) }, false, ""},
		"from too near to the begin":      {known, func(r *repair) { r.opts.Since = since.Add(-59 * time.Minute) }, false, "a part"},
		"from a time, of an unknown gap":  {whenever, func(r *repair) { r.opts.Since = time.Unix(1, 0) }, false, "a part"},
		"up to a time":                    {known, func(r *repair) { r.opts.Until = time.Now() }, false, "a part"},
		"of ids":                          {known, func(r *repair) { r.opts.IDs = []string{"x"} }, false, "a part"},
		"of transactions":                 {known, func(r *repair) { r.opts.XIDs = XIDs{From: 1, To: 2} }, false, "a part"},
		"of a condition":                  {known, func(r *repair) { r.opts.Where = "true" }, false, "a part"},
		"of a table":                      {known, func(r *repair) { r.opts.Tables = []pg.Table{{}} }, false, "a part"},
		"without --publish":               {known, nil, true, "without --publish"},
		"with an unknown row in the gap":  {known, unknown(since), false, "nothing is known"},
		"with an older unknown row":       {known, unknown(since.Add(-2 * time.Hour)), false, ""},
		"with an unknown row of any time": {whenever, unknown(since), false, "nothing is known"},
		"with an unknown row without time": {known, func(r *repair) { r.unknown.add(&audit.Entry{At: audit.NoTime}) }, false,
			"nothing is known"},
		"with rows without an id": {known, func(r *repair) { r.rows.Nameless = 1 }, false, "nothing is known"},
		"with twins":              {known, func(r *repair) { r.twins = 1 }, false, "nothing is known"},
		"with bad rows":           {known, func(r *repair) { r.rows.Unrouted = 1 }, false, "nothing is known"},
		"with bad rows that are skipped": {known, func(r *repair) {
			r.rows.Unrouted, r.cfg.Errors.OnBadEvent = 1, transform.BadEventSkip
		}, false, ""},
		"without a slot": {known, func(r *repair) { r.wait = nil }, false, "nothing reads the slot"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &repair{auditor: &auditor{session: &session{cfg: &config.Config{}}, wait: &catchup.Wait{}}}
			if c.change != nil {
				c.change(r)
			}
			why, remedy := r.leaves(&c.gap, !c.listed)
			if c.want == "" && why != "" || !strings.Contains(why, c.want) || (remedy == "") != (why == "") {
				t.Errorf("%q, %q; want %q", why, remedy, c.want)
			}
			if g := c.gap; strings.Contains(why, "a part") && strings.Contains(remedy, "--since") == g.Since.IsZero() {
				t.Errorf("the remedy is %q", remedy)
			}
		})
	}
}

// gapped is a database with an accepted gap, and the slot for a reader.
func gapped(t *testing.T) *published {
	p := newPublished(t)
	p.exec(`SELECT pg_create_logical_replication_slot('` + p.Source.Slot + `', 'pgoutput')`)
	p.save()
	p.note()
	return p
}

// note notes an accepted gap in the checkpoint.
func (p *published) note() {
	cp := *p.stored()
	cp.Accepted = &checkpoint.AcceptedGap{ID: "secret", From: 7, To: cp.LSN, Accepted: time.Now()}
	cp.Epoch++
	p.put(cp)
}

// forgetting reads the slot as a connector with a gap does, until the caller leaves.
func (p *published) forgetting() (leave func() error) {
	p.t.Helper()
	s := must.Get(newSession(p.Config))(p.t)
	s.conn = p.conn
	repl := must.Get(s.replication(p.ctx()))(p.t)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(p.ctx())
	stream := must.Get(wal.Open(ctx, repl, wal.Options{
		Slot: p.Source.Slot, Publication: p.Source.Publication, StatusInterval: time.Second, LivenessTimeout: time.Minute,
		Notice: func(content []byte) {
			var m checkpoint.Mending
			cp := *p.stored()
			if err := json.Unmarshal(content, &m); err != nil || m.Slot != p.Source.Slot || !m.Mends(cp.Accepted) {
				p.t.Errorf("told %s, %v", content, err)
			}
			cp.Accepted = nil
			cp.Epoch++
			p.put(cp)
		},
	}))(p.t)
	go func() { // owner: the caller, joined by leave
		for {
			msg, err := stream.Next(ctx)
			if err != nil {
				ended <- err
				return
			}
			if msg.End > 0 {
				stream.Confirm(msg.End)
			}
		}
	}()
	return func() error {
		stop()
		err := <-ended
		return errors.Join(stream.Close(context.WithoutCancel(ctx)), map[bool]error{true: nil, false: err}[errors.Is(err, context.Canceled)])
	}
}

// The repair asks the reader of the slot to forget the gap, and waits.
func TestRepairClosesAnAcceptedGap(t *testing.T) {
	p := gapped(t)
	p.write(1, 2)
	p.send("outbox.event.order", 1)
	leave := p.forgetting()
	if r := p.look(AuditOptions{}); r.Gap == nil || r.Gap.Ended || p.stored().Accepted == nil {
		t.Errorf("without --publish: %+v", r.Gap)
	}
	r := p.mend(AuditOptions{})
	must.OK(t, leave())
	if r.Published != 1 || r.Gap == nil || !r.Gap.Ended || p.stored().Accepted != nil {
		t.Errorf("%+v, %+v", r, r.Gap)
	}
	must.Contain(t, text(t, r), "published 1, dead-lettered 0, skipped 0\nthe gap accepted at ", "is closed: retention goes on\n")
}

// Without a reader the gap stays.
func TestAGapIsGivenUp(t *testing.T) {
	before := takenUp
	takenUp = 100 * time.Millisecond
	t.Cleanup(func() { takenUp = before })
	p := gapped(t)
	r, err := GiveUpGap(p.ctx(), p.Config, false, io.Discard)
	wantClass(t, err, failure.Config, "this was a preview")
	must.Contain(t, text(t, r), "would be given up")
	r = must.Get(GiveUpGap(p.ctx(), p.Config, true, io.Discard))(t)
	must.Contain(t, text(t, r), "will be given up: the connector has not forgotten it yet")
	if p.stored().Accepted == nil {
		t.Error("the gap is gone")
	}
	leave := p.forgetting()
	await.Until(t, "the message that was waiting", func() bool { return p.stored().Accepted == nil })
	must.OK(t, leave())
	r = must.Get(GiveUpGap(p.ctx(), p.Config, true, io.Discard))(t)
	must.Contain(t, text(t, r), "no accepted gap")

	p.note()
	p.exec(dropSlot(p.fixture))
	_, err = GiveUpGap(p.ctx(), p.Config, true, io.Discard)
	wantClass(t, err, failure.Config, "cannot be read")
}

// A replay without --publish names the missing topic.
func TestReplayNamesATopicThatIsNotThere(t *testing.T) {
	p := newPublished(t)
	p.Sink.Kafka.CreateTopics = false
	p.write(1)
	p.send("outbox.event.order", 1)
	var notes strings.Builder
	must.Get(Replay(p.ctx(), p.Config, ReplayOptions{AuditOptions: p.options(AuditOptions{Notes: &notes}), Name: "n", To: "replays"}))(t)
	must.Contain(t, notes.String(), `topic "replays" does not exist`, "create_topics is false", "kafka-topics.sh")
	must.Get(ReplayTopic(p.ctx(), p.Config, TopicReplayOptions{From: "outbox.event.order", To: "again", Name: "n", Dir: t.TempDir(), Timeout: patience, Notes: &notes}))(t)
	must.Contain(t, notes.String(), `topic "again" does not exist`)
}
