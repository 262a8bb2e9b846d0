package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Publication is what a publication publishes.
type Publication struct {
	OID       uint32
	Name      string
	Owner     string
	AllTables bool
	Insert    bool
	Update    bool
	Delete    bool
	Truncate  bool
	// ViaRoot is publish_via_partition_root.
	ViaRoot bool
	// GeneratedStored is publish_generated_columns = stored (18).
	GeneratedStored bool

	Tables  []PublishedTable
	Schemas []PublishedSchema // 15: FOR TABLES IN SCHEMA
	// Excepted are the tables that FOR ALL TABLES EXCEPT leaves out (19).
	Excepted []ExceptedTable
}

// PublishedTable is a table put into a publication by name.
type PublishedTable struct {
	pg.Table
	RelID uint32
	// MemberOID is the membership's own OID in pg_publication_rel: a table that
	// is removed and added again has another.
	MemberOID uint32
	RowFilter string   // 15; "" for none
	Columns   []string // 15; nil for all
}

// ExceptedTable is a table left out of a publication of all tables, with the
// partitions that go with it.
type ExceptedTable struct {
	pg.Table
	Partitions []pg.Table
}

// PublishedSchema is a schema all of whose tables are published.
type PublishedSchema struct {
	Name      string
	MemberOID uint32 // in pg_publication_namespace
}

// ReadPublication reads a publication as it was at a single time; ok is false
// where there is none.
func ReadPublication(ctx context.Context, conn *pgx.Conn, name string) (p Publication, ok bool, err error) {
	err = conn.QueryRow(ctx, publicationSQL(conn), name).Scan(&p.OID, &p.Name, &p.Owner, &p.AllTables,
		&p.Insert, &p.Update, &p.Delete, &p.Truncate, &p.ViaRoot, &p.GeneratedStored, &p.Tables, &p.Schemas, &p.Excepted)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Publication{}, false, nil
	case err != nil:
		return Publication{}, false, fmt.Errorf("read publication %q: %w", name, err)
	}
	return p, true, nil
}

// publicationSQL reads a publication in a single statement, and so a single
// snapshot: otherwise a membership that ended and one that came later would
// look as if they had been there together.
func publicationSQL(conn *pgx.Conn) string {
	filters, schemas, members, excepted := ``, `'[]'::jsonb`, ``, `'[]'::jsonb`
	if majorVersion(conn) >= 15 {
		filters = `,
		         'RowFilter', COALESCE(pg_get_expr(pr.prqual, pr.prrelid), ''),
		         'Columns', (SELECT jsonb_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
		                      WHERE a.attrelid = pr.prrelid AND a.attnum = ANY (pr.prattrs::int2[]))`
		schemas = `(SELECT COALESCE(jsonb_agg(jsonb_build_object('Name', n.nspname::text, 'MemberOID', pn.oid::int8)
		                                       ORDER BY n.nspname::text), '[]')
		          FROM pg_publication_namespace pn JOIN pg_namespace n ON n.oid = pn.pnnspid
		         WHERE pn.pnpubid = p.oid)`
	}
	if majorVersion(conn) >= 19 {
		members = ` AND NOT pr.prexcept`
		excepted = `(SELECT COALESCE(jsonb_agg(jsonb_build_object('Schema', n.nspname::text, 'Name', c.relname::text,
		           'Partitions', (SELECT jsonb_agg(jsonb_build_object('Schema', pn.nspname::text, 'Name', pc.relname::text))
		                            FROM pg_partition_tree(c.oid) t JOIN pg_class pc ON pc.oid = t.relid
		                            JOIN pg_namespace pn ON pn.oid = pc.relnamespace WHERE pc.oid <> c.oid))
		                                              ORDER BY n.nspname::text, c.relname::text), '[]')
		          FROM pg_publication_rel pr
		          JOIN pg_class c ON c.oid = pr.prrelid
		          JOIN pg_namespace n ON n.oid = c.relnamespace
		         WHERE pr.prpubid = p.oid AND pr.prexcept)`
	}
	return `
		SELECT p.oid, p.pubname::text, pg_get_userbyid(p.pubowner)::text, p.puballtables,
		       p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot, COALESCE(to_jsonb(p)->>'pubgencols' = 's', false),
		       (SELECT COALESCE(jsonb_agg(jsonb_build_object(
		         'Schema', n.nspname::text, 'Name', c.relname::text,
		         'RelID', c.oid::int8, 'MemberOID', pr.oid::int8` + filters + `)
		                                  ORDER BY n.nspname::text, c.relname::text), '[]')
		          FROM pg_publication_rel pr
		          JOIN pg_class c ON c.oid = pr.prrelid
		          JOIN pg_namespace n ON n.oid = c.relnamespace
		         WHERE pr.prpubid = p.oid` + members + `),
		       ` + schemas + `,
		       ` + excepted + `
		  FROM pg_publication p WHERE p.pubname = $1`
}

