package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// shadowAnswer is the report of shadow --json.
type shadowAnswer struct {
	Ours, Theirs                                                           int64
	Equal, Different, Missing, Additional, Repeated, Earlier, Pending, Bad int64
	Unjudged, Renumbered                                                   int64
	Starts                                                                 int
	Judging                                                                bool
	Parts                                                                  []struct {
		Part  string
		Count int64
	}
	Examples []any
	Notes    []string
}

func readShadow(t testing.TB, path string) (a shadowAnswer) {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatalf("the report: %v: %s", err, text)
	}
	return a
}

// The imported configuration publishes what Debezium does, to the byte, also through a kill
// of Debezium; planted differences are named.
func TestE2EShadow(t *testing.T) {
	m := startMoving(t, nil)
	m.awaitDebezium()
	w := m.startWriters(3, 5*time.Millisecond, seed(t))

	shadow, out := m.start("shadow", "-c", m.config, "--against", m.rest+"/connectors/orders", "--until-idle", "--json")
	shadow.awaitLog("events committed after")
	await.Until(t, "events", func() bool { return w.count() > 1000 })
	m.killDebezium()
	shadow.awaitLog("Debezium does not read slot")
	before := w.count()
	await.Until(t, "events without Debezium", func() bool { return w.count() > before+200 })
	m.startDebezium()
	m.awaitDebezium()
	await.Until(t, "more events", func() bool { return w.count() > before+1500 })
	w.stop()
	if code := shadow.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	a := readShadow(t, out)
	t.Logf("%+v", a)
	if a.Different+a.Missing+a.Additional+a.Pending+a.Bad+a.Unjudged != 0 || a.Equal != a.Ours || a.Ours == 0 || !a.Judging {
		t.Errorf("%+v\n%v", a, a.Examples)
	}
	m.awaitNoOtherSlot()

	// Planted: a header under another name, a record of nobody's, a table that Debezium leaves out.
	m.edit(func(text string) string {
		for _, change := range [][2]string{{"tenant:header", "tenant:header:client"}, {"[public.outbox]", "[public.outbox, public.outbox_more]"}} {
			changed := strings.Replace(text, change[0], change[1], 1)
			if changed == text {
				t.Fatalf("no %q in\n%s", change[0], text)
			}
			text = changed
		}
		return text
	})
	w = m.startWriters(1, 20*time.Millisecond, 1)
	live := must.Get(freeport.TakeAddress())(t)
	shadow, out = m.start("shadow", "-c", m.config, "--against", m.path("connector.properties"), "--json", "--set", "http.listen="+live)
	await.Until(t, "the comparison to judge additional records", func() bool { shadow.running(); return liveShadow(t, live).Judging })
	pgtest.Exec(t, m.url, `INSERT INTO outbox_more (id, aggregatetype, aggregateid, type) VALUES ('00000000-0000-0000-0000-000000000001', 'order', '1', 'Placed')`)
	planted := &kgo.Record{Topic: topicOf("order"), Key: []byte("1"), Value: []byte("{}"), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("nobody")}}}
	must.OK(t, m.broker.Client(t).ProduceSync(t.Context(), planted).FirstErr())
	await.Until(t, "all differences", func() bool {
		shadow.running()
		a := liveShadow(t, live)
		return a.Missing > 0 && a.Additional > 0 && a.Different > 0
	})
	must.Contain(t, liveText(t, live, "/"), "header client", "additional there")
	must.Contain(t, liveText(t, live, "/metrics"), `cdc_outbox_shadow_events_total{result="missing"} 1`)
	if text := liveText(t, live, "/status"); strings.Contains(text, "total") {
		t.Errorf("payloads are shown to everybody: %s", text)
	}
	w.stop()
	shadow.signal(syscall.SIGTERM)
	if code := shadow.wait(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	a = readShadow(t, out)
	t.Logf("%+v", a)
	var parts []string
	for _, p := range a.Parts {
		parts = append(parts, p.Part)
	}
	slices.Sort(parts)
	if got := strings.Join(parts, ", "); got != "header client, header tenant" || a.Missing != 1 || a.Additional != 1 {
		t.Errorf("%s: %+v\n%v", got, a, a.Examples)
	}
	examples := fmt.Sprint(a.Examples)
	must.Contain(t, examples, "00000000-0000-0000-0000-000000000001", "nobody")
}

