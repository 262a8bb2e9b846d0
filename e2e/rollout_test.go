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
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// Failure mode 130. A rolling update starts an instance with a mistaken
// configuration beside the good instance, and stops the good one once the other
// is ready, as Kubernetes does. The bad instance is never ready, so the good
// instance goes on.
func TestE2EARolloutOfAMistake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more      string // of the good configuration
		mechanism string // of the login
		mistakes  []mistake
	}{
		"at least once": {"", "PLAIN", ofTheStream},
		"any":           {"", "SCRAM-SHA-256", ofAny},
		"exactly once":  {"    delivery: exactly_once\n", "PLAIN", ofExactlyOnce},
		"poll":          {"", "PLAIN", ofPolling},
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

// rollout is a database, a cluster and the connector to be replaced.
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
	kafka := []kafkatest.Option{kafkatest.Logins("cdc", "keeper", "reader", "writer", "single")}
	if more == "" { // no transactions
		kafka = append(kafka, kafkatest.Setting("transaction.max.timeout.ms", "5000"))
	}
	broker := kafkatest.Start(t, kafka...)
	for _, topic := range []string{rolloutTopic, "secret"} {
		broker.CreateTopic(t, topic, 1, nil)
	}
	const checkpoints = "cdc-outbox.checkpoints." // the beginning of the topics' names
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
	if polls { // as of a row published before the table had published_at
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
	old := r.start(t, r.config)
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

// as makes a role, and returns the role's URL.
func (r *rollout) as(role, options string) string {
	r.exec(`CREATE ROLE ` + role + ` ` + options)
	r.t.Cleanup(func() { pgtest.Exec(r.t, r.url, `DROP OWNED BY `+role, `DROP ROLE `+role) })
	u := must.Get(url.Parse(r.url))(r.t)
	u.User = url.UserPassword(role, "pw")
	return u.String()
}

// start starts an instance with a separate port.
func (r *rollout) start(t *testing.T, config string, set ...string) served {
	address := must.Get(freeport.TakeAddress())(t)
	args := []string{"run", "-c", config, "--set", "http.listen=" + address}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = environment(t)
	return served{launch(t, cmd), address}
}

// event commits an event, and waits until the topic has exactly one more.
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

// looks is the number of further looks at an instance not ready.
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
	config := r.config
	if m.url != "" {
		text := string(must.Get(os.ReadFile(config))(t))
		config = filepath.Join(t.TempDir(), "mistaken.yaml")
		must.OK(t, os.WriteFile(config, []byte(strings.Replace(text, r.url, m.url, 1)), 0o600))
	}
	c := r.start(t, config, set...)
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
	next := r.start(r.t, r.config, "log.level=debug", "route.topic=outbox.event.$1")
	await.Until(r.t, "the new instance to be ready", func() bool { next.running(); ready, _ := next.ready(); return ready })
	r.old.stop()
	r.old = next.connector
	r.event(r.t)
	next.stop()
}

// ready is the answer of /readyz; an instance not listening yet is not ready.
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
