package e2e

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/docblocks"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// language is how the programs of a directory of examples/languages are run.
type language struct {
	dir     string
	needs   []string   // programs; the test is skipped if any is missing
	probe   []string   // a command that fails if packages are missing and nobody installs them; optional
	install [][]string // commands to get the packages into the directory
	environ []string   // {dir} is the directory
	// writer and consumer are commands, each with its form of the database's URL.
	// The consumer is optional.
	writer, consumer     []string
	database, consumedBy func(u *url.URL) string
}

func asURL(u *url.URL) string { return u.String() }

func asJDBC(u *url.URL) string {
	password, _ := u.User.Password()
	query := url.Values{"user": {u.User.Username()}, "password": {password}}
	return "jdbc:postgresql://" + u.Host + u.Path + "?" + query.Encode()
}

func withScheme(scheme string) func(u *url.URL) string {
	return func(u *url.URL) string { return scheme + strings.TrimPrefix(u.String(), u.Scheme) }
}

var languages = []language{
	{
		dir: "python", needs: []string{"python3"},
		install: [][]string{{"python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--root-user-action=ignore", "--target", "packages", "-r", "requirements.txt"}},
		environ: []string{"PYTHONPATH={dir}/packages"},
		writer:  []string{"python3", "writer.py"}, database: withScheme("postgresql+psycopg"),
		consumer: []string{"python3", "consumer.py"}, consumedBy: asURL,
	},
	{
		dir: "javascript", needs: []string{"node", "npm", "npx"},
		install: [][]string{
			{"npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"},
			{"npx", "prisma", "generate", "--schema", "schema.prisma"},
		},
		// Named engines are not downloaded; the client needs none.
		environ: []string{"PRISMA_SCHEMA_ENGINE_BINARY=/bin/true", "PRISMA_QUERY_ENGINE_LIBRARY=/bin/true", "PRISMA_HIDE_UPDATE_MESSAGE=1"},
		writer:  []string{"node", "writer.js"}, database: asURL,
		consumer: []string{"node", "consumer.js"}, consumedBy: asURL,
	},
	{
		dir: "java", needs: []string{"java", "mvn"},
		install: [][]string{{"mvn", "-B", "-q", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies", "-DoutputDirectory=jars"}},
		writer:  []string{"java", "-cp", "jars/*", "Writer.java"}, database: asJDBC,
		consumer: []string{"java", "-cp", "jars/*", "Consumer.java"}, consumedBy: asJDBC,
	},
	{
		dir: "ruby", needs: []string{"ruby"},
		probe:  []string{"ruby", "-e", `require "active_record"; require "pg"`}, // Debian: ruby-activerecord, ruby-pg
		writer: []string{"ruby", "writer.rb"}, database: asURL,
	},
}

// TestE2EOtherLanguages runs the programs of docs/records.md: writers place
// orders, and consumers act on each event once, also on repetitions.
func TestE2EOtherLanguages(t *testing.T) {
	const orders, events = 3, 6
	handled, _, _ := strings.Cut(docblocks.Section(t, "../docs/records.md", "## Acting once")["sql"], ";")
	for _, l := range languages {
		t.Run(l.dir, func(t *testing.T) {
			t.Parallel()
			dir := l.prepare(t)
			m := newMarket(t, handled+`;
				CREATE TABLE orders (id bigint PRIMARY KEY, status text NOT NULL);
				CREATE TABLE shipments (consumer text, order_id text, event text, lsn numeric, seq int)`)
			m.broker.CreateTopic(t, topicOf("order"), 3, nil)
			u := must.Get(url.Parse(m.url))(t)
			for order := range orders {
				l.command(t, dir, append(l.writer, strconv.Itoa(order)), "DATABASE_URL="+l.database(u))
			}
			records, types := m.events(topicOf("order"), events), map[string]string{}
			for _, r := range records {
				types[string(r.Key)] += " " + headersOf(r)["eventType"]
			}
			for order := range orders {
				if got := types[strconv.Itoa(order)]; got != " OrderPlaced OrderPaid" {
					t.Errorf("order %d has the events%s", order, got)
				}
			}
			if l.consumer == nil {
				return
			}
			m.send(1, records...)
			for _, group := range []string{"first", "again"} {
				l.command(t, dir, append(l.consumer, group, strconv.Itoa(2*events)), "DATABASE_URL="+l.consumedBy(u), "BROKERS="+m.broker.Brokers[0])
				if n := m.number(`SELECT count(*) FROM shipments`); n != events {
					t.Errorf("group %s: %d shipments, want %d", group, n, events)
				}
			}
			for _, r := range records {
				h := headersOf(r)
				if n := m.number(fmt.Sprintf(`SELECT count(*) FROM shipments WHERE event = '%s' AND order_id = '%s'
					AND lsn = '%s'::pg_lsn - '0/0' AND seq = %s`, h["eventType"], r.Key, h["cdc-lsn"], h["cdc-seq"])); n != 1 {
					t.Errorf("%s of order %s: its position %s is read wrongly", h["eventType"], r.Key, h["cdc-lsn"])
				}
			}
		})
	}
}

// headersOf returns a record's headers by name.
func headersOf(r *kgo.Record) map[string]string {
	headers := map[string]string{}
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	return headers
}

// prepare returns a directory with the programs and their packages. The test is
// skipped where the language, or packages nobody installs, are missing.
func (l *language) prepare(t *testing.T) (dir string) {
	t.Helper()
	return l.prepareIn(t, t.TempDir(), "../examples/languages/"+l.dir)
}

// prepareIn is prepare with the programs of another directory.
func (l *language) prepareIn(t *testing.T, dir, programs string) string {
	t.Helper()
	for _, program := range l.needs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	if len(l.probe) > 0 {
		if out, err := exec.CommandContext(t.Context(), l.probe[0], l.probe[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%s: %v: %s", strings.Join(l.probe, " "), err, out)
		}
	}
	must.OK(t, os.CopyFS(dir, os.DirFS(programs)))
	for _, command := range l.install {
		l.command(t, dir, command)
	}
	return dir
}

// command runs a command in the directory; success is required.
func (l *language) command(t *testing.T, dir string, command []string, environ ...string) {
	t.Helper()
	l.run(t, dir, exec.CommandContext(t.Context(), command[0], command[1:]...), environ...)
}

// run is command, with standard output where the command has it.
func (l *language) run(t *testing.T, dir string, cmd *exec.Cmd, environ ...string) {
	t.Helper()
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), environ...)
	for _, variable := range l.environ {
		cmd.Env = append(cmd.Env, strings.ReplaceAll(variable, "{dir}", dir))
	}
	var out bytes.Buffer
	cmd.Stderr = &out
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, &out)
	}
}
