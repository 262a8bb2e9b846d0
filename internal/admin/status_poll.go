package admin

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/internal/sqlstate"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// PollStatus is a table in poll mode.
type PollStatus struct {
	Table string `json:"table"`
	// UnpublishedRows is counted up to poll.BacklogCounted.
	UnpublishedRows int64   `json:"unpublished_rows"`
	OldestSeconds   float64 `json:"oldest_unpublished_seconds"`
	Index           string  `json:"index,omitempty"`
	// Holders work on lanes of the table at this moment.
	Holders  []poll.LaneHolder `json:"holders"`
	Problems []Problem         `json:"problems,omitempty"`
}

// pollStatus is Status in poll mode.
func pollStatus(ctx context.Context, cfg *config.Config) *StatusReport {
	r := &StatusReport{At: time.Now().UTC(), CheckpointStore: "none: the table is the state", polls: true}
	err := patiently(ctx, func(ctx context.Context) error { return r.polled(ctx, cfg) })
	r.PostgreSQLError = problem(err)
	r.note(err)
	r.Instance = askInstance(ctx, cfg)
	r.bad = r.bad || r.stuck() != ""
	r.Verdict = r.judgePolled()
	return r
}

func (r *StatusReport) polled(ctx context.Context, cfg *config.Config) error {
	conn, err := catalog.ConnectPooled(ctx, cfg.Source.URL.Reveal())
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer catalog.Close(conn)
	names := cfg.Source.Tables
	router, err := transform.New(cfg.Event, cfg.Route)
	if err != nil {
		return err
	}
	r.Polling = []PollStatus{}
	for _, name := range names {
		t, err := poll.ReadTable(ctx, conn, cfg.Source.Poll, cfg.Event, router, name)
		if err != nil {
			return err
		}
		st, err := polledStatus(ctx, conn, t)
		if err != nil {
			return err
		}
		r.Polling = append(r.Polling, st)
	}
	return nil
}

func polledStatus(ctx context.Context, conn *pgx.Conn, t *poll.Table) (PollStatus, error) {
	backlog, err := poll.ReadBacklog(ctx, conn, t)
	if err != nil {
		return PollStatus{}, err
	}
	st := PollStatus{
		Table:           t.Name.String(),
		UnpublishedRows: backlog.Rows,
		OldestSeconds:   backlog.Oldest.Seconds(),
		Index:           t.Index,
	}
	for _, w := range t.Warnings() {
		st.Problems = append(st.Problems, *problem(w))
	}
	st.Holders, err = poll.ReadLanes(ctx, conn, t)
	return st, err
}

// behind is the age from which a row that waits is worth a verdict.
const behind = 30 * time.Second

func (r *StatusReport) judgePolled() string {
	if r.PostgreSQLError != nil {
		return r.PostgreSQLError.Error
	}
	if why := r.stuck(); why != "" {
		return "events do not get through: " + why
	}
	for _, st := range r.Polling {
		switch {
		case st.UnpublishedRows == 0:
		case len(st.Holders) > 0:
			return "events are being published"
		case st.OldestSeconds > behind.Seconds():
			return "events wait, the oldest for " + seconds(st.OldestSeconds) + ", and nobody is publishing them at this moment: is the connector running?"
		}
	}
	return "next to nothing waits to be published"
}

func (r *StatusReport) writePolled(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.Verdict)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	remedy := func(p Problem) {
		if p.Remedy != "" {
			line("", "-> %s", p.Remedy)
		}
	}
	if p := r.PostgreSQLError; p != nil {
		line("postgresql", "%s", p.Error)
		remedy(*p)
	}
	for _, st := range r.Polling {
		line("table", "%s", st.Table)
		count := strconv.FormatInt(st.UnpublishedRows, 10)
		if st.UnpublishedRows == poll.BacklogCounted {
			count += " or more"
		}
		line("unpublished", "%s, the oldest %s old", count, seconds(st.OldestSeconds))
		line("index", "%s", or(st.Index, "none"))
		for _, h := range st.Holders {
			line("lanes", "%s: %s", laneList(h.Lanes), Holder{PID: h.PID, Application: h.Application, Address: h.Address, User: h.User})
		}
		if len(st.Holders) == 0 {
			line("lanes", "nobody works on any at this moment")
		}
		for _, p := range st.Problems {
			line("", "%s", p.Error)
			remedy(p)
		}
	}
	r.Instance.write(line)
	_, err := io.WriteString(w, b.String())
	return err
}

