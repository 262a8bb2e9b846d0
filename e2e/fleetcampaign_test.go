package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// TestE2EFleetCampaign disturbs the members of a fleet at random, alone and two at a time, while
// all pipelines have events. `make fleet-campaign` has 100 pipelines on five members.
func TestE2EFleetCampaign(t *testing.T) {
	s := seed(t)
	size := smallFleet
	if os.Getenv(fleetEnv) != "" {
		size = largeFleet
	}
	k := newFleetCampaign(t, s, size)
	for _, m := range k.members {
		k.start(m)
	}
	k.balanced()
	k.load()
	k.flows("the start")
	k.standstills.take()
	k.flows("a calm time")
	goal, until := number(t, fleetEnv, size.disturbances), campaignLimit(t)
	k.report = newFleetReport(goal, k.standstills.take())
	defer func() { t.Log(k.report.text()) }() // also of a failed campaign
	for k.disturbed < goal && time.Now().Before(until) {
		name, hit := k.disturb(goal)
		k.flows(name)
		k.report.add(name, k.standstills.take(), hit)
		t.Logf("fleet campaign: %d of %d disturbances after %s: %s; %d events committed", k.disturbed, goal,
			k.report.took.Round(time.Second), name, k.ledger.Committed())
	}
	k.unload()
	k.arrived("the end")
	k.stopAll()
	k.verify()
}

const (
	fleetGroup = "fleet"
	// fleetSilence is PostgreSQL's wal_sender_timeout: a slot is free after so long without a
	// word of the reader.
	fleetSilence = 4 * time.Second
	// fleetBound is the time for a pipeline to be back at another member: the others miss a member
	// after fleetSession, and have its slots by then, as fleetSilence is shorter.
	fleetBound = fleetSession + 2*time.Second
	// fleetWriters share out the pipelines.
	fleetWriters = 4
)

// fleetSize is a campaign's.
type fleetSize struct {
	pipelines, members, brokers int
	disturbances                int           // by default
	pace                        time.Duration // between two transactions of a pipeline
}

// Each of the many walsenders decodes each transaction, and each of the many partitions is copied
// to two brokers: with a transaction of each pipeline every three seconds, two cores have no idle
// time, and events are late without any disturbance.
var (
	smallFleet = fleetSize{pipelines: 12, members: 3, brokers: 1, disturbances: 4, pace: 100 * time.Millisecond}
	largeFleet = fleetSize{pipelines: 100, members: 5, brokers: 3, pace: 10 * time.Second}
)

// fleetCampaign is a fleet with the state of the disturbances.
type fleetCampaign struct {
	t        *testing.T
	size     fleetSize
	seed     uint64
	url      string // of the database, past the proxies
	path     string // of the file
	revision int    // of the file
	ways     *fleetWays
	members  []*fleetMember
	client   *kgo.Client       // for questions
	delivery map[string]string // by topic

	ledger      *checker.Ledger
	reader      *checker.Reader
	standstills *standstills
	unload      func() // ends the writers
	settle      func() // ends the reader

	random    *rand.Rand // of the disturbance under way
	deck      []*fleetDisturbance
	disturbed int
	down      int // the broker killed last
	noted     int // transactions of the ledger known to be published
	report    fleetReport
}

// fleetMember is a member of the fleet.
type fleetMember struct {
	*fleetWay
	name    string
	process *connector // nil while there is none
}

