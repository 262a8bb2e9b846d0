package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

// mistake is what is wrong with a configuration that is rolled out.
type mistake struct {
	name    string
	set     []string // key=value on top of the good configuration
	prepare func(*rollout) (set []string)
	exit    int    // exit code; 0: it goes on, and is not ready
	says    string // in the last line of the log, or in /readyz
	login   bool   // brokers refuse the login: Apache Kafka says so, which ends it with 2, and kfake hangs up
}

// ofTheStream are those of a connector that reads a slot.
var ofTheStream = []mistake{
	{name: "table", set: []string{"source.tables=[public.outbx]"}, exit: 2, says: "did you mean public.outbox?"},
	{name: "publication", set: []string{"source.publication=cdc_outbx"}, exit: 2, says: "did you mean source.publication: cdc_outbox?"},
	{name: "publication of another table", prepare: func(r *rollout) []string {
		r.exec(`CREATE TABLE other (id int PRIMARY KEY)`, `CREATE PUBLICATION orders FOR TABLE other`)
		return []string{"source.publication=orders"}
	}, exit: 3, says: "is not in publication"},
	{name: "publication without inserts", prepare: func(r *rollout) []string {
		r.exec(`CREATE PUBLICATION deletions FOR TABLE outbox WITH (publish = 'delete')`)
		return []string{"source.publication=deletions"}
	}, exit: 3, says: "does not publish inserts"},
	{name: "slot of another plugin", prepare: func(r *rollout) []string {
		r.exec(`SELECT pg_create_logical_replication_slot('foreign_` + r.database() + `', 'test_decoding')`)
		return []string{"source.slot=foreign_" + r.database()}
	}, exit: 2, says: "test_decoding"},
	{name: "slot with two_phase", prepare: func(r *rollout) []string {
		r.exec(`SELECT pg_create_logical_replication_slot('prepared_` + r.database() + `', 'pgoutput', false, true)`)
		return []string{"source.slot=prepared_" + r.database()}
	}, exit: 2, says: "two_phase"},
	{name: "id column", set: []string{"event.id=nosuch"}, exit: 2, says: "nosuch"},
	{name: "key column", set: []string{"event.key=nosuch"}, exit: 2, says: "nosuch"},
	{name: "type column", set: []string{"event.type=nosuch"}, exit: 2, says: "nosuch"},
	{name: "payload column", set: []string{"event.payload=nosuch"}, exit: 2, says: "nosuch"},
	{name: "timestamp column", set: []string{"event.timestamp=nosuch"}, exit: 2, says: "nosuch"},
	{name: "additional column", set: []string{"event.additional=[nosuch:header]"}, exit: 2, says: "nosuch"},
	{name: "route column", set: []string{"route.by=nosuch"}, exit: 2, says: "nosuch"},
	{name: "column of another type", set: []string{"event.timestamp=payload"}, exit: 2, says: "payload"},
	{name: "another checkpoint topic", set: []string{"checkpoint.topic=others"}, says: "saves its checkpoints elsewhere"},
	{name: "another checkpoint key", set: []string{"checkpoint.key=other"}, says: "saves its checkpoints elsewhere"},
	{name: "checkpoints in PostgreSQL", set: []string{"checkpoint.store=postgres"}, says: "saves its checkpoints elsewhere"},
	{name: "checkpoints in a file", prepare: func(r *rollout) []string {
		return []string{"checkpoint.store=file", "checkpoint.path=" + filepath.Join(r.t.TempDir(), "checkpoint")}
	}, says: "saves its checkpoints elsewhere"},
	{name: "a directory that is missing", set: []string{"checkpoint.store=file", "checkpoint.path=/nosuch/checkpoint"}, exit: 2, says: "/nosuch"},
	{name: "a checkpoint table of somebody else", prepare: func(r *rollout) []string {
		r.exec(`CREATE TABLE IF NOT EXISTS foreign_table (id int)`)
		return []string{"checkpoint.store=postgres", "checkpoint.table=foreign_table"}
	}, exit: 2, says: "foreign_table"},
	{name: "another database", prepare: func(r *rollout) []string {
		u := must.Get(url.Parse(r.url))(r.t)
		u.Path = "/postgres"
		return []string{"source.url=" + u.String()}
	}, exit: 2, says: "belongs to database"},
	{name: "role without REPLICATION", prepare: func(r *rollout) []string {
		return []string{"source.url=" + r.as("poor_"+r.database(), "LOGIN PASSWORD 'pw'")}
	}, exit: 2, says: "REPLICATION"},
	{name: "right to Kafka's checkpoints", set: []string{"sink.kafka.sasl.username=writer"}, exit: 2, says: "cdc-outbox.checkpoints"},
	{name: "right to write Kafka's checkpoints", set: []string{"sink.kafka.sasl.username=reader"}, says: `write to topic \"cdc-outbox.checkpoints.`},
	{name: "right to the topics of events", set: []string{"sink.kafka.sasl.username=keeper"}, says: `topic \"` + rolloutTopic + `\"`},
	mistypedSlot,
	{name: "slot and publication", prepare: func(r *rollout) []string {
		return []string{"source.slot=mistyped_" + r.database(), "source.publication=mistyped"}
	}, exit: 2, says: "did you mean source.slot: rollout_"},
	{name: "slot, and no checkpoints", prepare: func(r *rollout) []string {
		return []string{"source.slot=mistyped_" + r.database(), "checkpoint.store=none"}
	}, exit: 2, says: "did you mean source.slot: rollout_"},
	{name: "no checkpoints", set: []string{"checkpoint.store=none"}, exit: 2, says: "saves checkpoints"},
	{name: "polling", set: []string{"source.mode=poll", "source.poll.after_publish=delete", "source.poll.order_by=[type]"}, exit: 2, says: "is read from slot"},
	{name: "delivery", set: []string{"sink.kafka.delivery=exactly_once", "sink.kafka.sasl.username=single"}, exit: 2, says: "transactional"},
}

