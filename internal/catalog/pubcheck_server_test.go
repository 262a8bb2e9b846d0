package catalog

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// The server is the judge: a table is refused if, and only if, rows seen there
// do not arrive under its name.
func TestRefusedIsWhatDoesNotArrive(t *testing.T) {
	const (
		plain          = `CREATE TABLE outbox (id int, note text)`
		partitioned    = `CREATE TABLE outbox (id int, note text) PARTITION BY LIST (id)`
		root           = `CREATE TABLE events (id int, note text) PARTITION BY LIST (id)`
		ofRoot         = `CREATE TABLE outbox PARTITION OF events DEFAULT`
		logged         = `CREATE TABLE part PARTITION OF outbox DEFAULT`
		unlogged       = `CREATE UNLOGGED TABLE part PARTITION OF outbox DEFAULT`
		all            = `CREATE PUBLICATION p FOR ALL TABLES WITH (publish = 'insert')`
		allViaRoot     = `CREATE PUBLICATION p FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)`
		schema         = `CREATE PUBLICATION p FOR TABLES IN SCHEMA public WITH (publish = 'insert')`
		schemaRoot     = `CREATE PUBLICATION p FOR TABLES IN SCHEMA public WITH (publish = 'insert', publish_via_partition_root = true)`
		table          = `CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'insert')`
		tableRoot      = `CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`
		insert         = `INSERT INTO outbox VALUES (1, 'x')`
		unloggedRoot   = `CREATE UNLOGGED TABLE outbox (id int, note text) PARTITION BY LIST (id)`
		unloggedMiddle = `CREATE UNLOGGED TABLE middle PARTITION OF outbox DEFAULT PARTITION BY LIST (id)`
		cannot         = "table public.outbox cannot be published"
	)
	except := func(what string) string {
		return `CREATE PUBLICATION p FOR ALL TABLES EXCEPT (` + what + `) WITH (publish = 'insert', publish_via_partition_root = true)`
	}
	foreign := []string{`CREATE FOREIGN DATA WRAPPER nothing`, `CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing`}
	for _, tt := range []struct {
		name   string
		since  int // the oldest version with the fault; of those before 18 only, with a minus
		setup  []string
		insert string // "": rows cannot be inserted here
		says   string // of the refusal; "" for none
	}{
		{"table of all", 14, []string{plain, all}, insert, ""},
		{"table of a schema", 15, []string{plain, schema}, insert, ""},
		{"unlogged, of all", 14, []string{`CREATE UNLOGGED TABLE outbox (id int, note text)`, all}, insert, cannot},
		{"unlogged, of a schema", 15, []string{`CREATE UNLOGGED TABLE outbox (id int, note text)`, schema}, insert, cannot},
		{"made unlogged, of all", 14, []string{plain, all, `ALTER TABLE outbox SET UNLOGGED`}, insert, cannot},
		{"made unlogged, of a schema", 15, []string{plain, schema, `ALTER TABLE outbox SET UNLOGGED`}, insert, cannot},
		{"view", 14, []string{`CREATE TABLE base (id int, note text)`, `CREATE VIEW outbox AS SELECT * FROM base`, all}, insert, cannot},
		{"view in the table's place", 15, []string{plain, schema, `ALTER TABLE outbox RENAME TO base`,
			`CREATE VIEW outbox AS SELECT * FROM base`}, insert, cannot},
		{"materialized view", 14, []string{`CREATE MATERIALIZED VIEW outbox AS SELECT 1 AS id`, all}, "", cannot},
		{"foreign table", 14, append(foreign, `CREATE FOREIGN TABLE outbox (id int, note text) SERVER nowhere`, all), "", cannot},

		{"partitioned, of all", 14, []string{partitioned, logged, all}, insert, "under the partitions' names"},
		{"partitioned, of all by its root", 14, []string{partitioned, logged, allViaRoot}, insert, ""},
		{"partitioned, by its root", 14, []string{partitioned, logged, tableRoot}, insert, ""},
		{"unlogged partition", 14, []string{partitioned, unlogged, tableRoot}, insert, "partition public.part of table public.outbox"},
		{"unlogged partition, of all", 14, []string{partitioned, unlogged, allViaRoot}, insert, "partition public.part of table public.outbox"},
		{"partition made unlogged", 14, []string{partitioned, logged, tableRoot, `ALTER TABLE part SET UNLOGGED`}, insert, "partition public.part"},
		{"unlogged partition further down", 14, []string{partitioned, `CREATE TABLE middle PARTITION OF outbox DEFAULT PARTITION BY LIST (id)`,
			`CREATE UNLOGGED TABLE "Low er" PARTITION OF middle DEFAULT`, tableRoot}, insert, `partition public."Low er"`},
		{"foreign partition", 14, append(foreign, partitioned, `CREATE FOREIGN TABLE part PARTITION OF outbox DEFAULT SERVER nowhere`, tableRoot),
			"", "partition public.part"},

		// Before 18 a partitioned table can be made unlogged, without a meaning for
		// its partitions, and no ALTER TABLE undoes the change.
		{"logged partition of an unlogged table", -14, []string{unloggedRoot, logged, allViaRoot}, insert, ""},
		{"unlogged partition of an unlogged table", -14, []string{unloggedRoot, unlogged, allViaRoot}, insert, "partition public.part"},
		{"logged partition further down", -14, []string{partitioned, unloggedMiddle, `CREATE TABLE part PARTITION OF middle DEFAULT`, allViaRoot}, insert, ""},
		{"unlogged partition of an unlogged one", -14, []string{partitioned, unloggedMiddle, `CREATE UNLOGGED TABLE part PARTITION OF middle DEFAULT`, allViaRoot},
			insert, "partition public.part"},

		{"partition, of all", 14, []string{root, ofRoot, all}, insert, ""},
		{"partition, of all by its root", 14, []string{root, ofRoot, allViaRoot}, insert, "under the name of public.events"},
		{"partition, of a schema by its root", 15, []string{root, ofRoot, schemaRoot}, insert, "under the name of public.events"},
		{"partition whose root is in another schema", 15, []string{`CREATE SCHEMA app`,
			`CREATE TABLE app.events (id int, note text) PARTITION BY LIST (id)`, `CREATE TABLE outbox PARTITION OF app.events DEFAULT`,
			schemaRoot}, insert, ""},
		{"partition beside its root", 14, []string{root, ofRoot,
			`CREATE PUBLICATION p FOR TABLE events, outbox WITH (publish = 'insert', publish_via_partition_root = true)`}, insert,
			"under the name of public.events"},
		{"partition without its root", 14, []string{root, ofRoot, tableRoot}, insert, ""},
		{"partition of a partition, by the topmost", 14, []string{root, `CREATE TABLE middle PARTITION OF events DEFAULT PARTITION BY LIST (id)`,
			`CREATE TABLE outbox PARTITION OF middle DEFAULT`, allViaRoot}, insert, "under the name of public.events"},
		{"partition attached later", 14, []string{plain, root, allViaRoot, `ALTER TABLE events ATTACH PARTITION outbox DEFAULT`}, insert,
			"under the name of public.events"},

		{"child", 14, []string{plain, `CREATE TABLE child () INHERITS (outbox)`, all}, `INSERT INTO child VALUES (1, 'x')`,
			"table public.child inherits from table public.outbox"},
		{"child of a member", 14, []string{plain, `CREATE TABLE child () INHERITS (outbox)`, table}, `INSERT INTO child VALUES (1, 'x')`,
			"table public.child inherits from table public.outbox"},
		{"child itself", 14, []string{`CREATE TABLE parent (id int, note text)`, `CREATE TABLE outbox () INHERITS (parent)`, all}, insert, ""},

		{"row filter", 15, []string{plain, `CREATE PUBLICATION p FOR TABLE outbox WHERE (id > 1) WITH (publish = 'insert')`}, insert, "row filter"},
		{"row filter beside the schema", 15, []string{plain,
			`CREATE PUBLICATION p FOR TABLE outbox WHERE (id > 1), TABLES IN SCHEMA public WITH (publish = 'insert')`}, insert, ""},
		{"row-level security", 14, []string{plain, all, `ALTER TABLE outbox ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY`}, insert, ""},
		{"all but the table", 19, []string{plain, except("TABLE outbox")}, insert, "is of all tables EXCEPT table public.outbox"},
		{"all but another table", 19, []string{plain, `CREATE TABLE other ()`, except("TABLE other")}, insert, ""},
		{"all but the table's root", 19, []string{root, ofRoot, except("TABLE events")}, insert, "EXCEPT table public.outbox"},
		{"partitioned, all but the table", 19, []string{partitioned, logged, except("TABLE outbox")}, insert, "EXCEPT table public.outbox"},
		{"sequences only", 19, []string{plain, `CREATE PUBLICATION p FOR ALL SEQUENCES`}, insert, "table public.outbox is not in publication"},
		{"without inserts", 14, []string{plain, `CREATE PUBLICATION p FOR ALL TABLES WITH (publish = 'update')`}, insert, "does not publish inserts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, pgtest.Shared(t).NewDatabase(t))
			needVersion(t, conn, max(tt.since, -tt.since))
			if s := must.Get(ReadServer(pgtest.Context(t), conn))(t); tt.since < 0 && s.Major() >= 18 {
				t.Skip("PostgreSQL 18 has none")
			}
			pgtest.Execute(t, conn, tt.setup...)
			wantRefusedIfLost(t, conn, tt.insert, tt.says)
		})
	}
}

