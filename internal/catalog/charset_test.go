package catalog

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// Text of each encoding with gaps is converted as by the server.
func TestCharsetsConvertAsTheServer(t *testing.T) {
	server := pgtest.Shared(t)
	for name, codes := range gaps {
		t.Run(name, func(t *testing.T) {
			database := "charset_" + strings.ToLower(name)
			server.Exec(t, `CREATE DATABASE `+database+` ENCODING '`+name+`' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
			conn := must.Get(Connect(t.Context(), server.URL(database)))(t)
			t.Cleanup(func() { Close(conn); server.Exec(t, `DROP DATABASE `+database) })
			c := must.Get(ReadCharset(t.Context(), conn))(t)

			var all []byte // with an ASCII character between two others
			lacking := 0
			rows, _ := conn.Query(t.Context(), "SELECT decode(code, 'hex') FROM ("+codes+") c(prefix, row), unnest(row) code")
			for _, code := range must.Get(pgx.CollectRows(rows, pgx.RowTo[[]byte]))(t) {
				form, whole := c.UTF8(code)
				if !whole {
					lacking++
					continue
				}
				all = append(append(all, code...), 'x')
				if back, _ := c.UTF8([]byte(c.Encode(string(form)))); utf8.RuneCount(form) == 1 && !bytes.Equal(back, form) {
					t.Errorf("%x is %q, and encoded again %q", code, form, back)
				}
			}
			var want []byte
			must.OK(t, conn.QueryRow(t.Context(), `SELECT convert($1::bytea, $2, 'UTF8')`, all, name).Scan(&want))
			got, whole := c.UTF8(all)
			if !whole || !bytes.Equal(got, want) {
				t.Errorf("%d bytes are converted into %d that are not the server's %d", len(all), len(got), len(want))
			}
			if lacking == 0 {
				t.Error("there is no gap")
			}
			t.Logf("%d bytes of characters, %d without equivalent", len(all), lacking)
		})
	}
}

// PostgreSQL does not convert MULE_INTERNAL into UTF-8, and refuses the login.
func TestAnEncodingThatIsNotConverted(t *testing.T) {
	server := pgtest.Shared(t)
	conn := must.Get(Connect(t.Context(), server.URL("postgres")))(t)
	defer Close(conn)
	if must.Get(ReadServer(t.Context(), conn))(t).Major() >= 19 {
		t.Skip("PostgreSQL 19 has no MULE_INTERNAL any more")
	}
	server.Exec(t, `CREATE DATABASE mule ENCODING 'MULE_INTERNAL' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
	for kind, connect := range map[string]func() error{
		"ordinary":    func() error { c, err := Connect(t.Context(), server.URL("mule")); Close(c); return err },
		"pooled":      func() error { c, err := ConnectPooled(t.Context(), server.URL("mule")); Close(c); return err },
		"replication": func() error { c, err := ConnectReplication(t.Context(), server.URL("mule")); Close(c); return err },
	} {
		if err := connect(); failure.ClassOf(err) != failure.Config || failure.RemedyOf(err) != remedyEncoding {
			t.Errorf("%s: %v (class %d, remedy %q)", kind, err, failure.ClassOf(err), failure.RemedyOf(err))
		}
	}
}