var mistypedSlot = mistake{name: "slot", prepare: func(r *rollout) []string {
	return []string{"source.slot=mistyped_" + r.database()}
}, exit: 2, says: "did you mean source.slot: rollout_"}

// ofAny are those of any connector.
var ofAny = []mistake{
	{name: "password", prepare: func(r *rollout) []string {
		u := must.Get(url.Parse(r.url))(r.t)
		u.User = url.UserPassword(u.User.Username(), "wrong")
		return []string{"source.url=" + u.String()}
	}, exit: 2, says: "correct user and password"},
	{name: "unknown key", set: []string{"errors.on_bad_evnt=skip"}, exit: 2, says: "did you mean errors.on_bad_event?"},
	{name: "unknown value", set: []string{"errors.on_bad_event=ignore"}, exit: 2, says: "must be one of"},
	{name: "expression", set: []string{"route.regex=(?!a).*"}, exit: 2, says: "route.regex"},
	{name: "parameter of PostgreSQL", prepare: func(r *rollout) []string {
		return []string{"source.url=" + r.with("nosuch", "1")}
	}, exit: 2, says: "nosuch"},
	{name: "TLS of PostgreSQL", prepare: func(r *rollout) []string {
		return []string{"source.url=" + r.with("sslmode", "require")}
	}, exit: 2, says: "server refused TLS"},
	{name: "host of PostgreSQL", set: []string{"source.url=postgres://cdc@nosuch.invalid/app"}, says: "nosuch.invalid"},
	{name: "no login", set: []string{"sink.kafka.sasl.mechanism=", "sink.kafka.sasl.username=", "sink.kafka.sasl.password="}, says: "checkpoint topic"},
	{name: "unknown database", prepare: func(r *rollout) []string {
		u := must.Get(url.Parse(r.url))(r.t)
		u.Path = "/nosuch"
		return []string{"source.url=" + u.String()}
	}, exit: 2, says: "nosuch"},
	{name: "port of PostgreSQL", set: []string{"source.url=postgres://cdc@127.0.0.1:1/app"}, says: "connection refused"},
	{name: "address of Kafka", set: []string{"sink.kafka.brokers=[127.0.0.1:1]"}, says: "127.0.0.1:1"},
	{name: "mechanism of Kafka's login", set: []string{"sink.kafka.sasl.mechanism=SCRAM-SHA-512"}, says: "checkpoint topic", login: true},
	{name: "password of Kafka by PLAIN", set: []string{"sink.kafka.sasl.mechanism=PLAIN", "sink.kafka.sasl.password=wrong"}, says: "checkpoint topic", login: true},
	{name: "password of Kafka", set: []string{"sink.kafka.sasl.password=wrong"}, says: "checkpoint topic", login: true},
	{name: "user of Kafka", set: []string{"sink.kafka.sasl.username=nosuch"}, says: "checkpoint topic", login: true},
	{name: "TLS", set: []string{"sink.kafka.tls.enabled=true"}, says: "checkpoint topic"},
	{name: "missing CA", set: []string{"sink.kafka.tls.ca_file=/nosuch/ca.pem"}, exit: 2, says: "/nosuch/ca.pem"},
	{name: "topic", set: []string{"route.topic=nosuch"}, says: "topic does not exist: nosuch"},
	{name: "another cluster", prepare: func(r *rollout) []string {
		other := kafkatest.Start(r.t, kafkatest.Logins("cdc"))
		other.Allow(r.t, "cdc", kadm.NewACLs().Clusters(), kadm.OpAll)
		other.Allow(r.t, "cdc", kadm.NewACLs().Topics("cdc-outbox.checkpoints.").ResourcePatternType(kadm.ACLPatternPrefixed), kadm.OpAll)
		return []string{"sink.kafka.brokers=[" + other.Brokers[0] + "]"}
	}, says: "saves its checkpoints elsewhere"},
	{name: "right to the topic", set: []string{"route.topic=secret"}, says: `topic \"secret\"`},
	{name: "topic that brokers would not create", set: []string{"route.topic=nosuch", "sink.kafka.create_topics=true", "sink.kafka.replication_factor=7"}, says: `create topic \"nosuch\"`},
	{name: "dead-letter topic", set: []string{"errors.on_bad_event=dead_letter", "errors.dead_letter_topic=nosuch"}, says: "topic does not exist: nosuch"},
}