// wantRefusedIfLost asserts that public.outbox is refused, saying so, if rows
// inserted do not arrive, and only then.
func wantRefusedIfLost(t *testing.T, conn *pgx.Conn, insert, says string) {
	t.Helper()
	failures := refusals(t, conn, readPublication(t, conn))
	wantOnly(t, "failures", failures, says)
	for _, err := range failures {
		wantConfig(t, err)
	}
	if insert == "" {
		return
	}
	seen, arrived := arrivals(t, conn, insert)
	if complete := arrived == seen; seen == 0 || complete != (says == "") {
		t.Errorf("%d rows are seen in the table, %d arrived; refused: %v", seen, arrived, failures)
	}
}

// A partition dropped during the reading of the catalogs is no reason to refuse
// its table: a connector starting just then would end with a loss.
func TestPartitionDroppedDuringTheLook(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	other := connect(t, url, `CREATE TABLE outbox (id int) PARTITION BY LIST (id)`, `CREATE TABLE part PARTITION OF outbox DEFAULT`,
		`CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root = true)`)
	conn := connect(t, url)
	pub := readPublication(t, conn)
	pgtest.Execute(t, conn, `BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT 1`) // the snapshot still shows the partition
	pgtest.Execute(t, other, `DROP TABLE part`)
	if failures := refusals(t, conn, pub); len(failures) > 0 {
		t.Errorf("refused: %v", failures)
	}
}

