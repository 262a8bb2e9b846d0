package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// moving is an outbox that Debezium publishes, with a configuration imported from Debezium's.
type moving struct {
	t      testing.TB
	server *pgtest.Server
	url    string
	broker *kafkatest.Broker
	dir    string
	rest   string // Connect's address
	config string // imported

	connector map[string]string
	plugins   string // more of the worker's plugin.path; may be empty
	worker    *child.Process
	log       *os.File
}

// debeziumSlot and debeziumPublication are Debezium's.
const debeziumSlot, debeziumPublication = "debezium", "dbz_publication"

// startMoving starts servers, and Debezium with the options. Where Java or Maven are missing,
// the test is skipped.
func startMoving(t testing.TB, more map[string]string) *moving {
	t.Helper()
	m := prepareMoving(t, more)
	m.startDebezium()
	return m
}

// prepareMoving is startMoving without the start of Debezium.
func prepareMoving(t testing.TB, more map[string]string) *moving {
	t.Helper()
	script := must.Get(child.Script("debezium.sh"))(t)
	if out, err := exec.Command(script, "fetch").CombinedOutput(); err != nil {
		t.Skipf("no Debezium to be had: %v: %s", err, out)
	}
	m := &moving{t: t, dir: t.TempDir(), server: pgtest.Start(t, pgtest.Own())}
	m.broker = kafkatest.Start(t, kafkatest.Apache())
	m.url = m.server.NewDatabase(t)
	pgtest.Exec(t, m.url,
		`CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL,
			payload jsonb, tenant text, n bigint GENERATED ALWAYS AS IDENTITY)`,
		`CREATE TABLE outbox_more (LIKE outbox INCLUDING ALL)`,
		`CREATE PUBLICATION `+debeziumPublication+` FOR TABLE outbox, outbox_more`,
		`SELECT pg_create_logical_replication_slot('`+debeziumSlot+`', 'pgoutput')`,
	)
	c := must.Get(pgx.ParseConfig(m.url))(t)
	m.connector = map[string]string{
		"name": "orders", "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
		"plugin.name": "pgoutput", "slot.name": debeziumSlot, "publication.name": debeziumPublication, "publication.autocreate.mode": "disabled",
		"database.hostname": c.Host, "database.port": fmt.Sprint(c.Port), "database.user": c.User, "database.password": c.Password, "database.dbname": c.Database,
		"topic.prefix": "app", "table.include.list": "public.outbox", "snapshot.mode": "no_data", "tombstones.on.delete": "false",
		"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.table.fields.additional.placement": "type:header:eventType,tenant:header",
		"poll.interval.ms": "50", "errors.max.retries": "-1", "retriable.restart.connector.wait.ms": "2000",
	}
	maps.Copy(m.connector, more)
	for _, aggregate := range aggregates {
		m.broker.CreateTopic(t, topicOf(aggregate), partitions, nil)
	}
	addr := must.Get(freeport.TakeAddress())(t)
	m.rest = "http://" + addr
	m.write("worker.properties", map[string]string{
		"bootstrap.servers": m.broker.Brokers[0], "listeners": m.rest, "offset.storage.file.filename": filepath.Join(m.dir, "offsets"),
		"offset.flush.interval.ms": "3000", "plugin.discovery": "service_load",
		"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
	})
	m.write("connector.properties", m.connector)
	m.importConfig()
	return m
}

func (m *moving) path(name string) string { return filepath.Join(m.dir, name) }

