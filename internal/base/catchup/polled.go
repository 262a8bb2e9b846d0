package catchup

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
)

// pageRows bounds the rows that are waited for at a time, and so the memory. A
// variable for tests.
var pageRows = 10_000

// Rows are the unpublished rows of a polled table, in SQL.
type Rows struct {
	Table   string // quoted, with its schema if there is one
	Pending string // condition of an unpublished row
	Key     string // quoted column that orders the pages; rows of equal keys count as one
	KeyType string // of the column
}

// Polled waits for all rows that are visible and unpublished at its beginning. It
// goes through the table by the key: it remembers a page of unpublished rows, and
// reads the next when none of them is left. So later rows prolong the wait by
// those only that a later page still finds. It is for a single goroutine.
type Polled struct {
	Rows
	// Left is how many rows of the page were unpublished at the last look.
	Left int64

	after string   // the last key of the page before, if there was one
	more  bool     // there was a page before
	keys  []string // of the page; nil: it is to be read
	last  string   // of the page
}

// Statement is the next question, in a single row and column for Take. It takes
// at most one argument, of text.
func (p *Polled) Statement() (sql string, args []any) {
	const answer = `SELECT jsonb_build_object('standby', pg_is_in_recovery(), 'hidden', row_security_active(%s::regclass), %s)::text`
	table := pgsql.Literal(p.Table)
	if p.keys != nil {
		keys, _ := json.Marshal(p.keys) // of strings
		return fmt.Sprintf(answer, table, fmt.Sprintf(`'left', (SELECT count(*) FROM %s WHERE (%s) AND %s IN (SELECT jsonb_array_elements_text($1::text::jsonb)::%s))`,
			p.Table, p.Pending, p.Key, p.KeyType)), []any{string(keys)}
	}
	from := ""
	if p.more {
		from, args = fmt.Sprintf(" AND %s > $1::text::%s", p.Key, p.KeyType), []any{p.after}
	}
	page := fmt.Sprintf(`WITH page AS (SELECT %[1]s AS key FROM %[2]s WHERE (%[3]s) AND %[1]s IS NOT NULL%[4]s ORDER BY %[1]s LIMIT %[5]d) `, p.Key, p.Table, p.Pending, from, pageRows)
	return page + fmt.Sprintf(answer, table, fmt.Sprintf(`'keys', (SELECT COALESCE(jsonb_agg(DISTINCT key::text), '[]') FROM page),
		'last', (SELECT key::text FROM page ORDER BY key DESC LIMIT 1),
		'left', (SELECT count(*) FROM page) + (SELECT count(*) FROM (SELECT FROM %s WHERE (%s) AND %s IS NULL LIMIT %d) without)`, p.Table, p.Pending, p.Key, pageRows)), args
}

// Take reads the answer to Statement. published means that all is; moved that the
// next question need not wait.
func (p *Polled) Take(answer []byte) (published, moved bool, err error) {
	var a struct {
		Standby bool     `json:"standby"`
		Hidden  bool     `json:"hidden"`
		Keys    []string `json:"keys"`
		Last    string   `json:"last"`
		Left    int64    `json:"left"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return false, false, fmt.Errorf("read the answer about table %s: %w", p.Table, err)
	}
	switch {
	case a.Standby:
		return false, false, &failure.Error{Class: failure.Config, Err: errors.New("the server is a standby, and shows rows later"),
			Remedy: "connect to the primary: add target_session_attrs=read-write to the URL, and list all hosts there"}
	case a.Hidden:
		return false, false, failure.Configf("let the role see all rows: ALTER ROLE … BYPASSRLS; or ask as the table's owner", "row-level security of table %s may hide rows", p.Table)
	}
	p.Left = a.Left
	switch {
	case p.keys != nil && a.Left == 0: // the page is published
		p.after, p.more, p.keys = p.last, true, nil
		return false, true, nil
	case p.keys != nil:
		return false, false, nil
	case len(a.Keys) > 0:
		p.keys, p.last = a.Keys, a.Last
		return false, false, nil
	}
	return a.Left == 0, false, nil // rows without a key are waited for at the end
}

// Describe says what is left.
func (p *Polled) Describe() string {
	more := ""
	if p.Left >= int64(pageRows) {
		more = " or more"
	}
	return fmt.Sprintf("%d%s rows of %s are not published", p.Left, more, p.Table)
}
