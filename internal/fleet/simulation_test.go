package fleet

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// simulationsEnv is how many random fleets to live through.
const simulationsEnv = "CDC_OUTBOX_TEST_SIMULATIONS"

// Random fleets in virtual time: no pipeline at two members that could both know better, none
// without a member for longer than the bounds, no more moves at a time than fleet.moves, and an
// end of all moves after the last event. The fleets of a seed differ from run to run: kfake chooses
// a leader, and among requests and timeouts due at the same instant, at random.
func TestFleetsInVirtualTime(t *testing.T) {
	fleets := 3
	if text := os.Getenv(simulationsEnv); text != "" {
		fleets, _ = strconv.Atoi(text)
	}
	for seed := range uint64(fleets) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				members := 3 + int(seed%4)
				s := newSim(t, seed, members, 10*members, 1+int(seed%3))
				defer s.close()
				s.settle(s.bounds.lost, 5*time.Second)
				for range 12 {
					s.wait(s.within(0, 20*time.Second))
					if s.random.IntN(4) == 0 {
						s.wait(s.bounds.silent)
					}
					s.happen()
				}
				s.finish(members)
			})
		})
	}
}

// A file read anew reaches all pipelines, one after the other where they are; removed pipelines end.
func TestAFileReadAnewReachesAllPipelines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 1, 2, 12, 1)
		defer s.close()
		s.settle(s.bounds.lost, 5*time.Second)
		removed, added := "tenant-0003", "tenant-0012"
		file := &simFile{specs: map[string]string{added: s.spec()}}
		for name := range s.newest().specs {
			if name != removed {
				file.specs[name] = s.spec()
			}
		}
		s.files = append(s.files, file)
		for _, p := range s.all() {
			s.read(p, file)
		}
		s.settle(s.bounds.lost+12*(longestDrain+s.bounds.move), 10*time.Second)
		s.judgePlacement()
	})
}

// A member cut off from the brokers has told all pipelines to end when its session does.
func TestASilentMemberStopsBeforeOthersBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 2, 3, 12, 1)
		defer s.close()
		s.settle(s.bounds.lost, 5*time.Second)
		p := s.alive("outbox-1")
		p.part(true)
		s.wait(simSession)
		for _, h := range p.Holds() {
			if !h.Stopping {
				t.Errorf("%s is still at work", h.Pipeline)
			}
		}
		s.wait(s.bounds.lost)
		p.part(false)
		s.finish(3)
	})
}

// A leader dead between its join and its answer costs the others no pipeline, also if another
// member leaves meanwhile.
func TestALeaderDiesBeforeItsAnswer(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		t.Run(fmt.Sprintf("another leaves %v", leaves), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSim(t, 5, 4, 20, 1)
				defer s.close()
				s.settle(s.bounds.lost, 5*time.Second)
				leader := s.alive(s.all()[0].Standing().Leader)
				s.cluster.ControlKey(int16(kmsg.SyncGroup), func(r kmsg.Request) (kmsg.Response, error, bool) {
					return nil, nil, len(r.(*kmsg.SyncGroupRequest).GroupAssignment) > 0 // is lost
				})
				s.stir(leader)
				s.wait(simRound)
				s.told("the end of the leader %s", leader.name)
				leader.kill(true)
				if leaves {
					other := s.victim()
					s.told("SIGTERM to %s", other.name)
					s.terminate(other)
				}
				s.settle(s.bounds.silent+10*time.Second, 5*time.Second)
				s.judgePlacement()
				if d := s.longest["drop"]; d > 0 {
					t.Errorf("members beside the leader have stopped their pipelines, for up to %v", d)
				}
			})
		})
	}
}

// Twenty members with a thousand pipelines: a death moves its own pipelines only, and the group
// asks little of its brokers.
func TestAFleetOfTwenty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members, pipelines, share = 20, 1000, 50
		s := newSim(t, 3, members, pipelines, 1)
		defer s.close()
		s.idle()
		s.settle(s.bounds.lost, 5*time.Second)
		s.wantMoves("the beginning", 0)
		s.wantShare(share, share)
		s.traffic(members, pipelines)
		s.alive("outbox-7").kill(false)
		s.settle(s.bounds.lost, 5*time.Second)
		s.wantMoves("a death", 0)
		s.judgePlacement()
	})
}

// A return moves no more than a share, however many pipelines may move at a time.
func TestAReturnMovesAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members, pipelines, share = 5, 100, 20
		s := newSim(t, 4, members, pipelines, pipelines)
		defer s.close()
		s.idle()
		s.settle(s.bounds.lost, 5*time.Second)
		s.traffic(members, pipelines)
		s.alive("outbox-2").kill(true)
		s.settle(s.bounds.silent+10*time.Second, 5*time.Second)
		s.wantMoves("a death", 0)
		s.start("outbox-2", s.newest())
		s.settle(s.bounds.lost, 5*time.Second)
		s.wantMoves("a return", share)
		s.judgePlacement()
	})
}