func newFleetCampaign(t *testing.T, seed uint64, size fleetSize) *fleetCampaign {
	t.Helper()
	room := strconv.Itoa(6*size.pipelines + 50)
	server := pgtest.Start(t, pgtest.Setting("wal_sender_timeout", fmt.Sprintf("%dms", fleetSilence.Milliseconds())),
		pgtest.Setting("max_connections", room), pgtest.Setting("max_wal_senders", room), pgtest.Setting("max_replication_slots", room))
	k := &fleetCampaign{
		t: t, size: size, seed: seed, url: server.NewDatabase(t), path: filepath.Join(t.TempDir(), "cdc-outbox.yaml"),
		delivery: map[string]string{}, ledger: &checker.Ledger{}, unload: func() {},
		standstills: newStandstills(),
	}
	k.ways = newFleetWays(t, hostOf(t, k.url), size.members, size.brokers)
	for n, way := range k.ways.free {
		k.members = append(k.members, &fleetMember{fleetWay: way, name: fmt.Sprintf("m%d", n+1)})
	}
	var tables, publications, topics []string
	only := os.Getenv(fleetDeliveryEnv)
	for n := range size.pipelines {
		name := fleetPipeline(n)
		tables = append(tables, fmt.Sprintf("CREATE TABLE %s (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)", name))
		publications = append(publications, fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %[1]s WITH (publish = 'insert')", name))
		topics = append(topics, topicOf(name))
		k.delivery[topicOf(name)] = only
		if only == "" {
			k.delivery[topicOf(name)] = []string{sink.DeliveryAtLeastOnce, sink.DeliveryExactlyOnce}[n%2]
		}
	}
	// Connectors that make publications and slots all at once wait for each other: a slot begins once all
	// transactions under way have ended, and a publication is made in one.
	pgtest.Exec(t, k.url, append(tables, publications...)...)
	k.writeFile()
	k.client = k.ways.cluster.Client(t)
	k.createTopics(topics)
	k.read(topics)
	return k
}

func fleetPipeline(n int) string { return fmt.Sprintf("p%03d", n) }

func (k *fleetCampaign) createTopics(topics []string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	made, err := kadm.NewClient(k.client).CreateTopics(ctx, 2, int16(k.size.brokers), nil, topics...)
	must.OK(k.t, err)
	must.OK(k.t, made.Error())
}

// writeFile writes the file of all members. Each revision is another specification of all pipelines.
func (k *fleetCampaign) writeFile() {
	k.t.Helper()
	database := must.Get(url.Parse(k.url))(k.t)
	database.Host = database.Hostname() // the port is in the environment
	var b strings.Builder
	fmt.Fprintf(&b, "source: {url: %q, liveness_timeout: 5s}\nsink: {kafka: {brokers: [%s], linger: %dms}}\nhttp: {listen: \"\"}\n", database, k.ways.addresses(), 5+k.revision)
	fmt.Fprintf(&b, "fleet: {group: %s, session_timeout: %s, moves: 4}\npipelines:\n", fleetGroup, fleetSession)
	for n := range k.size.pipelines {
		name := fleetPipeline(n)
		fmt.Fprintf(&b, "  %s: {source: {tables: [public.%[1]s], slot: %[1]s, publication: %[1]s}, sink: {kafka: {delivery: %s}}}\n", name, k.delivery[topicOf(name)])
	}
	must.OK(k.t, os.WriteFile(k.path, []byte(b.String()), 0o600))
}

// read reads all topics until settle, as consumers do.
func (k *fleetCampaign) read(topics []string) {
	k.t.Helper()
	client := k.ways.cluster.Client(k.t, kgo.ConsumeTopics(topics...), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.WithHooks(k.standstills))
	k.reader = checker.NewReader(client)
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() { k.reader.Run(ctx) })
	k.settle = func() { cancel(); reading.Wait() }
	k.t.Cleanup(k.settle)
}

// start starts a member.
func (k *fleetCampaign) start(m *fleetMember) {
	k.t.Helper()
	cmd := k.command("run")
	_, port, _ := strings.Cut(m.postgres.Addr(), ":")
	cmd.Env = append(cmd.Env, "CDC_OUTBOX_FLEET_MEMBER="+m.name, "PGPORT="+port)
	m.process = launch(k.t, cmd)
	k.ways.take(cmd.Process.Pid, m.fleetWay)
}

func (k *fleetCampaign) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, append(args, "-c", k.path)...)
	cmd.Env = environment(k.t)
	return cmd
}

// run runs a command of the program to the end.
func (k *fleetCampaign) run(args ...string) {
	k.t.Helper()
	toTheEnd(k.t, k.command(args...))
}

// look asks for the fleet. Members out of reach may keep it from an answer.
func (k *fleetCampaign) look(limit time.Duration) (*fleet.View, error) {
	ctx, cancel := context.WithTimeout(k.t.Context(), limit)
	defer cancel()
	return fleet.Look(ctx, k.client, fleetGroup)
}

// balanced returns once all slots have a reader, and the members have about equal shares.
func (k *fleetCampaign) balanced() {
	k.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(k.t.Context(), 5*patience)
	defer cancel()
	sql := connect(k.t, k.url)
	defer closeConn(sql)
	must.OK(k.t, await.Ready(ctx, nil, func(ctx context.Context) error {
		var readers int
		if err := sql.QueryRow(ctx, "SELECT count(*) FROM pg_replication_slots WHERE active").Scan(&readers); err != nil {
			return err
		}
		if readers < k.size.pipelines {
			return fmt.Errorf("%d slots have a reader", readers)
		}
		v, err := k.look(patience)
		if err != nil {
			return err
		}
		least, most := k.size.pipelines, 0
		for _, m := range v.Members {
			least, most = min(least, m.Pipelines), max(most, m.Pipelines)
		}
		if allowed := 1 + k.size.pipelines/k.size.members/5; len(v.Members) < k.size.members || most-least > allowed {
			return fmt.Errorf("%d members have %d to %d pipelines", len(v.Members), least, most)
		}
		return nil
	}))
	k.t.Logf("fleet campaign: %d pipelines on %d members are at work after %s", k.size.pipelines, k.size.members, time.Since(began).Round(time.Second))
}

