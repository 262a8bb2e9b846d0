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
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

var update = flag.Bool("update", false, "write docs/errors.md")

const document = "../../docs/errors.md"

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestErrors compares docs/errors.md with what the program says.
func TestErrors(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the program once for each bad input")
	}
	program := filepath.Join(t.TempDir(), "cdc-outbox")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "../../cmd/cdc-outbox").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	old, err := os.ReadFile(document)
	if err != nil && !*update {
		t.Fatal(err)
	}

	var rows strings.Builder
	for _, in := range badInputs {
		t.Run(in.input, func(t *testing.T) {
			if strings.Contains(in.input, "unknown host") && !resolverAnswers() {
				rows.WriteString(oldRow(string(old), in.input))
				t.Skip("no name server says that the host does not exist")
			}
			e := newEnvironment(t, program, in.offline)
			if in.prepare != nil {
				in.prepare(e)
			}
			row := tableRow(in.input, e.run(in), e)
			rows.WriteString(row)
			if want := oldRow(string(old), in.input); row != want && !*update {
				t.Errorf("got  %swant %s", row, want)
			}
		})
	}
	if *update {
		must.OK(t, os.WriteFile(document, []byte(introduction+rows.String()), 0o644))
	}
}

const introduction = `# What you see when something is wrong

Each line was produced by giving the program that input
(` + "`go test ./internal/errordocs -update`" + `); the test that did it fails when this
page no longer says what the program says. The message is the last thing on
standard error, the remedy the line below it; where the log is JSON, as by
default, both are fields of its last line.

Exit codes: 1 an error that may pass, start again; 2 bad usage or
configuration; 3 events may have been lost, an operator must decide. Where the
program goes on, the message is in its log, and in the answer of /readyz.

| Input | Exit code | Message | Remedy |
|---|---|---|---|
`

// resolverAnswers tells whether there is a name server to say no.
func resolverAnswers() bool {
	_, err := net.LookupHost(unknownHost)
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

func oldRow(document, input string) string {
	for line := range strings.Lines(document) {
		if strings.HasPrefix(line, "| "+input+" |") {
			return line
		}
	}
	return ""
}

func tableRow(input string, o outcome, e *environment) string {
	exit := fmt.Sprint(o.exit)
	if o.exit < 0 {
		exit = "goes on"
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", input, exit, cell(o.message, e), cell(o.remedy, e))
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
