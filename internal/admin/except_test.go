package admin

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// The verb setup takes a publication of all tables, unless the outbox is one of
// the exceptions (19).
func TestSetupOverAPublicationOfAllTables(t *testing.T) {
	f := sound(t)
	set := func(t *testing.T, publication string) error {
		f.exec(`DROP PUBLICATION IF EXISTS `+f.Source.Publication, `CREATE PUBLICATION `+f.Source.Publication+` FOR ALL TABLES `+publication)
		f.forget() // the checkpoint knows of the former publication
		_, err := Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
		return err
	}
	must.OK(t, set(t, `WITH (publish = 'insert')`))
	if server := must.Get(catalog.ReadServer(f.ctx(), f.conn))(t); server.Major() < 19 {
		t.Skip("PostgreSQL 19 has exceptions")
	}
	f.exec(`CREATE TABLE secret (id int)`, `CREATE TABLE "Other" (id int)`)
	err := set(t, `EXCEPT (TABLE secret, TABLE outbox, TABLE "Other")`)
	wantClass(t, err, failure.Config, "is of all tables EXCEPT table")
	f.exec(failure.RemedyOf(err))
	_, err = Setup(f.ctx(), f.Config, SetupOptions{Schema: SchemaDebezium})
	must.OK(t, err)
	p, _, err := catalog.ReadPublication(f.ctx(), f.conn, f.Source.Publication)
	must.OK(t, err)
	if len(p.Excepted) != 2 {
		t.Errorf("the exceptions are %v, want those of others", p.Excepted)
	}
}
