package fleet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap/zaptest"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

func TestMembersShareThePipelines(t *testing.T) {
	w := newWorld(t, 6)
	a := w.start("a")
	w.eventually("all at the only member", []*process{a}, 6)
	b := w.start("b")
	w.eventually("half at each", []*process{a, b}, 3, 3)
	c := w.start("c")
	w.eventually("a third at each", []*process{a, b, c}, 2, 2, 2)

	c.stop()
	<-c.ended
	if c.err != nil {
		t.Error(c.err)
	}
	w.eventually("half at each of the others", []*process{a, b, c}, 3, 3, 0)
}

func TestADeadMembersPipelinesGoToOthers(t *testing.T) {
	w := newWorld(t, 4)
	a, b := w.start("a"), w.start("b")
	w.eventually("half at each", []*process{a, b}, 2, 2)
	b.kill()
	w.eventually("all at the other", []*process{a, b}, 4, 0)
	await.Until(t, "the reason", func() bool {
		v := w.look()
		return len(v.Moves) > 0 && v.Moves[0].Reason == placement.Gone && v.Moves[0].From == "b" && v.Moves[0].To == "a"
	})
}

// A process that comes back within the session timeout has its pipelines again, and the
// others theirs.
func TestARestartMovesNothing(t *testing.T) {
	w := newWorld(t, 4)
	a, b := w.start("a"), w.start("b")
	w.eventually("half at each", []*process{a, b}, 2, 2)
	had, others := b.pipelines(), a.pipelines()
	before := len(w.look().Moves)
	b.kill()
	b = w.start("b")
	w.eventually("half at each again", []*process{a, b}, 2, 2)
	if now := b.pipelines(); !slices.Equal(now, had) {
		t.Errorf("%v after a restart, and %v before", now, had)
	}
	if now := a.pipelines(); !slices.Equal(now, others) {
		t.Errorf("the other has %v after the restart, and had %v", now, others)
	}
	moves := w.look().Moves // the latest first; a new leader may not tell of the former's
	for _, m := range moves[:max(0, len(moves)-before)] {
		t.Errorf("moved: %+v", m)
	}
}

func TestASecondProcessOfANameIsTheOnly(t *testing.T) {
	w := newWorld(t, 2)
	first := w.start("a")
	w.eventually("all at the first", []*process{first}, 2)
	w.slots = map[string]*hands{} // the slots are the lock: the second stands by
	second := w.start("a")
	<-first.ended
	if failure.ClassOf(first.err) != failure.Config || failure.RemedyOf(first.err) == "" {
		t.Errorf("the first ended with %v", first.err)
	}
	w.eventually("all at the second", []*process{first, second}, 0, 2)
}

// A leader that lives, and answers later than the session, stops no pipeline.
func TestALateAnswerStopsNobody(t *testing.T) {
	w := newWorld(t, 2)
	group := broker.Group{Client: w.client, Name: "f", Type: protocolType, Protocol: protocol, Session: 8 * session}
	says := must.Get(encode(announcement{Wants: &wish{}}))(t)
	leader := New(Parts{Options: DefaultOptions(), Hands: noHands{}, Log: zaptest.NewLogger(t), Metrics: noMetrics{}})
	var in broker.Generation
	answer := func() error {
		d := must.Get(leader.decide(in.Members, placement.History{}, time.Now()))(t)
		_, err := group.Sync(t.Context(), in.Membership, d.answers)
		return err
	}
	in = must.Get(group.Join(t.Context(), "", says))(t)
	must.OK(t, answer())
	a := w.start("a")
	for len(in.Members) < 2 {
		in = must.Get(group.Join(t.Context(), in.ID, says))(t)
		if err := answer(); !errors.Is(err, kerr.RebalanceInProgress) { // the other joins
			must.OK(t, err)
		}
	}
	w.eventually("all at the member", []*process{a}, 2)

	in = must.Get(group.Join(t.Context(), in.ID, says))(t)
	joined := time.Now()
	await.Until(t, "two sessions of the member", func() bool {
		must.OK(t, group.Heartbeat(t.Context(), in.Membership))
		return time.Since(joined) > 2*session
	})
	if n := len(a.pipelines()); n != 2 || !a.Standing().Joined {
		t.Errorf("%d pipelines while the leader decides, joined %v", n, a.Standing().Joined)
	}
	must.OK(t, answer())
	w.eventually("all at the member", []*process{a}, 2)
}