func (m *moving) write(name string, properties map[string]string) {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&b, "%s=%s\n", key, strings.ReplaceAll(properties[key], `\`, `\\`))
	}
	must.OK(m.t, os.WriteFile(m.path(name), []byte(b.String()), 0o600))
}

// importConfig has the program translate Debezium's configuration.
func (m *moving) importConfig() {
	m.t.Helper()
	m.config = m.path("cdc-outbox.yaml")
	m.run(0, "import", "debezium", m.path("connector.properties"), "--worker", m.path("worker.properties"), "--brokers", m.broker.Brokers[0], "--no-check", "-o", m.config)
	m.edit(func(text string) string { return text + "\nhttp:\n  listen: \"\"\n" })
}

func (m *moving) edit(change func(string) string) {
	m.t.Helper()
	text := string(must.Get(os.ReadFile(m.config))(m.t))
	must.OK(m.t, os.WriteFile(m.config, []byte(change(text)), 0o600))
}

// environ has the password that the import leaves out.
func (m *moving) environ() []string {
	return append(environment(m.t), "CDC_PASSWORD="+m.connector["database.password"])
}

// verbTime is the time for a verb, which ends by itself.
const verbTime = 3 * time.Minute

// run runs a verb to the end.
func (m *moving) run(code int, args ...string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), verbTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = m.environ()
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		m.t.Fatalf("%s: exit code %d, want %d:\n%s", strings.Join(args, " "), got, code, out)
	}
	return string(out)
}

// start starts a verb.
func (m *moving) start(args ...string) (c *connector, stdout string) {
	m.t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = m.environ()
	stdout = filepath.Join(m.t.TempDir(), "stdout")
	file := must.Get(os.Create(stdout))(m.t)
	defer file.Close()
	cmd.Stdout = file
	return launch(m.t, cmd), stdout
}

func (m *moving) startDebezium() {
	m.t.Helper()
	script := must.Get(child.Script("debezium.sh"))(m.t)
	if m.log == nil {
		m.log = must.Get(os.Create(m.path("connect.log")))(m.t)
		m.t.Cleanup(func() {
			m.killDebezium()
			m.log.Close()
			if m.t.Failed() {
				text, _ := os.ReadFile(m.path("connect.log"))
				m.t.Logf("Connect:\n%s", child.LastLines(string(text)))
			}
		})
	}
	cmd := exec.Command(script, "run", m.path("worker.properties"), m.path("connector.properties"))
	cmd.Env = append(os.Environ(), "CONNECT_JVM=-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1", "CONNECT_PLUGINS="+m.plugins)
	cmd.Stdout, cmd.Stderr = m.log, m.log
	m.worker = must.Get(child.Start(cmd))(m.t)
}

// killDebezium ends the worker by kill -9.
func (m *moving) killDebezium() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = m.worker.Stop(ctx, syscall.SIGKILL)
}

// awaitDebezium returns once Debezium reads its slot.
func (m *moving) awaitDebezium() {
	m.t.Helper()
	await.Until(m.t, "Debezium to read its slot", func() bool {
		select {
		case <-m.worker.Exited():
			text, _ := os.ReadFile(m.path("connect.log"))
			m.t.Fatalf("Connect has ended: %s", child.LastLines(string(text)))
		default:
		}
		return m.ask(`SELECT active::int FROM pg_replication_slots WHERE slot_name = '`+debeziumSlot+`'`) == 1
	})
}

// ask returns a number; -1 if the server does not tell one.
func (m *moving) ask(query string) int64 {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, m.url)
	if err != nil {
		return -1
	}
	defer closeConn(conn)
	n := int64(-1)
	if conn.QueryRow(ctx, query).Scan(&n) != nil {
		return -1
	}
	return n
}

// traffic writes events until stopped. Some transactions delete their rows at once, as
// Debezium's documentation proposes, and some are rolled back.
type traffic struct {
	mu        sync.Mutex
	committed []written // of a key, in the order of commits
	stop      func()
}

// written is an event. A key is of one writer only.
type written struct{ id, topic, key string }

// count is the number of committed events.
func (w *traffic) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.committed)
}

func (m *moving) startWriters(n int, pause time.Duration, seed uint64) *traffic {
	w := &traffic{}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { w.run(ctx, m, i, rand.New(rand.NewPCG(seed, uint64(i))), pause) })
	}
	w.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	m.t.Cleanup(w.stop)
	return w
}

func (w *traffic) run(ctx context.Context, m *moving, number int, r *rand.Rand, pause time.Duration) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			closeConn(conn)
		}
	}()
	for ctx.Err() == nil {
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = pgx.Connect(ctx, m.url); err != nil {
				conn = nil
				_ = backoff.Sleep(ctx, 200*time.Millisecond) // the server is down
				continue
			}
		}
		events, err := transact(context.WithoutCancel(ctx), conn, number, r)
		w.mu.Lock()
		if err == nil {
			w.committed = append(w.committed, events...)
		}
		w.mu.Unlock()
		_ = backoff.Sleep(ctx, pause)
	}
}

// transact writes a transaction, and returns the committed events.
func transact(ctx context.Context, conn *pgx.Conn, number int, r *rand.Rand) (events []written, err error) {
	var ids []string
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	for range 1 + r.IntN(5) {
		var id string
		var tenant any
		aggregate, key := aggregates[r.IntN(len(aggregates))], fmt.Sprintf("%d-%d", number, r.IntN(30))
		if r.IntN(3) > 0 {
			tenant = fmt.Sprintf("tenant-%d", r.IntN(9))
		}
		payload := fmt.Sprintf(`{"total": %d.%02d, "text": "%s", "nested": {"list": [1, 2, null], "ok": true}}`, r.IntN(1000), r.IntN(100), strings.Repeat("ä", r.IntN(200)))
		if err := tx.QueryRow(ctx, `INSERT INTO outbox (aggregatetype, aggregateid, type, payload, tenant) VALUES ($1, $2, 'Placed', $3, $4) RETURNING id::text`,
			aggregate, key, payload, tenant).Scan(&id); err != nil {
			return nil, err
		}
		ids, events = append(ids, id), append(events, written{id, topicOf(aggregate), key})
	}
	if r.IntN(2) == 0 {
		if _, err := tx.Exec(ctx, `DELETE FROM outbox WHERE id = ANY ($1::uuid[])`, ids); err != nil {
			return nil, err
		}
	}
	if r.IntN(10) == 0 {
		return nil, nil // rolled back
	}
	return events, tx.Commit(ctx)
}

// records are all records of the topics.
func (m *moving) records() (records []*kgo.Record) {
	m.t.Helper()
	var topics []string
	for _, aggregate := range aggregates {
		topics = append(topics, topicOf(aggregate))
	}
	client := m.broker.Client(m.t)
	ends := must.Get(kadm.NewClient(client).ListEndOffsets(m.t.Context(), topics...))(m.t)
	var total int64
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	return m.broker.Consume(m.t, topics, func(all []*kgo.Record) bool { return int64(len(all)) >= total })
}
