package fleet

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
)

// decided is a leader's decision.
type decided struct {
	answers map[string][]byte // the assignments, by the members' ids
	events  []placement.Event
	waits   int
	history placement.History
}

// decide answers all members of a generation. history is consumed.
func (m *Membership) decide(all []kmsg.JoinGroupResponseMember, history placement.History, now time.Time) (*decided, error) {
	ids, processes := map[string]string{}, map[string]string{} // by name
	var members []placement.Member
	wishes := map[string]bool{}
	for _, one := range all {
		var a announcement
		if err := decode(one.ProtocolMetadata, &a); err != nil {
			return nil, fmt.Errorf("read the announcement of member %s: %w", one.MemberID, err)
		}
		if a.Wants != nil {
			wishes[a.Wants.Member] = a.Wants.Drained
			ids[one.MemberID], processes[one.MemberID] = one.MemberID, a.Process
			continue
		}
		ids[a.Name], processes[a.Name] = one.MemberID, a.Process
		members = append(members, a.Member)
	}
	for i := range members {
		if drained, ok := wishes[members[i].Name]; ok {
			members[i].Drained = drained
		}
	}
	decision := placement.Decide(members, history.Rates, m.Options.Moves)
	d := &decided{answers: map[string][]byte{}, waits: len(decision.Waits), history: history}
	d.events = d.history.Note(members, decision, now.UnixMilli())
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		a := assignment{
			Run: decision.Run[name], Seen: processes[name], Leader: m.Options.Name(), At: now.UnixMilli(),
			Waits: decision.Waits, History: d.history,
		}
		if drained, ok := wishes[name]; ok {
			a.Drained = &drained
		}
		text, err := encode(a)
		if err != nil {
			return nil, fmt.Errorf("write the assignment of member %s: %w", name, err)
		}
		d.answers[ids[name]] = text
	}
	return d, nil
}