// refusals are the failures of reading public.outbox through the publication.
func refusals(t *testing.T, conn *pgx.Conn, p Publication) []error {
	t.Helper()
	v := View{Publication: &p}
	must.OK(t, v.readTables(pgtest.Context(t), conn, Source{Tables: []pg.Table{outbox},
		Needed: func(*pg.Relation) ([]string, error) { return nil, errors.New("no columns are needed") }}))
	return v.Failures
}

// arrivals inserts and returns the number of rows seen in public.outbox and the
// number arriving under the name.
func arrivals(t *testing.T, conn *pgx.Conn, insert string) (seen, arrived int) {
	t.Helper()
	pgtest.Execute(t, conn, `SELECT pg_create_logical_replication_slot('s_' || current_database(), 'pgoutput', true)`, insert)
	must.OK(t, conn.QueryRow(pgtest.Context(t), `SELECT count(*) FROM outbox`).Scan(&seen))
	rows := must.Get(conn.Query(pgtest.Context(t), `SELECT data FROM pg_logical_slot_peek_binary_changes('s_' || current_database(), NULL, NULL,
		'proto_version', '1', 'publication_names', 'p')`))(t)
	changes := must.Get(pgx.CollectRows(rows, pgx.RowTo[[]byte]))(t)
	relations := map[uint32]pg.Table{}
	for _, data := range changes {
		msg := must.Get(pglogrepl.Parse(data))(t)
		switch msg := msg.(type) {
		case *pglogrepl.RelationMessage:
			relations[msg.RelationID] = pg.Table{Schema: msg.Namespace, Name: msg.RelationName}
		case *pglogrepl.InsertMessage:
			if relations[msg.RelationID] == outbox {
				arrived++
			}
		}
	}
	return seen, arrived
}

// A missing table is a failure, and no error of the look.
func TestView(t *testing.T) {
	conn := connect(t, pgtest.Shared(t).NewDatabase(t))
	from := Source{Slot: "viewed", Publication: "p", Tables: []pg.Table{outbox},
		Needed: func(rel *pg.Relation) ([]string, error) { return []string{rel.Columns[1].Name}, nil }}
	var v View
	read := func() {
		t.Helper()
		must.OK(t, v.ReadSlot(pgtest.Context(t), conn, from))
		must.OK(t, v.ReadPublication(pgtest.Context(t), conn, from))
	}
	read()
	if v.Exists || v.Publication != nil || v.Fingerprint != "" || v.Unfit() != nil {
		t.Errorf("nothing is there, and seen is %+v", v)
	}
	lost := func(from Source, read string) error { return from.MissingPublication(pgtest.Context(t), conn, read) }
	if err := lost(from, ""); failure.ClassOf(err) != failure.Loss || !strings.Contains(failure.RemedyOf(err), AcceptGap) {
		t.Errorf("a publication that is lost: %v", err)
	}
	wantConfig(t, lost(Source{}, "")) // messages are not
	pgtest.Execute(t, conn, `CREATE PUBLICATION p FOR ALL TABLES`)
	read()
	mistyped := from
	mistyped.Publication = "pp"
	wantConfig(t, lost(mistyped, ""))
	mistyped.Publication = "another"
	wantConfig(t, lost(mistyped, v.Fingerprint))
	if err := lost(mistyped, ""); failure.ClassOf(err) != failure.Loss {
		t.Errorf("none has a name like it: %v", err)
	}
	wantOnly(t, "failures", v.Failures, "public.outbox does not exist")
	wantConfig(t, v.Unfit().(interface{ Unwrap() []error }).Unwrap()[0])
	pgtest.Execute(t, conn, `DROP PUBLICATION p`, createOutbox, `CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'insert')`,
		`SELECT pg_create_logical_replication_slot('viewed', 'pgoutput')`)
	read()
	if !v.Exists || len(v.Tables) != 1 || v.Fingerprint != v.Publication.Fingerprint(from.Tables) || v.Unfit() != nil {
		t.Errorf("all is there, and seen is %+v", v)
	}
	needVersion(t, conn, 15)
	pgtest.Execute(t, conn, `ALTER PUBLICATION p SET TABLE outbox (id)`)
	read()
	wantOnly(t, "failures", v.Failures, "that are needed: payload")
}
