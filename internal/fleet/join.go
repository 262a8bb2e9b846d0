package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
)

// identity is a member's at the coordinator.
type identity struct {
	member     string // "" before the first join
	generation int32
}

// joined is the outcome of a join.
type joined struct {
	announced announcement
	id        identity
	sent      time.Time // when the last answered question was sent
	got       assignment
	led       *decided // nil without the lead
	err       error
}

// join asks to join, decides if chosen as leader, and asks for the assignment. join blocks until all
// members have joined or timed out. member is known to the coordinator, or empty.
func (m *Membership) join(ctx context.Context, member string, a announcement, history placement.History) (j joined) {
	j = joined{announced: a, id: identity{member: member, generation: -1}}
	text, err := encode(a)
	if err != nil {
		j.err = fmt.Errorf("write the announcement: %w", err)
		return j
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*m.Options.SessionTimeout, errors.New("the members did not come together in time"))
	defer cancel()
	answer, err := m.askJoin(ctx, &j, text)
	if err != nil {
		j.err = fmt.Errorf("join the group: %w", err)
		return j
	}
	j.id.generation = answer.Generation
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.InstanceID = m.Options.Group, j.id.member, m.instance()
	sync.Generation, sync.ProtocolType, sync.Protocol = answer.Generation, kmsg.StringPtr(protocolType), kmsg.StringPtr(protocol)
	if answer.LeaderID == j.id.member && !answer.SkipAssignment {
		if j.led, err = m.decide(answer.Members, history, time.Now()); err != nil {
			j.err = err
			return j
		}
		sync.GroupAssignment = j.led.answers
	}
	j.sent = time.Now()
	synced, err := sync.RequestWith(ctx, m.Client)
	if err == nil {
		err = kerr.ErrorForCode(synced.ErrorCode)
	}
	if err != nil {
		j.err = fmt.Errorf("get the assignment: %w", err)
		return j
	}
	if err := decode(synced.MemberAssignment, &j.got); err != nil {
		j.err = fmt.Errorf("read the assignment: %w", err)
	}
	return j
}

// askJoin sends the request, and again with the name given by the coordinator, if wanted.
func (m *Membership) askJoin(ctx context.Context, j *joined, text []byte) (*kmsg.JoinGroupResponse, error) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.InstanceID, req.ProtocolType = m.Options.Group, m.instance(), protocolType
	req.SessionTimeoutMillis = int32(m.Options.SessionTimeout.Milliseconds())
	req.RebalanceTimeoutMillis = req.SessionTimeoutMillis
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = protocol, text
	req.Protocols = append(req.Protocols, p)
	for again := false; ; again = true {
		req.MemberID = j.id.member
		answer, err := req.RequestWith(ctx, m.Client)
		if err != nil {
			return nil, err
		}
		err = kerr.ErrorForCode(answer.ErrorCode)
		if errors.Is(err, kerr.MemberIDRequired) && !again {
			j.id.member = answer.MemberID
			continue
		}
		if err != nil {
			return nil, err
		}
		j.id.member = answer.MemberID
		return answer, nil
	}
}

// instance makes the membership static: a process back within the session timeout has its
// pipelines at once, and a second process of the name replaces the first.
func (m *Membership) instance() *string {
	if m.wants != nil {
		return nil
	}
	return kmsg.StringPtr(m.Options.Name())
}

// beat is the outcome of a heartbeat.
type beat struct {
	id   identity
	sent time.Time
	err  error
}

// beat is a heartbeat.
func (m *Membership) beat(ctx context.Context, id identity) beat {
	ctx, cancel := context.WithTimeoutCause(ctx, m.Options.SessionTimeout/3, errors.New("the group's coordinator does not answer"))
	defer cancel()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = m.Options.Group, id.member, id.generation, m.instance()
	b := beat{id: id, sent: time.Now()}
	answer, err := req.RequestWith(ctx, m.Client)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	b.err = err
	return b
}

// leavePatience bounds the farewell: without a farewell, the session ends by itself.
const leavePatience = 2 * time.Second

// leave is the farewell to the coordinator.
func (m *Membership) leave(ctx context.Context, id identity) error {
	ctx, cancel := context.WithTimeoutCause(ctx, leavePatience, errors.New("the group's coordinator does not answer"))
	defer cancel()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = m.Options.Group, id.member
	one := kmsg.NewLeaveGroupRequestMember()
	one.MemberID, one.InstanceID = id.member, m.instance()
	req.Members = append(req.Members, one)
	answer, err := req.RequestWith(ctx, m.Client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.ErrorCode)
}
