package admin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
)

// checkPatience bounds each side of the check, so the check ends even with a
// silent server.
const checkPatience = 20 * time.Second

// Outcome is the result of a check.
type Outcome string

// The outcomes. Skipped checks depend on a failed check, or on a feature not
// configured.
const (
	OK      Outcome = "ok"
	Warn    Outcome = "warn"
	Fail    Outcome = "fail"
	Skipped Outcome = "skipped"
)

// Finding is the result of a check, with its reason.
type Finding struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail"`
	// Remedy is the exact SQL, setting or command against a warning or failure.
	Remedy string `json:"remedy,omitempty"`
}

// CheckReport has Check's findings, in the order of dependence.
type CheckReport struct {
	Findings []Finding `json:"checks"`
}

// Check looks at everything the connector requires of PostgreSQL and Kafka.
// Check changes nothing, and goes on after a failure.
func Check(ctx context.Context, cfg *config.Config) *CheckReport {
	session, err := newSession(cfg)
	d := &doctor{session: session}
	if err != nil {
		d.fail("configuration", err)
		return &d.report
	}
	defer session.close()
	d.registry(ctx)
	defer d.encoder.Close()
	d.postgres(ctx)
	d.failover(ctx)
	d.kafka(ctx)
	d.claims(ctx)
	d.claimsUnpublished(ctx)
	if !d.polls() {
		d.checkpoint(ctx)
	}
	d.recordTimes(ctx)
	return &d.report
}

// Err is an error of class failure.Config if a check failed.
func (r *CheckReport) Err() error {
	switch n := r.count(Fail); n {
	case 0:
		return nil
	case 1:
		return failure.Configf("", "1 check failed")
	default:
		return failure.Configf("", "%d checks failed", n)
	}
}

func (r *CheckReport) count(o Outcome) (n int) {
	for _, f := range r.Findings {
		if f.Outcome == o {
			n++
		}
	}
	return n
}

// byWeight are the outcomes in the order for a screen, with the end in view:
// failures last.
var byWeight = []Outcome{OK, Skipped, Warn, Fail}

// WriteText prints a line for each check, the remedies below theirs, failures
// last, and a summary.
func (r *CheckReport) WriteText(w io.Writer) error {
	width := 0
	for _, f := range r.Findings {
		width = max(width, len(f.Name))
	}
	var l lines
	for _, o := range byWeight {
		for _, f := range r.Findings {
			if f.Outcome != o {
				continue
			}
			l.printf("%-7s  %-*s  %s\n", f.Outcome, width, f.Name, f.Detail)
			if f.Remedy != "" {
				l.printf("%*s%s\n", width+11, "-> ", f.Remedy)
			}
		}
	}
	l.printf("\n%d ok, %d skipped, %d warn, %d fail: %s\n", r.count(OK), r.count(Skipped), r.count(Warn), r.count(Fail), r.next())
	return l.to(w)
}

// next is the next step. Checks come in the order of dependence, so others may
// follow from the first failure.
func (r *CheckReport) next() string {
	var failed []string
	for _, f := range r.Findings {
		if f.Outcome == Fail {
			failed = append(failed, f.Name)
		}
	}
	switch {
	case len(failed) > 1:
		return "begin with " + failed[0] + ", from which others may follow; then check again"
	case len(failed) == 1:
		return "mend " + failed[0] + ", and check again"
	case r.count(Warn) > 0:
		return "run can start; a warning tells what may go wrong later"
	}
	return "run can start"
}

// doctor is a single run of Check. It keeps findings for later checks; nil or
// false means a failed check.
type doctor struct {
	*session
	report CheckReport

	encoder      *registry.Encoder // nil: none is needed, or the registry does not answer
	server       *catalog.Server
	infos        []catalog.TableInfo // of the existing tables
	needed       map[pg.Table][]string
	schemaFailed bool          // as reported
	slot         *catalog.Slot // nil: missing
	slotKnown    bool
	kafkaDown    bool
	refused      bool     // the checkpoint's topic was refused, as reported
	topics       []string // of the rows in the tables
	times        []topicTimes
	ahead        time.Duration // of the database's clock to ours
	saved        time.Time     // when the checkpoint was; zero: there is none
}

func (d *doctor) add(name string, o Outcome, detail, remedy string) {
	d.report.Findings = append(d.report.Findings, Finding{name, o, detail, remedy})
}

func (d *doctor) ok(name, format string, args ...any) {
	d.add(name, OK, fmt.Sprintf(format, args...), "")
}

func (d *doctor) warn(name, remedy, format string, args ...any) {
	d.add(name, Warn, fmt.Sprintf(format, args...), remedy)
}

// amend replaces the finding of a name, once more is known.
func (d *doctor) amend(name string, o Outcome, detail string) {
	for i := range d.report.Findings {
		if d.report.Findings[i].Name == name {
			d.report.Findings[i] = Finding{Name: name, Outcome: o, Detail: detail}
		}
	}
}

// found reports whether the error was found under the name already: positions
// in the text may have moved on since.
func (d *doctor) found(name string, err error) bool {
	return slices.ContainsFunc(d.report.Findings, func(f Finding) bool {
		return f.Name == name && f.Outcome == Fail && f.Remedy == remedyOf(err)
	})
}

func (d *doctor) skip(name, because string) { d.add(name, Skipped, because, "") }

// fail adds a failure for each error joined in err.
func (d *doctor) fail(name string, err error) {
	for _, e := range failure.Split(err) {
		d.add(name, Fail, e.Error(), remedyOf(e))
	}
}
