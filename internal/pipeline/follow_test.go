package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
)

// discovering is a configuration with a directory of pipelines.
type discovering struct {
	*testing.T
	folder string
}

func discover(t *testing.T, text string) discovering {
	d := discovering{t, t.TempDir()}
	must.OK(t, os.Mkdir(filepath.Join(d.folder, "pipelines.d"), 0o700))
	must.OK(t, os.WriteFile(filepath.Join(d.folder, "main.yaml"), []byte(text+"\ndiscovery: {directory: pipelines.d, interval: 100ms}\n"), 0o600))
	return d
}

func (d discovering) write(name, text string) {
	d.Helper()
	must.OK(d, os.WriteFile(filepath.Join(d.folder, "pipelines.d", name+".yaml"), []byte(text), 0o600))
}

func (d discovering) load() *config.Config {
	d.Helper()
	return must.Get(config.Load(config.Options{File: filepath.Join(d.folder, "main.yaml")}))(d)
}

// A change counts after two looks alike: a half-written file does not, nor does a file put
// back at once. A fault is logged once.
func TestFollowerWaitsForTheSecondLook(t *testing.T) {
	d := discover(t, `source: {url: "postgres://cdc@localhost/app"}`)
	d.write("a", "pipelines: {a: {}, b: {}}")
	core, logs := observer.New(zap.WarnLevel)
	applied, announced := "", 0
	applying := func(pipelines []config.Pipeline) { announced = len(pipelines) }
	f := follow(Options{Config: d.load(), Log: zap.New(core), Applying: applying}, metrics.New("", ""), func(wanted []config.Pipeline) {
		if announced != len(wanted) {
			t.Errorf("%d pipelines begin, and %d were announced", len(wanted), announced)
		}
		applied = ""
		for _, p := range wanted {
			applied += p.Name
		}
	})
	look := func(want string) {
		t.Helper()
		f.look(t.Context())
		if applied != want {
			t.Errorf("applied %s, want %s", applied, want)
		}
	}
	look("ab")
	d.write("a", "pipelines: {a: {}}") // the half
	look("ab")
	d.write("a", "pipelines: {a: {}, b: {}, c: {}}")
	look("ab")
	if !f.status().Pending {
		t.Error("a change seen once does not show")
	}
	look("abc")
	must.OK(t, os.Remove(filepath.Join(d.folder, "pipelines.d", "a.yaml")))
	look("abc")
	d.write("a", "pipelines: {a: {}, b: {}, c: {}}") // back
	look("abc")
	look("abc")
	if logs.Len() > 0 {
		t.Errorf("logged %v", logs.All())
	}
	d.write("a", "{")
	for range 5 {
		look("abc")
	}
	faults := f.status().Faults
	if len(faults) != 1 || !strings.Contains(faults[0].Error, "is not YAML") || strings.Join(faults[0].Running, "") != "abc" || logs.Len() != 1 {
		t.Errorf("faults %v, logged %v", faults, logs.All())
	}
	if reasons := f.reasons(); len(reasons) > 0 {
		t.Errorf("not ready: %q", reasons)
	}
	d.write("b", "{")
	look("abc")
	look("abc")
	if reasons := f.reasons(); len(reasons) != 1 || !strings.Contains(reasons[0], "b.yaml") {
		t.Errorf("reasons %q, want the file without any pipeline of before", reasons)
	}
	must.OK(t, os.Remove(filepath.Join(d.folder, "pipelines.d", "b.yaml")))
	d.write("a", "pipelines: {a: {}}")
	look("abc")
	look("a")
	if gone := logs.FilterMessageSnippet("its slot stays").All(); len(gone) != 2 || !strings.Contains(gone[0].ContextMap()["remedy"].(string), "pg_drop_replication_slot('cdc_outbox_b')") {
		t.Errorf("logged %v", gone)
	}
}