// Failure mode 130. A rolling update starts an instance whose configuration has a mistake
// beside the good one, and stops the good one once the other says that it is ready, as
// Kubernetes does. That one is never ready, so the good one goes on.
func TestE2EARolloutOfAMistake(t *testing.T) {
	routes := mistake{name: "pattern of topics", set: []string{"route.topic=outbox.evnt.${routedByValue}"}, says: "outbox.evnt."}
	for name, c := range map[string]struct {
		more      string // of the good configuration
		mechanism string // of its login
		mistakes  []mistake
	}{
		"at least once": {"", "PLAIN", append([]mistake{routes}, ofTheStream...)},
		"any":           {"", "SCRAM-SHA-256", ofAny},
		"exactly once": {"    delivery: exactly_once\n", "PLAIN", []mistake{
			{name: "payload column", set: []string{"event.payload=nosuch"}, exit: 2, says: "nosuch"},
			{name: "another checkpoint topic", set: []string{"checkpoint.topic=others"}, exit: 2, says: "there is no checkpoint"},
			{name: "another checkpoint key", set: []string{"checkpoint.key=other"}, exit: 2, says: "there is no checkpoint"},
			mistypedSlot,
			{name: "right to the transactional id", set: []string{"sink.kafka.sasl.username=single"}, exit: 2, says: "transactional"},
			routes,
		}},
		"poll": {"", "PLAIN", []mistake{
			{name: "table", set: []string{"source.tables=[public.outbx]"}, exit: 2, says: "did you mean public.outbox?"},
			{name: "payload column", set: []string{"event.payload=nosuch"}, exit: 2, says: "nosuch"},
			{name: "published column", set: []string{"source.poll.published=nosuch"}, exit: 2, says: "did you mean source.poll.published: published?"},
			{name: "published column, and rows are deleted", set: []string{"source.poll.published=publishd", "source.poll.after_publish=delete"}, exit: 2, says: "did you mean source.poll.published: published?"},
			{name: "published column of another type", set: []string{"source.poll.published=payload"}, exit: 2, says: "did you mean source.poll.published: published?"},
			{name: "column of the time of publishing", set: []string{"source.poll.published_at=publishd_at"}, exit: 2, says: "did you mean source.poll.published_at: published_at?"},
			{name: "both published columns", set: []string{"source.poll.published=nosuch", "source.poll.published_at=nosuch"}, exit: 2, says: "nosuch"},
			{name: "another published column", prepare: func(r *rollout) []string {
				r.exec(`ALTER TABLE outbox ADD archived boolean NOT NULL DEFAULT false`)
				return []string{"source.poll.published=archived"}
			}, exit: 2, says: "did you mean source.poll.published: published?"},
			{name: "order column", set: []string{"source.poll.order_by=[m]"}, exit: 2, says: "did you mean n?"},
			{name: "id column", set: []string{"event.id=nosuch"}, exit: 2, says: "nosuch"},
			{name: "key column", set: []string{"event.key=nosuch"}, exit: 2, says: "nosuch"},
			{name: "type column", set: []string{"event.type=nosuch"}, exit: 2, says: "nosuch"},
			{name: "timestamp column", set: []string{"event.timestamp=nosuch"}, exit: 2, says: "nosuch"},
			{name: "additional column", set: []string{"event.additional=[nosuch:header]"}, exit: 2, says: "nosuch"},
			{name: "route column", set: []string{"route.by=nosuch"}, exit: 2, says: "nosuch"},
			{name: "right to change rows", prepare: func(r *rollout) []string {
				u := r.as("reader_"+r.database(), "LOGIN PASSWORD 'pw'")
				r.exec(`GRANT SELECT ON outbox TO reader_` + r.database())
				return []string{"source.url=" + u}
			}, exit: 2, says: "GRANT"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t, c.more, c.mechanism, name == "poll")
			for _, m := range c.mistakes {
				t.Run(m.name, func(t *testing.T) { r.of(t, m) })
			}
			r.good()
		})
	}
}

