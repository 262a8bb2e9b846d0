package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// TestE2ECampaign disturbs connector, brokers and PostgreSQL at random, alone and
// two at a time, on a cluster of three brokers. `make campaign` runs it for as
// many disturbances as one likes.
func TestE2ECampaign(t *testing.T) {
	s := seed(t)
	server := pgtest.Start(t)
	k := &campaign{
		world:  newWorld(t, options{exactlyOnce: true, brokers: 3, server: server, config: os.Getenv(campaignConfigEnv)}),
		server: server,
		random: rand.New(rand.NewPCG(s, 500)),
		done:   map[string]*outcome{},
	}
	k.c = k.start()
	k.awaitCalm()
	load := k.write(s, 10*time.Millisecond, 0)
	total, began := number(t, campaignEnv, 6), time.Now()
	for n := range total {
		name := k.disturb()
		k.progress(load, name)
		t.Logf("campaign: %d of %d after %s: %s; %d events committed", n+1, total, time.Since(began).Round(time.Second), name, len(k.committed()))
	}
	load.stop()
	k.arrived()
	k.allRead()
	k.c.stop()
	h, report := k.verify()
	k.wantNoneAgain(report, "to consumers that read what is committed")
	k.verifyAll(h)
	k.report(total, time.Since(began))
}

// campaign is a world with what disturbs it.
type campaign struct {
	*world
	server *pgtest.Server
	c      *connector
	random *rand.Rand
	done   map[string]*outcome
}

// outcome is what became of the disturbances of one kind.
type outcome struct {
	times int
	worst time.Duration // until everything committed before its end was published
}

// disturbance begins something, and returns what ends it.
type disturbance struct {
	name  string
	begin func(k *campaign) (end func())
}

func nothing() {}

var campaignDisturbances = []disturbance{
	{"connector killed", func(k *campaign) func() {
		k.c.kill()
		return func() { k.c = startConnector(k.t, k.config) }
	}},
	{"connector paused", func(k *campaign) func() {
		c := k.c
		c.signal(syscall.SIGSTOP)
		k.pause(3 * time.Second)
		return func() { c.signal(syscall.SIGCONT) }
	}},
	{"connector paused beyond the transaction's timeout", func(k *campaign) func() {
		c := k.c
		c.signal(syscall.SIGSTOP)
		k.pause(0)
		<-time.After(11 * time.Second)
		return func() { c.signal(syscall.SIGCONT) }
	}},
	{"connector paused, spare takes over", func(k *campaign) func() {
		old := k.c
		spare := startConnector(k.t, k.config)
		old.signal(syscall.SIGSTOP)
		k.endWalsender()
		k.c = spare
		return func() {
			old.signal(syscall.SIGCONT)
			k.pause(2 * time.Second)
			old.kill()
		}
	}},
	{"coordinator killed", func(k *campaign) func() { return k.killNode(k.coordinator()) }},
	{"coordinator paused", func(k *campaign) func() { return k.pauseNode(k.coordinator()) }},
	{"leader killed", func(k *campaign) func() { return k.killNode(k.leader()) }},
	{"leader paused", func(k *campaign) func() { return k.pauseNode(k.leader()) }},
	{"PostgreSQL crashed", func(k *campaign) func() {
		k.server.Stop(k.t, pgtest.Immediate)
		return func() { k.server.Resume(k.t) }
	}},
	{"walsender ended", func(k *campaign) func() { k.endWalsender(); return nothing }},
	{"answers to EndTxn lost", func(k *campaign) func() {
		k.endTxn.answers.Store(1 + k.random.Int32N(3))
		return nothing
	}},
	{"EndTxn lost", func(k *campaign) func() {
		k.endTxn.requests.Store(1 + k.random.Int32N(3))
		return nothing
	}},
	{"brokers out of reach", func(k *campaign) func() {
		k.endTxn.part(true)
		k.pause(4 * time.Second)
		return func() { k.endTxn.part(false) }
	}},
}

