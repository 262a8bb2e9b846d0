package admin

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/catchup"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// AuditOptions are the choice of rows to compare with Kafka, and the way.
type AuditOptions struct {
	// Since and Until choose the rows by their time: from Since on, before Until;
	// zero: no bound.
	Since, Until time.Time
	// IDs and Keys are the ids and the keys of the only rows looked at; empty: all.
	IDs, Keys []string
	// Where is the SQL condition of the only rows looked at; "": all.
	Where string
	// Tables are the only ones looked at, of source.tables; empty: all.
	Tables []pg.Table
	// XIDs are the transactions of the only rows looked at; zero: all.
	XIDs XIDs
	// Content has Verify compare key, value and headers, too.
	Content bool
	// Topics may have events beside the topics of rows.
	Topics []string
	// List is how many missing events are listed at most.
	List int
	// Dir is for the files with ids; "" is the system's directory.
	Dir string
	// Timeout bounds the wait for the slot, and for brokers that do not answer.
	Timeout time.Duration
	// Notes takes messages about the progress.
	Notes io.Writer

	// marked chooses the rows from behind a marker; nil: earlier rows, too.
	marked *marked
}

// marked are the rows of transactions perhaps ended behind the marker of an upgrade.
// Their records are not older than the marker.
type marked struct {
	rows string // the SQL condition
	at   time.Time
}

// Audit has the events of the outbox missing in Kafka.
type Audit struct {
	Tables []string  `json:"tables"`
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	// Rows, Found, Missing and Unknown count rows. Unknown ones have no record, and
	// Limits says why that proves nothing.
	Rows    int64 `json:"rows"`
	Found   int64 `json:"found"`
	Missing int64 `json:"missing"`
	Unknown int64 `json:"unknown"`
	// RowSum and FoundSum are sums of the ids, in any order, of the rows and of
	// those that records have.
	RowSum   string `json:"row_sum"`
	FoundSum string `json:"found_sum"`
	// Records is the number of records with an event id that were read, Repeated
	// how many of them have the id of another.
	Records  int64          `json:"records"`
	Repeated int64          `json:"repeated"`
	Topics   []MissingTopic `json:"topics"`
	// Events are the first of the missing events, in the order of publication.
	Events []MissingEvent `json:"events"`
	// Order says what the order of publication is taken from, by table.
	Order map[string]string `json:"order"`
	// Limits are the limits of the knowledge.
	Limits []string `json:"limits"`

	replay string // the name of the replay whose records alone count; "": all do
}

// MissingTopic counts the missing events of a topic.
type MissingTopic struct {
	Topic   string `json:"topic"`
	Missing int64  `json:"missing"`
}

// MissingEvent is an event without a record.
type MissingEvent struct {
	ID    string    `json:"id"`
	Topic string    `json:"topic"`
	Key   string    `json:"key"`
	At    time.Time `json:"at,omitzero"` // the time of the row
}

// auditor compares rows with records.
type auditor struct {
	*session
	verb    string
	opts    AuditOptions
	cluster *cluster
	held    *catalog.HeldSnapshot
	wait    *catchup.Wait // for the slot; nil where it cannot be read, or rows are polled
	tables  []*auditedTable
	rows    audit.Rows
	ids     *audit.Audit
	topics  *audit.Topics
	*notes
	result *Audit
	// waiting and twins count rows that are unknown by themselves; see limits.
	waiting, twins int64
	unknown        leftUnknown
	asked          unseen // ids
	xids           XIDs   // full; zero: all
	// behind is the snapshot at the first position of an unread slot: only rows of
	// the snapshot may be missing. "": the present.
	behind string
	// settle is called where the slot cannot be read, before the last records are:
	// it ends what an instance may still have on its way. nil: nothing does.
	settle func(context.Context) error
	// news is audit.ReadOptions.News.
	news func(*kgo.Record) bool
	// also are topics to read beside those of rows.
	also []string
	// again is set where a record counts only if an earlier replay of the name made it.
	again *replayed
}

// auditedTable is an outbox table.
type auditedTable struct {
	*audit.Table
	waits  string   // the condition of rows that wait for a poll; "" where rows are streamed
	chosen []string // the conditions of the rows looked at
}

// where is the condition of the rows compared; "" for all.
func (t *auditedTable) where() string {
	and := t.chosen
	if t.waits != "" {
		and = append(and[:len(and):len(and)], "NOT ("+t.waits+")")
	}
	return strings.Join(and, " AND ")
}

