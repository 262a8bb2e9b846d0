package errordocs

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

var update = flag.Bool("update", false, "write the answers, and docs/errors.md from them")

const (
	answers  = "testdata/answers.md" // in full
	document = "../../../docs/errors.md"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestErrors compares the recorded answers with what the program says.
func TestErrors(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the program once for each bad input")
	}
	program := filepath.Join(t.TempDir(), "cdc-outbox")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "../../../cmd/cdc-outbox").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var (
		p     = parsePage(string(must.Get(os.ReadFile(answers))(t)))
		major = serverVersion(t)
	)
	for _, in := range badInputs {
		t.Run(in.input, func(t *testing.T) {
			if in.until != 0 && major > in.until {
				p.forget(in.input, major)
				t.Skipf("PostgreSQL %d does not mind", major)
			}
			if in.input == "unknown host" && !resolverAnswers() {
				t.Skip("no name server says that the host does not exist")
			}
			e := newEnvironment(t, program, in.offline)
			if in.prepare != nil {
				in.prepare(e)
			}
			got := cells(e.run(in), e)
			if want := p.says(in.input, major); got != want && !*update {
				t.Errorf("PostgreSQL %d\ngot  %s\nwant %s", major, got, want)
			}
			p.note(in.input, major, got)
		})
	}
	if *update {
		must.OK(t, os.WriteFile(answers, []byte(p.answers(badInputs)), 0o644))
		must.OK(t, os.WriteFile(document, []byte(p.document(badInputs)), 0o644))
	}
}

// The files are as the program writing them would write them: the introduction, the
// order of the inputs, nothing that is no longer tried.
func TestThePageIsWhole(t *testing.T) {
	text := string(must.Get(os.ReadFile(answers))(t))
	p := parsePage(text)
	if text != p.answers(badInputs) && !*update {
		t.Errorf("make errors writes %s anew", answers)
	}
	if string(must.Get(os.ReadFile(document))(t)) != p.document(badInputs) && !*update {
		t.Errorf("make errors writes %s anew", document)
	}
}

// A server in a container has a user and a password of the same name.
func TestAWrongPasswordIsNoWrongUser(t *testing.T) {
	at := slices.IndexFunc(badInputs, func(in badInput) bool { return in.input == "wrong password" })
	e := &environment{t: t, url: "postgres://postgres:postgres@127.0.0.1:5432/postgres"}
	e.sound = e.url
	badInputs[at].prepare(e)
	if want := "postgres://postgres:wrong@127.0.0.1:5432/postgres"; e.url != want {
		t.Errorf("%s, want %s", e.url, want)
	}
}

// serverVersion is the major version of the server the tests have.
func serverVersion(t *testing.T) (major int) {
	t.Helper()
	conn := must.Get(pgx.Connect(t.Context(), pgtest.Shared(t).URL("postgres")))(t)
	defer conn.Close(t.Context())
	must.OK(t, conn.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int / 10000").Scan(&major))
	return major
}

// resolverAnswers tells whether there is a name server to say no.
func resolverAnswers() bool {
	_, err := net.LookupHost(unknownHost)
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

// cells are the cells of what was seen.
func cells(o outcome, e *environment) string {
	exit := fmt.Sprint(o.exit)
	if o.exit < 0 {
		exit = "goes on"
	}
	return fmt.Sprintf("%s | %s | %s", exit, cell(o.message, e), cell(o.remedy, e))
}

// cell is text as a table's cell, without what differs between two runs.
func cell(s string, e *environment) string {
	if s == "" {
		return ""
	}
	s = normalise(s, e)
	s = strings.Join(strings.Fields(strings.ReplaceAll(s, "\n", " ")), " ")
	return "`" + strings.NewReplacer("`", "'", "|", "\\|").Replace(s) + "`"
}

var (
	lsn      = regexp.MustCompile(`\b[0-9A-F]+/[0-9A-F]{4,}\b`)
	systemID = regexp.MustCompile(`\b[0-9]{19}\b`)
	commit   = regexp.MustCompile(`transaction [0-9]+ at (.*?) of [-0-9T:.]+Z`)
	resolver = regexp.MustCompile(` on [0-9.]+:53`)
)

func normalise(s string, e *environment) string {
	pairs := []string{e.parsed().Host, "localhost:5432", "127.0.0.1:1", "localhost:1", e.dir, "/etc/cdc-outbox"}
	for _, b := range e.brokers {
		pairs = append(pairs, b, "localhost:9092")
	}
	if db := e.database(); db != "postgres" {
		pairs = append(pairs, db, "app")
	}
	s = strings.NewReplacer(pairs...).Replace(s)
	s = lsn.ReplaceAllString(s, "0/1A2B3C4")
	s = systemID.ReplaceAllString(s, "7312345678901234567")
	s = commit.ReplaceAllString(s, "transaction 733 at $1 of 2026-01-02T03:04:05.678901Z")
	return resolver.ReplaceAllString(s, "")
}
