package catalog

import (
	"reflect"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func TestReadColumns(t *testing.T) {
	conn := connect(t, pgtest.Shared(t).NewDatabase(t),
		`CREATE SCHEMA "Événements"`,
		`CREATE TYPE mood AS ENUM ('sad', 'happy')`,
		`CREATE DOMAIN short AS varchar(10)`,
		`CREATE DOMAIN shorter AS short CHECK (length(VALUE) < 5)`,
		`CREATE DOMAIN moody AS mood`,
		`CREATE TABLE "Événements"."Out Box" (
			gone int, "Id" uuid, payload jsonb DEFAULT '{"a": 1}', a shorter, b mood, c moody,
			d int GENERATED ALWAYS AS (1) STORED, PRIMARY KEY ("Id", a))`,
		`ALTER TABLE "Événements"."Out Box" DROP COLUMN gone`)
	rel, ok, err := ReadSent(pgtest.Context(t), conn, pg.Table{Schema: "Événements", Name: "Out Box"}, "none")
	if err != nil || !ok {
		t.Fatalf("found %v, %v", ok, err)
	}

	user := func(name string) (oid uint32) {
		must.OK(t, conn.QueryRow(pgtest.Context(t), `SELECT to_regtype($1)::oid`, name).Scan(&oid))
		return oid
	}
	want := []pg.Column{
		{Name: "Id", Type: pgtype.UUIDOID, Modifier: -1, Identity: true, Details: pg.ColumnDetails{NotNull: true, TypeName: "uuid", Kind: 'b'}},
		{Name: "payload", Type: pgtype.JSONBOID, Modifier: -1, Details: pg.ColumnDetails{TypeName: "jsonb", Kind: 'b', Default: `'{"a": 1}'::jsonb`}},
		{Name: "a", Type: pgtype.VarcharOID, Modifier: pg.UnknownModifier, Identity: true, Details: pg.ColumnDetails{NotNull: true, TypeName: "shorter", Kind: 'b'}},
		{Name: "b", Type: user("mood"), TypeName: "mood", Modifier: -1, Details: pg.ColumnDetails{TypeName: "mood", Kind: 'e', Labels: "sad,happy"}},
		{Name: "c", Type: user("moody"), TypeName: "mood", Modifier: -1, Details: pg.ColumnDetails{TypeName: "moody", Kind: 'e', Labels: "sad,happy"}},
	}
	if !slices.Equal(rel.Columns, want) {
		t.Errorf("got  %+v\nwant %+v", rel.Columns, want)
	}
	if rel.Namespace != "Événements" || rel.Name != "Out Box" || rel.OID == 0 {
		t.Errorf("got %+v", rel)
	}
}

func TestReadColumnsOfNothing(t *testing.T) {
	conn := connect(t, pgtest.Shared(t).NewDatabase(t))
	if rel, ok, err := ReadColumns(pgtest.Context(t), conn, pg.Table{Schema: "public", Name: "outbox"}); ok || err != nil {
		t.Errorf("got %+v, %v, %v", rel, ok, err)
	}
}

// publicOID is the OID of the schema public.
func publicOID(t *testing.T, conn *pgx.Conn) (oid uint32) {
	t.Helper()
	must.OK(t, conn.QueryRow(pgtest.Context(t), `SELECT 'public'::regnamespace::oid`).Scan(&oid))
	return oid
}

func TestReadTable(t *testing.T) {
	for _, tt := range []struct {
		name, sql string
		want      TableInfo
	}{
		{"table", `CREATE TABLE outbox (id int PRIMARY KEY)`, TableInfo{ReplicaIdentity: true, Publishable: true}},
		{"unlogged", `CREATE UNLOGGED TABLE outbox (id int)`, TableInfo{Unlogged: true}},
		{"view", `CREATE VIEW outbox AS SELECT 1 AS id`, TableInfo{}},
		{"partitioned", `CREATE TABLE outbox (id int) PARTITION BY HASH (id)`, TableInfo{Partitioned: true, Publishable: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn := connect(t, pgtest.Shared(t).NewDatabase(t), tt.sql)
			got := readTable(t, conn, outbox)
			tt.want.Table, tt.want.OID, tt.want.SchemaOID = outbox, got.OID, publicOID(t, conn)
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
	t.Run("partition of a partition, with partitions", func(t *testing.T) {
		conn := connect(t, pgtest.Shared(t).NewDatabase(t),
			`CREATE SCHEMA "App"`, `CREATE TABLE "App"."a,b" (id int) PARTITION BY LIST (id)`,
			`CREATE TABLE middle PARTITION OF "App"."a,b" DEFAULT PARTITION BY LIST (id)`,
			`CREATE TABLE outbox PARTITION OF middle DEFAULT PARTITION BY LIST (id)`,
			`CREATE TABLE lower PARTITION OF outbox DEFAULT PARTITION BY LIST (id)`,
			`CREATE UNLOGGED TABLE "Last" PARTITION OF lower FOR VALUES IN (1)`,
			`CREATE TABLE logged PARTITION OF lower FOR VALUES IN (2)`)
		got := readTable(t, conn, outbox)
		want := TableInfo{Table: outbox, OID: got.OID, SchemaOID: publicOID(t, conn), Partitioned: true, Publishable: true,
			Ancestors: []pg.Table{{Schema: "public", Name: "middle"}, {Schema: "App", Name: "a,b"}}, Unpublishable: []pg.Table{{Schema: "public", Name: "Last"}}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	t.Run("inherited from", func(t *testing.T) {
		conn := connect(t, pgtest.Shared(t).NewDatabase(t), `CREATE TABLE outbox (id int)`,
			`CREATE TABLE child () INHERITS (outbox)`, `CREATE TABLE grandchild () INHERITS (child)`)
		got := readTable(t, conn, outbox)
		want := []pg.Table{{Schema: "public", Name: "child"}, {Schema: "public", Name: "grandchild"}}
		if !slices.Equal(got.Children, want) || got.Unpublishable != nil || got.Ancestors != nil {
			t.Errorf("got %+v, want the children %v", got, want)
		}
	})
}
