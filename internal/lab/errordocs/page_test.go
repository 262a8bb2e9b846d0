package errordocs

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
)

const introduction = `# What you see when something is wrong

Each line is the program's answer to that input, by test: the message is the last line
on standard error, the remedy the line below (in a JSON log both are fields of the last
line). Where versions of PostgreSQL differ, each has its line. ` + "`make errors`" + ` writes
the page anew from PostgreSQL 14 to 18;
` + "`CDC_OUTBOX_PG_BIN=… go test ./internal/lab/errordocs -update`" + ` writes the answers
of that version, and keeps those of others.

Exit codes: 1 may pass, start again; 2 bad usage or configuration; 3 events may have been
lost, an operator must decide. Where the program goes on, the message is in its log and
in the answer of /readyz.

(A), (B) and (C) stand for words that many remedies have:

` + legend + `
| Input | Exit code | Message | Remedy |
|---|---|---|---|
`

// The page has often repeated words once, under a letter.
const (
	accepts  = "says what is missing, and changes nothing; with --yes run goes on without it; with --yes --snapshot run first publishes all rows still in the outbox (same event ids)"
	decides  = "set errors.on_bad_event to dead_letter (keeps it in errors.dead_letter_topic) or skip (leaves it out); or leave out its whole transaction:"
	leavesIt = "lists the events of it, and leaves them out with --yes"
	legend   = "- (A): `" + accepts + "`\n- (B): `" + decides + "`\n- (C): `" + leavesIt + "`\n"
)

var (
	shorten = strings.NewReplacer(accepts, "(A)", decides, "(B)", leavesIt, "(C)")
	expand  = strings.NewReplacer("(A)", accepts, "(B)", decides, "(C)", leavesIt)
)

// page is the table: by input, the lines of versions saying different things.
type page map[string][]line

// line is what versions of PostgreSQL say. cells are the other cells, as they stand on
// the page.
type line struct {
	majors []int
	cells  string
}

// everyMajor are the versions a line without versions is about.
func everyMajor() (all []int) {
	for major := pgserver.MinVersion; major <= pgserver.MaxVersion; major++ {
		all = append(all, major)
	}
	return all
}

var (
	rowPattern      = regexp.MustCompile(`(?m)^\| (.*?)(?: \(PostgreSQL ([0-9, to]+)\))? \| (\d|goes on) \| (.*) \|$`)
	versionsPattern = regexp.MustCompile(`(\d+)(?: to (\d+))?`)
)

func parsePage(text string) page {
	p := page{}
	for _, m := range rowPattern.FindAllStringSubmatch(text, -1) {
		l := line{majors: everyMajor(), cells: m[3] + " | " + expand.Replace(m[4])}
		if m[2] != "" {
			l.majors = parseVersions(m[2])
		}
		p[m[1]] = append(p[m[1]], l)
	}
	return p
}

func parseVersions(text string) (majors []int) {
	for _, m := range versionsPattern.FindAllStringSubmatch(text, -1) {
		first, _ := strconv.Atoi(m[1]) // digits
		last, _ := strconv.Atoi(cmp.Or(m[2], m[1]))
		for major := first; major <= last; major++ {
			majors = append(majors, major)
		}
	}
	return majors
}

// versions is the inverse of parseVersions.
func versions(majors []int) string {
	var parts []string
	for i := 0; i < len(majors); {
		n := 1
		for i+n < len(majors) && majors[i+n] == majors[i]+n {
			n++
		}
		if n > 2 {
			parts = append(parts, fmt.Sprintf("%d to %d", majors[i], majors[i+n-1]))
			i += n
			continue
		}
		parts, i = append(parts, strconv.Itoa(majors[i])), i+1
	}
	return strings.Join(parts, ", ")
}

// says is what a version says, or nothing.
func (p page) says(input string, major int) string {
	for _, l := range p[input] {
		if slices.Contains(l.majors, major) {
			return l.cells
		}
	}
	return ""
}

// note has the page say it of the version, and what it said of others. Of an
// input it has not, it is said of all versions until another has been asked.
func (p page) note(input string, major int, cells string) {
	if len(p[input]) == 0 {
		p[input] = []line{{everyMajor(), cells}}
		return
	}
	p.forget(input, major)
	at := slices.IndexFunc(p[input], func(l line) bool { return l.cells == cells })
	if at < 0 {
		at = len(p[input])
		p[input] = append(p[input], line{cells: cells})
	}
	said := &p[input][at]
	said.majors = append(said.majors, major)
	slices.Sort(said.majors)
}

// forget removes what the page says of the version.
func (p page) forget(input string, major int) {
	var kept []line
	for _, l := range p[input] {
		l.majors = slices.DeleteFunc(l.majors, func(m int) bool { return m == major })
		if len(l.majors) > 0 {
			kept = append(kept, l)
		}
	}
	p[input] = kept
}

// text is the whole page, with the inputs in this order.
func (p page) text(inputs []badInput) string {
	var b strings.Builder
	b.WriteString(introduction)
	for _, in := range inputs {
		lines := p[in.input]
		slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.majors[0], b.majors[0]) })
		for _, l := range lines {
			name := in.input
			if len(l.majors) < len(everyMajor()) {
				name += " (PostgreSQL " + versions(l.majors) + ")"
			}
			fmt.Fprintf(&b, "| %s | %s |\n", name, shorten.Replace(l.cells))
		}
	}
	return b.String()
}

// Lines of other versions stay as they are, and come together again where they say the
// same.
func TestThePageKeepsWhatOtherVersionsSay(t *testing.T) {
	inputs := []badInput{{input: "a (b)"}, {input: "c"}}
	p := page{}
	p.note("c", 15, "2 | `x` | ")
	p.note("a (b)", 15, "goes on | `old` | `r`")
	for _, major := range []int{16, 18} {
		p.note("a (b)", major, "goes on | `new` | `r`")
	}
	p.forget("c", 19)
	want := introduction + "| a (b) (PostgreSQL 14, 15, 17, 19) | goes on | `old` | `r` |\n" +
		"| a (b) (PostgreSQL 16, 18) | goes on | `new` | `r` |\n| c (PostgreSQL 14 to 18) | 2 | `x` |  |\n"
	if got := p.text(inputs); got != want {
		t.Fatalf("got\n%swant\n%s", got, want)
	}
	p = parsePage(want)
	if got := p.text(inputs); got != want {
		t.Fatalf("read and written again:\n%swant\n%s", got, want)
	}
	if got := p.says("a (b)", 18); got != "goes on | `new` | `r`" {
		t.Errorf("18 says %q", got)
	}
	for _, major := range []int{16, 18} {
		p.note("a (b)", major, "goes on | `old` | `r`")
	}
	if got := p.text(inputs[:1]); got != introduction+"| a (b) | goes on | `old` | `r` |\n" {
		t.Errorf("got\n%s", got)
	}
}