// newAuditor connects for the verb, and finds the obstacles of a later comparison.
func newAuditor(ctx context.Context, verb string, cfg *config.Config, opts AuditOptions) (*auditor, error) {
	a := &auditor{verb: verb, opts: opts, notes: &notes{to: opts.Notes}, rows: audit.Rows{Group: audit.MostGroup}, result: &Audit{
		Since: opts.Since, Until: opts.Until, Topics: []MissingTopic{}, Events: []MissingEvent{}, Limits: []string{},
		Order: map[string]string{},
	}}
	a.asked = setOf(opts.IDs)
	if err := a.open(ctx, cfg); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (a *auditor) open(ctx context.Context, cfg *config.Config) (err error) {
	switch {
	case len(cfg.Source.Tables) == 0:
		return noTable(a.verb, "nothing but the log has them")
	case cfg.Sink.Kafka == nil:
		return failure.Configf("set sink.kafka", "%s compares the outbox with Kafka, and the sink is stdout", a.verb)
	}
	unheaded := *cfg // the position of a row is known from the log only
	unheaded.Event.PositionHeaders = false
	if a.session, err = open(ctx, &unheaded); err != nil {
		return err
	}
	if err = a.primary(ctx); err != nil {
		return err
	}
	a.cluster = newCluster(cfg)
	if err = a.cluster.connect(ctx); err != nil {
		a.cluster = nil
		return err
	}
	if err = a.fixXIDs(ctx); err != nil {
		return err
	}
	if err = a.readTables(ctx); err != nil {
		return err
	}
	if a.ids, err = audit.New(a.opts.Dir); err != nil {
		return err
	}
	a.rows.Conn, a.rows.Router, a.rows.Audit = a.conn, a.router, a.ids
	if cfg.Errors.OnBadEvent == transform.BadEventDeadLetter {
		a.rows.DeadLetters = cfg.Errors.DeadLetterTopic
	}
	return nil
}

func (a *auditor) close() {
	a.held.Release()
	if a.ids != nil {
		a.ids.Close()
	}
	if a.cluster != nil {
		a.cluster.client.Close()
	}
	if a.session != nil {
		a.session.close()
	}
}

// readTables finds out how each table is read.
func (a *auditor) readTables(ctx context.Context) error {
	if !a.polls() {
		if err := a.published(ctx); err != nil {
			return err
		}
	}
	if err := a.configured(a.opts.Tables); err != nil {
		return err
	}
	for _, name := range a.cfg.Source.Tables {
		if len(a.opts.Tables) > 0 && !slices.Contains(a.opts.Tables, name) {
			continue
		}
		if err := a.mayRead(ctx, name, a.verb+" reads the rows"); err != nil {
			return err
		}
		t, err := a.readTable(ctx, name)
		if err != nil {
			return err
		}
		a.tables = append(a.tables, t)
		a.result.Tables = append(a.result.Tables, name.String())
		a.result.Order[name.String()] = t.Order.By
	}
	return nil
}

// published returns why rows would not be published as they are, as by a row filter.
func (a *auditor) published(ctx context.Context) error {
	var v catalog.View
	if err := v.ReadPublication(ctx, a.conn, a.source()); err != nil || v.Publication == nil {
		return err
	}
	return v.Unfit()
}

func (a *auditor) readTable(ctx context.Context, name pg.Table) (*auditedTable, error) {
	t := &auditedTable{}
	var rel *pg.Relation
	var polled *poll.Table
	if a.polls() {
		var err error
		if polled, err = a.readPolled(ctx, name); err != nil {
			return nil, err
		}
		if len(polled.Marked()) == 0 {
			return nil, failure.Configf("compare with the application's own data", "table %s keeps no published rows (source.poll.after_publish: delete), so nothing can be compared", name)
		}
		rel, t.waits = polled.Relation, polled.Condition()
	} else {
		sent, ok, err := catalog.ReadSent(ctx, a.conn, name, a.cfg.Source.Publication)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, catalog.Missing(ctx, a.conn, name)
		}
		rel = sent
	}
	var err error
	times := []string{a.cfg.Retention.Column, a.cfg.Event.Timestamp}
	if t.Table, err = audit.ReadTable(ctx, a.conn, a.router, rel, times, len(a.cfg.Source.Tables) > 1); err != nil {
		return nil, err
	}
	if polled != nil {
		t.Order.Prefer(t.Relation, polled.Order.Columns)
	}
	if t.chosen, err = a.chosen(t); err == nil && a.opts.Where != "" {
		err = a.bounded(ctx, t)
	}
	return t, err
}

// chosen are the conditions of the rows that are looked at. A row without a time
// is one of any time.
func (a *auditor) chosen(t *auditedTable) (and []string, err error) {
	for i, texts := range [][]string{a.opts.IDs, a.opts.Keys} {
		if len(texts) == 0 {
			continue
		}
		literals := make([]string, len(texts))
		for i, text := range texts {
			if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				return nil, failure.Configf("write it as the record has it", "%q is no text that PostgreSQL could have", text)
			}
			literals[i] = pgsql.Literal(text)
		}
		and = append(and, pgsql.Name(t.Identity[i])+"::text IN ("+strings.Join(literals, ", ")+")")
	}
	if a.xids != (XIDs{}) {
		and = append(and, a.xids.where())
	}
	if a.opts.marked != nil {
		and = append(and, a.opts.marked.rows)
	}
	for _, bound := range []struct {
		at time.Time
		is string
	}{{a.opts.Since, " >= "}, {a.opts.Until, " < "}} {
		if bound.at.IsZero() {
			continue
		}
		if t.Time == "" {
			return nil, failure.Configf("leave out --since and --until, or name the column in retention.column",
				"table %s has no column with the time of a row", t.Name)
		}
		column := pgsql.Name(t.Time)
		and = append(and, "("+column+bound.is+"timestamptz "+pgsql.Literal(bound.at.UTC().Format(time.RFC3339Nano))+
			" OR "+column+" IS NULL OR NOT isfinite("+column+"))")
	}
	return and, nil
}
