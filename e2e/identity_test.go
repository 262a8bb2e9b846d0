package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/checker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/cloud"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

const postgresCheckpoint = "checkpoint:\n  store: postgres\n"

// TestE2ETokensOfSeconds has credentials and tokens of seconds, and a rotated password, for
// stream, checkpoint, polling and Kafka, under load, while connections are cut and the sources
// fail in all ways. Beyond the tokens' end each connector waits, says for what, and goes on
// (failure modes 218 and 219). With tokensEnv, tokens live for a minute, and the rounds go on.
func TestE2ETokensOfSeconds(t *testing.T) {
	d := newTokens(t)
	began := time.Now()
	for round := 0; round == 0 || time.Since(began) < d.length; round++ {
		for _, f := range d.failures() {
			if !testing.Short() || f.unready != nil {
				d.run(f)
			}
		}
	}
	d.finish()
}

// tokens are connectors with logins that end, and the sources of these.
type tokens struct {
	t       *testing.T
	clouds  *cloud.Cloud
	life    time.Duration // of credentials and tokens
	length  time.Duration // of all rounds; 0: a single round
	pace    time.Duration // of each writer
	members []*tokenUser
}

// tokenUser is one of the connectors.
type tokenUser struct {
	*world
	served
	name string
	load *load
	// front admits by tokens; nil: the server itself admits by password.
	front *cloud.Front
	// postgres and kafka name the sources in the reasons of readiness; "": tokens are not for that side.
	postgres, kafka string
}

func newTokens(t *testing.T) *tokens {
	t.Setenv("XDG_CACHE_HOME", must.Get(os.UserCacheDir())(t)) // brokers begin from there, and the sources have a home of their own
	d := &tokens{t: t, clouds: cloud.New(t), life: 8 * time.Second, pace: 100 * time.Millisecond}
	if text := os.Getenv(tokensEnv); text != "" {
		d.length, d.life, d.pace = must.Get(time.ParseDuration(text))(t), time.Minute, 3*time.Second
	}
	d.clouds.WebIdentity(t)
	d.clouds.Instance(t)
	d.clouds.WorkloadIdentity(t)
	d.clouds.ServiceAccount(t)
	d.now(0)
	apache := []kafkatest.Option{kafkatest.Apache(), kafkatest.Logins(cloud.Subject),
		kafkatest.Setting("connections.max.reauth.ms", fmt.Sprint(d.life.Milliseconds()))}
	byGrant := fmt.Sprintf("sasl: {mechanism: OAUTHBEARER, token_url: %q, client_id: %s, client_secret: %q}", d.clouds.TokenURL(), cloud.Subject, "${file:"+d.clouds.TokenFile()+"}")
	d.add("IRSA, and OAuth", "aws_iam", "ask AWS STS", "ask for an OAuth token", options{config: postgresCheckpoint, broker: apache, kafka: byGrant})
	d.add("Entra, exactly once", "azure_entra", "ask Microsoft Entra", "ask Microsoft Entra", options{exactlyOnce: true, broker: apache, kafka: "sasl: {mechanism: OAUTHBEARER, identity: azure}"})
	d.add("Google", "google_iam", "metadata server", "", options{})
	d.add("IMDS, polled", "aws_iam", "metadata service (IMDS)", "", options{polled: polledSequence})
	d.add("password", "", "", "", options{config: postgresCheckpoint})
	return d
}

// now sets the sources' clock, later than the others' by the difference.
func (d *tokens) now(difference time.Duration) {
	d.clouds.Live(d.life, func() time.Time { return time.Now().Add(difference) })
}

const (
	rotatedRole = "rotated"
	oldPassword = "old"
)

// add starts a connector with the login of source.auth, or else with a password in a file.
func (d *tokens) add(name, auth, postgres, kafka string, o options) {
	d.t.Helper()
	server := pgtest.Shared(d.t)
	if auth == "" { // before the database: what the role owns goes first
		server.Exec(d.t, `CREATE ROLE `+rotatedRole+` SUPERUSER LOGIN PASSWORD '`+oldPassword+`'`)
		d.t.Cleanup(func() { server.Exec(d.t, `DROP ROLE `+rotatedRole) })
	}
	o.sampling = d.life / 20
	m := &tokenUser{world: newWorld(d.t, o), name: name, postgres: postgres, kafka: kafka}
	if m.polled {
		m.neverGivesUp()
	}
	if kafka != "" {
		for _, all := range []*kadm.ACLBuilder{
			kadm.NewACLs().Topics("outbox.", "cdc-outbox.").ResourcePatternType(kadm.ACLPatternPrefixed),
			kadm.NewACLs().TransactionalIDs("cdc-outbox/").ResourcePatternType(kadm.ACLPatternPrefixed),
		} {
			m.broker.Allow(d.t, cloud.Subject, all, kadm.OpAll)
		}
	}
	var login string
	if auth == "" {
		u := must.Get(url.Parse(m.proxied()))(d.t)
		u.User = url.User(rotatedRole)
		login = u.String() + "\n  password: ${file:" + d.passwordFile() + "}"
		must.OK(d.t, os.WriteFile(d.passwordFile(), []byte(oldPassword), 0o600))
	} else {
		m.front = d.clouds.Front(d.t, m.url)
		login = m.front.URL(d.t) + "\n  auth: " + auth
	}
	m.served.address = must.Get(freeport.TakeAddress())(d.t)
	text := string(must.Get(os.ReadFile(m.config))(d.t))
	text = strings.Replace(text, "url: "+m.proxied(), "url: "+login, 1)
	text = strings.Replace(text, `listen: ""`, "listen: "+m.served.address, 1)
	must.OK(d.t, os.WriteFile(m.config, []byte(text), 0o600))
	cmd := exec.Command(binary, "run", "-c", m.config)
	cmd.Env = append(environment(d.t), d.clouds.Environ()...)
	if strings.HasPrefix(name, "IMDS") {
		cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "AWS_WEB_IDENTITY_TOKEN_FILE=") })
	}
	m.connector = launch(d.t, cmd)
	m.awaitLog(m.started())
	m.load = m.write(seed(d.t), d.pace, 0)
	d.members = append(d.members, m)
}

