package e2e

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// TestE2ECampaign kills and disturbs connector, brokers and PostgreSQL at
// random, alone and two at a time, on a cluster of three brokers, with two
// spares. `make campaign` asks for any number of kills.
func TestE2ECampaign(t *testing.T) {
	s := seed(t)
	server := pgtest.Start(t)
	whole := os.Getenv(campaignWholeEnv) != ""
	o := options{exactlyOnce: true, brokers: 3, server: server, sampling: 10 * sampling, strict: campaignStrict, config: os.Getenv(campaignConfigEnv)}
	if whole {
		o.kafka = "transaction_boundaries: true"
	}
	k := &campaign{
		world:    newWorld(t, o.refusing(campaignTooLarge*3/4)),
		server:   server,
		seed:     s,
		calm:     true,
		versions: upgrades,
		report:   report{began: time.Now(), kills: map[string]int{}, done: map[string]*outcome{}},
	}
	if whole {
		k.versions = upgrades[1:2] // wantWhole tells transactions apart by epoch
	}
	k.rewriteConfig("  slot: ", fmt.Sprintf("  status_interval: 1s\n  liveness_timeout: %s\n  slot: ", campaignLiveness))
	k.awaitCalm()
	k.upgrade(0)
	goal := number(t, campaignEnv, 6)
	if goal >= wearing { // so the producer id is worn out about halfway
		k.broker.Wear(t, k.transactionalID(), int16(max(0, kafkatest.LastEpoch-2*goal)))
	}
	k.connectors = []*connector{k.start()}
	k.add()
	k.add()
	k.load = k.writeTo(s, 30*time.Millisecond, strictness{size: campaignTooLarge, aggregate: campaignStrict})
	until := campaignLimit(t)
	k.report.began = time.Now()
	for k.killed() < goal && time.Now().Before(until) {
		k.upgrade(k.share(goal, until))
		name := k.disturb()
		k.progress(name)
		t.Logf("campaign: %d of %d kills after %s: %s; %d events committed", k.killed(), goal,
			time.Since(k.report.began).Round(time.Second), name, k.ledger.Committed())
	}
	k.awaitCalm()
	k.load.stop()
	k.arrived()
	k.allRead()
	took := time.Since(k.report.began)
	for _, c := range k.connectors {
		c.stop()
	}
	h, committed := k.verify()
	k.wantNoneAgain(committed, "to consumers that read what is committed")
	k.verifyAll(h)
	if whole {
		transactions, kafka := k.wantWhole()
		t.Logf("campaign: %d transactions in %d of Kafka, each as a whole", transactions, kafka)
	}
	t.Log(k.report.text(took, k.all.Producers()))
}

// campaignLiveness is how long PostgreSQL may be silent.
const campaignLiveness = 5 * time.Second

// campaignStrict is the aggregate whose topic refuses events with payloads of
// campaignTooLarge.
const (
	campaignStrict   = "customer"
	campaignTooLarge = 2 * bigPayload
)

// wearing is the least number of kills for a producer id worn out beforehand.
const wearing = 200

// campaign is a world with the state of the disturbances.
type campaign struct {
	*world
	server     *pgtest.Server
	connectors []*connector // the slot's holder, and spares
	load       *load
	seed       uint64
	disturbed  uint64     // how often; with the seed, where random begins anew
	random     *rand.Rand // of the disturbance under way
	versions   []upgrade
	calm       bool  // the brokers were not disturbed since awaitCalm
	down       []int // the brokers killed or paused now
	version    int16
	noted      int // transactions of the ledger known to be published
	report     report
}

// campaignLimit is when no further disturbance begins.
func campaignLimit(t testing.TB) time.Time {
	t.Helper()
	text := os.Getenv(campaignLimitEnv)
	if text == "" {
		return time.Now().Add(48 * time.Hour)
	}
	limit, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", campaignLimitEnv, err)
	}
	return time.Now().Add(limit)
}

// add starts another instance.
func (k *campaign) add() { k.connectors = append(k.connectors, startConnector(k.t, k.config)) }

// upgrade is a version of transactions, from a part of the campaign on, in per cent.
type upgrade struct {
	from    int
	version int16
}

var upgrades = []upgrade{{0, 1}, {25, 2}, {50, 1}, {60, 2}}

