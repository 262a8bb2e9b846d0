package poll_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cdc-outbox/cdc-outbox/internal/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
)

// TestIndexNameThatIsTaken has another table's index, and one of ours that does
// something else, under the names that come first.
func TestIndexNameThatIsTaken(t *testing.T) {
	w := newWorld(t, nil, serialOutbox, `CREATE TABLE other (n int)`, `CREATE INDEX outbox_unpublished_idx ON other (n)`,
		`CREATE INDEX outbox_unpublished_idx2 ON outbox (created_at) WHERE NOT published`)
	sql := w.table().IndexSQL()
	w.exec(w.conn, sql)
	if got := w.table(); got.Index != "outbox_unpublished_idx3" {
		t.Errorf("after %s there is %q", sql, got.Index)
	}
}

// TestIndexWhoseCreationFailed leaves what CREATE INDEX CONCURRENTLY leaves.
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
