package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
)

const (
	fleetPipelines = 6
	fleetMembers   = 3
	fleetKeys      = 5 // of each pipeline
	fleetSession   = 6 * time.Second
)

// fleetWorld is a fleet of processes, with a table and a topic for each pipeline, a writer
// that never stops, and a reader of all topics.
type fleetWorld struct {
	t       *testing.T
	url     string
	kafka   *proxy.Proxy // before the broker, for all
	dir     string
	members map[string]*connector

	mu      sync.Mutex
	written map[string]int // by pipeline/key: the last number
	read    map[string]*fleetKey
	arrived map[string]time.Time     // by pipeline: the last
	gaps    map[string]time.Duration // by pipeline: the longest since the last phase
	begin   func()
	stop    func()
}

// fleetKey is what was read of a key.
type fleetKey struct {
	highest, repeated int
	faults            []string
}

func TestE2EFleetPlacesPipelines(t *testing.T) {
	for _, delivery := range []string{"at_least_once", "exactly_once"} {
		t.Run(delivery, func(t *testing.T) {
			w := newFleetWorld(t, delivery)
			for n := range fleetMembers {
				w.start(fmt.Sprintf("m%d", n+1))
			}
			w.await("equal shares", func(v *fleet.View) bool { return w.shares(v, 2, 2, 2) })
			await.Until(t, "readers of all slots", func() bool { return w.readers() == fleetPipelines })
			w.begin()
			w.flows()
			w.phase("start")

			w.members["m2"].kill()
			w.await("pipelines of the killed member at the others", func(v *fleet.View) bool { return w.shares(v, 3, 3) })
			w.flows()
			w.phase("kill -9")
			w.start("m2")
			w.await("equal shares after a restart", func(v *fleet.View) bool { return w.shares(v, 2, 2, 2) })
			w.phase("return")

			w.members["m1"].signal(syscall.SIGSTOP)
			w.await("pipelines of the stopped member at the others", func(v *fleet.View) bool { return w.shares(v, 3, 3) })
			w.flows()
			w.members["m1"].signal(syscall.SIGCONT)
			w.await("equal shares after the stop", func(v *fleet.View) bool { return w.shares(v, 2, 2, 2) })
			w.phase("SIGSTOP")

			w.kafka.Refuse(true)
			w.kafka.Cut()
			for _, m := range w.members {
				m.awaitLog("stopping all pipelines")
			}
			await.Until(t, "end of all readers of slots", func() bool { return w.readers() == 0 })
			w.kafka.Refuse(false)
			w.await("equal shares after the cut", func(v *fleet.View) bool { return w.shares(v, 2, 2, 2) })
			w.flows()
			w.phase("cut off")

			w.run("fleet", "drain", "m3")
			w.await("nothing at the drained member", func(v *fleet.View) bool { return w.shares(v, 3, 3, 0) })
			w.phase("drain")
			w.members["m3"].stop()
			w.start("m3")
			w.await("equal shares after the drain", func(v *fleet.View) bool { return w.shares(v, 2, 2, 2) })
			w.flows()
			w.phase("balance")

			w.finish(delivery == "exactly_once")
			for _, m := range w.members {
				m.stop()
			}
		})
	}
}

func newFleetWorld(t *testing.T, delivery string) *fleetWorld {
	w := &fleetWorld{
		t: t, url: pgtest.Shared(t).NewDatabase(t), dir: t.TempDir(), members: map[string]*connector{}, written: map[string]int{},
		read: map[string]*fleetKey{}, arrived: map[string]time.Time{}, gaps: map[string]time.Duration{},
	}
	address := must.Get(freeport.TakeAddress())(t)
	broker := kafkatest.Start(t, kafkatest.Apache(), kafkatest.Advertised(address))
	w.kafka = listen(t, address, broker.Brokers[0])
	sql := connect(t, w.url)
	statements := []string{"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET wal_sender_timeout = ''4s''', current_database()); END $$"}
	var topics []string
	var pipelines strings.Builder
	tag := strings.ReplaceAll(must.Get(pgx.ParseConfig(w.url))(t).Database, "-", "_")
	for n := range fleetPipelines {
		name := fmt.Sprintf("p%d", n)
		statements = append(statements, fmt.Sprintf("CREATE TABLE %s (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload text)", name))
		fmt.Fprintf(&pipelines, "  %s:\n    source: {tables: [public.%[1]s], slot: %s_%[1]s, publication: %[2]s_%[1]s}\n", name, tag)
		broker.CreateTopic(t, topicOf(name), 2, nil)
		topics = append(topics, topicOf(name))
	}
	for _, statement := range statements {
		if _, err := sql.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%.80s: %v", statement, err)
		}
	}
	config := fmt.Sprintf("source: {url: %q}\nsink: {kafka: {brokers: [%s], delivery: %s}}\nhttp: {listen: \"\"}\nfleet: {group: fleet, session_timeout: %s}\npipelines:\n%s",
		w.url, address, delivery, fleetSession, pipelines.String())
	must.OK(t, os.WriteFile(w.path(), []byte(config), 0o600))

	writer := connect(t, w.url)
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	w.stop = func() { stop(); all.Wait() }
	t.Cleanup(w.stop)
	client := broker.Client(t, kgo.ConsumeTopics(topics...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
	all.Go(func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(w.note)
		}
	})
	w.begin = func() { all.Go(func() { w.write(ctx, writer) }) }
	return w
}