// majorVersion is the server's, as told when a connection is opened: "15.4
// (Debian 15.4-2)", "18beta1".
func majorVersion(conn *pgx.Conn) int {
	version := conn.PgConn().ParameterStatus("server_version")
	digits := strings.IndexFunc(version+" ", func(r rune) bool { return r < '0' || r > '9' })
	major, _ := strconv.Atoi(version[:digits])
	return major
}

// Publishes reports whether the table is published, by name, schema or all.
func (p Publication) Publishes(t pg.Table) bool { return len(p.memberships(t)) > 0 }

// excepts reports whether the table is left out of all tables.
func (p Publication) excepts(t pg.Table) bool {
	return slices.ContainsFunc(p.Excepted, func(e ExceptedTable) bool { return e.Table == t || slices.Contains(e.Partitions, t) })
}

// exceptions is the EXCEPT clause that leaves out what is left out now, except
// the given table; "" for none.
func (p Publication) exceptions(but pg.Table) string {
	var names []string
	for _, e := range p.Excepted {
		if e.Table != but && !slices.Contains(e.Partitions, but) {
			names = append(names, "TABLE "+e.Quoted())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " EXCEPT (" + strings.Join(names, ", ") + ")"
}

// ColumnList returns the columns of a table published, or nil for all.
func (p Publication) ColumnList(t pg.Table) []string {
	m, _ := p.table(t)
	return m.Columns
}

// inSchema reports whether the table's schema is published. Row filters of its
// tables then have no effect (pgoutput.c, pgoutput_row_filter_init).
func (p Publication) inSchema(t pg.Table) bool {
	return slices.ContainsFunc(p.Schemas, func(s PublishedSchema) bool { return s.Name == t.Schema })
}

func (p Publication) table(t pg.Table) (PublishedTable, bool) {
	i := slices.IndexFunc(p.Tables, func(m PublishedTable) bool { return m.Table == t })
	if i < 0 {
		return PublishedTable{}, false
	}
	return p.Tables[i], true
}

// Operations are the published operations, as the option names them.
func (p Publication) Operations() (list []string) {
	for _, o := range []struct {
		name string
		on   bool
	}{{"insert", p.Insert}, {"update", p.Update}, {"delete", p.Delete}, {"truncate", p.Truncate}} {
		if o.on {
			list = append(list, o.name)
		}
	}
	return list
}

// mostNamed is how many tables a message names.
const mostNamed = 10

// WithoutIdentity names tables, except those given, whose published updates or
// deletes PostgreSQL refuses (ReplicaIdentity).
func WithoutIdentity(ctx context.Context, conn *pgx.Conn, p Publication, except []pg.Table) ([]string, error) {
	if !p.Update && !p.Delete {
		return nil, nil
	}
	names := make([]string, len(except))
	for i, t := range except {
		names[i] = t.Quoted()
	}
	rows, err := conn.Query(ctx, `
		SELECT format('%I.%I', n.nspname, c.relname)
		  FROM pg_publication_tables t
		  JOIN pg_namespace n ON n.nspname = t.schemaname
		  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
		 WHERE t.pubname = $1 AND c.oid <> ALL (SELECT to_regclass(e) FROM unnest($2::text[]) e WHERE to_regclass(e) IS NOT NULL)
		   AND NOT `+hasIdentity+`
		 ORDER BY 1 LIMIT $3`, p.Name, names, mostNamed)
	if err == nil {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return nil, fmt.Errorf("read the tables of publication %q: %w", p.Name, err)
	}
	return names, nil
}

// OtherSlots are the database's other logical slots, which may read the same
// publications. A slot does not tell which ones it reads.
func OtherSlots(ctx context.Context, conn *pgx.Conn, name string) ([]string, error) {
	rows, err := conn.Query(ctx, `
		SELECT slot_name::text FROM pg_replication_slots
		 WHERE database = current_database() AND plugin = $1 AND slot_name <> $2 AND NOT temporary ORDER BY 1`, Plugin, name)
	var slots []string
	if err == nil {
		slots, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return nil, fmt.Errorf("read the slots of the database: %w", err)
	}
	return slots, nil
}

// Beyond lists the publication's content beside the tables, or "".
func (p Publication) Beyond(tables []pg.Table) string {
	var others []string
	for _, s := range p.Schemas {
		others = append(others, "all tables in schema "+s.Name)
	}
	for _, m := range p.Tables {
		if !slices.Contains(tables, m.Table) {
			others = append(others, m.Table.String())
		}
	}
	if p.AllTables {
		return "all tables"
	}
	return strings.Join(others[:min(len(others), mostNamed)], ", ")
}

// CreatePublication creates a publication of the tables' inserts, and of their
// updates, so that an UPDATE of an event can be reported. Where a table is
// partitioned it has their deletions, too: a row moving to another partition is
// deleted and inserted, and the deletion tells it from a new one. Where a table
// has no replica identity both are left out: PostgreSQL would refuse them to
// the application.
func CreatePublication(ctx context.Context, conn *pgx.Conn, name string, tables []TableInfo) error {
	_, err := conn.Exec(ctx, CreatePublicationSQL(name, tables))
	if err != nil {
		return fmt.Errorf("create publication %q: %w", name, ClassifyPublicationError(err))
	}
	return nil
}

// CreatePublicationSQL is the statement that CreatePublication runs. Without
// tables the publication is empty: logical messages do not need it, but the
// stream must name one.
func CreatePublicationSQL(name string, tables []TableInfo) string {
	names := make([]string, len(tables))
	operations, viaRoot := "insert, update", ""
	for i, t := range tables {
		names[i] = t.Quoted()
		if t.Partitioned {
			operations, viaRoot = "insert, update, delete", ", publish_via_partition_root = true"
		}
	}
	if slices.ContainsFunc(tables, func(t TableInfo) bool { return !t.ReplicaIdentity }) {
		operations = "insert"
	}
	forTables := ""
	if len(names) > 0 {
		forTables = " FOR TABLE " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("CREATE PUBLICATION %s%s WITH (publish = '%s'%s)",
		pgsql.Name(name), forTables, operations, viaRoot)
}

// ClassifyPublicationError adds class and remedy to the errors of a
// publication's creation or change only an operator can fix.
func ClassifyPublicationError(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	var remedy string
	switch pg.Code {
	case pgerrcode.LockNotAvailable: // CREATE INDEX, VACUUM, ALTER TABLE
		if pg.Hint != "" { // EnsurePublicationSQL
			return &failure.Error{Class: failure.Transient, Err: err, Remedy: pg.Hint}
		}
		return &failure.Error{Class: failure.Transient, Err: err, Remedy: "wait for who holds a lock on a table of the publication " +
			"(SELECT * FROM pg_locks WHERE relation = '…'::regclass), or end it; lock_timeout in source.url sets how long we wait"}
	case pgerrcode.InsufficientPrivilege: // CREATE on the database, or not the tables' owner
		remedy = "let the tables' owner create it: cdc-outbox setup --print prints the SQL"
	case pgerrcode.UndefinedTable:
		remedy = "create the table: cdc-outbox setup"
	case pgerrcode.DuplicateObject:
		remedy = "another session created the publication at the same time: run again"
	case pgerrcode.ObjectNotInPrerequisiteState: // EnsurePublicationSQL
		remedy = pg.Hint
	case pgerrcode.InvalidParameterValue: // unlogged, temporary, system and foreign tables, views
		remedy = "only ordinary and partitioned, permanent, logged tables can be published; ALTER TABLE … SET LOGGED"
	default:
		return err
	}
	return &failure.Error{Class: failure.Config, Remedy: remedy, Err: err}
}
