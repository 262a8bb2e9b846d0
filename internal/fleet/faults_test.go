package fleet

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap/zaptest"

	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Other faults are told at once, then once a minute at most: a source may come and go.
func TestFaultsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now Faults
		m := New(Parts{Options: DefaultOptions(), Hands: noHands{}, Faults: func() Faults { return now }, Log: zaptest.NewLogger(t), Metrics: noMetrics{}})
		for n, step := range []struct {
			after  time.Duration
			faults Faults
			told   bool
		}{
			{0, Faults{}, false},
			{0, Faults{1, "a.yaml", "line 3"}, true},
			{10 * time.Second, Faults{}, false},
			{40 * time.Second, Faults{2, "a.yaml", "line 3"}, false},
			{10 * time.Second, Faults{2, "a.yaml", "line 3"}, true},
			{2 * time.Minute, Faults{2, "a.yaml", "line 4"}, false},
			{0, Faults{2, "b.yaml", "line 4"}, true},
			{2 * time.Minute, Faults{}, true},
		} {
			<-time.After(step.after)
			now, m.state.again = step.faults, false
			m.tellFaults()
			if m.state.again != step.told {
				t.Errorf("step %d: told: %t", n, m.state.again)
			}
			if m.state.again {
				m.state.told.Faults = m.faults()
			}
		}
	})
}

// A member's faults are in the view, with a short reason.
func TestAViewShowsFaults(t *testing.T) {
	m := New(Parts{Options: DefaultOptions(), Hands: noHands{}, Log: zaptest.NewLogger(t), Faults: func() Faults {
		return Faults{Count: 2, Source: "tenants.csv", Error: "line 3:\n\t" + strings.Repeat("ä", longestError)}
	}})
	found := kmsg.DescribeGroupsResponseGroup{Members: []kmsg.DescribeGroupsResponseGroupMember{{
		ProtocolMetadata: must.Get(encode(announcement{Member: placement.Member{Name: "a"}, Faults: m.faults()}))(t),
		MemberAssignment: must.Get(encode(assignment{}))(t),
	}}}
	got := must.Get(view(found))(t).Members[0].Faults
	if got.Count != 2 || got.Source != "tenants.csv" || !strings.HasPrefix(got.Error, "line 3: ää") || len(got.Error) > longestError+5 || !utf8.ValidString(got.Error) {
		t.Errorf("faults %+v", got)
	}
}
