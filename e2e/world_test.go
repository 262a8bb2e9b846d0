package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/proxy"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

const (
	partitions = 3
	deadLetter = "outbox.dead-letter"
	// sampling is how often the slot and the topics are looked at.
	sampling = 10 * time.Millisecond
)

// aggregates are the values of aggregatetype; each has a topic.
var aggregates = []string{"order", "payment", "customer"}

func topicOf(aggregate string) string { return "outbox.event." + aggregate }

// world is a connector's environment: a database with an outbox, a broker with
// the topics, a proxy before each of the two, and observers.
type world struct {
	t        testing.TB
	url      string // of the database, past the proxy
	host     string // and port of the server, the first of a pair
	slot     string
	broker   *kafkatest.Broker
	postgres *proxy.Proxy   // between the connector and the two servers
	kafka    *proxy.Proxy   // and the broker; with several, the first of brokers
	brokers  []*proxy.Proxy // without exactlyOnce: a proxy before each broker
	config   string         // path of the configuration file
	admin    *kadm.Client
	sql      *pgx.Conn

	kept    store.Options // where the checkpoint is, if not in Kafka
	ways    ways
	polled  bool
	ledger  *checker.Ledger
	reader  *checker.Reader
	all     *checker.Reader // reads uncommitted records, too; only with exactlyOnce
	endTxn  *endTxns        // only with exactlyOnce: all ways to brokers
	cluster *kafkatest.Cluster
	watcher *checker.Watcher
	settle  func() // ends reader and watcher
}

// options are a world's differences from the usual.
type options struct {
	server      *pgtest.Server // nil: the shared one
	pair        *pgtest.Pair   // in place of server: the URL leads to the primary of the two
	ways        ways           // of writing events; 0: to the table
	polled      string         // DDL of the polled table; "" for another mode
	kafka       string         // a line more under sink.kafka
	config      string         // sections more of the configuration file
	topicConfig map[string]string
	strict      string // the only aggregate whose topic has topicConfig; "" for all
	direct      bool   // no proxies
	unread      bool   // nobody reads or watches: too much arrives
	// exactlyOnce: delivery exactly_once, into Apache Kafka, and only committed
	// records are read.
	exactlyOnce bool
	brokers     int // number of Apache Kafka's brokers, if several
	broker      []kafkatest.Option
	sampling    time.Duration // between two looks at slot and topics; 0: sampling
}

// refusing has topics refuse events with payloads over the limit, to become dead
// letters.
func (o options) refusing(limit int) options {
	o.topicConfig = map[string]string{"max.message.bytes": strconv.Itoa(limit)}
	o.kafka = "compression: none\n    " + o.kafka // or they would fit
	o.config = "errors:\n  on_bad_event: dead_letter\n" + o.config
	return o
}

// worlds numbers the slots, shared by all databases of a server.
var worlds atomic.Int64

func newWorld(t testing.TB, o options) *world {
	t.Helper()
	switch {
	case o.pair != nil:
		o.server = o.pair.Primary
	case o.server == nil:
		o.server = pgtest.Shared(t)
	}
	w := &world{
		t:      t,
		url:    o.server.NewDatabase(t),
		slot:   fmt.Sprintf("e2e_%d", worlds.Add(1)),
		ways:   max(o.ways, toTable),
		polled: o.polled != "",
		ledger: &checker.Ledger{},
	}
	w.host = hostOf(t, w.url)
	if o.pair != nil {
		w.url = strings.Replace(w.url, w.host, w.host+","+hostOf(t, o.pair.Standby.URL("postgres")), 1) + "?target_session_attrs=read-write"
	}
	w.startBroker(o)
	w.postgres = listen(t, "127.0.0.1:0", w.address())
	w.writeConfig(o)
	w.sql = connect(t, w.url)
	outbox := `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text, note text)`
	if w.polled {
		outbox = o.polled
	}
	w.exec(outbox,
		`CREATE TABLE stock (id int PRIMARY KEY, n int, filler text)`,
		`INSERT INTO stock SELECT n, 0, '' FROM generate_series(1, 100) n`,
	)
	w.setUpMessages()
	if !o.unread {
		w.watch(o)
	}
	return w
}

