package poll_test

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// TestTriggerThatUndoesMarksIsFound: rows would be published for ever.
func TestTriggerThatUndoesMarksIsFound(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex,
		`CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$`,
		`CREATE TRIGGER no BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION no()`)
	w.insert(w.conn, "k0", 0)
	if err := w.start(nil).end(); failure.ClassOf(err) != failure.Config || !strings.Contains(err.Error(), "0 of 1") {
		t.Errorf("Run = %v, want a configuration error", err)
	}
}

// TestMarkThatFailsEachTimeEndsIt: rows would be published for ever, at the pace
// of reconnects.
func TestMarkThatFailsEachTimeEndsIt(t *testing.T) {
	for name, ddl := range map[string][]string{
		"trigger": {`CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'outbox rows are immutable'; END $$`,
			`CREATE TRIGGER no BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION no()`},
		"replica identity": {`ALTER TABLE outbox DROP CONSTRAINT outbox_pkey`, `CREATE PUBLICATION everything FOR TABLE outbox`},
		"constraint":       {`ALTER TABLE outbox ADD CHECK (published_at IS NULL)`},
		"trigger that needs another search path": {`CREATE TABLE changes (outbox_id bigint)`,
			`CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO changes VALUES (NEW.id); RETURN NEW; END $$`,
			`CREATE TRIGGER log BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION log()`},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			w := newWorld(t, nil, append([]string{serialOutbox, serialIndex}, ddl...)...)
			w.insert(w.conn, "k0", 0)
			if err := w.start(nil).end(); failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) == "" {
				t.Errorf("Run = %v, want a configuration error", err)
			}
			if got := len(w.topic.all()); got != 1 {
				t.Errorf("published %d times", got)
			}
		})
	}
}

// TestRoleWithTheLeastPrivileges runs as a role with the grants named by poll, and with one
// grant less.
func TestRoleWithTheLeastPrivileges(t *testing.T) {
	for name, change := range map[string]func(*poll.Parts){
		"mark":   func(*poll.Parts) {},
		"delete": func(c *poll.Parts) { c.AfterPublish = poll.AfterPublishDelete },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, serialOutbox, serialIndex)
			change(&w.parts)
			role := "poller_" + name
			w.exec(w.conn, "CREATE ROLE "+role+" LOGIN PASSWORD 'x'", "REVOKE ALL ON SCHEMA public FROM public")
			t.Cleanup(func() { w.exec(w.conn, "DROP OWNED BY "+role, "DROP ROLE "+role) })
			grants := w.table().Grants(role)
			w.exec(w.conn, grants...)
			w.as(role)
			w.insert(w.conn, "k0", 0)
			in := w.start(nil)
			w.published(1)
			must.OK(t, in.stop())
			w.exec(w.conn, "REVOKE UPDATE ON outbox FROM "+role, "REVOKE ALL ON outbox FROM "+role, "GRANT SELECT ON outbox TO "+role)
			w.insert(w.conn, "k0", 1)
			err := w.start(nil).end()
			if failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), w.table().Grants(role)[1]+";") {
				t.Errorf("Run = %v, remedy %q; want the grants", err, failure.RemedyOf(err))
			}
		})
	}
}

// TestRowLevelSecurityIsFound: the policies would hide events.
func TestRowLevelSecurityIsFound(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, serialIndex, `CREATE POLICY one ON outbox USING (aggregate_id <> 'hidden')`)
	w.exec(w.conn, "CREATE ROLE poller_rls LOGIN PASSWORD 'x'")
	t.Cleanup(func() { w.exec(w.conn, "DROP OWNED BY poller_rls", "DROP ROLE poller_rls") })
	w.exec(w.conn, w.table().Grants("poller_rls")...)
	w.exec(w.conn, "ALTER TABLE outbox ENABLE ROW LEVEL SECURITY")
	w.insert(w.conn, "k0", 0)
	w.as("poller_rls")
	if err := w.start(nil).end(); failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), "BYPASSRLS") {
		t.Errorf("Run = %v, remedy %q", err, failure.RemedyOf(err))
	}
}

// as changes the role of instances.
func (w *world) as(role string) {
	u := must.Get(url.Parse(w.parts.URL))(w.t)
	u.User = url.UserPassword(role, "x")
	w.parts.URL = u.String()
}

// table reads the outbox as polling does.
func (w *world) table() *poll.Table {
	w.t.Helper()
	return w.read(pg.Table{Schema: "public", Name: "outbox"})
}

func (w *world) read(name pg.Table) *poll.Table {
	w.t.Helper()
	return must.Get(w.readTable(name))(w.t)
}

func (w *world) readTable(name pg.Table) (*poll.Table, error) {
	w.t.Helper()
	router := must.Get(transform.New(w.parts.Event, w.parts.Route))(w.t)
	conn := must.Get(catalog.ConnectPooled(w.ctx(), w.parts.URL))(w.t)
	defer func(conn *pgx.Conn) { _ = conn.Close(context.Background()) }(conn)
	return poll.ReadTable(w.ctx(), conn, w.parts.Options, w.parts.Event, router, name)
}