func (w *fleetWorld) path() string { return filepath.Join(w.dir, "cdc-outbox.yaml") }

// start starts a member. All have the same file.
func (w *fleetWorld) start(name string) {
	cmd := exec.Command(binary, "run", "-c", w.path())
	cmd.Env = append(environment(w.t), "CDC_OUTBOX_FLEET_MEMBER="+name)
	w.members[name] = launch(w.t, cmd)
}

func (w *fleetWorld) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.t.Context(), binary, append(args, "-c", w.path())...)
	cmd.Env = environment(w.t)
	return cmd
}

func (w *fleetWorld) run(args ...string) {
	w.t.Helper()
	toTheEnd(w.t, w.command(args...))
}

// await waits until the program shows the fleet so.
func (w *fleetWorld) await(what string, met func(*fleet.View) bool) {
	w.t.Helper()
	await.Until(w.t, what, func() bool {
		out, err := w.command("fleet", "status", "--json").Output()
		if err != nil {
			return false // no member, or a broker away
		}
		var v fleet.View
		must.OK(w.t, json.Unmarshal(out, &v))
		return met(&v)
	})
}

// shares tells whether the members have so many pipelines, in any order, and no pipeline waits.
func (w *fleetWorld) shares(v *fleet.View, want ...int) bool {
	var got []int
	total := 0
	for _, m := range v.Members {
		got = append(got, m.Pipelines)
		total += m.Pipelines
	}
	slices.Sort(got)
	slices.Sort(want)
	return slices.Equal(got, want) && total == fleetPipelines
}

// readers is the number of slots being read.
func (w *fleetWorld) readers() (n int) {
	w.t.Helper()
	sql := connect(w.t, w.url)
	defer closeConn(sql)
	must.OK(w.t, sql.QueryRow(w.t.Context(), "SELECT count(*) FROM pg_replication_slots WHERE active AND database = current_database()").Scan(&n))
	return n
}

// write writes events until ctx ends. The payload counts the events of the key.
func (w *fleetWorld) write(ctx context.Context, sql *pgx.Conn) {
	random := rand.New(rand.NewPCG(1, 2))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		name, key := fmt.Sprintf("p%d", random.IntN(fleetPipelines)), fmt.Sprint(random.IntN(fleetKeys))
		w.mu.Lock()
		n := w.written[name+"/"+key] + 1
		w.written[name+"/"+key] = n
		w.mu.Unlock()
		if _, err := sql.Exec(context.Background(), "INSERT INTO "+name+" (aggregatetype, aggregateid, type, payload) VALUES ($1, $2, 'Counted', $3)", name, key, strconv.Itoa(n)); err != nil {
			w.t.Errorf("write: %v", err)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// note notes a record: each number of a key once, and in order.
func (w *fleetWorld) note(r *kgo.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := strings.TrimPrefix(r.Topic, topicOf(""))
	key := name + "/" + string(r.Key)
	k := w.read[key]
	if k == nil {
		k = &fleetKey{}
		w.read[key] = k
	}
	switch n, err := strconv.Atoi(string(r.Value)); {
	case err != nil:
		k.faults = append(k.faults, err.Error())
	case n == k.highest+1:
		k.highest = n
	case n <= k.highest:
		k.repeated++
	default:
		k.faults = append(k.faults, fmt.Sprintf("%d after %d", n, k.highest))
		k.highest = n
	}
	now := time.Now()
	if last, ok := w.arrived[name]; ok {
		w.gaps[name] = max(w.gaps[name], now.Sub(last))
	}
	w.arrived[name] = now
}

// flows waits until an event of each pipeline, written from now on, arrives.
func (w *fleetWorld) flows() {
	w.t.Helper()
	since := time.Now()
	w.mu.Lock()
	targets := maps.Clone(w.written)
	w.mu.Unlock()
	await.Until(w.t, "events of all pipelines", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for key, n := range targets {
			if w.read[key] == nil || w.read[key].highest < n {
				return false
			}
		}
		for n := range fleetPipelines {
			if w.arrived[fmt.Sprintf("p%d", n)].Before(since) {
				return false
			}
		}
		return true
	})
}

// phase prints the longest standstill of each pipeline since the last phase.
func (w *fleetWorld) phase(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var gaps []string
	for _, name := range slices.Sorted(maps.Keys(w.gaps)) {
		gaps = append(gaps, name+" "+w.gaps[name].Round(10*time.Millisecond).String())
	}
	w.t.Logf("longest standstill, %s: %s", what, strings.Join(gaps, ", "))
	clear(w.gaps)
}

// finish stops the writer, and judges what was read.
func (w *fleetWorld) finish(once bool) {
	w.t.Helper()
	w.flows()
	events, repeated := 0, 0
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, k := range w.read {
		for _, fault := range k.faults {
			w.t.Errorf("%s: %s", key, fault)
		}
		events += k.highest
		repeated += k.repeated
	}
	w.t.Logf("%d events, %d repeated", events, repeated)
	if once && repeated > 0 {
		w.t.Errorf("%d events are repeated", repeated)
	}
}
