package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

func TestErrorsOfTheServerSayWhatToDo(t *testing.T) {
	noHeaders := strings.Replace(outbox.Schema, "headers ", "other ", 1)
	for name, tt := range map[string]struct {
		ddl     []string
		prepare []string // in the transaction
		emit    bool
		code    string
		says    string
	}{
		"no table":      {nil, nil, false, "42P01", "outbox.Schema"},
		"no column":     {[]string{noHeaders}, nil, false, "42703", "NoHeaders"},
		"payload bytea": {[]string{outbox.Schema, `ALTER TABLE outbox ALTER payload TYPE bytea USING NULL`}, nil, false, "42804", "Options.Payload"},
		"short column":  {[]string{outbox.Schema, `ALTER TABLE outbox ALTER type TYPE varchar(3)`}, nil, false, "22001", "shorter"},
		"no privilege":  {[]string{outbox.Schema}, []string{`SET LOCAL ROLE outbox_poor`}, false, "42501", "grant"},
		"read only":     {[]string{outbox.Schema}, []string{`SET TRANSACTION READ ONLY`}, false, "25006", "may write"},
		"failed before": {[]string{outbox.Schema}, []string{`SELECT 1/0`}, false, "25P02", "roll it back"},
		"no partition":  {[]string{outbox.PartitionedSchema, `DROP TABLE outbox_default`}, nil, false, "23514", "Table.Partition"},
		"emit failed":   {nil, []string{`SELECT 1/0`}, true, "25P02", "roll it back"},
	} {
		t.Run(name, func(t *testing.T) {
			url := newDB(t, append([]string{`DROP ROLE IF EXISTS outbox_poor`, `CREATE ROLE outbox_poor`}, tt.ddl...)...)
			t.Cleanup(func() { pgtest.Exec(t, url, `DROP ROLE outbox_poor`) })
			tx := begin(t, url)
			for _, statement := range tt.prepare {
				_, _ = tx.Exec(t.Context(), statement) // one of them is meant to fail
			}
			write := outbox.Write[pgconn.CommandTag]
			if tt.emit {
				write = outbox.Emit[pgconn.CommandTag]
			}
			_, err := write(t.Context(), tx, order("1"))
			var server *pgconn.PgError
			if !errors.As(err, &server) || server.Code != tt.code || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v\nwant SQLSTATE %s, %q", err, tt.code, tt.says)
			}
		})
	}
}

// A connection in another encoding than UTF8 would store other characters.
func TestAConnectionInAnotherEncoding(t *testing.T) {
	server := pgtest.Shared(t)
	server.Exec(t, `CREATE DATABASE outbox_latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`)
	t.Cleanup(func() { server.Exec(t, `DROP DATABASE outbox_latin WITH (FORCE)`) })
	url := server.URL("outbox_latin")
	pgtest.Exec(t, url, outbox.Schema)
	plain, accented := order("1"), order("2")
	accented.Payload = map[string]string{"name": "Zoé"}
	for name, beginTx := range clients(t, url) {
		if name == "pgx, mode simple protocol" {
			continue // refused by pgx itself
		}
		t.Run(name, func(t *testing.T) {
			for _, events := range [][]outbox.Event{{accented}, {plain, accented}} {
				tx, _ := beginTx(t)
				_, err := newWriter(t, outbox.Options{}).Write(t.Context(), tx, events...)
				if name == "sql with lib/pq" { // sets the encoding by itself
					if err != nil {
						t.Error(err)
					}
					continue
				}
				if err == nil || !strings.Contains(err.Error(), "client_encoding of this connection is LATIN1") ||
					!strings.Contains(err.Error(), "client_encoding=UTF8") {
					t.Errorf("error %v", err)
				}
			}
			tx, commit := beginTx(t)
			if _, err := newWriter(t, outbox.Options{}).Write(t.Context(), tx, plain, order("3")); err != nil {
				t.Errorf("ASCII: %v", err)
			} else if err := commit(); err != nil {
				t.Error(err)
			}
		})
	}
	url += "?client_encoding=UTF8"
	tx := begin(t, url)
	if _, err := outbox.Write(t.Context(), tx, accented); err != nil {
		t.Fatal(err)
	}
	var name string
	if err := tx.QueryRow(t.Context(), `SELECT payload->>'name' FROM outbox WHERE aggregateid = '2'`).Scan(&name); err != nil || name != "Zoé" {
		t.Errorf("%q, %v", name, err)
	}
	beyond := order("4")
	beyond.Type = "茶"
	if _, err := outbox.Write(t.Context(), tx, beyond); err == nil || !strings.Contains(err.Error(), "has no form of a character") {
		t.Errorf("error %v", err)
	}
}

// rewriting is a transaction dropping parameters, as bun's does.
type rewriting struct{ *sql.Tx }

func (r rewriting) ExecContext(ctx context.Context, query string, _ ...any) (sql.Result, error) {
	return r.Tx.ExecContext(ctx, query)
}

func TestATransactionThatDropsParameters(t *testing.T) {
	db, err := sql.Open("pgx", newDB(t, outbox.Schema))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := outbox.WriteSQL(t.Context(), rewriting{tx}, order("1")); err == nil || !strings.Contains(err.Error(), "tx.Tx") {
		t.Errorf("error %v", err)
	}
}

func TestAnIDWrittenBeforeIsExplained(t *testing.T) {
	url := newDB(t, outbox.Schema)
	e := order("1")
	var err error
	if e.ID, err = outbox.NewID(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "is there already"} {
		begun, commit := beginSQL("postgres", url+"?sslmode=disable")(t)
		_, err := newWriter(t, outbox.Options{}).Write(t.Context(), begun, e)
		if i == 0 {
			if err != nil {
				t.Fatal(err)
			}
			if err := commit(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var server *pq.Error
		if !errors.As(err, &server) || server.Code != "23505" || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want SQLSTATE 23505, %q", err, want)
		}
	}
}

func TestOtherErrorsStayAsTheyAre(t *testing.T) {
	for _, cause := range []error{errors.New("connection reset"), &pgconn.PgError{Code: "53100", Message: "disk full"}} {
		_, err := outbox.WriteSQL(t.Context(), &recorder{err: cause}, order("1"))
		if want := `insert events into "outbox": ` + cause.Error(); !errors.Is(err, cause) || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
