package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
)

// joined is the outcome of a join.
type joined struct {
	// early: the member is in the generation id, and the outcome follows.
	early     bool
	announced announcement
	id        broker.Membership
	sent      time.Time // when the last answered question was sent
	got       assignment
	led       *decided // nil without the lead
	err       error
}

// join asks to join, tells early of the generation, decides if chosen as leader, and asks for the
// assignment. join blocks until all members have joined or timed out, and until the leader has
// decided. member is known to the coordinator, or empty.
func (m *Membership) join(ctx context.Context, member string, a announcement, history placement.History, early chan<- joined) (j joined) {
	j = joined{announced: a, id: broker.Membership{ID: member, Generation: -1}}
	text, err := encode(a)
	if err != nil {
		j.err = fmt.Errorf("write the announcement: %w", err)
		return j
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*m.Options.SessionTimeout, errors.New("the members did not come together in time"))
	defer cancel()
	group := m.group()
	answer, err := group.Join(ctx, member, text)
	j.id = answer.Membership
	if err != nil {
		j.err = fmt.Errorf("join the group: %w", err)
		return j
	}
	early <- joined{early: true, id: j.id}
	var all map[string][]byte
	if answer.Leads {
		if j.led, err = m.decide(answer.Members, history, time.Now()); err != nil {
			j.err = err
			return j
		}
		all = j.led.answers
	}
	j.sent = time.Now()
	got, err := group.Sync(ctx, j.id, all)
	if err != nil {
		j.err = fmt.Errorf("get the assignment: %w", err)
		return j
	}
	if err := decode(got, &j.got); err != nil {
		j.err = fmt.Errorf("read the assignment: %w", err)
	}
	return j
}

// group is the member's side of the group. The membership is static: a process back within the
// session timeout has its pipelines at once, and a second process of the name replaces the
// first. An operator's is not.
func (m *Membership) group() broker.Group {
	g := broker.Group{Client: m.Client, Name: m.Options.Group, Type: protocolType, Protocol: protocol, Session: m.Options.SessionTimeout}
	if m.wants == nil {
		g.Instance = m.Options.Name()
	}
	return g
}

// beat is the outcome of a heartbeat.
type beat struct {
	id   broker.Membership
	sent time.Time
	err  error
}

// beat is a heartbeat.
func (m *Membership) beat(ctx context.Context, id broker.Membership) beat {
	ctx, cancel := context.WithTimeoutCause(ctx, m.Options.SessionTimeout/3, errors.New("the group's coordinator does not answer"))
	defer cancel()
	b := beat{id: id, sent: time.Now()}
	b.err = m.group().Heartbeat(ctx, id)
	return b
}

// leavePatience bounds the farewell: without a farewell, the session ends by itself.
const leavePatience = 2 * time.Second

// leave is the farewell to the coordinator.
func (m *Membership) leave(ctx context.Context, id broker.Membership) error {
	ctx, cancel := context.WithTimeoutCause(ctx, leavePatience, errors.New("the group's coordinator does not answer"))
	defer cancel()
	return m.group().Leave(ctx, id)
}