const rest = `, aggregate_type text, aggregate_id text, event_type text, payload text`

func TestReadTable(t *testing.T) {
	flag := rest + `, published boolean NOT NULL DEFAULT false`
	for _, tt := range []struct {
		name, ddl, index string
		order            []string
		kind             poll.OrderKind
		found            bool
		sql              string
		warnings         int // of MissingIndex, DoubtfulOrder, a nullable flag and no time
	}{
		{"serial", `id bigserial PRIMARY KEY` + flag + `, created_at timestamptz`, `(id) WHERE NOT published`, []string{"id"}, poll.OrderSequence, true, "", 0},
		{"serial by the time", `id bigserial PRIMARY KEY` + flag + `, created_at timestamptz DEFAULT now()`, `(created_at) WHERE NOT published`, []string{"id"}, poll.OrderSequence, false,
			`("id") WHERE NOT "published"`, 1},
		{"identity with a cache", `id bigint GENERATED ALWAYS AS IDENTITY (CACHE 20) PRIMARY KEY` + flag + `, created_at timestamptz`, `(id) WHERE NOT published`, []string{"id"}, poll.OrderBlocks, true, "", 1},
		{"uuid", `id uuid` + flag + `, created_at timestamptz DEFAULT CURRENT_TIMESTAMP`, `(created_at) WHERE published = false`, []string{"created_at"}, poll.OrderTransactionTime, true, "", 1},
		{"uuid and clock", `id uuid` + flag + `, created_at timestamptz DEFAULT clock_timestamp()`, `(created_at, id) WHERE published IS FALSE`, []string{"created_at"}, poll.OrderInsertTime, true, "", 0},
		{"uuid and sequence", `id uuid, pos bigint GENERATED ALWAYS AS IDENTITY` + flag, `(pos)`, []string{"pos"}, poll.OrderSequence, false, `("pos") WHERE NOT "published"`, 2},
		{"application's time", `id uuid` + rest + `, published boolean, created_at timestamptz`, `(created_at) WHERE published IS NOT TRUE`, []string{"created_at"}, poll.OrderUnknown, true, "", 1},
		{"nullable flag", `id bigserial` + rest + `, published boolean, created_at timestamptz`, `(id) WHERE published = false`, []string{"id"}, poll.OrderSequence, true, "", 1},
		{"only a time of publishing", `id bigserial` + rest + `, published_at timestamptz`, `(id) WHERE published_at IS NULL`, []string{"id"}, poll.OrderSequence, true, "", 1},
		{"descending", `id bigserial` + flag + `, created_at timestamptz`, `(id DESC) WHERE NOT published`, []string{"id"}, poll.OrderSequence, false, `("id") WHERE NOT "published"`, 1},
		{"other condition", `id bigserial` + flag + `, created_at timestamptz`, `(id) WHERE NOT published AND id > 7`, []string{"id"}, poll.OrderSequence, false, `("id") WHERE NOT "published"`, 1},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			w := newWorld(t, nil, "CREATE TABLE outbox ("+tt.ddl+")", "CREATE INDEX given ON outbox "+tt.index)
			got := w.table()
			if !slices.Equal(got.Order.Columns, tt.order) || got.Order.Kind != tt.kind || (got.Index == "given") != tt.found {
				t.Errorf("order %v, index %q", got.Order, got.Index)
			}
			if !tt.found {
				if !strings.HasSuffix(got.IndexSQL(), tt.sql) {
					t.Errorf("index to create: %s", got.IndexSQL())
				}
				w.exec(w.conn, got.IndexSQL())
				if now := w.table(); now.Index == "" {
					t.Errorf("%s does not help", got.IndexSQL())
				}
			}
			if n := len(got.Warnings()); n != tt.warnings {
				t.Errorf("%d warnings, want %d: %v", n, tt.warnings, got.Warnings())
			}
		})
	}
}

// TestTimeWithoutAZone has a server with another time zone than UTC: rows would seem to be
// of the future, and the age of the oldest would be 0 for hours.
func TestTimeWithoutAZone(t *testing.T) {
	for def, warns := range map[string]bool{"now()": true, "clock_timestamp()": true, "LOCALTIMESTAMP": true, "(now() AT TIME ZONE 'utc')": false} {
		w := newWorld(t, nil, strings.Replace(serialOutbox, "timestamptz NOT NULL DEFAULT now()", "timestamp NOT NULL DEFAULT "+def, 1), serialIndex,
			`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = "Asia/Kolkata"', current_database()); END $$`)
		all := w.table().Warnings()
		if (len(all) > 0) != warns {
			t.Errorf("DEFAULT %s: warnings %v", def, all)
		}
		if len(all) != 1 {
			continue
		}
		if !strings.Contains(all[0].Error(), "Asia/Kolkata") {
			t.Error(all[0])
		}
		remedy, _, _ := strings.Cut(failure.RemedyOf(all[0]), " (")
		w.exec(w.conn, remedy)
		if all := w.table().Warnings(); len(all) > 0 {
			t.Errorf("after %s: %v", remedy, all)
		}
	}
}

