package poll_test

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// A row with a character without an equivalent in UTF-8 is a bad event, and holds up no
// other; all other characters are converted.
func TestCharactersWithoutEquivalent(t *testing.T) {
	server := pgtest.Shared(t)
	server.Exec(t, `CREATE DATABASE poll_gaps ENCODING 'WIN1252' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
	w := newWorldIn(t, server.URL("poll_gaps"), serialOutbox, serialIndex)
	w.parts.OnBadEvent = transform.BadEventDeadLetter
	w.exec(w.conn,
		`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', E'caf\xe9', 'Placed', E'"\x80"')`,
		`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'o', 'Placed', E'"\x81"')`,
		`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', E'caf\xe9', 'Placed', '2')`)
	in := w.start(nil)
	w.await("all rows to be marked", func() bool { return w.count("published") == 3 })
	must.OK(t, in.stop())
	got := w.topic.all()
	if len(got) != 2 || got[0].key != "café" || got[0].value != `"€"` || got[1].key != "café" {
		t.Errorf("the topic holds %+v", got)
	}
	if letters := w.topic.letters(); len(letters) != 1 || letters[0].value != "\"\uFFFD\"" {
		t.Errorf("the dead letters are %+v", letters)
	}
}