// A member cut off from the brokers stops all pipelines before others have them.
func TestAMemberCutOffHoldsNothing(t *testing.T) {
	address := must.Get(freeport.TakeAddress())(t)
	w := newWorld(t, 4, kafkatest.Advertised(address))
	front := must.Get(proxy.Listen(address, w.broker.Brokers[0]))(t)
	t.Cleanup(func() { must.OK(t, front.Close()) })
	a := w.start("a", front.Addr())
	w.eventually("all at the member", []*process{a}, 4)
	front.Refuse(true)
	front.Cut()
	w.eventually("none", []*process{a}, 0)
	if s := a.Standing(); s.Joined || s.Waiting == nil {
		t.Errorf("standing %+v", s)
	}
	front.Refuse(false)
	w.eventually("all again", []*process{a}, 4)
}

// A pipeline that drains for long holds up nobody else.
func TestASlowDrainHoldsUpNobody(t *testing.T) {
	w := newWorld(t, 4)
	a := w.start("a")
	w.eventually("all at the only member", []*process{a}, 4)
	slow := make(chan struct{})
	w.mu.Lock()
	w.slow["p0"] = slow
	w.mu.Unlock()
	b := w.start("b")
	await.Until(t, "drain of the slow pipeline", func() bool {
		return slices.ContainsFunc(a.hands.Holds(), func(h placement.Hold) bool { return h.Stopping && h.Pipeline == "p0" })
	})
	await.Until(t, "news of it", func() bool {
		v := w.look()
		return slices.ContainsFunc(v.Pipelines, func(p PipelineView) bool { return p.Name == "p0" && p.Waiting == "member a drains it" })
	})
	c := w.start("c")
	await.Until(t, "third member", func() bool { return c.Standing().Joined })
	if n := len(a.hands.Holds()); n != 4 {
		t.Errorf("%d pipelines while one drains", n)
	}
	close(slow)
	await.Until(t, "shares", func() bool { return len(a.pipelines()) <= 2 && len(b.pipelines())+len(c.pipelines()) >= 2 })
}

func TestDrainAMember(t *testing.T) {
	w := newWorld(t, 4)
	a, b := w.start("a"), w.start("b")
	w.eventually("half at each", []*process{a, b}, 2, 2)
	if _, err := Drain(t.Context(), w.client, "f", "bb", true); failure.RemedyOf(err) != "did you mean b?" {
		t.Errorf("a mistyped member: %v, %q", err, failure.RemedyOf(err))
	}
	v := must.Get(Drain(t.Context(), w.client, "f", "b", true))(t)
	if !v.drained("b") || v.drained("a") {
		t.Errorf("members %+v", v.Members)
	}
	w.eventually("all at the other", []*process{a, b}, 4, 0)
	await.Until(t, "the count", func() bool { return w.look().Left("b") == 0 })

	b.kill()
	b = w.start("b")
	w.eventually("half at each after a restart", []*process{a, b}, 2, 2)

	must.Get(Drain(t.Context(), w.client, "f", "b", true))(t)
	w.eventually("all at the other", []*process{a, b}, 4, 0)
	must.Get(Drain(t.Context(), w.client, "f", "b", false))(t)
	w.eventually("half at each after the end of the drain", []*process{a, b}, 2, 2)
}

// A pipeline with a new specification goes where that is known, and back to nobody else.
func TestANewFileRollsOut(t *testing.T) {
	w := newWorld(t, 4)
	a, b := w.start("a"), w.start("b")
	w.eventually("half at each", []*process{a, b}, 2, 2)
	b.stop()
	<-b.ended
	w.specs["p4"] = "first"
	for name := range w.specs {
		w.specs[name] = "second"
	}
	w.loaded++
	b = w.start("b")
	await.Until(t, "new pipeline", func() bool { return slices.Contains(b.pipelines(), "p4") })
	await.Until(t, "roll-out of the share", func() bool { return len(b.pipelines()) >= 3 })
	v := w.look()
	for _, p := range v.Pipelines {
		if p.Outdated != (p.Member == "a") {
			t.Errorf("%+v", p)
		}
	}
	a.stop()
	<-a.ended
	w.eventually("all at the member with the new file", []*process{b}, 5)
}

// Members with a file read anew take it one pipeline at a time, each at its member.
func TestAFileReadAnewRollsOutInPlace(t *testing.T) {
	w := newWorld(t, 6)
	a, b := w.start("a"), w.start("b")
	w.eventually("half at each", []*process{a, b}, 3, 3)
	had, before := a.pipelines(), len(w.look().Moves)
	for name := range w.specs {
		w.specs[name] = "second"
	}
	delete(w.specs, "p5")
	w.loaded++
	a.read()
	b.read()
	await.Until(t, "the file everywhere", func() bool {
		all := append(a.hands.Holds(), b.hands.Holds()...)
		return len(all) == 5 && !slices.ContainsFunc(all, func(h placement.Hold) bool { return h.Spec != "second" })
	})
	moves := w.look().Moves // the latest first
	moves = moves[:len(moves)-before]
	if len(moves) != 5 {
		t.Errorf("%d moves", len(moves))
	}
	for _, m := range moves {
		if m.From != m.To || m.Reason != placement.Rollout {
			t.Errorf("moved: %+v", m)
		}
	}
	for _, name := range a.pipelines() {
		if !slices.Contains(had, name) {
			t.Errorf("%s is at another member", name)
		}
	}
}