// TestSequenceOfBlocks has a sequence of Hibernate's kind.
func TestSequenceOfBlocks(t *testing.T) {
	w := newWorld(t, nil, `CREATE SEQUENCE "Seq" INCREMENT 50`, strings.Replace(serialOutbox, "bigserial", `bigint DEFAULT nextval('"Seq"')`, 1), serialIndex)
	err := w.table().DoubtfulOrder()
	remedy, _, _ := strings.Cut(failure.RemedyOf(err), " (first")
	if err == nil || !strings.Contains(remedy, `"Seq"`) {
		t.Fatalf("DoubtfulOrder = %v, remedy %q", err, remedy)
	}
	w.exec(w.conn, remedy)
	if err := w.table().DoubtfulOrder(); err != nil {
		t.Errorf("after %s: %v", remedy, err)
	}
}

// TestRemediesWork carries out the remedies of a doubtful order.
func TestRemediesWork(t *testing.T) {
	for _, ddl := range []string{strings.Replace(uuidOutbox, "clock_timestamp()", "now()", 1), strings.Replace(uuidOutbox, " DEFAULT clock_timestamp()", "", 1)} {
		w := newWorld(t, nil, ddl)
		remedy, _, _ := strings.Cut(failure.RemedyOf(w.table().DoubtfulOrder()), " (rewrites")
		w.exec(w.conn, strings.TrimPrefix(remedy, "let a sequence fill it: "))
		if err := w.table().DoubtfulOrder(); err != nil {
			t.Errorf("after %s: %v", remedy, err)
		}
	}
}

func TestConfiguredColumns(t *testing.T) {
	w := newWorld(t, nil, `CREATE TABLE outbox (id uuid`+rest+`, sent bool NOT NULL DEFAULT false, sent_on timestamptz, rank int, part int)`)
	w.parts.Published, w.parts.PublishedAt = "sent", "sent_on"
	w.parts.OrderBy = []string{"rank", "part"}
	w.exec(w.conn, `INSERT INTO outbox SELECT gen_random_uuid(), 'order', 'k0', 'Placed', n::text, false, NULL, 5 - n / 2, n FROM generate_series(0, 9) n`)
	in := w.start(nil)
	w.await("the events", func() bool { return w.count("sent AND sent_on IS NOT NULL") == 10 })
	must.OK(t, in.stop())
	if got := w.topic.values("k0"); !slices.Equal(got, []string{"8", "9", "6", "7", "4", "5", "2", "3", "0", "1"}) {
		t.Errorf("published %v", got)
	}
	w.parts.OrderBy = []string{"rnk"}
	if _, err := w.readTable(pg.Table{Schema: "public", Name: "outbox"}); failure.ClassOf(err) != failure.Config {
		t.Errorf("an unknown column in order_by: %v", err)
	}
}

// TestIndexNameThatIsTaken has another table's index, and an index of ours for another
// purpose, under the first names.
func TestIndexNameThatIsTaken(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, `CREATE TABLE other (n int)`, `CREATE INDEX outbox_unpublished_idx ON other (n)`,
		`CREATE INDEX outbox_unpublished_idx2 ON outbox (created_at) WHERE NOT published`)
	sql := w.table().IndexSQL()
	w.exec(w.conn, sql)
	if got := w.table(); got.Index != "outbox_unpublished_idx3" {
		t.Errorf("after %s there is %q", sql, got.Index)
	}
}

// TestIndexWhoseCreationFailed leaves an index as CREATE INDEX CONCURRENTLY does.
func TestIndexWhoseCreationFailed(t *testing.T) {
	w := newWorld(t, nil, strings.Replace(serialOutbox, " PRIMARY KEY", "", 1))
	w.exec(w.conn, `INSERT INTO outbox (id, aggregate_type) VALUES (1, 'order'), (1, 'order')`)
	if _, err := w.conn.Exec(w.ctx(), `CREATE UNIQUE INDEX CONCURRENTLY outbox_unpublished_idx ON outbox (id) WHERE NOT published`); err == nil {
		t.Fatal("the index is valid: nothing is tested")
	}
	got := w.table()
	if !got.Building() {
		t.Error("it is not found")
	}
	_, remedy, _ := strings.Cut(failure.RemedyOf(got.MissingIndex()), "else: ")
	for _, sql := range strings.Split(strings.TrimSuffix(remedy, ";"), "; ") {
		w.exec(w.conn, sql)
	}
	if got := w.table(); got.Index == "" || got.Building() {
		t.Errorf("%s does not help", remedy)
	}
}

func TestNamesAreCutBetweenCharacters(t *testing.T) {
	w := newWorld(t, nil, serialOutbox)
	made := poll.NewTable(w.parts.Options, pg.Table{Schema: "public", Name: "o" + strings.Repeat("ä", 31)})
	for _, sql := range append(made.NotifySQL("cdc_outbox"), made.IndexSQL()) {
		if !utf8.ValidString(sql) {
			t.Errorf("%q", sql)
		}
	}
}
