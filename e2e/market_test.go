package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	keys "github.com/cdc-outbox/cdc-outbox/idempotency/postgres"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// market is the examples' environment: a database, a broker, and the connector
// between the two.
type market struct {
	t        *testing.T
	url      string
	broker   *kafkatest.Broker
	client   *kgo.Client
	admin    *kadm.Client
	sql      *pgx.Conn
	programs string   // a directory
	environ  []string // of the programs
}

// newMarket builds the named examples, and starts the rest. The database has the
// tables of both libraries, and the given SQL's.
func newMarket(t *testing.T, sql string, examples ...string) *market {
	m := &market{t: t, url: pgtest.Shared(t).NewDatabase(t), broker: kafkatest.Start(t), programs: t.TempDir()}
	if len(examples) > 0 {
		args := []string{"build", "-buildvcs=false", "-o", m.programs + "/"}
		for _, e := range examples {
			args = append(args, "../examples/"+e)
		}
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			t.Fatalf("build the examples: %v\n%s", err, out)
		}
	}
	m.environ = append(environment(t), "DATABASE_URL="+m.url, "BROKERS="+m.broker.Brokers[0])
	m.client = m.broker.Client(t)
	m.admin = kadm.NewClient(m.client)
	m.sql = connect(t, m.url)
	keyTable := must.Get(keys.Schema(keys.Options{}))(t)
	pgtest.Execute(t, m.sql, outbox.Schema, keyTable, sql)
	m.startConnector()
	return m
}

func (m *market) startConnector() {
	config := filepath.Join(m.t.TempDir(), "cdc-outbox.yaml")
	must.OK(m.t, os.WriteFile(config, fmt.Appendf(nil, `source:
  url: %s
  slot: e2e_%d
  publication: e2e_market
sink:
  kafka:
    brokers: [%s]
http:
  listen: ""
`, m.url, worlds.Add(1), m.broker.Brokers[0]), 0o600))
	startConnector(m.t, config).awaitLog(`"streaming"`)
}

// program runs an example, as a user would, and kills the process when the test
// ends.
func (m *market) program(name string, args ...string) *connector {
	m.t.Helper()
	m.t.Logf("$ %s %v", name, args)
	cmd := exec.Command(filepath.Join(m.programs, name), args...)
	cmd.Env = m.environ
	return launch(m.t, cmd)
}

// run runs an example to its end, and returns the exit code.
func (m *market) run(name string, args ...string) int {
	m.t.Helper()
	p := m.program(name, args...)
	code := p.wait()
	m.t.Logf("exit status %d\n%s", code, p.lastLines(10))
	return code
}

// number is a query's only value.
func (m *market) number(sql string) (n int) {
	m.t.Helper()
	must.OK(m.t, m.sql.QueryRow(pgtest.Context(m.t), sql).Scan(&n))
	return n
}

// await waits until the query says true.
func (m *market) await(sql string) {
	m.t.Helper()
	pgtest.Await(m.t, m.sql, sql)
}

// send sends records, each several times.
func (m *market) send(times int, records ...*kgo.Record) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	for range times {
		for _, r := range records {
			fresh := &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
			must.OK(m.t, m.client.ProduceSync(ctx, fresh).FirstErr())
		}
	}
}

// finished waits until the group has committed all of its topics.
func (m *market) finished(group string) {
	m.t.Helper()
	await.Until(m.t, "group "+group+" to finish", func() bool {
		ctx, cancel := context.WithTimeout(m.t.Context(), patience)
		defer cancel()
		lags, err := m.admin.Lag(ctx, group)
		if err != nil || lags.Error() != nil || len(lags[group].Lag) == 0 {
			return false
		}
		return lags[group].Lag.Total() == 0
	})
}

// events returns a topic's records, once there are n.
func (m *market) events(topic string, n int) []*kgo.Record {
	m.t.Helper()
	return m.broker.Consume(m.t, []string{topic}, kafkatest.Count(n))
}
