package errordocs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// unknownHost can never exist (RFC 2606).
const unknownHost = "db.invalid"

// patience bounds one run of the program, on a slow and busy machine.
const patience = 2 * time.Minute

// environment is what one bad input is given to: a database with an outbox
// table, a Kafka cluster, and the program.
type environment struct {
	t       *testing.T
	program string
	dir     string
	sound   string // the URL of the database
	url     string // the URL that the program is given
	more    string // lines of the configuration file
	brokers []string
}

func newEnvironment(t *testing.T, program string, offline bool) *environment {
	e := &environment{t: t, program: program, dir: t.TempDir(), sound: "postgres://cdc:pw@localhost:5432/app", brokers: []string{"localhost:9092"}}
	if offline {
		e.url = e.sound
		return e
	}
	e.sound = pgtest.Shared(t).NewDatabase(t)
	e.url = e.sound
	e.createTable()
	e.useCluster()
	return e
}

func (e *environment) createTable() {
	e.exec(`CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload jsonb)`)
}

func (e *environment) exec(sql ...string) {
	e.t.Helper()
	pgtest.Exec(e.t, e.sound, sql...)
}

// insert adds a row the slot of the next run delivers: it creates slot and
// publication first.
func (e *environment) insert(aggregate, key, payload string) {
	e.t.Helper()
	e.exec(`CREATE PUBLICATION cdc_outbox FOR TABLE outbox`, `SELECT pg_create_logical_replication_slot('cdc_outbox', 'pgoutput')`,
		fmt.Sprintf(`INSERT INTO outbox VALUES ('0198b2c0-0000-7000-8000-000000000001', %s, %s, 'Placed', %s)`,
			pgsql.Literal(aggregate), pgsql.Literal(key), pgsql.Literal(payload)))
}

// useServer moves to a separate server with a setting.
func (e *environment) useServer(name, value string) {
	e.url = pgtest.Start(e.t, pgtest.Setting(name, value)).URL("postgres")
	e.sound = e.url
	e.createTable()
}

// useCluster moves to another Kafka cluster.
func (e *environment) useCluster(opts ...kfake.Opt) {
	c := must.Get(kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...))(e.t)
	e.t.Cleanup(c.Close)
	e.brokers = c.ListenAddrs()
}

// checkpointOnlyUser is a Kafka user who may keep checkpoints and look at the
// topic of events, but not write there.
func checkpointOnlyUser() kfake.Opt {
	allow := func(name string, pattern kmsg.ACLResourcePatternType, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: name, Pattern: pattern, Operation: op, Allow: true}
	}
	return kfake.User("PLAIN", "cdc", "pw",
		allow("cdc-outbox.checkpoints.", kmsg.ACLResourcePatternTypePrefixed, kmsg.ACLOperationAll),
		allow("outbox.event.order", kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLOperationDescribe))
}

// asPoorRole connects as a role that may log in and nothing else.
func (e *environment) asPoorRole() {
	e.exec(`CREATE ROLE cdc LOGIN PASSWORD 'pw'`)
	e.t.Cleanup(func() { pgtest.Shared(e.t).Exec(e.t, `DROP ROLE cdc`) })
	e.change(func(u *url.URL) { u.User = url.UserPassword("cdc", "pw") })
}

// change changes the URL that the program is given.
func (e *environment) change(do func(u *url.URL)) {
	u := must.Get(url.Parse(e.url))(e.t)
	do(u)
	e.url = u.String()
}

func (e *environment) parsed() *url.URL {
	return must.Get(url.Parse(e.sound))(e.t)
}

func (e *environment) database() string { return strings.TrimPrefix(e.parsed().Path, "/") }

// random is text that does not compress.
func random(n int) string {
	b := make([]byte, n*3/4)
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(b)
	return base64.StdEncoding.EncodeToString(b)
}

// command is the program with the environment's configuration.
func (e *environment) command(ctx context.Context, args, set []string) *exec.Cmd {
	if args == nil {
		args = []string{"run", "-c", e.configFile()}
	}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	cmd := exec.CommandContext(ctx, e.program, args...)
	cmd.Env = []string{"HOME=" + e.dir, "PATH=" + os.Getenv("PATH")}
	return cmd
}

// configFile writes the configuration: the sound one and what the case adds.
func (e *environment) configFile() string {
	text := fmt.Sprintf("source:\n  url: %s\nsink:\n  kafka:\n    brokers: [%s]\nhttp:\n  listen: \"\"\n%s",
		e.url, strings.Join(e.brokers, ", "), e.more)
	path := filepath.Join(e.dir, "cdc-outbox.yaml")
	must.OK(e.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// outcome is what a user sees of a single run.
type outcome struct {
	exit    int // -1: the program goes on
	message string
	remedy  string
}

// remedies begin a line; those of configuration problems are indented.
var remedies = regexp.MustCompile(`\n *remedy: `)

// run gives the bad input to the program.
func (e *environment) run(in badInput) outcome {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if in.goesOn != "" {
		return e.watch(ctx, in)
	}
	var stderr bytes.Buffer
	cmd := e.command(ctx, in.args, in.set)
	cmd.Stderr = &stderr
	err := cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || ctx.Err() != nil {
		e.t.Fatalf("the program did not fail: %v, %v\n%s", err, ctx.Err(), stderr.String())
	}
	var last struct{ Error, Remedy string } // of a log that is JSON
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	if json.Unmarshal([]byte(lines[len(lines)-1]), &last) == nil {
		return outcome{exit.ExitCode(), last.Error, last.Remedy}
	}
	_, text, _ := strings.Cut("\n"+stderr.String(), "\nerror: ")
	parts := remedies.Split(text, 2)
	return outcome{exit.ExitCode(), parts[0], strings.Join(parts[1:], "")}
}

// watch waits for a message in the log, then stops the program.
func (e *environment) watch(ctx context.Context, in badInput) (seen outcome) {
	e.t.Helper()
	stop := e.start(ctx, in, func(line map[string]any) bool {
		if line["msg"] != in.goesOn {
			return false
		}
		text := func(key string) string { s, _ := line[key].(string); return s }
		seen = outcome{exit: -1, message: in.goesOn, remedy: text("remedy")}
		if topic := text("topic"); topic != "" {
			seen.message += " " + topic
		}
		if err := text("error"); err != "" {
			seen.message += ": " + err
		}
		return true
	})
	stop()
	return seen
}

// runOnce runs the connector until it streams, and stops it.
func (e *environment) runOnce() {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stop := e.start(ctx, badInput{}, func(line map[string]any) bool { return line["msg"] == "streaming" })
	stop()
}

// start runs the program until a line of the log satisfies found. stop ends it
// and waits.
func (e *environment) start(ctx context.Context, in badInput, found func(map[string]any) bool) (stop func()) {
	e.t.Helper()
	cmd := e.command(ctx, in.args, in.set)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	must.OK(e.t, err)
	lines := bufio.NewScanner(stderr)
	var all []string
	for ok := false; !ok; {
		if !lines.Scan() {
			e.t.Fatalf("the log ended without the line: %v\n%s", ctx.Err(), strings.Join(all, "\n"))
		}
		all = append(all, lines.Text())
		var line map[string]any
		ok = json.Unmarshal(lines.Bytes(), &line) == nil && found(line)
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		for lines.Scan() { // or the program might block on a full pipe
		}
		_ = cmd.Wait()
	}
}
