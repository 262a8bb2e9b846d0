package fleet

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// kafkan does for kfake's coordinator four things that Kafka's does by itself.
//
// A sync is a sign of life. kfake renews no session by a sync that finds the leader's answer, so
// kfake's sessions are longer by the time from a join's answer to the sync.
//
// A static member stays until the end of its session. kfake removes a member that has not joined
// again within the rebalance timeout, also earlier. So kfake is told a longer one.
//
// A rebalance ends when all members have joined. kfake counts the joins, and takes a member
// removed while it waits for the leader's answer off the count, though the count is of joins
// alone. From then on kfake waits for more members than there are until its rebalance timeout,
// and each join, also a repeated one, starts that anew.
//
// A session begins with the answer to a join. kfake begins none where the connection is closed by
// then: the member stays until the next rebalance, with all its pipelines.
type kafkan struct {
	cluster *kfake.Cluster
	group   broker.Group // of a client of its own: another's join under way would hold it up
	says    []byte

	mu         sync.Mutex
	parked     map[string]parked    // joins without an answer, by member's id, or by instance without an id
	heard      map[string]time.Time // the last requests of members, by id
	seen       int                  // joins so far
	generation int32                // the last with a sync
	samples    int                  // in a row with all members joined
	stable     time.Time            // since when; zero: it is not
	hurry      bool
	mended     int // rebalances
	ended      int // sessions
}

// parked is a join, the n-th.
type parked struct {
	request *kmsg.JoinGroupRequest
	n       int
}

// patient is the rebalance timeout told to kfake, and hurried a shorter one, to end a rebalance with.
const patient, hurried = 2 * simSession, time.Second

// longestSync is the longest time from the answer to a join to the sync.
const longestSync = time.Second

func newKafkan(t *testing.T, cluster *kfake.Cluster, client *kgo.Client) *kafkan {
	k := &kafkan{
		cluster: cluster, parked: map[string]parked{}, heard: map[string]time.Time{},
		group: broker.Group{Client: client, Name: "f", Type: protocolType, Protocol: protocol, Session: simSession},
		says:  must.Get(encode(announcement{Wants: &wish{}}))(t),
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat}, Group: "f", Count: -1, Observe: true, When: k.observe})
	return k
}

// observe notes a request, on kfake's goroutine.
func (k *kafkan) observe(r kmsg.Request) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch r := r.(type) {
	case *kmsg.HeartbeatRequest:
		k.heard[r.MemberID] = time.Now()
		k.tell(patient) // for the time to sync
	case *kmsg.SyncGroupRequest:
		k.heard[r.MemberID] = time.Now()
		if r.Generation > k.generation { // all joins have their answers
			k.generation = r.Generation
			clear(k.parked)
		}
	case *kmsg.JoinGroupRequest:
		k.heard[r.MemberID] = time.Now()
		k.seen++
		if name := nameOf(r.MemberID, r.InstanceID); name != "" { // else no member yet
			k.parked[name] = parked{r, k.seen}
		}
		r.RebalanceTimeoutMillis = int32(patient.Milliseconds())
		r.SessionTimeoutMillis = int32((simSession + longestSync).Milliseconds())
		if k.hurry {
			k.tell(hurried)
		}
	}
	return true
}

// tell tells kfake the rebalance timeout of the members that have joined.
func (k *kafkan) tell(timeout time.Duration) {
	for _, p := range k.parked {
		p.request.RebalanceTimeoutMillis = int32(timeout.Milliseconds())
	}
}

// refuse notes the refusal of a request seen before.
func (k *kafkan) refuse(r kmsg.Request) bool {
	if r, ok := r.(*kmsg.JoinGroupRequest); ok {
		k.answered(nameOf(r.MemberID, r.InstanceID))
	}
	return true
}

// answered notes the answer to a join.
func (k *kafkan) answered(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.parked, name)
}

func nameOf(id string, instance *string) string {
	if id == "" && instance != nil {
		return *instance
	}
	return id
}

// look returns what there is to do; nil: nothing.
func (k *kafkan) look() func(context.Context) {
	k.mu.Lock()
	seen := k.seen
	k.mu.Unlock()
	group := k.cluster.GroupInfo("f")
	k.mu.Lock()
	defer k.mu.Unlock()
	if group == nil {
		return nil
	}
	if group.State != "Stable" {
		k.stable = time.Time{}
	} else if k.stable.IsZero() {
		k.stable = time.Now()
	}
	switch {
	case k.hurry:
	case group.State != "PreparingRebalance":
		maps.DeleteFunc(k.parked, func(_ string, p parked) bool { return p.n <= seen }) // answered
		k.samples = 0
	case !k.allJoined(group.Members):
		k.samples = 0
	default:
		if k.samples++; k.samples >= 2 {
			k.hurry, k.samples = true, 0
			k.mended++
			return k.endRebalance
		}
	}
	if k.stable.IsZero() || time.Since(k.stable) < simSession+simRound {
		return nil
	}
	for _, m := range group.Members {
		if time.Since(k.heard[m.MemberID]) > simSession+simRound {
			k.ended++
			k.heard[m.MemberID] = time.Now()
			return func(ctx context.Context) { k.endSession(ctx, m.MemberID) }
		}
	}
	return nil
}

func (k *kafkan) allJoined(members []kfake.GroupMember) bool {
	for _, m := range members {
		_, byID := k.parked[m.MemberID]
		_, byInstance := k.parked[nameOf("", m.InstanceID)]
		if !byID && !byInstance {
			return false
		}
	}
	return true
}

// endRebalance has one more member join: a join starts the rebalance timeout, the longest of all
// members, and its end sets the count right.
func (k *kafkan) endRebalance(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, simSession)
	defer cancel()
	joined, err := k.group.Join(ctx, "", k.says)
	k.mu.Lock()
	k.hurry = false
	k.mu.Unlock()
	if err == nil {
		_ = k.group.Leave(ctx, joined.Membership)
	}
}

// endSession has the member leave.
func (k *kafkan) endSession(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, simSession)
	defer cancel()
	_ = k.group.Leave(ctx, broker.Membership{ID: id})
}