// awaitNoOtherSlot returns once Debezium's slot is the only. A temporary slot goes when the server
// has noticed the end of its connection.
func (m *moving) awaitNoOtherSlot() {
	m.t.Helper()
	await.Until(m.t, "the end of the temporary slot", func() bool {
		return m.ask(`SELECT count(*) FROM pg_replication_slots WHERE slot_name <> '`+debeziumSlot+`'`) == 0
	})
}

// liveShadow is the state while the comparison runs.
func liveShadow(t testing.TB, addr string) (a shadowAnswer) {
	t.Helper()
	_ = json.Unmarshal([]byte(liveText(t, addr, "/status")), &a) // it may be starting
	return a
}

func liveText(t testing.TB, addr, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := http.DefaultClient.Do(must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil))(t))
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	return string(must.Get(io.ReadAll(resp.Body))(t))
}

// An hour, or as long as asked for, with kills of each part: of what was compared, all is
// equal. A comparison that is killed begins anew.
func TestE2EShadowThroughFaults(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv(shadowEnv))
	if err != nil {
		t.Skipf("make shadow sets %s to a duration", shadowEnv)
	}
	start := seed(t)
	r := rand.New(rand.NewPCG(start, 1))
	m := startMoving(t, nil)
	m.awaitDebezium()
	w := m.startWriters(3, 10*time.Millisecond, start)
	live := must.Get(freeport.TakeAddress())(t)
	begin := func() *connector {
		c, _ := m.start("shadow", "-c", m.config, "--against", m.rest+"/connectors/orders", "--set", "http.listen="+live)
		c.awaitLog("events committed after")
		return c
	}
	shadow := begin()
	var reports []shadowAnswer
	last := func() { reports = append(reports, liveShadow(t, live)) }
	faults := map[string]int{}
	for end := time.Now().Add(length); time.Now().Before(end); {
		_ = backoff.Sleep(t.Context(), time.Duration(20+r.IntN(40))*time.Second)
		shadow.running()
		fault := []string{"Debezium", "Debezium", "Kafka", "PostgreSQL", "the comparison"}[r.IntN(5)]
		faults[fault]++
		t.Logf("%s kill of %s; so far %+v", time.Now().UTC().Format(time.TimeOnly), fault, liveShadow(t, live))
		switch fault {
		case "Debezium":
			m.killDebezium()
			_ = backoff.Sleep(t.Context(), time.Duration(r.IntN(15))*time.Second)
			m.startDebezium()
		case "Kafka":
			m.broker.Kill(t)
			_ = backoff.Sleep(t.Context(), time.Duration(r.IntN(10))*time.Second)
			m.broker.Resume(t)
		case "PostgreSQL":
			m.server.Restart(t, pgtest.Immediate)
		case "the comparison":
			last()
			shadow.kill()
			shadow = begin()
		}
		m.awaitDebezium()
	}
	w.stop()
	await.Until(t, "all records", func() bool { a := liveShadow(t, live); return a.Ours > 0 && a.Pending == 0 })
	shadow.signal(syscall.SIGTERM)
	last()
	if code := shadow.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	var sum shadowAnswer
	for _, a := range reports {
		sum.Ours, sum.Theirs, sum.Equal, sum.Repeated, sum.Earlier = sum.Ours+a.Ours, sum.Theirs+a.Theirs, sum.Equal+a.Equal, sum.Repeated+a.Repeated, sum.Earlier+a.Earlier
		sum.Different, sum.Missing, sum.Additional, sum.Unjudged, sum.Bad = sum.Different+a.Different, sum.Missing+a.Missing, sum.Additional+a.Additional, sum.Unjudged+a.Unjudged, sum.Bad+a.Bad
		sum.Starts += a.Starts
	}
	t.Logf("%d committed; faults %v; in all %+v", w.count(), faults, sum)
	if sum.Different+sum.Missing+sum.Additional+sum.Unjudged+sum.Bad != 0 || sum.Equal == 0 {
		t.Errorf("%+v", sum)
	}
	m.awaitNoOtherSlot()
}
