package broker

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Group is a member's side of a group by Kafka's classic protocol: the coordinator carries
// what members and leader write, and does not read their bytes.
type Group struct {
	// Client asks the coordinator.
	Client *kgo.Client
	Name   string
	// Type and Protocol are those of all members; others are refused.
	Type, Protocol string
	// Session is how long the coordinator waits for a heartbeat, and for a member to join again.
	Session time.Duration
	// Instance makes the membership static: a second member of that name replaces the first.
	// Optional.
	Instance string
}

// Membership names a member to the coordinator.
type Membership struct {
	ID         string // "" before the first join
	Generation int32
}

// Generation is the answer to a join.
type Generation struct {
	Membership

	// Leads: the member is to make the assignment of Members, at Sync.
	Leads   bool
	Members []kmsg.JoinGroupResponseMember
}

// Join asks to join with what the member has to say, and blocks until all members have joined
// or timed out. id is "" or known to the coordinator. With an error the answer has the id
// given by the coordinator until then.
func (g Group) Join(ctx context.Context, id string, says []byte) (Generation, error) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.InstanceID, req.ProtocolType = g.Name, g.instance(), g.Type
	req.SessionTimeoutMillis = int32(g.Session.Milliseconds())
	req.RebalanceTimeoutMillis = req.SessionTimeoutMillis
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = g.Protocol, says
	req.Protocols = append(req.Protocols, p)
	is := Generation{Membership: Membership{ID: id, Generation: -1}}
	for again := false; ; again = true {
		req.MemberID = is.ID
		answer, err := req.RequestWith(ctx, g.Client)
		if err != nil {
			return is, err
		}
		err = kerr.ErrorForCode(answer.ErrorCode)
		if errors.Is(err, kerr.MemberIDRequired) && !again {
			is.ID = answer.MemberID
			continue
		}
		if err != nil {
			return is, err
		}
		is.ID, is.Membership.Generation = answer.MemberID, answer.Generation
		is.Leads, is.Members = answer.LeaderID == is.ID && !answer.SkipAssignment, answer.Members
		return is, nil
	}
}

// Sync returns the member's assignment by the leader. The leader gives those of all, by id.
func (g Group) Sync(ctx context.Context, m Membership, all map[string][]byte) ([]byte, error) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = g.Name, m.ID, g.instance(), m.Generation
	req.ProtocolType, req.Protocol = kmsg.StringPtr(g.Type), kmsg.StringPtr(g.Protocol)
	for id, text := range all {
		one := kmsg.NewSyncGroupRequestGroupAssignment()
		one.MemberID, one.MemberAssignment = id, text
		req.GroupAssignment = append(req.GroupAssignment, one)
	}
	answer, err := req.RequestWith(ctx, g.Client)
	if err != nil {
		return nil, err
	}
	return answer.MemberAssignment, kerr.ErrorForCode(answer.ErrorCode)
}

// Heartbeat keeps the session. The refusal kerr.RebalanceInProgress asks for a join.
func (g Group) Heartbeat(ctx context.Context, m Membership) error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = g.Name, m.ID, m.Generation, g.instance()
	answer, err := req.RequestWith(ctx, g.Client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.ErrorCode)
}

// Leave ends the membership, also a static one.
func (g Group) Leave(ctx context.Context, m Membership) error {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = g.Name, m.ID
	one := kmsg.NewLeaveGroupRequestMember()
	one.MemberID, one.InstanceID = m.ID, g.instance()
	req.Members = append(req.Members, one)
	answer, err := req.RequestWith(ctx, g.Client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.ErrorCode)
}

func (g Group) instance() *string {
	if g.Instance == "" {
		return nil
	}
	return kmsg.StringPtr(g.Instance)
}

// errAnswers is of a coordinator that describes another number of groups than asked for.
var errAnswers = errors.New("the coordinator did not describe the group asked for")

// DescribeGroup returns the coordinator's knowledge of a group of the classic protocol.
func DescribeGroup(ctx context.Context, client *kgo.Client, name string) (kmsg.DescribeGroupsResponseGroup, error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{name}
	answer, err := req.RequestWith(ctx, client)
	if err != nil {
		return kmsg.DescribeGroupsResponseGroup{}, err
	}
	if len(answer.Groups) != 1 {
		return kmsg.DescribeGroupsResponseGroup{}, errAnswers
	}
	return answer.Groups[0], kerr.ErrorForCode(answer.Groups[0].ErrorCode)
}