func (d *tokens) passwordFile() string {
	return filepath.Join(filepath.Dir(d.clouds.TokenFile()), "password")
}

// sourceFailure is a failure of all sources.
type sourceFailure struct {
	name       string
	lives      float64 // how long, in lives of a token
	begin, end func()
	// unready is what readiness says of a side of a connector, beyond the tokens' end; nil: it may say nothing.
	unready func(m *tokenUser) (postgres, kafka string)
}

func (d *tokens) failures() []sourceFailure {
	answer := func(status int) func() { return func() { d.clouds.Answer(status) } }
	sources := func(m *tokenUser) (postgres, kafka string) { return m.postgres, m.kafka }
	refusals := func(m *tokenUser) (postgres, kafka string) {
		if m.kafka == "" {
			return "", ""
		}
		return "", "SASL_AUTHENTICATION_FAILED"
	}
	return []sourceFailure{
		{"none", 1, func() {}, func() {}, nil},
		{"too many requests", 1, answer(http.StatusTooManyRequests), answer(0), nil},
		{"an error", 1, answer(http.StatusInternalServerError), answer(0), nil},
		{"no answer", 1, func() { d.clouds.Hang(true) }, func() { d.clouds.Hang(false) }, nil},
		{"a slow clock", 1.5, func() { d.now(-3 * d.life / 2) }, func() { d.now(0) }, refusals},
		{"a short outage", 0.5, answer(http.StatusServiceUnavailable), answer(0), nil},
		{"a long outage", 2.5, answer(http.StatusServiceUnavailable), answer(0), sources},
	}
}

// run has the sources fail for a while, with connections cut and secrets rotated, and returns
// once all connectors have recovered.
func (d *tokens) run(f sourceFailure) {
	d.t.Helper()
	d.t.Logf("%s %s", time.Now().UTC().Format(time.TimeOnly), f.name)
	password := fmt.Sprint("pw", time.Now().UnixNano())
	pgtest.Shared(d.t).Exec(d.t, `ALTER ROLE `+rotatedRole+` PASSWORD '`+password+`'`)
	f.begin()
	for until := time.Now().Add(time.Duration(f.lives * float64(d.life))); time.Now().Before(until); {
		d.cut()
		d.pause(d.life / 3)
		must.OK(d.t, os.WriteFile(d.passwordFile(), []byte(password), 0o600)) // late
	}
	if f.unready != nil {
		for _, m := range d.members {
			postgres, kafka := f.unready(m)
			for side, text := range map[string]string{"postgres": postgres, "kafka": kafka} {
				d.until(m.name+" to be unready: "+text, func() bool {
					ok, body := m.ready()
					return text == "" || !ok && strings.Contains(body, text) && m.metric(`connected{side="`+side+`"}`) == 0
				})
			}
		}
	}
	f.end()
	d.clouds.Rotate(d.t)
	for _, m := range d.members {
		d.until(m.name+" to be ready", func() bool { ok, _ := m.ready(); return ok })
		m.load.await(5)
	}
	for _, m := range d.members { // those of later failures log in again within themselves
		m.world.kafka.Cut()
	}
}

// cut ends the connections to PostgreSQL.
func (d *tokens) cut() {
	for _, m := range d.members {
		if m.front != nil {
			m.front.Cut()
		} else {
			m.world.postgres.Cut()
		}
	}
}

func (d *tokens) pause(length time.Duration) {
	d.t.Helper()
	_ = backoff.Sleep(d.t.Context(), length)
	for _, m := range d.members {
		m.running()
	}
}

// until waits for what should be within a few lives of a token.
func (d *tokens) until(what string, met func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(patience + 2*d.life); !met(); d.pause(d.life / 40) {
		if time.Now().After(deadline) {
			d.t.Fatalf("waited for %s in vain", what)
		}
	}
}

func (d *tokens) finish() {
	for _, m := range d.members {
		reconnects := m.metric(`reconnects_total{side="postgres"}`)
		again := m.metric(`reconnects_total{side="kafka"}`)
		h, report := m.world.finish(m.load, m.connector)
		if !m.polled {
			m.wantDrained(h)
			m.wantNoneAgain(report, "though the connector had them")
		}
		d.t.Log(m.summary(h, report, reconnects, again))
	}
	d.t.Logf("%d credentials and tokens issued, %d questions", d.clouds.Issued(), d.clouds.Asked())
}

func (m *tokenUser) summary(h checker.History, report *checker.Report, postgres, kafka float64) string {
	text := fmt.Sprintf("%s: %d events, %d lost, %d again; connections anew: PostgreSQL %v, Kafka %v", m.name, len(h.Records), len(report.Problems), report.Repeated, postgres, kafka)
	if m.front != nil {
		logins, refused, used := m.front.Seen()
		text += fmt.Sprintf("; %d logins at PostgreSQL by %d credentials or tokens, %d refused", logins, used, refused)
	}
	return text + fmt.Sprintf("; %d lines in the log", strings.Count(string(must.Get(os.ReadFile(m.log))(m.world.t)), "\n"))
}