// startBroker starts a broker behind the proxy.
func (w *world) startBroker(o options) {
	w.t.Helper()
	port := must.Get(freeport.Take())(w.t)
	front := fmt.Sprintf("127.0.0.1:%d", port)
	opts := o.broker
	if !o.direct {
		opts = append(opts, kafkatest.Advertised(front))
	}
	if o.exactlyOnce {
		opts = append(opts, kafkatest.Apache())
	}
	switch {
	case o.brokers > 1:
		fronts := []string{front}
		for range o.brokers - 1 {
			fronts = append(fronts, fmt.Sprintf("127.0.0.1:%d", must.Get(freeport.Take())(w.t)))
		}
		w.cluster = kafkatest.StartCluster(w.t, fronts)
		w.broker = w.cluster.Broker
		if !o.exactlyOnce {
			for n, front := range fronts {
				w.brokers = append(w.brokers, listen(w.t, front, w.cluster.Fronts[n]))
			}
			w.kafka = w.brokers[0]
			break
		}
		w.endTxn = watchEndTxns(w.t)
		for n, front := range fronts {
			w.endTxn.listen(front, w.cluster.Fronts[n])
		}
	case o.exactlyOnce:
		w.broker = kafkatest.Start(w.t, opts...)
		w.kafka = listen(w.t, "127.0.0.1:0", w.broker.Brokers[0])
		w.endTxn = watchEndTxns(w.t)
		w.endTxn.listen(front, w.kafka.Addr())
	default:
		w.broker = kafkatest.Start(w.t, opts...)
		w.kafka = listen(w.t, front, w.broker.Brokers[0])
		w.brokers = []*proxy.Proxy{w.kafka}
	}
	for _, aggregate := range aggregates {
		settings := o.topicConfig
		if o.strict != "" && o.strict != aggregate {
			settings = nil
		}
		w.broker.CreateTopic(w.t, topicOf(aggregate), partitions, settings)
	}
	w.broker.CreateTopic(w.t, deadLetter, 1, nil)
	w.admin = kadm.NewClient(w.broker.Client(w.t, kgo.MetadataMinAge(10*time.Millisecond)))
}

// delayEnv names what each proxy holds bytes of either direction back for: a network.
const delayEnv = "CDC_OUTBOX_TEST_DELAY"

