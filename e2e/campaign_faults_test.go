package e2e

import (
	"context"
	"slices"
	"syscall"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

// part is the target of a disturbance.
type part string

const (
	instance part = "connector"
	brokers  part = "brokers" // any number of them
	// The two following can be disturbed at once, if they are two brokers. The
	// third broker may take no writes then.
	coordinator part = "coordinator"
	leader      part = "leader"
	postgres    part = "PostgreSQL"
	network     part = "the way to brokers"
)

// disturbance is a fault with a beginning and an end.
type disturbance struct {
	name        string
	weight      int // of the random choice
	part        part
	victim      string // of a kill; "" for none
	needsServer bool   // asks PostgreSQL
	// begin returns nil if there was nothing to do.
	begin func(k *campaign) (end func())
}

func nothing() {}

var campaignDisturbances = []disturbance{
	{"connector killed", 26, instance, "connector", false, func(k *campaign) func() {
		k.kill(k.holder())
		return k.add
	}},
	{"connector killed at the end of a transaction", 6, instance, "connector", false, func(k *campaign) func() {
		n, before := k.holder(), k.endTxn.lost.Load()
		if k.random.IntN(3) == 0 {
			k.endTxn.requests.Store(1)
		} else {
			k.endTxn.answers.Store(1)
		}
		within(2*time.Second, func() bool { return k.endTxn.lost.Load() > before })
		k.kill(n)
		return k.add
	}},
	{"instances killed one after the other", 8, instance, "", false, func(k *campaign) func() {
		for range 2 + k.random.IntN(3) {
			k.kill(k.random.IntN(len(k.connectors)))
			k.report.kills["connector"]++
			k.pause(800 * time.Millisecond)
			k.add()
		}
		return nothing
	}},
	{"all instances killed", 3, instance, "connector", false, func(k *campaign) func() {
		for range 3 {
			k.kill(0)
		}
		return func() { k.add(); k.add(); k.add() }
	}},
	{"connector paused", 2, instance, "", false, func(k *campaign) func() {
		c := k.connectors[k.holder()]
		c.signal(syscall.SIGSTOP)
		k.pause(3 * time.Second)
		return func() { c.signal(syscall.SIGCONT) }
	}},
	{"connector paused beyond the transaction's timeout", 1, instance, "", false, func(k *campaign) func() {
		c := k.connectors[k.holder()]
		c.signal(syscall.SIGSTOP)
		<-time.After(11 * time.Second)
		return func() { c.signal(syscall.SIGCONT) }
	}},
	{"connector paused, spare takes over", 4, instance, "", true, func(k *campaign) func() {
		c := k.connectors[k.holder()]
		c.signal(syscall.SIGSTOP)
		k.endWalsender()
		k.pause(3 * time.Second)
		return func() { c.signal(syscall.SIGCONT) }
	}},
	{"coordinator killed", 10, coordinator, "coordinator", false, func(k *campaign) func() { return k.killNode(k.coordinator) }},
	{"coordinator killed at the end of a transaction", 6, coordinator, "coordinator", false, func(k *campaign) func() {
		n := k.coordinator()
		goOn, before := k.endTxn.hold(), k.endTxn.held.Load()
		within(2*time.Second, func() bool { return k.endTxn.held.Load() > before })
		goOn()
		k.pause(6 * time.Millisecond)
		return k.killNode(func() int { return n })
	}},
	{"coordinator paused", 2, coordinator, "", false, func(k *campaign) func() { return k.pauseNode(k.coordinator) }},
	{"leader killed", 8, leader, "leader", false, func(k *campaign) func() { return k.killNode(k.leader) }},
	{"leader paused", 2, leader, "", false, func(k *campaign) func() { return k.pauseNode(k.leader) }},
	{"leader or coordinator out of the other brokers' reach", 3, brokers, "", false, func(k *campaign) func() {
		if k.random.IntN(2) == 0 {
			return k.partNodes(k.coordinator())
		}
		return k.partNodes(k.leader())
	}},
	{"brokers out of each other's reach", 1, brokers, "", false, func(k *campaign) func() { return k.partNodes(0, 1, 2) }},
	{"PostgreSQL crashed", 18, postgres, "PostgreSQL", false, func(k *campaign) func() {
		k.server.Stop(k.t, pgtest.Immediate)
		return func() { k.server.Resume(k.t) }
	}},
	{"PostgreSQL crashed twice", 4, postgres, "PostgreSQL", false, func(k *campaign) func() {
		k.server.Restart(k.t, pgtest.Immediate)
		k.pause(500 * time.Millisecond)
		k.report.kills["PostgreSQL"]++
		k.server.Stop(k.t, pgtest.Immediate)
		return func() { k.server.Resume(k.t) }
	}},
	{"PostgreSQL out of reach", 2, postgres, "", false, func(k *campaign) func() {
		k.postgres.Set(proxy.Up, proxy.Fault{Swallow: true})
		k.postgres.Set(proxy.Down, proxy.Fault{Swallow: true})
		k.pause(3 * time.Second)
		return func() {
			k.postgres.Set(proxy.Up, proxy.Fault{})
			k.postgres.Set(proxy.Down, proxy.Fault{})
			k.postgres.Cut()
		}
	}},
	{"PostgreSQL paused", 2, postgres, "", false, func(k *campaign) func() {
		thaw := k.server.Pause(k.t)
		k.pause(campaignLiveness / 2)
		return thaw
	}},
	{"PostgreSQL paused until the connection counts as dead", 2, postgres, "", false, func(k *campaign) func() {
		thaw := k.server.Pause(k.t)
		<-time.After(campaignLiveness + 3*time.Second)
		return thaw
	}},
	{"walsender ended", 3, postgres, "", false, func(k *campaign) func() { k.endWalsender(); return nothing }},
	{"answers to EndTxn lost", 4, network, "", false, func(k *campaign) func() {
		k.endTxn.answers.Store(1 + k.random.Int32N(3))
		return nothing
	}},
	{"EndTxn lost", 3, network, "", false, func(k *campaign) func() {
		k.endTxn.requests.Store(1 + k.random.Int32N(3))
		return nothing
	}},
	{"EndTxn late", 3, network, "", false, func(k *campaign) func() {
		k.endTxn.delayed.Store(1 + k.random.Int32N(3))
		k.pause(3 * time.Second)
		return func() { k.endTxn.deliver(2 * time.Second) } // the other disturbance may have paused the broker
	}},
	{"brokers out of reach", 2, network, "", false, func(k *campaign) func() { return k.part(k.cluster.Fronts...) }},
	{"brokers out of reach beyond the transaction's timeout", 1, network, "", false, func(k *campaign) func() {
		k.endTxn.part(true, k.cluster.Fronts...)
		<-time.After(11 * time.Second)
		return func() { k.endTxn.part(false, k.cluster.Fronts...) }
	}},
	{"one broker out of reach", 2, network, "", false, func(k *campaign) func() {
		return k.part(k.cluster.Fronts[k.random.IntN(len(k.cluster.Fronts))])
	}},
	{"brokers silent", 1, network, "", false, func(k *campaign) func() {
		k.endTxn.silent.Store(true)
		k.pause(3 * time.Second)
		return func() {
			k.endTxn.silent.Store(false)
			k.endTxn.part(false, k.cluster.Fronts...)
		}
	}},
	{"transactional id claimed by a stranger", 2, network, "", false, func(k *campaign) func() { k.claim(); return nothing }},
}

// ofBrokers tells whether the disturbance is of a single broker or several.
func (d *disturbance) ofBrokers() bool {
	return d.part == brokers || d.part == coordinator || d.part == leader
}

// start begins the disturbance. start returns nil if there was nothing to do.
func (d *disturbance) start(k *campaign) (end func()) {
	k.t.Helper()
	if d.ofBrokers() && len(k.down) == 0 { // or two brokers are to be disturbed at once
		if !k.calm {
			k.awaitCalm()
		}
		k.calm = false
	}
	end = d.begin(k)
	if d.victim != "" && end != nil {
		k.report.kills[d.victim]++
	}
	return end
}

// kill kills an instance.
func (k *campaign) kill(n int) {
	k.connectors[n].kill()
	k.connectors = slices.Delete(k.connectors, n, n+1)
}

func (k *campaign) endWalsender() {
	pgtest.Exec(k.t, k.url, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '"+k.slot+"' AND active")
}

// part has nothing pass between connector and brokers.
func (k *campaign) part(fronts ...string) (end func()) {
	k.endTxn.part(true, fronts...)
	k.pause(4 * time.Second)
	return func() { k.endTxn.part(false, fronts...) }
}

// claim fences the connector off, as an operator's mistake would.
func (k *campaign) claim() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, _, _ = k.broker.Claim(ctx, k.t, k.transactionalID()) // brokers may be disturbed, too
}

func (k *campaign) coordinator() int { return max(0, k.cluster.Coordinator(k.t, k.transactionalID())) }

func (k *campaign) leader() int {
	topics := append(k.topics(), k.checkpoints())
	return max(0, k.cluster.Leader(k.t, topics[k.random.IntN(len(topics))], 0))
}

func (k *campaign) killNode(which func() int) (end func()) {
	n, ok := k.take(which)
	if !ok {
		return nil
	}
	k.cluster.KillNode(k.t, n)
	return func() {
		k.pause(2 * time.Second)
		k.cluster.ResumeNode(k.t, n)
	}
}

func (k *campaign) pauseNode(which func() int) (end func()) {
	n, ok := k.take(which)
	if !ok {
		return nil
	}
	k.cluster.PauseNode(k.t, n, true)
	k.pause(6 * time.Second)
	return func() { k.cluster.PauseNode(k.t, n, false) }
}

// take returns the broker and notes the disturbance; ok is false for a broker
// disturbed already.
func (k *campaign) take(which func() int) (n int, ok bool) {
	n = which()
	if slices.Contains(k.down, n) {
		return n, false
	}
	k.down = append(k.down, n)
	return n, true
}

// partNodes cuts nodes off from all other brokers, for longer than a replica may
// lag.
func (k *campaign) partNodes(nodes ...int) (end func()) {
	for _, n := range nodes {
		k.cluster.Part(n, true)
	}
	k.pause(5 * time.Second)
	return func() {
		for _, n := range nodes {
			k.cluster.Part(n, false)
		}
	}
}
