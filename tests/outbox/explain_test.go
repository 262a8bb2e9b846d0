package outbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
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
