package admin

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestAFleetsFaultySources(t *testing.T) {
	v := &fleet.View{Group: "f", Members: []fleet.MemberView{{Name: "a", Host: "h"}, {Name: "b", Host: "h"}}}
	text := func() string {
		var b strings.Builder
		must.OK(t, (&FleetReport{v}).WriteText(&b))
		return b.String()
	}
	if got := text(); strings.Contains(got, "FAULTY") {
		t.Errorf("without any fault:\n%s", got)
	}
	v.Members[1].Faults = fleet.Faults{Count: 2, Source: "pipelines.d/acme.yaml", Error: "is not YAML"}
	if got := text(); strings.Count(got, "is not YAML") != 1 || !strings.Contains(got, "pipelines.d/acme.yaml: is not YAML") {
		t.Errorf("with faults at b:\n%s", got)
	}
}