// disturb does one thing, or two at a time, and returns what it was.
func (k *campaign) disturb() string {
	k.t.Helper()
	one := campaignDisturbances[k.random.IntN(len(campaignDisturbances))]
	names, ends := []string{one.name}, []func(){one.begin(k)}
	if two := campaignDisturbances[k.random.IntN(len(campaignDisturbances))]; k.random.IntN(3) == 0 && k.compatible(one.name, two.name) {
		k.pause(500 * time.Millisecond)
		names, ends = append(names, two.name), append(ends, two.begin(k))
	}
	k.pause(time.Second)
	for _, end := range ends {
		end()
	}
	return strings.Join(names, " + ")
}

// compatible tells whether two disturbances are of different parts.
func (k *campaign) compatible(one, two string) bool {
	part := func(name string) string {
		for _, p := range []string{"connector", "coordinator", "leader", "PostgreSQL", "walsender"} {
			if strings.HasPrefix(name, p) {
				return strings.NewReplacer("coordinator", "broker", "leader", "broker", "walsender", "PostgreSQL").Replace(p)
			}
		}
		return name
	}
	spare := strings.Contains(one+two, "spare") // it waits for PostgreSQL
	return part(one) != part(two) && !(spare && strings.Contains(one+two, "PostgreSQL"))
}

// pause waits for a random time.
func (k *campaign) pause(longest time.Duration) {
	if longest > 0 {
		<-time.After(time.Duration(k.random.Int64N(int64(longest))))
	}
}

func (k *campaign) endWalsender() {
	pgtest.Exec(k.t, k.url, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '"+k.slot+"' AND active")
}

func (k *campaign) transactionalID() string {
	return "cdc-outbox/" + k.url[strings.LastIndex(k.url, "/")+1:] + "/" + k.slot
}

func (k *campaign) coordinator() int {
	id, _, _ := strings.Cut(k.transactionalID(), "?")
	return max(0, k.cluster.Coordinator(k.t, id))
}

func (k *campaign) leader() int {
	topics := append(k.topics(), "cdc-outbox.checkpoints")
	return max(0, k.cluster.Leader(k.t, topics[k.random.IntN(len(topics))], 0))
}

func (k *campaign) killNode(n int) (end func()) {
	k.cluster.KillNode(k.t, n)
	return func() {
		k.pause(2 * time.Second)
		k.cluster.ResumeNode(k.t, n)
	}
}

func (k *campaign) pauseNode(n int) (end func()) {
	k.cluster.PauseNode(k.t, n, true)
	k.pause(6 * time.Second)
	return func() { k.cluster.PauseNode(k.t, n, false) }
}

// awaitCalm waits until brokers have replicated everything.
func (k *campaign) awaitCalm() {
	k.t.Helper()
	k.cluster.AwaitInSync(k.t, append(k.topics(), "cdc-outbox.checkpoints", "__transaction_state")...)
}

// progress returns once everything committed by now is published, and the
// cluster is whole again.
func (k *campaign) progress(load *load, name string) {
	k.t.Helper()
	began := time.Now()
	load.await(20)
	target := len(k.committed())
	await.Until(k.t, "events after "+name, func() bool {
		k.c.running()
		return len(k.reader.Records()) >= target
	})
	o := k.done[name]
	if o == nil {
		o = &outcome{}
		k.done[name] = o
	}
	o.times++
	o.worst = max(o.worst, time.Since(began))
	k.awaitCalm()
}

// report prints what was done, by kind.
func (k *campaign) report(total int, took time.Duration) {
	var names []string
	for name := range k.done {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	fmt.Fprintf(&b, "campaign: %d disturbances in %s\n", total, took.Round(time.Second))
	for _, name := range names {
		o := k.done[name]
		fmt.Fprintf(&b, "%5d  %-70s all published %s after its end at the latest\n", o.times, name, o.worst.Round(100*time.Millisecond))
	}
	k.t.Log(b.String())
}