// laneList shortens 1, 2, 3 to 1-3.
func laneList(lanes []int) string {
	var parts []string
	for i := 0; i < len(lanes); {
		j := i
		for j+1 < len(lanes) && lanes[j+1] == lanes[j]+1 {
			j++
		}
		part := strconv.Itoa(lanes[i])
		if j > i {
			part += "-" + strconv.Itoa(lanes[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

// waiting prints the rows that are not published yet, in the form in which they
// would be.
func (t *tail) waiting(ctx context.Context, conn *pgx.Conn) error {
	for _, name := range t.tables {
		table, err := poll.ReadTable(ctx, conn, t.cfg.Source.Poll, t.cfg.Event, t.router, name)
		if err != nil {
			return err
		}
		err = catalog.ReadSnapshot(ctx, conn, catalog.Snapshot{
			Table: name, Relation: table.Relation, Limit: t.opts.Limit, Where: table.Condition(), OrderBy: table.OrderBy(),
		}, func(row *pg.Row) error { return t.row(ctx, row) })
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(t.opts.Notes, "%d rows\n", t.printed)
	return nil
}

// teardownPolling drops the triggers, all or none; columns, marks and index stay
// with the table. It refuses while somebody is publishing.
func teardownPolling(ctx context.Context, cfg *config.Config, yes bool) (Steps, error) {
	conn, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer catalog.Close(conn)
	t := teardown{cfg: cfg, conn: conn, yes: yes}
	err = pgx.BeginFunc(ctx, conn, func(pgx.Tx) error {
		if err := t.planPolling(ctx); err != nil {
			return err
		}
		return t.carryOut(ctx)
	})
	switch {
	case err != nil:
		return nil, untouched(err)
	case !yes && t.found():
		return t.steps, failure.Configf("cdc-outbox teardown --yes", "nothing was dropped")
	}
	return append(t.steps, t.kept...), nil
}

// planPolling looks at all tables.
func (t *teardown) planPolling(ctx context.Context) error {
	names := t.cfg.Source.Tables
	router, err := transform.New(t.cfg.Event, t.cfg.Route)
	if err != nil {
		return err
	}
	for _, name := range names {
		table, err := poll.ReadTable(ctx, t.conn, t.cfg.Source.Poll, t.cfg.Event, router, name)
		if err != nil {
			return err
		}
		if err := t.planNotifier(ctx, table); err != nil {
			return err
		}
		if table.Index != "" {
			t.kept = append(t.kept, Step{Object: "index", Name: table.Index, Action: "kept"})
		}
	}
	return nil
}

func (t *teardown) planNotifier(ctx context.Context, table *poll.Table) error {
	holders, err := poll.ReadLanes(ctx, t.conn, table)
	if err != nil {
		return err
	}
	if len(holders) > 0 {
		return failure.Configf("stop the connector first", "table %s is being published from by pid %d", table.Name, holders[0].PID)
	}
	there, err := table.Notifies(ctx, t.conn, t.cfg.Source.Poll.Notify)
	if err != nil {
		return err
	}
	t.plan = append(t.plan, object{"trigger", table.Name.String(), there, func(ctx context.Context) error {
		for _, sql := range table.DropNotifySQL() {
			err := execute(ctx, t.conn, sql)
			if sqlstate.Of(err) == pgerrcode.InsufficientPrivilege {
				return failure.Configf("run teardown as the table's owner (source.url)", "%w", err)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}})
	return nil
}