// rollout is a database, a cluster and a connector that is replaced.
type rollout struct {
	t      *testing.T
	url    string
	client *kgo.Client // reads the topic
	config string
	old    *connector
	events int
}

const rolloutTopic = "outbox.event.order"

func newRollout(t *testing.T, more, mechanism string, polls bool) *rollout {
	broker := kafkatest.Start(t, kafkatest.Logins("cdc", "keeper", "reader", "writer", "single"))
	for _, topic := range []string{rolloutTopic, "secret"} {
		broker.CreateTopic(t, topic, 1, nil)
	}
	const checkpoints = "cdc-outbox.checkpoints." // what the topics begin with
	topics := func(names ...string) *kadm.ACLBuilder { return kadm.NewACLs().Topics(names...) }
	prefixed := func(b *kadm.ACLBuilder) *kadm.ACLBuilder { return b.ResourcePatternType(kadm.ACLPatternPrefixed) }
	broker.Allow(t, "cdc", topics(rolloutTopic, "nosuch"), kadm.OpAll)
	broker.Allow(t, "cdc", prefixed(topics(checkpoints, "others.")), kadm.OpAll)
	broker.Allow(t, "cdc", prefixed(kadm.NewACLs().TransactionalIDs("cdc-outbox/")), kadm.OpAll)
	broker.Allow(t, "cdc", kadm.NewACLs().Clusters(), kadm.OpAll)
	broker.Allow(t, "keeper", prefixed(topics(checkpoints)), kadm.OpAll)
	broker.Allow(t, "reader", topics(rolloutTopic), kadm.OpAll)
	broker.Allow(t, "reader", prefixed(topics(checkpoints)), kadm.OpRead, kadm.OpDescribeConfigs)
	broker.Allow(t, "writer", topics(rolloutTopic), kadm.OpAll)
	broker.Allow(t, "single", topics(rolloutTopic), kadm.OpAll)
	broker.Allow(t, "single", prefixed(topics(checkpoints)), kadm.OpAll)
	broker.Allow(t, "single", kadm.NewACLs().Clusters(), kadm.OpAll)
	r := &rollout{t: t, url: pgtest.Shared(t).NewDatabase(t)}
	table := `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload jsonb)`
	mode := ""
	if polls {
		table = strings.TrimSuffix(table, ")") + `, n bigserial, published boolean NOT NULL DEFAULT false, published_at timestamptz)`
		mode = "  mode: poll\n"
	}
	r.exec(table)
	if polls { // as of a row that was published before the table had published_at
		r.exec(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload, published) VALUES ('order', 'o-1', 'Placed', '0', true)`)
	}
	r.config = filepath.Join(t.TempDir(), "cdc-outbox.yaml")
	must.OK(t, os.WriteFile(r.config, []byte(fmt.Sprintf(`source:
  url: %s
  slot: %s
%ssink:
  kafka:
    brokers: [%s]
    sasl: {mechanism: %s, username: cdc, password: %s}
%s`, r.url, "rollout_"+r.database(), mode, broker.Brokers[0], mechanism, kafkatest.Password, more)), 0o600))
	r.client = broker.Client(t, kgo.ConsumeTopics(rolloutTopic))
	old := r.start(t)
	await.Until(t, "the first instance to be ready", func() bool { ready, _ := old.ready(); old.running(); return ready })
	r.old = old.connector
	r.event(t)
	return r
}

func (r *rollout) database() string {
	return strings.TrimPrefix(must.Get(url.Parse(r.url))(r.t).Path, "/")
}

// with is the URL with a parameter more.
func (r *rollout) with(parameter, value string) string {
	u := must.Get(url.Parse(r.url))(r.t)
	q := u.Query()
	q.Set(parameter, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func (r *rollout) exec(sql ...string) { pgtest.Exec(r.t, r.url, sql...) }

// as makes a role, and returns the URL with it.
func (r *rollout) as(role, options string) string {
	r.exec(`CREATE ROLE ` + role + ` ` + options)
	r.t.Cleanup(func() { pgtest.Exec(r.t, r.url, `DROP OWNED BY `+role, `DROP ROLE `+role) })
	u := must.Get(url.Parse(r.url))(r.t)
	u.User = url.UserPassword(role, "pw")
	return u.String()
}

// start starts an instance with a port of its own.
func (r *rollout) start(t *testing.T, set ...string) served {
	address := must.Get(freeport.TakeAddress())(t)
	args := []string{"run", "-c", r.config, "--set", "http.listen=" + address}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = environment(t)
	return served{launch(t, cmd), address}
}

// event commits one event, and waits until the topic has it, and no other.
func (r *rollout) event(t *testing.T) {
	t.Helper()
	r.events++
	r.exec(fmt.Sprintf(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', 'o-1', 'Placed', '%d')`, r.events))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for want := fmt.Sprint(r.events); ; {
		found := false
		r.client.PollFetches(ctx).EachRecord(func(rec *kgo.Record) {
			if found = string(rec.Value) == want; !found {
				t.Errorf("event %s was published before", rec.Value)
			}
		})
		if found {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("event %s does not arrive", want)
		}
	}
}