// share is the larger share of kills and of time that the campaign has used, in
// per cent.
func (k *campaign) share(goal int, until time.Time) int {
	began := k.report.began
	return max(k.killed()*100/goal, int(time.Since(began)*100/until.Sub(began)))
}

// upgrade sets the version of transactions for the part of the campaign, while
// everything runs.
func (k *campaign) upgrade(part int) {
	k.t.Helper()
	version := k.versions[0].version
	for _, u := range k.versions {
		if u.from <= part {
			version = u.version
		}
	}
	if version == k.version {
		return
	}
	k.awaitCalm()
	k.broker.SetFeature(k.t, "transaction.version", version)
	if k.version != 0 {
		k.report.upgrades++
	}
	k.version = version
	k.t.Logf("campaign: transaction.version is %d", version)
}

// disturb begins a disturbance, or two at a time, and returns their names. The
// number of random numbers used depends on the cluster, so the next disturbance
// seeds its generator anew.
func (k *campaign) disturb() string {
	k.t.Helper()
	k.random = rand.New(rand.NewPCG(k.seed, 500+k.disturbed))
	k.disturbed++
	one, two := k.choose(), k.choose()
	var names []string
	var ends []func()
	start := func(d disturbance) {
		if end := d.start(k); end != nil {
			names, ends = append(names, d.name), append(ends, end)
		}
	}
	start(one)
	if k.random.IntN(3) > 0 && compatible(one, two) {
		k.pause(300 * time.Millisecond)
		start(two)
	}
	k.pause(500 * time.Millisecond)
	for _, end := range ends {
		end()
	}
	k.down = nil
	return cmp.Or(strings.Join(names, " + "), "nothing")
}

// choose takes a disturbance at random, by weight.
func (k *campaign) choose() disturbance {
	all := 0
	for _, d := range campaignDisturbances {
		all += d.weight
	}
	n := k.random.IntN(all)
	for _, d := range campaignDisturbances {
		if n -= d.weight; n < 0 {
			return d
		}
	}
	panic("weights do not add up")
}

// compatible tells whether two disturbances can happen at once: they are of
// different parts, and neither asks a server taken away by the other.
func compatible(one, two disturbance) bool {
	if one.ofBrokers() && two.ofBrokers() && (one.part == brokers || two.part == brokers) {
		return false
	}
	return one.part != two.part && (!one.needsServer || two.part != postgres) && (!two.needsServer || one.part != postgres)
}

// pause waits for a random time.
func (k *campaign) pause(longest time.Duration) {
	<-time.After(time.Duration(k.random.Int64N(int64(longest))))
}

// awaitCalm waits until brokers have replicated everything.
func (k *campaign) awaitCalm() {
	k.t.Helper()
	k.cluster.AwaitInSync(k.t, append(k.topics(), k.checkpoints(), coordinatorsLog)...)
	k.calm = true
}

// progress returns once everything committed by now is published.
func (k *campaign) progress(name string) {
	k.t.Helper()
	began := time.Now()
	k.load.await(10)
	txs := k.ledger.Transactions()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := k.reader.AwaitEvents(ctx, eventsOf(txs[k.noted:])); err != nil {
		k.explain(k.reader.Missing(eventsOf(txs[k.noted:])))
		k.t.Fatalf("after %s: %v", name, err)
	}
	if again := k.repeated(); len(again) > 0 {
		k.explain(again)
		k.t.Fatalf("after %s: %d events came again", name, len(again))
	}
	k.noted = len(txs)
	for _, c := range k.connectors {
		c.running()
	}
	k.report.add(name, time.Since(began))
}

// holder is the index of the slot's present holder, or the last.
func (k *campaign) holder() (n int) {
	var latest time.Time
	for i, c := range k.connectors {
		if at, ok := c.lastLog(k.started()); ok && at.After(latest) {
			n, latest = i, at
		}
	}
	return n
}

// killed is the number of kills so far.
func (k *campaign) killed() (n int) {
	for _, kills := range k.report.kills {
		n += kills
	}
	return n
}

// within waits, up to the limit: another disturbance may prevent the event.
func within(limit time.Duration, met func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = await.Ready(ctx, nil, func(context.Context) error {
		if met() {
			return nil
		}
		return context.DeadlineExceeded
	})
}