// Sources that are different at each look change nothing, and for long that is a fault.
func TestFollowerTellsOfRestlessSources(t *testing.T) {
	d := discover(t, `source: {url: "postgres://cdc@localhost/app"}`)
	d.write("a", "pipelines: {a: {}}")
	f := follow(Options{Config: d.load(), Log: zap.NewNop()}, metrics.New("", ""), func([]config.Pipeline) {})
	look := func(n int) []fault {
		d.write("b", fmt.Sprintf("pipelines: {b: {}} # %d", n))
		f.look(t.Context())
		return f.status().Faults
	}
	for n := range 3 {
		if faults := look(n); len(faults) > 0 || !f.status().Pending {
			t.Fatalf("look %d: faults %v", n, faults)
		}
	}
	f.restless = f.restless.Add(-longLooking)
	if faults := look(3); len(faults) != 1 || !strings.Contains(faults[0].Error, "from look to look") || faults[0].Remedy == "" || faults[0].Running[0] != "a" {
		t.Errorf("faults %v", faults)
	}
	f.look(t.Context())
	if status := f.status(); len(status.Faults) > 0 || len(f.applied.Config.Pipelines) != 2 {
		t.Errorf("%+v, %d pipelines", status, len(f.applied.Config.Pipelines))
	}
	f.at = f.at.Add(-time.Hour)
	if faults := f.status().Faults; len(faults) != 1 || !strings.Contains(faults[0].Error, "has not ended") {
		t.Errorf("faults %v", faults)
	}
}

// Members of a fleet look at the same times.
func TestLooksAreAtMultiplesOfTheInterval(t *testing.T) {
	for at, want := range map[string]time.Duration{"10:00:01": 4 * time.Second, "10:00:04.9": 100 * time.Millisecond, "10:00:05": 5 * time.Second} {
		now := must.Get(time.Parse(time.DateTime, "2026-01-02 "+at))(t)
		if got := untilLook(now, 5*time.Second); got != want {
			t.Errorf("at %s the next look is in %s, want %s", at, got, want)
		}
	}
}

// Under load a pipeline is added, another changed, removed and put back, beside a third: no
// event is lost, and the third keeps its connection.
func TestPipelinesComeAndGoUnderLoad(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	broker := kafkatest.Start(t)
	names := []string{"orders", "billing", "audit"}
	for _, name := range names {
		pgtest.Exec(t, db, fmt.Sprintf(`CREATE TABLE %s (id bigserial PRIMARY KEY, aggregatetype text DEFAULT '%[1]s', aggregateid text DEFAULT '1',
			type text DEFAULT 'Done', payload jsonb DEFAULT '{}')`, name))
	}
	d := discover(t, fmt.Sprintf(`
source: {url: %q}
sink: {kafka: {brokers: [%q], create_topics: true}}
checkpoint: {interval: 10ms}
http: {listen: 127.0.0.1:0}`, db, broker.Brokers[0]))
	file := func(name, topic string) {
		t.Helper()
		d.write(name, fmt.Sprintf("pipelines: {%s: {source: {tables: [%[1]s], slot: come_%[1]s, publication: come_%[1]s}, route: {topic: %s}}}", name, topic))
	}
	file("orders", "come.orders")
	file("billing", "come.billing")
	c := start(t, *d.load())
	await.Until(t, "readiness", c.ready)
	pid := func(name string) string {
		conn := must.Get(pgx.Connect(t.Context(), db))(t)
		defer func() { _ = conn.Close(t.Context()) }()
		var pid string
		_ = conn.QueryRow(t.Context(), `SELECT coalesce(active_pid::text, '') FROM pg_replication_slots WHERE slot_name = $1`, "come_"+name).Scan(&pid)
		return pid
	}
	before := pid("orders")
	written := load(t, db, names[:2])

	file("audit", "come.audit")
	await.Until(t, "the new pipeline", func() bool { return c.ready() && pid("audit") != "" })
	pgtest.Exec(t, db, `INSERT INTO audit DEFAULT VALUES`)
	old := pid("billing")
	file("billing", "come.other")
	await.Until(t, "the changed pipeline", func() bool { now := pid("billing"); return now != "" && now != old && c.ready() })
	d.write("audit", "{") // it goes on
	await.Until(t, "the fault", c.shows("cdc_outbox_discovery_faults 1"))
	must.OK(t, os.Remove(filepath.Join(d.folder, "pipelines.d", "billing.yaml")))
	await.Until(t, "the removal", func() bool {
		return pid("billing") == "" && !strings.Contains(body(c.base+"/metrics"), `pipeline="billing"`) && !strings.Contains(body(c.base+"/status"), `"billing"`)
	})
	file("billing", "come.other")
	await.Until(t, "billing again", func() bool { return c.ready() && pid("billing") != "" })
	rows := written()
	if after := pid("orders"); after != before {
		t.Errorf("orders was read by %s, and then by %s", before, after)
	}

	topics := map[string][]string{"orders": {"come.orders"}, "billing": {"come.billing", "come.other"}, "audit": {"come.audit"}}
	rows["audit"] = 1
	for name, n := range rows {
		ids := map[string]int{}
		client := must.Get(kgo.NewClient(kgo.SeedBrokers(broker.Brokers...), kgo.ConsumeTopics(topics[name]...)))(t)
		await.Until(t, fmt.Sprintf("%d events of %s", n, name), func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), patience/60)
			defer cancel()
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				for _, h := range r.Headers {
					if h.Key == "id" {
						ids[string(h.Value)]++
					}
				}
			})
			return len(ids) == n
		})
		client.Close()
		for id, times := range ids {
			if times > 1 && name == "orders" {
				t.Errorf("event %s of the undisturbed pipeline came %d times", id, times)
			}
		}
	}
	var status struct{ Discovery discovered }
	must.OK(t, json.Unmarshal([]byte(body(c.base+"/status")), &status))
	if len(status.Discovery.Faults) != 1 || status.Discovery.LastLook.IsZero() {
		t.Errorf("/status has %+v", status.Discovery)
	}
	must.OK(t, c.stop())
}