// looks is how often an instance that is not ready is looked at once more.
const looks = 20

// of rolls the mistake out, and wants the old instance to go on.
func (r *rollout) of(t *testing.T, m mistake) {
	set := m.set
	if m.prepare != nil {
		set = append(set, m.prepare(r)...)
	}
	if m.login && kafkatest.Real() {
		m.exit = 2
	}
	c := r.start(t, set...)
	defer c.kill()
	said, seen := "", 0
	await.Until(t, "a verdict about the new instance, which said "+m.says, func() bool {
		select {
		case <-c.process.Exited():
			return true
		default:
		}
		ready, text := c.ready()
		if ready {
			t.Fatalf("trusted: the new instance is ready, and the good one would be stopped now")
		}
		if m.exit == 0 && strings.Contains(text, m.says) {
			said = text
			seen++
		}
		return seen == looks
	})
	if m.exit != 0 {
		if code := c.wait(); code != m.exit {
			t.Errorf("exit code %d, want %d", code, m.exit)
		}
		said = c.lastLines(2)
	}
	if !strings.Contains(said, m.says) {
		t.Errorf("it says %s, want %q", said, m.says)
	}
	r.old.running()
	r.event(t)
}

// good rolls out a configuration without a mistake.
func (r *rollout) good() {
	next := r.start(r.t, "log.level=debug", "route.topic=outbox.event.$1")
	await.Until(r.t, "the new instance to be ready", func() bool { next.running(); ready, _ := next.ready(); return ready })
	r.old.stop()
	r.old = next.connector
	r.event(r.t)
	next.stop()
}

// ready is what /readyz says; an instance that does not listen yet is not ready.
func (s served) ready() (ok bool, text string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	answer, err := client.Get("http://" + s.address + "/readyz")
	if err != nil {
		return false, ""
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return err == nil && answer.StatusCode == http.StatusOK, string(body)
}