func listen(t testing.TB, address, target string) *proxy.Proxy {
	t.Helper()
	p := must.Get(proxy.Listen(address, target))(t)
	if text := os.Getenv(delayEnv); text != "" {
		far := proxy.Fault{Delay: must.Get(time.ParseDuration(text))(t)}
		p.Set(proxy.Up, far)
		p.Set(proxy.Down, far)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// transactionalID is the connector's.
func (w *world) transactionalID() string {
	database, _, _ := strings.Cut(w.url[strings.LastIndex(w.url, "/")+1:], "?")
	return "cdc-outbox/" + database + "/" + w.slot
}

// address is the PostgreSQL server's.
func (w *world) address() string { return w.host }

// proxied is the URL of the database through the proxy.
func (w *world) proxied() string { return strings.Replace(w.url, w.address(), w.postgres.Addr(), 1) }

func (w *world) writeConfig(o options) {
	w.t.Helper()
	database, broker := w.url, w.broker.Brokers[0]
	switch {
	case o.exactlyOnce:
		o.kafka = "delivery: exactly_once\n    " + o.kafka
		database, broker = w.proxied(), w.endTxn.addresses()
	case !o.direct:
		database, broker = w.proxied(), w.kafka.Addr()
	}
	text := fmt.Sprintf(`source:
  url: %s
  slot: %s
  publication: %[2]s
%s
sink:
  kafka:
    brokers: [%s]
    %s
http:
  listen: ""
%s`, database, w.slot, w.sourceConfig(), broker, o.kafka, o.config)
	w.config = filepath.Join(w.t.TempDir(), "cdc-outbox.yaml")
	must.OK(w.t, os.WriteFile(w.config, []byte(text), 0o600))
}

// connect connects to a database until the test ends.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn := must.Get(pgx.Connect(ctx, url))(t)
	t.Cleanup(func() { closeConn(conn) })
	return conn
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing is pending
}

// watch starts the readers of the topics and the watcher of the slot.
func (w *world) watch(o options) {
	topics := w.topics()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	read := func(level kgo.IsolationLevel) *checker.Reader {
		r := checker.NewReader(w.broker.Client(w.t, kgo.ConsumeTopics(topics...), kgo.FetchMaxWait(100*time.Millisecond),
			kgo.FetchIsolationLevel(level), kgo.KeepControlRecords()))
		running.Go(func() { r.Run(ctx) })
		return r
	}
	if o.exactlyOnce {
		w.reader, w.all = read(kgo.ReadCommitted()), read(kgo.ReadUncommitted())
	} else {
		w.reader = read(kgo.ReadUncommitted())
	}
	if !w.polled { // or there is no slot to look at
		w.watcher = &checker.Watcher{URL: w.url, Slot: w.slot, Kafka: w.admin, Topics: topics, Interval: cmp.Or(o.sampling, sampling)}
		running.Go(func() { w.watcher.Run(ctx) })
	}
	w.settle = func() {
		cancel()
		running.Wait()
	}
	w.t.Cleanup(w.settle)
}

func (w *world) topics() []string {
	topics := []string{deadLetter}
	for _, aggregate := range aggregates {
		topics = append(topics, topicOf(aggregate))
	}
	return topics
}

// ends are the topics' present ends.
func (w *world) ends() map[string][]int64 {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ends, err := checker.Ends(ctx, w.admin, w.topics()...)
	if err != nil {
		w.t.Fatalf("ends of the topics: %v", err)
	}
	return ends
}

func (w *world) exec(sql ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, stmt := range sql {
		if _, err := w.sql.Exec(ctx, stmt); err != nil {
			w.t.Fatalf("%.100s: %v", stmt, err)
		}
	}
}

// slotState is the slot's row of pg_replication_slots.
type slotState struct {
	pid       int // of the walsender; 0 while nobody reads the slot
	confirmed pg.LSN
	lag       int64 // bytes of log behind the end
}

// look reads the slot's state; ok is false while there is no slot or no server.
func (w *world) look() (s slotState, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if w.sql.IsClosed() {
		conn, err := pgx.Connect(ctx, w.url)
		if err != nil {
			return s, false
		}
		w.t.Cleanup(func() { closeConn(conn) })
		w.sql = conn
	}
	err := w.sql.QueryRow(ctx, `SELECT coalesce(active_pid, 0), confirmed_flush_lsn, (pg_current_wal_insert_lsn() - confirmed_flush_lsn)::bigint
		FROM pg_replication_slots WHERE slot_name = $1 AND confirmed_flush_lsn IS NOT NULL`, w.slot).Scan(&s.pid, &s.confirmed, &s.lag)
	return s, err == nil
}

// start runs the connector and returns once the log says that it streams. (The
// slot is active for a moment at its creation, too.)
func (w *world) start() *connector {
	w.t.Helper()
	c := startConnector(w.t, w.config)
	c.awaitLog(w.started())
	return c
}

// awaitReader returns the pid of the walsender, once another than the old.
func (w *world) awaitReader(c *connector, old int) (pid int) {
	w.t.Helper()
	await.Until(w.t, "reader of the slot", func() bool {
		c.running()
		s, _ := w.look()
		pid = s.pid
		return pid != 0 && pid != old
	})
	return pid
}