// A process of a fleet follows the sources of pipelines, too, and shows their faults.
func TestAFleetFollowsItsSources(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	broker := kafkatest.Start(t)
	pgtest.Exec(t, db, `CREATE TABLE orders (id bigserial PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload jsonb)`)
	d := discover(t, fmt.Sprintf(`
source: {url: %q, tables: [orders]}
sink: {kafka: {brokers: [%q], create_topics: true}}
http: {listen: 127.0.0.1:0}
fleet: {group: sources, member: m1}`, db, broker.Brokers[0]))
	d.write("a", "pipelines: {orders: {source: {slot: fleet_orders, publication: fleet_orders}, route: {topic: before}}}")
	c := start(t, *d.load())
	reader := func() (pid string) {
		conn := must.Get(pgx.Connect(t.Context(), db))(t)
		defer func() { _ = conn.Close(t.Context()) }()
		_ = conn.QueryRow(t.Context(), `SELECT active_pid::text FROM pg_replication_slots WHERE slot_name = 'fleet_orders' AND active`).Scan(&pid)
		return pid
	}
	first := ""
	await.Until(t, "the pipeline", func() bool { first = reader(); return c.ready() && first != "" })
	d.write("a", "pipelines: {orders: {source: {slot: fleet_orders, publication: fleet_orders}, route: {topic: after}}}")
	await.Until(t, "the changed pipeline", func() bool { now := reader(); return c.ready() && now != "" && now != first })
	d.write("b", "{")
	await.Until(t, "the fault beside the ready pipeline", func() bool { return c.ready() && strings.Contains(body(c.base+"/readyz"), "b.yaml") })
	var status struct {
		Discovery discovered
		Fleet     *struct{}
	}
	must.OK(t, json.Unmarshal([]byte(body(c.base+"/status")), &status))
	if len(status.Discovery.Faults) != 1 || status.Fleet == nil {
		t.Errorf("/status has %+v", status)
	}
	await.Until(t, "the fault in the fleet", func() bool {
		var status struct{ Fleet struct{ All fleet.View } }
		must.OK(t, json.Unmarshal([]byte(body(c.base+"/status")), &status))
		if len(status.Fleet.All.Members) == 0 {
			return false
		}
		faults := status.Fleet.All.Members[0].Faults
		return faults.Count == 1 && strings.Contains(faults.Source, "b.yaml") && strings.Contains(faults.Error, "is not YAML")
	})
	must.OK(t, os.Remove(filepath.Join(d.folder, "pipelines.d", "a.yaml")))
	await.Until(t, "the removal", func() bool { return reader() == "" && !strings.Contains(body(c.base+"/metrics"), `pipeline="orders"`) })
	must.OK(t, c.stop())
}

