package admin

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// checkPatience bounds each side of the check, so that it ends when a server
// is there but does not answer.
const checkPatience = 20 * time.Second

// Outcome is the result of one check.
type Outcome string

// The outcomes. Skipped checks depend on one that failed, or on a feature that
// is not configured.
const (
	OK      Outcome = "ok"
	Warn    Outcome = "warn"
	Fail    Outcome = "fail"
	Skipped Outcome = "skipped"
)

// Finding is what one check found.
type Finding struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail"`
	// Remedy is the exact SQL, setting or command that fixes a warning or
	// failure.
	Remedy string `json:"remedy,omitempty"`
}

// CheckReport is what Check found, in the order in which things depend on one
// another.
type CheckReport struct {
	Findings []Finding `json:"checks"`
}

// Check looks at everything that the connector requires of PostgreSQL and
// Kafka. It changes nothing, and one failure does not keep it from the rest.
func Check(ctx context.Context, cfg *config.Config) *CheckReport {
	d := &doctor{cfg: cfg}
	if cfg.Source.Mode == config.ModePoll {
		d.polling(ctx)
		d.kafka(ctx)
		return &d.report
	}
	d.postgres(ctx)
	d.kafka(ctx)
	d.checkpoint(ctx)
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

// WriteText prints one line for each check, the remedies below theirs, and a
// summary.
func (r *CheckReport) WriteText(w io.Writer) error {
	width := 0
	for _, f := range r.Findings {
		width = max(width, len(f.Name))
	}
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%-7s  %-*s  %s\n", f.Outcome, width, f.Name, f.Detail)
		if f.Remedy != "" {
			fmt.Fprintf(&b, "%*s%s\n", width+11, "-> ", f.Remedy)
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %d warn, %d fail, %d skipped\n", r.count(OK), r.count(Warn), r.count(Fail), r.count(Skipped))
	_, err := io.WriteString(w, b.String())
	return err
}

// doctor is one run of Check. What a check found out and a later one needs is
// kept here; nil or false means that the check failed.
type doctor struct {
	cfg    *config.Config
	report CheckReport

	conn      *pgx.Conn
	server    *catalog.Server
	tables    []pg.Table
	infos     []catalog.TableInfo // of the tables that exist
	needed    map[pg.Table][]string
	slot      *catalog.Slot // nil: missing
	slotKnown bool
	kafkaDown bool
	refused   bool     // the checkpoint's topic was, which is said
	topics    []string // that rows in the tables would go to
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

func (d *doctor) skip(name, because string) { d.add(name, Skipped, because, "") }

// fail adds a failure for each error that is joined in err.
func (d *doctor) fail(name string, err error) {
	for _, e := range unjoin(err) {
		d.add(name, Fail, e.Error(), remedyOf(e))
	}
}

func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, unjoin(e)...)
		}
		return all
	}
	return []error{err}
}