func TestAGroupOfOthers(t *testing.T) {
	w := newWorld(t, 1)
	if _, err := Look(t.Context(), w.client, "f"); !errors.Is(err, ErrNoGroup) {
		t.Errorf("no fleet: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := Drain(ctx, w.client, "f", "a", true); !errors.Is(err, ErrNoGroup) {
		t.Errorf("drain without a fleet: %v", err)
	}
}

// counted count the calls of Run.
type counted struct {
	noHands
	runs int
}

func (c *counted) Run([]placement.Place) { c.runs++ }

// After a silence, the former assignment is no answer to a join with nothing held: its pipelines
// may be another's by now.
func TestAfterASilenceTheAnswerToAJoinCounts(t *testing.T) {
	for _, joining := range []bool{true, false} {
		hands := &counted{}
		m := New(Parts{
			Options: DefaultOptions(), Hands: hands, Log: zaptest.NewLogger(t), Metrics: noMetrics{},
			Offers: func() []placement.Offer { return []placement.Offer{{Pipeline: "p0", Spec: "first"}} },
		})
		s := &m.state
		s.id, s.in, s.dropped, s.joining = broker.Membership{ID: "m", Generation: 3}, true, true, joining
		s.run = []placement.Place{{Pipeline: "p0", Spec: "first"}}
		must.OK(t, m.afterBeat(beat{id: s.id, sent: time.Now(), err: kerr.RebalanceInProgress}))
		if s.dropped || joining != (hands.runs == 0) {
			t.Errorf("joining %v: dropped %v, %d assignments taken", joining, s.dropped, hands.runs)
		}
	}
}

// held are the holds of a moment.
type held struct {
	noHands
	holds []placement.Hold
}

func (h *held) Holds() []placement.Hold { return h.holds }

// The group hears once that pipelines have started: after the last of them.
func TestTheGroupHearsOfStarts(t *testing.T) {
	hands := &held{}
	m := New(Parts{
		Options: DefaultOptions(), Hands: hands, Log: zaptest.NewLogger(t), Metrics: noMetrics{},
		Offers: func() []placement.Offer { return nil },
	})
	s := &m.state
	s.in, s.told.Holds = true, []placement.Hold{{Pipeline: "p0", Starting: true}, {Pipeline: "p1", Starting: true}}
	for n, step := range []struct{ first, second, again bool }{{true, true, false}, {false, true, false}, {false, false, true}} {
		hands.holds = []placement.Hold{{Pipeline: "p0", Starting: step.first}, {Pipeline: "p1", Starting: step.second}}
		m.look()
		if s.again != step.again {
			t.Errorf("step %d: joins again %v", n, s.again)
		}
	}
}

// A heartbeat of another generation renews no session. The generation is that of the last join
// from its answer on: while the leader decides, and without an assignment, when the next has begun
// meanwhile.
func TestHeartbeatsAreOfTheLastGeneration(t *testing.T) {
	m := New(Parts{Options: DefaultOptions(), Hands: noHands{}, Log: zaptest.NewLogger(t), Metrics: noMetrics{}})
	s := &m.state
	before, heard := broker.Membership{ID: "m", Generation: 3}, time.Now().Add(-time.Second)
	s.id, s.in, s.heard = before, true, heard
	must.OK(t, m.afterBeat(beat{id: before, sent: time.Now(), err: kerr.IllegalGeneration}))
	if !s.heard.Equal(heard) || !s.again {
		t.Errorf("heard %v, joins again %v", s.heard.Sub(heard), s.again)
	}
	next := broker.Membership{ID: "m", Generation: 4}
	s.joining = true
	must.OK(t, m.afterJoin(joined{id: next, early: true}))
	if s.id != next || !s.joining {
		t.Errorf("the next heartbeat is of %+v, joining %v", s.id, s.joining)
	}
	must.OK(t, m.afterBeat(beat{id: next, sent: time.Now()}))
	if !s.heard.After(heard) {
		t.Error("while the leader decides, nothing is heard")
	}
	must.OK(t, m.afterJoin(joined{id: next, err: kerr.RebalanceInProgress}))
	if s.id != next || s.joining {
		t.Errorf("the next heartbeat is of %+v, joining %v", s.id, s.joining)
	}
}