// load starts the writers.
func (k *fleetCampaign) load() {
	k.t.Helper()
	var conns []*pgx.Conn
	for range fleetWriters {
		conns = append(conns, connect(k.t, k.url))
	}
	ctx, stop := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	k.unload = func() { stop(); writing.Wait() }
	k.t.Cleanup(k.unload)
	for n, sql := range conns {
		w := &writer{random: rand.New(rand.NewPCG(k.seed, uint64(n)))}
		writing.Go(func() {
			if err := k.write(ctx, sql, w, n); err != nil {
				k.t.Errorf("write: %v", err)
			}
		})
	}
}

// write has a transaction with events of a pipeline at each tick, until ctx ends. The pipelines of the
// writer have turns.
func (k *fleetCampaign) write(ctx context.Context, sql *pgx.Conn, w *writer, number int) error {
	mine := (k.size.pipelines - number + fleetWriters - 1) / fleetWriters
	tick := time.NewTicker(k.size.pace / time.Duration(mine))
	defer tick.Stop()
	for turn := 0; ; turn++ {
		name := fleetPipeline(number + turn%mine*fleetWriters)
		if err := k.commit(sql, w, name); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// commit commits a transaction with up to five events.
func (k *fleetCampaign) commit(sql *pgx.Conn, w *writer, pipeline string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tx := checker.Transaction{Outcome: checker.Committed}
	var ids, keys, payloads []string
	for range 1 + w.random.IntN(5) {
		ev := checker.Event{ID: w.id(), Topic: topicOf(pipeline), Key: entityKeys[w.random.IntN(len(entityKeys))], Value: w.text(1 + w.random.IntN(400))}
		ev.Headers = []checker.Header{{Key: "id", Value: ev.ID}, {Key: "eventType", Value: "Counted"}}
		tx.Events = append(tx.Events, ev)
		ids, keys, payloads = append(ids, ev.ID), append(keys, ev.Key), append(payloads, ev.Value)
	}
	tx.Began = k.ledger.Now()
	err := sql.QueryRow(ctx, "WITH e AS (INSERT INTO "+pipeline+` (id, aggregatetype, aggregateid, type, payload)
		SELECT id, $1, key, 'Counted', payload FROM unnest($2::uuid[], $3::text[], $4::text[]) AS e(id, key, payload))
		SELECT pg_current_xact_id()::xid::text::bigint`, pipeline, ids, keys, payloads).Scan(&tx.XID)
	if err != nil {
		return err
	}
	k.ledger.Add(tx)
	return nil
}

// disturb disturbs the fleet once, and returns the name and the topics of the disturbed pipelines.
// The number of random numbers used depends on the fleet, so the next disturbance seeds the
// generator anew.
func (k *fleetCampaign) disturb(goal int) (name string, hit map[string]bool) {
	k.t.Helper()
	k.random = rand.New(rand.NewPCG(k.seed, 700+uint64(k.disturbed)))
	k.disturbed++
	all := []*fleetDisturbance{k.draw(goal)}
	if all[0].scope == oneMember && k.random.IntN(3) == 0 {
		if other := k.draw(0); other.scope == oneMember {
			all = append(all, other)
		} else {
			k.deck = append(k.deck, other)
		}
	}
	victims := k.random.Perm(len(k.members))[:len(all)]
	hit = k.topicsOf(all[0].scope, victims)
	var names []string
	ends := make([]time.Time, len(all))
	for n, d := range all {
		if n > 0 {
			<-time.After(span{0, time.Second}.choose(k.random))
		}
		d.begin(k, k.members[victims[n]])
		ends[n] = time.Now().Add(d.lasts.choose(k.random))
		names = append(names, d.name)
	}
	order := []int{0, 1}[:len(all)]
	slices.SortFunc(order, func(a, b int) int { return ends[a].Compare(ends[b]) })
	for _, n := range order {
		<-time.After(time.Until(ends[n]))
		all[n].end(k, k.members[victims[n]])
	}
	return strings.Join(names, both), hit
}

// draw takes a disturbance from the deck. With several brokers, brokerKilled comes in the middle.
func (k *fleetCampaign) draw(goal int) *fleetDisturbance {
	if k.size.brokers > 1 && goal > 0 && k.disturbed == (goal+1)/2 {
		return &brokerKilled
	}
	if len(k.deck) == 0 {
		for n := range fleetDisturbances {
			for range fleetDisturbances[n].weight {
				k.deck = append(k.deck, &fleetDisturbances[n])
			}
		}
		k.random.Shuffle(len(k.deck), func(a, b int) { k.deck[a], k.deck[b] = k.deck[b], k.deck[a] })
	}
	last := len(k.deck) - 1
	d := k.deck[last]
	k.deck = k.deck[:last]
	return d
}

func (s span) choose(random *rand.Rand) time.Duration {
	if s.most == s.least {
		return s.least
	}
	return s.least + time.Duration(random.Int64N(int64(s.most-s.least)))
}

// topicsOf are the topics of the pipelines within the scope of a disturbance.
func (k *fleetCampaign) topicsOf(scope fleetScope, victims []int) map[string]bool {
	k.t.Helper()
	v, err := k.look(patience)
	must.OK(k.t, err)
	hit := map[string]bool{}
	for _, p := range v.Pipelines {
		if scope == allMembers || p.Member == "" || slices.ContainsFunc(victims, func(n int) bool { return k.members[n].name == p.Member }) {
			hit[topicOf(p.Name)] = true
		}
	}
	return hit
}

// flows returns once each pipeline has published an event committed from now on, and
// everything committed before.
func (k *fleetCampaign) flows(after string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	since := time.Now()
	if err := await.Ready(ctx, nil, func(context.Context) error {
		if n := k.standstills.flowing(since); n < k.size.pipelines {
			return fmt.Errorf("only %d pipelines have published an event committed since then", n)
		}
		return nil
	}); err != nil {
		k.explain(k.ledger.Transactions()[k.noted:])
		k.t.Fatalf("after %s: %v", after, err)
	}
	k.arrived(after)
}

// arrived returns once everything committed by now is published.
func (k *fleetCampaign) arrived(after string) {
	k.t.Helper()
	for _, m := range k.members {
		m.process.running()
	}
	txs := k.ledger.Transactions()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := k.reader.AwaitEvents(ctx, eventsOf(txs[k.noted:])); err != nil {
		k.explain(txs[k.noted:])
		k.t.Fatalf("after %s: %v", after, err)
	}
	k.noted = len(txs)
}

// explain logs the fleet and the slots of pipelines with missing events.
func (k *fleetCampaign) explain(txs []checker.Transaction) {
	k.t.Helper()
	missing := map[string]int{}
	for _, tx := range txs {
		if n := len(k.reader.Missing(eventsOf([]checker.Transaction{tx}))); n > 0 {
			missing[tx.Events[0].Topic] += n
		}
	}
	v, err := k.look(patience)
	k.t.Logf("missing: %v\nfleet: %+v (%v)", missing, v, err)
	sql := connect(k.t, k.url)
	rows, err := sql.Query(k.t.Context(), "SELECT slot_name || ' ' || coalesce(active_pid, 0) || ' ' || confirmed_flush_lsn FROM pg_replication_slots ORDER BY 1")
	must.OK(k.t, err)
	k.t.Logf("slots: %q", must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(k.t))
}

// stopAll stops all members at once.
func (k *fleetCampaign) stopAll() {
	k.t.Helper()
	var stopping sync.WaitGroup
	for _, m := range k.members {
		stopping.Go(m.process.stop)
	}
	stopping.Wait()
}

// verify judges the topics of each delivery by themselves.
func (k *fleetCampaign) verify() {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var topics []string
	for topic := range k.delivery {
		topics = append(topics, topic)
	}
	ends := must.Get(checker.Ends(ctx, kadm.NewClient(k.client), topics...))(k.t)
	must.OK(k.t, k.reader.AwaitEnds(ctx, ends))
	k.settle()
	histories := map[string]*checker.History{}
	of := func(topic string) *checker.History {
		delivery := k.delivery[topic]
		if histories[delivery] == nil {
			histories[delivery] = &checker.History{}
		}
		return histories[delivery]
	}
	for _, tx := range k.ledger.Transactions() {
		h := of(tx.Events[0].Topic)
		h.Transactions = append(h.Transactions, tx)
	}
	for _, rec := range k.reader.Records() {
		h := of(rec.Topic)
		h.Records = append(h.Records, rec)
	}
	for delivery, h := range histories {
		report := checker.Verify(*h)
		k.report.judged[delivery] = report
		if err := report.Err(); err != nil {
			k.t.Errorf("%s: %v", delivery, err)
		}
		if report.Committed == 0 {
			k.t.Errorf("%s: nothing was tested", delivery)
		}
		if delivery == sink.DeliveryExactlyOnce && report.Repeated > 0 {
			k.t.Errorf("%d records came again to consumers that read what is committed", report.Repeated)
		}
	}
}
