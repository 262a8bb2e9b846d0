package wal

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

func TestReadColumns(t *testing.T) {
	conn := connect(t, pgtest.Shared(t).NewDatabase(t),
		`CREATE SCHEMA "Événements"`,
		`CREATE TYPE mood AS ENUM ('sad', 'happy')`,
		`CREATE DOMAIN short AS varchar(10)`,
		`CREATE DOMAIN shorter AS short CHECK (length(VALUE) < 5)`,
		`CREATE DOMAIN moody AS mood`,
		`CREATE TABLE "Événements"."Out Box" (
			gone int, "Id" uuid, payload jsonb, a shorter, b mood, c moody,
			d int GENERATED ALWAYS AS (1) STORED, PRIMARY KEY ("Id", a))`,
		`ALTER TABLE "Événements"."Out Box" DROP COLUMN gone`)
	rel, ok, err := ReadColumns(testContext(t), conn, Table{"Événements", "Out Box"})
	if err != nil || !ok {
		t.Fatalf("found %v, %v", ok, err)
	}

	user := func(name string) (oid uint32) {
		if err := conn.QueryRow(testContext(t), `SELECT to_regtype($1)::oid`, name).Scan(&oid); err != nil {
			t.Fatal(err)
		}
		return oid
	}
	want := []Column{
		{"Id", pgtype.UUIDOID, true},
		{"payload", pgtype.JSONBOID, false},
		{"a", pgtype.VarcharOID, true},
		{"b", user("mood"), false},
		{"c", user("moody"), false},
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
	if rel, ok, err := ReadColumns(testContext(t), conn, Table{"public", "outbox"}); ok || err != nil {
		t.Errorf("got %+v, %v, %v", rel, ok, err)
	}
}

func TestReadTable(t *testing.T) {
	tests := []struct {
		name, sql string
		want      TableInfo
	}{
		{"table", `CREATE TABLE outbox (id int PRIMARY KEY)`, TableInfo{ReplicaIdentity: true, Publishable: true}},
		{"unlogged", `CREATE UNLOGGED TABLE outbox (id int)`, TableInfo{}},
		{"view", `CREATE VIEW outbox AS SELECT 1 AS id`, TableInfo{}},
		{"partitioned", `CREATE TABLE outbox (id int) PARTITION BY HASH (id)`, TableInfo{Partitioned: true, Publishable: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conn := connect(t, pgtest.Shared(t).NewDatabase(t), tt.sql)
			got := readTable(t, conn, outbox)
			tt.want.Table, tt.want.OID = outbox, got.OID
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
	t.Run("partition", func(t *testing.T) {
		conn := connect(t, pgtest.Shared(t).NewDatabase(t),
			`CREATE SCHEMA app`, `CREATE TABLE app.events (id int) PARTITION BY HASH (id)`,
			`CREATE TABLE outbox PARTITION OF app.events FOR VALUES WITH (MODULUS 1, REMAINDER 0)`)
		if got := readTable(t, conn, outbox); got.PartitionOf != "app.events" {
			t.Errorf("got %+v", got)
		}
	})
}