// load writes events to the tables until told to stop, and then counts them.
func load(t *testing.T, db string, tables []string) (written func() map[string]int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	rows := map[string]int{}
	var writing sync.WaitGroup
	writing.Go(func() {
		conn, err := pgx.Connect(context.WithoutCancel(ctx), db)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		for ctx.Err() == nil {
			for _, table := range tables {
				if _, err := conn.Exec(context.WithoutCancel(ctx), "INSERT INTO "+table+" DEFAULT VALUES"); err != nil {
					t.Error(err)
					return
				}
				rows[table]++
			}
		}
	})
	written = sync.OnceValue(func() map[string]int {
		cancel()
		writing.Wait()
		return rows
	})
	t.Cleanup(func() { written() })
	return written
}

// A query lists the tenants. While it hangs, fails or finds nothing, the tenants of before
// go on.
func TestTenantsOfAQuery(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, db, `CREATE TABLE tenants (name text)`, `INSERT INTO tenants VALUES ('acme'), ('zeta')`,
		`CREATE VIEW listing AS SELECT name FROM tenants`)
	d := discover(t, fmt.Sprintf(`source: {url: %q}
pipeline_template: {route: {topic: "%%{name}.t"}}`, db))
	cfg := must.Get(config.Load(config.Options{File: filepath.Join(d.folder, "main.yaml"),
		Set: []string{"discovery.names_query=SELECT name FROM listing", "discovery.names_timeout=500ms"}}))(t)
	f := follow(Options{Config: cfg, Log: zap.NewNop()}, metrics.New("", ""), func([]config.Pipeline) {})
	expect := func(want, fault string) {
		t.Helper()
		f.look(t.Context())
		f.look(t.Context())
		var topics []string
		for _, p := range f.applied.Config.Pipelines {
			topics = append(topics, p.Config.Route.Topic)
		}
		if got := strings.Join(topics, " "); got != want {
			t.Errorf("topics %s, want %s", got, want)
		}
		if reasons := f.reasons(); len(reasons) > 0 {
			t.Errorf("not ready: %q", reasons)
		}
		if faults := fmt.Sprint(f.status().Faults); (fault == "") != (len(f.status().Faults) == 0) || !strings.Contains(faults, fault) {
			t.Errorf("faults %s, want %s", faults, fault)
		}
	}
	expect("acme.t zeta.t", "")
	pgtest.Exec(t, db, `INSERT INTO tenants VALUES ('beta')`)
	expect("acme.t beta.t zeta.t", "")
	pgtest.Exec(t, db, `CREATE OR REPLACE VIEW listing AS SELECT name FROM tenants, pg_sleep(60)`)
	expect("acme.t beta.t zeta.t", "discovery.names_query")
	pgtest.Exec(t, db, `CREATE OR REPLACE VIEW listing AS SELECT name FROM tenants WHERE false`)
	expect("acme.t beta.t zeta.t", "is empty, and was not")
	pgtest.Exec(t, db, `CREATE OR REPLACE VIEW listing AS SELECT 'of another table ' || n AS name FROM generate_series(1, 20000) n`)
	expect("acme.t beta.t zeta.t", "more than 10000 rows")
	pgtest.Exec(t, db, `CREATE OR REPLACE VIEW listing AS SELECT name FROM tenants WHERE name <> 'zeta'`)
	expect("acme.t beta.t", "")
}
