package e2e

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

// fleetDisturbance is a fault with a beginning and an end.
type fleetDisturbance struct {
	name   string
	weight int // of the choice; 0 for a disturbance chosen otherwise
	scope  fleetScope
	lasts  span
	begin  func(k *fleetCampaign, m *fleetMember)
	end    func(k *fleetCampaign, m *fleetMember)
}

// fleetScope is the range of a disturbance.
type fleetScope uint8

const (
	oneMember  fleetScope = iota // another member may be disturbed at once
	allMembers                   // nothing else at once
)

// span is a range of times.
type span struct{ least, most time.Duration }

var (
	moment  = span{}
	shorter = span{time.Second, fleetSession - 2*time.Second} // than the session
	longer  = span{fleetSession + time.Second, fleetSession + 3*time.Second}
	// passing is a fault of the way to PostgreSQL. The pipelines stay with the member.
	passing = span{time.Second, fleetSession / 2}
)

var fleetDisturbances = []fleetDisturbance{
	{"kill -9, started at once", 3, oneMember, moment, (*fleetCampaign).kill, (*fleetCampaign).start},
	{"kill -9, started after the session", 4, oneMember, longer, (*fleetCampaign).kill, (*fleetCampaign).start},
	{"SIGSTOP, shorter than the session", 2, oneMember, shorter, pause, resume},
	{"SIGSTOP, longer than the session", 4, oneMember, longer, pause, resume},
	{"Kafka refuses, shorter than the session", 2, oneMember, shorter, refuseKafka, admitKafka},
	{"Kafka refuses, longer than the session", 2, oneMember, longer, refuseKafka, admitKafka},
	{"Kafka is silent, longer than the session", 2, oneMember, longer, muteKafka, unmuteKafka},
	{"PostgreSQL refuses", 2, oneMember, passing, refusePostgres, admitPostgres},
	{"PostgreSQL is silent", 2, oneMember, passing, mutePostgres, unmutePostgres},
	{"SIGTERM, started again", 3, oneMember, moment, (*fleetCampaign).stop, (*fleetCampaign).start},
	{"drained, then undrained", 2, oneMember, passing, drain, undrain},
	{"file changed, members started again in turn", 1, allMembers, moment, change, rollOut},
}

// brokerKilled needs a cluster of several brokers.
var brokerKilled = fleetDisturbance{"coordinator's broker killed", 0, allMembers, passing, killCoordinator, resumeCoordinator}

func (k *fleetCampaign) kill(m *fleetMember) {
	m.process.kill()
	m.process = nil
}

func (k *fleetCampaign) stop(m *fleetMember) {
	k.t.Helper()
	m.process.stop()
	m.process = nil
}

func pause(_ *fleetCampaign, m *fleetMember)  { m.process.signal(syscall.SIGSTOP) }
func resume(_ *fleetCampaign, m *fleetMember) { m.process.signal(syscall.SIGCONT) }

func refuseKafka(_ *fleetCampaign, m *fleetMember) { refuse(m.kafka, true) }
func admitKafka(_ *fleetCampaign, m *fleetMember)  { refuse(m.kafka, false) }
func muteKafka(_ *fleetCampaign, m *fleetMember)   { silence(m.kafka, true) }
func unmuteKafka(_ *fleetCampaign, m *fleetMember) { silence(m.kafka, false) }

func refusePostgres(_ *fleetCampaign, m *fleetMember) { refuse([]*proxy.Proxy{m.postgres}, true) }
func admitPostgres(_ *fleetCampaign, m *fleetMember)  { refuse([]*proxy.Proxy{m.postgres}, false) }
func mutePostgres(_ *fleetCampaign, m *fleetMember)   { silence([]*proxy.Proxy{m.postgres}, true) }
func unmutePostgres(_ *fleetCampaign, m *fleetMember) { silence([]*proxy.Proxy{m.postgres}, false) }

func drain(k *fleetCampaign, m *fleetMember) {
	k.t.Helper()
	k.run("fleet", "drain", m.name)
}

func undrain(k *fleetCampaign, m *fleetMember) {
	k.t.Helper()
	k.run("fleet", "undrain", m.name)
}

// change writes a file with another specification of all pipelines.
func change(k *fleetCampaign, _ *fleetMember) {
	k.t.Helper()
	k.revision++
	k.writeFile()
}

// rollOut starts all members again, each after the former is in the fleet.
func rollOut(k *fleetCampaign, _ *fleetMember) {
	k.t.Helper()
	for _, m := range k.members {
		k.stop(m)
		k.start(m)
		m.process.awaitLog("joined the fleet")
	}
}

func killCoordinator(k *fleetCampaign, _ *fleetMember) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	found := kadm.NewClient(k.client).FindGroupCoordinators(ctx, fleetGroup)
	if err := found.Error(); err != nil {
		k.t.Fatal(fmt.Errorf("find the coordinator: %w", err))
	}
	k.down = int(found[fleetGroup].NodeID)
	k.ways.cluster.KillNode(k.t, k.down)
}

func resumeCoordinator(k *fleetCampaign, _ *fleetMember) {
	k.t.Helper()
	k.ways.cluster.ResumeNode(k.t, k.down)
}
