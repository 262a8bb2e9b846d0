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

// head is the table's in the file of answers.
const head = "| Input | Exit code | Message | Remedy |\n|---|---|---|---|\n"

// The page's text, and the head of its tables.
const (
	introduction = `# What you see when something is wrong

The program's answers to wrong input, by test. Left out: where it happened (file and line,
host, event, topic), options that the remedy repeats (-c, --set, --bootstrap-server), and
further remedies (…), with [a bad event](runbook/bad-rows.md) a dead letter, to skip it or
its transaction. [Exit code 3](runbook/exit-code-3.md), a possible loss, has its own page.

## Exit code 2

The message is the last line on standard error, the remedy the line below.

` + briefHead
	goesOn = `
## The program goes on

Both are in its log, and in the answer of /readyz.

` + briefHead
	briefHead = "| Input | Message | Remedy |\n|---|---|---|\n"
)

// briefly shows the answers with that outcome as they are on the page, which leaves
// out what is not the answer to this input.
func briefly(outcome string) func(cells string) string {
	return func(cells string) string {
		cells, ok := strings.CutPrefix(cells, outcome+" | ")
		if !ok {
			return ""
		}
		cells = steps.ReplaceAllString(beginnings.ReplaceAllString(cells, "`"), "")
		return options.ReplaceAllString(furtherRemedies.ReplaceAllString(cells, "…`"), "")
	}
}

var (
	beginnings = regexp.MustCompile("`(?:the configuration has 1 problem (?:\\S+\\.yaml:\\d+: |flag --set: )?" +
		`|(?:deliver: )?bad event \S+ of \S+ at \S+ |deliver: )`)
	steps = regexp.MustCompile(`(?:connect to PostgreSQL|open replication connection): (?:localhost:\d+ \(127\.0\.0\.1\): )?(?:server error: )?` +
		`|open checkpoint store: |checkpoint topic \S+: |claim transactional id "\S+": |event [0-9a-f-]{36}: | \(uncompressed_bytes=[^)]*\)`)
	furtherRemedies = regexp.MustCompile("; (?:or|if|with|before|to) [^`]*`$")
	options         = regexp.MustCompile(` -c /etc/cdc-outbox/cdc-outbox\.yaml(?: --set [^\s']+)*| --bootstrap-server localhost:9092`)
)

// page is the table of answers: by input, the lines of versions saying different
// things.
type page map[string][]line

// line is what versions of PostgreSQL say. cells are the other cells, in full.
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
		l := line{majors: everyMajor(), cells: m[3] + " | " + m[4]}
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

// answers is the whole table, with the inputs in this order.
func (p page) answers(inputs []badInput) string { return head + p.rows(inputs, strings.Clone) }

// document is docs/errors.md.
func (p page) document(inputs []badInput) string {
	return introduction + p.rows(inputs, briefly("2")) + goesOn + p.rows(inputs, briefly("goes on"))
}

// rows are the lines of the inputs with their cells as shown, but those shown empty.
func (p page) rows(inputs []badInput, shown func(cells string) string) string {
	var b strings.Builder
	for _, in := range inputs {
		lines := p[in.input]
		slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.majors[0], b.majors[0]) })
		for _, l := range lines {
			name := in.input
			if len(l.majors) < len(everyMajor()) {
				name += " (PostgreSQL " + versions(l.majors) + ")"
			}
			if cells := shown(l.cells); cells != "" {
				fmt.Fprintf(&b, "| %s | %s |\n", name, cells)
			}
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
	want := head + "| a (b) (PostgreSQL 14, 15, 17, 19) | goes on | `old` | `r` |\n" +
		"| a (b) (PostgreSQL 16, 18) | goes on | `new` | `r` |\n| c (PostgreSQL 14 to 18) | 2 | `x` |  |\n"
	if got := p.answers(inputs); got != want {
		t.Fatalf("got\n%swant\n%s", got, want)
	}
	p = parsePage(want)
	if got := p.answers(inputs); got != want {
		t.Fatalf("read and written again:\n%swant\n%s", got, want)
	}
	if got := p.says("a (b)", 18); got != "goes on | `new` | `r`" {
		t.Errorf("18 says %q", got)
	}
	for _, major := range []int{16, 18} {
		p.note("a (b)", major, "goes on | `old` | `r`")
	}
	if got := p.answers(inputs[:1]); got != head+"| a (b) | goes on | `old` | `r` |\n" {
		t.Errorf("got\n%s", got)
	}
}

func TestThePageIsBrief(t *testing.T) {
	show := briefly("2")
	for cells, want := range map[string]string{
		"2 | `the configuration has 1 problem /etc/x.yaml:9: a.b: unknown key` | `did you mean a.c?`": "`a.b: unknown key` | `did you mean a.c?`",
		"2 | `connect to PostgreSQL: localhost:5432 (127.0.0.1): FATAL: no` | ``":                     "`FATAL: no` | ``",
		"2 | `deliver: bad event 1 of public.outbox at 0/1/0: null_key: x; or y` | `allow it; or z`":  "`null_key: x; or y` | `allow it…`",
		"2 | `m` | `BEGIN; ALTER x; COMMIT;`":                                                         "`m` | `BEGIN; ALTER x; COMMIT;`",
		"2 | `open checkpoint store: checkpoint topic a.b: it is gone` | ``":                          "`it is gone` | ``",
		"2 | `m` | `'cdc-outbox setup -c /etc/cdc-outbox/cdc-outbox.yaml --set a=b --yes' does it`":   "`m` | `'cdc-outbox setup --yes' does it`",
		"3 | `m` | `r`": "",
	} {
		if got := show(cells); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
